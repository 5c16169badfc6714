//! Tests of event streams that break and continue: to clients with sessions, and from upstreams
//! with sessions.

use std::time::Duration;

use serde_json::{Value, json};

use crate::stage::harness::{Gateway, GatewaySetup};
use crate::stage::http::StreamEvent;
use crate::stage::mcp::{ClientEra, Mcp, OpenCall};
use crate::stage::now;
use crate::stage::process::eventually;
use crate::stage::upstream::{Fake, InputLog, Listening};

const TOKEN: &str = "token-of-the-second-caller-0123456789";

#[test]
fn a_call_goes_on_live_where_its_client_comes_back() {
    let (gateway, log) = before_a_process(GatewaySetup::new());
    let mut client = gateway.legacy();
    let mut call = slow_call(&mut client, 4, 300);
    let id = call.id.clone();
    let priming = call.event().unwrap();
    assert_eq!((priming.data.as_str(), priming.retry.as_deref()), ("", Some("1000")), "{priming:?}");
    assert!(priming.id.as_ref().is_some_and(|id| id.ends_with("-0")), "{priming:?}");
    let first = call.event().unwrap();
    assert_eq!(progress_of(&first), 1);
    drop(call);
    let mut resumed = client.resume(first.id.as_ref().unwrap());
    let (steps, answer) = rest(&mut resumed);
    assert_eq!(steps, [2, 3, 4], "in order, nothing twice");
    assert_eq!((&answer["id"], &answer["result"]["content"][0]["text"]), (&id, &json!("done")), "{answer}");
    assert_eq!(log.count("tools/call"), 1);
    assert_eq!(log.count("notifications/cancelled"), 0);
}

#[test]
fn what_was_said_can_be_read_again_from_any_event() {
    let (gateway, log) = before_a_process(GatewaySetup::new());
    let mut client = gateway.legacy();
    let mut call = slow_call(&mut client, 3, 20);
    let mut events = Vec::new();
    while let Some(event) = call.event() {
        events.push(event);
    }
    assert_eq!(events.len(), 5, "{events:#?}");
    for (at, event) in events.iter().enumerate() {
        let mut resumed = client.resume(event.id.as_ref().unwrap());
        let again = resumed.event().unwrap();
        assert_eq!((&again.id, again.data.as_str()), (&event.id, ""), "where the client stands");
        let mut said = Vec::new();
        while let Some(event) = resumed.event() {
            said.push(event);
        }
        assert_eq!(said, events[at + 1..], "after event {at}");
    }
    assert_eq!(log.count("tools/call"), 1);
}

#[test]
fn whoever_resumes_takes_the_stream_over() {
    let (gateway, _log) = before_a_process(GatewaySetup::new());
    let mut client = gateway.legacy();
    let mut first = slow_call(&mut client, 4, 1000);
    let priming = first.event().unwrap();
    let mut second = client.resume(priming.id.as_ref().unwrap());
    let again = second.event().unwrap();
    assert_eq!(again.id, priming.id);
    let mut steps = Vec::new();
    while let Some(event) = first.event() {
        steps.push(progress_of(&event));
    }
    assert!(!steps.contains(&4), "the first stream ends before the call: {steps:?}");
    assert_eq!(rest(&mut second).0, [1, 2, 3, 4]);
}

