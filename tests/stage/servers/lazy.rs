//! Tests of lazy upstreams: started once to be listed, idle between uses, on every transport and in
//! both eras.

use std::fs;
use std::path::PathBuf;
use std::time::Duration;

use rustix::process::Signal;
use serde_json::{Value, json};

use crate::stage::harness::{Gateway, GatewaySetup, TestHome};
use crate::stage::http;
use crate::stage::mcp::{ClientEra, Mcp};
use crate::stage::pass;
use crate::stage::process::{eventually, said};
use crate::stage::upstream::{Fake, InputLog, Listening, example, toml_array};

/// A gateway in front of one lazy upstream.
struct LazyGateway {
    gateway: Gateway,
    record: InputLog,
    /// Patch of the upstream's definitions, read at each list.
    patch: PathBuf,
    /// Line of the upstream's `command` or `url`.
    target: String,
    _running: Option<Listening>,
}

impl LazyGateway {
    fn new(transport: &str, era: &str, idle_stop: &str) -> Self {
        let setup = GatewaySetup::new();
        let folder = setup.world.path("work");
        let (record, patch) = (InputLog::new(&folder, "fx"), folder.join("patch.json"));
        let fake = match transport {
            "stdio" => Fake::stdio(era),
            "http" => Fake::http(era),
            _ => Fake::sse(),
        };
        let fake = fake.logging(&record).with("--patch", patch.to_str().unwrap());
        let running = (transport != "stdio").then(|| fake.spawn());
        let target = match &running {
            Some(running) => format!("url = \"{}\"", running.url),
            None => format!("command = {}", fake.command()),
        };
        let gateway = setup.toml(&lazy(&target, idle_stop)).start();
        Self { gateway, record, patch, target, _running: running }
    }

    /// Waits until the upstream is idle: `status` says so and no process is left.
    fn wait_idle(&self) {
        wait_idle(&self.gateway);
        eventually("no process is left", || self.gateway.programs("fx") == 0);
    }

    /// Returns the number of messages that the upstream got.
    fn heard(&self) -> usize {
        self.record.lines_with(&[]).len()
    }
}

fn lazy(target: &str, idle_stop: &str) -> String {
    format!("[upstreams.fx]\n{target}\nstart = \"lazy\"\nidle-stop = \"{idle_stop}\"\n")
}

fn status(gateway: &Gateway) -> Value {
    let output = gateway.run(&["status", "--json"]);
    serde_json::from_slice(&output.stdout).unwrap_or_else(|_| panic!("{}", said(&output)))
}

fn status_of_upstream(gateway: &Gateway) -> Value {
    status(gateway)["upstreams"][0].clone()
}

fn state(gateway: &Gateway) -> String {
    status_of_upstream(gateway)["state"].as_str().unwrap().to_owned()
}

fn wait_idle(gateway: &Gateway) {
    eventually("it rests", || state(gateway) == "idle");
}

/// Stops the daemon and starts it again, with work in between.
fn again(mut gateway: Gateway, meanwhile: impl FnOnce(&TestHome)) -> Gateway {
    gateway.signal(Signal::TERM);
    assert!(gateway.wait(Duration::from_secs(60)).is_some(), "{}", gateway.story());
    let (world, config) = (gateway.world.clone(), gateway.config.clone());
    meanwhile(&world);
    Gateway::start(world, Some(config), &["serve"], &[])
}

#[test]
fn a_lazy_legacy_process_is_listed_and_rests_between_calls() {
    rests_between_calls("stdio", "legacy");
}

#[test]
fn a_lazy_modern_process_is_listed_and_rests_between_calls() {
    rests_between_calls("stdio", "modern");
}

#[test]
fn a_lazy_legacy_http_server_is_listed_and_rests_between_calls() {
    rests_between_calls("http", "legacy");
}

#[test]
fn a_lazy_modern_http_server_is_listed_and_rests_between_calls() {
    rests_between_calls("http", "modern");
}

#[test]
fn a_lazy_server_of_http_and_sse_is_listed_and_rests_between_calls() {
    rests_between_calls("sse", "legacy");
}

