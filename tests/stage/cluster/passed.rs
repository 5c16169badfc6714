//! Tests of the listener for replicas: who gets in, and that no request goes round.

use super::*;
use crate::stage::http::{self, TestConnection};

/// Sends a call to the listener for replicas with these headers. Returns the status.
fn intrude(cluster: &TestCluster, more: &[(&str, String)]) -> u16 {
    let port = cluster.peer_port(0);
    let mut headers = vec![
        ("Host".to_owned(), format!("127.0.0.1:{port}")),
        ("Content-Type".to_owned(), "application/json".to_owned()),
        ("Accept".to_owned(), "application/json, text/event-stream".to_owned()),
        ("Authorization".to_owned(), format!("Bearer {TOKEN}")),
    ];
    headers.extend(more.iter().map(|(name, value)| ((*name).to_owned(), value.clone())));
    let params =
        json!({"protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": {"name": "x", "version": "1"}});
    let body = json!({"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": params}).to_string();
    let mut conn = TestConnection::open(([127, 0, 0, 1], port).into()).unwrap();
    conn.send(&http::request("POST", "/mcp", &headers, body.as_bytes())).unwrap();
    conn.head().unwrap().status
}

#[test]
fn only_a_replica_gets_in() {
    let cluster = TestCluster::start("http");
    let run = cluster.replicas[1].inner().service.cluster.as_ref().unwrap().run().unwrap();
    let digest = "0".repeat(64);
    for (label, headers) in [
        ("a client's token", vec![]),
        ("no run", vec![("headend-caller", "x".to_owned()), ("headend-body", digest.clone())]),
        ("a forged caller", vec![("headend-caller", run.mark("AAAA")), ("headend-body", digest.clone())]),
        ("no digest", vec![("headend-caller", run.mark("AAAA"))]),
    ] {
        assert_eq!(intrude(&cluster, &headers), 421, "{label}");
    }
    // On the listener for clients, the headers of replicas mean nothing.
    let mut client = cluster.client(0, ClientEra::LEGACY, json!({}));
    assert_eq!(client.call("fx__echo", json!({"text": "on"})).text(), "on");
}

#[test]
fn a_loop_ends() {
    let mut cluster = TestCluster::start("http");
    let mut client = cluster.client(0, ClientEra::LEGACY, json!({}));
    let port = cluster.kill(0);
    // The address of the owner leads back to the replica that passes the request on.
    let back = cluster.peer_port(1);
    let mut front = net::Listener::bind(port);
    let joined = stage().runtime.spawn(async move {
        let mut connections = tokio::task::JoinSet::new();
        loop {
            let (mut stream, _) = axum::serve::Listener::accept(&mut front).await;
            connections.spawn(async move {
                let mut other = net::connect(back).unwrap();
                drop(tokio::io::copy_bidirectional(&mut stream, &mut other).await);
            });
        }
    });
    cluster.move_to(&mut client, 1);
    let begun = crate::stage::now();
    let answer = client.request("ping", json!({}));
    assert_eq!(answer.head.status, 503, "{}", answer.raw);
    assert!(crate::stage::now() - begun < Duration::from_secs(10));
    joined.abort();
    drop(block_on(joined));
    // Nothing listens there now: the owner is dead.
    assert_eq!(client.request("ping", json!({})).head.status, 200);
}
