//! The targets of each row, and the processes behind them.
//!
//! Legacy clients meet a legacy upstream and modern clients a modern one, so that the gateway
//! relays what the proxies relay; two rows translate between the eras, which the proxies do not.

use std::path::Path;

use anyhow::Context;
use tempfile::TempDir;

use crate::budget::{
    ARG1M_C4, ARG64K_C8, BIG1M_C4, BIG64K_C8, CALL_C1, CALL_C16, CALL_C64, DIRECT, FLOOR, HEADEND, HEADEND_GRANTED,
    HEADEND_HUNDRED, HEADEND_RULES, LEGACY_TO_MODERN_C16, LIST_C4, MODERN_C16, MODERN_TO_LEGACY_C16, NGINX,
    PROGRESS_C4, STDIO_C1, STDIO_C16, TLS_C16,
};
use crate::gateway::{BenchGateway, BenchSetup, Nginx, consent};
use crate::peers::{PeerRecipe, RunningPeer};
use crate::process::{MeasuredProcess, ServerProcess};
use crate::scenario::{BenchEndpoint, LoadEra, Scenario};
use crate::tls::CertificateFiles;

/// Number of upstreams of [`GatewayVariant::Hundred`], and the length of each one's list.
const MANY: usize = 100;
pub(crate) const TOOLS_OF_MANY: usize = 50;

/// The tool that calls go to.
pub(crate) const TOOL: &str = "echo";

/// The tools of an upstream that is only called.
pub(crate) const TOOLS: usize = 4;

/// One row of the run.
#[derive(Debug)]
pub(crate) struct BenchRow {
    pub(crate) name: &'static str,
    pub(crate) scenario: Scenario,
    pub(crate) era: LoadEra,
    pub(crate) in_flight: u64,
    /// Whether the machine is made quiet for it.
    pub(crate) quiet: bool,
    pub(crate) targets: &'static [BenchTarget],
    /// Whether other gateways have a turn too.
    pub(crate) peers: bool,
}

/// A target of measurements.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum BenchTarget {
    /// The upstream itself.
    Direct,
    /// One upstream with the tools of all [`MANY`].
    DirectLong,
    Floor,
    /// The floor in front of an upstream with TLS.
    FloorTls,
    Nginx,
    Headend(GatewayVariant),
}

/// A setup of the gateway: its upstream and its policy.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum GatewayVariant {
    Legacy,
    Modern,
    /// A legacy upstream, and a policy of a hundred rules.
    Rules,
    /// A legacy upstream whose tool needs an approval and has a grant.
    Granted,
    /// A hundred legacy upstreams with long lists.
    Hundred,
    Stdio,
    /// A modern upstream with TLS.
    Tls,
}

impl BenchTarget {
    fn label(self) -> &'static str {
        match self {
            Self::Direct | Self::DirectLong => DIRECT,
            Self::Floor | Self::FloorTls => FLOOR,
            Self::Nginx => NGINX,
            Self::Headend(GatewayVariant::Hundred) => HEADEND_HUNDRED,
            Self::Headend(GatewayVariant::Rules) => HEADEND_RULES,
            Self::Headend(GatewayVariant::Granted) => HEADEND_GRANTED,
            Self::Headend(
                GatewayVariant::Legacy | GatewayVariant::Modern | GatewayVariant::Stdio | GatewayVariant::Tls,
            ) => HEADEND,
        }
    }
}

const PLAIN: &[BenchTarget] =
    &[BenchTarget::Direct, BenchTarget::Floor, BenchTarget::Nginx, BenchTarget::Headend(GatewayVariant::Legacy)];
const MODERN: &[BenchTarget] =
    &[BenchTarget::Direct, BenchTarget::Floor, BenchTarget::Nginx, BenchTarget::Headend(GatewayVariant::Modern)];
const ALL_FRONTS: &[BenchTarget] = &[
    BenchTarget::Direct,
    BenchTarget::Floor,
    BenchTarget::Nginx,
    BenchTarget::Headend(GatewayVariant::Legacy),
    BenchTarget::Headend(GatewayVariant::Hundred),
    BenchTarget::Headend(GatewayVariant::Rules),
    BenchTarget::Headend(GatewayVariant::Granted),
];
const LISTS: &[BenchTarget] = &[BenchTarget::DirectLong, BenchTarget::Headend(GatewayVariant::Hundred)];
/// The floor has no pipes: it relays the same calls over HTTP.
const STDIO: &[BenchTarget] = &[BenchTarget::Floor, BenchTarget::Headend(GatewayVariant::Stdio)];
/// The load generator speaks no TLS.
const TLS: &[BenchTarget] = &[BenchTarget::FloorTls, BenchTarget::Headend(GatewayVariant::Tls)];
const CROSSED: &[BenchTarget] =
    &[BenchTarget::Direct, BenchTarget::Floor, BenchTarget::Headend(GatewayVariant::Modern)];
const CROSSED_BACK: &[BenchTarget] =
    &[BenchTarget::Direct, BenchTarget::Floor, BenchTarget::Headend(GatewayVariant::Legacy)];

