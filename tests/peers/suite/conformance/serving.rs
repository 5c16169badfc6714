//! The suite as a client of the gateway, with the reference server behind it.

use std::collections::BTreeSet;
use std::process::Stdio;
use std::time::Duration;

use super::cell::{Cell, SuiteOutput};
use super::record::{self, RecordedMessage};
use super::schema::Side;
use super::tap::{PipeTap, Tap};
use super::{CellVerdict, SuiteRevision};
use crate::harness::{GatewaySetup, TestHome};
use crate::peers::PeerFolders;
use crate::process::{output_within, said};
use crate::upstream::{Listening, example, toml_array};

/// One of the servers behind the gateway.
#[derive(Debug, Clone, Copy)]
pub(super) struct SuiteServer {
    pub(super) name: &'static str,
    pub(super) era: &'static str,
    pub(super) transport: &'static str,
    /// Prefix that the server drops from its names and the gateway adds to all of them.
    pub(super) prefix: &'static str,
    /// The only items to offer; empty: all.
    pub(super) only: &'static str,
    /// True if the gateway gets the URL alone and detects the transport.
    pub(super) found_out: bool,
}

impl SuiteServer {
    pub(super) const fn whole(era: &'static str, transport: &'static str) -> Self {
        Self { name: "fx", era, transport, prefix: "", only: "", found_out: false }
    }

    /// Returns this server with names that only the gateway's prefix makes right. One tool of the
    /// suite needs another prefix and a server of its own. The gateway detects the transport.
    pub(super) fn renamed(self) -> [Self; 2] {
        let renamed = Self { prefix: "test_", found_out: true, ..self };
        [renamed, Self { name: "schemas", prefix: "json_schema_", only: "tools", ..renamed }]
    }

    const fn part(name: &'static str, era: &'static str, transport: &'static str, only: &'static str) -> Self {
        Self { name, only, ..Self::whole(era, transport) }
    }

    /// Returns the filters of the server's table in the configuration.
    fn filters(&self) -> String {
        let kinds = ["tools", "prompts", "resources"];
        let others = kinds.iter().filter(|kind| !self.only.is_empty() && **kind != self.only);
        others.map(|kind| format!("{kind} = {{ deny = [\"*\"] }}\n")).collect()
    }
}

/// Tools, prompts and resources of three servers of three kinds.
pub(super) const SPLIT: [SuiteServer; 3] = [
    SuiteServer::part("tooling", "modern", "stdio", "tools"),
    SuiteServer::part("prompting", "legacy", "http", "prompts"),
    SuiteServer::part("reading", "legacy", "sse", "resources"),
];

/// A running server, or one that the gateway will start.
#[derive(Debug)]
struct RunningSuiteServer {
    place: String,
    /// The server's table in the configuration.
    table: String,
    /// A server on HTTP, or the record of one on pipes.
    listening: Result<Listening, PipeTap>,
}

impl RunningSuiteServer {
    fn start(server: &SuiteServer, world: &TestHome, tap: &Tap) -> Self {
        let mut arguments = vec![server.transport.to_owned(), "--era".to_owned(), server.era.to_owned()];
        if !server.prefix.is_empty() {
            arguments.extend(["--strip-prefix".to_owned(), server.prefix.to_owned()]);
        }
        let program = example("conformance-fixture");
        let (target, listening) = if server.transport != "stdio" {
            let running = Listening::spawn(&program, &arguments);
            let told = server.transport == "sse" && !server.found_out;
            let transport = if told { "transport = \"sse\"\n" } else { "" };
            (format!("url = \"{}\"\n{transport}", tap.before(&running.url)), Ok(running))
        } else {
            let pipes = PipeTap::new(&world.path("work"), server.name);
            let words = std::iter::once(program.to_str().unwrap()).chain(arguments.iter().map(String::as_str));
            let line = pipes.around(&shlex::try_join(words).unwrap());
            (format!("command = {}", toml_array(["sh", "-c", &line])), Err(pipes))
        };
        let SuiteServer { name, prefix, .. } = server;
        let table =
            format!("[upstreams.{name}]\n{target}\nroots = \"client\"\nprefix = \"{prefix}\"\n{}", server.filters());
        let place = format!("to the {} server on {}", server.era, server.transport);
        Self { place, table, listening }
    }

    /// Returns the messages between the server and the gateway.
    fn entries(&self, tap: &Tap, revision: SuiteRevision) -> Vec<RecordedMessage> {
        match &self.listening {
            Ok(listening) if listening.url.ends_with("/sse") => {
                record::of_sse(&tap.exchanges(&listening.url), revision)
            }
            Ok(listening) => record::of_http(&tap.exchanges(&listening.url), revision),
            Err(pipes) => record::of_pipes(pipes, revision),
        }
    }
}

