//! Tests of requests that are not calls, and of calls whose client cancels or reconnects.

use std::time::Duration;

use serde_json::{Value, json};

use crate::stage::harness::{GatewaySetup, status_of};
use crate::stage::mcp::{ClientEra, Mcp};
use crate::stage::pass;
use crate::stage::process::{eventually, said};
use crate::stage::stdio::Pipe;
use crate::stage::upstream::{Fake, InputLog};

const PATIENCE: Duration = Duration::from_secs(30);

#[test]
fn a_level_of_the_log_is_one_of_eight_and_tasks_are_unknown_to_legacy_clients() {
    let gateway = GatewaySetup::new().fake("fx", &Fake::stdio("legacy")).start();
    gateway.wait_for_tools(&["fx__echo"]);
    let mut client = gateway.legacy();
    let set = client.request("logging/setLevel", json!({"level": "warning"}));
    assert_eq!(set.result(), &json!({}), "{}", set.raw);
    for level in [json!("loud"), json!(3), Value::Null] {
        let refused = client.request("logging/setLevel", json!({"level": level}));
        assert_eq!(refused.code(), Some(-32602), "{level}: {}", refused.raw);
    }
    let unknown = client.request("tasks/get", json!({"taskId": "t"}));
    assert_eq!(unknown.code(), Some(-32602), "{}", unknown.raw);
    for method in ["tasks/list", "tasks/update", "resources/none"] {
        assert_eq!(client.request(method, json!({})).code(), Some(-32601), "{method}");
    }
    let token = json!({"name": "fx__echo", "arguments": {"text": "x"}, "_meta": {"progressToken": [1]}});
    assert_eq!(client.request("tools/call", token).code(), Some(-32602), "no token is a list");
    assert_eq!(client.request("ping", json!({})).result(), &json!({}));
}

#[test]
fn a_client_of_a_profile_that_was_taken_away_learns_so() {
    let gateway =
        GatewaySetup::new().fake("fx", &Fake::stdio("both")).toml("[profiles.work]\nupstreams = [\"fx\"]").start();
    gateway.wait_for_tools(&["fx__echo"]);
    let mut session = Mcp::http_at(gateway.address, gateway.token(), ClientEra::LEGACY, "/mcp/work", json!({}));
    let mut pipe = Mcp::stdio(Pipe::of_profile(&gateway, Some("work")), ClientEra::LEGACY);
    let mut other = Mcp::stdio(gateway.pipe(), ClientEra::LEGACY);
    for client in [&mut session, &mut pipe, &mut other] {
        assert_eq!(client.call("fx__echo", json!({"text": "x"})).text(), "x");
    }
    let text = std::fs::read_to_string(&gateway.config).unwrap();
    assert!(gateway.reload(&text.replace("[profiles.work]", "[profiles.home]")).status.success());
    assert_eq!(session.call("fx__echo", json!({"text": "x"})).status, 404);
    let gone = pipe.call("fx__echo", json!({"text": "x"}));
    assert!(gone.code() == Some(-32602) && gone.raw.contains("no longer exists"), "{}", gone.raw);
    assert_eq!(other.call("fx__echo", json!({"text": "on"})).text(), "on", "a client of no profile goes on");
}

#[test]
fn a_host_on_pipes_that_withdraws_its_call_has_it_cancelled_upstream_and_goes_on() {
    let setup = GatewaySetup::new();
    let log = InputLog::new(&setup.world.path("work"), "fx");
    let gateway = setup.fake("fx", &Fake::stdio("legacy").logging(&log)).start();
    gateway.wait_for_tools(&["fx__sleep"]);
    let mut client = Mcp::stdio(gateway.pipe(), ClientEra::LEGACY);
    let call = json!({"jsonrpc": "2.0", "id": "mine", "method": "tools/call",
        "params": {"name": "fx__sleep", "arguments": {"ms": 600_000}}});
    client.pipe().send(call.to_string().as_bytes());
    eventually("the call arrives", || log.count("tools/call") == 1);
    client.notify("notifications/cancelled", json!({"requestId": "mine", "reason": "enough"}));
    eventually("the cancellation arrives", || log.count("notifications/cancelled") == 1);
    let id = |line: &str, member: &str| serde_json::from_str::<Value>(line).unwrap().pointer(member).cloned();
    let (called, cancelled) =
        (&log.lines_with(&["\"method\":\"tools/call\""])[0], &log.lines_with(&["notifications/cancelled"])[0]);
    assert_eq!(id(called, "/id"), id(cancelled, "/params/requestId"));
    let answer = client.call("fx__echo", json!({"text": "next"}));
    assert_eq!(answer.text(), "next", "{}", answer.raw);
    assert_eq!(client.pipe().line(PATIENCE), None, "a call that was withdrawn has no answer");
}

