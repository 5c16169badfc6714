//! The host of apps: an official SDK client and the official host bridge in a browser.

use std::path::Path;

use serde_json::{Value, json};

use super::super::PeerFolders;
use super::super::program::LineProgram;
use super::AppServer;
use crate::harness::Gateway;

/// A running host, and the number of lines that it has said.
#[derive(Debug)]
pub(super) struct AppHost(LineProgram, usize);

impl AppHost {
    /// Starts a host in front of the gateway.
    pub(super) fn start(peers: &PeerFolders, gateway: &Gateway, browser: &Path) -> Self {
        let url = format!("http://{}/mcp", gateway.address);
        let job = json!({"browser": browser, "target": {"url": url, "token": gateway.token()}});
        let program = LineProgram::start(peers, gateway, "apps-host.mjs", &job, "the host of apps");
        program.wait_for("the host", |said| said.iter().find(|line| line["ready"].is_string()).map(|_| ()));
        Self(program, 1)
    }

    /// Connects a client of that era that declares Apps at a path behind `/mcp`, and returns what
    /// the gateway declares to it.
    pub(super) fn connect(&mut self, era: &str, path: &str) -> Value {
        let greeting = self.does(&json!({"do": "connect", "era": era, "path": path}));
        assert!(greeting["failed"].is_null(), "{era}: {greeting}");
        greeting
    }

    /// Sends a command and returns the host's answer to it.
    pub(super) fn does(&mut self, command: &Value) -> Value {
        self.0.tell(command);
        let said = self.0.wait_for(&command.to_string(), |said| said.get(self.1).cloned());
        self.1 += 1;
        said
    }
}

/// Calls a tool and renders its view.
pub(super) fn open_view(host: &mut AppHost, tool: &str) -> Value {
    let opened = host.does(&json!({"do": "open", "name": tool}));
    assert!(opened["failed"].is_null(), "{tool}: {opened}");
    opened
}

/// Presses the button of the open view and waits until the view shows a text of that pattern.
pub(super) fn press(host: &mut AppHost, server: AppServer, pattern: &str) -> Value {
    host.does(&json!({"do": "press", "press": server.button, "text": server.shows, "matches": pattern}))
}
