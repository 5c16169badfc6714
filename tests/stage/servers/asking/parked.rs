//! Tests of calls that are parked for a modern client, and continued by its next request.

use std::time::Duration;

use rustix::process::Signal;
use serde_json::{Map, Value, json};

use super::{
    AskingGateway, AskingTransport, accept, answered, asked, everything, form, going_on, has_roots, inquire, roots,
    sample, sampled, usual,
};
use crate::stage::harness::{Gateway, GatewaySetup};
use crate::stage::mcp::{ClientEra, Mcp};
use crate::stage::now;
use crate::stage::process::eventually;

/// Returns a well-behaved client's answers to these requests.
fn responses(requests: &Map<String, Value>) -> Value {
    requests.iter().map(|(key, request)| (key.clone(), usual(request))).collect::<Map<String, Value>>().into()
}

#[test]
fn a_modern_client_goes_on_with_a_call_of_a_legacy_server() {
    for way in AskingTransport::ALL {
        let stage = AskingGateway::new(way, "roots = \"client\"");
        let mut client = stage.client(ClientEra::Modern, everything());
        let arguments = way.asks("t", json!([[form("Which?"), sample()], [roots()]]));
        let (first, state) = asked(&client.call("fx__inquire", arguments.clone()));
        assert_eq!(first.len(), 2, "{way:?}: both at once: {first:?}");
        let question = first.values().find(|request| request["method"] == "elicitation/create").unwrap();
        assert_eq!(
            (&question["params"]["message"], &question["params"]["mode"]),
            (&json!("[fx] Which? [fx]"), &json!("form"))
        );
        let (second, state) = asked(&client.request("tools/call", going_on(&arguments, responses(&first), &state)));
        assert_eq!(second.len(), 1, "{way:?}: {second:?}");
        let answer = client.request("tools/call", going_on(&arguments, responses(&second), &state));
        assert_eq!(answer.result()["resultType"], "complete", "{way:?}: {}", answer.raw);
        let results: Vec<Value> = answered(&answer.message).iter().map(|answer| answer["result"].clone()).collect();
        assert_eq!(results, [accept("me"), sampled(), has_roots()], "{way:?}");
        let sent = (1..=3).map(|n| stage.answers(&format!("t/{n}")).len()).collect::<Vec<_>>();
        assert_eq!((stage.calls("t"), sent), (1, vec![1, 1, 1]), "{way:?}");
        assert_eq!(stage.log.count("notifications/cancelled"), 0, "{way:?}");
    }
}

#[test]
fn a_retry_that_is_sent_again_gets_the_same_and_nothing_goes_upstream_twice() {
    for way in AskingTransport::ALL {
        let stage = AskingGateway::new(way, "");
        let mut client = stage.client(ClientEra::Modern, everything());
        let mut arguments = way.asks("t", json!([[form("Which?")]]));
        arguments["open"] = json!("door");
        let (requests, state) = asked(&client.call("fx__inquire", arguments.clone()));
        let retry = going_on(&arguments, responses(&requests), &state);
        let broken = client.open("tools/call", retry.clone());
        eventually("the answer is there", || stage.answers("t/1").len() == 1);
        drop(broken);
        let mut superseded = client.open("tools/call", retry.clone());
        let mut last = client.open("tools/call", retry.clone());
        // The server waits for another call to open the gate.
        client.call("fx__meet", json!({"name": "door"}));
        let responses = [superseded.response(), last.response()];
        assert!(responses.iter().any(|response| response.get("result").is_some()), "{way:?}: {responses:?}");
        for response in responses {
            if response.get("error").is_some() {
                let text = response["error"]["message"].as_str().unwrap();
                assert!(text.contains("goes on there"), "{way:?}: {response}");
            } else {
                assert_eq!(answered(&response)[0]["result"], accept("me"), "{way:?}");
            }
        }
        let again = client.request("tools/call", retry.clone());
        assert_eq!(answered(&again.message)[0]["result"], accept("me"), "{way:?}: after the end");
        let counts = (stage.calls("t"), stage.answers("t/1").len(), stage.log.count("notifications/cancelled"));
        assert_eq!(counts, (1, 1, 0), "{way:?}: one call, one answer, nothing cancelled");
    }
}

