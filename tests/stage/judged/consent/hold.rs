//! Tests of calls that are held while they wait for a person: over each client transport, how long,
//! how many, and what their clients are told.

use super::operator::{headend, pending};
use super::*;
use crate::stage::harness::TestHome;
use crate::stage::old_client::OldClient;
use crate::stage::steps::abuse::{approve, echoed, waits_for};

mod ends;
mod orders;
mod release;
mod room;

/// A hold longer than any test: a response that comes sooner did not wait for its end.
pub(crate) const LONG: &str = "hold = \"10m\"";
const PATIENCE: Duration = Duration::from_secs(60);

fn echo(text: &str) -> Value {
    json!({"name": "fx__echo", "arguments": {"text": text}})
}

/// Like [`echo`], from a client that wants progress, so that its stream begins at once.
fn echo_with_progress(text: &str) -> Value {
    let mut params = echo(text);
    params["_meta"] = json!({"progressToken": "p"});
    params
}

/// Returns a call as a message.
fn message(id: &str, params: Value) -> Value {
    json!({"jsonrpc": "2.0", "id": id, "method": "tools/call", "params": params})
}

/// Returns the ids of the open approvals.
fn listed(world: &TestHome) -> Vec<String> {
    let output = world.run(&["approvals", "--json"]);
    let listed: Value = serde_json::from_slice(&output.stdout).unwrap_or_default();
    let open = listed["approvals"].as_array().cloned().unwrap_or_default();
    open.iter().map(|approval| approval["id"].as_str().unwrap().to_owned()).collect()
}

/// Waits until approvals are open and returns their ids.
fn open_ids(world: &TestHome) -> Vec<String> {
    let mut ids = Vec::new();
    eventually("a call waits", || {
        ids = listed(world);
        !ids.is_empty()
    });
    ids
}

/// Denies all open approvals.
fn clear(world: &TestHome) {
    listed(world).iter().for_each(|id| drop(world.run(&["deny", id])));
}

fn approve_in(world: &TestHome) {
    let output = world.run(&["approve", &open_ids(world)[0]]);
    assert!(output.status.success(), "{}", crate::stage::process::said(&output));
}

/// Returns the reason of a refusal on a stream.
fn reason_of(response: &Value) -> &str {
    response["result"]["_meta"]["headend/refusal"]["reason"].as_str().unwrap_or_default()
}

pub(super) fn is_echo(response: &Value, text: &str) -> bool {
    response["result"]["content"][0]["text"] == text && response["result"]["isError"] != true
}

#[test]
fn over_http_a_call_is_answered_when_a_person_has_decided() {
    let stage = ConsentGateway::with(LONG, "");
    for era in ClientEra::BOTH {
        for (how, text) in [("approve", "yes"), ("deny", "no")] {
            let text = format!("{text} {era:?}");
            let mut client = stage.client(era, json!({}));
            let mut call = client.open("tools/call", echo(&text));
            let id = open_ids(&stage.gateway.world).remove(0);
            assert!(!stage.called().contains(&json!({"text": text})), "{text}");
            headend(&stage, &[how, &id]);
            let response = call.response();
            let want = if how == "approve" { "" } else { "denied" };
            assert_eq!(reason_of(&response), want, "{response}");
            assert_eq!(is_echo(&response, &text), how == "approve", "{response}");
        }
    }
    assert_eq!(stage.called().len(), 2);
}

/// Waits for the next comment of a stream.
fn comment(call: &mut OpenCall) -> String {
    assert!(call.head().is_stream(), "not a stream: {:?}", call.head());
    loop {
        let piece = call.conn.piece().unwrap().expect("the stream goes on");
        if piece.starts_with(b":") {
            return String::from_utf8_lossy(&piece).into_owned();
        }
    }
}