#[test]
fn a_rule_that_comes_while_a_call_waits_for_its_turn_refuses_it() {
    let rule = "[[policy.rules]]\nid = \"new\"\neffect = \"deny\"\ntools = [\"fx__echo\"]\narguments = [{ pointer = \"/text\", eq = \"second\" }]";
    for era in ClientEra::BOTH {
        let setup = GatewaySetup::new();
        let log = InputLog::new(&setup.world.path("work"), "fx");
        let fake = Fake::stdio("legacy").logging(&log).command();
        let gateway = setup
            .toml(&format!("[upstreams.fx]\ncommand = {fake}\nmax-in-flight = 1\nqueue-timeout = \"60s\""))
            .start();
        gateway.wait_for_tools(&["fx__echo"]);
        let mut client = gateway.client(era);
        let mut first = client.open("tools/call", json!({"name": "fx__sleep", "arguments": {"ms": 20_000}}));
        eventually("the first call runs", || log.count("tools/call") == 1);
        let echo = |text: &str| json!({"name": "fx__echo", "arguments": {"text": text}});
        let mut second = client.open("tools/call", echo("second"));
        let mut third = client.open("tools/call", echo("third"));
        pass(Duration::from_secs(1));
        let text = std::fs::read_to_string(&gateway.config).unwrap();
        let reloaded = gateway.reload(&format!("{text}\n{rule}\n"));
        assert!(reloaded.status.success(), "{}", said(&reloaded));
        assert!(first.response()["result"].is_object());
        let refused = second.response();
        let refusal = &refused["result"]["_meta"]["headend/refusal"];
        assert_eq!((&refusal["reason"], &refusal["executed"]), (&json!("denied"), &json!("no")), "{era:?}: {refused}");
        assert_eq!(third.response()["result"]["content"][0]["text"], "third", "{era:?}: the rule is about the other");
        assert!(log.lines_with(&["tools/call", "second"]).is_empty(), "{era:?}: it was not sent");
    }
}

#[test]
fn no_value_of_a_variable_is_in_the_reason_of_a_failed_start() {
    let error = r#"{"jsonrpc":"2.0","id":${ID},"error":{"code":-32000,"message":"the key canary/of+mine is bad"}}"#;
    let setup = GatewaySetup::new().env("FX_KEY", "canary/of+mine");
    let script = setup.world.write("work/script.json", &json!({"initialize": [error]}).to_string());
    let fake = Fake::stdio("legacy").with("--script", script.to_str().unwrap()).with("--name", "${FX_KEY}").command();
    let gateway = setup.toml(&format!("[upstreams.fx]\nexpand = true\nera = \"legacy\"\ncommand = {fake}")).start();
    eventually("it has failed", || status_of(&gateway, "fx")["last-error"].is_string());
    let status = said(&gateway.run(&["status", "--json"])) + &said(&gateway.run(&["status"]));
    assert!(status.contains("the key $FX_KEY is bad"), "{status}");
    let answer = gateway.modern().call("fx__echo", json!({"text": "x"}));
    for text in [status, answer.raw, gateway.story(), gateway.scrape()] {
        assert!(!text.contains("canary"), "{text}");
    }
}

#[test]
fn a_tool_that_is_new_while_the_store_takes_no_writes_is_refused_as_unrecorded_until_it_does() {
    let gateway = GatewaySetup::new().fake("fx", &Fake::stdio("both")).start();
    gateway.wait_for_tools(&["fx__echo"]);
    gateway.refuse_writes(true);
    for era in ClientEra::BOTH {
        let mut client = gateway.client(era);
        assert_eq!(client.call("fx__mutate", json!({})).text(), "grown");
        pass(Duration::from_secs(5));
        assert!(!client.tool_names().contains(&"fx__grown_0".to_owned()), "{era:?}: it is not pinned");
        let refused = client.call("fx__grown_0", json!({}));
        let refusal = &refused.message["result"]["_meta"]["headend/refusal"];
        assert_eq!((&refusal["reason"], &refusal["executed"]), (&json!("unrecorded"), &json!("no")), "{}", refused.raw);
        assert_eq!(client.call("fx__grown_7", json!({})).code(), Some(-32602), "{era:?}: it is not there");
        assert_eq!(client.call("fx__echo", json!({"text": "x"})).text(), "x", "{era:?}: what is known goes on");
    }
    gateway.refuse_writes(false);
    // The next reading of the list finds the store writable.
    gateway.modern().call("fx__mutate", json!({}));
    gateway.wait_for_tools(&["fx__grown_0", "fx__grown_2"]);
    assert!(!gateway.modern().call("fx__grown_0", json!({})).is_error());
}
