//! Tests of resources that clients watch: begun, updated, ended, watched again after a restart.

use std::time::Duration;

use serde_json::{Value, json};

use crate::stage::harness::{Gateway, GatewaySetup};
use crate::stage::mcp::{ClientEra, Mcp};
use crate::stage::pass;
use crate::stage::process::eventually;
use crate::stage::upstream::{Fake, InputLog};

const URI: &str = "fx://doc/1";

/// Starts a gateway in front of a server whose tool `echo` reports a change of its resource.
fn gateway(offers: bool) -> (Gateway, InputLog) {
    let resources = if offers { r#"{"subscribe":true}"# } else { "{}" };
    let greeting = format!(
        r#"{{"jsonrpc":"2.0","id":${{ID}},"result":{{"protocolVersion":"2025-11-25","serverInfo":{{"name":"x","version":"1"}},"capabilities":{{"tools":{{}},"resources":{resources}}}}}}}"#
    );
    let done = r#"{"jsonrpc":"2.0","id":${ID},"result":{}}"#;
    let changed =
        format!(r#"{{"jsonrpc":"2.0","method":"notifications/resources/updated","params":{{"uri":{URI:?}}}}}"#);
    let called = r#"{"jsonrpc":"2.0","id":${ID},"result":{"content":[{"type":"text","text":"changed"}]}}"#;
    let script = json!({
        "initialize": [greeting],
        "resources/subscribe": [done],
        "resources/unsubscribe": [done],
        "tools/call/echo": [changed, called],
    });
    let setup = GatewaySetup::new();
    let script = setup.world.write("work/script.json", &script.to_string());
    let log = InputLog::new(&setup.world.path("work"), "fx");
    let fake = Fake::stdio("legacy").with("--script", script.to_str().unwrap()).logging(&log);
    let gateway = setup.fake("fx", &fake).start();
    gateway.wait_for_tools(&["fx__echo"]);
    (gateway, log)
}

fn uri() -> Value {
    json!({"uri": URI})
}

#[test]
fn a_watched_resource_is_asked_for_once_and_updates_come_until_it_is_left() {
    let (gateway, log) = gateway(true);
    let (mut client, mut other) = (gateway.legacy(), gateway.legacy());
    for _ in 0..2 {
        let begun = client.request("resources/subscribe", uri());
        assert_eq!(begun.result(), &json!({}), "{}", begun.raw);
    }
    assert_eq!(log.count("resources/subscribe"), 1, "a second request asks the server for nothing");
    let (mut stream, mut others) = (client.listen(), other.listen());
    assert_eq!(other.call("fx__echo", json!({"text": "x"})).text(), "changed");
    let update = stream.next().unwrap();
    assert_eq!((&update["method"], &update["params"]), (&json!("notifications/resources/updated"), &uri()));
    assert!(others.next_within(Duration::from_secs(5)).is_err(), "the other client watches nothing");
    for _ in 0..2 {
        let ended = client.request("resources/unsubscribe", uri());
        assert_eq!(ended.result(), &json!({}), "{}", ended.raw);
    }
    eventually("the server is told", || log.count("resources/unsubscribe") == 1);
    other.call("fx__echo", json!({"text": "x"}));
    assert!(stream.next_within(Duration::from_secs(5)).is_err(), "no update after the end");
    let unnamed = client.request("resources/unsubscribe", json!({}));
    assert_eq!(unnamed.code(), Some(-32602), "{}", unnamed.raw);
}

#[test]
fn resources_that_cannot_be_watched_are_refused_with_the_reason() {
    let (offered, log) = gateway(true);
    let unknown = offered.legacy().request("resources/subscribe", json!({"uri": "fy://none"}));
    assert!(unknown.code().is_some() && unknown.raw.contains("fy://none"), "{}", unknown.raw);
    let modern = offered.modern().request("resources/subscribe", uri());
    assert_eq!(modern.code(), Some(-32601), "{}", modern.raw);
    assert_eq!(log.count("resources/subscribe"), 0);
    drop(offered);
    let (without, _log) = gateway(false);
    let refused = without.legacy().request("resources/subscribe", uri());
    assert_eq!(refused.code(), Some(-32602), "{}", refused.raw);
    assert!(refused.raw.contains("offers no subscriptions"), "{}", refused.raw);
}

#[test]
fn a_resource_of_a_session_that_goes_on_after_a_restart_is_watched_again_and_counts_as_updated() {
    let (gateway, log) = gateway(true);
    let mut client = gateway.client(ClientEra::LEGACY);
    assert_eq!(client.request("resources/subscribe", uri()).result(), &json!({}));
    let gateway = gateway.restart();
    gateway.wait_for_tools(&["fx__echo"]);
    client.follow(gateway.address);
    assert_eq!(client.request("ping", json!({})).result(), &json!({}));
    eventually("it is watched again", || log.count("resources/subscribe") == 2);
    let mut stream = client.listen();
    let updated = |stream: &mut crate::stage::mcp::OpenCall| {
        let is_update = |message: &Value| message["method"] == "notifications/resources/updated";
        std::iter::from_fn(|| stream.next_within(Duration::from_secs(5)).ok().flatten())
            .any(|message| is_update(&message))
    };
    assert!(updated(&mut stream), "changes meanwhile are not known");
    gateway.modern().call("fx__echo", json!({"text": "x"}));
    assert!(updated(&mut stream), "and it goes on");
    assert_eq!(client.request("resources/unsubscribe", uri()).result(), &json!({}));
    eventually("the server is told", || log.count("resources/unsubscribe") == 1);
    pass(Duration::from_secs(5));
    // A subscription that the client ended is not restored.
    let gateway = gateway.restart();
    gateway.wait_for_tools(&["fx__echo"]);
    client.follow(gateway.address);
    assert_eq!(client.request("ping", json!({})).result(), &json!({}));
    pass(Duration::from_secs(40));
    assert_eq!(log.count("resources/subscribe"), 2);
}

#[test]
fn a_policy_that_denies_a_resource_of_a_session_is_asked_once_after_a_restart() {
    let (mut gateway, log) = gateway(true);
    let mut client = gateway.client(ClientEra::LEGACY);
    assert_eq!(client.request("resources/subscribe", uri()).result(), &json!({}));
    gateway.stop();
    let rule = "\n[[policy.rules]]\nid = \"no-docs\"\neffect = \"deny\"\nresources = [\"fx+fx://*\"]\n";
    let text = std::fs::read_to_string(&gateway.config).unwrap() + rule;
    gateway.world.write("headend.toml", &text);
    let (world, config) = (gateway.world.clone(), gateway.config.clone());
    drop(gateway);
    let gateway = Gateway::start(world, Some(config), &["serve"], &[]);
    gateway.wait_for_tools(&["fx__echo"]);
    client.follow(gateway.address);
    assert_eq!(client.request("ping", json!({})).result(), &json!({}));
    pass(Duration::from_secs(60));
    assert_eq!(log.count("resources/subscribe"), 1, "the server is not asked");
    assert_eq!(gateway.modern().call("fx__echo", json!({"text": "x"})).text(), "changed");
    let mut stream = client.listen();
    let told: Vec<Value> = std::iter::from_fn(|| stream.next_within(Duration::from_secs(5)).ok().flatten()).collect();
    assert!(told.iter().all(|message| message["method"] != "notifications/resources/updated"), "{told:?}");
}