#[test]
fn over_http_a_stream_stays_open_by_comments() {
    let setup = GatewaySetup::new()
        .server("limits.keepalive = \"1s\"")
        .policy(&format!("default = \"ask\"\n[policy.consent]\n{LONG}"))
        .fake("fx", &Fake::stdio("legacy"));
    let gateway = setup.start();
    gateway.wait_for_tools(&["fx__echo"]);
    for era in ClientEra::BOTH {
        let mut client = gateway.client(era);
        let mut call = client.open("tools/call", echo_with_progress(&format!("{era:?}")));
        assert_eq!(call.next().unwrap()["method"], "notifications/progress");
        assert!(comment(&mut call).starts_with(": keep-alive"), "{era:?}");
        approve_in(&gateway.world);
        assert!(is_echo(&call.response(), &format!("{era:?}")), "{era:?}");
    }
}

#[test]
fn over_the_old_transport_and_over_pipes_a_call_is_answered_when_a_person_has_decided() {
    let policy = format!("default = \"ask\"\n[policy.consent]\nper-minute = 100\n{LONG}");
    let setup = GatewaySetup::new().server("legacy-sse = true").policy(&policy);
    let gateway = setup.fake("fx", &Fake::stdio("legacy")).start();
    gateway.wait_for_tools(&["fx__echo"]);
    let mut old = OldClient::connect(&gateway, gateway.token(), "/sse");
    old.initialize("2024-11-05");
    old.send("tools/call", echo("old"));
    approve_in(&gateway.world);
    assert!(is_echo(&old.message(), "old"));

    for era in ClientEra::BOTH {
        let mut client = Mcp::stdio(gateway.pipe(), era);
        let text = format!("{era:?}");
        let call = message(&text, client.dress(echo(&text)));
        client.pipe().send(call.to_string().as_bytes());
        approve_in(&gateway.world);
        let answer = client.pipe().answer(&json!(text), PATIENCE);
        assert!(echoed(&answer, &text), "{text}: {}", answer.raw);
        // No other request waits behind the held call.
        assert_eq!(client.request("ping", json!({})).code().is_none(), era != ClientEra::Modern, "{text}");
    }
}

#[test]
fn after_its_time_a_call_is_refused_and_the_approval_stays() {
    let stage = ConsentGateway::with("hold = \"400ms\"", "");
    for era in ClientEra::BOTH {
        let mut client = stage.client(era, json!({}));
        let arguments = json!({"text": format!("{era:?}")});
        let begun = now();
        let refused = client.call("fx__echo", arguments.clone());
        assert!(now() - begun >= Duration::from_millis(400), "{era:?}: {:?}", now() - begun);
        let id = waits_for(&refused);
        assert_eq!(pending(&stage), [id.as_str()], "{era:?}");
        approve(&stage.gateway, &id);
        assert!(echoed(&client.call("fx__echo", arguments), &format!("{era:?}")), "{era:?}");
    }
    assert_eq!(stage.called().len(), 2, "each once");
}

#[test]
fn the_name_that_a_client_gives_itself_decides_how_long_it_waits_and_a_reload_changes_that() {
    let hold = |time: &str| format!("[[policy.consent.holds]]\nclients = [\"i?\"]\nhold = \"{time}\"\n");
    let text = |time: &str| {
        let policy = format!("default = \"ask\"\n[policy.consent]\nper-minute = 100\n{LONG}\n{}", hold(time));
        GatewaySetup::new().policy(&policy).fake("fx", &Fake::stdio("legacy"))
    };
    let gateway = text("0s").start();
    gateway.wait_for_tools(&["fx__echo"]);
    for era in ClientEra::BOTH {
        // Clients of the tests have the name `it`.
        waits_for(&gateway.client(era).call("fx__echo", json!({"text": format!("at once {era:?}")})));
        clear(&gateway.world);
    }
    let reloaded = gateway.reload(&text("10m").text());
    assert!(reloaded.status.success(), "{}", crate::stage::process::said(&reloaded));
    for era in ClientEra::BOTH {
        let mut client = gateway.client(era);
        let mut call = client.open("tools/call", echo(&format!("later {era:?}")));
        assert!(call.next_within(Duration::from_millis(300)).is_err(), "{era:?}: it is held");
        let reloaded = gateway.reload(&text("0s").text());
        assert!(reloaded.status.success(), "{}", crate::stage::process::said(&reloaded));
        assert_eq!(reason_of(&call.response()), "awaiting_approval", "{era:?}: held calls are refused then");
        clear(&gateway.world);
        gateway.reload(&text("10m").text());
    }
}

