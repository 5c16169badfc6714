//! Whether an upstream is started at all, and what its program finds around it: variables, directories of programs, texts with variables.

use serde_json::{Value, json};

use crate::harness::{Gateway, Setup};
use crate::process::{eventually, said};
use crate::upstream::Fake;

/// Upstreams as `status` tells of them.
fn status_of(gateway: &Gateway, name: &str) -> Value {
    let output = gateway.run(&["status", "--json"]);
    let status: Value = serde_json::from_slice(&output.stdout).unwrap_or_else(|_| panic!("{}", said(&output)));
    let found = status["upstreams"].as_array().unwrap().iter().find(|upstream| upstream["name"] == name);
    found.cloned().unwrap_or_default()
}

fn ok(gateway: &Gateway, args: &[&str]) -> String {
    let output = gateway.run(args);
    assert!(output.status.success(), "{args:?}: {}", said(&output));
    String::from_utf8_lossy(&output.stdout).into_owned()
}

#[test]
fn a_disabled_upstream_is_neither_started_nor_listed_and_keeps_what_was_approved() {
    let fake = Fake::stdio("both").command();
    let text = |enabled: bool| {
        let keys = format!("[upstreams.fx]\ncommand = {fake}\nenabled = {enabled}\ntrust = \"untrusted\"\n");
        Setup::new().toml(&keys).fake("other", &Fake::stdio("both")).text()
    };
    let gateway = Setup::new().fake("other", &Fake::stdio("both")).start();
    assert!(gateway.reload(&text(true)).status.success());
    eventually("it waits for approval", || {
        status_of(&gateway, "fx")["withheld"].as_u64().is_some_and(|count| count > 0)
    });
    ok(&gateway, &["pins", "approve", "fx", "--yes"]);
    gateway.wait_for_tools(&["fx__echo", "other__echo"]);

    let plan = gateway.reload(&text(false));
    assert!(plan.status.success() && said(&plan).contains("stop fx"), "{}", said(&plan));
    eventually("its tools leave", || !gateway.modern().tool_names().iter().any(|name| name.starts_with("fx__")));
    assert_eq!(status_of(&gateway, "fx"), json!({"name": "fx", "state": "disabled"}));
    assert!(ok(&gateway, &["status"]).contains("disabled"));
    let restarted = gateway.run(&["restart", "fx"]);
    assert!(!restarted.status.success() && said(&restarted).contains("`fx` is disabled"), "{}", said(&restarted));

    assert!(gateway.reload(&text(true)).status.success());
    gateway.wait_for_tools(&["fx__echo"]);
    assert_eq!(status_of(&gateway, "fx")["withheld"], 0, "what was approved is not asked about again");
    assert_eq!(gateway.modern().call("fx__echo", json!({"text": "x"})).text(), "x");
}
