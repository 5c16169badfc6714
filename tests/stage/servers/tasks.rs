//! Tests of calls that become tasks at a server of 2025-11-25, for clients with and without the
//! extension.

use serde_json::{Value, json};

use crate::stage::harness::{Gateway, GatewaySetup};
use crate::stage::mcp::{ClientEra, Mcp};
use crate::stage::process::eventually;
use crate::stage::upstream::{Fake, InputLog, Listening};

const EXTENSION: &str = "io.modelcontextprotocol/tasks";

/// Starts a gateway in front of a server of 2025-11-25 with a tool that runs as a task.
fn legacy_gateway(over_http: bool) -> (Gateway, Option<Listening>, InputLog) {
    let setup = GatewaySetup::new();
    let log = InputLog::new(&setup.world.path("work"), "fx");
    let fake = if over_http { Fake::http("legacy") } else { Fake::stdio("legacy") };
    let fake = fake.behaving("tasks").with("--answers", "sse").logging(&log);
    let (setup, server) = if over_http {
        let server = fake.spawn();
        (setup.url("fx", &server.url), Some(server))
    } else {
        (setup.fake("fx", &fake), None)
    };
    let gateway = setup.start();
    gateway.wait_for_tools(&["fx__job"]);
    (gateway, server, log)
}

fn client(gateway: &Gateway, token: Option<String>, capabilities: Value) -> Mcp {
    Mcp::http_at(gateway.address, token, ClientEra::Modern, "/mcp", capabilities)
}

#[test]
fn a_legacy_tool_that_is_a_task_is_an_ordinary_tool_for_every_client() {
    for over_http in [false, true] {
        let (gateway, _server, log) = legacy_gateway(over_http);
        for era in ClientEra::BOTH {
            let mut client = gateway.client(era);
            if era == ClientEra::Modern {
                client.capabilities = json!({"extensions": {EXTENSION: {}}});
                let discovered = client.request("server/discover", json!({}));
                assert!(discovered.result()["capabilities"]["extensions"].is_null(), "{}", discovered.raw);
            } else {
                assert!(client.greeting["capabilities"]["tasks"].is_null(), "{}", client.greeting);
            }
            let tools = client.list("tools/list", "tools");
            assert!(tools.iter().all(|tool| tool["execution"].is_null()), "{tools:?}");
            let answer = client.call("fx__job", json!({"polls": 3}));
            assert_eq!(answer.text(), "done", "{era:?}: {}", answer.raw);
            assert!(!answer.raw.contains("related-task"), "{era:?}: {}", answer.raw);
            let broken = client.call("fx__job", json!({"end": "error"}));
            assert_eq!(broken.code(), Some(-32603), "{era:?}: {}", broken.raw);
            let off = client.call("fx__job", json!({"end": "cancelled"}));
            assert!(off.is_error() && off.text().contains("cancelled"), "{era:?}: {}", off.raw);
            assert_eq!(client.call("fx__echo", json!({"text": "plain"})).text(), "plain");
        }
        assert!(log.lines_with(&["\"text\":\"plain\"", "\"ttl\""]).is_empty(), "only where it is required");
        assert_eq!(log.count("tasks/cancel"), 0, "all of them ended");
    }
}

#[test]
fn a_legacy_tasks_question_reaches_every_client() {
    for over_http in [false, true] {
        let (gateway, _server, _log) = legacy_gateway(over_http);
        let accept = || json!({"action": "accept", "content": {"sure": true}});
        let arguments = || json!({"polls": 1, "end": "ask"});
        let elicits = || json!({"elicitation": {}});
        let mut legacy = Mcp::http_at(gateway.address, gateway.token(), ClientEra::LEGACY, "/mcp", elicits());
        let mut call = legacy.open("tools/call", json!({"name": "fx__job", "arguments": arguments()}));
        let asked = call.next().expect("the client is asked");
        assert_eq!(asked["params"]["message"], "[fx] Sure? [fx]", "{asked}");
        assert!(asked["params"].get("_meta").is_none(), "the task is not the client's: {asked}");
        legacy.respond(&asked["id"], accept());
        assert_eq!(call.response()["result"]["content"][0]["text"], "accept");
        let mut modern = client(&gateway, gateway.token(), elicits());
        let asked = modern.call("fx__job", arguments());
        let requests = asked.result()["inputRequests"].as_object().expect("the client is asked").clone();
        let responses: Value = requests.keys().map(|key| (key.clone(), accept())).collect();
        let params = json!({"name": "fx__job", "arguments": arguments(), "inputResponses": responses,
        "requestState": asked.result()["requestState"]});
        assert_eq!(modern.request("tools/call", params).text(), "accept");
    }
}