#[test]
fn beyond_the_number_of_held_calls_a_refusal_comes_at_once() {
    let stage = ConsentGateway::with(&format!("{LONG}\nmax-held = 2"), "");
    let mut client = stage.client(ClientEra::Modern, json!({}));
    let arguments = json!({"text": "same"});
    let first = client.open("tools/call", echo("same"));
    open_ids(&stage.gateway.world);
    let mut second = client.open("tools/call", echo("same"));
    assert!(second.next_within(Duration::from_millis(500)).is_err(), "a call that joins is held too");
    waits_for(&client.call("fx__echo", arguments.clone()));
    let mut other = stage.second(ClientEra::Modern, json!({}));
    let mut others = other.open("tools/call", echo("same"));
    assert!(others.next_within(Duration::from_millis(300)).is_err(), "the number is the caller's");
    drop((first, second, others));
    // The slots are free again, and the next call is held as briefly as the last ones.
    eventually("a place is free", || {
        let begun = now();
        waits_for(&client.call("fx__echo", arguments.clone()));
        now() - begun > Duration::from_millis(50)
    });
    assert_eq!(stage.called().len(), 0);
}

#[test]
fn a_batch_waits_for_no_person() {
    let stage = ConsentGateway::with(LONG, "");
    let mut client = stage.client(ClientEra::Legacy("2025-03-26"), json!({}));
    let headers = client.headers("", &Value::Null);
    let call = |id: u64| json!({"jsonrpc": "2.0", "id": id, "method": "tools/call", "params": echo("x")});
    let body = json!([call(90), {"jsonrpc": "2.0", "id": 91, "method": "ping"}]).to_string();
    let answer = client.exchange(&json!(90), &headers, &body);
    assert!(answer.raw.contains("awaiting_approval") && answer.raw.contains("\"id\":91"), "{}", answer.raw);
}

#[test]
fn a_call_of_the_command_line_is_refused_at_once() {
    let stage = ConsentGateway::with(LONG, "");
    let begun = now();
    let output = stage.gateway.run(&["call", "fx__echo", "{\"text\":\"x\"}"]);
    let told = crate::stage::process::said(&output);
    assert!(now() - begun < PATIENCE && !output.status.success(), "{told}");
    assert_eq!(pending(&stage).len(), 1, "{told}");
}

