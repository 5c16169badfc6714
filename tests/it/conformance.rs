//! The official conformance suite as a client of the gateway, with the reference server behind it.
//!
//! A cell is a revision of the client, an era of the server and a transport between gateway and server. What a cell fails is
//! written down here with the reason, exactly: a scenario that begins to pass must be struck off.

use std::collections::BTreeSet;
use std::process::Stdio;
use std::time::Duration;

use crate::harness::Setup;
use crate::peers::Peers;
use crate::process::{output_within, said};
use crate::upstream::{Listening, example, toml_array};

/// Not served yet, whatever the server.
const SUBSCRIPTIONS: &[&str] = &["resources-subscribe", "resources-unsubscribe"];
/// Requests of a legacy server to its client: no capability is declared to it yet.
const LEGACY_ASKS: &[&str] =
    &["elicitation-sep1034-defaults", "elicitation-sep1330-enums", "tools-call-elicitation", "tools-call-sampling"];
/// The reference server sends these on its session's stream, where nothing says which call they belong to.
const STREAMED_LOGS: &[&str] = &["tools-call-with-logging"];
/// The same for a modern client: a legacy server's requests would have to become `input_required`.
const MODERN_BEFORE_LEGACY: &[&str] = &[
    "input-required-result-basic-elicitation",
    "input-required-result-basic-list-roots",
    "input-required-result-basic-sampling",
    "input-required-result-capability-check",
    "input-required-result-multi-round",
    "input-required-result-multiple-input-requests",
    "input-required-result-non-tool-request",
    "input-required-result-request-state",
    "input-required-result-result-type",
    "input-required-result-tampered-state",
    "server-stateless",
];

#[test]
fn a_legacy_client_before_modern_servers() {
    for transport in ["http", "stdio"] {
        judge("2025-11-25", "modern", transport, "", &[SUBSCRIPTIONS]);
    }
}

#[test]
fn a_legacy_client_before_legacy_servers() {
    judge("2025-11-25", "legacy", "http", "", &[SUBSCRIPTIONS, LEGACY_ASKS, STREAMED_LOGS]);
    judge("2025-11-25", "legacy", "stdio", "", &[SUBSCRIPTIONS, LEGACY_ASKS]);
}

#[test]
fn a_modern_client_before_modern_servers() {
    for transport in ["http", "stdio"] {
        judge("2026-07-28", "modern", transport, "", &[]);
    }
}

#[test]
fn a_modern_client_before_legacy_servers() {
    for transport in ["http", "stdio"] {
        judge("2026-07-28", "legacy", transport, "", &[MODERN_BEFORE_LEGACY]);
    }
}

#[test]
fn renamed_items_pass_as_well() {
    judge("2025-11-25", "modern", "http", "test_", &[SUBSCRIPTIONS]);
    judge("2026-07-28", "modern", "http", "test_", &[]);
}

/// Plays one cell. With a prefix the server drops it and the gateway puts it back.
fn judge(revision: &str, era: &str, transport: &str, prefix: &str, expected: &[&[&str]]) {
    let Some(peers) = Peers::find() else { return };
    let mut arguments: Vec<String> = vec![transport.to_owned(), "--era".to_owned(), era.to_owned()];
    if !prefix.is_empty() {
        arguments.push("--strip-test-prefix".to_owned());
    }
    let program = example("conformance-fixture");
    let (_server, target) = if transport == "http" {
        let server = Listening::spawn(&program, &arguments);
        let target = format!("url = \"{}\"", server.url);
        (Some(server), target)
    } else {
        let words = std::iter::once(program.to_str().unwrap()).chain(arguments.iter().map(String::as_str));
        (None, format!("command = {}", toml_array(words)))
    };
    // The suite cannot send a token.
    let gateway = Setup::new()
        .server("[server.auth]\nmode = \"none\"")
        .toml(&format!("[upstreams.fx]\n{target}\nprefix = \"{prefix}\""))
        .start();
    gateway.wait_for_tools(&["test_simple_text"]);
    let mut command = gateway.world.command(peers.node().to_str().unwrap());
    command.arg(peers.package("conformance").join("dist/index.js"));
    command.args(["server", "--url", &format!("http://{}/mcp", gateway.address), "--requirements", revision]);
    command.stdout(Stdio::piped()).stderr(Stdio::piped());
    let judged = output_within(command.spawn().unwrap(), Duration::from_secs(180), "the conformance suite");
    let text = String::from_utf8_lossy(&judged.stdout).into_owned();
    assert!(text.contains("Total: "), "{}", said(&judged));
    let failed: BTreeSet<&str> =
        text.lines().filter_map(failed_scenario).filter(|name| !is_unscored(name, prefix)).collect();
    let expected: BTreeSet<&str> = expected.iter().flat_map(|names| names.iter().copied()).collect();
    assert_eq!(
        failed,
        expected,
        "{revision} client, {era} server over {transport}, prefix {prefix:?}\n{}",
        said(&judged)
    );
}

/// The name in a line such as `✗ name: 1 passed, 1 failed`, in colours or not.
fn failed_scenario(line: &str) -> Option<&str> {
    let (_, rest) = line.split_once('✗')?;
    let (name, counts) = rest.trim().split_once(": ")?;
    counts.contains("failed").then(|| name.trim_start_matches("\u{1b}[0m").trim())
}

/// The tasks extension is not built, and `json_schema_2020_12_tool` has no `test_` to be renamed by.
fn is_unscored(name: &str, prefix: &str) -> bool {
    name.starts_with("tasks-") || (!prefix.is_empty() && name == "json-schema-2020-12")
}
