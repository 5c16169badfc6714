//! Fuzz tests with clients that write damaged lines: to a gateway on its own pipes, and to both
//! services of the admin socket.

use std::io::{ErrorKind, Read as _, Write as _};
use std::os::unix::net::UnixStream;
use std::time::Duration;

use fastrand::Rng;
use serde_json::{Value, json};

use super::Round;
use super::mutation::mutate;
use super::scene::Scene;
use crate::tools::harness::{Gateway, GatewaySetup};
use crate::tools::mcp::MODERN;
use crate::tools::stdio::Pipe;
use crate::tools::upstream::Fake;

const HELLO: &str = r#"{"headend":1,"want":"mcp"}"#;
const ADMIN: &str = r#"{"headend":1,"want":"admin"}"#;

/// Returns valid lines of clients of both eras.
fn lines() -> Vec<Vec<u8>> {
    let modern = json!({"io.modelcontextprotocol/protocolVersion": MODERN, "progressToken": "p",
        "io.modelcontextprotocol/clientInfo": {"name": "f", "version": "1"}, "io.modelcontextprotocol/clientCapabilities": {"elicitation": {}}});
    let mut lines = Vec::new();
    for (method, params) in [
        (
            "initialize",
            json!({"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": "f", "version": "1"}}),
        ),
        ("ping", json!({})),
        ("tools/list", json!({})),
        ("tools/call", json!({"name": "fx__echo", "arguments": {"text": "x"}})),
        ("tools/call", json!({"name": "fx__inquire", "arguments": {"kind": "form"}})),
        ("tools/call", json!({"name": "fx__progress", "arguments": {"steps": 3}})),
        ("prompts/get", json!({"name": "fx__p", "arguments": {"a": "b"}})),
        ("resources/read", json!({"uri": "fx+fx://doc/1"})),
        ("resources/subscribe", json!({"uri": "fx+fx://doc/1"})),
        ("subscriptions/listen", json!({"notifications": {"toolsListChanged": true}})),
        ("server/discover", json!({})),
    ] {
        let mut dressed = params.clone();
        dressed["_meta"] = modern.clone();
        for params in [params, dressed] {
            lines.push(json!({"jsonrpc": "2.0", "id": 7, "method": method, "params": params}).to_string().into_bytes());
        }
    }
    for line in [
        json!({"jsonrpc": "2.0", "method": "notifications/initialized"}),
        json!({"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": 7}}),
        json!({"jsonrpc": "2.0", "method": "notifications/roots/list_changed"}),
        json!({"jsonrpc": "2.0", "id": 1, "result": {"action": "accept", "content": {"a": 1}}}),
        json!({"jsonrpc": "2.0", "id": "x", "error": {"code": -1, "message": "m"}}),
        json!([{"jsonrpc": "2.0", "id": 7, "method": "ping"}, {"jsonrpc": "2.0", "id": 8, "method": "ping"}]),
    ] {
        lines.push(line.to_string().into_bytes());
    }
    lines
}

/// Damages a line; the result may be several lines.
fn damaged(rng: &mut Rng, lines: &[Vec<u8>]) -> Vec<u8> {
    let line = &lines[rng.usize(..lines.len())];
    let other = &lines[rng.usize(..lines.len())];
    let line = if rng.u8(0..4) == 0 { line.clone() } else { mutate(rng, line, other) };
    [line, b"\n".to_vec()].concat()
}