#[test]
fn an_id_that_leads_nowhere_opens_an_ordinary_stream() {
    let setup = GatewaySetup::new().second_caller(TOKEN);
    let (gateway, _log) = before_a_process(setup);
    let (mut client, mut other) = (gateway.legacy(), gateway.legacy());
    let [mine, foreign] = [&mut client, &mut other].map(|client| {
        let mut call = slow_call(client, 2, 10);
        let first = call.event().unwrap();
        while call.event().is_some() {}
        first.id.unwrap()
    });
    let forged = mine.replace("-0", "-99");
    let nowhere = ["", "0", "0000000000000000-0", &forged, &foreign];
    for last in nowhere {
        let first = opened(|| client.resume(last)).event().unwrap();
        let name = |id: &str| id.split('-').next().map(str::to_owned);
        let id = first.id.as_deref().unwrap();
        assert!(first.data.is_empty() && id.ends_with("-0"), "{last}: {first:?}");
        assert!(name(id) != name(&mine) && name(id) != name(&foreign), "{last}: a stream of its own: {first:?}");
    }
    let _own = opened(|| client.listen());
    for last in nowhere {
        assert_eq!(client.resume(last).head().status, 409, "{last}: there is a stream already");
    }
    assert_eq!(client.resume(&mine).head().status, 200, "a call's stream is another one");
    let stranger = Mcp::http(gateway.address, Some(TOKEN.to_owned()), ClientEra::LEGACY);
    let mut stolen = stranger.headers("", &Value::Null);
    for (name, value) in &mut stolen {
        if name == "Mcp-Session-Id" {
            *value = client.session().unwrap();
        }
    }
    stolen.push(("Last-Event-ID".to_owned(), mine.clone()));
    let mut conn = crate::stage::http::TestConnection::open(gateway.address).unwrap();
    conn.send(&crate::stage::http::request("GET", "/mcp", &stolen, b"")).unwrap();
    assert_eq!(conn.head().unwrap().status, 404, "another caller's session");
}

#[test]
fn each_revision_gets_the_ids_that_it_knows() {
    let (gateway, _log) = before_a_process(GatewaySetup::new());
    for (era, ids, primed) in [
        (ClientEra::Legacy("2024-11-05"), false, false),
        (ClientEra::Legacy("2025-03-26"), true, false),
        (ClientEra::Legacy("2025-06-18"), true, false),
        (ClientEra::Legacy("2025-11-25"), true, true),
        (ClientEra::Modern, false, false),
    ] {
        let mut client = gateway.client(era);
        let mut call = slow_call(&mut client, 2, 10);
        let mut events = Vec::new();
        while let Some(event) = call.event() {
            events.push(event);
        }
        assert_eq!(events.len(), 3 + usize::from(primed), "{era:?}: {events:#?}");
        assert_eq!(events[0].data.is_empty(), primed, "{era:?}: {events:#?}");
        assert!(events.iter().all(|event| event.id.is_some() == ids), "{era:?}: {events:#?}");
    }
}

#[test]
fn a_question_is_asked_again_where_it_was_lost() {
    let server = Fake::http("legacy").with("--answers", "sse").behaving("asks").spawn();
    let gateway = GatewaySetup::new().url("fx", &server.url).start();
    let capabilities = json!({"elicitation": {}});
    let mut client = Mcp::http_at(gateway.address, gateway.token(), ClientEra::LEGACY, "/mcp", capabilities);
    eventually("it is listed", || client.tool_names().iter().any(|name| name == "fx__inquire"));
    let schema = json!({"type": "object", "properties": {"name": {"type": "string"}}});
    let question = json!({"method": "elicitation/create", "params": {"message": "who?", "requestedSchema": schema}});
    let params = json!({"name": "fx__inquire", "arguments": {"rounds": [[question]]}});
    let mut call = client.open("tools/call", params);
    let id = call.id.clone();
    let priming = call.event().unwrap();
    let asked = message_of(&call.event().unwrap());
    assert_eq!(asked["method"], "elicitation/create", "{asked}");
    drop(call);
    let mut resumed = client.resume(priming.id.as_ref().unwrap());
    let again = resumed.next().unwrap();
    assert_eq!(again, asked, "the same question under the same id");
    client.respond(&again["id"], json!({"action": "accept", "content": {"name": "Ada"}}));
    resumed.id = id;
    let answer = resumed.response();
    assert!(answer["result"]["content"][0]["text"].as_str().is_some_and(|text| text.contains("Ada")), "{answer}");
}

