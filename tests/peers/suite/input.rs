//! Input requests of a server in the middle of a call.

use serde_json::{Value, json};

use crate::harness::{Gateway, GatewaySetup};
use crate::mcp::{ClientEra, Mcp, McpAnswer};
use crate::upstream::{Listening, example};

const TOKEN: &str = "token-of-the-second-caller-0123456789";

/// Starts a gateway with two callers in front of the reference server of the modern era.
fn gateway() -> (Gateway, Listening) {
    let arguments = ["http", "--listen", "127.0.0.1:0", "--era", "modern"].map(str::to_owned);
    let server = Listening::spawn(&example("conformance-fixture"), &arguments);
    let gateway = GatewaySetup::new()
        .second_caller(TOKEN)
        .toml(&format!("[upstreams.fx]\nurl = \"{}\"\nroots = \"client\"", server.url))
        .start();
    gateway.wait_for_tools(&["fx__test_input_required_result_elicitation"]);
    (gateway, server)
}

fn client(gateway: &Gateway, token: Option<String>, capabilities: Value) -> Mcp {
    Mcp::http_at(gateway.address, token, ClientEra::Modern, "/mcp", capabilities)
}

fn name(tool: &str) -> String {
    format!("fx__test_input_required_result_{tool}")
}

/// Continues a call: the same request with the responses and the state.
fn go_on(client: &mut Mcp, tool: &str, responses: Value, state: &Value) -> McpAnswer {
    let params = json!({"name": name(tool), "arguments": {}, "inputResponses": responses, "requestState": state});
    client.request("tools/call", params)
}

/// Returns the keys and requests of an answer that asks for input.
fn asked(answer: &McpAnswer) -> (Vec<(String, Value)>, Value) {
    assert_eq!(answer.result()["resultType"], "input_required", "{}", answer.raw);
    let requests = answer.result()["inputRequests"].as_object().cloned().unwrap_or_default();
    (requests.into_iter().collect(), answer.result()["requestState"].clone())
}

fn accept() -> Value {
    json!({"action": "accept", "content": {"name": "Ada", "color": "blue", "user_name": "Ada", "confirmed": true, "confirm": true}})
}

#[test]
fn a_modern_client_gives_a_modern_server_its_input() {
    let (gateway, _server) = gateway();
    let mut client = client(&gateway, gateway.token(), json!({"elicitation": {}, "sampling": {}, "roots": {}}));
    for tool in ["elicitation", "request_state", "sampling", "list_roots", "multiple_inputs", "multi_round"] {
        let mut answer = client.call(&name(tool), json!({}));
        for _ in 0..4 {
            if answer.result()["resultType"] == "complete" {
                break;
            }
            let (requests, state) = asked(&answer);
            let mut responses = serde_json::Map::new();
            for (key, request) in requests {
                let response = match request["method"].as_str().unwrap() {
                    "elicitation/create" => {
                        let message = request["params"]["message"].as_str().unwrap();
                        assert!(message.starts_with("[fx] "), "{tool}: the server is named: {message}");
                        accept()
                    }
                    "sampling/createMessage" => {
                        json!({"role": "assistant", "model": "m", "content": {"type": "text", "text": "42"}})
                    }
                    "roots/list" => json!({"roots": [{"uri": "file:///work"}]}),
                    other => panic!("{tool}: {other}"),
                };
                responses.insert(key, response);
            }
            answer = go_on(&mut client, tool, Value::Object(responses), &state);
        }
        assert_eq!(answer.result()["resultType"], "complete", "{tool}: {}", answer.raw);
        assert!(!answer.is_error(), "{tool}: {}", answer.raw);
    }
}

#[test]
fn a_state_is_good_for_its_caller_and_its_call_alone() {
    let (gateway, _server) = gateway();
    let capabilities = json!({"elicitation": {}});
    let mut first = client(&gateway, gateway.token(), capabilities.clone());
    let mut second = client(&gateway, Some(TOKEN.to_owned()), capabilities);
    let (requests, state) = asked(&first.call(&name("request_state"), json!({})));
    let responses = || json!({ requests[0].0.clone(): accept() });
    let text = state.as_str().unwrap();
    let refused = |answer: &McpAnswer, label: &str| {
        assert_eq!(answer.code(), Some(-32602), "{label}: {}", answer.raw);
        answer.message["error"]["message"].clone()
    };
    let foreign = refused(&go_on(&mut second, "request_state", responses(), &state), "another caller");
    let swapped = refused(&go_on(&mut first, "elicitation", responses(), &state), "another tool");
    let other = if text.starts_with('A') { 'B' } else { 'A' };
    let forged = json!(format!("{other}{}", &text[1..]));
    let forged = refused(&go_on(&mut first, "request_state", responses(), &forged), "forged");
    let bare = json!({"name": name("request_state"), "arguments": {}, "inputResponses": responses()});
    asked(&first.request("tools/call", bare));
    assert!([&swapped, &forged].iter().all(|text| **text == foreign), "one answer for all");
    let good = go_on(&mut first, "request_state", responses(), &state);
    assert_eq!(good.result()["resultType"], "complete", "{}", good.raw);
}

