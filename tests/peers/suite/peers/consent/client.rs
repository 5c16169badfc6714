//! Client programs that take orders line by line.

use serde_json::{Value, json};

use super::super::bench::{face_command, face_environment};
pub(super) use super::super::program::LineProgram;
use super::super::{ClientFace, PeerFolders};
use crate::harness::Gateway;

/// The library that a client is written with.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Sdk {
    /// The first generation of the TypeScript SDK, which speaks 2025-11-25.
    TypeScript1,
    /// The second generation of the TypeScript SDK, which speaks 2026-07-28 as the Python SDK does.
    TypeScript2,
    Python,
}

impl Sdk {
    pub(super) fn is_modern(self) -> bool {
        self != Self::TypeScript1
    }
}

/// The end of a call, as the client program reports it.
#[derive(Debug)]
pub(super) struct ReportedEnd(pub(super) Value);

impl ReportedEnd {
    pub(super) fn text(&self) -> &str {
        assert_eq!(self.0["isError"], false, "{}", self.0);
        self.0["text"].as_str().unwrap()
    }

    /// Returns the reason of the refusal.
    pub(super) fn refusal(&self) -> &Value {
        assert_eq!(self.0["isError"], true, "{}", self.0);
        &self.0["refusal"]
    }

    pub(super) fn reason(&self) -> &str {
        self.refusal()["reason"].as_str().unwrap()
    }
}

/// A client of the gateway, and the person before it.
#[derive(Debug)]
pub(super) struct ApprovingClient {
    program: LineProgram,
    calls: u64,
}

impl ApprovingClient {
    pub(super) fn start(
        peers: &PeerFolders,
        gateway: &Gateway,
        sdk: Sdk,
        face: ClientFace,
        capabilities: &str,
    ) -> Self {
        let target = match face {
            ClientFace::Http => return Self::of(peers, gateway, sdk, gateway.token(), capabilities),
            ClientFace::Attached | ClientFace::Alone => {
                let mut environment = face_environment(gateway);
                environment["SECOND_TOKEN"] = json!(crate::consenting::TOKEN);
                json!({"command": face_command(gateway, face), "env": environment})
            }
        };
        Self::connect(peers, gateway, sdk, &target, capabilities)
    }

    /// Starts a client over HTTP, as the caller with that token.
    pub(super) fn of(
        peers: &PeerFolders,
        gateway: &Gateway,
        sdk: Sdk,
        token: Option<String>,
        capabilities: &str,
    ) -> Self {
        let target = json!({"url": format!("http://{}/mcp", gateway.address), "token": token});
        Self::connect(peers, gateway, sdk, &target, capabilities)
    }

    pub(super) fn connect(
        peers: &PeerFolders,
        gateway: &Gateway,
        sdk: Sdk,
        target: &Value,
        capabilities: &str,
    ) -> Self {
        let capabilities: Value = serde_json::from_str(capabilities).unwrap();
        let (script, name) = match sdk {
            Sdk::TypeScript1 => ("consent.mjs", "v1"),
            Sdk::TypeScript2 => ("consent.mjs", "v2"),
            Sdk::Python => ("consent.py", "python"),
        };
        let job = json!({"sdk": name, "era": "modern", "target": target, "capabilities": capabilities, "rounds": 3});
        let at = format!("{sdk:?}, {target}, {capabilities}");
        let program = LineProgram::start(peers, gateway, script, &job, &at);
        let protocol =
            program.wait_for("the connection", |said| said.iter().find_map(|line| line.get("protocol").cloned()));
        let wanted = if sdk.is_modern() { json!("2026-07-28") } else { json!("2025-11-25") };
        assert!(protocol == wanted || (protocol.is_null() && !sdk.is_modern()), "{at}: {protocol}");
        Self { program, calls: 0 }
    }

    /// Starts a call; the person gives these answers, one for each question.
    pub(super) fn begin(&mut self, name: &str, arguments: &Value, answers: &[&str]) -> u64 {
        self.order(json!({"do": "call", "name": name, "arguments": arguments, "answers": answers}))
    }

    /// Orders something that ends like a call.
    pub(super) fn order(&mut self, mut order: Value) -> u64 {
        self.calls += 1;
        order["call"] = json!(self.calls);
        self.program.tell(&order);
        self.calls
    }

    /// Sends an order that has no result of its own.
    pub(super) fn tell(&mut self, line: &Value) {
        self.program.tell(line);
    }

    /// Waits until so many responses of its own accord have been sent.
    pub(super) fn responded(&self, count: usize) {
        let sent = |said: &[Value]| said.iter().filter(|line| line["responded"].is_string()).count();
        self.program.wait_for("the end of a response", |said| (sent(said) >= count).then_some(()));
    }

    pub(super) fn end(&self, call: u64) -> ReportedEnd {
        self.program.wait_for("the end of a call", |said| {
            said.iter().find(|line| line["done"] == call).map(|line| ReportedEnd(line.clone()))
        })
    }

    /// Makes a call with a person who gives those answers, and returns its end. Checks that there
    /// were exactly so many questions.
    pub(super) fn call(&mut self, name: &str, arguments: &Value, answers: &[&str]) -> ReportedEnd {
        let call = self.begin(name, arguments, answers);
        let done = self.end(call);
        assert_eq!(self.questions(call).len(), answers.len(), "{name} {arguments}: {:?}", self.program.said());
        done
    }

    /// Returns the questions so far in the course of that call.
    pub(super) fn questions(&self, call: u64) -> Vec<Value> {
        questions(&self.program.said(), call)
    }

    /// Waits for a question of that call, the first being 0.
    pub(super) fn question(&self, call: u64, nth: usize) -> Value {
        self.program.wait_for("a question", |said| questions(said, call).get(nth).cloned())
    }

    /// Waits until the client learns that a page is done.
    pub(super) fn completed(&self) -> Value {
        self.program.wait_for("a completion", |said| said.iter().find_map(|line| line.get("complete").cloned()))
    }
}

fn questions(said: &[Value], call: u64) -> Vec<Value> {
    said.iter().filter(|line| line["call"] == call).filter_map(|line| line.get("asked").cloned()).collect()
}
