//! Tests of `echo ... | headend stdio`, which need the process, its pipes and its exit status.

use std::io::Write as _;
use std::process::Stdio;
use std::time::Duration;

use serde_json::{Value, json};

use crate::tools::harness::{GatewaySetup, TestHome, headend};
use crate::tools::process::{output_within, said};
use crate::tools::upstream::Fake;

/// Returns the input of a shell pipe: the last line has no newline.
fn input() -> String {
    let initialize = json!({"protocolVersion": "2025-11-25", "capabilities": {"elicitation": {}}, "clientInfo": {"name": "sh", "version": "1"}});
    let lines = [
        json!({"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": initialize}),
        json!({"jsonrpc": "2.0", "method": "notifications/initialized"}),
        json!({"jsonrpc": "2.0", "id": 2, "method": "tools/list"}),
        json!({"jsonrpc": "2.0", "id": 3, "method": "tools/call", "params": {"name": "fx__sleep", "arguments": {"ms": 1000}}}),
        json!({"jsonrpc": "2.0", "id": 4, "method": "ping"}),
    ];
    lines.map(|line| line.to_string()).join("\n")
}

/// Returns the ids of all answers with a result, sorted.
fn answered(world: &TestHome, args: &[&str]) -> Vec<u64> {
    let mut command = world.command(headend());
    command.arg("stdio").args(args).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().unwrap();
    child.stdin.take().unwrap().write_all(input().as_bytes()).unwrap();
    let output = output_within(child, Duration::from_secs(60), "headend stdio");
    assert!(output.status.success(), "{}", said(&output));
    let text = String::from_utf8(output.stdout.clone()).unwrap();
    let messages = text.lines().map(|line| serde_json::from_str::<Value>(line).unwrap());
    let results = messages.filter(|message| message.get("result").is_some());
    let mut ids: Vec<u64> = results.map(|message| message["id"].as_u64().unwrap()).collect();
    ids.sort_unstable();
    assert_eq!(ids.len(), 4, "{}", said(&output));
    ids
}

#[test]
fn piped_input_is_answered_to_its_end_with_a_daemon_and_without() {
    let (world, config) = GatewaySetup::new().fake("fx", &Fake::stdio("both")).write();
    let config = config.to_str().unwrap().to_owned();
    assert_eq!(answered(&world, &["--no-daemon", "--config", &config]), [1, 2, 3, 4]);
    let gateway = GatewaySetup::new().fake("fx", &Fake::stdio("both")).start();
    gateway.wait_for_tools(&["fx__sleep"]);
    let config = gateway.config.to_str().unwrap().to_owned();
    assert_eq!(answered(&gateway.world, &["--config", &config]), [1, 2, 3, 4]);
}
