//! Tests of the commands for approvals: what they show, states without approvals, unusable state
//! directories.

use std::fs;

use serde_json::{Value, json};

use crate::stage::harness::{GatewaySetup, TestHome};
use crate::stage::mcp::ClientEra;
use crate::stage::process::said;
use crate::stage::steps::approvals::{assert_shown, list, open, texts};
use crate::stage::upstream::Fake;

#[test]
fn an_approval_of_a_daemon_is_shown_with_all_of_its_arguments_for_clients_of_both_eras() {
    for era in [ClientEra::LEGACY, ClientEra::Modern] {
        let gateway = GatewaySetup::new().policy("default = \"ask\"").fake("fx", &Fake::stdio("legacy")).start();
        gateway.wait_for_tools(&["fx__echo"]);
        let mut client = gateway.client(era);
        assert!(client.call("fx__echo", texts()).is_error());
        let id = open(&gateway.world)[0]["id"].as_str().unwrap().to_owned();
        assert_shown(std::str::from_utf8(&gateway.run(&["approvals", "show", &id]).stdout).unwrap());
        let told: Value = serde_json::from_slice(&gateway.run(&["approvals", "show", &id, "--json"]).stdout).unwrap();
        assert_eq!(told["arguments"], texts());
    }
}

#[test]
fn without_anything_there_are_no_questions_and_no_grants() {
    let world = TestHome::new();
    for what in ["approvals", "grants"] {
        assert_eq!(list(&world, what), Vec::<Value>::new());
        assert!(world.run(&[what, "list"]).status.success());
    }
    assert_eq!(world.run(&["approve", "abcdef"]).status.code(), Some(1));
    assert_eq!(world.run(&["grants", "revoke"]).status.code(), Some(64));
    assert!(!world.path("state/headend/headend.db").exists(), "looking makes nothing");
}

#[test]
fn a_damaged_store_stops_the_start_with_the_way_out() {
    let (world, config) = GatewaySetup::new().fake("fx", &Fake::stdio("legacy")).write();
    let path = world.path("state/headend/headend.db");
    fs::create_dir_all(path.parent().unwrap()).unwrap();
    fs::write(&path, "no database at all ".repeat(100)).unwrap();
    let config = config.to_str().unwrap();
    for args in [&["serve", "--config", config][..], &["stdio", "--no-daemon", "--config", config], &["grants"]] {
        let refused = world.run(args);
        assert_eq!(refused.status.code(), Some(75), "{args:?}: {}", said(&refused));
        let text = said(&refused);
        assert!(text.contains(&path.display().to_string()) && text.contains("move it away"), "{args:?}: {text}");
    }
}
