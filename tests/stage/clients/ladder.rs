//! Tests that what a client may send next is decided alike over HTTP and on pipes: batches, claims,
//! ids of requests that are not answered yet.

use std::time::Duration;

use serde_json::{Value, json};

use crate::stage::harness::{Gateway, GatewaySetup};
use crate::stage::http::{self, TestConnection};
use crate::stage::mcp::{ClientEra, Mcp, dressed};
use crate::stage::process::eventually;
use crate::stage::upstream::{Fake, InputLog};

/// The only revision with batches.
const BATCHES: ClientEra = ClientEra::Legacy("2025-03-26");

/// Starts a gateway in front of one upstream, and returns the upstream's log.
fn before_one() -> (Gateway, InputLog) {
    let setup = GatewaySetup::new();
    let log = InputLog::new(&setup.world.path("work"), "fx");
    let gateway = setup.fake("fx", &Fake::stdio("legacy").logging(&log)).start();
    gateway.wait_for_tools(&["fx__echo", "fx__sleep", "fx__mutate"]);
    (gateway, log)
}

/// Connects a client on a pipe.
fn on_a_pipe(gateway: &Gateway, era: ClientEra) -> Mcp {
    Mcp::stdio(gateway.pipe(), era)
}

fn request(id: &str, method: &str, params: &Value) -> Value {
    json!({"jsonrpc": "2.0", "id": id, "method": method, "params": params})
}

#[test]
fn a_batch_with_a_claim_in_it_is_refused_as_a_whole() {
    let (gateway, log) = before_one();
    let echo = json!({"name": "fx__echo", "arguments": {"text": "a"}});
    let claims = dressed(echo.clone(), &json!({}));
    let batch = json!([request("a", "tools/call", &echo), request("b", "tools/call", &claims)]).to_string();

    let mut client = gateway.client(BATCHES);
    let headers = client.headers("", &json!({}));
    let refused = client.exchange(&Value::Null, &headers, &batch);
    assert_eq!((refused.status, refused.code()), (400, Some(-32600)), "{}", refused.raw);

    let mut client = on_a_pipe(&gateway, BATCHES);
    client.pipe().send(batch.as_bytes());
    let refused: Value = serde_json::from_str(&client.pipe().line(http::PATIENCE).unwrap()).unwrap();
    assert_eq!((&refused["id"], &refused["error"]["code"]), (&Value::Null, &json!(-32600)), "{refused}");
    assert_eq!(client.request("ping", json!({})).result(), &json!({}), "the connection goes on");
    assert_eq!(log.work(), 0, "nothing of it was served");
}

/// Sends a batch on a connection of its own.
fn post(client: &Mcp, gateway: &Gateway, batch: &Value) -> TestConnection {
    let mut conn = TestConnection::open(gateway.address).unwrap();
    let headers = client.headers("", &json!({}));
    conn.send(&http::request("POST", &client.path, &headers, batch.to_string().as_bytes())).unwrap();
    conn
}

fn sleep(id: &str, ms: u64) -> Value {
    request(id, "tools/call", &json!({"name": "fx__sleep", "arguments": {"ms": ms}}))
}

#[test]
fn a_request_of_a_batch_over_http_can_be_cancelled_and_its_id_is_taken() {
    let (gateway, log) = before_one();
    let mut client = gateway.client(BATCHES);
    let mut conn = post(&client, &gateway, &json!([sleep("a", 60_000), request("b", "ping", &json!({}))]));
    eventually("the call arrives", || log.count("tools/call") == 1);
    let twice = client.request_as(&json!("a"), "ping", json!({}));
    assert_eq!((twice.status, twice.code()), (400, Some(-32600)), "{}", twice.raw);
    client.notify("notifications/cancelled", json!({"requestId": "a"}));
    eventually("the cancellation arrives", || log.count("notifications/cancelled") == 1);
    let answers = conn.response().unwrap();
    let withdrawn = json!([{"jsonrpc": "2.0", "id": "b", "result": {}}]);
    assert_eq!(serde_json::from_str::<Value>(&answers.text()).unwrap(), withdrawn, "no answer to what was withdrawn");
    assert_eq!(client.request_as(&json!("a"), "ping", json!({})).result(), &json!({}), "the id is free again");

    let headers = client.headers("", &json!({}));
    let batch = json!([request("c", "ping", &json!({})), request("c", "ping", &json!({}))]).to_string();
    let answers = client.exchange(&Value::Null, &headers, &batch);
    let errors = answers.message.as_array().unwrap().iter().filter(|answer| answer["error"]["code"] == -32600).count();
    assert_eq!(errors, 1, "one of two requests of one id: {}", answers.raw);
}

#[test]
fn hanging_up_cancels_no_call_of_a_batch() {
    let (gateway, log) = before_one();
    let mut client = gateway.client(BATCHES);
    let conn = post(&client, &gateway, &json!([sleep("a", 1_000)]));
    eventually("the call arrives", || log.count("tools/call") == 1);
    drop(conn);
    assert_eq!(client.request("tools/call", sleep("", 1_500)["params"].clone()).text(), "slept");
    assert_eq!(log.count("notifications/cancelled"), 0, "a client with a session says so when it cancels");
}

#[test]
fn a_subscription_on_a_pipe_holds_its_id_however_that_is_written() {
    let (gateway, _) = before_one();
    let mut client = on_a_pipe(&gateway, ClientEra::Modern);
    let params = client.dress(json!({"notifications": {"toolsListChanged": true}}));
    let escaped = request("a", "subscriptions/listen", &params).to_string().replace("\"id\":\"a\"", r#""id":"\u0061""#);
    client.pipe().send(escaped.as_bytes());
    let acknowledged = client.pipe().line(http::PATIENCE).unwrap();
    assert!(acknowledged.contains("subscriptions/acknowledged"), "{acknowledged}");
    for method in ["subscriptions/listen", "tools/list"] {
        let twice = client.request_as(&json!("a"), method, json!({"notifications": {}}));
        assert_eq!(twice.code(), Some(-32600), "{method}: {}", twice.raw);
    }
    client.notify("notifications/cancelled", json!({"requestId": "a"}));
    eventually("the id is free again", || {
        client.request_as(&json!("a"), "tools/list", json!({})).message["result"].is_object()
    });
}

#[test]
fn a_client_that_says_twice_that_it_is_initialized_hears_of_changes_once() {
    let (gateway, _) = before_one();
    let mut client = on_a_pipe(&gateway, ClientEra::LEGACY);
    for _ in 0..3 {
        client.notify("notifications/initialized", json!({}));
    }
    client.request("ping", json!({}));
    let mutated = client.call("fx__mutate", json!({}));
    let mut told: Vec<String> = mutated.notices.iter().map(|notice| notice["method"].to_string()).collect();
    // Several notifications would come at once.
    while let Some(line) = client.pipe().line(Duration::from_secs(if told.is_empty() { 60 } else { 1 })) {
        told.push(serde_json::from_str::<Value>(&line).unwrap()["method"].to_string());
    }
    assert_eq!(told, ["\"notifications/tools/list_changed\""]);
}
