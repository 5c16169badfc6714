//! Tests of transports other than HTTP: none of them bypasses the approval.

use super::*;
use crate::stage::old_client::OldClient;

const PATIENCE: Duration = Duration::from_secs(10);

fn setup() -> (Setup, Log) {
    let setup = Setup::new()
        .server("legacy-sse = true")
        .policy("default = \"ask\"\n[policy.consent]\nper-minute = 100\nmax-open = 100");
    let log = Log::new(&setup.world.path("work"), "fx");
    (setup.fake("fx", &Fake::stdio("legacy").logging(&log)), log)
}

fn echo(text: &str) -> Value {
    json!({"name": "fx__echo", "arguments": {"text": text}})
}

fn is_ours(question: &Value) -> bool {
    question["method"] == "elicitation/create"
        && question["params"]["message"].as_str().is_some_and(|message| message.starts_with("headend asks"))
}

#[test]
fn a_client_of_the_old_transport_is_asked() {
    let (setup, log) = setup();
    let gateway = setup.start();
    gateway.wait_for_tools(&["fx__echo"]);
    for (how, text) in [("deny", None), ("once", Some("b")), ("session", Some("c"))] {
        let mut client = OldClient::connect(&gateway, gateway.token(), "/sse");
        client.request("initialize", json!({"protocolVersion": "2025-06-18", "capabilities": {"elicitation": {}}}));
        let before = log.work();
        client.send("tools/call", echo(text.unwrap_or("a")));
        let question = client.message();
        assert!(is_ours(&question), "{how}: {question}");
        assert_eq!(log.work(), before, "{how}");
        assert_eq!(client.post(&json!({"jsonrpc": "2.0", "id": question["id"], "result": allow(how)})).0, 202);
        let answer = client.message();
        match text {
            Some(text) => assert_eq!(answer["result"]["content"][0]["text"], text, "{how}: {answer}"),
            None => assert_eq!(answer["result"]["isError"], true, "{how}: {answer}"),
        }
        assert_eq!(log.work(), before + usize::from(text.is_some()), "{how}");
    }
    let mut mute = OldClient::connect(&gateway, gateway.token(), "/sse");
    mute.initialize("2024-11-05");
    let refused = mute.request("tools/call", echo("d"));
    assert_eq!(refused["result"]["isError"], true, "of the last session's allowance nothing is left: {refused}");
    assert_eq!(log.work(), 2);
}

/// Plays a person at a pipe, in that era, who answers no, once, and for the session.
fn through_a_pipe(client: &mut Mcp, era: Era, log: &Log) {
    let before = log.work();
    for (how, text) in [("deny", "a"), ("once", "b"), ("session", "c")] {
        // Another text for each, since a denied call is refused for a while.
        let text = &format!("{text} {era:?}");
        let executed = match era {
            Era::Modern => {
                let (_, state) = asked(&client.request("tools/call", echo(text)));
                let answer = go_on(client, "fx__echo", &json!({"text": text}), &state, &allow(how));
                echoed(&answer, text)
            }
            Era::Legacy(_) => {
                let (id, question) = call_and_hear(client, text);
                client.respond(&question["id"], allow(how));
                echoed(&client.pipe().answer(&id, PATIENCE), text)
            }
        };
        assert_eq!(executed, how != "deny", "{how}, {era:?}");
    }
    assert!(echoed(&client.request("tools/call", echo("d")), "d"), "{era:?}: the session was allowed");
    assert_eq!(log.work(), before + 3, "{era:?}");
}

/// Whether the message announces a list change, as a server does that has just started.
fn is_list_change(message: &Value) -> bool {
    message["method"].as_str().is_some_and(|method| method.ends_with("/list_changed"))
}

/// Makes a call over a pipe and waits for the gateway's question. Returns the call's id and the
/// question.
fn call_and_hear(client: &mut Mcp, text: &str) -> (Value, Value) {
    let id = json!(format!("call {text}"));
    let call = json!({"jsonrpc": "2.0", "id": id, "method": "tools/call", "params": echo(text)});
    client.pipe().send(call.to_string().as_bytes());
    let question = loop {
        let line = client.pipe().line(PATIENCE).expect("a question");
        let message: Value = serde_json::from_str(&line).unwrap();
        if !is_list_change(&message) {
            break message;
        }
    };
    assert!(is_ours(&question), "{text}: {question}");
    (id, question)
}

#[test]
fn a_client_at_a_pipe_to_the_daemon_is_asked() {
    let (setup, log) = setup();
    let gateway = setup.start();
    gateway.wait_for_tools(&["fx__echo"]);
    for era in Era::BOTH {
        let pipe = gateway.pipe();
        let mut client = Mcp::stdio_with(pipe, era, forms());
        through_a_pipe(&mut client, era, &log);
    }
}
