//! Tests of tokens that are removed or exchanged while their callers are at work.

use std::time::{Duration, Instant};

use serde_json::json;

use super::reloaded;
use crate::stage::harness::GatewaySetup;
use crate::stage::mcp::{ClientEra, Mcp, OpenCall};
use crate::stage::now;
use crate::stage::old_client::OldClient;
use crate::stage::process::{eventually, within};
use crate::stage::upstream::{Fake, InputLog};

const TOKEN: &str = "token-of-ci-0123456789abcdef";
const OTHER: &str = "another-of-ci-0123456789abcdef";
/// Longest time for which a caller's streams and calls outlive its token.
const SOON: Duration = Duration::from_secs(1);

/// Waits for the end of a stream, and panics if it is still open at `until`.
#[track_caller]
fn ends(stream: &mut OpenCall, until: Instant, what: &str) {
    loop {
        let left = until.saturating_duration_since(now()).max(Duration::from_millis(1));
        match stream.next_within(left) {
            Ok(None) => return,
            Ok(Some(_)) => {}
            Err(error) => panic!("{what} is open still: {error}"),
        }
    }
}

fn client(address: std::net::SocketAddr, token: &str, era: ClientEra) -> Mcp {
    Mcp::http(address, Some(token.to_owned()), era)
}

/// Returns the status that a client without a session gets with that token.
fn status(address: std::net::SocketAddr, token: &str) -> u16 {
    client(address, token, ClientEra::Modern).request("tools/list", json!({})).status
}

#[test]
fn all_that_a_caller_has_open_ends_with_its_token() {
    let setup = GatewaySetup::new();
    let log = InputLog::new(&setup.world.path("work"), "fx");
    let fake = Fake::stdio("legacy").logging(&log);
    let base = |tokens: &str| {
        let limits = "limits.caller-rate = \"100000/s\"\nlimits.caller-burst = 100000";
        GatewaySetup::new()
            .env("CI_TOKEN", TOKEN)
            .env("DEV_TOKEN", "token-of-dev-0123456789abcdef")
            .server(&format!("legacy-sse = true\nauth.tokens.dev = {{ env = \"DEV_TOKEN\" }}\n{tokens}\n{limits}"))
            .fake("fx", &fake)
    };
    let gateway = base("auth.tokens.ci = { env = \"CI_TOKEN\" }").start();
    gateway.wait_for_tools(&["fx__sleep"]);
    let ours = gateway.legacy();
    let mut kept = ours.listen();
    let (mut modern, mut legacy) =
        (client(gateway.address, TOKEN, ClientEra::Modern), client(gateway.address, TOKEN, ClientEra::LEGACY));
    let mut old = OldClient::connect(&gateway, Some(TOKEN.to_owned()), "/sse");
    old.initialize("2024-11-05");
    let mut stream = legacy.listen();
    let mut listening = modern.open("subscriptions/listen", json!({"notifications": {"toolsListChanged": true}}));
    assert_eq!(listening.next().unwrap()["method"], "notifications/subscriptions/acknowledged");
    let sleep = json!({"name": "fx__sleep", "arguments": {"ms": 60_000}});
    let mut calls = [modern.open("tools/call", sleep.clone()), legacy.open("tools/call", sleep.clone())];
    old.send("tools/call", sleep);
    eventually("the calls arrive", || log.count("tools/call") == 3);

    let plan = reloaded(&gateway, &base("").text());
    let until = now() + SOON;
    assert_eq!(plan, "new settings of server.auth; end the sessions of ci");
    ends(&mut stream, until, "the session's stream");
    ends(&mut listening, until, "the subscription");
    for call in &mut calls {
        ends(call, until, "a call");
    }
    assert!(old.ends_within(until.saturating_duration_since(now())), "the stream of HTTP+SSE is open still");
    within(SOON, "the server is told that the calls are off", || log.count("notifications/cancelled") == 3);
    assert_eq!(status(gateway.address, TOKEN), 401);
    assert!(kept.next_within(Duration::from_millis(50)).is_err(), "another caller's stream goes on");
    assert_eq!(gateway.modern().call("fx__echo", json!({"text": "a"})).text(), "a");
}

#[test]
fn a_token_that_is_exchanged_in_its_file_ends_what_the_old_one_opened() {
    let setup = GatewaySetup::new();
    let file = setup.world.write("work/ci", TOKEN);
    let tokens = format!("auth.tokens.ci = {{ file = \"{}\" }}", file.display());
    let gateway = setup.server(&tokens).fake("fx", &Fake::stdio("both")).start();
    gateway.wait_for_tools(&["fx__echo"]);
    let legacy = client(gateway.address, TOKEN, ClientEra::LEGACY);
    let mut stream = legacy.listen();
    assert_eq!(status(gateway.address, OTHER), 401);
    gateway.world.write("work/ci", OTHER);
    assert!(gateway.run(&["reload"]).status.success());
    ends(&mut stream, now() + SOON, "the session's stream");
    assert_eq!(status(gateway.address, TOKEN), 401);
    assert_eq!(client(gateway.address, OTHER, ClientEra::LEGACY).call("fx__echo", json!({"text": "a"})).text(), "a");
}
