//! Approvals at the two ends of a pipe, and what a person answers there.

use std::time::Duration;

use serde_json::{Value, json};

use super::super::harness::GatewaySetup;
use super::super::mcp::{ClientEra, Mcp};
use super::super::upstream::{Fake, InputLog};
use super::abuse::echoed;
use super::consent::{allow, asked, go_on};

pub(crate) const PATIENCE: Duration = Duration::from_secs(10);

pub(crate) fn setup() -> (GatewaySetup, InputLog) {
    let setup = GatewaySetup::new()
        .server("legacy-sse = true")
        .policy("default = \"ask\"\n[policy.consent]\nper-minute = 100\nmax-open = 100");
    let log = InputLog::new(&setup.world.path("work"), "fx");
    (setup.fake("fx", &Fake::stdio("legacy").logging(&log)), log)
}

pub(crate) fn echo(text: &str) -> Value {
    json!({"name": "fx__echo", "arguments": {"text": text}})
}

pub(crate) fn is_ours(question: &Value) -> bool {
    question["method"] == "elicitation/create"
        && question["params"]["message"]
            .as_str()
            .is_some_and(|message| message.starts_with("headend needs your approval"))
}

/// Plays a person at a pipe, in this era: answers no, once, and for the session.
pub(crate) fn through_a_pipe(client: &mut Mcp, era: ClientEra, log: &InputLog) {
    let before = log.work();
    for (how, text) in [("deny", "a"), ("once", "b"), ("session", "c")] {
        // Another text for each, since a denied call is refused for a while.
        let text = &format!("{text} {era:?}");
        let executed = match era {
            ClientEra::Modern => {
                let (_, state) = asked(&client.request("tools/call", echo(text)));
                let answer = go_on(client, "fx__echo", &json!({"text": text}), &state, &allow(how));
                echoed(&answer, text)
            }
            ClientEra::Legacy(_) => {
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

/// Returns whether a message is sent by a server that has just started.
pub(crate) fn is_list_change(message: &Value) -> bool {
    message["method"].as_str().is_some_and(|method| method.ends_with("/list_changed"))
}

/// Calls over a pipe and waits for our question. Returns the call's id and the question.
pub(crate) fn call_and_hear(client: &mut Mcp, text: &str) -> (Value, Value) {
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