const fn row(name: &'static str, scenario: Scenario, in_flight: u64, targets: &'static [BenchTarget]) -> BenchRow {
    BenchRow { name, scenario, era: LoadEra::Legacy, in_flight, quiet: in_flight == 1, targets, peers: false }
}

/// The rows of the run.
pub(crate) const ROWS: &[BenchRow] = &[
    BenchRow { peers: true, ..row(CALL_C16, Scenario::Call, 16, ALL_FRONTS) },
    row(CALL_C64, Scenario::Call, 64, PLAIN),
    BenchRow { era: LoadEra::Modern, ..row(MODERN_C16, Scenario::Call, 16, MODERN) },
    row(LEGACY_TO_MODERN_C16, Scenario::Call, 16, CROSSED),
    BenchRow { era: LoadEra::Modern, ..row(MODERN_TO_LEGACY_C16, Scenario::Call, 16, CROSSED_BACK) },
    BenchRow { peers: true, ..row(CALL_C1, Scenario::Call, 1, PLAIN) },
    row(LIST_C4, Scenario::List, 4, LISTS),
    row(BIG64K_C8, Scenario::Big64k, 8, PLAIN),
    row(BIG1M_C4, Scenario::Big1m, 4, PLAIN),
    row(ARG64K_C8, Scenario::Arg64k, 8, PLAIN),
    row(ARG1M_C4, Scenario::Arg1m, 4, PLAIN),
    row(PROGRESS_C4, Scenario::Progress, 4, PLAIN),
    row(TLS_C16, Scenario::Call, 16, TLS),
    row(STDIO_C16, Scenario::Call, 16, STDIO),
    row(STDIO_C1, Scenario::Call, 1, STDIO),
];

/// A running target, as the load generator reaches it.
#[derive(Debug)]
pub(crate) struct RunningTarget {
    /// The target's name in the results.
    pub(crate) label: String,
    pub(crate) target: BenchEndpoint,
    pub(crate) process: MeasuredProcess,
    pub(crate) prefixes: Vec<String>,
    pub(crate) tools: usize,
}

/// Every process of the run. Fields are dropped in this order: callers before the called.
#[derive(Debug, Default)]
pub(crate) struct Fleet {
    seats: Vec<(BenchTarget, RunningTarget)>,
    gateways: Vec<BenchGateway>,
    nginx: Option<Nginx>,
    peers: Vec<(RunningTarget, RunningPeer)>,
    servers: Vec<ServerProcess>,
    folders: Vec<TempDir>,
}

impl Fleet {
    /// Starts every process that the rows need. A gateway that does not start is a problem, not the
    /// end of the run.
    ///
    /// # Errors
    /// When an upstream or a proxy does not start.
    pub(crate) async fn start(
        binary: Option<&Path>,
        rows: &[&BenchRow],
        peers: &[PeerRecipe],
        problems: &mut Vec<String>,
    ) -> anyhow::Result<Self> {
        let mut fleet = Self::default();
        let upstream = fleet.upstream(BenchTarget::Direct, TOOLS)?;
        fleet.upstream(BenchTarget::DirectLong, MANY * TOOLS_OF_MANY)?;
        fleet.floor(BenchTarget::Floor, &floor_arguments(&upstream))?;
        match Nginx::start(&upstream).await? {
            None => eprintln!("nginx is not installed: ratios to it are not measured"),
            Some(nginx) => {
                let (target, process) = (nginx.target.clone(), nginx.server.process_tree());
                fleet.sit(BenchTarget::Nginx, target, process, TOOLS);
                fleet.nginx = Some(nginx);
            }
        }
        for peer in peers.iter().filter(|_| rows.iter().any(|row| row.peers)) {
            match peer.start(&upstream, TOOL).await {
                Ok(None) => {}
                Ok(Some(running)) => {
                    let (target, process) = (running.target.clone(), running.server.process_tree());
                    let prefixes = vec![running.prefix.clone()];
                    let seat = RunningTarget { label: peer.name.clone(), target, process, prefixes, tools: TOOLS };
                    fleet.peers.push((seat, running));
                }
                Err(error) => problems.push(format!("start {}: {error:#}", peer.name)),
            }
        }
        let Some(binary) = binary else {
            return Ok(fleet);
        };
        for front in [
            GatewayVariant::Legacy,
            GatewayVariant::Modern,
            GatewayVariant::Rules,
            GatewayVariant::Granted,
            GatewayVariant::Hundred,
            GatewayVariant::Stdio,
            GatewayVariant::Tls,
        ] {
            if !rows.iter().any(|row| row.targets.contains(&BenchTarget::Headend(front))) {
                continue;
            }
            if let Err(error) = fleet.gateway(binary, front, &upstream).await {
                problems.push(format!("start the gateway ({front:?}): {error:#}"));
            }
        }
        Ok(fleet)
    }

