//! Tests of owners that die: killed, silent, or gone in order.

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

use super::*;
use crate::stage::http::{self, TestConnection};

#[test]
fn a_session_goes_on_after_its_owner_was_killed_and_its_call_is_not_made_again() {
    let mut cluster = TestCluster::start("https");
    let mut client = cluster.client(0, ClientEra::LEGACY, json!({}));
    cluster.move_to(&mut client, 1);
    let params = json!({"name": "fx__sleep", "arguments": {"ms": 3_600_000, "n": 4711}});
    let mut call = client.open("tools/call", params);
    // The call is under way, and its stream has begun.
    pass(Duration::from_secs(8));
    assert_eq!(cluster.calls("4711"), 1);
    let port = cluster.kill(0);
    assert!(net::connect(port).is_err(), "it refuses connections");
    assert_eq!(refusal(&call.response()["result"]).1, "unknown", "the last word of its owner");
    for replica in [2, 1, 2] {
        cluster.move_to(&mut client, replica);
        let echoed = client.call("fx__echo", json!({"text": format!("at {replica}")}));
        assert_eq!(echoed.text(), format!("at {replica}"), "{}", echoed.raw);
    }
    assert_eq!(cluster.directory.claims(), 1, "one replica has taken it over");
    assert_eq!(cluster.logs[2].lines_with(&["\"text\":\"at "]).len(), 3, "the one with the first request");
    assert_eq!(cluster.calls("4711"), 1, "never run again");
    assert_eq!(client.end_session(), 204);
}

#[test]
fn what_a_dead_replica_held_for_a_modern_client_is_lost_and_never_run_again() {
    let mut cluster = TestCluster::asking();
    let mut client = cluster.client(0, ClientEra::Modern, json!({"elicitation": {}}));
    let asked = client.call("fx__inquire", asks());
    let state = asked.result()["requestState"].clone();
    assert!(state.is_string(), "{}", asked.raw);
    cluster.kill(0);
    cluster.move_to(&mut client, 1);
    let params = json!({"name": "fx__inquire", "arguments": asks(), "requestState": state, "inputResponses": {}});
    let answer = client.request("tools/call", params);
    assert_eq!(refusal(answer.result()), lost(), "{}", answer.raw);
    let task = format!("{}.sealed", state.as_str().unwrap().split('.').next().unwrap());
    client.capabilities = json!({"extensions": {"io.modelcontextprotocol/tasks": {}}});
    let answer = client.request("tasks/get", json!({"taskId": task}));
    assert!(answer.raw.contains("replica_lost"), "{}", answer.raw);
    assert_eq!(cluster.calls("inquire"), 1);
}

#[test]
fn a_mute_replica_costs_its_own_requests_and_is_dead_after_fifteen_seconds() {
    let mut cluster = TestCluster::start("http");
    let mut theirs = cluster.client(0, ClientEra::LEGACY, json!({}));
    let mut ours = cluster.client(1, ClientEra::LEGACY, json!({}));
    cluster.move_to(&mut theirs, 1);
    let port = cluster.kill(0);
    // It takes connections and says nothing.
    let mute = net::Listener::bind(port);
    let begun = crate::stage::now();
    let mut call = theirs.open("tools/call", json!({"name": "fx__echo", "arguments": {"text": "mute"}}));
    pass(Duration::from_secs(5));
    assert_eq!(ours.call("fx__echo", json!({"text": "on"})).text(), "on");
    assert!(crate::stage::now() - begun < Duration::from_secs(7));
    assert_eq!(refusal(&call.response()["result"]), lost());
    let waited = crate::stage::now() - begun;
    assert!((10..=20).contains(&waited.as_secs()), "{waited:?}");
    assert_eq!(theirs.call("fx__echo", json!({"text": "taken over"})).text(), "taken over");
    assert_eq!(cluster.calls("\"mute\""), 0);
    drop(mute);
}

/// Answers the first request on a port of the stage with the beginning of a stream, and breaks off.
fn break_off(port: u16, run: &str) -> tokio::task::JoinHandle<()> {
    let head = format!(
        "HTTP/1.1 200 OK\r\nheadend-run: {run}\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n"
    );
    let mut listener = net::Listener::bind(port);
    stage().runtime.spawn(async move {
        let (mut stream, _) = axum::serve::Listener::accept(&mut listener).await;
        let mut request = [0; 64 * 1024];
        assert_ne!(stream.read(&mut request).await.unwrap(), 0);
        stream.write_all(format!("{head}b\r\n: working\n\n\r\n").as_bytes()).await.unwrap();
        tokio::time::sleep(Duration::from_secs(1)).await;
    })
}

