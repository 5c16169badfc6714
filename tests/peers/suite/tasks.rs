//! Calls that become tasks at the reference server, a program of its own, for clients with and
//! without the extension.

use std::time::{Duration, Instant};

use serde_json::{Value, json};

use crate::harness::{Gateway, GatewaySetup, headend};
use crate::mcp::{ClientEra, Mcp, McpAnswer};
use crate::process::eventually;
use crate::upstream::{Fake, Listening, example};

const TOKEN: &str = "token-of-the-second-caller-0123456789";
const EXTENSION: &str = "io.modelcontextprotocol/tasks";

/// Starts a gateway with two callers in front of the reference server of the modern era.
fn gateway() -> (Gateway, Listening) {
    let arguments = ["http", "--listen", "127.0.0.1:0", "--era", "modern"].map(str::to_owned);
    let server = Listening::spawn(&example("conformance-fixture"), &arguments);
    let gateway = GatewaySetup::new().second_caller(TOKEN).url("fx", &server.url).start();
    gateway.wait_for_tools(&["fx__slow_compute"]);
    (gateway, server)
}

fn client(gateway: &Gateway, token: Option<String>, capabilities: Value) -> Mcp {
    Mcp::http_at(gateway.address, token, ClientEra::Modern, "/mcp", capabilities)
}

/// Returns a client that handles tasks itself, and questions.
fn knowing(gateway: &Gateway) -> Mcp {
    client(gateway, gateway.token(), json!({"elicitation": {}, "extensions": {EXTENSION: {}}}))
}

/// Calls a tool and returns the id of the task that the call became.
fn begun(client: &mut Mcp, tool: &str, arguments: Value) -> String {
    let answer = client.call(&format!("fx__{tool}"), arguments);
    assert_eq!(answer.result()["resultType"], "task", "{}", answer.raw);
    assert!(answer.result()["ttlMs"].as_u64().is_some_and(|ttl| ttl <= 86_400_000), "{}", answer.raw);
    answer.result()["taskId"].as_str().unwrap().to_owned()
}

fn get(client: &mut Mcp, id: &str) -> McpAnswer {
    client.request("tasks/get", json!({"taskId": id}))
}

/// Polls a task until it has that status.
fn until(client: &mut Mcp, id: &str, status: &str) -> Value {
    let deadline = Instant::now() + Duration::from_secs(20);
    loop {
        let answer = get(client, id);
        let task = answer.result();
        assert_eq!((&task["resultType"], &task["taskId"]), (&json!("complete"), &json!(id)), "{}", answer.raw);
        if task["status"] == status {
            return task.clone();
        }
        assert!(Instant::now() < deadline, "not {status}: {}", answer.raw);
    }
}

#[test]
fn a_server_that_declares_logging_makes_discovery_declare_it() {
    let gateway = GatewaySetup::new().fake("fx", &Fake::stdio("legacy")).start();
    gateway.wait_for_tools(&["fx__echo"]);
    let discovered = knowing(&gateway).request("server/discover", json!({}));
    assert!(discovered.result()["capabilities"]["logging"].is_object(), "{}", discovered.raw);
    // The built-in servers declare none.
    let time = format!("[upstreams.time]\ncommand = [{:?}, \"demo\", \"time\"]\n", headend());
    let gateway = GatewaySetup::new().toml(&time).start();
    gateway.wait_for_tools(&["time__now"]);
    let discovered = knowing(&gateway).request("server/discover", json!({}));
    assert!(discovered.result()["capabilities"]["logging"].is_null(), "{}", discovered.raw);
}

