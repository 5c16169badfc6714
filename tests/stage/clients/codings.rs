//! Tests that every listener refuses a coding that headend cannot undo, before it reads the body.

use std::net::SocketAddr;
use std::time::Duration;

use crate::stage::harness::{Gateway, GatewaySetup};
use crate::stage::http::{TestConnection, TestResponse};
use crate::stage::upstream::Fake;

/// An endpoint of a listener: its name, address, method, path and further header lines.
type CodingEndpoint = (&'static str, SocketAddr, &'static str, &'static str, String);

fn gateway() -> Gateway {
    let gateway = GatewaySetup::new().server("legacy-sse = true").fake("fx", &Fake::stdio("both")).start();
    gateway.wait_for_tools(&["fx__echo"]);
    gateway
}

fn doors(gateway: &Gateway) -> Vec<CodingEndpoint> {
    let console = gateway.console.unwrap();
    let token = format!("Authorization: Bearer {}\r\n", gateway.token().unwrap());
    let json = format!("{token}Content-Type: application/json\r\nAccept: application/json, text/event-stream\r\n");
    let modern = format!("{json}MCP-Protocol-Version: 2026-07-28\r\nMcp-Method: server/discover\r\n");
    let form = "Content-Type: application/x-www-form-urlencoded\r\n".to_owned();
    vec![
        ("the endpoint, legacy", gateway.address, "POST", "/mcp", json.clone()),
        ("the endpoint, modern", gateway.address, "POST", "/mcp", modern),
        ("a stream", gateway.address, "GET", "/mcp", token.clone()),
        ("the end of a session", gateway.address, "DELETE", "/mcp", token.clone()),
        ("the old transport's stream", gateway.address, "GET", "/sse", token),
        ("the old transport's messages", gateway.address, "POST", "/messages?sessionId=x", json),
        ("the console's form", console, "POST", "/sign-in", form),
        ("a page of the console", console, "GET", "/", String::new()),
        ("the metrics", gateway.metrics.unwrap(), "GET", "/metrics", String::new()),
    ]
}

/// Sends a request head only. Returns the answer and whether the connection closes with it.
fn ask(door: &CodingEndpoint, version: &str, lines: &[&str]) -> (TestResponse, bool) {
    let (_, address, method, path, more) = door;
    let lines: String = lines.iter().map(|line| format!("{line}\r\n")).collect();
    let mut conn = TestConnection::open(*address).unwrap();
    conn.send(format!("{method} {path} HTTP/{version}\r\nHost: {address}\r\n{more}{lines}\r\n").as_bytes()).unwrap();
    let answer = conn.response().unwrap_or_else(|error| panic!("{}: {lines}: {error}", door.0));
    let closed = conn.closes_within(Duration::from_secs(5));
    (answer, closed)
}

#[test]
fn a_transfer_coding_other_than_chunked_alone_is_not_implemented_on_any_listener() {
    let gateway = gateway();
    for door in doors(&gateway) {
        for lines in [
            &["Transfer-Encoding: gzip, chunked"][..],
            &["Transfer-Encoding: gzip", "Transfer-Encoding: chunked"][..],
            &["Transfer-Encoding: chunked, chunked"][..],
            &["Transfer-Encoding: chunked", "Transfer-Encoding: chunked"][..],
            &["Transfer-Encoding: identity, chunked"][..],
            &["Content-Length: 5", "Transfer-Encoding: gzip, chunked"][..],
            &["Transfer-Encoding: identity"][..],
            &["Transfer-Encoding: chunked, gzip"][..],
            &["Transfer-Encoding: chunked", "Transfer-Encoding: identity"][..],
        ] {
            let (answer, closed) = ask(&door, "1.1", lines);
            assert_eq!((answer.head.status, closed), (501, true), "{}: {lines:?}: {}", door.0, answer.text());
        }
        let (answer, closed) = ask(&door, "1.0", &["Transfer-Encoding: gzip, chunked"]);
        assert_eq!((answer.head.status, closed), (501, true), "{}: HTTP/1.0: {}", door.0, answer.text());
        // The framing of such a message is faulty, however it is coded. Source: RFC 9112, section
        // 6.1.
        let (answer, closed) = ask(&door, "1.0", &["Transfer-Encoding: chunked"]);
        assert_eq!((answer.head.status, closed), (400, true), "{}: HTTP/1.0: {}", door.0, answer.text());
    }
}

#[test]
fn a_content_coding_on_any_line_is_refused_wherever_a_body_is_read() {
    let gateway = gateway();
    for door in doors(&gateway).into_iter().filter(|door| door.2 == "POST") {
        for lines in [
            &["Content-Encoding: gzip"][..],
            &["Content-Encoding: identity, gzip"][..],
            &["Content-Encoding: gzip, identity"][..],
            &["Content-Encoding: identity", "Content-Encoding: gzip"][..],
            &["Content-Encoding: gzip", "Content-Encoding: identity"][..],
        ] {
            let lines = [lines, &["Content-Length: 100"]].concat();
            let (answer, _) = ask(&door, "1.1", &lines);
            assert_eq!(answer.head.status, 415, "{}: {lines:?}: {}", door.0, answer.text());
        }
    }
}
