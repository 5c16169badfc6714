//! Tests with servers behind HTTP that deviate from the protocol in common ways: heartbeats among
//! their events, streams that end at once, other media types, redirects, and failures at the
//! question for their era.

use std::thread;
use std::time::Duration;

use serde_json::json;

use crate::tools::harness::{Gateway, GatewaySetup};
use crate::tools::mcp::ClientEra;
use crate::tools::process::{said, within};
use crate::tools::upstream::{Fake, InputLog, Listening};
use crate::traffic::failures::status_of;

const SOON: Duration = Duration::from_secs(20);

fn before(fake: &Fake) -> (Gateway, Listening, InputLog) {
    before_with(fake, "")
}

fn before_with(fake: &Fake, keys: &str) -> (Gateway, Listening, InputLog) {
    let setup = GatewaySetup::new();
    let log = InputLog::new(&setup.world.path("work"), "fx");
    let server = fake.clone().logging(&log).spawn();
    let gateway = setup.toml(&format!("[upstreams.fx]\nurl = \"{}\"\n{keys}", server.url)).start();
    (gateway, server, log)
}

fn streams(era: &str) -> Fake {
    Fake::http(era).with("--answers", "sse")
}

/// Checks that a tool, a prompt and a resource answer clients of both eras.
fn works(gateway: &Gateway, at: &str) {
    gateway.wait_for_tools_within(SOON, &["fx__echo"]);
    for era in ClientEra::BOTH {
        let mut client = gateway.client(era);
        let answer = client.call("fx__echo", json!({"text": "hi"}));
        assert_eq!(answer.text(), "hi", "{at}: {}", answer.raw);
        let prompt = client.request("prompts/get", json!({"name": "fx__p"}));
        assert!(prompt.message.get("result").is_some(), "{at}: {}", prompt.raw);
        let names = ["fx+fx://doc/1", "fx://doc/1"];
        let read = names.map(|uri| client.request("resources/read", json!({"uri": uri})));
        let is_read = read.iter().any(|answer| answer.message.get("result").is_some());
        assert!(is_read, "{at}: {}", read[0].raw);
    }
}

fn last_error(gateway: &Gateway) -> String {
    status_of(gateway, "fx")["last-error"].as_str().unwrap_or_default().to_owned()
}

#[test]
fn events_that_are_no_messages_are_passed_over_and_counted() {
    for fake in [streams("legacy"), streams("modern"), Fake::http("legacy"), Fake::sse()] {
        let at = fake.command();
        let (gateway, _server, log) = before(&fake.behaving("heartbeats"));
        works(&gateway, &at);
        // Heartbeats cause no new stream and no new reading of lists.
        thread::sleep(Duration::from_secs(5));
        let (gets, lists) = (log.lines_with(&["\"http\":\"GET\"", "session"]).len(), log.count("tools/list"));
        assert!(gets <= 8 && lists <= 4, "{at}: {gets} streams, {lists} lists");
        let shown = said(&gateway.run(&["status", "fx"]));
        assert!(shown.contains("could not be read"), "{at}: {shown}");
        assert!(said(&gateway.run(&["logs", "fx"])).contains("ping"), "{at}");
        let mut client = gateway.modern();
        client.call("fx__mutate", json!({}));
        gateway.wait_for_tools_within(SOON, &["fx__grown_0"]);
    }
}

#[test]
fn streams_that_bring_nothing_are_opened_seldom_and_cost_no_lists() {
    thread::scope(|scope| {
        for era in ["legacy", "modern"] {
            for behaviour in ["short-streams", "short-streams=500"] {
                scope.spawn(move || {
                    let (gateway, _server, log) = before(&Fake::http(era).behaving(behaviour));
                    gateway.wait_for_tools_within(SOON, &["fx__echo"]);
                    let lists = log.count("tools/list");
                    let gets = || log.lines_with(&["\"http\":\"GET\""]).len() + log.count("subscriptions/listen");
                    let before = gets();
                    // Pauses of 2, 4, 8 s: at most three more of the main session.
                    thread::sleep(Duration::from_secs(12));
                    let (opened, read) = (gets() - before, log.count("tools/list") - lists);
                    assert!((1..=4).contains(&opened), "{era}, {behaviour}: {opened} streams");
                    assert!(read <= 1, "{era}, {behaviour}: {read} lists");
                });
            }
        }
    });
}

#[test]
fn a_redirect_within_the_origin_is_followed_once_and_remembered() {
    for (fake, location) in [
        (Fake::http("legacy"), "307 /mcp/"),
        (Fake::http("modern"), "308 /mcp/"),
        (streams("legacy"), "308 /mcp/"),
        (Fake::sse(), "307 /sse/"),
    ] {
        let at = format!("{}, {location}", fake.command());
        let (gateway, _server, log) = before(&fake.with("--redirect", location));
        works(&gateway, &at);
        let redirected = log.lines_with(&["\"redirected\""]).len();
        let answer = gateway.modern().call("fx__echo", json!({"text": "once"}));
        assert_eq!(answer.text(), "once", "{at}: {}", answer.raw);
        assert_eq!(log.lines_with(&["\"redirected\""]).len(), redirected, "{at}: the address is remembered");
        let sent = log.lines_with(&["\"tools/call\"", "\"once\""]).len();
        assert_eq!(sent, 1, "{at}: the call is sent once");
    }
}

