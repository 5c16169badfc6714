//! A client of HTTP+SSE of 2024-11-05, for tests.
#![allow(dead_code, reason = "a tool of both grounds, of which each uses its own part")]

use std::net::SocketAddr;
use std::time::Duration;

use serde_json::{Value, json};

use super::harness::Gateway;
use super::http::{self, EventReader, StreamEvent, TestConnection};

/// A client of the old transport.
pub(crate) struct OldClient {
    pub(crate) address: SocketAddr,
    pub(crate) token: Option<String>,
    pub(crate) stream: TestConnection,
    pub(crate) events: EventReader,
    pub(crate) endpoint: String,
    pub(crate) next_id: u64,
}

pub(crate) fn fields(address: SocketAddr, token: Option<&str>) -> Vec<(String, String)> {
    let mut fields = vec![("Host".to_owned(), address.to_string())];
    fields.extend(token.map(|token| ("Authorization".to_owned(), format!("Bearer {token}"))));
    fields
}

/// Makes one request on a connection of its own, and returns status and body.
pub(crate) fn ask(address: SocketAddr, token: Option<&str>, method: &str, path: &str, body: &str) -> (u16, String) {
    let mut headers = fields(address, token);
    headers.push(("Content-Type".to_owned(), "application/json".to_owned()));
    let mut conn = TestConnection::open(address).unwrap();
    conn.send(&http::request(method, path, &headers, body.as_bytes())).unwrap();
    let head = conn.head().unwrap();
    if head.is_stream() {
        return (head.status, String::new());
    }
    let mut text = Vec::new();
    while let Some(piece) = conn.piece().unwrap() {
        text.extend(piece);
    }
    (head.status, String::from_utf8(text).unwrap())
}

impl OldClient {
    /// Connects without the handshake.
    pub(crate) fn connect(gateway: &Gateway, token: Option<String>, path: &str) -> Self {
        let address = gateway.address;
        let mut stream = TestConnection::open(address).unwrap();
        stream.send(&http::request("GET", path, &fields(address, token.as_deref()), b"")).unwrap();
        let head = stream.head().unwrap();
        assert!(head.status == 200 && head.is_stream(), "{head:?}");
        let mut events = EventReader::default();
        let first = events.next(&mut stream).unwrap().unwrap();
        assert_eq!(first.name.as_deref(), Some("endpoint"));
        Self { address, token, stream, events, endpoint: first.data, next_id: 0 }
    }

    /// Connects and completes the handshake.
    pub(crate) fn new(gateway: &Gateway) -> Self {
        let mut client = Self::connect(gateway, gateway.token(), "/sse");
        let answer = client.initialize("2024-11-05");
        assert_eq!(answer["result"]["protocolVersion"], "2024-11-05", "{answer}");
        assert_eq!(client.post(&json!({"jsonrpc": "2.0", "method": "notifications/initialized"})).0, 202);
        client
    }

    /// Returns the session id in the endpoint's address.
    pub(crate) fn session(&self) -> &str {
        self.endpoint.split_once("sessionId=").unwrap().1
    }

    pub(crate) fn initialize(&mut self, revision: &str) -> Value {
        let info = json!({"name": "it", "version": "1"});
        let params = json!({"protocolVersion": revision, "capabilities": {}, "clientInfo": info});
        self.request("initialize", params)
    }

    pub(crate) fn post(&self, message: &Value) -> (u16, String) {
        ask(self.address, self.token.as_deref(), "POST", &self.endpoint, &message.to_string())
    }

    pub(crate) fn event(&mut self) -> Option<StreamEvent> {
        self.stream.patience(http::PATIENCE);
        self.events.next(&mut self.stream).unwrap()
    }

    /// Returns whether the stream ends within this time, after any events.
    pub(crate) fn ends_within(&mut self, patience: Duration) -> bool {
        self.stream.patience(patience.max(Duration::from_millis(1)));
        loop {
            match self.events.next(&mut self.stream) {
                Ok(None) => return true,
                Ok(Some(_)) => {}
                Err(_) => return false,
            }
        }
    }

    pub(crate) fn message(&mut self) -> Value {
        let event = self.event().expect("the stream goes on");
        assert_eq!(event.name.as_deref(), Some("message"));
        serde_json::from_str(&event.data).unwrap()
    }

    pub(crate) fn send(&mut self, method: &str, params: Value) {
        self.next_id += 1;
        let message = json!({"jsonrpc": "2.0", "id": self.next_id, "method": method, "params": params});
        assert_eq!(self.post(&message), (202, String::new()));
    }

    pub(crate) fn request(&mut self, method: &str, params: Value) -> Value {
        self.send(method, params);
        loop {
            let message = self.message();
            if message["id"] == self.next_id {
                return message;
            }
        }
    }
}