#[test]
fn what_was_not_answered_is_asked_again() {
    for way in AskingTransport::ALL {
        let stage = AskingGateway::new(way, "");
        let mut client = stage.client(ClientEra::Modern, everything());
        let arguments = way.asks("t", json!([[form("Which?"), sample()]]));
        let (mut requests, mut state) = asked(&client.call("fx__inquire", arguments.clone()));
        for (label, responses, left) in [
            ("nothing", json!({}), 2),
            ("what was not asked", json!({"other": accept("me")}), 2),
            ("no object", json!({"elicitation-1": "yes"}), 2),
        ] {
            let answer = client.request("tools/call", going_on(&arguments, responses, &state));
            let (again, next) = asked(&answer);
            assert_eq!(again, requests, "{way:?}: {label}");
            assert_eq!(again.len(), left, "{way:?}: {label}");
            state = next;
        }
        let bare = json!({"name": "fx__inquire", "arguments": arguments, "requestState": state});
        let (_, next) = asked(&client.request("tools/call", bare));
        let key = requests.keys().find(|key| key.starts_with("elicitation")).unwrap().clone();
        let half = json!({key.clone(): accept("me")});
        let (rest, next) = asked(&client.request("tools/call", going_on(&arguments, half, &next)));
        requests.remove(&key);
        assert_eq!(rest, requests, "{way:?}");
        let answer = client.request("tools/call", going_on(&arguments, responses(&rest), &next));
        assert_eq!(answered(&answer.message).len(), 2, "{way:?}: {}", answer.raw);
        assert_eq!((stage.calls("t"), stage.answers("t/1").len(), stage.answers("t/2").len()), (1, 1, 1), "{way:?}");
    }
}

#[test]
fn a_parked_call_is_gone_on_with_by_the_very_same_call_alone() {
    let setup = GatewaySetup::new().second_caller(super::TOKEN).toml("[profiles.other]\nupstreams = [\"fx\"]");
    let way = AskingTransport::Post;
    let stage = AskingGateway::with(setup, way.fake(), "");
    let (gateway, token) = (&stage.gateway, stage.gateway.token());
    let mut client = stage.client(ClientEra::Modern, everything());
    let mut other = Mcp::http_at(gateway.address, token, ClientEra::Modern, "/mcp/other", everything());
    let mut second = stage.second(ClientEra::Modern, everything());
    let arguments = way.asks("t", json!([[form("Which?")]]));
    let (requests, state) = asked(&client.call("fx__inquire", arguments.clone()));
    let other_arguments = way.asks("u", json!([[form("Which?")]]));
    let (_, other_state) = asked(&client.call("fx__inquire", other_arguments.clone()));
    let good = going_on(&arguments, responses(&requests), &state);
    let text = state.as_str().unwrap();
    let with_state = |state: &str| going_on(&arguments, responses(&requests), &json!(state));
    let mut tool = good.clone();
    tool["name"] = json!("fx__echo");
    let flipped = if text.starts_with('A') { 'B' } else { 'A' };
    let attempts = [
        ("junk, like an expired one", client.request("tools/call", with_state("AAAA"))),
        ("forged", client.request("tools/call", with_state(&format!("{flipped}{}", &text[1..])))),
        ("cut", client.request("tools/call", with_state(&text[..text.len() - 4]))),
        ("another tool", client.request("tools/call", tool)),
        ("other arguments", client.request("tools/call", going_on(&other_arguments, responses(&requests), &state))),
        ("swapped states", client.request("tools/call", with_state(other_state.as_str().unwrap()))),
        ("another profile", other.request("tools/call", good.clone())),
        ("another caller", second.request("tools/call", good.clone())),
        ("a legacy client", stage.client(ClientEra::LEGACY, everything()).request("tools/call", good.clone())),
    ];
    for (label, answer) in &attempts {
        assert_eq!(answer.code(), Some(-32602), "{label}: {}", answer.raw);
        assert_eq!(answer.message["error"], attempts[0].1.message["error"], "{label}");
    }
    assert!(stage.answers("t/1").is_empty() && stage.answers("u/1").is_empty(), "nothing went upstream");
    let answer = client.request("tools/call", good);
    assert_eq!(answered(&answer.message)[0]["result"], accept("me"), "the call is as it was: {}", answer.raw);
    assert_eq!((stage.calls("t"), stage.calls("u")), (1, 1));
}

