//! A server that does what a test says.

use std::collections::VecDeque;

use serde_json::{Value, json};

use crate::mcp::version::{Era, Revision};

/// Returns the revision in a message's `_meta`, or an empty text.
pub(super) fn claim(message: &Value) -> &str {
    message["params"]["_meta"]["io.modelcontextprotocol/protocolVersion"].as_str().unwrap_or_default()
}

/// A scripted server: speaks one revision, lists its tools in pages of two, keeps calls until told
/// to answer.
pub(super) struct Server {
    pub(super) revision: Revision,
    pub(super) tools: Vec<String>,
    /// Requests that wait for the script, oldest first.
    pub(super) calls: VecDeque<Value>,
    pub(super) cancelled: Vec<Value>,
    pub(super) seen: Vec<Value>,
    pub(super) silent: bool,
    /// True for a server that does not answer pings.
    pub(super) deaf: bool,
}

impl Server {
    pub(super) fn answer(&mut self, line: &str) -> Vec<Value> {
        let message: Value = serde_json::from_str(line).unwrap();
        self.seen.push(message.clone());
        let (id, modern) = (message["id"].clone(), self.revision.era() == Era::Modern);
        let result = |result: Value| vec![json!({"jsonrpc": "2.0", "id": id, "result": result})];
        if self.silent {
            return Vec::new();
        }
        match message["method"].as_str().unwrap_or_default() {
            "server/discover" if modern && claim(&message) != self.revision.as_str() => {
                let data = json!({"supported": [self.revision.as_str()], "requested": claim(&message)});
                vec![json!({"jsonrpc": "2.0", "id": id, "error": {"code": -32022, "message": "no", "data": data}})]
            }
            "server/discover" if modern => {
                result(json!({"supportedVersions": [self.revision.as_str()], "capabilities": {"tools": {}}}))
            }
            "initialize" if !modern => result(
                json!({"protocolVersion": self.revision.as_str(), "capabilities": {"tools": {"listChanged": true}}}),
            ),
            "tools/list" => {
                let from: usize = message["params"]["cursor"].as_str().map_or(0, |c| c.parse().unwrap());
                let page: Vec<Value> = self.tools.iter().skip(from).take(2).map(|n| json!({"name": n})).collect();
                let mut answer = json!({"tools": page});
                if from + 2 < self.tools.len() {
                    answer["nextCursor"] = json!((from + 2).to_string());
                }
                result(answer)
            }
            "tools/call" => {
                self.calls.push_back(message);
                Vec::new()
            }
            "notifications/cancelled" => {
                self.cancelled.push(message["params"]["requestId"].clone());
                Vec::new()
            }
            "ping" if self.deaf => Vec::new(),
            method if method.starts_with("notifications/") => Vec::new(),
            _ => vec![json!({"jsonrpc": "2.0", "id": id, "error": {"code": -32601, "message": "no"}})],
        }
    }
}
