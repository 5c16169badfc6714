//! Tests of upstreams that flood, lie or read their environment, which need processes and their
//! memory.

use std::time::{Duration, Instant};

use serde_json::{Value, json};

use crate::tools::harness::{Gateway, GatewaySetup};
use crate::tools::mcp::ClientEra;
use crate::tools::process::eventually;
use crate::tools::upstream::{Fake, example, toml_array};

#[test]
fn six_good_upstreams_are_callable_at_once_beside_four_bad_ones() {
    let mut setup = GatewaySetup::new();
    let good: Vec<String> = (1..=6).map(|n| format!("good{n}")).collect();
    for (n, name) in good.iter().enumerate() {
        setup = setup.fake(name, &Fake::stdio(if n % 2 == 0 { "legacy" } else { "modern" }));
    }
    let bad = |behaviour: &str| Fake::stdio("legacy").behaving(behaviour);
    let gateway = setup
        .fake("silent", &bad("never-answer"))
        .fake("dead", &bad("exit-at-start"))
        .fake("garbage", &bad("garbage"))
        .fake("flood", &bad("flood"))
        .start();
    for era in ClientEra::BOTH {
        let mut client = gateway.client(era);
        for name in &good {
            eventually(&format!("{name} answers"), || {
                let answer = client.call(&format!("{name}__echo"), json!({"text": name}));
                answer.message.get("result").is_some() && answer.text() == *name
            });
        }
    }
    // The handshake of this upstream times out after two minutes: no client waited for that.
    let status = gateway.run(&["status", "--json"]);
    let status: Value = serde_json::from_slice(&status.stdout).unwrap();
    let silent = status["upstreams"].as_array().unwrap().iter().find(|one| one["name"] == "silent").unwrap();
    assert_eq!(silent["state"], "starting", "{status}");
}

#[test]
fn an_endless_line_costs_bounded_memory_and_nobody_elses_calls() {
    for behaviour in ["no-newline", "huge-line"] {
        let gateway = GatewaySetup::new()
            .fake("fx", &Fake::stdio("both"))
            .fake("bad", &Fake::stdio("legacy").behaving(behaviour))
            .start();
        gateway.wait_for_tools(&["fx__echo"]);
        let before = gateway.resident();
        let until = Instant::now() + Duration::from_secs(2);
        let mut client = gateway.modern();
        while Instant::now() < until {
            assert_eq!(client.call("fx__echo", json!({"text": "calm"})).text(), "calm", "{behaviour}");
        }
        let grown = gateway.resident().saturating_sub(before) / (1024 * 1024);
        assert!(grown < 96, "{behaviour}: grew by {grown} MiB");
    }
}

#[test]
fn an_upstreams_environment_holds_what_was_given_to_it_and_no_secret_of_ours() {
    let command = toml_array([example("fake-upstream").to_str().unwrap(), "stdio", "--era", "both"]);
    let gateway = GatewaySetup::new()
        .toml(&format!("[upstreams.fx]\ncommand = {command}\nenv = {{ GIVEN = \"yes-given\" }}"))
        .env("HIDDEN_SECRET", "canary-4711")
        .env("HEADEND_LOG", "info")
        .start();
    gateway.wait_for_tools(&["fx__env"]);
    let text = gateway.modern().call("fx__env", json!({})).text();
    assert!(text.contains("yes-given"), "{text}");
    assert!(!text.contains("canary-4711") && !text.contains("HEADEND_LOG"), "{text}");
}

/// Returns the entry of an upstream in `headend status`.
pub(crate) fn status_of(gateway: &Gateway, name: &str) -> Value {
    let status = gateway.run(&["status", "--json"]);
    let status: Value = serde_json::from_slice(&status.stdout).unwrap();
    status["upstreams"].as_array().unwrap().iter().find(|one| one["name"] == name).unwrap().clone()
}
