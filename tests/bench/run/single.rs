//! Figures measured once and without a load: memory, and the time to start.

use std::fs;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use anyhow::{Context, ensure};
use serde_json::Value;
use tokio::time::sleep;

use crate::budget::{Memory, Singles};
use crate::gateway::BenchSetup;
use crate::http::BenchConnection;
use crate::process::{MeasuredProcess, ServerProcess};
use crate::run::fleet::{TOOLS, TOOLS_OF_MANY, floor_arguments, start_upstreams, url};
use crate::scenario::{BenchEndpoint, LoadEra, LoadSession};
use crate::table::median;

/// Number of sessions that are held open.
const SESSIONS: u32 = 1000;

/// Upstreams of the start that is timed.
const TEN: usize = 10;

/// Time for which a process is left alone before its memory is read.
const SETTLE: Duration = Duration::from_secs(1);

/// Measures the memory of the floor and of the gateway, each in front of an upstream of its own.
///
/// # Errors
/// When the floor cannot be measured; failures of the gateway are added to `problems`.
pub(crate) async fn memory(
    binary: Option<&Path>,
    singles: &mut Singles,
    problems: &mut Vec<String>,
) -> anyhow::Result<()> {
    eprintln!("memory");
    let (upstream, addresses) = start_upstreams("legacy", 1, TOOLS)?;
    let address = addresses.first().context("an upstream without an address")?;
    let (floor, addresses) = ServerProcess::start_own(&floor_arguments(address), 1)?;
    let target = BenchEndpoint::new(&url(addresses.first())?, None)?;
    singles.floor = Some(memory_of(&target, floor.process()).await.context("memory of the floor")?);
    drop((floor, upstream));
    let Some(binary) = binary else { return Ok(()) };
    match gateway_memory(binary).await {
        Ok(memory) => singles.headend = Some(memory),
        Err(error) => problems.push(format!("memory: {error:#}")),
    }
    Ok(())
}

async fn gateway_memory(binary: &Path) -> anyhow::Result<Memory> {
    let (_upstream, addresses) = start_upstreams("legacy", 1, TOOLS)?;
    let setup = BenchSetup::of(&addresses, TOOLS);
    let folder = tempfile::tempdir().context("create a folder for the gateway")?;
    let gateway = setup.start(binary, folder.path()).await?;
    memory_of(&gateway.target, gateway.server.process()).await
}

/// Times one decision of the policy in the gateway itself, without a client, a server or a socket.
///
/// # Errors
/// When the gateway does not decide, or decides wrongly.
pub(crate) fn decide(binary: &Path, singles: &mut Singles) -> anyhow::Result<()> {
    eprintln!("decide");
    let folder = tempfile::tempdir().context("create a folder for the gateway")?;
    let config = folder.path().join("headend.toml");
    fs::write(&config, rules()).context("write the configuration")?;
    let mut command = Command::new(binary);
    command.args(["policy", "test", "--json", "--tool", "u0__send", "--repeat", "200000", "--arguments", ARGUMENTS]);
    command.arg("--config").arg(&config).env("STATE_DIRECTORY", folder.path());
    let output = command.output().context("run `headend policy test`")?;
    let told = String::from_utf8_lossy(&output.stdout).into_owned();
    ensure!(output.status.success(), "not allowed: {told}{}", String::from_utf8_lossy(&output.stderr));
    let told: Value = serde_json::from_str(&told).context("read what it said")?;
    ensure!(
        told.get("rules").and_then(Value::as_array).is_some_and(|rules| rules.len() == 20),
        "not 20 rules in play: {told}"
    );
    singles.decide_us = told.get("took-ns").and_then(Value::as_f64).map(|nanos| nanos / 1000.0);
    Ok(())
}

/// The call for the decision: every kind of value, and none that a rule denies.
const ARGUMENTS: &str = r#"{"path":"/srv/work/reports/2026/summary.md","url":"https://api.example.com/v1/items?page=2","to":["ann@example.com","bob@example.com"],"host":"10.1.2.3","limit":50,"mode":"append","subject":"The weekly report","tags":["a","b","c"]}"#;

