//! The daemon for a case, with the values of its placeholders.

use std::time::Duration;

use serde_json::{Value, json};

use super::case::Case;
use super::consent::{self, HeldApproval};
use crate::tools::harness::{Gateway, GatewaySetup, headend};
use crate::tools::mcp::{ClientEra, Mcp, OpenCall};
use crate::tools::process::eventually;
use crate::tools::upstream::{Fake, InputLog, toml_array};

/// Token of the second caller.
const TOKEN_B: &str = "token-of-the-second-caller-0123456789";
/// One call at a time and one waiting call: keys of `[server.limits]`.
const ONE_CALL: &str = "[server.limits]\nmax-in-flight = 1\nqueue = 1\nqueue-timeout = \"60s\"\n";

/// A daemon in front of the upstream `fx`.
#[derive(Debug)]
pub(super) struct CorpusGateway {
    pub(super) gateway: Gateway,
    pub(super) log: InputLog,
}

/// Connections that the case needs while it is played, and that are checked afterwards.
#[derive(Debug, Default)]
pub(super) struct CaseConnections {
    pub(super) fill: Vec<(String, String)>,
    clients: Vec<Mcp>,
    undisturbed: Vec<Undisturbed>,
}

#[derive(Debug)]
enum Undisturbed {
    /// A stream that must stay open.
    Stream(OpenCall),
    /// A call that must complete.
    Call(OpenCall),
    /// A session that must still be served.
    Session(Box<Mcp>),
    /// An approval that must still be open.
    Question(Box<HeldApproval>),
}

impl CorpusGateway {
    /// Starts a daemon with one caller.
    pub(super) fn plain() -> Self {
        Self::with(GatewaySetup::new())
    }

    fn with(setup: GatewaySetup) -> Self {
        let log = InputLog::new(&setup.world.path("work"), "fx");
        let fake = Fake::stdio("both").with("--name", "fx").logging(&log);
        let gateway = setup.fake("fx", &fake).toml(RULES).start();
        gateway.wait_for_tools(&["fx__echo"]);
        Self { gateway, log }
    }

    /// Starts a daemon of its own for a case that needs another configuration.
    pub(super) fn of(case: &Case) -> Option<Self> {
        let setup = case.text("setup");
        let many = setup.contains("many-caller") || case.mentions("_B}");
        if many {
            let mut setup = GatewaySetup::new().env("SECOND_TOKEN", TOKEN_B);
            let mut tables = "[server.auth]\ntokens = { second = { env = \"SECOND_TOKEN\" } }\n".to_owned();
            if let Some(caps) = case.member("caps").as_object() {
                tables.push_str("[server.limits]\n");
                for (key, value) in caps {
                    tables.push_str(&format!("{key} = {value}\n"));
                }
            }
            if case.text("setup").contains("bucket emptied") {
                // Slower than the case says, so that the bucket is still empty on a busy machine.
                tables = tables.replace("20/s", "20/m");
            }
            setup = setup.server(&tables);
            if case.mentions("${CURSOR_B}") {
                setup = setup.fake("many", &Fake::stdio("legacy").with("--tools", "1900"));
            }
            return Some(Self::with(with_consent(case, setup)));
        }
        if consent::concerns(case) {
            return Some(Self::with(with_consent(case, GatewaySetup::new())));
        }
        match setup {
            "max_inflight reached, queue full" => Some(Self::with(GatewaySetup::new().server(ONE_CALL))),
            "no upstream offers completions" => {
                let setup = GatewaySetup::new();
                let log = InputLog::new(&setup.world.path("work"), "fx");
                let command = toml_array([headend(), "demo", "time"]);
                let gateway = setup.toml(&format!("[upstreams.fx]\ncommand = {command}")).start();
                eventually("the demo is up", || !gateway.modern().tool_names().is_empty());
                Some(Self { gateway, log })
            }
            _ => None,
        }
    }

    fn second(&self, era: ClientEra) -> Mcp {
        Mcp::http(self.gateway.address, Some(TOKEN_B.to_owned()), era)
    }

    /// Creates a client of the first caller with these capabilities.
    pub(super) fn first_with(&self, era: ClientEra, capabilities: Value) -> Mcp {
        Mcp::http_at(self.gateway.address, self.gateway.token(), era, "/mcp", capabilities)
    }

    /// Creates a client of the second caller with these capabilities.
    pub(super) fn second_with(&self, era: ClientEra, capabilities: Value) -> Mcp {
        Mcp::http_at(self.gateway.address, Some(TOKEN_B.to_owned()), era, "/mcp", capabilities)
    }

