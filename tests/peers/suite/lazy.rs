//! Lazy upstreams: started to be listed once, at rest between uses, on every transport and in both
//! eras.

use std::thread;
use std::time::Duration;

use serde_json::{Value, json};

use crate::harness::{Gateway, GatewaySetup};
use crate::mcp::{ClientEra, Mcp};
use crate::process::{eventually, said};
use crate::upstream::{Listening, example, toml_array};

fn lazy(target: &str, idle_stop: &str) -> String {
    format!("[upstreams.fx]\n{target}\nstart = \"lazy\"\nidle-stop = \"{idle_stop}\"\n")
}

fn status(gateway: &Gateway) -> Value {
    let output = gateway.run(&["status", "--json"]);
    serde_json::from_slice(&output.stdout).unwrap_or_else(|_| panic!("{}", said(&output)))
}

fn status_of_upstream(gateway: &Gateway) -> Value {
    status(gateway)["upstreams"][0].clone()
}

fn state(gateway: &Gateway) -> String {
    status_of_upstream(gateway)["state"].as_str().unwrap().to_owned()
}

fn wait_idle(gateway: &Gateway) {
    eventually("it rests", || state(gateway) == "idle");
}

#[test]
fn a_watched_resource_keeps_a_lazy_upstream_running() {
    const WATCHED: &str = "test://watched-resource";
    for (era, transport) in [("legacy", "stdio"), ("modern", "stdio"), ("legacy", "http"), ("modern", "http")] {
        let program = example("conformance-fixture");
        let arguments = [transport, "--era", era].map(str::to_owned);
        let running = (transport == "http").then(|| Listening::spawn(&program, &arguments));
        let words = std::iter::once(program.to_str().unwrap()).chain(arguments.iter().map(String::as_str));
        let target = match &running {
            Some(running) => format!("url = \"{}\"", running.url),
            None => format!("command = {}", toml_array(words)),
        };
        let gateway = GatewaySetup::new().toml(&lazy(&target, "200ms")).start();
        gateway.wait_for_tools(&["fx__test_trigger_resource_update"]);
        wait_idle(&gateway);
        let mut client = gateway.legacy();
        assert_eq!(client.request("resources/subscribe", json!({"uri": WATCHED})).result(), &json!({}));
        thread::sleep(Duration::from_millis(700));
        assert_eq!(state(&gateway), "ready", "{era} over {transport}");
        client.request("resources/unsubscribe", json!({"uri": WATCHED}));
        wait_idle(&gateway);
    }
}

#[test]
fn a_task_keeps_a_lazy_upstream_running_for_its_time_to_live() {
    let program = example("conformance-fixture");
    let target = format!("command = {}", toml_array([program.to_str().unwrap(), "stdio", "--era", "modern"]));
    let gateway = GatewaySetup::new().toml(&lazy(&target, "200ms")).start();
    gateway.wait_for_tools(&["fx__slow_compute"]);
    wait_idle(&gateway);
    let capabilities = json!({"extensions": {"io.modelcontextprotocol/tasks": {}}});
    let mut client = Mcp::http_at(gateway.address, gateway.token(), ClientEra::Modern, "/mcp", capabilities);
    let begun = client.call("fx__slow_compute", json!({"seconds": 1}));
    let id = begun.result()["taskId"].as_str().unwrap().to_owned();
    thread::sleep(Duration::from_millis(800));
    assert_eq!(state(&gateway), "ready", "{}", begun.raw);
    let status = |client: &mut Mcp| client.request("tasks/get", json!({"taskId": id})).result()["status"].clone();
    eventually("the task is done", || status(&mut client) == "completed");
    assert_eq!(status_of_upstream(&gateway)["incarnation"], 2, "the process that began it has ended it");
}