#[test]
fn a_gateway_that_ends_tells_the_server_and_its_successor_does_not_call_again() {
    for way in AskingTransport::HTTP {
        let mut stage = AskingGateway::new(way, "");
        let arguments = way.asks("t", json!([[form("Which?")]]));
        let mut client = stage.client(ClientEra::Modern, everything());
        let (requests, state) = asked(&client.call("fx__inquire", arguments.clone()));
        // An ended call is kept for a client whose response was lost.
        let done = way.asks("u", json!([[form("Which?")]]));
        let (more, other) = asked(&client.call("fx__inquire", done.clone()));
        client.request("tools/call", going_on(&done, responses(&more), &other));
        drop(client);

        let began = now();
        stage.gateway.signal(Signal::TERM);
        assert!(stage.gateway.wait(Duration::from_secs(60)).is_some(), "{way:?}: {}", stage.gateway.story());
        assert!((now() - began) < Duration::from_secs(20), "{way:?}: nobody can come any more");
        assert_eq!(stage.answers("t/1")[0]["result"], json!({"action": "cancel"}), "{way:?}");
        assert_eq!(stage.log.count("notifications/cancelled"), 1, "{way:?}");

        let (world, config) = (stage.gateway.world.clone(), stage.gateway.config.clone());
        stage.gateway = Gateway::start(world, Some(config), &["serve"], &[]);
        stage.gateway.wait_for_tools(&["fx__inquire"]);
        let mut client = stage.client(ClientEra::Modern, everything());
        let answer = client.request("tools/call", going_on(&arguments, responses(&requests), &state));
        assert_eq!(answer.message["error"]["data"]["executed"], "unknown", "{way:?}: {}", answer.raw);
        assert!(answer.raw.contains("start it again"), "{way:?}: {}", answer.raw);
        let ended = client.request("tools/call", going_on(&done, responses(&more), &other));
        assert_eq!(ended.message["error"]["data"]["executed"], "unknown", "{way:?}: {}", ended.raw);
        assert_eq!((stage.calls("t"), stage.calls("u")), (1, 1), "{way:?}: not executed twice");
    }
}

#[test]
fn more_questions_than_a_person_should_get_at_once_are_declined() {
    for way in AskingTransport::ALL {
        let stage = AskingGateway::new(way, "");
        let many: Vec<Value> = (0..12).map(|n| form(&n.to_string())).collect();
        let arguments = way.asks("t", json!([many]));
        let mut client = stage.client(ClientEra::Modern, everything());
        let (mut requests, mut state) = asked(&client.call("fx__inquire", arguments.clone()));
        // No question may be answered before all have arrived, or there would be room for more.
        eventually("some are declined", || stage.got(&[r#""action":"cancel""#]).len() >= 3);
        let answer = loop {
            let answer = client.request("tools/call", going_on(&arguments, responses(&requests), &state));
            if answer.result()["resultType"] == "complete" {
                break answer;
            }
            (requests, state) = asked(&answer);
        };
        let answers = answered(&answer.message);
        let accepted = answers.iter().filter(|answer| answer["result"] == accept("me")).count();
        let cancelled = answers.iter().filter(|answer| answer["result"] == json!({"action": "cancel"})).count();
        assert_eq!(accepted + cancelled, 12, "{way:?}: {answers:?}");
        assert!((1..=9).contains(&accepted), "{way:?}: {accepted} questions");

        let mut client = stage.client(ClientEra::LEGACY, everything());
        let mut call = inquire(&mut client, &way.asks("u", json!([many])));
        let (asked, response) = super::converse(&mut client, &mut call, usual);
        assert_eq!(answered(&response).len(), 12, "{way:?}");
        assert!((1..=12).contains(&asked.len()), "{way:?}: {}", asked.len());
    }
}

#[test]
fn a_callers_share_of_parked_calls_counts_those_that_wait_and_more_are_declined() {
    let way = AskingTransport::Post;
    let stage = AskingGateway::of_two_callers(way, "");
    let mut client = stage.second(ClientEra::Modern, everything());
    let arguments = |n: usize| way.asks(&format!("t{n}"), json!([[form("Which?")]]));
    // As many calls as the quota, one after the other, each to its end.
    for n in 0..20 {
        let (requests, state) = asked(&client.call("fx__inquire", arguments(n)));
        let answer = client.request("tools/call", going_on(&arguments(n), responses(&requests), &state));
        assert_eq!(answered(&answer.message)[0]["result"], accept("me"), "{n}: {}", answer.raw);
    }
    let waiting: Vec<_> = (100..116).map(|n| (n, asked(&client.call("fx__inquire", arguments(n))))).collect();
    let declined = client.call("fx__inquire", arguments(116));
    assert_eq!(answered(&declined.message)[0]["result"], json!({"action": "cancel"}), "{}", declined.raw);
    let mut local = stage.client(ClientEra::Modern, everything());
    asked(&local.call("fx__inquire", arguments(200)));
    for (n, (requests, state)) in waiting {
        let answer = client.request("tools/call", going_on(&arguments(n), responses(&requests), &state));
        assert_eq!(answered(&answer.message)[0]["result"], accept("me"), "{n}: {}", answer.raw);
        assert_eq!(stage.calls(&format!("t{n}")), 1);
    }
}