    /// Opens connections that the case needs, and fills in its placeholders.
    pub(super) fn prepare(&self, case: &Case) -> CaseConnections {
        let mut prepared = CaseConnections::default();
        let era = ClientEra::Legacy(case.revision());
        let mut fill = |name: &str, value: String| prepared.fill.push((format!("${{{name}}}"), value));
        fill("HOST", self.gateway.address.to_string());
        fill("TOKEN", self.gateway.token().unwrap_or_default());
        fill("TOKEN_B", TOKEN_B.to_owned());
        if case.mentions("${SESSION_DELETED}") {
            let ended = self.gateway.client(era);
            assert!(matches!(ended.end_session(), 200..=204), "a session can be ended");
            fill("SESSION_DELETED", ended.session().unwrap());
        }
        if case.mentions("${CURSOR_B}") {
            self.gateway.wait_for_tools(&["many__extra_1899"]);
            let page = self.second(ClientEra::Modern).request("tools/list", json!({}));
            let cursor =
                page.result()["nextCursor"].as_str().expect("a list of 1900 tools has a second page").to_owned();
            fill("CURSOR_B", cursor);
        }
        if case.mentions("${10000_URIS}") {
            let uris: Vec<String> = (5..10_000).map(|n| format!("fx+file:///{n}")).collect();
            fill("10000_URIS", uris.join("\",\""));
        }
        if case.mentions("${SESSION_B}") {
            let client = self.second(era);
            fill("SESSION_B", client.session().unwrap());
            prepared.undisturbed.push(Undisturbed::Session(Box::new(client)));
        }
        if case.mentions("${SESSION}") {
            let client = self.gateway.client(era);
            prepared.fill.push(("${SESSION}".to_owned(), client.session().unwrap()));
            prepared.clients.push(client);
        }
        if consent::concerns(case) {
            let (fill, asked) = consent::prepare(self, case);
            prepared.fill.extend(fill);
            prepared.undisturbed.extend(asked.map(|asked| Undisturbed::Question(Box::new(asked))));
        }
        self.arrange(case, &mut prepared);
        prepared
    }

    /// Creates the initial state of the case.
    fn arrange(&self, case: &Case, prepared: &mut CaseConnections) {
        let sleep = |ms: u64| json!({"name": "fx__sleep", "arguments": {"ms": ms}});
        let mut under_way = |client: &mut Mcp, id: u64, ms: u64| {
            let before = self.log.work();
            let call = client.open_as(&json!(id), "tools/call", sleep(ms));
            eventually("the call arrives", || self.log.work() > before);
            prepared.undisturbed.push(Undisturbed::Call(call));
        };
        match case.text("setup") {
            "one GET stream open" => {
                let mut stream = prepared.clients.last().unwrap().listen();
                assert_eq!(stream.head().status, 200);
                prepared.undisturbed.push(Undisturbed::Stream(stream));
            }
            "id 7 already in flight" => {
                let mut client = prepared.clients.pop().unwrap();
                under_way(&mut client, 7, 1_500);
                prepared.clients.push(client);
            }
            "max_inflight reached, queue full" => {
                let mut client = self.gateway.modern();
                under_way(&mut client, 1, 4_000);
                let waiting = client.open_as(&json!(2), "tools/call", sleep(10));
                prepared.undisturbed.push(Undisturbed::Call(waiting));
                eventually("the second call waits", || self.gateway.scrape().contains("headend_calls_waiting 1"));
            }
            "many-caller configuration; the caller's bucket emptied" => {
                // The local user has no such bucket, so the other caller plays this case.
                prepared.fill.retain(|(name, _)| name != "${TOKEN}");
                prepared.fill.push(("${TOKEN}".to_owned(), TOKEN_B.to_owned()));
                let mut client = self.second(ClientEra::Modern);
                let emptied = (0..400).any(|_| client.request("tools/list", json!({})).status == 429);
                assert!(emptied, "400 requests at once are over any limit of 20/s");
            }
            _ => {
                if case.expect("must_not_affect") == Some(&json!("other in-flight id 1")) {
                    under_way(&mut self.gateway.modern(), 1, 800);
                }
            }
        }
    }
}

/// Adds a rule that asks, for cases about approvals.
fn with_consent(case: &Case, setup: GatewaySetup) -> GatewaySetup {
    if consent::concerns(case) { setup.toml(consent::RULES) } else { setup }
}

impl CaseConnections {
    /// Replaces the placeholders. A longer text was generated and has none.
    pub(super) fn filled(&self, bytes: &[u8]) -> Vec<u8> {
        let mut bytes = bytes.to_vec();
        if bytes.len() > 1024 * 1024 {
            return bytes;
        }
        for (name, value) in &self.fill {
            while let Some(at) = bytes.windows(name.len()).position(|window| window == name.as_bytes()) {
                bytes.splice(at..at + name.len(), value.bytes());
            }
        }
        bytes
    }

    /// Returns connections that the case disturbed although it must not.
    pub(super) fn disturbed(&mut self) -> Vec<String> {
        self.undisturbed.iter_mut().filter_map(Undisturbed::look).collect()
    }
}

impl Undisturbed {
    fn look(&mut self) -> Option<String> {
        match self {
            Self::Stream(stream) => match stream.next_within(Duration::from_millis(300)) {
                Err(_) => None,
                Ok(None) => Some("the first stream was ended".to_owned()),
                Ok(Some(message)) => Some(format!("the first stream got {message}")),
            },
            Self::Call(call) => {
                let response = call.response();
                let good = response.get("result").is_some_and(|result| result["isError"] != Value::Bool(true));
                (!good).then(|| format!("the other call was answered {response}"))
            }
            Self::Session(client) => {
                let answer = client.request("ping", json!({}));
                (answer.result() != &json!({})).then(|| format!("the other session got {}", answer.raw))
            }
            Self::Question(asked) => asked.look(),
        }
    }
}

const RULES: &str = r#"
[[policy.rules]]
id = "corpus-denied"
effect = "deny"
tools = ["fx__denied"]
"#;
