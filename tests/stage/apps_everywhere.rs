//! Tests that an app crosses from a server of each era and transport to a client of each revision
//! and transport.

use serde_json::{Value, json};

use crate::stage::harness::{Gateway, GatewaySetup};
use crate::stage::mcp::{ClientEra, Mcp};
use crate::stage::old_client::OldClient;
use crate::stage::upstream::{Fake, Patch};

const UI: &str = "io.modelcontextprotocol/ui";
const VIEW: &str = "ui://fx/view.html";

/// A client of one revision over one transport.
enum AppClient {
    Plain(Mcp),
    /// A client of HTTP+SSE.
    Old(OldClient),
}

impl AppClient {
    /// Returns a client of each kind, which declares these capabilities, with its greeting.
    fn all(gateway: &Gateway, capabilities: &Value) -> Vec<(String, Self, Value)> {
        let legacy = ["2024-11-05", "2025-03-26", "2025-06-18", "2025-11-25"].map(ClientEra::Legacy);
        let mut all = Vec::new();
        for era in legacy.into_iter().chain([ClientEra::Modern]) {
            let http = Mcp::http_at(gateway.address, gateway.token(), era, "/mcp", capabilities.clone());
            let pipe = Mcp::stdio_with(gateway.pipe(), era, capabilities.clone());
            for (face, mut client) in [("HTTP", http), ("pipes", pipe)] {
                let greeting = match era {
                    ClientEra::Modern => client.request("server/discover", json!({})).result().clone(),
                    ClientEra::Legacy(_) => client.greeting.clone(),
                };
                all.push((format!("{era:?} by {face}"), Self::Plain(client), greeting));
            }
        }
        let mut old = OldClient::connect(gateway, gateway.token(), "/sse");
        let info = json!({"name": "it", "version": "1"});
        let params = json!({"protocolVersion": "2024-11-05", "capabilities": capabilities, "clientInfo": info});
        let greeting = old.request("initialize", params)["result"].clone();
        old.post(&json!({"jsonrpc": "2.0", "method": "notifications/initialized"}));
        all.push(("HTTP+SSE".to_owned(), Self::Old(old), greeting));
        all
    }

    fn request(&mut self, method: &str, params: Value) -> Value {
        match self {
            Self::Plain(client) => client.request(method, params).message,
            Self::Old(client) => client.request(method, params),
        }
    }

    /// Returns the definition of a tool; null if it is not listed.
    fn tool(&mut self, name: &str) -> Value {
        let listed = self.request("tools/list", json!({}))["result"]["tools"].clone();
        let tool = listed.as_array().unwrap().iter().find(|tool| tool["name"] == name);
        tool.cloned().unwrap_or_default()
    }
}

/// Starts a gateway in front of one server whose tool `echo` names a view that no list has, and
/// whose tool `refresh` is for apps alone.
fn play(label: &str, fake: Fake) {
    let setup = GatewaySetup::new().server("legacy-sse = true");
    let patch = Patch::new(&setup);
    let refresh =
        json!({"name": "refresh", "inputSchema": {"type": "object"}, "_meta": {"ui": {"visibility": ["app"]}}});
    patch.write(&json!({
        "echo": {"_meta": {"ui": {"resourceUri": VIEW}}},
        "more": {"tools": [refresh]},
        "results": {"refresh": {"content": [{"type": "text", "text": "fresh"}]}},
        "reads": {VIEW: {"mimeType": "text/html;profile=mcp-app", "text": "<p>a view"}},
    }));
    let fake = patch.of(fake);
    let server = (!label.contains("stdio")).then(|| fake.spawn());
    let transport = if label.contains("SSE") { "transport = \"sse\"" } else { "" };
    let setup = match &server {
        Some(server) => setup.toml(&format!("[upstreams.fx]\nurl = \"{}\"\n{transport}", server.url)),
        None => setup.fake("fx", &fake),
    };
    let gateway = setup.start();
    gateway.wait_for_tools(&["fx__echo"]);
    let apps = json!({"extensions": {UI: {"mimeTypes": ["text/html;profile=mcp-app"]}}});
    for (client_label, mut client, greeting) in AppClient::all(&gateway, &apps) {
        let at = format!("{client_label}, server {label}");
        assert_eq!(greeting["capabilities"]["extensions"][UI], json!({}), "{at}: {greeting}");
        assert_eq!(client.tool("fx__echo")["_meta"]["ui"]["resourceUri"], VIEW, "{at}");
        assert_eq!(client.tool("fx__refresh")["_meta"]["ui"]["visibility"], json!(["app"]), "{at}");
        let read = client.request("resources/read", json!({"uri": VIEW}));
        assert_eq!(read["result"]["contents"][0]["text"], "<p>a view", "{at}: {read}");
        for name in ["fx__refresh", "refresh"] {
            let called = client.request("tools/call", json!({"name": name, "arguments": {}}));
            assert_eq!(called["result"]["content"][0]["text"], "fresh", "{at}: {name}: {called}");
        }
    }
    for (client_label, mut client, greeting) in AppClient::all(&gateway, &json!({})) {
        let at = format!("{client_label} without apps, server {label}");
        assert!(greeting["capabilities"]["extensions"][UI].is_null(), "{at}: {greeting}");
        assert!(client.tool("fx__echo")["_meta"]["ui"].is_null(), "{at}");
        assert!(client.tool("fx__refresh").is_null(), "{at}");
        for name in ["fx__refresh", "refresh"] {
            let called = client.request("tools/call", json!({"name": name, "arguments": {}}));
            assert_eq!(called["error"]["code"], -32602, "{at}: {name}: {called}");
        }
    }
}

#[test]
fn an_app_of_a_legacy_program_reaches_each_client() {
    play("legacy stdio", Fake::stdio("legacy"));
}

#[test]
fn an_app_of_a_modern_program_reaches_each_client() {
    play("modern stdio", Fake::stdio("modern"));
}

#[test]
fn an_app_of_a_legacy_server_behind_http_reaches_each_client() {
    play("legacy HTTP", Fake::http("legacy"));
}

#[test]
fn an_app_of_a_modern_server_behind_http_reaches_each_client() {
    play("modern HTTP", Fake::http("modern"));
}

#[test]
fn an_app_of_a_server_of_http_and_sse_reaches_each_client() {
    play("HTTP+SSE", Fake::sse());
}
