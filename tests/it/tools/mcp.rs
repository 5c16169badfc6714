//! A minimal MCP client of either era over HTTP or stdio, for tests.
#![allow(dead_code, reason = "a tool of both grounds, of which each uses its own part")]

use std::net::SocketAddr;

use serde_json::{Value, json};

use self::answer::read_answer;
pub(crate) use self::answer::{McpAnswer, OpenCall};
use super::http::{self, EventReader, TestConnection};
use super::stdio::Pipe;

#[path = "mcp/answer.rs"]
mod answer;

/// The revision without sessions.
pub(crate) const MODERN: &str = "2026-07-28";

/// The era and revision of a client.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ClientEra {
    /// The era with `initialize` and a session, with this revision.
    Legacy(&'static str),
    /// The era in which every request is self-contained.
    Modern,
}

impl ClientEra {
    /// The last revision with sessions.
    pub(crate) const LEGACY: Self = Self::Legacy("2025-11-25");
    /// Both eras, for tests that hold for either.
    pub(crate) const BOTH: [Self; 2] = [Self::LEGACY, Self::Modern];
}

/// Returns the kinds of input among capabilities that the gateway declared; its own sessions
/// declare extensions too.
pub(crate) fn kinds_of_input(capabilities: &Value) -> Value {
    let mut kinds = capabilities.clone();
    kinds.as_object_mut().map(|kinds| kinds.remove("extensions"));
    kinds
}

#[derive(Debug)]
enum ClientLink {
    Http(ClientHttp),
    Stdio(Box<Pipe>),
}

impl ClientLink {
    const fn to(address: SocketAddr, token: Option<String>) -> Self {
        Self::Http(ClientHttp { address, token, conn: None, session: None })
    }
}

#[derive(Debug)]
struct ClientHttp {
    address: SocketAddr,
    token: Option<String>,
    conn: Option<TestConnection>,
    session: Option<String>,
}

/// A client of the gateway.
#[derive(Debug)]
pub(crate) struct Mcp {
    link: ClientLink,
    era: ClientEra,
    next_id: u64,
    /// The client's own name.
    name: String,
    pub(crate) capabilities: Value,
    pub(crate) path: String,
    pub(crate) user_agent: String,
    /// The server's description in its answer to `initialize`.
    pub(crate) greeting: Value,
}

impl Mcp {
    /// Creates a client over HTTP; in the legacy era it opens its session.
    pub(crate) fn http(address: SocketAddr, token: Option<String>, era: ClientEra) -> Self {
        Self::http_at(address, token, era, "/mcp", json!({}))
    }

    /// Creates a client like [`Mcp::http`], at another path and with capabilities.
    pub(crate) fn http_at(
        address: SocketAddr,
        token: Option<String>,
        era: ClientEra,
        path: &str,
        capabilities: Value,
    ) -> Self {
        Self::new(ClientLink::to(address, token), era, "it", path, capabilities)
    }

    /// Creates a client like [`Mcp::http`], with this name.
    pub(crate) fn http_named(address: SocketAddr, token: Option<String>, era: ClientEra, name: &str) -> Self {
        Self::new(ClientLink::to(address, token), era, name, "/mcp", json!({}))
    }

    /// Creates a client over the pipes of a `headend stdio`.
    pub(crate) fn stdio(pipe: Pipe, era: ClientEra) -> Self {
        Self::stdio_with(pipe, era, json!({}))
    }

    /// Creates a client like [`Mcp::stdio`], with capabilities.
    pub(crate) fn stdio_with(pipe: Pipe, era: ClientEra, capabilities: Value) -> Self {
        Self::new(ClientLink::Stdio(Box::new(pipe)), era, "it", "/mcp", capabilities)
    }

    fn new(link: ClientLink, era: ClientEra, name: &str, path: &str, capabilities: Value) -> Self {
        let mut client = Self {
            link,
            era,
            next_id: 0,
            name: name.to_owned(),
            capabilities,
            path: path.to_owned(),
            user_agent: "headend-tests/1".to_owned(),
            greeting: Value::Null,
        };
        if let ClientEra::Legacy(revision) = era {
            client.initialize(revision);
        }
        client
    }

    fn initialize(&mut self, revision: &str) {
        let params = json!({"protocolVersion": revision, "capabilities": self.capabilities,
            "clientInfo": {"name": self.name, "version": "1"}});
        let answer = self.request("initialize", params);
        self.greeting = answer.result().clone();
        if let ClientLink::Http(http) = &mut self.link {
            http.session = answer.head.header("mcp-session-id").map(str::to_owned);
        }
        self.notify("notifications/initialized", json!({}));
    }

    /// Continues at another address, without a new handshake.
    pub(crate) fn follow(&mut self, to: SocketAddr) {
        if let ClientLink::Http(http) = &mut self.link {
            (http.address, http.conn) = (to, None);
        }
    }