#[test]
fn what_changed_while_a_sessions_own_stream_was_gone_is_told_after_it() {
    let (gateway, _log) = before_a_process(GatewaySetup::new());
    let mut client = gateway.legacy();
    let mut own = client.listen();
    let priming = own.event().unwrap();
    assert!(priming.data.is_empty() && priming.retry.is_some(), "{priming:?}");
    drop(own);
    assert!(!client.call("fx__mutate", json!({})).is_error());
    gateway.wait_for_tools(&["fx__grown_0"]);
    let mut resumed = client.resume(priming.id.as_ref().unwrap());
    let changed = resumed.next().unwrap();
    assert_eq!(changed["method"], "notifications/tools/list_changed");
}

#[test]
fn a_legacy_upstreams_stream_is_resumed_and_its_call_is_sent_once() {
    let (gateway, _server, log) = before_http("legacy", &["polled=400"]);
    let asked = now();
    assert_eq!(gateway.legacy().call("fx__echo", json!({"text": "late"})).text(), "late");
    assert!((now() - asked) >= Duration::from_millis(400), "the server said when: {:?}", (now() - asked));
    assert_eq!(log.count("tools/call"), 1);
    let resumptions = resumptions(&log);
    assert_eq!(resumptions.len(), 1, "{resumptions:?}");
    assert!(resumptions[0].contains("-0\""), "{resumptions:?}");
    assert_eq!(log.count("notifications/cancelled"), 0);
}

#[test]
fn a_stream_that_ends_again_and_again_is_read_to_the_answer() {
    let (gateway, _server, log) = before_http("legacy", &["polled=100"]);
    for era in ClientEra::BOTH {
        let mut client = gateway.client(era);
        let mut call = slow_call(&mut client, 3, 5);
        let (steps, answer) = rest(&mut call);
        assert_eq!(steps, [1, 2, 3], "{era:?}");
        assert_eq!(answer["result"]["content"][0]["text"], "done", "{era:?}: {answer}");
    }
    assert_eq!(log.count("tools/call"), 2);
    for number in ["call1-0\"", "call1-2\""] {
        let of_number = resumptions(&log).iter().filter(|line| line.contains(number)).count();
        assert_eq!(of_number, 2, "{number}: {:?}", resumptions(&log));
    }
}

#[test]
fn a_stream_that_cannot_be_resumed_is_a_call_of_unknown_end() {
    for (era, behaviours, asked) in
        [("legacy", &["polled=100", "forget-events"][..], 1), ("modern", &["polled=100"][..], 0)]
    {
        let (gateway, _server, log) = before_http(era, behaviours);
        let answer = gateway.legacy().call("fx__echo", json!({"text": "lost"}));
        assert!(answer.is_error(), "{era}: {}", answer.raw);
        assert_eq!(answer.result()["_meta"]["headend/refusal"]["executed"], "unknown", "{era}: {}", answer.raw);
        assert_eq!(log.count("tools/call"), 1, "{era}: it is not sent again");
        assert_eq!(resumptions(&log).len(), asked, "{era}");
    }
}

#[test]
fn a_call_that_waits_for_its_stream_can_be_cancelled() {
    let (gateway, _server, log) = before_http("legacy", &["polled=30000"]);
    let mut client = gateway.modern();
    let call = client.open("tools/call", json!({"name": "fx__echo", "arguments": {"text": "x"}}));
    eventually("the call arrives", || log.count("tools/call") == 1);
    drop(call);
    eventually("the cancellation arrives", || log.count("notifications/cancelled") == 1);
}

#[test]
fn an_answer_on_the_sessions_own_stream_reaches_its_call() {
    let (gateway, _server, log) = before_http("legacy", &["aside"]);
    for era in ClientEra::BOTH {
        assert_eq!(gateway.client(era).call("fx__echo", json!({"text": "aside"})).text(), "aside", "{era:?}");
    }
    assert_eq!(log.count("tools/call"), 2);
    assert_eq!(log.count("notifications/cancelled"), 0, "an answered call is not cancelled");
}

