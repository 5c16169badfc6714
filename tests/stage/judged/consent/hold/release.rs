//! Tests of a grant for longer than once, and of the other held calls that it covers.

use super::*;

/// Waits until the call with that text has an open approval, and returns its id.
fn id_of(world: &TestHome, text: &str) -> String {
    let mut id = None;
    eventually(&format!("the call {text:?} waits"), || {
        let output = world.run(&["approvals", "--json"]);
        let listed: Value = serde_json::from_slice(&output.stdout).unwrap_or_default();
        let open = listed["approvals"].as_array().cloned().unwrap_or_default();
        let mut of_it = open.iter().filter(|row| row["message"].as_str().is_some_and(|message| message.contains(text)));
        id = of_it.next().map(|row| row["id"].as_str().unwrap().to_owned());
        id.is_some()
    });
    id.unwrap()
}

#[test]
fn a_longer_grant_answers_the_other_calls_that_it_covers_and_no_other() {
    let stage = ConsentGateway::with(LONG, "");
    let world = &stage.gateway.world;
    let (mut first, mut second) =
        (stage.client(ClientEra::LEGACY, json!({})), stage.client(ClientEra::LEGACY, json!({})));
    let mut other = stage.second(ClientEra::Modern, json!({}));
    let calls: Vec<_> = ["one", "two", "three"].map(|text| (text, first.open("tools/call", echo(text)))).into();
    let mut of_second = second.open("tools/call", echo("four"));
    let mut of_other = other.open("tools/call", echo("five"));
    let mut of_another = first.open("tools/call", json!({"name": "fx__env", "arguments": {"text": "six"}}));
    for text in ["one", "two", "three", "four", "five", "six"] {
        id_of(world, text);
    }
    headend(&stage, &["approve", &id_of(world, "two"), "--for", "session"]);
    for (text, mut call) in calls {
        assert!(is_echo(&call.response(), text), "{text}");
    }
    for held in [&mut of_second, &mut of_other, &mut of_another] {
        assert!(held.next_within(Duration::from_millis(300)).is_err(), "another session, caller or tool");
    }
    headend(&stage, &["approve", &id_of(world, "four"), "--for", "1h"]);
    assert!(is_echo(&of_second.response(), "four"));
    assert!(of_other.next_within(Duration::from_millis(300)).is_err(), "another caller");
    assert_eq!(stage.called().len(), 4);
    assert_eq!(listed(world).len(), 2);
    eventually("each has its record", || stage.audit("answer").len() == 4);
    let answers = stage.audit("answer");
    assert!(answers.iter().all(|answer| answer["result"] == "granted" && answer["grant"].is_string()), "{answers:#?}");
    headend(&stage, &["deny", &id_of(world, "five")]);
    assert_eq!(reason_of(&of_other.response()), "denied");
}

#[test]
fn a_released_call_is_decided_again_from_the_start() {
    let limit = "[[policy.limits]]\nid = \"few\"\ntools = [\"fx__echo\"]\nper-day = 2";
    let stage = ConsentGateway::with(LONG, limit);
    let mut client = stage.client(ClientEra::Modern, json!({}));
    let calls: Vec<_> = ["one", "two", "three", "four"].map(|text| client.open("tools/call", echo(text))).into();
    let ids: Vec<String> = ["one", "two", "three", "four"].map(|text| id_of(&stage.gateway.world, text)).into();
    headend(&stage, &["approve", &ids[3], "--for", "always"]);
    let responses: Vec<Value> = calls.into_iter().map(|mut call| call.response()).collect();
    let limited = responses.iter().filter(|response| reason_of(response) == "limited").count();
    assert_eq!((limited, stage.called().len()), (2, 2), "{responses:#?}");
    assert_eq!(listed(&stage.gateway.world), [""; 0]);
}
