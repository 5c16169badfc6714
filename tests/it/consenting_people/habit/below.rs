//! Tests of a suggested rule for a tool that may overwrite, based on real approvals.

use std::fs;

use serde_json::json;

use crate::tools::harness::GatewaySetup;
use crate::tools::process::{eventually, said};
use crate::tools::upstream::Fake;

#[test]
fn approved_writes_below_a_folder_become_a_rule_with_a_warning() {
    let setup = GatewaySetup::new().fake("fx", &Fake::stdio("both")).policy("default = \"ask\"");
    let gateway = setup.toml("[audit]\ncapture-arguments = \"full\"").start();
    gateway.wait_for_tools(&["fx__write"]);
    let mut client = gateway.modern();
    for n in 0..5 {
        let call = json!({ "path": format!("/srv/app/{n}") });
        client.call("fx__write", call.clone());
        let listed: serde_json::Value = serde_json::from_slice(&gateway.run(&["approvals", "--json"]).stdout).unwrap();
        let id = listed["approvals"][0]["id"].as_str().unwrap().to_owned();
        assert!(gateway.run(&["approve", &id]).status.success());
        assert_eq!(client.call("fx__write", call).text(), "write");
    }
    let mut rules = String::new();
    eventually("a rule is suggested", || {
        let config = gateway.world.path("headend.toml");
        let suggested = gateway.run(&["policy", "suggest", "--config", config.to_str().unwrap()]);
        assert!(suggested.status.success(), "{}", said(&suggested));
        rules = String::from_utf8(suggested.stdout).unwrap();
        rules.contains("[[policy.rules]]")
    });
    let warning = rules.lines().position(|line| line.starts_with("# WARNING: this tool may overwrite"));
    assert!(warning.is_some() && rules.contains("path-under = \"/srv/app\""), "{rules}");
    let config = fs::read_to_string(gateway.world.path("headend.toml")).unwrap();
    let reloaded = gateway.reload(&(config + "\n" + &rules));
    assert!(reloaded.status.success(), "{}", said(&reloaded));
    assert_eq!(client.call("fx__write", json!({ "path": "/srv/app/new" })).text(), "write", "no question any more");
    for path in ["/srv/app/.git/x", "/srv/other", "/srv/app/../x"] {
        let asked = client.call("fx__write", json!({ "path": path }));
        assert!(asked.text().contains("approval"), "{path}: {}", asked.text());
    }
}
