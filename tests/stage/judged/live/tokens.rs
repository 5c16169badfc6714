//! Tests of tokens that are removed or exchanged while their callers are at work.

use std::time::{Duration, Instant};

use serde_json::{Value, json};

use super::reloaded;
use crate::stage::harness::{Gateway, GatewaySetup};
use crate::stage::mcp::{ClientEra, Mcp, OpenCall};
use crate::stage::old_client::OldClient;
use crate::stage::process::{eventually, said, within};
use crate::stage::upstream::{Fake, InputLog};
use crate::stage::{now, pass};

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

/// Runs a command and returns what it printed.
#[track_caller]
fn ok(gateway: &Gateway, args: &[&str]) -> String {
    let output = gateway.run(args);
    assert!(output.status.success(), "{args:?}: {}", said(&output));
    String::from_utf8_lossy(&output.stdout).trim().to_owned()
}

#[test]
fn a_stored_token_is_accepted_at_once_and_all_that_it_opened_ends_when_it_is_revoked() {
    let setup = GatewaySetup::new();
    let log = InputLog::new(&setup.world.path("work"), "fx");
    let fake = Fake::stdio("legacy").logging(&log);
    let gateway = setup.server("legacy-sse = true").fake("fx", &fake).start();
    gateway.wait_for_tools(&["fx__sleep"]);
    let token = ok(&gateway, &["tokens", "add", "ci", "--scopes", "a,b c"]);
    assert_eq!(status(gateway.address, &token), 200);
    assert_eq!(status(gateway.address, &token.replace("hdnd_", "hdnd-")), 401);
    let mut kept = gateway.legacy().listen();
    let (mut modern, mut legacy) =
        (client(gateway.address, &token, ClientEra::Modern), client(gateway.address, &token, ClientEra::LEGACY));
    let mut old = OldClient::connect(&gateway, Some(token.clone()), "/sse");
    old.initialize("2024-11-05");
    let mut stream = legacy.listen();
    let sleep = json!({"name": "fx__sleep", "arguments": {"ms": 60_000}});
    let mut calls = [modern.open("tools/call", sleep.clone()), legacy.open("tools/call", sleep.clone())];
    old.send("tools/call", sleep);
    eventually("the calls arrive", || log.count("tools/call") == 3);

    ok(&gateway, &["tokens", "revoke", "ci"]);
    assert_eq!(status(gateway.address, &token), 401, "at once");
    let until = now() + SOON;
    ends(&mut stream, until, "the session's stream");
    for call in &mut calls {
        ends(call, until, "a call");
    }
    assert!(old.ends_within(until.saturating_duration_since(now())), "the stream of HTTP+SSE is open still");
    within(SOON, "the server is told that the calls are off", || log.count("notifications/cancelled") == 3);
    assert!(kept.next_within(Duration::from_millis(50)).is_err(), "another caller's stream goes on");
    let again = ok(&gateway, &["tokens", "add", "ci"]);
    assert_eq!([&again, &token].map(|token| status(gateway.address, token)), [200, 401]);
}

#[test]
fn a_stored_token_expires_in_time_and_its_use_is_listed_to_the_hour() {
    let gateway = GatewaySetup::new().fake("fx", &Fake::stdio("both")).start();
    gateway.wait_for_tools(&["fx__echo"]);
    let token = ok(&gateway, &["tokens", "add", "ci", "--expires", "1m"]);
    let last_used = || {
        let listed: Value = serde_json::from_str(&ok(&gateway, &["tokens", "list", "--json"])).unwrap();
        listed["tokens"][0]["last_used"].clone()
    };
    assert_eq!(last_used(), Value::Null);
    let mut stream = client(gateway.address, &token, ClientEra::LEGACY).listen();
    eventually("the use is listed", || last_used().as_u64().is_some_and(|time| time % 3600 == 0));
    assert_eq!(status(gateway.address, &token), 200);
    pass(Duration::from_secs(60));
    assert_eq!(status(gateway.address, &token), 401);
    ends(&mut stream, now() + 2 * SOON, "the session's stream");
}

#[test]
fn calls_in_flight_outlive_a_stored_token_that_expires_but_not_one_that_is_revoked() {
    let setup = GatewaySetup::new();
    let log = InputLog::new(&setup.world.path("work"), "fx");
    let fake = Fake::stdio("legacy").logging(&log);
    let gateway = setup.server("legacy-sse = true").fake("fx", &fake).start();
    gateway.wait_for_tools(&["fx__sleep"]);
    let token = ok(&gateway, &["tokens", "add", "ci", "--expires", "1m"]);
    let (mut modern, mut legacy) =
        (client(gateway.address, &token, ClientEra::Modern), client(gateway.address, &token, ClientEra::LEGACY));
    let mut old = OldClient::connect(&gateway, Some(token.clone()), "/sse");
    old.initialize("2024-11-05");
    let mut stream = legacy.listen();
    pass(Duration::from_secs(40));
    let call = |ms| json!({"name": "fx__sleep", "arguments": {"ms": ms}});
    let mut calls = [modern.open("tools/call", call(50_000)), legacy.open("tools/call", call(50_000))];
    old.send("tools/call", call(50_000));
    let mut revoked = modern.open("tools/call", call(59_000));
    eventually("the calls arrive", || log.count("tools/call") == 4);
    pass(Duration::from_secs(25));
    assert_eq!(status(gateway.address, &token), 401);
    ends(&mut stream, now() + SOON, "the session's stream");
    for call in &mut calls {
        let answer = call.next_within(Duration::from_secs(60)).unwrap().unwrap();
        assert_eq!(answer["result"]["content"][0]["text"], "slept", "{answer}");
    }
    assert_eq!(old.message()["result"]["content"][0]["text"], "slept");
    ok(&gateway, &["tokens", "revoke", "ci"]);
    ends(&mut revoked, now() + SOON, "a call");
    assert!(old.ends_within(SOON), "the stream of HTTP+SSE is open still");
    assert_eq!(log.count("notifications/cancelled"), 1);
}

#[test]
fn a_token_of_the_configuration_and_a_stored_one_have_no_name_in_common() {
    let setup =
        |tokens: &str| GatewaySetup::new().env("CI_TOKEN", TOKEN).server(tokens).fake("fx", &Fake::stdio("both"));
    let configured = setup("auth.tokens.ci = { env = \"CI_TOKEN\" }");
    let text = configured.text();
    let gateway = setup("").start();
    let token = ok(&gateway, &["tokens", "add", "ci"]);
    for name in ["ci", "local", "uid", "token", "a:b", ""] {
        let refused = gateway.run(&["tokens", "add", name]);
        assert_eq!(refused.status.code(), Some(1), "{name:?}: {}", said(&refused));
    }
    assert_eq!(status(gateway.address, &token), 200);
    reloaded(&gateway, &text);
    assert_eq!(
        [&*token, TOKEN].map(|token| status(gateway.address, token)),
        [401, 200],
        "the configuration's one counts"
    );
    let refused = gateway.run(&["tokens", "add", "ci"]);
    assert!(said(&refused).contains("the configuration has a token"), "{}", said(&refused));
    ok(&gateway, &["tokens", "revoke", "ci"]);
    assert_eq!(status(gateway.address, TOKEN), 200);
}
