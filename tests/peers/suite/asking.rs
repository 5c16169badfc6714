//! The reference server in the legacy era, a program of its own, asks its client in the middle of a
//! call.

use serde_json::{Map, Value, json};

use crate::harness::{Gateway, GatewaySetup};
use crate::mcp::{ClientEra, Mcp, McpAnswer, OpenCall};
use crate::upstream::{Listening, example, toml_array};

const TOOLS: [&str; 5] = ["elicitation", "sampling", "list_roots", "multiple_inputs", "multi_round"];

fn gateways() -> Vec<(&'static str, Gateway, Option<Listening>)> {
    let fixture = example("conformance-fixture");
    let lines = "era = \"legacy\"\nroots = \"client\"";
    let words = [fixture.to_str().unwrap(), "stdio", "--era", "legacy"];
    let stdio = GatewaySetup::new().toml(&format!("[upstreams.fx]\ncommand = {}\n{lines}", toml_array(words))).start();
    let server = Listening::spawn(&fixture, &["http", "--listen", "127.0.0.1:0", "--era", "legacy"].map(str::to_owned));
    let http = GatewaySetup::new().toml(&format!("[upstreams.fx]\nurl = \"{}\"\n{lines}", server.url)).start();
    vec![("stdio", stdio, None), ("http", http, Some(server))]
}

fn reply(request: &Value) -> Value {
    match request["method"].as_str().unwrap() {
        "elicitation/create" => {
            assert!(request["params"]["message"].as_str().unwrap().starts_with("[fx] "), "{request}");
            json!({"action": "accept", "content": {"name": "Ada", "color": "blue", "user_name": "Ada", "confirmed": true}})
        }
        "sampling/createMessage" => sampled(),
        _ => json!({"roots": [{"uri": "file:///work"}]}),
    }
}

fn everything() -> Value {
    json!({"elicitation": {}, "sampling": {}, "roots": {}})
}

fn sampled() -> Value {
    json!({"role": "assistant", "model": "m", "content": {"type": "text", "text": "4"}})
}

/// Plays a legacy client until its call is answered: its questions, and the answer.
fn converse(client: &mut Mcp, call: &mut OpenCall, answer: impl Fn(&Value) -> Value) -> (Vec<Value>, Value) {
    let mut asked = Vec::new();
    loop {
        let message = call.next().expect("the call is answered");
        if message.get("method").is_none() {
            return (asked, message);
        }
        client.respond(&message["id"], answer(&message));
        asked.push(message);
    }
}

/// Returns the questions by key, and the state, of an answer that asks a modern client.
fn asked(answer: &McpAnswer) -> (Map<String, Value>, Value) {
    assert_eq!(answer.result()["resultType"], "input_required", "{}", answer.raw);
    let requests = answer.result()["inputRequests"].as_object().cloned().unwrap_or_default();
    (requests, answer.result()["requestState"].clone())
}

#[test]
fn the_reference_server_of_the_legacy_era_gets_its_input_from_clients_of_both() {
    for (label, gateway, _server) in gateways() {
        let name = |tool: &str| format!("fx__test_input_required_result_{tool}");
        gateway.wait_for_tools(&[&name("elicitation")]);
        let client = |era| Mcp::http_at(gateway.address, gateway.token(), era, "/mcp", everything());
        let (mut legacy, mut modern) = (client(ClientEra::LEGACY), client(ClientEra::Modern));
        for tool in TOOLS {
            let mut call = legacy.open("tools/call", json!({"name": name(tool), "arguments": {}}));
            let (questions, response) = converse(&mut legacy, &mut call, reply);
            let text = response["result"]["content"][0]["text"].clone();
            assert!(!questions.is_empty() && text.is_string(), "{label} {tool}: {response}");
            assert!(response["result"]["isError"] != true, "{label} {tool}: {response}");

            let mut answer = modern.call(&name(tool), json!({}));
            let mut rounds = 0;
            while answer.result()["resultType"] == "input_required" {
                let (requests, state) = asked(&answer);
                let responses: Map<String, Value> =
                    requests.iter().map(|(key, request)| (key.clone(), reply(request))).collect();
                let params =
                    json!({"name": name(tool), "arguments": {}, "inputResponses": responses, "requestState": state});
                answer = modern.request("tools/call", params);
                rounds += 1;
            }
            assert!(rounds > 0, "{label} {tool}: {}", answer.raw);
            assert_eq!(
                answer.result()["content"][0]["text"],
                text,
                "{label} {tool}: the same as for the legacy client"
            );
        }
    }
}