/// Returns 80 rules about other tools, and 20 that look at the arguments of this one and let it
/// pass.
fn rules() -> String {
    let mut text = String::from("[upstreams.u0]\ncommand = [\"/bin/true\"]\n[policy]\ndefault = \"allow\"\n");
    let mut rule = |id: String, tools: &str, condition: &str| {
        let head = format!("[[policy.rules]]\nid = \"{id}\"\neffect = \"deny\"\ntools = [\"{tools}\"]\n");
        text.push_str(&format!("{head}{condition}\n"));
    };
    for number in 0..80 {
        rule(format!("other-{number}"), &format!("u0__delete_{number}_*"), "");
    }
    for number in 0..2 {
        for (name, condition) in [
            ("path", format!(r#"pointer = "/path", path-under = "/etc/{number}""#)),
            ("glob", format!(r#"pointer = "/path", glob = "*/secret-{number}/*""#)),
            ("url", format!(r#"pointer = "/url", url-host-in = ["*.evil-{number}.net"]"#)),
            ("mail", format!(r#"pointer = "/to/*", email-domain-in = ["evil-{number}.net"]"#)),
            ("net", format!(r#"pointer = "/host", cidr-in = ["192.168.{number}.0/24"]"#)),
            ("range", format!(r#"pointer = "/limit", range = {{ min = 100{number} }}"#)),
            ("mode", format!(r#"pointer = "/mode", in = ["truncate", "delete-{number}"]"#)),
            ("regex", format!(r#"pointer = "/subject", regex = "(?i)password\\s*{number}""#)),
            ("prefix", format!(r#"pointer = "/subject", prefix = "URGENT {number}""#)),
            ("copy", format!(r#"pointer = "/bcc-{number}", present = true"#)),
        ] {
            rule(format!("{name}-{number}"), "u0__send", &format!("arguments = [{{ {condition} }}]"));
        }
    }
    text
}

/// Reads a process's memory when idle, and again with [`SESSIONS`] legacy sessions that each listed
/// the tools and hold a GET stream open on a connection of its own; their POSTs share one
/// connection.
async fn memory_of(target: &BenchEndpoint, process: MeasuredProcess) -> anyhow::Result<Memory> {
    sleep(SETTLE).await;
    let (idle, anonymous) = (process.rss_kib()?, process.anonymous_kib()?);
    let mut connection = BenchConnection::open(&target.authority).await?;
    let mut open = Vec::new();
    for number in 0..SESSIONS {
        let session = LoadSession::open(target.clone(), LoadEra::Legacy, &mut connection).await?;
        session.count_tools(&mut connection, u64::from(number)).await?;
        let stream = BenchConnection::open(&target.authority).await?.subscribe(&session.get_stream()).await;
        open.push(stream.with_context(|| format!("open the stream of session {number}"))?);
    }
    sleep(SETTLE).await;
    let full = process.rss_kib()?;
    drop(open);
    let kib = |value: u64| u32::try_from(value).map_or(f64::INFINITY, f64::from);
    let mib = |value: u64| kib(value) / 1024.0;
    Ok(Memory {
        idle_mib: mib(idle),
        anonymous_mib: mib(anonymous),
        session_kib: (kib(full) - kib(idle)) / f64::from(SESSIONS),
    })
}

/// Times the gateway's start up to the full list of ten upstreams that are already up: with an
/// empty state directory, and with the state that this first start left.
///
/// # Errors
/// When the gateway does not come up.
pub(crate) async fn start(binary: &Path, rounds: usize, singles: &mut Singles) -> anyhow::Result<()> {
    let (_upstreams, addresses) = start_upstreams("legacy", TEN, TOOLS_OF_MANY)?;
    let setup = BenchSetup::of(&addresses, TOOLS_OF_MANY);
    let (mut fresh, mut again) = (Vec::new(), Vec::new());
    for round in 1..=rounds {
        eprintln!("start: round {round} of {rounds}");
        let folder = tempfile::tempdir().context("create a folder for the gateway")?;
        for times in [&mut fresh, &mut again] {
            let gateway = setup.start(binary, folder.path()).await?;
            times.push(gateway.ready_after.as_secs_f64() * 1e3);
        }
    }
    (singles.spawn_ms, singles.respawn_ms) = (median(fresh), median(again));
    Ok(())
}
