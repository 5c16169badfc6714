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

/// The environment of the program of an upstream.
fn environment(gateway: &Gateway, name: &str) -> Value {
    let text = gateway.modern().call(&format!("{name}__env"), json!({})).text();
    serde_json::from_str::<Value>(&text).unwrap_or_else(|_| panic!("{text}"))["env"].clone()
}

#[test]
fn a_program_gets_the_usual_variables_and_those_that_are_named() {
    let fake = Fake::stdio("both").command();
    let text = format!(
        "[upstreams.plain]\ncommand = {fake}\n\
         [upstreams.named]\ncommand = {fake}\nenv-from = [\"SSH_AUTH_SOCK\", \"HTTPS_PROXY\", \"NOT_SET\", \"LC_TIME\"]\nenv = {{ LC_TIME = \"own\" }}\n\
         [upstreams.strange]\ncommand = {fake}\nenv-from = [\"NO_PROXY\"]\ntrust = \"untrusted\"\n"
    );
    let gateway = Setup::new()
        .toml(&text)
        .env("HTTPS_PROXY", "http://user:hunter2@proxy:3128")
        .env("NO_PROXY", "localhost")
        .env("NODE_EXTRA_CA_CERTS", "/ca.pem")
        .env("LC_TIME", "C")
        .env("SSH_AUTH_SOCK", "/run/agent")
        .env("DOCKER_HOST", "unix:///run/docker.sock")
        .env("GITHUB_TOKEN", "hunter2")
        .start();
    gateway.wait_for_tools(&["plain__env", "named__env"]);
    ok(&gateway, &["pins", "approve", "strange", "--yes"]);
    gateway.wait_for_tools(&["strange__env"]);
    let names = [
        "HTTPS_PROXY",
        "NO_PROXY",
        "NODE_EXTRA_CA_CERTS",
        "LC_TIME",
        "SSH_AUTH_SOCK",
        "DOCKER_HOST",
        "GITHUB_TOKEN",
        "NOT_SET",
    ];
    for (upstream, wanted) in [
        ("plain", json!(["http://proxy:3128", "localhost", "/ca.pem", "C", null, null, null, null])),
        (
            "named",
            json!(["http://user:hunter2@proxy:3128", "localhost", "/ca.pem", "own", "/run/agent", null, null, null]),
        ),
        ("strange", json!([null, "localhost", null, null, null, null, null, null])),
    ] {
        let environment = environment(&gateway, upstream);
        let found: Vec<Value> = names.iter().map(|name| environment[*name].clone()).collect();
        assert_eq!(Value::from(found), wanted, "{upstream}");
        assert!(environment["HOME"].is_string() && environment["PATH"].is_string(), "{upstream}");
    }
}