    /// Presents another token from now on.
    pub(crate) fn present(&mut self, token: String) {
        if let ClientLink::Http(http) = &mut self.link {
            http.token = Some(token);
        }
    }

    /// Returns the legacy session's id.
    pub(crate) fn session(&self) -> Option<String> {
        match &self.link {
            ClientLink::Http(http) => http.session.clone(),
            ClientLink::Stdio(_) => None,
        }
    }

    /// Returns the process at the other end of the pipes.
    pub(crate) fn pipe(&mut self) -> &mut Pipe {
        match &mut self.link {
            ClientLink::Stdio(pipe) => pipe,
            ClientLink::Http(_) => panic!("a client over HTTP has no pipe"),
        }
    }

    /// Adds the members to parameters that the era requires.
    pub(crate) fn dress(&self, params: Value) -> Value {
        if self.era != ClientEra::Modern {
            return params;
        }
        let mut params = dressed(params, &self.capabilities);
        params["_meta"]["io.modelcontextprotocol/clientInfo"]["name"] = json!(self.name);
        params
    }

    /// Returns the header fields of a request with this method and parameters.
    pub(crate) fn headers(&self, method: &str, params: &Value) -> Vec<(String, String)> {
        let ClientLink::Http(http) = &self.link else {
            return Vec::new();
        };
        let mut headers = vec![
            ("Host", http.address.to_string()),
            ("User-Agent", self.user_agent.clone()),
            ("Content-Type", "application/json".to_owned()),
            ("Accept", "application/json, text/event-stream".to_owned()),
        ];
        headers.extend(http.token.as_ref().map(|token| ("Authorization", format!("Bearer {token}"))));
        match self.era {
            ClientEra::Modern => {
                headers.push(("MCP-Protocol-Version", MODERN.to_owned()));
                headers.push(("Mcp-Method", method.to_owned()));
                let named = match method {
                    "tools/call" | "prompts/get" => params.get("name"),
                    "resources/read" => params.get("uri"),
                    "tasks/get" | "tasks/update" | "tasks/cancel" => params.get("taskId"),
                    _ => None,
                };
                headers.extend(named.and_then(Value::as_str).map(|name| ("Mcp-Name", name.to_owned())));
            }
            ClientEra::Legacy(revision) => {
                if let Some(session) = &http.session {
                    headers.push(("Mcp-Session-Id", session.clone()));
                    headers.push(("MCP-Protocol-Version", revision.to_owned()));
                }
            }
        }
        headers.into_iter().map(|(name, value)| (name.to_owned(), value)).collect()
    }

    fn fresh_id(&mut self) -> Value {
        self.next_id += 1;
        json!(self.next_id)
    }

    /// Makes one request with a fresh id.
    pub(crate) fn request(&mut self, method: &str, params: Value) -> McpAnswer {
        let id = self.fresh_id();
        self.request_as(&id, method, params)
    }

    /// Makes one request with this id.
    pub(crate) fn request_as(&mut self, id: &Value, method: &str, params: Value) -> McpAnswer {
        let params = self.dress(params);
        let headers = self.headers(method, &params);
        let body = json!({"jsonrpc": "2.0", "id": id, "method": method, "params": params}).to_string();
        self.exchange(id, &headers, &body)
    }

    /// Makes one request with exactly this body.
    pub(crate) fn exchange(&mut self, id: &Value, headers: &[(String, String)], body: &str) -> McpAnswer {
        match &mut self.link {
            ClientLink::Stdio(pipe) => {
                pipe.send(body.as_bytes());
                pipe.answer(id, http::PATIENCE)
            }
            ClientLink::Http(http) => {
                let (address, conn) = (http.address, http.conn.take());
                let mut conn = conn.unwrap_or_else(|| TestConnection::open(address).unwrap());
                conn.send(&http::request("POST", &self.path, headers, body.as_bytes())).unwrap();
                let answer = read_answer(&mut conn).unwrap_or_else(|error| panic!("no answer to {body}: {error}"));
                if answer.head.header("connection").is_none_or(|value| !value.eq_ignore_ascii_case("close")) {
                    http.conn = Some(conn);
                }
                answer
            }
        }
    }

    /// Sends one notification.
    pub(crate) fn notify(&mut self, method: &str, params: Value) {
        let params = self.dress(params);
        let headers = self.headers(method, &params);
        let body = json!({"jsonrpc": "2.0", "method": method, "params": params}).to_string();
        self.post(&headers, &body);
    }

    /// Answers a request of the server with a result.
    pub(crate) fn respond(&mut self, id: &Value, result: Value) {
        self.respond_with(id, "result", result);
    }