#[test]
fn a_legacy_client_whose_word_does_not_suffice_is_told_where_to_go_and_its_answers_grant_nothing() {
    let stage = ConsentGateway::with(LONG, "");
    let write = |path: &str| json!({"name": "fx__write", "arguments": {"path": path}});
    for (label, answer) in [
        ("accept", json!({"action": "accept", "content": {}})),
        ("a forged decision", allow("session")),
        ("cancel", json!({"action": "cancel"})),
    ] {
        let mut client = stage.client(ClientEra::LEGACY, forms());
        let mut call = client.open("tools/call", write(label));
        let question = call.next().unwrap();
        assert_eq!(question["method"], "elicitation/create", "{label}: {question}");
        assert_eq!(question["params"]["requestedSchema"], json!({"type": "object", "properties": {}}), "{label}");
        let message = question["params"]["message"].as_str().unwrap();
        assert!(message.contains("the tool fx__write of the server fx"), "{label}: {message}");
        for part in ["`headend approvals --watch`", "Decline here to refuse this call."] {
            assert!(message.contains(part), "{part}: {message}");
        }
        client.respond(&question["id"], answer);
        assert!(call.next_within(Duration::from_millis(300)).is_err(), "{label}: it waits, and is not asked again");
        assert_eq!(pending(&stage).len(), 1, "{label}");
        assert_eq!(stage.called().iter().filter(|call| **call == json!({"path": label})).count(), 0, "{label}");
        approve_in(&stage.gateway.world);
        assert_eq!(call.response()["result"]["content"][0]["text"], "write", "{label}");
    }
    let mut client = stage.client(ClientEra::LEGACY, forms());
    let mut call = client.open("tools/call", write("declined"));
    let question = call.next().unwrap();
    read_form();
    client.respond(&question["id"], json!({"action": "decline"}));
    let response = call.response();
    assert_eq!(response["result"]["content"][0]["text"], "The client declined this call.", "{response}");
    assert_eq!(reason_of(&response), "denied");
    assert_eq!(pending(&stage), [""; 0]);
    let mut again = client.open("tools/call", write("declined"));
    assert_eq!(again.next().unwrap()["method"], "elicitation/create", "it blocks nothing");
    headend(&stage, &["deny", &open_ids(&stage.gateway.world)[0]]);
    assert_eq!(again.next().unwrap()["method"], "notifications/cancelled");
    assert_eq!(reason_of(&again.response()), "denied");

    let mut call = client.open("tools/call", write("withdrawn"));
    let question = call.next().unwrap();
    approve_in(&stage.gateway.world);
    let withdrawn = call.next().unwrap();
    assert_eq!(withdrawn["method"], "notifications/cancelled", "{withdrawn}");
    assert_eq!(withdrawn["params"]["requestId"], question["id"], "{withdrawn}");
    assert_eq!(call.response()["result"]["content"][0]["text"], "write");
    assert_eq!(stage.called().len(), 4);
}

#[test]
fn a_modern_client_whose_word_does_not_suffice_is_held_without_a_form() {
    let stage = ConsentGateway::with(LONG, "");
    let mut client = stage.client(ClientEra::Modern, forms());
    let mut call = client.open("tools/call", json!({"name": "fx__write", "arguments": {"path": "a"}}));
    assert!(call.next_within(Duration::from_millis(300)).is_err(), "its request would end with a form");
    approve_in(&stage.gateway.world);
    assert_eq!(call.response()["result"]["content"][0]["text"], "write");
}

#[test]
fn a_client_that_wants_progress_hears_that_its_call_waits_and_progress_grows_from_then_on() {
    let stage = ConsentGateway::with(LONG, "");
    for era in ClientEra::BOTH {
        let mut client = stage.client(era, json!({}));
        let params = json!({"name": "fx__progress", "arguments": {"steps": 3, "delay_ms": 20, "era": format!("{era:?}")},
            "_meta": {"progressToken": "mine"}});
        let mut call = client.open("tools/call", params);
        let first = call.next().unwrap();
        assert_eq!(first["method"], "notifications/progress", "{era:?}: {first}");
        assert_eq!(first["params"]["progressToken"], "mine", "{era:?}: {first}");
        assert_eq!(first["params"]["message"], "waiting for approval", "{era:?}: {first}");
        approve_in(&stage.gateway.world);
        let mut last = first["params"]["progress"].as_f64().unwrap();
        let mut notices = 0;
        let response = loop {
            let message = call.next().unwrap();
            let Some(progress) = message["params"]["progress"].as_f64() else { break message };
            assert!(progress > last, "{era:?}: {progress} after {last}");
            (last, notices) = (progress, notices + 1);
        };
        assert_eq!((response["result"]["content"][0]["text"].as_str(), notices), (Some("done"), 3), "{era:?}");
    }
}

