//! Tests of sessions and processes of one client's own: their capabilities, their owner, their end.

use std::collections::BTreeSet;
use std::time::Duration;

use serde_json::{Value, json};

use super::{AskingGateway, AskingTransport, converse, everything, form, inquire, question, usual};
use crate::stage::mcp::{ClientEra, Mcp};
use crate::stage::pass;
use crate::stage::process::eventually;
use crate::stage::program::is_alive;

fn pid(client: &mut Mcp) -> u32 {
    client.call("fx__pid", json!({})).text().parse().unwrap()
}

fn sorted(mut values: Vec<Value>) -> Vec<Value> {
    values.sort_by_key(ToString::to_string);
    values
}

#[test]
fn a_server_has_a_session_for_each_legacy_client_and_each_kind_of_modern_caller() {
    for way in [AskingTransport::Post, AskingTransport::Session, AskingTransport::Sse] {
        let stage = AskingGateway::of_two_callers(way, "roots = \"client\"");
        // Sessions that read the lists, for clients with and without input.
        let mut want = vec![json!({}), json!({"elicitation": {"form": {}, "url": {}}, "sampling": {"tools": {}}})];
        eventually("the lists are read", || stage.declared() == want);
        let tools = json!({"elicitation": {"url": {}, "form": {}}, "sampling": {"tools": {}}});
        for (label, era, second, capabilities, declared) in [
            ("legacy, all", ClientEra::LEGACY, false, everything(), Some(everything())),
            ("legacy, all again", ClientEra::LEGACY, false, everything(), Some(everything())),
            ("legacy, nothing", ClientEra::LEGACY, false, json!({"experimental": {}}), Some(json!({}))),
            ("legacy, tools", ClientEra::LEGACY, false, tools.clone(), Some(tools)),
            ("modern, all", ClientEra::Modern, false, everything(), Some(everything())),
            ("modern, all again", ClientEra::Modern, false, everything(), None),
            ("modern, less", ClientEra::Modern, false, json!({"roots": {}}), Some(json!({"roots": {}}))),
            ("another modern caller", ClientEra::Modern, true, everything(), Some(everything())),
        ] {
            let mut client = if second { stage.second(era, capabilities) } else { stage.client(era, capabilities) };
            for _ in 0..2 {
                assert_eq!(client.call("fx__echo", json!({"text": label})).text(), label, "{way:?}");
            }
            want.extend(declared);
            assert_eq!(sorted(stage.declared()), sorted(want.clone()), "{way:?}: {label}");
        }
    }
}

#[test]
fn a_session_ends_with_its_client_and_not_before() {
    let ways = [AskingTransport::Post, AskingTransport::Session];
    let stages: Vec<_> = ways.into_iter().map(|way| (way, AskingGateway::new(way, ""))).collect();
    let deleted = |stage: &AskingGateway| stage.log.lines_with(&["\"http\":\"DELETE\""]).len();
    for (way, stage) in &stages {
        eventually("the session that only reads lists is ended", || deleted(stage) == 1);
        let mut client = stage.client(ClientEra::LEGACY, everything());
        let mut other = stage.client(ClientEra::LEGACY, everything());
        other.call("fx__echo", json!({"text": "x"}));
        let mut call = inquire(&mut client, &way.asks("t", json!([[form("Which?")]])));
        let first = question(&mut call);
        client.respond(&first["id"], super::accept("me"));
        call.response();
        assert_eq!(deleted(stage), 1, "{way:?}");
        assert!(matches!(client.end_session(), 200..=204), "{way:?}");
        eventually("the session is ended at the server", || deleted(stage) == 2);
        assert_eq!(other.call("fx__echo", json!({"text": "still"})).text(), "still", "{way:?}");
        assert_eq!(stage.declared().len(), 4, "{way:?}: no further session");
    }
}

#[test]
fn a_process_for_each_client_ends_with_it() {
    let stage = AskingGateway::new(AskingTransport::Stdio, "instance = \"per-session\"\nroots = \"client\"");
    let mut first = stage.client(ClientEra::LEGACY, everything());
    let mut second = stage.client(ClientEra::LEGACY, json!({"sampling": {}}));
    let (one, other) = (pid(&mut first), pid(&mut second));
    assert_ne!(one, other);
    assert_eq!(pid(&mut first), one);
    let listing = json!({"elicitation": {"form": {}, "url": {}}, "sampling": {"tools": {}}, "roots": {}});
    let want = sorted(vec![json!({}), listing, everything(), json!({"sampling": {}})]);
    eventually("one more process has read the lists", || sorted(stage.declared()) == want);
    let mut call = inquire(&mut first, &AskingTransport::Stdio.asks("t", json!([[form("Which?")]])));
    assert_eq!(converse(&mut first, &mut call, usual).0.len(), 1);
    first.end_session();
    eventually("its process ends", || !is_alive(one));
    assert!(is_alive(other) && pid(&mut second) == other);
}

