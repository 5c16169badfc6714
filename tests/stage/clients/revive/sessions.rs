//! Tests of sessions of legacy clients over HTTP: which continue after a restart, and with what
//! state.

use super::*;
use crate::stage::http;
use crate::stage::mcp::OpenCall;
use crate::stage::old_client::OldClient;
use crate::stage::{now, pass};

/// Starts a daemon in front of one server, with a second caller.
fn before(server: &str) -> Gateway {
    let gateway = GatewaySetup::new()
        .second_caller(TOKEN)
        .server(server)
        .fake("fx", &Fake::stdio("both"))
        .toml("[profiles.work]\nupstreams = [\"fx\"]")
        .start();
    gateway.wait_for_tools(&["fx__echo"]);
    gateway
}

fn second(gateway: &Gateway, era: ClientEra) -> Mcp {
    Mcp::http(gateway.address, Some(TOKEN.to_owned()), era)
}

/// Returns the header fields of that client's request, for the daemon's current address.
fn headers(gateway: &Gateway, client: &Mcp, method: &str) -> Vec<(String, String)> {
    let mut headers = client.headers(method, &Value::Null);
    headers.retain(|(name, _)| name != "Host");
    headers.push(("Host".to_owned(), gateway.address.to_string()));
    headers
}

/// Sends a ping in that client's session, as this caller and on this path. Returns the status.
fn ping(gateway: &Gateway, client: &Mcp, token: Option<&str>, path: &str) -> u16 {
    let mut headers = headers(gateway, client, "ping");
    if let Some(token) = token {
        headers.retain(|(name, _)| name != "Authorization");
        headers.push(("Authorization".to_owned(), format!("Bearer {token}")));
    }
    let mut conn = http::TestConnection::open(gateway.address).unwrap();
    let body = json!({"jsonrpc": "2.0", "id": 1, "method": "ping"}).to_string();
    conn.send(&http::request("POST", path, &headers, body.as_bytes())).unwrap();
    conn.head().unwrap().status
}

#[test]
fn a_session_goes_on_for_its_own_caller_and_nobody_else() {
    for by in [Signal::TERM, Signal::KILL] {
        let gateway = before("");
        let mut clients: Vec<Mcp> = ["2024-11-05", "2025-03-26", "2025-06-18", "2025-11-25"]
            .map(|revision| gateway.client(ClientEra::Legacy(revision)))
            .into();
        clients.push(second(&gateway, ClientEra::LEGACY));
        let ids: Vec<String> = clients.iter().map(|client| client.session().unwrap()).collect();
        for id in &ids {
            assert!(id.len() <= 128 && id.bytes().all(|byte| byte.is_ascii_graphic()), "{id}");
        }
        let mut gateway = again(gateway, by, None);
        for round in 0..2 {
            gateway.wait_for_tools(&["fx__echo"]);
            let local = gateway.token().unwrap();
            for client in &mut clients {
                client.follow(gateway.address);
            }
            let (theirs, ours) = clients.split_last().unwrap();
            assert_eq!(ping(&gateway, theirs, Some(&local), "/mcp"), 404, "another caller's, {by:?} {round}");
            assert_eq!(ping(&gateway, &ours[0], Some(TOKEN), "/mcp"), 404, "another caller's, {by:?} {round}");
            assert_eq!(ping(&gateway, &ours[0], None, "/mcp/work"), 404, "another profile, {by:?} {round}");
            for client in &mut clients {
                let echoed = client.call("fx__echo", json!({"text": "on"}));
                assert_eq!(echoed.text(), "on", "{by:?} {round}: {}", echoed.raw);
            }
            // A second restart: the session continues from what was stored.
            gateway = again(gateway, by, None);
        }
        let now: Vec<String> = clients.iter().map(|client| client.session().unwrap()).collect();
        assert_eq!(now, ids, "{by:?}");
    }
}

#[test]
fn what_has_ended_stays_ended() {
    let gateway = before("limits.max-sessions = 3\nlimits.session-idle = \"1s\"");
    let idle = gateway.legacy();
    eventually("it expires", || {
        // Each ping is a use.
        pass(Duration::from_millis(2300));
        ping(&gateway, &idle, None, "/mcp") == 404
    });
    let config = fs::read_to_string(&gateway.config).unwrap().replace("session-idle = \"1s\"", "session-idle = \"1h\"");
    assert!(gateway.reload(&config).status.success());
    let deleted = gateway.legacy();
    assert_eq!(deleted.end_session(), 204);
    let evicted = gateway.legacy();
    // Uses are ordered by whole seconds.
    pass(Duration::from_millis(1100));
    let others = [gateway.legacy(), gateway.legacy(), gateway.legacy()];
    for ended in [&idle, &deleted, &evicted] {
        assert_eq!(ping(&gateway, ended, None, "/mcp"), 404);
    }
    let [first, last, live] = &others;
    assert_eq!(first.end_session(), 204);
    // Killed at once: what was answered is on disk.
    assert_eq!(last.end_session(), 204);
    let mut gateway = again(gateway, Signal::KILL, None);
    for by in [Signal::TERM, Signal::KILL] {
        for (label, ended) in [("idle", &idle), ("deleted", &deleted), ("evicted", &evicted), ("last", last)] {
            assert_eq!(ping(&gateway, ended, None, "/mcp"), 404, "{label}, before {by:?}");
        }
        assert_eq!(ping(&gateway, live, None, "/mcp"), 200, "before {by:?}");
        gateway = again(gateway, by, None);
    }
    let [_, _, mut live] = others;
    live.follow(gateway.address);
    assert_eq!(live.end_session(), 204, "the first that it says after a restart");
    assert_eq!(ping(&gateway, &live, None, "/mcp"), 404);
    let gateway = again(gateway, Signal::KILL, None);
    assert_eq!(ping(&gateway, &live, None, "/mcp"), 404);
}