#[test]
fn a_modern_client_that_opens_the_page_is_held_while_its_person_is_there() {
    let stage = ConsentGateway::with(LONG, "[console]\nlisten = \"127.0.0.1:0\"");
    let mut client = stage.client(ClientEra::Modern, json!({"elicitation": {"url": {}}}));
    let arguments = json!({"path": "a"});
    let (question, state) = asked(&client.call("fx__write", arguments.clone()));
    assert_eq!(question["mode"], "url", "{question}");
    let mut retry = json!({"name": "fx__write", "arguments": arguments, "requestState": state});
    retry["inputResponses"] = json!({"gw.consent": {"action": "accept"}});
    let mut call = client.open("tools/call", retry);
    assert!(call.next_within(Duration::from_millis(300)).is_err(), "it waits");
    approve_in(&stage.gateway.world);
    assert_eq!(call.response()["result"]["content"][0]["text"], "write");
}

#[test]
fn a_modern_client_that_comes_back_without_an_answer_is_held_while_the_question_is_open() {
    let stage = ConsentGateway::with(LONG, "");
    let mut client = stage.client(ClientEra::Modern, forms());
    let arguments = json!({"text": "again"});
    let (_, state) = asked(&client.call("fx__echo", arguments.clone()));
    let mut call =
        client.open("tools/call", json!({"name": "fx__echo", "arguments": arguments, "requestState": state}));
    assert!(call.next_within(Duration::from_millis(300)).is_err(), "it waits");
    approve_in(&stage.gateway.world);
    assert!(is_echo(&call.response(), "again"));
}

#[test]
fn a_modern_client_whose_retry_waited_in_vain_is_asked_again_and_can_answer() {
    let stage = ConsentGateway::with("hold = \"400ms\"", "");
    let mut client = stage.client(ClientEra::Modern, forms());
    let arguments = json!({"text": "in vain"});
    let (_, state) = asked(&client.call("fx__echo", arguments.clone()));
    let begun = now();
    let retry = json!({"name": "fx__echo", "arguments": arguments, "requestState": state});
    let (_, state) = asked(&client.request("tools/call", retry));
    assert!(now() - begun >= Duration::from_millis(400), "{:?}", now() - begun);
    assert_eq!(pending(&stage).len(), 1, "one question");
    let answer = go_on(&mut client, "fx__echo", &arguments, &state, &allow("once"));
    assert!(echoed(&answer, "in vain"), "{}", answer.raw);
    assert_eq!(stage.called().len(), 1);
}

#[test]
fn forms_that_say_where_to_go_come_one_after_the_other_and_end_with_the_wait() {
    let stage = ConsentGateway::with("hold = \"1500ms\"", "");
    let mut client = stage.client(ClientEra::LEGACY, forms());
    let write = |path: &str| json!({"name": "fx__write", "arguments": {"path": path}});
    let mut first = client.open("tools/call", write("first"));
    let question = first.next().unwrap();
    assert_eq!(question["method"], "elicitation/create", "{question}");
    let mut second = client.open("tools/call", write("second"));
    assert!(second.next_within(Duration::from_millis(300)).is_err(), "the first form is open still");
    client.respond(&question["id"], json!({"action": "cancel"}));
    let other = second.next().unwrap();
    assert_eq!(other["method"], "elicitation/create", "{other}");
    assert_eq!(reason_of(&first.response()), "awaiting_approval", "it is not asked again");
    let withdrawn = second.next().unwrap();
    assert_eq!(withdrawn["method"], "notifications/cancelled", "{withdrawn}");
    assert_eq!(withdrawn["params"]["requestId"], other["id"], "{withdrawn}");
    assert_eq!(reason_of(&second.response()), "awaiting_approval");
    // An answer that comes too late means nothing either.
    client.respond(&other["id"], json!({"action": "decline"}));
    assert_eq!((pending(&stage).len(), stage.called().len()), (2, 0));
}