fn rests_between_calls(transport: &str, era: &str) {
    let stage = LazyGateway::new(transport, era, "300ms");
    let gateway = &stage.gateway;
    gateway.wait_for_tools(&["fx__echo"]);
    stage.wait_idle();
    let before = (status(gateway)["generation"].clone(), gateway.modern().request("tools/list", json!({})).raw);
    let heard = stage.heard();
    pass(Duration::from_millis(200));
    assert_eq!(stage.heard(), heard, "a list of a client does not wake it");
    assert!(gateway.scrape().contains(r#"headend_upstream_state{state="idle",upstream="fx"} 1"#));
    let ready = http::get(gateway.metrics.unwrap(), "/readyz").unwrap();
    assert_eq!((ready.head.status, ready.text().trim()), (200, "ready"), "rest is no failure");

    for era in ClientEra::BOTH {
        stage.wait_idle();
        let starts = || status_of_upstream(gateway)["incarnation"].as_u64();
        let before = starts();
        let mut client = gateway.client(era);
        assert_eq!(client.call("fx__echo", json!({"text": "woken"})).text(), "woken", "{era:?}");
        assert_eq!(starts(), before.map(|before| before + 1), "{era:?}: the call started it");
    }
    let mut client = gateway.modern();
    assert_eq!(client.call("fx__sleep", json!({"ms": 600})).text(), "slept", "a call is no idle time");
    stage.wait_idle();

    let after = (status(gateway)["generation"].clone(), client.request("tools/list", json!({})).raw);
    // The ids differ and have the same length.
    assert_eq!((&after.0, after.1.len()), (&before.0, before.1.len()), "clients see no difference");
    assert_eq!(status(gateway)["upstreams"][0]["restarts"], 0, "a rest is no death");
    assert!(gateway.scrape().contains(r#"headend_upstream_restarts_total{upstream="fx"} 0"#));

    let LazyGateway { gateway, record, .. } = stage;
    let mut heard = 0;
    let gateway = again(gateway, |_| heard = record.lines_with(&[]).len());
    gateway.wait_for_tools(&["fx__echo"]);
    assert_eq!(state(&gateway), "idle", "its lists come from disk");
    assert_eq!(record.lines_with(&[]).len(), heard, "nothing asked it");
    assert_eq!(gateway.legacy().call("fx__echo", json!({"text": "again"})).text(), "again");
}

#[test]
fn a_change_while_a_lazy_upstream_rested_is_pinned_before_the_call_that_starts_it() {
    for (transport, era) in [("stdio", "legacy"), ("stdio", "modern"), ("http", "legacy"), ("http", "modern")] {
        for restarted in [false, true] {
            let at = format!("{era} over {transport}, gateway restarted: {restarted}");
            let stage = LazyGateway::new(transport, era, "200ms");
            stage.gateway.wait_for_tools(&["fx__echo"]);
            stage.wait_idle();
            fs::write(&stage.patch, json!({"echo": {"description": "NOBODY-APPROVED-THIS"}}).to_string()).unwrap();
            let LazyGateway { gateway, record, _running, .. } = stage;
            let gateway = if restarted { again(gateway, |_| {}) } else { gateway };
            gateway.wait_for_tools(&["fx__echo"]);
            let answer = gateway.modern().call("fx__echo", json!({"text": "x"}));
            assert!(answer.code().is_some() || answer.is_error(), "{at}: {}", answer.raw);
            assert_eq!(record.count("tools/call"), 0, "{at}: it was sent");
            assert_eq!(gateway.modern().call("fx__write", json!({})).text(), "write", "{at}");
            assert!(!answer.raw.contains("NOBODY-APPROVED-THIS"), "{at}");
        }
    }
}

#[test]
fn a_reload_starts_a_resting_upstream_that_becomes_eager_and_the_other_way_round() {
    for (transport, era) in [("stdio", "legacy"), ("http", "modern")] {
        let stage = LazyGateway::new(transport, era, "1h");
        let gateway = &stage.gateway;
        gateway.wait_for_tools(&["fx__echo"]);
        // An upstream started only for its lists does not wait for `idle-stop`.
        stage.wait_idle();
        let eager = GatewaySetup::new().toml(&format!("[upstreams.fx]\n{}\n", stage.target)).text();
        let plan = gateway.reload(&eager);
        assert!(plan.status.success(), "{}", said(&plan));
        eventually("it is started", || state(gateway) == "ready");
        let plan = gateway.reload(&GatewaySetup::new().toml(&lazy(&stage.target, "200ms")).text());
        assert!(plan.status.success(), "{}", said(&plan));
        stage.wait_idle();
        assert_eq!(gateway.modern().call("fx__echo", json!({"text": "x"})).text(), "x");
    }
}

#[test]
fn an_operator_can_restart_a_lazy_upstream_at_rest() {
    let stage = LazyGateway::new("stdio", "legacy", "200ms");
    stage.gateway.wait_for_tools(&["fx__echo"]);
    stage.wait_idle();
    let heard = stage.heard();
    let restarted = stage.gateway.run(&["restart", "fx"]);
    assert!(restarted.status.success(), "{}", said(&restarted));
    assert!(stage.heard() > heard, "it was started");
    stage.wait_idle();
}

#[test]
fn the_processes_of_clients_end_with_the_rest_of_a_lazy_upstream() {
    let target = format!("command = {}\ninstance = \"per-session\"", Fake::stdio("legacy").command());
    let gateway = GatewaySetup::new().toml(&lazy(&target, "200ms")).start();
    gateway.wait_for_tools(&["fx__echo"]);
    wait_idle(&gateway);
    let mut clients = [gateway.legacy(), gateway.legacy()];
    for _ in 0..2 {
        let [one, two] = clients.each_mut().map(|client| client.call("fx__env", json!({})).text());
        let pid = |text: &str| serde_json::from_str::<Value>(text).unwrap()["pid"].clone();
        assert_ne!(pid(&one), pid(&two), "each has its own");
        wait_idle(&gateway);
        eventually("no process is left", || gateway.programs("fx") == 0);
    }
}

#[test]
fn calls_around_the_moment_of_the_stop_are_all_answered() {
    for (transport, era) in [("stdio", "modern"), ("http", "legacy")] {
        let stage = LazyGateway::new(transport, era, "100ms");
        stage.gateway.wait_for_tools(&["fx__echo"]);
        let mut client = stage.gateway.modern();
        for pause in 94..106 {
            let text = pause.to_string();
            assert_eq!(client.call("fx__echo", json!({"text": text})).text(), text, "{era} over {transport}");
            pass(Duration::from_millis(pause));
        }
        assert_eq!(status(&stage.gateway)["upstreams"][0]["restarts"], 0);
    }
}

#[test]
fn a_lazy_upstream_that_cannot_be_listed_is_down_and_not_idle() {
    let gateway = GatewaySetup::new().toml(&lazy("command = [\"/nowhere/server\"]", "200ms")).start();
    eventually("status says so", || matches!(&*state(&gateway), "down" | "misconfigured"));
    let shown = status(&gateway);
    assert!(shown["upstreams"][0]["last-error"].as_str().is_some_and(|why| why.contains("/nowhere/server")), "{shown}");
}
