//! Official servers behind one gateway, official clients in front of it, over HTTP and over stdio.
//!
//! The peers are not part of this project: `.ci/run` installs them below `target/peers`, or
//! `HEADEND_TEST_PEERS` names another folder. Without them these tests print that they are left
//! out; on the gate (`CI=true`) that is a failure.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;

use rmcp::transport::streamable_http_client::StreamableHttpClientTransportConfig;
use rmcp::transport::{StreamableHttpClientTransport, TokioChildProcess};

use self::bench::Bench;
pub(crate) use self::bench::PeerFolders;
use serde_json::{Value, json};

use crate::harness::headend;
use crate::mcp::MODERN;
use crate::process::eventually;

mod added;
mod apps;
mod bench;
mod consent;
mod dialogue;
mod hosts;
mod instructions;
mod issuers;
mod logins;
mod outsiders;
mod program;
mod replicas;
mod strict;
mod turn;

/// The gateway's face towards a client.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum ClientFace {
    Http,
    /// `headend stdio`, which attaches to the daemon.
    Attached,
    /// `headend stdio --no-daemon`, with upstreams of its own.
    Alone,
}

/// A client program, its era, and the revision that it must report.
type ClientScript = (&'static str, &'static str, Option<&'static str>);

const SCRIPTS: &[ClientScript] = &[
    ("ts-v1.mjs", "legacy", None),
    ("ts-v2.mjs", "legacy", Some("2025-11-25")),
    ("ts-v2.mjs", "auto", Some(MODERN)),
    ("ts-v2.mjs", "modern", Some(MODERN)),
    ("python-sdk.py", "legacy", Some("2025-11-25")),
    ("python-sdk.py", "auto", Some(MODERN)),
    ("python-sdk.py", "modern", Some(MODERN)),
    ("fastmcp-client.py", "legacy", None),
    ("fastmcp-client.py", "auto", None),
];

#[test]
fn official_sdk_clients_use_every_real_server_over_http() {
    every_script(ClientFace::Http, SCRIPTS);
}

#[test]
fn official_sdk_clients_use_every_real_server_over_stdio_attached_to_the_daemon() {
    every_script(ClientFace::Attached, SCRIPTS);
}

#[test]
fn official_sdk_clients_use_every_real_server_over_stdio_alone() {
    let few = [SCRIPTS[0], SCRIPTS[3], SCRIPTS[6]];
    every_script(ClientFace::Alone, &few);
}

#[test]
fn the_inspector_uses_every_real_server_over_both_faces() {
    let Some(bench) = Bench::start() else { return };
    let mut jobs = Vec::new();
    for face in [ClientFace::Http, ClientFace::Attached] {
        for era in ["legacy", "modern"] {
            jobs.push((face, era, None));
            jobs.extend(bench.calls.iter().map(|call| (face, era, Some(call))));
        }
    }
    in_two_lanes(&jobs, |(face, era, call)| bench.inspector(*face, era, *call));
}

#[test]
fn the_official_rust_client_uses_every_real_server_over_both_faces() {
    let Some(bench) = Bench::start() else { return };
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    for modern in [false, true] {
        let config = StreamableHttpClientTransportConfig::with_uri(bench.url())
            .auth_header(bench.gateway.token().unwrap_or_default());
        let http = || StreamableHttpClientTransport::from_config(config);
        runtime.block_on(async { Box::pin(bench.rmcp(http(), modern, "http")).await });
        let mut command = tokio::process::Command::new(headend());
        command.args(&bench.command(ClientFace::Attached)[1..]).env_clear().envs(bench.gateway.world.environment());
        let stdio = || TokioChildProcess::new(command).unwrap();
        runtime.block_on(async { Box::pin(bench.rmcp(stdio(), modern, "stdio")).await });
    }
}

#[test]
fn progress_and_cancellation_of_a_real_servers_long_call_are_that_calls_alone() {
    const TOOL: &str = "every__trigger-long-running-operation";
    let Some((gateway, log)) = Bench::everything() else { return };
    let (mut asking, mut silent) = (gateway.legacy(), gateway.legacy());
    let arguments = json!({"duration": 1, "steps": 4});
    let with_token = json!({"name": TOOL, "arguments": arguments, "_meta": {"progressToken": "mine"}});
    let mut call = asking.open("tools/call", with_token);
    let other = silent.call(TOOL, arguments);
    assert!(!other.is_error() && other.notices.is_empty(), "{:?}", other.notices);
    let mut notices = 0;
    let answer = loop {
        let message = call.next().expect("the call is answered");
        if message["method"] != "notifications/progress" {
            break message;
        }
        assert_eq!(message["params"]["progressToken"], "mine", "{message}");
        notices += 1;
    };
    assert!(notices >= 2, "{notices} notices");
    assert!(answer["result"]["content"].is_array(), "{answer}");

    let call = asking.open("tools/call", json!({"name": TOOL, "arguments": {"duration": 60, "steps": 60}}));
    let sent = || log.lines_with(&["tools/call", "\"duration\":60"]);
    eventually("the call arrives", || sent().len() == 1);
    asking.notify("notifications/cancelled", json!({"requestId": call.id}));
    eventually("the cancellation arrives", || log.count("notifications/cancelled") == 1);
    let sent: Value = serde_json::from_str(&sent()[0]).unwrap();
    let cancelled: Value = serde_json::from_str(&log.lines_with(&["notifications/cancelled"])[0]).unwrap();
    assert_eq!(cancelled["params"]["requestId"], sent["id"]);
}

fn every_script(face: ClientFace, scripts: &[ClientScript]) {
    let Some(bench) = Bench::start() else { return };
    in_two_lanes(scripts, |script| bench.script(face, script));
}

/// Runs each job; two at a time, because each starts a runtime.
fn in_two_lanes<T: Sync>(jobs: &[T], run: impl Fn(&T) -> Vec<String> + Sync) {
    let next = AtomicUsize::new(0);
    let wrong: Vec<String> = thread::scope(|scope| {
        let lane = || {
            let mut wrong = Vec::new();
            while let Some(job) = jobs.get(next.fetch_add(1, Ordering::SeqCst)) {
                wrong.extend(run(job));
            }
            wrong
        };
        let lanes = [scope.spawn(lane), scope.spawn(lane)];
        lanes.into_iter().flat_map(|lane| lane.join().unwrap()).collect()
    });
    assert!(wrong.is_empty(), "\n{}", wrong.join("\n"));
}