#[test]
fn a_modern_client_follows_its_task_under_an_id_of_the_gateway() {
    let (gateway, _server) = gateway();
    let mut client = knowing(&gateway);
    let discovered = client.request("server/discover", json!({}));
    let capabilities = &discovered.result()["capabilities"];
    assert!(capabilities["extensions"][EXTENSION].is_object() && capabilities["tasks"].is_null(), "{}", discovered.raw);
    for (tool, arguments, status, member) in [
        ("slow_compute", json!({"seconds": 0.2}), "completed", "result"),
        ("failing_job", json!({}), "completed", "result"),
        ("protocol_error_job", json!({}), "failed", "error"),
    ] {
        let id = begun(&mut client, tool, arguments);
        assert!(id.len() > 60, "{tool}: sealed: {id}");
        let task = until(&mut client, &id, status);
        assert!(task[member].is_object(), "{tool}: {task}");
        assert_eq!(task["result"]["isError"] == true, tool == "failing_job", "{task}");
    }
    let id = begun(&mut client, "slow_compute", json!({"seconds": 60}));
    let cancelled = client.request("tasks/cancel", json!({"taskId": id}));
    assert_eq!(cancelled.result(), &json!({"resultType": "complete"}));
    until(&mut client, &id, "cancelled");
    assert_eq!(client.call("fx__greet", json!({"name": "Ada"})).text(), "Hello, Ada!", "no task where none is needed");
}

#[test]
fn what_a_task_asks_is_labelled_and_answered_by_update() {
    let (gateway, _server) = gateway();
    let mut client = knowing(&gateway);
    let id = begun(&mut client, "confirm_delete", json!({"filename": "f"}));
    let task = until(&mut client, &id, "input_required");
    assert_eq!(task["inputRequests"]["confirm"]["params"]["message"], "[fx] Delete it? [fx]", "{task}");
    assert_eq!(client.request("tasks/update", json!({"taskId": id})).code(), Some(-32602), "nothing to update with");
    let responses = json!({"confirm": {"action": "accept", "content": {"confirm": true}}});
    let updated = client.request("tasks/update", json!({"taskId": id, "inputResponses": responses}));
    assert_eq!(updated.result(), &json!({"resultType": "complete"}));
    let task = until(&mut client, &id, "completed");
    assert!(task["result"]["content"][0]["text"].as_str().unwrap().contains("accept"), "{task}");
    let id = begun(&mut client, "confirm_delete", json!({"filename": "f"}));
    until(&mut client, &id, "input_required");
    client.capabilities = json!({"extensions": {EXTENSION: {}}});
    let answer = get(&mut client, &id);
    assert_eq!(answer.code(), Some(-32603), "not offered in this request: {}", answer.raw);
}

#[test]
fn a_task_id_is_good_for_its_caller_alone() {
    let (gateway, _server) = gateway();
    let mut first = knowing(&gateway);
    let mut second = client(&gateway, Some(TOKEN.to_owned()), first.capabilities.clone());
    let id = begun(&mut first, "slow_compute", json!({"seconds": 60}));
    let other = if id.starts_with('A') { 'B' } else { 'A' };
    let forged = format!("{other}{}", &id[1..]);
    let mut refused = Vec::new();
    for (method, more) in [("tasks/get", json!({})), ("tasks/cancel", json!({})), ("tasks/update", json!({"a": {}}))] {
        for (label, id) in [
            ("foreign", id.as_str()),
            ("forged", forged.as_str()),
            ("invented", "786512e2-9e0d-44bd-8f29-789f320fe840"),
            ("empty", ""),
        ] {
            let client = if label == "foreign" { &mut second } else { &mut first };
            let answer = client.request(method, json!({"taskId": id, "inputResponses": more}));
            assert_eq!(answer.code(), Some(-32602), "{method} {label}: {}", answer.raw);
            refused.push(answer.message["error"].clone());
        }
    }
    assert!(refused.iter().all(|error| *error == refused[0]), "one answer for all: {refused:?}");
    let params = first.dress(json!({"taskId": id}));
    let mut headers = first.headers("tasks/get", &params);
    headers.iter_mut().filter(|(name, _)| name == "Mcp-Name").for_each(|(_, value)| value.clone_from(&forged));
    let body = json!({"jsonrpc": "2.0", "id": 77, "method": "tasks/get", "params": params}).to_string();
    assert_eq!(first.exchange(&json!(77), &headers, &body).code(), Some(-32020), "the header names another task");
    first.capabilities = json!({});
    let undeclared = get(&mut first, &id);
    assert_eq!((undeclared.status, undeclared.code()), (400, Some(-32021)), "{}", undeclared.raw);
    let required = &undeclared.message["error"]["data"]["requiredCapabilities"];
    assert!(required["extensions"][EXTENSION].is_object(), "{}", undeclared.raw);
    let mut first = knowing(&gateway);
    assert_eq!(get(&mut first, &id).result()["status"], "working", "and still there for its owner");
}

