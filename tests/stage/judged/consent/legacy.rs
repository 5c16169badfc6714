//! Tests of clients up to 2025-11-25, which are asked on the stream of their own call.

use super::*;

/// Waits for the gateway's question on a call's stream.
fn question(call: &mut OpenCall) -> Value {
    let message = call.next().unwrap();
    assert_eq!(message["method"], "elicitation/create", "{message}");
    message
}

fn call(client: &mut Mcp, name: &str, arguments: &Value) -> OpenCall {
    client.open("tools/call", json!({"name": name, "arguments": arguments}))
}

#[test]
fn a_legacy_client_is_asked_on_the_stream_of_its_call() {
    let stage = ConsentGateway::new();
    let mut client = stage.client(ClientEra::LEGACY, forms());
    for (how, want) in [("once", Some("a")), ("deny", None), ("session", Some("c"))] {
        let arguments = json!({"text": want.unwrap_or("b")});
        let mut open = call(&mut client, "fx__echo", &arguments);
        let asked = question(&mut open);
        assert!(asked["params"]["message"].as_str().unwrap().starts_with("headend needs your approval"), "{asked}");
        assert_eq!(stage.called().iter().filter(|call| **call == arguments).count(), 0, "{how}");
        client.respond(&asked["id"], allow(how));
        let response = open.response();
        match want {
            Some(text) => assert_eq!(response["result"]["content"][0]["text"], text, "{how}: {response}"),
            None => assert_eq!(response["result"]["isError"], true, "{how}: {response}"),
        }
    }
    let answer = client.call("fx__echo", json!({"text": "d"}));
    assert_eq!(answer.text(), "d", "the session was allowed");
    assert_eq!(client.end_session(), 204);
    let mut next = stage.client(ClientEra::LEGACY, forms());
    let mut open = call(&mut next, "fx__echo", &json!({"text": "e"}));
    question(&mut open);
    assert_eq!(stage.called().len(), 3, "a, c and d");
}

#[test]
fn no_answer_in_time_is_a_no() {
    let stage = ConsentGateway::with("timeout = \"1s\"", "");
    let mut client = stage.client(ClientEra::LEGACY, forms());
    let mut open = call(&mut client, "fx__echo", &json!({"text": "x"}));
    let asked = question(&mut open);
    let withdrawn = open.next().unwrap();
    assert_eq!(withdrawn["method"], "notifications/cancelled", "{withdrawn}");
    assert_eq!(withdrawn["params"]["requestId"], asked["id"], "{withdrawn}");
    let response = open.response();
    assert_eq!(response["result"]["isError"], true, "{response}");
    assert!(response["result"]["content"][0]["text"].as_str().unwrap().contains("in time"), "{response}");
    // Too late: the answer neither runs the call nor allows the next one.
    client.respond(&asked["id"], allow("session"));
    let mut open = call(&mut client, "fx__echo", &json!({"text": "x"}));
    question(&mut open);
    assert_eq!(stage.called().len(), 0);
}

#[test]
fn a_question_that_the_operator_has_answered_is_taken_back_from_the_client() {
    let stage = ConsentGateway::new();
    let mut client = stage.client(ClientEra::LEGACY, forms());
    let mut open = call(&mut client, "fx__echo", &json!({"text": "x"}));
    let asked = question(&mut open);
    let id = operator::pending(&stage).remove(0);
    let output = stage.gateway.world.run(&["approve", &id]);
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let withdrawn = open.next().unwrap();
    assert_eq!(withdrawn["method"], "notifications/cancelled", "{withdrawn}");
    assert_eq!(withdrawn["params"]["requestId"], asked["id"], "{withdrawn}");
    assert_eq!(open.response()["result"]["content"][0]["text"], "x");
    assert_eq!(stage.called().len(), 1);
}

#[test]
fn a_client_that_hangs_up_while_it_is_asked_has_called_nothing() {
    let stage = ConsentGateway::new();
    let mut client = stage.client(ClientEra::LEGACY, forms());
    let mut open = call(&mut client, "fx__echo", &json!({"text": "x"}));
    let asked = question(&mut open);
    let id = open.id.clone();
    client.notify("notifications/cancelled", json!({"requestId": id}));
    drop(open);
    client.respond(&asked["id"], allow("once"));
    assert_eq!(client.request("ping", json!({})).status, 200);
    pass(Duration::from_millis(300));
    assert_eq!(stage.called().len(), 0);
}