    /// Answers a request of the server with this `result` or `error`.
    pub(crate) fn respond_with(&mut self, id: &Value, member: &str, value: Value) {
        let headers = self.headers("", &json!({}));
        let body = json!({"jsonrpc": "2.0", "id": id, member: value}).to_string();
        self.post(&headers, &body);
    }

    /// Sends a message that has no answer.
    fn post(&mut self, headers: &[(String, String)], body: &str) {
        match &mut self.link {
            ClientLink::Stdio(pipe) => pipe.send(body.as_bytes()),
            ClientLink::Http(http) => {
                let address = http.address;
                let conn = http.conn.get_or_insert_with(|| TestConnection::open(address).unwrap());
                conn.send(&http::request("POST", &self.path, headers, body.as_bytes())).unwrap();
                let answer = conn.response().unwrap();
                assert_eq!(answer.head.status, 202, "{body}: {}", answer.text());
            }
        }
    }

    /// Makes a request on a connection of its own, whose answer the test reads piece by piece.
    pub(crate) fn open(&mut self, method: &str, params: Value) -> OpenCall {
        let id = self.fresh_id();
        self.open_as(&id, method, params)
    }

    /// Makes a request like [`Mcp::open`], with this id.
    pub(crate) fn open_as(&self, id: &Value, method: &str, params: Value) -> OpenCall {
        let params = self.dress(params);
        let headers = self.headers(method, &params);
        let body = json!({"jsonrpc": "2.0", "id": id, "method": method, "params": params}).to_string();
        let mut conn = self.connect();
        conn.send(&http::request("POST", &self.path, &headers, body.as_bytes())).unwrap();
        OpenCall { id: id.clone(), conn, head: None, events: EventReader::default() }
    }

    /// Opens the stream of a legacy session for messages outside of requests, and waits until it is
    /// open: earlier messages are lost.
    pub(crate) fn listen(&self) -> OpenCall {
        let mut stream = self.get(&[]);
        stream.head();
        stream
    }

    /// Resumes the stream after the event of this id.
    pub(crate) fn resume(&self, last: &str) -> OpenCall {
        self.get(&[("Last-Event-ID".to_owned(), last.to_owned())])
    }

    fn get(&self, more: &[(String, String)]) -> OpenCall {
        let mut headers = self.headers("", &Value::Null);
        headers.retain(|(name, _)| name != "Content-Type");
        headers.extend_from_slice(more);
        let mut conn = self.connect();
        conn.send(&http::request("GET", &self.path, &headers, b"")).unwrap();
        OpenCall { id: Value::Null, conn, head: None, events: EventReader::default() }
    }

    fn connect(&self) -> TestConnection {
        match &self.link {
            ClientLink::Http(http) => TestConnection::open(http.address).unwrap(),
            ClientLink::Stdio(_) => panic!("streams of their own need HTTP"),
        }
    }

    /// Ends the legacy session and returns the status.
    pub(crate) fn end_session(&self) -> u16 {
        let headers = self.headers("", &Value::Null);
        let mut conn = self.connect();
        conn.send(&http::request("DELETE", &self.path, &headers, b"")).unwrap();
        conn.head().unwrap().status
    }

    /// Calls a tool.
    pub(crate) fn call(&mut self, name: &str, arguments: Value) -> McpAnswer {
        self.request("tools/call", json!({"name": name, "arguments": arguments}))
    }

    /// Reads all pages of a list.
    pub(crate) fn list(&mut self, method: &str, member: &str) -> Vec<Value> {
        let mut items = Vec::new();
        let mut cursor = Value::Null;
        loop {
            let params = if cursor.is_null() { json!({}) } else { json!({"cursor": cursor}) };
            let answer = self.request(method, params);
            let result = answer.result();
            items.extend(result[member].as_array().cloned().unwrap_or_default());
            cursor = result.get("nextCursor").cloned().unwrap_or(Value::Null);
            if cursor.is_null() {
                return items;
            }
        }
    }

    /// Returns the names of all tools.
    pub(crate) fn tool_names(&mut self) -> Vec<String> {
        names(&self.list("tools/list", "tools"))
    }
}

/// Adds the members to parameters that the modern era requires.
pub(crate) fn dressed(mut params: Value, capabilities: &Value) -> Value {
    let meta = &mut params["_meta"];
    meta["io.modelcontextprotocol/protocolVersion"] = json!(MODERN);
    meta["io.modelcontextprotocol/clientInfo"] = json!({"name": "it", "version": "1"});
    meta["io.modelcontextprotocol/clientCapabilities"] = capabilities.clone();
    params
}

/// Returns the `name` of each item.
pub(crate) fn names(items: &[Value]) -> Vec<String> {
    items.iter().filter_map(|item| item["name"].as_str().map(str::to_owned)).collect()
}
