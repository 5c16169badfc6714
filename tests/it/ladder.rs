//! What a client may say next is decided alike over HTTP and on pipes: batches, claims, ids of requests that have no answer yet.

use serde_json::{Value, json};

use crate::harness::{Gateway, Setup};
use crate::http;
use crate::mcp::{Era, Mcp, dressed};
use crate::stdio::Pipe;
use crate::upstream::{Fake, Log};

/// The only revision with batches.
const BATCHES: Era = Era::Legacy("2025-03-26");

/// A gateway before one upstream, and what that was told.
fn before_one() -> (Gateway, Log) {
    let setup = Setup::new();
    let log = Log::new(&setup.world.path("work"), "fx");
    let gateway = setup.fake("fx", &Fake::stdio("legacy").logging(&log)).start();
    gateway.wait_for_tools(&["fx__echo", "fx__sleep", "fx__mutate"]);
    (gateway, log)
}

/// A client on a pipe.
fn on_a_pipe(gateway: &Gateway, era: Era) -> Mcp {
    Mcp::stdio(Pipe::start(&gateway.world, &gateway.config, &[]), era)
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
