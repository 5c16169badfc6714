//! Tests of the rate of a caller's requests and the cost of a batch, over HTTP and HTTP+SSE.

use serde_json::{Value, json};

use crate::stage::harness::GatewaySetup;
use crate::stage::mcp::{ClientEra, Mcp};
use crate::stage::old_client::OldClient;

const TOKEN: &str = "token-of-the-second-caller-0123456789";
/// The only revision with batches.
const BATCHES: &str = "2025-03-26";

/// Sets up a gateway whose callers have ten requests for the whole test.
fn setup() -> GatewaySetup {
    GatewaySetup::new()
        .env("SECOND_TOKEN", TOKEN)
        .server("auth.tokens.second = { env = \"SECOND_TOKEN\" }")
        .server("limits.caller-rate = \"1/h\"\nlimits.caller-burst = 10")
}

/// Returns a batch of `count` pings, and a notification that takes nothing from the rate.
fn pings(count: usize) -> Value {
    let notice = json!({"jsonrpc": "2.0", "method": "notifications/none"});
    let ping = |n: usize| json!({"jsonrpc": "2.0", "id": format!("{count}/{n}"), "method": "ping"});
    (0..count).map(ping).chain([notice]).collect()
}

#[test]
fn each_request_of_a_batch_counts_over_http() {
    let gateway = setup().start();
    // Costs two requests: the initialization.
    let mut client = Mcp::http(gateway.address, Some(TOKEN.to_owned()), ClientEra::Legacy(BATCHES));
    let headers = client.headers("", &json!({}));
    let mut post = |count: usize| client.exchange(&Value::Null, &headers, &pings(count).to_string());
    let answers = post(4);
    assert_eq!((answers.status, answers.message.as_array().map(Vec::len)), (200, Some(4)), "{}", answers.raw);
    let refused = post(6);
    assert_eq!(refused.status, 429, "four are left: {}", refused.raw);
    assert!(
        refused.head.header("retry-after").is_some() && refused.raw.contains("too many requests"),
        "{}",
        refused.raw
    );
    // The refused POST took one request.
    assert_eq!(post(3).status, 200);
    assert_eq!(client.request("ping", json!({})).status, 429);
    assert_eq!(
        gateway.client(ClientEra::Legacy(BATCHES)).request("ping", json!({})).status,
        200,
        "the local user has no rate"
    );
}

#[test]
fn streams_and_ends_of_sessions_count_over_http() {
    let gateway = setup().start();
    // Costs two requests: the initialization.
    let client = Mcp::http(gateway.address, Some(TOKEN.to_owned()), ClientEra::Legacy(BATCHES));
    let streams: Vec<u16> = (0..9).map(|_| client.resume("none").head().status).collect();
    let admitted = streams.iter().take_while(|status| **status != 429).count();
    assert_eq!(admitted, 8, "{streams:?}");
    assert_eq!(client.end_session(), 429);
    assert_eq!(gateway.client(ClientEra::Legacy(BATCHES)).end_session(), 204, "the local user has no rate");
}

#[test]
fn each_request_of_a_batch_counts_over_the_old_transport() {
    let gateway = setup().server("legacy-sse = true").start();
    // Costs two requests, the stream's own among them.
    let mut client = OldClient::connect(&gateway, Some(TOKEN.to_owned()), "/sse");
    client.initialize(BATCHES);
    assert_eq!(client.post(&pings(4)).0, 202);
    for n in 0..4 {
        assert_eq!(client.message()["id"], format!("4/{n}"));
    }
    let (status, body) = client.post(&pings(6));
    assert_eq!(status, 429, "four are left: {body}");
    assert_eq!(client.post(&pings(3)).0, 202);
    assert_eq!(client.post(&json!({"jsonrpc": "2.0", "id": 1, "method": "ping"})).0, 429);
}