    /// Returns the targets of a row that run.
    pub(crate) fn seats(&self, row: &BenchRow) -> Vec<&RunningTarget> {
        let own = row.targets.iter().filter_map(|who| self.seat(*who));
        own.chain(self.peers.iter().map(|(seat, _)| seat).filter(|_| row.peers)).collect()
    }

    pub(crate) fn seat(&self, who: BenchTarget) -> Option<&RunningTarget> {
        self.seats.iter().find(|(of, _)| *of == who).map(|(_, seat)| seat)
    }

    fn upstream(&mut self, who: BenchTarget, tools: usize) -> anyhow::Result<String> {
        let (server, address) = start_upstreams("both", 1, tools)?;
        self.sit(who, BenchEndpoint::new(&url(address.first())?, None)?, server.process(), tools);
        self.servers.push(server);
        address.into_iter().next().context("an upstream without an address")
    }

    fn floor(&mut self, who: BenchTarget, arguments: &[&str]) -> anyhow::Result<()> {
        let (floor, addresses) = ServerProcess::start_own(arguments, 1)?;
        self.sit(who, BenchEndpoint::new(&url(addresses.first())?, None)?, floor.process(), TOOLS);
        self.servers.push(floor);
        Ok(())
    }

    /// Starts an upstream with TLS and the floor in front of it; returns the gateway's setup for
    /// that upstream.
    fn secured(&mut self) -> anyhow::Result<BenchSetup> {
        let folder = tempfile::tempdir().context("create a folder for certificates")?;
        let files = CertificateFiles::at(folder.path());
        files.write()?;
        let path = folder.path().to_str().context("a folder whose name is no text")?;
        let tools = TOOLS.to_string();
        let upstream = ["upstream", "--until-eof", "--tls", path, "--tools", &tools, "--listen", "127.0.0.1:0"];
        let (server, addresses) = ServerProcess::start_own(&upstream, 1)?;
        let address = addresses.first().context("an upstream without an address")?;
        self.servers.push(server);
        self.floor(BenchTarget::FloorTls, &[&floor_arguments(address)[..], &["--tls", path]].concat())?;
        self.folders.push(folder);
        Ok(BenchSetup::over_tls(address, &files, TOOLS))
    }

    async fn gateway(&mut self, binary: &Path, front: GatewayVariant, modern: &str) -> anyhow::Result<()> {
        let setup = match front {
            GatewayVariant::Modern => BenchSetup::of(&[modern.to_owned()], TOOLS),
            GatewayVariant::Stdio => BenchSetup::stdio(TOOLS)?,
            GatewayVariant::Tls => self.secured()?,
            GatewayVariant::Legacy | GatewayVariant::Rules | GatewayVariant::Granted | GatewayVariant::Hundred => {
                let (count, tools) = if front == GatewayVariant::Hundred { (MANY, TOOLS_OF_MANY) } else { (1, TOOLS) };
                let (server, addresses) = start_upstreams("legacy", count, tools)?;
                self.servers.push(server);
                let mut setup = BenchSetup::of(&addresses, tools);
                if front == GatewayVariant::Rules {
                    setup.rules = 100;
                }
                setup.asks = front == GatewayVariant::Granted;
                setup
            }
        };
        let folder = tempfile::tempdir().context("create a folder for the gateway")?;
        let gateway = setup.start(binary, folder.path()).await?;
        if setup.asks {
            consent(binary, folder.path(), TOOL)?;
        }
        let who = BenchTarget::Headend(front);
        let seat = RunningTarget {
            label: who.label().to_owned(),
            target: gateway.target.clone(),
            process: gateway.server.process(),
            prefixes: setup.prefixes(),
            tools: setup.tools,
        };
        self.seats.push((who, seat));
        self.gateways.push(gateway);
        self.folders.push(folder);
        Ok(())
    }

    fn sit(&mut self, who: BenchTarget, target: BenchEndpoint, process: MeasuredProcess, tools: usize) {
        let label = who.label().to_owned();
        self.seats.push((who, RunningTarget { label, target, process, prefixes: Vec::new(), tools }));
    }
}

/// Returns the arguments of a floor in front of the server at `upstream`.
pub(crate) fn floor_arguments(upstream: &str) -> [&str; 6] {
    ["floor", "--listen", "127.0.0.1:0", "--until-eof", "--to", upstream]
}

/// Starts `count` upstreams in one process; returns their addresses.
///
/// # Errors
/// When they do not start.
pub(crate) fn start_upstreams(eras: &str, count: usize, tools: usize) -> anyhow::Result<(ServerProcess, Vec<String>)> {
    let tools = tools.to_string();
    let mut arguments = vec!["upstream", "--until-eof", "--eras", eras, "--tools", &tools];
    for _ in 0..count {
        arguments.extend(["--listen", "127.0.0.1:0"]);
    }
    ServerProcess::start_own(&arguments, count)
}

/// Returns the endpoint at an address that a child named.
pub(crate) fn url(address: Option<&String>) -> anyhow::Result<String> {
    Ok(format!("http://{}/mcp", address.context("a server without an address")?))
}
