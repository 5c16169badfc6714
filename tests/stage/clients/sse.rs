//! Tests of the HTTP+SSE transport of 2024-11-05 on both sides.

use std::time::Duration;

use rustix::process::Signal;
use serde_json::{Value, json};

use crate::stage::harness::{Gateway, GatewaySetup};
use crate::stage::http::{self, TestConnection};
use crate::stage::mcp::{ClientEra, Mcp, names};
use crate::stage::old_client::{OldClient, ask, fields};
use crate::stage::process::{eventually, within};
use crate::stage::upstream::{Fake, InputLog, Listening};

const SECOND_TOKEN: &str = "token-of-the-second-caller-0123456789";

/// Returns the table of an upstream with that transport.
fn upstream(name: &str, url: &str, transport: &str) -> String {
    let headers = "headers = { X-Key = { env = \"KEY\" } }";
    // One stream for all clients, so that it can be counted.
    format!("[upstreams.{name}]\nurl = \"{url}\"\ntransport = \"{transport}\"\ninstance = \"shared\"\n{headers}\n")
}

/// Starts a gateway in front of a fake HTTP+SSE server, and returns the fake's log.
fn before(fake: Fake, more: &str) -> (Gateway, Listening, InputLog) {
    let setup = GatewaySetup::new().env("KEY", "abc");
    let log = InputLog::new(&setup.world.path("work"), "old");
    let fake = fake.logging(&log).spawn();
    let gateway = setup.toml(&upstream("old", &fake.url, "sse")).toml(more).start();
    (gateway, fake, log)
}

fn progress(client: &mut Mcp, tool: &str, arguments: Value) -> (usize, String) {
    let params = json!({"name": tool, "arguments": arguments, "_meta": {"progressToken": "mine"}});
    let answer = client.request("tools/call", params);
    assert!(answer.notices.iter().all(|notice| notice["params"]["progressToken"] == "mine"), "{:?}", answer.notices);
    (answer.notices.len(), answer.text())
}

#[test]
fn a_server_of_the_old_transport_is_used_by_clients_of_both_eras() {
    let setup = GatewaySetup::new().env("KEY", "abc");
    let log = InputLog::new(&setup.world.path("work"), "old");
    let fakes = [Fake::sse().logging(&log).spawn(), Fake::sse().spawn()];
    let gateway =
        setup.toml(&upstream("told", &fakes[0].url, "sse")).toml(&upstream("found", &fakes[1].url, "auto")).start();
    gateway.wait_for_tools(&["told__echo", "found__echo"]);
    for era in ClientEra::BOTH {
        let mut client = gateway.client(era);
        for name in ["told", "found"] {
            let echoed = client.call(&format!("{name}__echo"), json!({"text": "hello"}));
            assert_eq!(echoed.text(), "hello", "{name}, {era:?}");
            let heard = progress(&mut client, &format!("{name}__progress"), json!({"steps": 3, "delay_ms": 20}));
            assert_eq!(heard, (3, "done".to_owned()), "{name}, {era:?}");
        }
        let read = client.request("resources/read", json!({"uri": "told+fx://doc/1"}));
        assert!(read.result()["contents"][0]["text"].is_string(), "{}", read.raw);
    }
    assert_eq!(log.count("server/discover"), 0, "a server of that transport is not probed");
    for http in ["GET", "POST"] {
        let sent = log.lines_with(&[&format!("\"http\":\"{http}\"")]);
        assert!(!sent.is_empty() && sent.iter().all(|line| line.contains("\"x-key\":\"abc\"")), "{sent:?}");
    }
    gateway.modern().call("told__mutate", json!({}));
    gateway.wait_for_tools(&["told__grown_0"]);
}

#[test]
fn nothing_is_posted_to_an_endpoint_of_another_origin() {
    let other = GatewaySetup::new();
    let log = InputLog::new(&other.world.path("work"), "other");
    let elsewhere = Fake::sse().logging(&log).spawn();
    let endpoint = elsewhere.url.replace("/sse", "/messages");
    let good = format!("[upstreams.good]\ncommand = {}", Fake::stdio("modern").command());
    let (gateway, _fake, _) = before(Fake::sse().with("--endpoint", endpoint), &good);
    gateway.wait_for_tools(&["good__echo"]);
    let told = |lines: &[String]| lines.iter().any(|line| line.contains("nothing is sent there")).then_some(());
    gateway.stderr.wait_for(Duration::from_secs(60), told).expect("the log says why");
    assert!(log.lines_with(&["POST"]).is_empty());
    assert!(gateway.modern().tool_names().iter().all(|name| name.starts_with("good__")));
}