#[test]
fn a_process_for_each_caller_is_shared_by_its_clients() {
    let stage = AskingGateway::of_two_callers(AskingTransport::Stdio, "instance = \"per-caller\"");
    let mut clients = [
        stage.client(ClientEra::LEGACY, everything()),
        stage.client(ClientEra::LEGACY, everything()),
        stage.client(ClientEra::Modern, everything()),
        stage.second(ClientEra::LEGACY, everything()),
        stage.client(ClientEra::LEGACY, json!({})),
    ];
    let pids: Vec<u32> = clients.iter_mut().map(pid).collect();
    assert!(pids[0] == pids[1] && pids[1] == pids[2], "one caller: {pids:?}");
    assert!(pids[3] != pids[0], "another caller: {pids:?}");
    assert!(pids[4] != pids[0] && pids[4] != pids[3], "a client that can do less: {pids:?}");
    let mut call = inquire(&mut clients[3], &AskingTransport::Stdio.asks("t", json!([[form("Which?")]])));
    assert_eq!(converse(&mut clients[3], &mut call, usual).0.len(), 1);
}

#[test]
fn a_session_that_everybody_shares_offers_nothing() {
    for way in AskingTransport::HTTP {
        let stage = AskingGateway::new(way, "instance = \"shared\"");
        for era in ClientEra::BOTH {
            let mut client = stage.client(era, everything());
            let answer = client.call("fx__inquire", way.asks(&format!("{era:?}"), json!([[form("Which?")]])));
            assert_eq!(super::answered(&answer.message)[0]["error"]["code"], -32601, "{way:?} {era:?}");
        }
        assert_eq!(stage.declared(), [json!({})], "{way:?}");
    }
}

#[test]
fn a_server_that_forgets_every_session_is_asked_for_its_subscriptions_once_in_each() {
    let setup = crate::stage::harness::GatewaySetup::new();
    let greeting = r#"{"jsonrpc":"2.0","id":${ID},"result":{"protocolVersion":"2025-11-25","serverInfo":{"name":"x","version":"1"},"capabilities":{"tools":{},"resources":{"subscribe":true}}}}"#;
    let done = r#"{"jsonrpc":"2.0","id":${ID},"result":{}}"#;
    let script = json!({"initialize": [greeting], "resources/subscribe": [done]});
    let script = setup.world.write("work/script.json", &script.to_string());
    let fake =
        AskingTransport::Session.fake().with("--script", script.to_str().unwrap()).behaving("drop-session-after=4");
    let stage = AskingGateway::with(setup, fake, "");
    let mut client = stage.client(ClientEra::LEGACY, everything());
    for n in 1..=6 {
        // Confirmed or not: the session may be lost in the middle of the request.
        client.request("resources/subscribe", json!({"uri": format!("fx://doc/{n}")}));
    }
    let rested = || {
        let grows = |_: &i32| {
            let before = stage.declared().len();
            pass(Duration::from_millis(300));
            stage.declared().len() > before
        };
        assert!((0..20).take_while(grows).count() < 20, "sessions are opened though nobody calls");
        stage.declared().len()
    };
    let opens = |time| {
        let before = stage.declared().len();
        pass(time);
        stage.declared().len() - before
    };
    let idle = opens(Duration::from_secs(6));
    assert!(idle <= 24, "{idle} sessions in six seconds in which nobody calls");
    let before = rested();
    for n in 0..10 {
        client.call("fx__echo", json!({"text": n.to_string()}));
    }
    // The main session and the client's; a session for a call's second attempt may be used up as
    // well.
    let opened = rested() - before;
    assert!(opened <= 30, "{opened} sessions for ten calls");
}

#[test]
fn a_session_that_the_server_forgot_is_opened_once_with_the_same_capabilities() {
    for way in AskingTransport::HTTP {
        let stage = AskingGateway::with(
            crate::stage::harness::GatewaySetup::new(),
            way.fake().behaving("drop-session-after=8"),
            "",
        );
        let mut client = stage.client(ClientEra::LEGACY, everything());
        // The notification after the handshake counts too.
        for n in 0..7 {
            client.call("fx__echo", json!({"text": n.to_string()}));
        }
        let before = stage.declared();
        let again = json!({"name": "fx__echo", "arguments": {"text": "again"}});
        let calls: Vec<_> = (0..6).map(|_| client.open("tools/call", again.clone())).collect();
        for mut call in calls {
            assert_eq!(call.response()["result"]["content"][0]["text"], "again");
        }
        let (declared, offers) = (stage.declared(), json!({"elicitation": {}, "sampling": {}}));
        assert_eq!(declared[before.len()..], [offers], "{way:?}: opened once");
        eventually("the main session, the lost one and the new one have a stream", || {
            let streams = stage.got(&["\"http\":\"GET\""]);
            streams.iter().map(|get| get["session"].to_string()).collect::<BTreeSet<_>>().len() == 3
        });
        let mut call = inquire(&mut client, &way.asks("t", json!([[form("Which?")]])));
        let (asked, _) = converse(&mut client, &mut call, usual);
        assert_eq!(asked.len(), 1, "{way:?}");
    }
}
