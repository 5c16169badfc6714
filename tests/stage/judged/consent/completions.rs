//! Tests that completions of an item which needs an approval reveal nothing before it has a lasting
//! grant.

use super::operator::{headend, pending};
use super::*;

fn of(reference: &Value) -> Value {
    json!({"ref": reference, "argument": {"name": "a", "value": "b"}})
}

/// Returns a call of each item, and its completion.
fn items() -> [(&'static str, Value, Value); 2] {
    [
        (
            "prompts/get",
            json!({"name": "fx__p", "arguments": {"a": "b"}}),
            of(&json!({"type": "ref/prompt", "name": "fx__p"})),
        ),
        ("resources/read", json!({"uri": "fx://doc/77"}), of(&json!({"type": "ref/resource", "uri": "fx://doc/{id}"}))),
    ]
}

fn values(client: &mut Mcp, params: &Value) -> Vec<Value> {
    let answer = client.request("completion/complete", params.clone());
    let result = answer.result();
    assert_eq!(result.get("resultType").is_some(), result["resultType"] == "complete", "{}", answer.raw);
    result["completion"]["values"].as_array().unwrap_or_else(|| panic!("{}", answer.raw)).clone()
}

/// Makes the call, which is refused, and approves it on the command line.
fn approve(stage: &ConsentGateway, client: &mut Mcp, method: &str, params: &Value, how: &[&str]) {
    assert_eq!(client.request(method, params.clone()).code(), Some(1003));
    headend(stage, &[&["approve", &pending(stage)[0]], how].concat());
}

#[test]
fn completions_wait_for_a_consent_that_lasts() {
    for era in ClientEra::BOTH {
        let stage = ConsentGateway::new();
        let mut client = stage.client(era, json!({}));
        let mut other = stage.second(era, json!({}));
        for (n, (method, call, completion)) in items().into_iter().enumerate() {
            assert!(values(&mut client, &completion).is_empty(), "{era:?}, {method}: nobody has agreed");
            approve(&stage, &mut client, method, &call, &[]);
            assert!(values(&mut client, &completion).is_empty(), "{era:?}, {method}: once is not for a time");
            client.request(method, call.clone()).result();
            assert!(values(&mut client, &completion).is_empty(), "{era:?}, {method}: used up");
            assert_eq!(stage.log.count("completion/complete"), n, "{era:?}, {method}: the server heard nothing");
            approve(&stage, &mut client, method, &call, &["--for", "1h"]);
            assert_eq!(values(&mut client, &completion), ["alpha", "beta"], "{era:?}, {method}");
            assert!(values(&mut other, &completion).is_empty(), "{era:?}, {method}: another caller");
        }
        headend(&stage, &["grants", "revoke", "--all"]);
        for (method, _, completion) in items() {
            assert!(values(&mut client, &completion).is_empty(), "{era:?}, {method}: revoked");
        }
        let empty = |records: &[Value]| {
            records.iter().filter(|record| record["kind"] == "completion" && record["result"] == "ask").count()
        };
        eventually("each is recorded", || empty(&stage.audit("decision")) == 10);
    }
}

#[test]
fn a_session_is_a_time_and_completions_pass_where_the_operator_says_so() {
    let stage = ConsentGateway::new();
    let mut client = stage.client(ClientEra::Modern, forms());
    for (method, call, completion) in items() {
        let (_, state) = asked(&client.request(method, call.clone()));
        let mut again = call.clone();
        again["requestState"] = state;
        again["inputResponses"] = json!({"gw.consent": allow("session")});
        client.request(method, again).result();
        assert_eq!(values(&mut client, &completion), ["alpha", "beta"], "{method}");
    }
    let setup = GatewaySetup::new().policy("default = \"ask\"");
    let command = Fake::stdio("legacy").command();
    let tables = format!("[upstreams.fx]\ncommand = {command}\ncompletions = \"pass\"");
    let gateway = setup.toml(&tables).start();
    gateway.wait_for_tools(&["fx__echo"]);
    for era in ClientEra::BOTH {
        for (method, _, completion) in items() {
            assert_eq!(values(&mut gateway.client(era), &completion), ["alpha", "beta"], "{era:?}, {method}");
        }
    }
}

#[test]
fn a_rule_that_asks_about_one_prompt_leaves_the_others_alone_and_a_denial_hides() {
    let rules = "[[policy.rules]]\nid = \"p-waits\"\neffect = \"ask\"\nprompts = [\"fx__p\"]\n\
                 [[policy.rules]]\nid = \"no-docs\"\neffect = \"deny\"\nresources = [\"off+*\"]";
    let gateway = GatewaySetup::new()
        .fake("fx", &Fake::stdio("legacy"))
        .fake("open", &Fake::stdio("legacy"))
        .fake("off", &Fake::stdio("legacy"))
        .toml(rules)
        .start();
    gateway.wait_for_tools(&["fx__echo", "open__echo", "off__echo"]);
    let mut client = gateway.modern();
    assert!(values(&mut client, &of(&json!({"type": "ref/prompt", "name": "fx__p"}))).is_empty());
    assert_eq!(values(&mut client, &of(&json!({"type": "ref/prompt", "name": "open__p"}))), ["alpha", "beta"]);
    let hidden = of(&json!({"type": "ref/resource", "uri": "off+fx://doc/{id}"}));
    assert_eq!(client.request("completion/complete", hidden).code(), Some(-32602));
}