#[test]
fn an_answer_on_the_stream_of_a_session_that_all_share_reaches_its_call() {
    let server = Fake::http("legacy").behaving("aside").spawn();
    let shared = format!("[upstreams.fx]\nurl = {:?}\ninstance = \"shared\"\ncall-timeout = \"5s\"", server.url);
    let gateway = GatewaySetup::new().toml(&shared).start();
    gateway.wait_for_tools(&["fx__echo"]);
    for text in ["one", "two"] {
        assert_eq!(gateway.modern().call("fx__echo", json!({"text": text})).text(), text);
    }
}

#[test]
fn a_refusal_whose_body_has_no_end_ends_its_call_whatever_is_said_beside_it() {
    let (gateway, _server, _log) = before_http("legacy", &["slow-refusal=500"]);
    for era in ClientEra::BOTH {
        let answer = gateway.client(era).call("fx__echo", json!({"text": "a"}));
        let refusal = &answer.result()["_meta"]["headend/refusal"];
        assert_eq!(refusal["reason"], "upstream_crashed", "{era:?}: {}", answer.raw);
    }
}

/// Starts a gateway in front of a legacy server on pipes, and returns the server's log.
fn before_a_process(setup: GatewaySetup) -> (Gateway, InputLog) {
    let log = InputLog::new(&setup.world.path("work"), "fx");
    let gateway = setup.fake("fx", &Fake::stdio("legacy").logging(&log)).start();
    gateway.wait_for_tools(&["fx__progress"]);
    (gateway, log)
}

/// Starts a gateway in front of a server over HTTP that misbehaves in these ways.
fn before_http(era: &str, behaviours: &[&str]) -> (Gateway, Listening, InputLog) {
    let setup = GatewaySetup::new();
    let log = InputLog::new(&setup.world.path("work"), "fx");
    let fake = behaviours.iter().fold(Fake::http(era).logging(&log), |fake, behaviour| fake.behaving(behaviour));
    let server = fake.spawn();
    let gateway = setup.url("fx", &server.url).start();
    gateway.wait_for_tools(&["fx__echo"]);
    (gateway, server, log)
}

/// Starts a call that reports progress in `steps` steps, `delay_ms` apart.
fn slow_call(client: &mut Mcp, steps: u64, delay_ms: u64) -> OpenCall {
    let arguments = json!({"steps": steps, "delay_ms": delay_ms});
    let params = json!({"name": "fx__progress", "arguments": arguments, "_meta": {"progressToken": "t"}});
    client.open("tools/call", params)
}

/// Opens the stream once the gateway has noticed that the previous one is gone.
fn opened(open: impl Fn() -> OpenCall) -> OpenCall {
    let mut stream = None;
    eventually("the session's stream is free", || {
        stream = Some(open());
        stream.as_mut().is_some_and(|stream| stream.head().status == 200)
    });
    stream.unwrap()
}

fn message_of(event: &StreamEvent) -> Value {
    serde_json::from_str(&event.data).unwrap()
}

fn progress_of(event: &StreamEvent) -> u64 {
    step_of(&message_of(event))
}

fn step_of(message: &Value) -> u64 {
    assert_eq!(message["method"], "notifications/progress", "{message}");
    message["params"]["progress"].as_f64().unwrap() as u64
}

/// Returns the remaining steps of progress and the answer, which ends the stream.
fn rest(stream: &mut OpenCall) -> (Vec<u64>, Value) {
    let mut steps = Vec::new();
    while let Some(message) = stream.next() {
        if message.get("method").is_none() {
            assert_eq!(stream.next(), None, "the answer is the last message");
            return (steps, message);
        }
        steps.push(step_of(&message));
    }
    panic!("no answer after {steps:?}");
}

/// Returns the requests that resumed a stream.
fn resumptions(log: &InputLog) -> Vec<String> {
    log.lines_with(&["\"http\":\"GET\"", "\"last\""])
}
