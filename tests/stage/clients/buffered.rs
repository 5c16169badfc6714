//! Tests of messages near the limits of buffered memory.

use serde_json::json;

use crate::stage::harness::{Gateway, GatewaySetup};
use crate::stage::http::PATIENCE;
use crate::stage::mcp::ClientEra;
use crate::stage::now;
use crate::stage::old_client::OldClient;
use crate::stage::upstream::{Fake, Listening};

/// Starts a daemon whose budget has room for one large message but not two, in front of an upstream
/// of HTTP+SSE.
fn narrow() -> (Gateway, Listening) {
    let limits = "max-buffered = \"5MiB\"\nmax-result = \"5MiB\"\nmax-upstream-result = \"5MiB\"";
    let upstream = Fake::sse().spawn();
    let setup = GatewaySetup::new().server(&format!("legacy-sse = true\n[server.limits]\n{limits}"));
    let gateway = setup.toml(&format!("[upstreams.fx]\nurl = \"{}\"", upstream.url)).start();
    gateway.wait_for_tools(&["fx__raw"]);
    (gateway, upstream)
}

#[test]
fn a_result_of_more_than_half_the_budget_passes_over_http_and_sse() {
    const RESULT: usize = 4 << 20;
    let (gateway, _upstream) = narrow();
    let result = json!({"content": [{"type": "text", "text": "x".repeat(RESULT)}]});
    let file = gateway.world.write("work/result.json", &result.to_string());
    let answer = gateway.client(ClientEra::LEGACY).call("fx__raw", json!({"file": file.to_str().unwrap()}));
    assert_eq!(answer.text().len(), RESULT, "{}", &answer.raw[..answer.raw.len().min(500)]);
}

#[test]
fn a_request_of_more_than_half_the_budget_is_taken_over_http_and_sse() {
    let (gateway, _upstream) = narrow();
    let mut client = OldClient::connect(&gateway, gateway.token(), "/sse");
    client.initialize("2024-11-05");
    let arguments = json!({"file": "/nowhere", "padding": "x".repeat(3 << 20)});
    let answer = client.request("tools/call", json!({"name": "fx__raw", "arguments": arguments}));
    assert!(answer.to_string().contains("No such file"), "{answer}");
}

#[test]
fn a_line_over_the_limit_is_answered_by_its_id_or_ends_the_connection() {
    let setup = GatewaySetup::new().server("[server.limits]\nmax-body = \"64KiB\"").fake("fx", &Fake::stdio("both"));
    let gateway = setup.start();
    let mut host = gateway.pipe();
    let padding = "x".repeat(100_000);
    let mut ask = |line: String| {
        host.send(line.as_bytes());
        host.line(PATIENCE).unwrap()
    };
    for id in ["7", "\"seven\"", "8"] {
        let answer = ask(format!(r#"{{"jsonrpc":"2.0","id":{id},"method":"ping","params":{{"x":"{padding}"}}}}"#));
        assert!(answer.contains(&format!("\"id\":{id},\"error\"")) && answer.contains("too large"), "{answer}");
    }
    let notice = format!(r#"{{"jsonrpc":"2.0","method":"notifications/x","params":{{"x":"{padding}"}}}}"#);
    let answer = ask(format!("{notice}\n{}", r#"{"jsonrpc":"2.0","id":9,"method":"ping"}"#));
    assert!(answer.contains("\"id\":9,\"result\""), "the connection goes on: {answer}");
    let answer = ask(format!(r#"{{"jsonrpc":"2.0","method":"ping","params":{{"x":"{padding}"}},"id":10}}"#));
    assert!(answer.contains("too large"), "{answer}");
    let before = now();
    assert_eq!(host.line(PATIENCE), None);
    assert!(now() - before < PATIENCE, "its caller is not left to wait");
}
