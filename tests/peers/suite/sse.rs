//! The HTTP+SSE transport of 2024-11-05 with programs of others: real servers, SDK clients, the
//! reference server.

use std::process::{Command, Stdio};
use std::time::Duration;

use serde_json::{Value, json};

use crate::harness::{Gateway, GatewaySetup};
use crate::mcp::{ClientEra, Mcp};
use crate::old_client::OldClient;
use crate::peers::PeerFolders;
use crate::process::output_within;
use crate::upstream::{Fake, InputLog, Listening, example};

const SECOND_TOKEN: &str = "token-of-the-second-caller-0123456789";

/// Returns the table of another upstream with that transport.
fn upstream(name: &str, url: &str, transport: &str) -> String {
    let headers = "headers = { X-Key = { env = \"KEY\" } }";
    // One stream for all clients, so that it can be counted.
    format!("[upstreams.{name}]\nurl = \"{url}\"\ntransport = \"{transport}\"\ninstance = \"shared\"\n{headers}\n")
}

fn progress(client: &mut Mcp, tool: &str, arguments: Value) -> (usize, String) {
    let params = json!({"name": tool, "arguments": arguments, "_meta": {"progressToken": "mine"}});
    let answer = client.request("tools/call", params);
    assert!(answer.notices.iter().all(|notice| notice["params"]["progressToken"] == "mine"), "{:?}", answer.notices);
    (answer.notices.len(), answer.text())
}

#[test]
fn real_servers_of_the_old_transport_are_used_by_clients_of_both_eras() {
    let Some(peers) = PeerFolders::find() else { return };
    let script = |name: &str| crate::ground::root().join("tests/peers").join(name).display().to_string();
    let node = peers.root().join("node").display().to_string();
    let everything = Listening::spawn(&peers.node(), &[script("everything.mjs"), node, "sse".to_owned()]);
    let python = Listening::spawn(&peers.python("python"), &[script("sse-server.py")]);
    let gateway = GatewaySetup::new()
        .env("KEY", "abc")
        .toml(&upstream("every", &everything.url, "sse"))
        .toml(&upstream("python", &python.url, "auto"))
        .start();
    let long = "every__trigger-long-running-operation";
    gateway.wait_for_tools_within(Duration::from_secs(60), &["every__echo", long, "python__add"]);
    for era in ClientEra::BOTH {
        let mut client = gateway.client(era);
        let echoed = client.call("every__echo", json!({"message": "hello there"}));
        assert!(echoed.text().contains("hello there"), "{}", echoed.raw);
        let (notices, text) = progress(&mut client, long, json!({"duration": 1, "steps": 4}));
        assert!(notices >= 2 && text.contains("Steps: 4"), "{notices}: {text}");
        assert_eq!(progress(&mut client, "python__add", json!({"a": 2, "b": 3})), (3, "5".to_owned()), "{era:?}");
    }
}

/// Starts a gateway that serves the old transport, in front of one modern upstream.
fn serving(server: &str) -> (Gateway, InputLog) {
    let setup = GatewaySetup::new();
    let log = InputLog::new(&setup.world.path("work"), "fx");
    let gateway = setup
        .server(&format!("legacy-sse = true\n{server}"))
        .second_caller(SECOND_TOKEN)
        .fake("fx", &Fake::stdio("modern").logging(&log))
        .toml("[profiles.few]\ntools = { allow = [\"fx__echo\"] }")
        .start();
    gateway.wait_for_tools(&["fx__echo"]);
    (gateway, log)
}

#[test]
fn an_old_client_is_asked_for_the_input_that_a_modern_server_wants() {
    let arguments = ["http", "--listen", "127.0.0.1:0", "--era", "modern"].map(str::to_owned);
    let server = Listening::spawn(&example("conformance-fixture"), &arguments);
    let gateway = GatewaySetup::new().server("legacy-sse = true").url("fx", &server.url).start();
    gateway.wait_for_tools(&["fx__test_input_required_result_elicitation"]);
    let mut client = OldClient::connect(&gateway, gateway.token(), "/sse");
    client.request("initialize", json!({"protocolVersion": "2025-06-18", "capabilities": {"elicitation": {}}}));
    client.send("tools/call", json!({"name": "fx__test_input_required_result_elicitation", "arguments": {}}));
    let question = client.message();
    assert_eq!(question["method"], "elicitation/create", "{question}");
    let given = json!({"action": "accept", "content": {"name": "Ada"}});
    assert_eq!(client.post(&json!({"jsonrpc": "2.0", "id": question["id"], "result": given})).0, 202);
    let answer = client.message();
    assert!(answer["id"] == client.next_id && answer["result"]["isError"] != true, "{answer}");
    assert!(answer["result"]["content"].to_string().contains("Ada"), "{answer}");
}

#[test]
fn sdk_clients_of_the_old_transport_use_a_modern_server() {
    let Some(peers) = PeerFolders::find() else { return };
    let (gateway, _) = serving("");
    let url = format!("http://{}/sse", gateway.address);
    let call = json!({"name": "fx__progress", "arguments": {"steps": 6, "delay_ms": 300}});
    let job = json!({"era": "legacy", "target": {"url": url, "token": gateway.token()}, "calls": [call]}).to_string();
    for (program, script) in [(peers.node(), "sse-client.mjs"), (peers.python("python"), "sse-client.py")] {
        let path = crate::ground::root().join("tests/peers").join(script);
        let mut command = Command::new(program);
        command.arg(path).arg(&job).env("PEERS_NODE", peers.root().join("node")).env("PYTHONDONTWRITEBYTECODE", "1");
        let child = command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        let output = output_within(child, Duration::from_secs(240), script);
        let report = String::from_utf8_lossy(&output.stdout).lines().next_back().map(serde_json::from_str::<Value>);
        let Some(Ok(report)) = report else { panic!("{script}: {}", String::from_utf8_lossy(&output.stderr)) };
        assert!(report["tools"].as_array().unwrap().contains(&json!("fx__echo")), "{script}: {report}");
        let call = &report["calls"][0];
        assert_eq!((&call["isError"], &call["text"]), (&json!(false), &json!("done")), "{script}: {report}");
        // One of the SDKs loses progress that arrives together with the answer, which is much of it
        // on a busy machine.
        assert!(call["structured"]["notices"].as_u64().unwrap() >= 1, "{script}: {report}");
    }
}
