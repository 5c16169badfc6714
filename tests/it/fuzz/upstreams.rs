//! Fuzz tests with upstreams that damage their messages, over each transport.

use std::fmt::Write as _;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::Duration;

use fastrand::Rng;
use serde_json::value::RawValue;
use serde_json::{Value, json};

use super::scene::Scene;
use super::{Round, relay};
use crate::tools::harness::{Gateway, GatewaySetup};
use crate::tools::mcp::ClientEra;
use crate::tools::process::said;
use crate::tools::upstream::{Fake, Listening};

/// Steps between two reloads, which restart every upstream.
const STEPS: u64 = 12;

/// The servers that listen, and the tables of all damaged upstreams.
struct Upstreams {
    listening: Vec<(&'static str, &'static str, Listening)>,
}

impl Upstreams {
    fn new() -> Self {
        let listening = [
            ("json", "auto", Fake::http("both")),
            ("stream", "streamable-http", Fake::http("legacy").with("--answers", "sse")),
            ("modern", "auto", Fake::http("modern").with("--answers", "sse").behaving("asks")),
            ("old", "sse", Fake::sse()),
        ];
        Self { listening: listening.map(|(name, transport, fake)| (name, transport, fake.spawn())).into() }
    }

    fn tables(&self, seed: u64) -> String {
        let mut tables = String::new();
        let common = "call-timeout = \"1s\"\ncall-max = \"2s\"\nstart-timeout = \"2s\"\non-change = \"accept\"\n";
        for (name, era) in [("both", "both"), ("legacy", "legacy"), ("next", "modern")] {
            let fake = Fake::stdio(era).behaving("asks").with("--damage", (seed * 3).to_string());
            let _infallible = writeln!(tables, "[upstreams.{name}]\ncommand = {}\n{common}", fake.command());
        }
        for (name, transport, server) in &self.listening {
            let (address, path) = server.url.trim_start_matches("http://").split_once('/').unwrap();
            let relay = relay::start(address.parse::<SocketAddr>().unwrap(), seed);
            let _infallible = writeln!(
                tables,
                "[upstreams.{name}]\nurl = \"http://{relay}/{path}\"\ntransport = \"{transport}\"\n{common}"
            );
        }
        tables
    }
}

#[test]
fn damaged_upstreams_cost_their_own_callers_alone() {
    let mut round = Round::new("upstreams", STEPS);
    let upstreams = Upstreams::new();
    let mut scene = Scene::new(GatewaySetup::new());
    let base = std::fs::read_to_string(&scene.gateway.config).unwrap();
    let (good, bad) = (AtomicU64::new(0), AtomicU64::new(0));
    let mut seed = round.seed * 1_000_000;
    while let Some(step) = round.step() {
        if step % STEPS == 1 {
            // Another seed in its table makes it another upstream, which is restarted.
            seed += 1;
            let reloaded = scene.gateway.reload(&format!("{base}\n{}", upstreams.tables(seed)));
            assert!(reloaded.status.success(), "{}", said(&reloaded));
            // Enough time for upstreams that complete their handshake; the others are part of the
            // test.
            thread::sleep(Duration::from_millis(500));
        }
        thread::scope(|scope| {
            for lane in 0..4 {
                let (gateway, good, bad) = (&scene.gateway, &good, &bad);
                scope.spawn(move || drive(gateway, Rng::with_seed(seed * 1000 + step * 4 + lane), good, bad));
            }
        });
        scene.look();
    }
    assert!(good.into_inner() > 0 && bad.into_inner() > 0, "some calls pass, and some damage is noticed");
    scene.end();
}

/// Makes a few requests that reach damaged upstreams. Each is answered once, with a result or an
/// error.
fn drive(gateway: &Gateway, mut rng: Rng, good: &AtomicU64, bad: &AtomicU64) {
    let capabilities = json!({"elicitation": {"form": {}, "url": {}}, "sampling": {"tools": {}}, "roots": {}});
    let era = if rng.bool() { ClientEra::LEGACY } else { ClientEra::Modern };
    let mut client = crate::tools::mcp::Mcp::http_at(gateway.address, gateway.token(), era, "/mcp", capabilities);
    for _ in 0..2 {
        let name = ["both", "legacy", "next", "json", "stream", "modern", "old"][rng.usize(0..7)];
        let tool = |tool: &str, arguments: Value| {
            let params =
                json!({"name": format!("{name}__{tool}"), "arguments": arguments, "_meta": {"progressToken": "p"}});
            ("tools/call", params)
        };
        let (method, params) = match rng.u8(0..9) {
            0..2 => tool("echo", json!({"text": "damaged"})),
            2 => tool("progress", json!({"steps": 4})),
            3 => tool("inquire", json!({"kind": "form"})),
            4 => tool("mutate", json!({})),
            5 => ("prompts/get", json!({"name": format!("{name}__p"), "arguments": {"a": "b"}})),
            6 => ("resources/read", json!({"uri": format!("{name}+fx://doc/1")})),
            7 => ("tools/list", json!({})),
            _ => (
                "completion/complete",
                json!({"ref": {"type": "ref/prompt", "name": format!("{name}__p")}, "argument": {"name": "a", "value": "b"}}),
            ),
        };
        let answer = client.request(method, params);
        if answer.message.is_null() {
            // Half of a surrogate pair passes through: it is JSON, but no readable text.
            assert!(serde_json::from_str::<&RawValue>(&answer.raw).is_ok(), "{}", answer.raw);
            assert!(answer.raw.contains("\\ud"), "{}", answer.raw);
            continue;
        }
        assert!(answer.message.get("result").is_some() != answer.message.get("error").is_some(), "{}", answer.raw);
        let passed = answer.message.get("result").is_some() && !answer.is_error();
        if passed { good } else { bad }.fetch_add(1, Ordering::Relaxed);
    }
    if era != ClientEra::Modern {
        client.end_session();
    }
}