#[test]
fn damaged_lines_leave_a_gateway_on_its_own_pipes_in_order() {
    let mut round = Round::new("stdio", 12);
    let (world, config) = GatewaySetup::new().fake("fx", &Fake::stdio("both").behaving("asks")).write();
    let lines = lines();
    while let Some(step) = round.step() {
        let mut rng = Rng::with_seed(round.seed * 1_000_000 + step);
        let mut pipe = Pipe::start(&world, &config, &[]);
        for own in 0..4 {
            for _ in 0..16 {
                pipe.send(&damaged(&mut rng, &lines));
            }
            let id = json!(format!("own-{own}"));
            pipe.send(json!({"jsonrpc": "2.0", "id": id, "method": "ping"}).to_string().as_bytes());
            let answer = pipe.answer(&id, Duration::from_secs(60));
            assert!(answer.message.get("result").is_some() != answer.message.get("error").is_some(), "{}", answer.raw);
        }
        let status = pipe.close(Duration::from_secs(60));
        assert!(status.is_some_and(|status| status.success()), "{status:?}\n{}", pipe.story());
        let mut twice = 0;
        while let Some(line) = pipe.line(Duration::ZERO) {
            let message: Value = serde_json::from_str(&line).unwrap();
            twice += usize::from(message["id"].as_str().is_some_and(|id| id.starts_with("own-")));
        }
        assert_eq!(twice, 0, "an answer came twice");
        assert!(!pipe.story().contains("panicked"), "{}", pipe.story());
    }
}

#[test]
fn damaged_lines_on_the_admin_socket_concern_nobody_else() {
    let mut round = Round::new("admin", 60);
    let mut scene = Scene::new(GatewaySetup::new());
    let of_clients = lines();
    let mut of_operators = Vec::new();
    for (method, params) in [
        ("status", json!({})),
        ("tools", json!({})),
        ("call", json!({"name": "fx__echo", "arguments": {"text": "x"}})),
        ("pins.list", json!({})),
        ("pins.approve", json!({"upstream": "fx", "item": "fx__echo", "digest": "0"})),
        ("approvals.list", json!({})),
        ("approvals.answer", json!({"id": "abc", "answer": "once"})),
        ("grants.list", json!({})),
        ("grants.revoke", json!({"id": "abc"})),
        ("console.link", json!({})),
        ("reload", json!({})),
    ] {
        of_operators
            .push(json!({"jsonrpc": "2.0", "id": 7, "method": method, "params": params}).to_string().into_bytes());
    }
    while let Some(step) = round.step() {
        let mut rng = Rng::with_seed(round.seed * 1_000_000 + step);
        let (hello, lines) = if rng.bool() { (HELLO, &of_clients) } else { (ADMIN, &of_operators) };
        let hello = if rng.u8(0..4) == 0 { mutate(&mut rng, hello.as_bytes(), &lines[0]) } else { hello.into() };
        let mut sent = [hello, b"\n".to_vec()].concat();
        for _ in 0..rng.usize(1..8) {
            sent.extend(damaged(&mut rng, lines));
        }
        converse(&scene.gateway, &sent);
        if step % 10 == 0 {
            scene.look();
        }
    }
    scene.end();
}

/// Writes all bytes, and reads lines of JSON to the end.
fn converse(gateway: &Gateway, sent: &[u8]) {
    let mut socket = UnixStream::connect(gateway.world.path("run/headend.sock")).unwrap();
    socket.set_read_timeout(Some(Duration::from_millis(50))).unwrap();
    // The daemon may have hung up after the hello.
    let _ignored = socket.write_all(sent);
    let mut said = Vec::new();
    let mut buffer = vec![0; 64 << 10];
    loop {
        match socket.read(&mut buffer) {
            Ok(0) => break,
            Ok(read) => said.extend_from_slice(&buffer[..read]),
            Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut) => break,
            Err(error) if error.kind() == ErrorKind::ConnectionReset => break,
            Err(error) => panic!("{error}"),
        }
    }
    let whole = said.iter().rposition(|byte| *byte == b'\n').map_or(0, |at| at + 1);
    for line in said[..whole].split(|byte| *byte == b'\n').filter(|line| !line.is_empty()) {
        let read = serde_json::from_slice::<Value>(line);
        assert!(read.is_ok(), "b\"{}\" for b\"{}\"", line.escape_ascii(), sent.escape_ascii());
    }
}
