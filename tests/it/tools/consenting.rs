//! A gateway whose calls need approvals, and its operator, for tests.
#![allow(dead_code, reason = "a tool of several grounds, of which each uses its own part")]

use serde_json::Value;

use super::harness::{Gateway, GatewaySetup};
use super::mcp::{ClientEra, Mcp};
use super::upstream::{Fake, InputLog};

/// A second caller besides the local one.
pub(crate) const TOKEN: &str = "token-of-the-second-caller-0123456789";

/// A gateway that asks for an approval of every call of one server, `fx`.
#[derive(Debug)]
pub(crate) struct ApprovalGateway {
    pub(crate) gateway: Gateway,
    pub(crate) log: InputLog,
}

impl ApprovalGateway {
    pub(crate) fn new() -> Self {
        Self::with("", "")
    }

    /// Starts the gateway. `consent` are lines of `[policy.consent]`, `more` further tables.
    pub(crate) fn with(consent: &str, more: &str) -> Self {
        Self::of(GatewaySetup::new(), consent, more)
    }

    /// Starts the gateway like [`ApprovalGateway::with`], from a setup with further lines.
    pub(crate) fn of(setup: GatewaySetup, consent: &str, more: &str) -> Self {
        let log = InputLog::new(&setup.world.path("work"), "fx");
        Self::logging(setup, log, consent, more)
    }

    /// Starts a gateway with the same server as this one.
    pub(crate) fn beside(&self, more: &str) -> Self {
        Self::logging(GatewaySetup::new(), self.log.clone(), "", more)
    }

    fn logging(setup: GatewaySetup, log: InputLog, consent: &str, more: &str) -> Self {
        let setup = setup
            .second_caller(TOKEN)
            .policy(&format!("default = \"ask\"\n[policy.consent]\nper-minute = 100\nmax-open = 100\n{consent}"));
        let gateway = setup.fake("fx", &Fake::stdio("legacy").logging(&log)).toml(more).start();
        gateway.wait_for_tools(&["fx__echo"]);
        Self { gateway, log }
    }

    pub(crate) fn client(&self, era: ClientEra, capabilities: Value) -> Mcp {
        Mcp::http_at(self.gateway.address, self.gateway.token(), era, "/mcp", capabilities)
    }

    /// Returns the arguments of the calls that reached the server, in order.
    pub(crate) fn called(&self) -> Vec<Value> {
        let lines = self.log.lines_with(&["\"method\":\"tools/call\""]);
        let calls = lines.iter().filter_map(|line| serde_json::from_str::<Value>(line).ok());
        calls.map(|call| call["params"]["arguments"].clone()).collect()
    }

    /// Returns the audit log's records of this event.
    pub(crate) fn audit(&self, event: &str) -> Vec<Value> {
        let read = || {
            let output = self.gateway.world.run(&["audit", "tail", "-n", "1000", "--json"]);
            assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
            let text = String::from_utf8_lossy(&output.stdout).into_owned();
            let records = text.lines().map(|line| serde_json::from_str::<Value>(line).unwrap());
            records.filter(|record| record["event"] == event).collect::<Vec<_>>()
        };
        read()
    }
}

/// Returns the ids of the open approvals.
pub(crate) fn pending(stage: &ApprovalGateway) -> Vec<String> {
    let output = stage.gateway.world.run(&["approvals", "list", "--json"]);
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let listed: Value = serde_json::from_slice(&output.stdout).unwrap();
    let approvals = listed["approvals"].as_array().cloned().unwrap_or_default();
    approvals.iter().map(|approval| approval["id"].as_str().unwrap().to_owned()).collect()
}

/// Checks that a refusal's text tells a model to stop, and gives it no way to continue.
pub(crate) fn for_a_model(text: &str) {
    assert!(text.contains("Stop here and tell the user") && text.contains("Do not work around this"), "{text}");
    for forbidden in ["headend a", "headend d", "http", "`", "/approvals"] {
        assert!(!text.contains(forbidden), "{forbidden}: {text}");
    }
}

pub(crate) fn headend(stage: &ApprovalGateway, args: &[&str]) -> String {
    let output = stage.gateway.world.run(args);
    assert!(output.status.success(), "{args:?}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8_lossy(&output.stdout).into_owned()
}
