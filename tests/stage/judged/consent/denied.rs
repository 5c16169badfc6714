//! Tests of denials that are listed and taken back, blocks that are ended, and approvals given
//! after the agent was told to stop.

use super::hold::LONG;
use super::operator::headend;
use super::*;
use crate::stage::browser::Browser;
use crate::stage::steps::abuse::{echoed, waits_for};

#[test]
fn a_denial_is_listed_and_commands_take_it_back_or_allow_the_call_once() {
    let stage = ConsentGateway::with("hold = \"0s\"", "");
    let mut client = stage.client(ClientEra::Modern, json!({}));
    let one = json!({"text": "one"});
    let id = waits_for(&client.call("fx__echo", one.clone()));
    let told = headend(&stage, &["deny", &id]);
    assert!(told.contains("stays refused for 10 minutes"), "{told}");
    assert_eq!(reason(&client.call("fx__echo", one.clone())), "denied");
    let listed = headend(&stage, &["grants"]);
    assert!(listed.contains("denied until") && listed.contains(&id[..8]), "{listed}");
    let told = headend(&stage, &["approve", &id]);
    for part in ["it was denied by uid:", "granted:", "Tell the agent to try again."] {
        assert!(told.contains(part), "{part}: {told}");
    }
    assert!(echoed(&client.call("fx__echo", one.clone()), "one"));
    let again = waits_for(&client.call("fx__echo", one.clone()));
    headend(&stage, &["deny", &again]);
    let told = headend(&stage, &["grants", "revoke", &again]);
    assert!(told.contains("taken back"), "{told}");
    waits_for(&client.call("fx__echo", one));
    let revoked = stage.audit("revoke");
    assert!(revoked.iter().any(|record| record["result"] == "unblocked" && record["by"].is_string()), "{revoked:?}");
}

#[test]
fn the_console_lists_a_denial_and_undo_takes_it_back() {
    let stage = ConsentGateway::with("hold = \"0s\"", "[console]\nlisten = \"127.0.0.1:0\"");
    let mut client = stage.client(ClientEra::Modern, json!({}));
    let one = json!({"text": "one"});
    let id = waits_for(&client.call("fx__echo", one.clone()));
    headend(&stage, &["deny", &id]);
    let mut browser = Browser::signed_in(&stage.gateway);
    let page = browser.get("/").text();
    assert!(page.contains("Undo") && page.contains("fx__echo"), "{page}");
    let (_, csrf) = page.split_once("name=\"csrf\" value=\"").unwrap();
    let csrf = csrf.split('"').next().unwrap().to_owned();
    assert_eq!(browser.post("/blocks", &format!("csrf={csrf}&id={id}")).head.status, 303);
    assert!(!browser.get("/").text().contains("Undo"));
    waits_for(&client.call("fx__echo", one));
}

#[test]
fn a_yes_to_a_call_that_still_waits_asks_for_nothing_more() {
    let stage = ConsentGateway::with(LONG, "");
    let mut client = stage.client(ClientEra::Modern, json!({}));
    let mut call = client.open("tools/call", json!({"name": "fx__echo", "arguments": {"text": "held"}}));
    eventually("the call is held", || !operator::pending(&stage).is_empty());
    let id = operator::pending(&stage).remove(0);
    let shown = headend(&stage, &["approvals", "show", &id]);
    assert!(shown.contains("agent:     waits, "), "{shown}");
    let told = headend(&stage, &["approve", &id]);
    assert!(!told.contains("try again"), "{told}");
    assert_eq!(call.response()["result"]["content"][0]["text"], "held");
}

#[test]
fn a_block_is_listed_with_the_command_that_ends_it_and_is_of_one_client_alone() {
    let stage = ConsentGateway::with("hold = \"0s\"\napproval-life = \"1s\"", "");
    let mut client = stage.client(ClientEra::Modern, json!({}));
    for text in ["a", "b", "c"] {
        waits_for(&client.call("fx__echo", json!({"text": text})));
        eventually("its time is over", || operator::pending(&stage).is_empty());
    }
    let refused = |client: &mut Mcp| reason(&client.call("fx__echo", json!({"text": "d"})));
    eventually("the item is blocked", || refused(&mut client) == "denied");
    let mut other = Mcp::http_named(stage.gateway.address, stage.gateway.token(), ClientEra::Modern, "another");
    assert_eq!(refused(&mut other), "awaiting_approval", "another client of that caller");
    let listed: Value = serde_json::from_str(&headend(&stage, &["approvals", "--json"])).unwrap();
    let id = listed["blocks"][0]["id"].as_str().unwrap();
    let told = headend(&stage, &["approvals"]);
    assert!(told.contains("headend approvals unblock"), "{told}");
    headend(&stage, &["approvals", "unblock", id]);
    assert_eq!(refused(&mut client), "awaiting_approval");
}
