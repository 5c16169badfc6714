//! Tests of hosts without a person: their programs answer our questions at once, as `claude -p` and
//! `codex exec` do.

use super::hold::LONG;
use super::*;
use crate::stage::harness::TestHome;
use crate::stage::old_client::OldClient;
use crate::stage::process::said;
use crate::stage::steps::abuse::echoed;

const PATIENCE: Duration = Duration::from_secs(60);

fn echo(text: &str) -> Value {
    json!({"name": "fx__echo", "arguments": {"text": text}})
}

fn answer(action: &str) -> Value {
    json!({"action": action})
}

/// Runs `attempt` and asserts that it is as quick as a program.
fn at_once<T>(text: &str, attempt: impl FnOnce(&str) -> T) -> (String, T) {
    let begun = now();
    let got = attempt(text);
    assert!(now() - begun < Duration::from_millis(100), "{text}: {:?}", now() - begun);
    (text.to_owned(), got)
}

/// Approves the open call with that argument.
fn approve_call(world: &TestHome, argument: &str) {
    let listed: Value = serde_json::from_slice(&world.run(&["approvals", "--json"]).stdout).unwrap();
    let is_it = |row: &&Value| row["message"].as_str().unwrap().contains(&format!("{argument:?}"));
    let row = listed["approvals"].as_array().unwrap().iter().find(is_it).unwrap();
    let approved = world.run(&["approve", row["id"].as_str().unwrap()]);
    assert!(approved.status.success(), "{}", said(&approved));
}

#[test]
fn a_legacy_client_that_answers_at_once_is_held_and_so_are_its_later_calls_beside_their_forms() {
    let stage = ConsentGateway::with(LONG, "");
    for action in ["decline", "cancel"] {
        let mut client = stage.client(ClientEra::LEGACY, forms());
        let (text, mut call) = at_once(action, |text| {
            let mut call = client.open("tools/call", echo(text));
            let question = call.next().unwrap();
            client.respond(&question["id"], answer(action));
            call
        });
        assert!(call.next_within(Duration::from_millis(300)).is_err(), "{action}: it is held");
        approve_call(&stage.gateway.world, &text);
        assert_eq!(call.response()["result"]["content"][0]["text"], text, "{action}");
        for (how, response) in [("the operator", answer("decline")), ("the client", allow("once"))] {
            let text = format!("{action} later, {how}");
            let mut later = client.open("tools/call", echo(&text));
            let question = later.next().unwrap();
            assert!(question["params"]["requestedSchema"]["properties"]["decision"].is_object(), "{question}");
            client.respond(&question["id"], response);
            if how == "the operator" {
                assert!(later.next_within(Duration::from_millis(300)).is_err(), "{text}: it is held");
                approve_call(&stage.gateway.world, &text);
            }
            assert_eq!(later.response()["result"]["content"][0]["text"], text);
        }
    }
    assert_eq!(stage.audit("answer").iter().filter(|answer| answer["result"] != "granted").count(), 0);
}

#[test]
fn a_modern_client_that_comes_back_at_once_is_held_for_the_console_and_so_are_its_later_calls() {
    // With no time to hold them, calls that would be held are refused at once.
    let stage = ConsentGateway::with("hold = \"0s\"", "[console]\nlisten = \"127.0.0.1:0\"");
    let pages = json!({"elicitation": {"url": {}}});
    for (capabilities, tool, argument) in [(forms(), "fx__echo", "text"), (pages, "fx__write", "path")] {
        for action in ["decline", "cancel"] {
            let mut client = stage.client(ClientEra::Modern, capabilities.clone());
            let (text, refused) = at_once(&format!("{tool} {action}"), |text| {
                let arguments = json!({argument: text});
                let (_, state) = asked(&client.call(tool, arguments.clone()));
                go_on(&mut client, tool, &arguments, &state, &answer(action))
            });
            assert_eq!(reason(&refused), "awaiting_approval", "{text}: {}", refused.raw);
            let words = format!("{action} later");
            let later = client.call(tool, json!({argument: words.as_str()}));
            assert_eq!(reason(&later), "awaiting_approval", "{text}: {}", later.raw);
            approve_call(&stage.gateway.world, &words);
            assert!(
                !client.call(tool, json!({argument: words.as_str()})).is_error(),
                "{text}: the approval stayed open"
            );
            // Another connection is another host.
            asked(&stage.client(ClientEra::Modern, capabilities.clone()).call(tool, json!({argument: "other"})));
        }
    }
    let slow = json!({"text": "slow"});
    let mut client = stage.client(ClientEra::Modern, forms());
    let (_, state) = asked(&client.call("fx__echo", slow.clone()));
    read_form();
    assert_eq!(reason(&go_on(&mut client, "fx__echo", &slow, &state, &answer("cancel"))), "denied");
    asked(&client.call("fx__echo", slow));
}

#[test]
fn over_pipes_calls_of_a_host_without_a_person_are_held() {
    let policy = "default = \"ask\"\n[policy.consent]\nper-minute = 100\nhold = \"0s\"";
    let gateway = GatewaySetup::new().policy(policy).fake("fx", &Fake::stdio("legacy")).start();
    gateway.wait_for_tools(&["fx__echo"]);
    for era in ClientEra::BOTH {
        let pipe = gateway.pipe();
        let mut client = Mcp::stdio_with(pipe, era, forms());
        eventually("echo is listed", || client.tool_names().iter().any(|name| name == "fx__echo"));
        let (text, refused) = at_once(&format!("{era:?}"), |text| {
            if era == ClientEra::Modern {
                let arguments = json!({"text": text});
                let (_, state) = asked(&client.call("fx__echo", arguments.clone()));
                return go_on(&mut client, "fx__echo", &arguments, &state, &answer("cancel"));
            }
            let call =
                json!({"jsonrpc": "2.0", "id": text, "method": "tools/call", "params": client.dress(echo(text))});
            client.pipe().send(call.to_string().as_bytes());
            let question: Value = serde_json::from_str(&client.pipe().line(PATIENCE).unwrap()).unwrap();
            client.respond(&question["id"], answer("decline"));
            client.pipe().answer(&json!(text), PATIENCE)
        });
        assert_eq!(reason(&refused), "awaiting_approval", "{text}: {}", refused.raw);
        let words = format!("{era:?} later");
        let later = client.call("fx__echo", json!({"text": words.as_str()}));
        assert_eq!(reason(&later), "awaiting_approval", "{text}: {}", later.raw);
        approve_call(&gateway.world, &words);
        assert!(echoed(&client.call("fx__echo", json!({"text": words.as_str()})), &words), "{text}");
    }
}

#[test]
fn over_the_old_transport_calls_of_a_host_without_a_person_are_held() {
    let stage = ConsentGateway::of(GatewaySetup::new().server("legacy-sse = true"), "hold = \"0s\"", "");
    let mut client = OldClient::connect(&stage.gateway, stage.gateway.token(), "/sse");
    client.request("initialize", json!({"protocolVersion": "2025-06-18", "capabilities": {"elicitation": {}}}));
    let (text, response) = at_once("old", |text| {
        client.send("tools/call", echo(text));
        let question = client.message();
        client.post(&json!({"jsonrpc": "2.0", "id": question["id"], "result": answer("decline")}));
        client.message()
    });
    assert_eq!(response["result"]["_meta"]["headend/refusal"]["reason"], "awaiting_approval", "{text}: {response}");
    approve_call(&stage.gateway.world, &text);
    client.send("tools/call", echo(&text));
    assert_eq!(client.message()["result"]["content"][0]["text"], text);
}