#[test]
fn a_session_grows_no_younger_by_a_restart_and_ends_with_its_token() {
    let gateway = before("limits.session-max-age = \"4s\"");
    let begun = now();
    let (old, theirs) = (gateway.legacy(), second(&gateway, ClientEra::LEGACY));
    let mut gateway = again(gateway, Signal::KILL, None);
    let (ours, other) = (ping(&gateway, &old, None, "/mcp"), ping(&gateway, &theirs, None, "/mcp"));
    if (now() - begun) < Duration::from_secs(3) {
        assert_eq!((ours, other), (200, 200));
    }
    pass(Duration::from_secs(5).saturating_sub(now() - begun));
    gateway = again(gateway, Signal::KILL, None);
    assert_eq!(ping(&gateway, &old, None, "/mcp"), 404);

    let gateway = before("");
    let theirs = second(&gateway, ClientEra::LEGACY);
    let (world, path) = (gateway.world.clone(), gateway.config.clone());
    drop(gateway);
    let other = "another-token-of-the-second-caller";
    let environment = [("SECOND_TOKEN".to_owned(), other.to_owned())];
    let gateway = Gateway::start(world, Some(path), &["serve"], &environment);
    assert_eq!(ping(&gateway, &theirs, Some(other), "/mcp"), 404, "the same caller with another token");
    assert_eq!(ping(&gateway, &theirs, None, "/mcp"), 401);
}

#[test]
fn sessions_of_before_need_room_like_new_ones() {
    let setup = |limits: &str| GatewaySetup::new().second_caller(TOKEN).server(limits).fake("fx", &Fake::stdio("both"));
    let gateway = setup("").start();
    let clients = [second(&gateway, ClientEra::LEGACY), second(&gateway, ClientEra::LEGACY)];
    let gateway = again(gateway, Signal::KILL, Some(&setup("limits.sessions-per-caller = 1").text()));
    assert_eq!(ping(&gateway, &clients[0], None, "/mcp"), 200);
    assert_eq!(ping(&gateway, &clients[1], None, "/mcp"), 503, "it may come again");
    let [mut first, other] = clients;
    first.follow(gateway.address);
    assert_eq!(first.end_session(), 204);
    assert_eq!(ping(&gateway, &other, None, "/mcp"), 200);
    assert_eq!(ping(&gateway, &first, None, "/mcp"), 404);
    let page = gateway.scrape();
    assert!(page.contains("headend_client_sessions 1\n"), "{page}");
}

/// Returns the methods of a stream's messages, up to the update of that resource.
fn until_update(stream: &mut OpenCall, uri: &str, patience: Duration) -> Vec<String> {
    let mut told = Vec::new();
    while let Ok(Some(message)) = stream.next_within(patience) {
        told.push(message["method"].as_str().unwrap_or_default().to_owned());
        if message["params"]["uri"] == uri {
            break;
        }
    }
    told
}

#[test]
fn a_revived_session_has_no_session_grants_and_no_open_questions() {
    let setup = GatewaySetup::new().policy("default = \"ask\"\n[policy.consent]\nper-minute = 100");
    let gateway = setup.fake("fx", &Fake::stdio("both")).start();
    gateway.wait_for_tools(&["fx__echo"]);
    let capabilities = json!({"elicitation": {}});
    let mut client = Mcp::http_at(gateway.address, gateway.token(), ClientEra::LEGACY, "/mcp", capabilities);
    let params = json!({"name": "fx__echo", "arguments": {"text": "x"}});
    let allow = json!({"action": "accept", "content": {"decision": "session"}});
    let mut call = client.open("tools/call", params.clone());
    let asked = call.next().unwrap();
    assert_eq!(asked["method"], "elicitation/create", "{asked}");
    client.respond(&asked["id"], allow.clone());
    assert_eq!(call.response()["result"]["content"][0]["text"], "x");
    assert_eq!(client.call("fx__echo", json!({"text": "y"})).text(), "y", "for the session");
    let mut open = client.open("tools/call", json!({"name": "fx__env", "arguments": {}}));
    let before = open.next().unwrap();
    assert_eq!(before["method"], "elicitation/create", "{before}");

    let gateway = again(gateway, Signal::KILL, None);
    gateway.wait_for_tools(&["fx__echo"]);
    client.follow(gateway.address);
    let mut call = client.open("tools/call", params);
    let now = call.next().unwrap();
    assert_eq!(now["method"], "elicitation/create", "it is asked again, so its capabilities are known: {now}");
    for old in [&asked["id"], &before["id"]] {
        assert_ne!(&now["id"], old);
        client.respond(old, allow.clone());
    }
    assert!(call.next_within(Duration::from_millis(500)).is_err(), "an answer to an earlier question answers none");
    client.respond(&now["id"], allow);
    assert_eq!(call.response()["result"]["content"][0]["text"], "x");
}

