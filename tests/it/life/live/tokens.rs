//! Tests of `headend tokens`: tokens of clients in the store, with a daemon and without one.

use std::fs;
use std::io::Write as _;
use std::process::{Output, Stdio};
use std::time::Duration;

use serde_json::{Value, json};

use crate::tools::harness::{GatewaySetup, TestHome, headend};
use crate::tools::mcp::{ClientEra, Mcp};
use crate::tools::process::{output_within, said, within};
use crate::tools::upstream::Fake;

/// Longest time for which a token is accepted after it was revoked.
const SOON: Duration = Duration::from_secs(1);

fn run_with(world: &TestHome, args: &[&str], input: &str) -> Output {
    let mut command = world.command(headend());
    command.args(args).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().unwrap();
    child.stdin.take().unwrap().write_all(input.as_bytes()).unwrap();
    output_within(child, Duration::from_secs(30), &format!("headend {args:?}"))
}

/// Returns whether a file of the state directory has this text.
fn is_kept(world: &TestHome, text: &str) -> bool {
    let mut folders = vec![world.path("state/headend")];
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(folder).unwrap().flatten().map(|entry| entry.path()) {
            if entry.is_dir() {
                folders.push(entry);
            } else if fs::read(&entry).is_ok_and(|bytes| memchr::memmem::find(&bytes, text.as_bytes()).is_some()) {
                return true;
            }
        }
    }
    false
}

#[test]
fn a_token_is_added_used_and_revoked_and_only_its_digest_is_kept() {
    let gateway = GatewaySetup::new().fake("fx", &Fake::stdio("both")).start();
    gateway.wait_for_tools(&["fx__echo"]);
    let (world, address) = (&gateway.world, gateway.address);
    let status = |token: &str| {
        Mcp::http(address, Some(token.to_owned()), ClientEra::Modern).request("tools/list", json!({})).status
    };
    let added = gateway.run(&["tokens", "add", "ci", "--expires", "90d", "--scopes", "mcp:read,mcp:write"]);
    assert!(added.status.success(), "{}", said(&added));
    let token = String::from_utf8(added.stdout).unwrap().trim().to_owned();
    assert_eq!(status(&token), 200);
    assert!(!is_kept(world, &token) && !gateway.story().contains(&token), "the token is kept");
    assert!(is_kept(world, "mcp:read mcp:write"), "the store was not looked at");

    let again = gateway.run(&["tokens", "add", "ci"]);
    assert_eq!(again.status.code(), Some(1), "{}", said(&again));
    assert!(said(&again).contains("there is a token `ci`"), "{}", said(&again));
    let listed = gateway.run(&["tokens", "list", "--json"]);
    let listed: Value = serde_json::from_slice(&listed.stdout).unwrap();
    let [one] = listed["tokens"].as_array().unwrap().as_slice() else { panic!("{listed}") };
    assert_eq!((&one["name"], &one["scopes"]), (&json!("ci"), &json!(["mcp:read", "mcp:write"])));
    assert_eq!(one["expires"].as_u64().unwrap() - one["created"].as_u64().unwrap(), 90 * 24 * 3600);

    assert!(gateway.run(&["tokens", "revoke", "ci"]).status.success());
    within(SOON, "the token is refused", || status(&token) == 401);
    assert_eq!(gateway.run(&["tokens", "revoke", "ci"]).status.code(), Some(1), "it is gone");
}

#[test]
fn a_token_from_standard_input_has_16_characters_and_is_added_without_a_daemon() {
    let mut gateway = GatewaySetup::new().fake("fx", &Fake::stdio("both")).start();
    gateway.signal(rustix::process::Signal::TERM);
    gateway.wait(Duration::from_secs(60)).unwrap();
    let (given, config) = ("a-given-token-16", gateway.config.to_str().unwrap().to_owned());
    let add = ["tokens", "add", "desk", "--from-stdin", "--config", &config];
    for (input, code) in [("a-given-token-1\n", 64), ("a given token of words\n", 64), ("", 64), (given, 0), (given, 1)]
    {
        let output = run_with(&gateway.world, &add, input);
        assert_eq!(output.status.code(), Some(code), "{input:?}: {}", said(&output));
        assert!(input.is_empty() || !said(&output).contains(input.trim()), "{}", said(&output));
    }
    let environment: Vec<(String, String)> = Vec::new();
    let world = std::mem::replace(&mut gateway.world, TestHome::new());
    let again = crate::tools::harness::Gateway::start(world, Some(gateway.config.clone()), &["serve"], &environment);
    let mut client = Mcp::http(again.address, Some(given.to_owned()), ClientEra::Modern);
    assert_eq!(client.request("tools/list", json!({})).status, 200);
    assert!(!is_kept(&again.world, given));
}
