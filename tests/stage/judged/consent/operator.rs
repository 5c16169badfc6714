//! Tests of clients that cannot be asked: the call is refused with the way to approve it, and a
//! later call finds the grant.

use super::*;

/// Returns the ids of the open approvals.
pub(crate) fn pending(stage: &ConsentGateway) -> Vec<String> {
    let output = stage.gateway.world.run(&["approvals", "list", "--json"]);
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let listed: Value = serde_json::from_slice(&output.stdout).unwrap();
    let approvals = listed["approvals"].as_array().cloned().unwrap_or_default();
    approvals.iter().map(|approval| approval["id"].as_str().unwrap().to_owned()).collect()
}

/// Asserts that a refusal's text tells a model to stop, and names no command or address.
pub(crate) fn for_a_model(text: &str) {
    assert!(text.contains("Stop here and tell the user") && text.contains("Do not work around this"), "{text}");
    for forbidden in ["headend a", "headend d", "http", "`", "/approvals"] {
        assert!(!text.contains(forbidden), "{forbidden}: {text}");
    }
}

pub(crate) fn headend(stage: &ConsentGateway, args: &[&str]) -> String {
    let output = stage.gateway.world.run(args);
    assert!(output.status.success(), "{args:?}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8_lossy(&output.stdout).into_owned()
}

#[test]
fn a_client_that_cannot_be_asked_is_told_how_to_get_an_approval() {
    let stage = ConsentGateway::new();
    for era in ClientEra::BOTH {
        let mut client = stage.client(era, json!({}));
        let arguments = json!({"text": format!("{era:?}")});
        let refused = client.call("fx__echo", arguments.clone());
        assert_eq!(reason(&refused), "awaiting_approval", "{era:?}");
        let facts = &refused.result()["_meta"]["headend/refusal"];
        let id = facts["approval"]["id"].as_str().unwrap().to_owned();
        assert_eq!((&facts["executed"], &facts["retryable"]), (&json!("no"), &json!(true)), "{era:?}");
        assert_eq!(facts["approval"]["command"], format!("headend approve {id}"), "{era:?}");
        for_a_model(&refused.text());
        assert_eq!(pending(&stage), [id.as_str()], "{era:?}");
        let before = stage.called().len();

        // Repeating the call opens no second approval.
        let again = client.call("fx__echo", arguments.clone());
        assert_eq!(again.result()["_meta"]["headend/refusal"]["approval"]["id"], id.as_str(), "{era:?}");

        headend(&stage, &["approve", &id]);
        assert_eq!(stage.called().len(), before, "{era:?}: a late approval runs nothing by itself");
        assert_eq!(client.call("fx__echo", arguments.clone()).text(), format!("{era:?}"));
        assert_eq!(stage.called().len(), before + 1, "{era:?}");
        let spent = client.call("fx__echo", arguments.clone());
        assert_eq!(reason(&spent), "awaiting_approval", "{era:?}: once is once");
        headend(&stage, &["deny", &pending(&stage)[0]]);
        assert_eq!(reason(&client.call("fx__echo", arguments)), "denied", "{era:?}");
    }
}

#[test]
fn what_may_destroy_is_allowed_by_the_operator_alone() {
    let stage = ConsentGateway::new();
    let mut client = stage.client(ClientEra::Modern, forms());
    let refused = client.call("fx__write", json!({"path": "a"}));
    assert_eq!(reason(&refused), "awaiting_approval");
    headend(&stage, &["approve", &pending(&stage)[0], "--for", "1h"]);
    for path in ["a", "b"] {
        assert_eq!(client.call("fx__write", json!({"path": path})).text(), "write");
    }
    let grants = headend(&stage, &["grants"]);
    assert!(grants.contains("fx__write"), "{grants}");
    headend(&stage, &["grants", "revoke", "--all"]);
    assert_eq!(reason(&client.call("fx__write", json!({"path": "a"}))), "awaiting_approval");
    assert_eq!(stage.called().len(), 2);
}

#[test]
fn a_lasting_approval_outlives_a_restart_and_a_used_one_does_not() {
    let mut stage = ConsentGateway::new();
    let mut client = stage.client(ClientEra::Modern, json!({}));
    client.call("fx__env", json!({}));
    headend(&stage, &["approve", &pending(&stage)[0], "--for", "always"]);
    client.call("fx__echo", json!({"text": "once"}));
    headend(&stage, &["approve", &pending(&stage)[0]]);
    assert_eq!(client.call("fx__echo", json!({"text": "once"})).text(), "once");
    let world = stage.gateway.world.clone();
    let config = stage.gateway.config.clone();
    let environment = [("SECOND_TOKEN".to_owned(), TOKEN.to_owned())];
    drop(stage.gateway);
    stage.gateway = Gateway::start(world, Some(config), &["serve"], &environment);
    stage.gateway.wait_for_tools(&["fx__echo"]);
    let mut client = stage.client(ClientEra::Modern, json!({}));
    assert!(!client.call("fx__env", json!({})).is_error(), "allowed until it changes");
    assert_eq!(reason(&client.call("fx__echo", json!({"text": "once"}))), "awaiting_approval");
}

/// Returns an ask rule about `fx__echo` with these further lines.
fn asks_about_echo(more: &str) -> String {
    format!("[[policy.rules]]\nid = \"echo-asks\"\neffect = \"ask\"\ntools = [\"fx__echo\"]\n{more}")
}

fn gateway_with(upstream: &str, tables: &str) -> Gateway {
    let place = format!("[upstreams.fx]\ncommand = {}\n{upstream}", Fake::stdio("legacy").command());
    let setup = GatewaySetup::new().policy("default = \"allow\"").toml(&format!("{place}\n{tables}"));
    let gateway = setup.start();
    gateway.wait_for_tools(&["fx__echo"]);
    gateway
}

#[test]
fn an_approved_call_that_finds_the_gateway_full_uses_no_limit_up() {
    let limit = "[[policy.limits]]\nid = \"few\"\ntools = [\"fx__echo\"]\nper-day = 1\nrate = \"1/h\"";
    let full = "[server.limits]\nmax-in-flight = 1\nqueue = 0";
    let gateway = gateway_with("", &format!("{full}\n{}\n{limit}", asks_about_echo("")));
    let mut client = Mcp::http_at(gateway.address, gateway.token(), ClientEra::LEGACY, "/mcp", forms());
    let mut asked = client.open("tools/call", json!({"name": "fx__echo", "arguments": {"text": "x"}}));
    let question = asked.next().unwrap();
    let mut other = gateway.legacy();
    let mut slow = other.open("tools/call", json!({"name": "fx__sleep", "arguments": {"ms": 4000}}));
    eventually("the slow call has the one place", || {
        gateway.scrape().contains("headend_calls_in_flight{upstream=\"fx\"} 1")
    });
    client.respond(&question["id"], allow("session"));
    let refused = asked.response();
    assert_eq!(refused["result"]["_meta"]["headend/refusal"]["reason"], "busy", "{refused}");
    slow.response();
    let answer = client.call("fx__echo", json!({"text": "x"}));
    assert_eq!(answer.text(), "x", "the refused call took nothing from the limit: {}", answer.raw);
    assert_eq!(reason(&client.call("fx__echo", json!({"text": "x"}))), "limited");
}

#[test]
fn an_approval_that_no_longer_suffices_when_the_call_is_sent_does_not_count() {
    let gateway = gateway_with("max-in-flight = 1", &asks_about_echo(""));
    let mut client = Mcp::http_at(gateway.address, gateway.token(), ClientEra::LEGACY, "/mcp", forms());
    let call = |client: &mut Mcp| client.open("tools/call", json!({"name": "fx__echo", "arguments": {"text": "x"}}));
    let mut first = call(&mut client);
    let question = first.next().unwrap();
    client.respond(&question["id"], allow("session"));
    assert_eq!(first.response()["result"]["content"][0]["text"], "x");
    let before = std::fs::read_to_string(&gateway.config).unwrap();
    let stricter = before.replace("id = \"echo-asks\"", "id = \"echo-asks\"\nmin-evidence = \"L3\"");
    let renamed = before.replace("id = \"echo-asks\"", "id = \"another\"");
    for (label, text, allowed) in
        [("more evidence", &stricter, false), ("another rule", &renamed, false), ("as it was", &before, true)]
    {
        gateway.reload(&before);
        let mut slow = client.open("tools/call", json!({"name": "fx__sleep", "arguments": {"ms": 3000}}));
        eventually("the slow call has the one slot", || {
            gateway.scrape().contains("headend_calls_in_flight{upstream=\"fx\"} 1")
        });
        let mut waiting = call(&mut client);
        pass(Duration::from_millis(200));
        let reloaded = gateway.reload(text);
        assert!(reloaded.status.success(), "{label}: {}", String::from_utf8_lossy(&reloaded.stderr));
        let response = waiting.response();
        let denied = response["result"]["_meta"]["headend/refusal"]["reason"] == "denied";
        assert_eq!(!denied, allowed, "{label}: {response}");
        slow.response();
    }
}

#[test]
fn prompts_and_resources_are_asked_about_as_well() {
    let stage = ConsentGateway::new();
    let mut client = stage.client(ClientEra::Modern, json!({}));
    for (method, params) in [
        ("prompts/get", json!({"name": "fx__p", "arguments": {"a": "x"}})),
        ("resources/read", json!({"uri": "fx://doc/1"})),
    ] {
        let refused = client.request(method, params.clone());
        assert_eq!(refused.code(), Some(1003), "{method}: {}", refused.raw);
        let approval = &refused.message["error"]["data"]["approval"];
        let id = approval["id"].as_str().unwrap().to_owned();
        assert_eq!(approval["command"], format!("headend approve {id}"), "{method}");
        for_a_model(refused.message["error"]["message"].as_str().unwrap());
        headend(&stage, &["approve", &id]);
        let answer = client.request(method, params);
        assert!(answer.message.get("result").is_some(), "{method}: {}", answer.raw);
    }
}

#[test]
fn only_so_many_questions_are_open_and_the_refusal_says_what_was_counted() {
    let setup = GatewaySetup::new().policy("default = \"ask\"\n[policy.consent]\nmax-open = 3");
    let gateway = setup.fake("fx", &Fake::stdio("legacy")).start();
    gateway.wait_for_tools(&["fx__echo"]);
    let mut client = Mcp::http_at(gateway.address, gateway.token(), ClientEra::Modern, "/mcp", json!({}));
    let mut id = |tool: &str, arguments: Value| {
        let refused = client.call(tool, arguments);
        assert_eq!(reason(&refused), "awaiting_approval");
        let refusal = &refused.result()["_meta"]["headend/refusal"];
        (refusal["approval"]["id"].as_str().map(str::to_owned), refusal.clone())
    };
    let (first, _) = id("fx__echo", json!({}));
    let (second, _) = id("fx__echo", json!({"text": "other"}));
    let (third, _) = id("fx__env", json!({}));
    assert!(first.is_some() && second.is_some() && third.is_some());
    assert_ne!(first, second, "each action has its own, also about one tool");
    let (none, refusal) = id("fx__fail", json!({}));
    assert_eq!(none, None, "{refusal}");
    assert_eq!(refusal["counted"], json!({"open": 3, "max-open": 3}), "{refusal}");
    let wait = &refusal["retry-after-ms"];
    assert!(wait.as_u64().is_some_and(|ms| ms > 0 && ms <= 60_000), "{refusal}");
    assert_eq!(id("fx__echo", json!({})).0, first, "the same call made again opens nothing");
}