#[test]
fn a_rule_on_the_tool_holds_for_its_tasks() {
    let (gateway, server) = gateway();
    let mut client = knowing(&gateway);
    let id = begun(&mut client, "slow_compute", json!({"seconds": 60}));
    let rules = "[[policy.rules]]\nid = \"off\"\neffect = \"deny\"\ntools = [\"fx__slow_compute\"]";
    let text = GatewaySetup::new().second_caller(TOKEN).url("fx", &server.url).toml(rules).text();
    let reloaded = gateway.reload(&text);
    assert!(reloaded.status.success(), "{reloaded:?}");
    eventually("the rule is in force", || get(&mut client, &id).code() == Some(-32602));
}

#[test]
fn clients_that_know_no_tasks_get_the_outcome_of_a_call_that_needs_one() {
    let (gateway, _server) = gateway();
    for era in ClientEra::BOTH {
        let mut client = gateway.client(era);
        let answer = client.call("fx__slow_compute", json!({"seconds": 0.2}));
        assert_eq!(answer.text(), "Computed for 0.2 s.", "{era:?}: {}", answer.raw);
        assert!(answer.result().get("taskId").is_none(), "{era:?}: {}", answer.raw);
        let kind = &answer.result()["resultType"];
        assert_eq!(*kind, if era == ClientEra::Modern { json!("complete") } else { Value::Null }, "{era:?}");
        let failed = client.call("fx__failing_job", json!({}));
        assert!(failed.is_error() && failed.text() == "The job failed.", "{era:?}: {}", failed.raw);
        let broken = client.call("fx__protocol_error_job", json!({}));
        assert_eq!(broken.code(), Some(-32603), "{era:?}: {}", broken.raw);
        let params =
            json!({"name": "fx__slow_compute", "arguments": {"seconds": 0.5}, "_meta": {"progressToken": "p"}});
        let told = client.request("tools/call", params);
        let progress: Vec<&Value> = told.notices.iter().map(|notice| &notice["params"]).collect();
        assert!(progress.iter().any(|params| params["progressToken"] == "p"), "{era:?}: {progress:?}");
    }
}

#[test]
fn a_tasks_questions_reach_clients_that_know_no_tasks() {
    let (gateway, _server) = gateway();
    let accept = || json!({"action": "accept", "content": {"confirm": true, "name": "Ada"}});
    for (tool, questions) in [("fx__confirm_delete", 1), ("fx__multi_input", 2), ("fx__test_tool_with_task", 1)] {
        let mut legacy =
            Mcp::http_at(gateway.address, gateway.token(), ClientEra::LEGACY, "/mcp", json!({"elicitation": {}}));
        let mut call = legacy.open("tools/call", json!({"name": tool, "arguments": {}}));
        let mut asked = 0;
        let response = loop {
            let message = call.next().expect("the call is answered");
            if message["method"].is_null() {
                break message;
            }
            assert_eq!(message["method"], "elicitation/create", "{tool}: {message}");
            assert!(message["params"]["message"].as_str().unwrap().starts_with("[fx] "), "{tool}: {message}");
            asked += 1;
            legacy.respond(&message["id"], accept());
        };
        assert_eq!(asked, questions, "{tool}: {response}");
        assert!(response["result"]["content"].is_array(), "{tool}: {response}");
        let mut modern = client(&gateway, gateway.token(), json!({"elicitation": {}}));
        let mut answer = modern.call(tool, json!({}));
        for _ in 0..questions {
            let Some(requests) = answer.result()["inputRequests"].as_object().cloned() else { break };
            let responses: Value = requests.keys().map(|key| (key.clone(), accept())).collect();
            let params = json!({"name": tool, "arguments": {}, "inputResponses": responses,
                "requestState": answer.result()["requestState"]});
            answer = modern.request("tools/call", params);
        }
        assert_eq!(answer.result()["resultType"], "complete", "{tool}: {}", answer.raw);
        assert!(!answer.is_error(), "{tool}: {}", answer.raw);
    }
    for era in ClientEra::BOTH {
        let answer = gateway.client(era).call("fx__confirm_delete", json!({}));
        assert_eq!(answer.code(), Some(-32603), "{era:?} offers nothing: {}", answer.raw);
    }
}