#[test]
fn later_endpoint_events_are_ignored() {
    let (gateway, _fake, _) = before(Fake::sse().behaving("second-endpoint"), "");
    gateway.wait_for_tools(&["old__echo"]);
    let mut client = gateway.modern();
    for _ in 0..3 {
        assert_eq!(client.call("old__echo", json!({"text": "a"})).text(), "a");
    }
}

#[test]
fn the_end_of_the_stream_and_a_post_in_no_session_start_the_upstream_again_and_a_failed_post_does_not() {
    for (behaviour, streams) in [("http-cut", 2), ("status=404", 2), ("status=500", 1)] {
        let (gateway, _fake, log) = before(Fake::sse().behaving(behaviour), "");
        gateway.wait_for_tools(&["old__echo"]);
        let answer = gateway.modern().call("old__echo", json!({"text": "a"}));
        assert!(answer.is_error(), "{behaviour}: {}", answer.raw);
        assert_eq!(answer.result()["_meta"]["headend/refusal"]["executed"], "unknown", "{}", answer.raw);
        eventually("the stream is there", || log.lines_with(&["\"http\":\"GET\""]).len() == streams);
        eventually("its lists are read", || log.count("tools/list") == streams);
        assert_eq!(log.count("tools/call"), 1, "{behaviour}: a lost call is not sent again");
    }
}