/// Plays the requirements of a revision through a gateway before these servers.
pub(super) fn play(revision: SuiteRevision, cell: &str, servers: &[SuiteServer]) {
    let Some(peers) = PeerFolders::find() else { return };
    let tap = Tap::start();
    // The suite cannot send a token.
    let mut setup = GatewaySetup::new().server("[server.auth]\nmode = \"none\"");
    let running: Vec<RunningSuiteServer> =
        servers.iter().map(|server| RunningSuiteServer::start(server, &setup.world, &tap)).collect();
    for server in &running {
        setup = setup.toml(&server.table);
    }
    let gateway = setup.start();
    gateway.wait_for_tools(&["test_simple_text"]);
    let url = format!("http://{}/mcp", gateway.address);
    wait_for_everything(&gateway);
    let suite = |arguments: &[&str]| {
        let mut command = gateway.world.command(peers.node().to_str().unwrap());
        command.arg(peers.package("conformance").join("dist/index.js"));
        command.args(["server", "--url", &tap.before(&url)]).args(arguments);
        command.stdout(Stdio::piped()).stderr(Stdio::piped());
        output_within(command.spawn().unwrap(), Duration::from_secs(180), "the conformance suite")
    };
    let judged = suite(&["--requirements", revision, "-o", "results"]);
    let text = String::from_utf8_lossy(&judged.stdout).into_owned();
    assert!(text.contains("Total: "), "{}", said(&judged));
    let (mut verdict, expected) = (CellVerdict::new(cell), Cell::read(cell));
    let counts: Vec<CheckCount<'_>> = text.lines().filter_map(CheckCount::read).collect();
    let results = gateway.world.path("work/results");
    let warnings = SuiteOutput::read(&results, &["server-".to_owned()]).warnings();
    eprintln!("{cell}: {}, {warnings} warnings", tally(&counts, &unscored(&text)));
    let mut failed: BTreeSet<String> =
        counts.iter().filter(|count| count.failed > 0).map(|count| count.scenario.to_owned()).collect();
    expected.give_a_second_chance(&mut failed, |scenario| {
        suite(&["--scenario", scenario, "--spec-version", revision]).status.success()
    });
    expected.compare(&failed, &mut verdict.wrong);
    expected.count(counts.iter().map(|count| count.passed).sum(), &mut verdict.wrong);
    verdict.messages("to the suite", Side::Server, &record::of_http(&tap.exchanges(&url), revision));
    for server in &running {
        verdict.messages(&server.place, Side::Client, &server.entries(&tap, revision));
    }
    verdict.end(|| {
        let unexpected = failed.iter().filter(|scenario| expected.reason(scenario).is_none());
        // The time follows, which begins with a digit.
        let folders: Vec<String> = unexpected.map(|scenario| format!("server-{scenario}-2")).collect();
        let outcome = SuiteOutput::read(&results, &folders);
        format!("checks that failed:\n{outcome}\n{}", said(&judged))
    });
}

/// The lists of several servers arrive one after the other.
fn wait_for_everything(gateway: &crate::harness::Gateway) {
    let mut client = gateway.modern();
    crate::process::eventually("prompts and resources are listed", || {
        let lists = [("prompts/list", "prompts"), ("resources/list", "resources")];
        lists.iter().all(|(method, member)| !client.list(method, member).is_empty())
    });
}

/// The checks of one scenario as the suite counts them.
#[derive(Debug)]
struct CheckCount<'t> {
    scenario: &'t str,
    passed: usize,
    failed: usize,
}

impl<'t> CheckCount<'t> {
    /// Reads a line such as `✗ name: 1 passed, 1 failed`, in colours or not.
    fn read(line: &'t str) -> Option<Self> {
        let (_, rest) = line.split_once('✓').or_else(|| line.split_once('✗'))?;
        let (name, counts) = rest.trim().split_once(": ")?;
        let (passed, failed) = counts.split_once(" passed, ")?;
        let failed = failed.split_once(" failed")?.0;
        let scenario = name.trim_start_matches("\u{1b}[0m").trim();
        Some(Self { scenario, passed: passed.parse().ok()?, failed: failed.parse().ok()? })
    }
}

/// Returns the checks of a run; those of scenarios without a score are apart.
fn tally(counts: &[CheckCount<'_>], unscored: &BTreeSet<&str>) -> String {
    let sum = |scored: bool| {
        let counts = counts.iter().filter(|count| unscored.contains(count.scenario) != scored);
        counts.fold((0, 0), |(passed, failed), count| (passed + count.passed, failed + count.failed))
    };
    let ((passed, failed), (more, worse)) = (sum(true), sum(false));
    format!("{passed} passed, {failed} failed; not scored: {more} passed, {worse} failed")
}

/// Returns the scenarios that were played for information only, from the list below the results.
fn unscored(text: &str) -> BTreeSet<&str> {
    let list = text.split_once("Not scored for").map_or("", |(_, list)| list);
    let names = list.lines().filter_map(|line| line.trim().strip_prefix(['✓', '✗'])?.split_whitespace().next());
    names.collect()
}