#[test]
fn a_client_that_begins_anew_and_one_of_the_old_transport_are_not_revived() {
    let gateway = before("legacy-sse = true");
    let client = gateway.legacy();
    let old = OldClient::connect(&gateway, gateway.token(), "/sse");
    let posted = |gateway: &Gateway| {
        let mut headers = headers(gateway, &client, "ping");
        headers.retain(|(name, _)| !name.starts_with('M'));
        let path = format!("/messages?sessionId={}", old.session());
        let mut conn = http::TestConnection::open(gateway.address).unwrap();
        let body = json!({"jsonrpc": "2.0", "id": 1, "method": "ping"}).to_string();
        conn.send(&http::request("POST", &path, &headers, body.as_bytes())).unwrap();
        conn.head().unwrap().status
    };
    assert_eq!(posted(&gateway), 202);
    let gateway = again(gateway, Signal::KILL, None);
    assert_eq!(posted(&gateway), 404, "such a session ends with its stream");
    let headers = headers(&gateway, &client, "initialize");
    let mut conn = http::TestConnection::open(gateway.address).unwrap();
    let info = json!({"name": "it", "version": "1"});
    let params = json!({"protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": info});
    let body = json!({"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": params}).to_string();
    conn.send(&http::request("POST", "/mcp", &headers, body.as_bytes())).unwrap();
    let answer = conn.response().unwrap();
    assert_eq!(answer.head.status, 200, "{}", answer.text());
    assert!(answer.head.header("mcp-session-id").is_some_and(|id| Some(id) != client.session().as_deref()));
    assert_eq!(ping(&gateway, &client, None, "/mcp"), 200, "nor has the other session ended");
}

#[test]
fn a_session_that_nobody_used_since_the_restart_ends_like_any_idle_one() {
    let idle = |time: &str| format!("limits.session-idle = \"{time}\"");
    let gateway = before(&idle("1h"));
    let (left, used) = (gateway.legacy(), gateway.legacy());
    let short = fs::read_to_string(&gateway.config).unwrap().replace("session-idle = \"1h\"", "session-idle = \"1s\"");
    let begun = now();
    let gateway = again(gateway, Signal::KILL, Some(&short));
    let status = ping(&gateway, &used, None, "/mcp");
    assert!(status == 200 || (now() - begun) > Duration::from_secs(1), "{status}");
    pass(Duration::from_millis(1500));
    assert_eq!(ping(&gateway, &left, None, "/mcp"), 404);
    // Killed at once: a client that was told of the end does not find the session again.
    let long = short.replace("session-idle = \"1s\"", "session-idle = \"1h\"");
    let gateway = again(gateway, Signal::KILL, Some(&long));
    assert_eq!(ping(&gateway, &left, None, "/mcp"), 404);
}

#[test]
fn a_session_whose_token_was_taken_back_stays_ended_when_the_token_returns() {
    let gateway = before("");
    let theirs = second(&gateway, ClientEra::LEGACY);
    let with = fs::read_to_string(&gateway.config).unwrap();
    let without = with.replace("auth.tokens.second", "auth.tokens.third");
    let reloaded = gateway.reload(&without);
    assert!(reloaded.status.success(), "{}", crate::stage::process::said(&reloaded));
    assert_eq!(ping(&gateway, &theirs, Some(TOKEN), "/mcp"), 404, "the token is another caller's now");
    let gateway = again(gateway, Signal::KILL, Some(&with));
    assert_eq!(ping(&gateway, &theirs, Some(TOKEN), "/mcp"), 404);
}

#[test]
fn a_store_that_was_made_anew_takes_no_session_of_the_one_before() {
    let gateway = before("");
    let (deleted, live) = (gateway.legacy(), gateway.legacy());
    assert_eq!(deleted.end_session(), 204);
    let gateway = anew(gateway);
    for (label, session) in [("ended", &deleted), ("live", &live)] {
        assert_eq!(ping(&gateway, session, None, "/mcp"), 404, "{label}");
    }
}