#[test]
fn a_server_hears_of_exactly_what_the_caller_can_do() {
    let (gateway, _server) = gateway();
    for (capabilities, kinds) in [
        (json!({"elicitation": {}}), vec!["elicitation/create"]),
        (json!({"sampling": {}}), vec!["sampling/createMessage"]),
    ] {
        let mut client = client(&gateway, gateway.token(), capabilities.clone());
        let (requests, _) = asked(&client.call(&name("capabilities"), json!({})));
        let methods: Vec<&str> = requests.iter().map(|(_, request)| request["method"].as_str().unwrap()).collect();
        assert_eq!(methods, kinds, "{capabilities}");
    }
}

#[test]
fn a_legacy_client_is_asked_by_requests_for_what_a_modern_server_wants() {
    let (gateway, _server) = gateway();
    let capabilities = json!({"elicitation": {}, "sampling": {}, "roots": {}});
    for tool in ["elicitation", "multiple_inputs", "multi_round"] {
        let mut client =
            Mcp::http_at(gateway.address, gateway.token(), ClientEra::LEGACY, "/mcp", capabilities.clone());
        let mut call = client.open("tools/call", json!({"name": name(tool), "arguments": {}}));
        let mut asked = 0;
        let response = loop {
            let message = call.next().expect("the call is answered");
            let Some(method) = message["method"].as_str() else { break message };
            let result = match method {
                "elicitation/create" => {
                    assert!(message["params"]["message"].as_str().unwrap().starts_with("[fx] "), "{message}");
                    accept()
                }
                "sampling/createMessage" => {
                    json!({"role": "assistant", "model": "m", "content": {"type": "text", "text": "42"}})
                }
                "roots/list" => json!({"roots": [{"uri": "file:///work"}]}),
                other => panic!("{tool}: {other}"),
            };
            asked += 1;
            client.respond(&message["id"], result);
        };
        assert!(asked > 0, "{tool}: {response}");
        assert!(
            response["result"]["content"].is_array() && response["result"]["isError"] != true,
            "{tool}: {response}"
        );
        assert!(response["result"].get("resultType").is_none(), "{tool}: nothing modern: {response}");
    }
}

#[test]
fn a_legacy_client_that_offers_nothing_is_never_asked() {
    let (gateway, _server) = gateway();
    let mut client = Mcp::http_at(gateway.address, gateway.token(), ClientEra::LEGACY, "/mcp", json!({}));
    let answer = client.call(&name("elicitation"), json!({}));
    assert!(answer.is_error(), "{}", answer.raw);
}

#[test]
fn a_call_brings_its_own_log_messages_at_the_level_that_was_asked_for() {
    let (gateway, _server) = gateway();
    let tool = "fx__test_logging_tool";
    let messages = |answer: &McpAnswer| -> Vec<Value> {
        answer.notices.iter().filter(|notice| notice["method"] == "notifications/message").cloned().collect()
    };
    let mut legacy = Mcp::http_at(gateway.address, gateway.token(), ClientEra::LEGACY, "/mcp", json!({}));
    assert!(messages(&legacy.call(tool, json!({}))).is_empty(), "nobody asked");
    assert_eq!(legacy.request("logging/setLevel", json!({"level": "loud"})).code(), Some(-32602));
    assert_eq!(legacy.request("logging/setLevel", json!({"level": "debug"})).result(), &json!({}));
    let told = messages(&legacy.call(tool, json!({})));
    assert!(!told.is_empty(), "the level was set");
    for message in told {
        assert!(message["params"]["logger"].as_str().unwrap().starts_with("fx"), "{message}");
    }
    legacy.request("logging/setLevel", json!({"level": "emergency"}));
    assert!(messages(&legacy.call(tool, json!({}))).is_empty(), "too fine");
}