#[test]
fn a_stream_whose_replica_breaks_off_ends_with_the_loss_of_its_call() {
    let mut cluster = TestCluster::start("http");
    let mut client = cluster.client(0, ClientEra::LEGACY, json!({}));
    let run = cluster.replicas[0].inner().service.cluster.as_ref().unwrap().run().unwrap().to_string();
    let port = cluster.kill(0);
    let broken = break_off(port, &run);
    cluster.move_to(&mut client, 1);
    let mut call = client.open("tools/call", json!({"name": "fx__echo", "arguments": {"text": "broken"}}));
    assert_eq!(refusal(&call.response()["result"]), lost());
    block_on(broken).unwrap();
    assert_eq!(client.call("fx__echo", json!({"text": "on"})).text(), "on");
    assert_eq!(cluster.calls("broken"), 0, "it is not made here");
}

#[test]
fn a_replica_that_ends_in_order_hands_its_sessions_over_and_finishes_its_calls() {
    let mut cluster = TestCluster::start("https");
    let mut busy = cluster.client(0, ClientEra::LEGACY, json!({}));
    let mut idle = cluster.client(0, ClientEra::LEGACY, json!({}));
    for client in [&mut busy, &mut idle] {
        cluster.move_to(client, 1);
        assert_eq!(client.call("fx__echo", json!({"text": "before"})).text(), "before");
    }
    let mut call = busy.open("tools/call", json!({"name": "fx__sleep", "arguments": {"ms": 10_000, "n": 4711}}));
    pass(Duration::from_secs(1));
    cluster.replicas[0].signal(Signal::TERM);
    pass(Duration::from_millis(100));
    for replica in [1, 2] {
        cluster.move_to(&mut idle, replica);
        assert_eq!(idle.call("fx__echo", json!({"text": "handed over"})).text(), "handed over");
    }
    assert_eq!(cluster.logs[1].lines_with(&["handed over"]).len(), 2, "the first that asked for it");
    assert_eq!(busy.call("fx__echo", json!({"text": "still there"})).text(), "still there");
    assert_eq!(cluster.logs[0].lines_with(&["still there"]).len(), 1, "beside the call");
    assert_eq!(call.response()["result"]["content"][0]["text"], "slept");
    assert!(cluster.replicas[0].wait(Duration::from_secs(60)).is_some());
    assert_eq!(cluster.directory.rows().len(), 2);
    assert_eq!(busy.call("fx__echo", json!({"text": "on"})).text(), "on");
}

#[test]
fn a_request_on_a_connection_of_a_replica_that_ends_is_answered() {
    let mut cluster = TestCluster::start("http");
    let client = cluster.client(0, ClientEra::Modern, json!({}));
    let params = client.dress(json!({"name": "fx__echo", "arguments": {"text": "late"}}));
    let headers = client.headers("tools/call", &params);
    let body = json!({"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params}).to_string();
    let request = http::request("POST", "/mcp", &headers, body.as_bytes());
    let mut used = TestConnection::open(cluster.replicas[0].address).unwrap();
    let mut unused = TestConnection::open(cluster.replicas[0].address).unwrap();
    used.send(&request).unwrap();
    assert!(used.response().unwrap().text().contains("late"));
    cluster.replicas[0].signal(Signal::TERM);
    for connection in [&mut used, &mut unused] {
        pass(Duration::from_secs(1));
        connection.send(&request).unwrap();
        let answer = connection.response().unwrap();
        assert!(answer.head.status == 200 && answer.text().contains("late"), "{}", answer.text());
        assert_eq!(answer.head.header("connection"), Some("close"));
    }
    assert_eq!(cluster.calls("late"), 3);
    assert!(cluster.replicas[0].wait(Duration::from_secs(60)).is_some());
}

#[test]
fn while_the_store_is_away_sessions_of_living_replicas_go_on() {
    let mut cluster = TestCluster::start("http");
    let mut client = cluster.client(0, ClientEra::LEGACY, json!({}));
    let mut other = cluster.client(1, ClientEra::LEGACY, json!({}));
    pass(Duration::from_secs(20));
    cluster.directory.set_away(true);
    pass(Duration::from_secs(60));
    cluster.move_to(&mut client, 2);
    assert_eq!(client.call("fx__echo", json!({"text": "on"})).text(), "on");
    cluster.kill(1);
    cluster.move_to(&mut other, 2);
    let refused = other.call("fx__echo", json!({"text": "nobody may take it over"}));
    assert_eq!(refusal(refused.result()), (json!("store_unavailable"), json!("no")), "{}", refused.raw);
    assert_eq!(other.end_session(), 503, "without a request there is nothing to answer");
    cluster.directory.set_away(false);
    pass(Duration::from_secs(5));
    assert_eq!(other.request("ping", json!({})).head.status, 200);
    assert_eq!(client.call("fx__echo", json!({"text": "still"})).text(), "still");
    assert_eq!(cluster.logs[0].lines_with(&["\"text\":\"still\""]).len(), 1, "nobody took it from its owner");
}