#[test]
fn a_call_that_is_redirected_is_made_once() {
    let setup = GatewaySetup::new();
    let log = InputLog::new(&setup.world.path("work"), "fx");
    let server = Fake::http("legacy").logging(&log).spawn();
    let gateway = setup.url("fx", &server.url).start();
    gateway.wait_for_tools_within(SOON, &["fx__echo"]);
    let address = server.address().to_owned();
    drop(server);
    // The server comes back at another path: the call is redirected, then its session is not known.
    let _server = Fake::http("legacy").logging(&log).with("--redirect", "307 /mcp/").at(&address).spawn();
    let answer = gateway.modern().call("fx__echo", json!({"text": "moved"}));
    assert_eq!(answer.text(), "moved", "{}", answer.raw);
    assert_eq!(log.lines_with(&["\"executed\"", "\"moved\""]).len(), 1);
}

#[test]
fn a_redirect_to_elsewhere_is_not_followed_and_says_what_to_write() {
    for (redirect, why) in [
        ("307 http://127.0.0.2:9/mcp/?key=k", "http://127.0.0.2:9/mcp/?.. (HTTP status 307)"),
        ("302 /mcp/", "does not keep the method"),
        ("307 ?x=1", "after another redirect"),
        ("301 https://login.example/", "https://login.example/"),
    ] {
        for fake in [Fake::http("legacy"), Fake::http("modern"), Fake::sse()] {
            let at = format!("{}, {redirect}", fake.command());
            let headers = "headers = { Authorization = \"Bearer hunter22hunter22\" }\n";
            let (gateway, _server, log) = before_with(&fake.with("--redirect", redirect), headers);
            within(SOON, &at, || last_error(&gateway).contains(why));
            let error = last_error(&gateway);
            assert!(error.contains("write that address as `url`"), "{at}: {error}");
            assert!(!error.contains("key=k") && log.count("tools/list") == 0, "{at}: {error}");
        }
    }
}

#[test]
fn json_under_another_content_type_is_read_and_counted() {
    for media in ["text/plain", "application/json-rpc", "none"] {
        for fake in [Fake::http("legacy"), Fake::http("modern")] {
            let at = format!("{}, {media}", fake.command());
            let (gateway, _server, _log) = before(&fake.with("--media", media));
            works(&gateway, &at);
            let shown = said(&gateway.run(&["status", "fx"]));
            assert!(shown.contains("without the content type `application/json`"), "{at}: {shown}");
        }
    }
}

#[test]
fn a_web_page_is_named_as_what_it_is() {
    for fake in [Fake::http("legacy"), Fake::http("modern"), Fake::sse()] {
        let at = fake.command();
        let (gateway, _server, _log) = before(&fake.with("--media", "page"));
        within(SOON, &at, || {
            let error = last_error(&gateway);
            error.contains("answered 200 with `text/html`: this is a web page, not an MCP endpoint")
        });
        let logs = said(&gateway.run(&["logs", "fx"]));
        assert!(logs.contains("<!doctype html><title>Hello"), "{at}: {logs}");
        let shown = said(&gateway.run(&["status", "fx"]));
        assert!(shown.contains("could not be read"), "{at}: {shown}");
    }
}

#[test]
fn an_error_of_the_protocol_under_500_is_the_answer_of_a_legacy_server() {
    for id in ["null", "${ID}"] {
        let error = format!(
            r#"500 {{"jsonrpc":"2.0","id":{id},"error":{{"code":-32000,"message":"Server not initialized"}}}}"#
        );
        let (gateway, _server, log) = before(&Fake::http("legacy").with("--discover", error));
        works(&gateway, id);
        assert_eq!(log.count("server/discover"), 1, "{id}");
    }
}

#[test]
fn a_server_that_fails_or_is_silent_at_the_question_for_its_era_has_a_way_out() {
    for discover in ["500 oops", "503 oops", "silence"] {
        let fake = Fake::http("legacy").with("--discover", discover);
        let (gateway, _server, _log) = before_with(&fake, "start-timeout = \"3s\"");
        eventually_says(&gateway, "write `era = \"legacy\"`", discover);
        let (gateway, _server, _log) = before_with(&fake, "era = \"legacy\"");
        works(&gateway, discover);
    }
    let fake = Fake::http("legacy").with("--discover", "silence");
    let (gateway, _server, _log) = before(&fake);
    within(SOON, "while it still starts", || last_error(&gateway).contains("not been answered for 10 s"));
}

fn eventually_says(gateway: &Gateway, why: &str, at: &str) {
    let deadline = std::time::Instant::now() + SOON;
    while !last_error(gateway).contains(why) {
        assert!(std::time::Instant::now() < deadline, "{at}: {}", status_of(gateway, "fx"));
        thread::sleep(Duration::from_millis(50));
    }
}