#[test]
fn a_post_that_fails_is_the_failure_of_its_call_alone() {
    for (status, executed) in [("500", "unknown"), ("503", "no"), ("429", "no"), ("413", "no")] {
        let (gateway, _fake, log) = before(Fake::sse().behaving(&format!("status={status}")), "");
        gateway.wait_for_tools(&["old__echo"]);
        let mut client = gateway.modern();
        for n in 1..=2 {
            let answer = client.call("old__echo", json!({"text": "a"}));
            let failure = answer.raw.contains(&format!(r#""executed":"{executed}""#));
            assert!(failure, "{status}: {}", answer.raw);
            assert_eq!(log.count("tools/call"), n, "{status}: it is not sent again");
        }
        assert_eq!(log.count("tools/list"), 1, "{status}: the session goes on");
    }
}

#[test]
fn an_event_over_the_size_limit_ends_the_calls_and_not_the_upstream() {
    let (gateway, _fake, log) = before(Fake::sse().behaving("huge-line"), "");
    gateway.wait_for_tools(&["old__echo"]);
    let mut client = gateway.modern();
    for _ in 0..2 {
        let answer = client.call("old__echo", json!({"text": "a"}));
        assert_eq!(answer.result()["_meta"]["headend/refusal"]["reason"], "result_too_large", "{}", answer.raw);
    }
    assert_eq!(log.lines_with(&["\"http\":\"GET\""]).len(), 1);
}

#[test]
fn a_call_that_its_client_gives_up_is_cancelled_over_the_old_transport() {
    let (gateway, _fake, log) = before(Fake::sse(), "");
    gateway.wait_for_tools(&["old__sleep"]);
    let call = gateway.modern().open("tools/call", json!({"name": "old__sleep", "arguments": {"ms": 60_000}}));
    eventually("the call arrives", || log.count("tools/call") == 1);
    drop(call);
    eventually("the cancellation arrives", || log.count("notifications/cancelled") == 1);
}

#[test]
fn a_server_that_answers_a_post_late_keeps_no_other_call_waiting() {
    let (gateway, _fake, log) = before(Fake::sse().behaving("hold-posts"), "");
    gateway.wait_for_tools(&["old__sleep"]);
    let slow = gateway.modern().open("tools/call", json!({"name": "old__sleep", "arguments": {"ms": 60_000}}));
    eventually("the call arrives", || log.count("tools/call") == 1);
    assert_eq!(gateway.modern().call("old__echo", json!({"text": "a"})).text(), "a");
    drop(slow);
    eventually("the cancellation arrives", || log.count("notifications/cancelled") == 1);
    assert_eq!(gateway.modern().call("old__echo", json!({"text": "b"})).text(), "b");
}

#[test]
fn a_url_that_speaks_neither_transport_is_told_with_both_reasons() {
    let fake = Fake::http("legacy").behaving("status=404").spawn();
    let gateway = GatewaySetup::new().url("none", &fake.url).start();
    let both = |line: &String| {
        line.contains("`initialize`: HTTP status 404") && line.contains("GET is answered with HTTP status 405")
    };
    let told = |lines: &[String]| lines.iter().any(both).then_some(());
    gateway.stderr.wait_for(Duration::from_secs(60), told).expect("the log names both");
}

/// Starts a gateway that serves HTTP+SSE, in front of one modern upstream.
fn serving(server: &str) -> (Gateway, InputLog) {
    let setup = GatewaySetup::new();
    let log = InputLog::new(&setup.world.path("work"), "fx");
    let gateway = setup
        .server(&format!("legacy-sse = true\n{server}"))
        .second_caller(SECOND_TOKEN)
        .fake("fx", &Fake::stdio("modern").logging(&log))
        .toml("[profiles.few]\ntools = { allow = [\"fx__echo\"] }")
        .start();
    gateway.wait_for_tools(&["fx__echo"]);
    (gateway, log)
}

#[test]
fn an_old_client_uses_a_modern_server() {
    let (gateway, _) = serving("");
    let mut client = OldClient::new(&gateway);
    let listed = client.request("tools/list", json!({}));
    let listed = names(listed["result"]["tools"].as_array().unwrap());
    assert!(listed.contains(&"fx__echo".to_owned()), "{listed:?}");
    let call =
        json!({"name": "fx__progress", "arguments": {"steps": 2, "delay_ms": 20}, "_meta": {"progressToken": 9}});
    client.send("tools/call", call);
    for step in 1..=2 {
        let notice = client.message();
        assert_eq!(notice["params"], json!({"progressToken": 9, "progress": step, "total": 2}), "{notice}");
    }
    assert_eq!(client.message()["result"]["content"][0]["text"], "done");
    // JSON over two lines is one message.
    let text = "{\"jsonrpc\":\"2.0\",\n\"id\":\"two lines\",\"method\":\"ping\"}";
    assert_eq!(ask(gateway.address, gateway.token().as_deref(), "POST", &client.endpoint, text).0, 202);
    assert_eq!(client.message()["id"], "two lines");
    // List changes come without a request.
    client.send("tools/call", json!({"name": "fx__mutate", "arguments": {}}));
    // The change may arrive before the call's answer.
    let told = [client.message(), client.message()];
    assert!(told.iter().any(|message| message["id"] == client.next_id), "{told:?}");
    assert!(told.iter().any(|message| message["method"] == "notifications/tools/list_changed"), "{told:?}");
    let mut few = OldClient::connect(&gateway, gateway.token(), "/sse/few");
    few.initialize("2025-06-18");
    let listed = few.request("tools/list", json!({}));
    assert_eq!(names(listed["result"]["tools"].as_array().unwrap()), ["fx__echo"]);
}

#[test]
fn the_old_transport_refuses_what_the_endpoint_refuses() {
    let (gateway, log) = serving("");
    let (address, token) = (gateway.address, gateway.token().unwrap());
    let client = OldClient::new(&gateway);
    let session = client.session();
    assert!(client.endpoint.starts_with("/messages?") && session.len() >= 32, "{}", client.endpoint);
    let list = json!({"jsonrpc": "2.0", "id": 1, "method": "tools/list"}).to_string();
    let own = client.endpoint.as_str();
    for (label, token, method, path, body, status) in [
        ("no token for the stream", "", "GET", "/sse", "", 401),
        ("no token for a message", "", "POST", own, list.as_str(), 401),
        ("a wrong token", "wrong", "POST", own, &list, 401),
        ("a stream by POST", &token, "POST", "/sse", &list, 405),
        ("messages by GET", &token, "GET", own, "", 405),
        ("an unknown profile", &token, "GET", "/sse/none", "", 404),
        ("below the messages", &token, "POST", "/messages/x", &list, 404),
        ("no session", &token, "POST", "/messages", &list, 400),
        ("two sessions", &token, "POST", &format!("{own}&sessionId=x"), &list, 400),
        ("an unknown session", &token, "POST", "/messages?sessionId=none", &list, 404),
        ("no JSON", &token, "POST", own, "{", 400),
        ("the same key twice", &token, "POST", own, "{\"jsonrpc\":\"2.0\",\"id\":1,\"id\":2,\"method\":\"ping\"}", 400),
        ("no message", &token, "POST", own, "{}", 400),
    ] {
        let token = Some(token).filter(|token| !token.is_empty());
        let (got, text) = ask(address, token, method, path, body);
        assert_eq!(got, status, "{label}: {text}");
    }
    let mut headers = fields(address, Some(&token));
    headers.extend(
        [("Content-Type", "application/json"), ("Content-Length", "9999999")].map(|(n, v)| (n.into(), v.into())),
    );
    let mut conn = TestConnection::open(address).unwrap();
    conn.send(&http::request("POST", own, &headers, b"")).unwrap();
    assert_eq!(conn.head().unwrap().status, 413, "too large");
    let foreign = [("Host", address.to_string()), ("Origin", "https://evil.example".to_owned())];
    let foreign = foreign.map(|(name, value)| (name.to_owned(), value));
    let mut conn = TestConnection::open(address).unwrap();
    conn.send(&http::request("GET", "/sse", &foreign, b"")).unwrap();
    assert_eq!(conn.head().unwrap().status, 403, "a page elsewhere");
    // Another caller's session looks unknown, and the sessions of one transport do not work on the
    // other.
    let unknown = ask(address, Some(SECOND_TOKEN), "POST", "/messages?sessionId=none", &list);
    assert_eq!(unknown.0, 404);
    assert_eq!(ask(address, Some(SECOND_TOKEN), "POST", own, &list), unknown);
    let streamable = gateway.legacy().session().unwrap();
    assert_eq!(ask(address, Some(&token), "POST", &format!("/messages?sessionId={streamable}"), &list), unknown);
    let mut headers = fields(address, Some(&token));
    headers.push(("Content-Type".to_owned(), "application/json".to_owned()));
    headers.push(("Mcp-Session-Id".to_owned(), session.to_owned()));
    let mut conn = TestConnection::open(address).unwrap();
    conn.send(&http::request("POST", "/mcp", &headers, list.as_bytes())).unwrap();
    assert_eq!(conn.head().unwrap().status, 404);
    assert_eq!(log.work(), 0);
    let mut client = client;
    assert!(client.request("tools/list", json!({}))["result"]["tools"].is_array(), "the session stands");
}

#[test]
fn the_paths_of_the_old_transport_do_not_exist_unless_configured() {
    let gateway = GatewaySetup::new().start();
    let token = gateway.token().unwrap();
    let nothing = ask(gateway.address, Some(&token), "GET", "/nothing", "");
    for (method, path) in [("GET", "/sse"), ("POST", "/sse"), ("POST", "/messages"), ("POST", "/messages?sessionId=a")]
    {
        assert_eq!(ask(gateway.address, Some(&token), method, path, "{}"), nothing, "{method} {path}");
    }
    assert_eq!(nothing.0, 404);
}

#[test]
fn the_end_of_the_stream_ends_its_session_and_cancels_its_calls() {
    let (gateway, log) = serving("");
    let mut client = OldClient::new(&gateway);
    client.send("tools/call", json!({"name": "fx__sleep", "arguments": {"ms": 60_000}}));
    eventually("the call arrives", || log.count("tools/call") == 1);
    assert!(gateway.scrape().contains("headend_client_sessions 1"));
    let (address, token, endpoint) = (client.address, client.token.clone(), client.endpoint.clone());
    drop(client);
    eventually("the call is cancelled", || log.count("notifications/cancelled") == 1);
    let ping = json!({"jsonrpc": "2.0", "id": 1, "method": "ping"}).to_string();
    assert_eq!(ask(address, token.as_deref(), "POST", &endpoint, &ping).0, 404);
    assert!(gateway.scrape().contains("headend_client_sessions 0"));
}

#[test]
fn a_call_in_flight_is_answered_before_the_stream_of_a_draining_daemon_ends() {
    let (mut gateway, log) = serving("");
    let mut client = OldClient::new(&gateway);
    let mut idle = OldClient::new(&gateway);
    client.send("tools/call", json!({"name": "fx__sleep", "arguments": {"ms": 1_000}}));
    eventually("the call arrives", || log.count("tools/call") == 1);
    gateway.signal(Signal::TERM);
    assert_eq!(idle.event(), None, "a stream without calls ends");
    assert_eq!(client.message()["result"]["content"][0]["text"], "slept");
    assert_eq!(client.event(), None);
    assert!(gateway.wait(Duration::from_secs(60)).is_some_and(|status| status.success()));
}

#[test]
fn streams_of_the_old_transport_count_as_sessions_and_are_kept_alive() {
    let (gateway, _) = serving("limits.max-sessions = 1\nlimits.keepalive = \"1s\"");
    let mut client = OldClient::new(&gateway);
    let (status, text) = ask(gateway.address, gateway.token().as_deref(), "GET", "/sse", "");
    assert_eq!(status, 503, "{text}");
    within(Duration::from_secs(60), "a comment comes", || {
        client.stream.piece().unwrap().is_some_and(|piece| piece.starts_with(b": keep-alive"))
    });
}