#[test]
fn a_task_that_nobody_waits_for_is_cancelled() {
    let (gateway, _server, log) = legacy_gateway(false);
    let mut client = gateway.modern();
    let call = client.open("tools/call", json!({"name": "fx__job", "arguments": {"polls": 1_000_000}}));
    eventually("the task is asked after", || log.count("tasks/get") > 1);
    drop(call);
    eventually("the task is cancelled", || log.count("tasks/cancel") == 1);
    // A `tasks/get` in flight may be cancelled; the call that became the task may not.
    let called: Value = serde_json::from_str(&log.lines_with(&["\"tools/call\""])[0]).unwrap();
    for line in log.lines_with(&["notifications/cancelled"]) {
        let cancelled: Value = serde_json::from_str(&line).unwrap();
        assert_ne!(cancelled["params"]["requestId"], called["id"], "a task is cancelled in its own way");
    }
}

#[test]
fn a_task_ends_with_the_deadline_of_its_call() {
    let setup = GatewaySetup::new();
    let log = InputLog::new(&setup.world.path("work"), "fx");
    let command = Fake::stdio("legacy").behaving("tasks").logging(&log).command();
    let table = format!("[upstreams.fx]\ncommand = {command}\ncall-timeout = \"1s\"\ncall-max = \"2s\"");
    let gateway = setup.toml(&table).start();
    gateway.wait_for_tools(&["fx__job"]);
    let answer = gateway.modern().call("fx__job", json!({"polls": 1_000_000}));
    let refusal = &answer.result()["_meta"]["headend/refusal"];
    assert_eq!((&refusal["reason"], &refusal["executed"]), (&json!("upstream_timeout"), &json!("unknown")));
    eventually("the task is cancelled", || log.count("tasks/cancel") == 1);
}

#[test]
fn a_call_that_a_server_takes_as_a_task_only_is_made_once_more_as_one() {
    let capabilities = json!({"tools": {}, "extensions": {EXTENSION: {}}});
    let discovered = json!({"resultType": "complete", "supportedVersions": ["2026-07-28"], "capabilities": capabilities,
        "ttlMs": 0, "cacheScope": "private"});
    let answer =
        |member: &str, value: &Value| json!([format!(r#"{{"jsonrpc":"2.0","id":${{ID}},{member:?}:{value}}}"#)]);
    let wants = |extension: &str| {
        let data = json!({"requiredCapabilities": {"extensions": {extension: {}}}});
        json!({"code": -32021, "message": "needs more", "data": data})
    };
    for (extension, calls) in [(EXTENSION, 2), ("example.com/other", 1)] {
        let setup = GatewaySetup::new();
        let log = InputLog::new(&setup.world.path("work"), "fx");
        let script = json!({
            "server/discover": answer("result", &discovered),
            "tools/call/echo": answer("error", &wants(extension)),
        });
        let script = setup.world.write("work/script.json", &script.to_string());
        let fake = Fake::stdio("modern").with("--script", script.to_str().unwrap()).logging(&log);
        let gateway = setup.fake("fx", &fake).start();
        gateway.wait_for_tools(&["fx__echo"]);
        let refused = gateway.modern().call("fx__echo", json!({"text": "x"}));
        assert!(refused.code().is_some() || refused.is_error(), "{}", refused.raw);
        let called = log.lines_with(&["\"method\":\"tools/call\""]);
        assert_eq!(called.len(), calls, "{extension}: {called:#?}");
        assert!(!called[0].contains(EXTENSION), "the client has no tasks: {}", called[0]);
        assert!(called.iter().skip(1).all(|again| again.contains(EXTENSION)), "{called:#?}");
    }
}
