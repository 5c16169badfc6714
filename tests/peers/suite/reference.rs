//! Reloads and restarts before the reference server, whose resources can be watched.

use std::time::Duration;

use rustix::process::Signal;
use serde_json::json;

use crate::harness::{Gateway, GatewaySetup};
use crate::mcp::OpenCall;
use crate::process::{descendants, eventually, said, within};
use crate::upstream::{example, toml_array};

/// Ends the daemon with that signal and starts it again on the same files.
fn restart(mut gateway: Gateway, by: Signal) -> Gateway {
    gateway.signal(by);
    assert!(gateway.wait(Duration::from_secs(60)).is_some(), "{}", gateway.story());
    let (world, path) = (gateway.world.clone(), gateway.config.clone());
    drop(gateway);
    Gateway::start(world, Some(path), &["serve"], &[])
}

/// Reads a stream up to an update of that resource, and returns the methods of its messages.
fn until_update(stream: &mut OpenCall, uri: &str, patience: Duration) -> Vec<String> {
    let mut told = Vec::new();
    while let Ok(Some(message)) = stream.next_within(patience) {
        told.push(message["method"].as_str().unwrap_or_default().to_owned());
        if message["params"]["uri"] == uri {
            break;
        }
    }
    told
}

#[test]
fn nothing_is_left_of_a_server_that_is_removed_before_its_subscribers_leave() {
    let program = example("conformance-fixture").display().to_string();
    let command = toml_array([program.as_str(), "stdio", "--era", "modern"]);
    let without = GatewaySetup::new().text();
    let gateway = GatewaySetup::new().start();
    let tasks = || {
        let page = gateway.scrape();
        let line = page.lines().find_map(|line| line.strip_prefix("headend_tasks ")).expect("the tasks are counted");
        line.parse::<u64>().unwrap()
    };
    let before = tasks();
    let plan = gateway.reload(&GatewaySetup::new().toml(&format!("[upstreams.fx]\ncommand = {command}")).text());
    assert!(plan.status.success(), "{}", said(&plan));
    gateway.wait_for_tools(&["fx__test_simple_text"]);
    assert!(gateway.scrape().contains("headend_upstream_processes{upstream=\"fx\"} 1"));
    let mut client = gateway.legacy();
    client.request("resources/subscribe", json!({"uri": "test://watched-resource"})).result();
    let plan = gateway.reload(&without);
    assert!(plan.status.success(), "{}", said(&plan));
    eventually("the server ends", || descendants(gateway.pid()).is_empty());
    assert_eq!(client.end_session(), 204);
    drop(client);
    within(Duration::from_secs(20), "the tasks for it end", || tasks() <= before);
}

#[test]
fn a_revived_session_has_its_subscriptions_and_its_log_level() {
    const WATCHED: &str = "test://watched-resource";
    const UPDATED: Option<&str> = Some("notifications/resources/updated");
    let program = example("conformance-fixture");
    let words = [program.to_str().unwrap(), "stdio", "--era", "legacy"];
    let setup = GatewaySetup::new().toml(&format!("[upstreams.fx]\ncommand = {}", toml_array(words)));
    let mut gateway = setup.start();
    gateway.wait_for_tools(&["fx__test_tool_with_logging"]);
    let (mut client, mut other) = (gateway.legacy(), gateway.legacy());
    for client in [&mut client, &mut other] {
        assert_eq!(client.request("resources/subscribe", json!({"uri": WATCHED})).result(), &json!({}));
        assert_eq!(client.request("logging/setLevel", json!({"level": "debug"})).result(), &json!({}));
    }
    assert_eq!(other.request("resources/unsubscribe", json!({"uri": WATCHED})).result(), &json!({}));
    assert_eq!(other.request("logging/setLevel", json!({"level": "emergency"})).result(), &json!({}));
    for by in [Signal::KILL, Signal::TERM] {
        gateway = restart(gateway, by);
        gateway.wait_for_tools(&["fx__test_tool_with_logging"]);
        client.follow(gateway.address);
        other.follow(gateway.address);
        let mut streams = [client.listen(), other.listen()];
        let patience = Duration::from_secs(20);
        let told = until_update(&mut streams[0], WATCHED, patience);
        assert_eq!(told.last().map(String::as_str), UPDATED, "it may have changed meanwhile, {by:?}: {told:?}");
        assert!(told.iter().any(|method| method == "notifications/tools/list_changed"), "{told:?}");
        assert!(!client.call("fx__test_trigger_resource_update", json!({})).is_error());
        let told = until_update(&mut streams[0], WATCHED, patience);
        assert_eq!(told.last().map(String::as_str), UPDATED, "{by:?}: {told:?}");
        let told = until_update(&mut streams[1], WATCHED, Duration::from_millis(500));
        assert!(!told.iter().any(|method| Some(method.as_str()) == UPDATED), "{by:?}: {told:?}");
        for (client, hears) in [(&mut client, true), (&mut other, false)] {
            let answer = client.call("fx__test_tool_with_logging", json!({}));
            let logs = answer.notices.iter().filter(|notice| notice["method"] == "notifications/message").count();
            assert_eq!(logs > 0, hears, "{by:?}: {:?}", answer.notices);
        }
    }
}
