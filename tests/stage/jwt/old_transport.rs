//! Tests of callers with JWTs over HTTP+SSE, whose streams cannot be resumed.

use std::time::Duration;

use serde_json::{Value, json};

use super::IssuerStage;
use crate::stage::old_client::{OldClient, ask};
use crate::stage::{now, pass};

fn connect(stage: &IssuerStage, token: &str, path: &str) -> OldClient {
    let mut client = OldClient::connect(&stage.gateway, Some(token.to_owned()), path);
    client.initialize("2024-11-05");
    assert_eq!(client.post(&json!({"jsonrpc": "2.0", "method": "notifications/initialized"})).0, 202);
    client
}

fn sleep(ms: u64) -> Value {
    json!({"name": "fx__sleep", "arguments": {"ms": ms}})
}

#[test]
fn messages_of_a_profiles_session_are_for_a_token_of_the_profile() {
    let stage = IssuerStage::new();
    let [at_endpoint, at_profile] = ["/mcp", "/mcp/p"].map(|path| stage.token("alice", path, 300, 1));
    let (mut whole, mut profile) = (connect(&stage, &at_endpoint, "/sse"), connect(&stage, &at_profile, "/sse/p"));
    for client in [&mut whole, &mut profile] {
        assert_eq!(client.request("tools/call", sleep(1))["result"]["content"][0]["text"], "slept");
    }
    let ping = json!({"jsonrpc": "2.0", "id": 1, "method": "ping"}).to_string();
    let elsewhere = profile.endpoint.replace("/messages/p", "/messages");
    for (label, token, endpoint, status) in [
        ("the endpoint's token at the profile", &at_endpoint, &profile.endpoint, 401),
        ("the profile's token at the endpoint", &at_profile, &whole.endpoint, 401),
        ("the profile's session at the endpoint", &at_endpoint, &elsewhere, 404),
        ("no such profile", &at_profile, &profile.endpoint.replace("/p?", "/q?"), 404),
    ] {
        assert_eq!(ask(stage.gateway.address, Some(token), "POST", endpoint, &ping).0, status, "{label}");
    }
    let refused = |path: &str| {
        let answer = stage.ask("POST", path, None, None);
        assert_eq!(answer.head.status, 401);
        answer.head.header("www-authenticate").unwrap().to_owned()
    };
    let challenge = refused(&profile.endpoint);
    assert!(challenge.contains("/.well-known/oauth-protected-resource/mcp/p"), "{challenge}");
    assert_eq!(challenge, refused("/messages/p?sessionId=unknown"));
}

#[test]
fn calls_in_flight_are_answered_after_their_token_has_expired() {
    let stage = IssuerStage::new();
    let mut client = connect(&stage, &stage.token("alice", "/mcp", 30, 1), "/sse");
    pass(Duration::from_secs(60));
    let begun = now();
    client.send("tools/call", sleep(55_000));
    let answer = client.message();
    assert_eq!(answer["result"]["content"][0]["text"], "slept", "{answer}");
    assert!(now() - begun >= Duration::from_secs(55));
    let ping = json!({"jsonrpc": "2.0", "id": 1, "method": "ping"});
    assert_eq!(client.post(&ping).0, 401, "the token has expired");
}

#[test]
fn a_stream_goes_on_with_the_next_token_and_says_nothing_until_then() {
    let stage = IssuerStage::new();
    let mut client = connect(&stage, &stage.token("alice", "/mcp", 30, 1), "/sse");
    pass(Duration::from_secs(120));
    // The lists change.
    let mut other = stage.client(&stage.token("bob", "/mcp", 300, 1), crate::stage::mcp::ClientEra::Modern, "/mcp");
    assert!(!other.call("fx__mutate", json!({})).is_error());
    assert!(!client.ends_within(Duration::from_secs(60)), "the stream stays open");
    client.token = Some(stage.token("alice", "/mcp", 300, 2));
    client.send("ping", json!({}));
    let heard = [client.message(), client.message()];
    assert!(heard.iter().any(|message| message["method"] == "notifications/tools/list_changed"), "{heard:?}");
    assert!(heard.iter().any(|message| message["id"] == client.next_id), "{heard:?}");
}

#[test]
fn a_stream_whose_token_has_expired_ends_as_idle_sessions_do() {
    let stage = IssuerStage::new();
    let mut client = connect(&stage, &stage.token("alice", "/mcp", 30, 1), "/sse");
    let begun = now();
    assert!(client.ends_within(Duration::from_secs(3600)));
    let minutes = (now() - begun).as_secs() / 60;
    assert!((30..=32).contains(&minutes), "{minutes}");
    assert!(stage.gateway.scrape().contains("headend_client_sessions 0"));
}
