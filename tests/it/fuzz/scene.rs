//! A daemon under attack, with neighbours that must not be affected.

use std::fs;
use std::time::Duration;

use serde_json::{Value, json};

use crate::tools::harness::{Gateway, GatewaySetup};
use crate::tools::mcp::Mcp;
use crate::tools::process::{alive, eventually, within};
use crate::tools::upstream::Fake;

/// Most descriptors that may be open at the end in addition to those at the start: connections kept
/// for the next request.
const MORE_FILES: usize = 48;
/// Time limit for returning resources: idle connections to upstreams are kept for 50 seconds.
const GIVEN_BACK: Duration = Duration::from_secs(110);
/// Most memory in bytes that may be in use at the end in addition to that at the start.
const MORE_MEMORY: u64 = 96 << 20;

/// Limits that many clients from one address do not reach.
const LIMITS: &str = "[server.limits]\ncaller-rate = \"1000000/s\"\ncaller-burst = 1000000\nauth-failures = \"1000000/m\"\n\
    connections-per-ip = 1000\nconnections-per-caller = 1000\nsessions-per-caller = 4000\nhead-timeout = \"1s\"\nbody-timeout = \"1s\"\n\
    first-byte-timeout = \"1s\"\nwrite-timeout = \"2s\"\n";

/// A daemon with a well-behaved upstream and two of its clients.
pub(super) struct Scene {
    pub(super) gateway: Gateway,
    neighbours: Vec<Mcp>,
    files: usize,
    memory: u64,
    said: u64,
}

impl Scene {
    pub(super) fn new(setup: GatewaySetup) -> Self {
        let setup = setup.server("legacy-sse = true").server(LIMITS).fake("fx", &Fake::stdio("both"));
        let gateway = setup.start();
        gateway.wait_for_tools(&["fx__echo"]);
        let neighbours = vec![gateway.legacy(), gateway.modern()];
        let mut scene = Self { gateway, neighbours, files: 0, memory: 0, said: 0 };
        scene.look();
        scene.files = scene.open_files();
        scene.memory = scene.gateway.resident();
        scene
    }

    fn open_files(&self) -> usize {
        fs::read_dir(format!("/proc/{}/fd", self.gateway.pid())).map_or(0, Iterator::count)
    }

    /// Checks that the daemon lives and has not panicked, and that its neighbours get their own
    /// answers, one for each request.
    pub(super) fn look(&mut self) {
        assert!(alive(self.gateway.pid()), "the daemon ended");
        for client in &mut self.neighbours {
            self.said += 1;
            let said = format!("neighbour {}", self.said);
            let answer = client.call("fx__echo", json!({"text": said}));
            assert_eq!(answer.message.pointer("/result/content/0/text"), Some(&json!(said)), "{}", answer.raw);
            assert_eq!(answer.notices, Vec::<Value>::new());
        }
        let panicked = self.gateway.stderr.all().into_iter().find(|line| line.contains("panicked"));
        assert_eq!(panicked, None);
    }

    /// Checks at the end that all neighbours are still served, and that resources were returned.
    pub(super) fn end(mut self) {
        self.look();
        within(GIVEN_BACK, "the descriptors are given back", || self.open_files() <= self.files + MORE_FILES);
        let memory = self.gateway.resident();
        assert!(memory < self.memory + MORE_MEMORY, "{} MiB became {} MiB", self.memory >> 20, memory >> 20);
        self.gateway.signal(rustix::process::Signal::TERM);
        let status = self.gateway.wait(Duration::from_secs(60));
        assert!(status.is_some_and(|status| status.success()), "{status:?}");
        eventually("the log is read", || !self.gateway.stderr.all().is_empty());
        let panicked = self.gateway.stderr.all().into_iter().find(|line| line.contains("panicked"));
        assert_eq!(panicked, None);
    }
}
