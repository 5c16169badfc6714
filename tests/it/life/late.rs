//! Tests of requests that arrive on connections of a daemon that another one has taken over: the
//! new daemon answers them, and no client loses a request on the connection that is closed.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread;
use std::time::Duration;

use serde_json::json;

use super::handover::{begin_to_take_over, take_over};
use crate::tools::harness::{Gateway, GatewaySetup};
use crate::tools::http::{self, TestConnection};
use crate::tools::mcp::{ClientEra, Mcp};
use crate::tools::process::eventually;
use crate::tools::socket::Socket;
use crate::tools::upstream::Fake;

/// Time for the end of a daemon that has been taken over, on a busy machine.
const END: Duration = Duration::from_secs(60);

fn start() -> Gateway {
    let gateway = GatewaySetup::new().fake("fx", &Fake::stdio("legacy")).start();
    gateway.wait_for_tools(&["fx__echo"]);
    gateway
}

#[test]
fn a_late_request_on_any_connection_is_answered_by_the_new_daemon_and_ends_the_connection() {
    let mut old = start();
    let mut clients = [old.modern(), old.legacy()];
    for client in &mut clients {
        assert_eq!(client.call("fx__echo", json!({"text": "before"})).text(), "before");
    }
    let mut fresh = TestConnection::open(old.address).unwrap();
    let mut unused = TestConnection::open(old.address).unwrap();
    let mut stranger = TestConnection::open(old.address).unwrap();
    let new = begin_to_take_over(&old);
    // A large body and a large answer pass through, and an answer that comes as a stream.
    let large = "x".repeat(1 << 20);
    for client in &mut clients {
        let answer = client.call("fx__echo", json!({"text": large}));
        assert_eq!(answer.text().len(), large.len(), "{}", old.story());
        assert_eq!(answer.head.header("connection"), Some("close"));
    }
    let params = clients[0].dress(json!({"name": "fx__sleep", "arguments": {"ms": 2000}}));
    let headers = clients[0].headers("tools/call", &params);
    let body = json!({"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params}).to_string();
    fresh.send(&http::request("POST", "/mcp", &headers, body.as_bytes())).unwrap();
    let answer = fresh.response().unwrap();
    assert_eq!((answer.head.status, answer.head.header("connection")), (200, Some("close")), "{}", answer.text());
    assert!(answer.text().contains("result"), "{}", answer.text());
    // The credential is judged by the new daemon.
    let wrong = |(name, value): &(String, String)| match name.as_str() {
        "Authorization" => (name.clone(), "Bearer a-wrong-token-0123456789".to_owned()),
        _ => (name.clone(), value.clone()),
    };
    let headers: Vec<(String, String)> = headers.iter().map(wrong).collect();
    stranger.send(&http::request("POST", "/mcp", &headers, body.as_bytes())).unwrap();
    assert_eq!(stranger.response().unwrap().head.status, 401);
    assert!(unused.closes_within(Duration::from_secs(30)), "no request comes, so it is closed");
    assert!(old.wait(END).is_some_and(|status| status.success()), "{}", old.story());
    // On new connections the sessions go on.
    for client in &mut clients {
        assert_eq!(client.call("fx__echo", json!({"text": "after"})).text(), "after", "{}", new.story());
    }
}

#[test]
fn no_call_fails_on_a_connection_that_is_kept_alive_over_any_number_of_hand_overs() {
    let mut gateway = start();
    let (address, token) = (gateway.address, gateway.token());
    let (is_over, answered) = (AtomicBool::new(false), AtomicUsize::new(0));
    let times: usize = std::env::var("HEADEND_TEST_HANDOVERS").map_or(3, |times| times.parse().unwrap());
    thread::scope(|scope| {
        for n in 0..16_u64 {
            let (is_over, answered, token) = (&is_over, &answered, token.clone());
            let era = if n % 2 == 0 { ClientEra::Modern } else { ClientEra::LEGACY };
            scope.spawn(move || {
                let mut client = Mcp::http(address, token, era);
                while !is_over.load(Ordering::Relaxed) {
                    let answer = client.call("fx__echo", json!({"text": "here"}));
                    assert_eq!(answer.text(), "here", "{}", answer.raw);
                    answered.fetch_add(1, Ordering::Relaxed);
                    thread::sleep(Duration::from_millis(n * 7 % 50));
                }
            });
        }
        for _ in 0..times {
            let before = answered.load(Ordering::Relaxed);
            eventually("calls are answered", || answered.load(Ordering::Relaxed) > before + 32);
            gateway = take_over(gateway);
        }
        is_over.store(true, Ordering::Relaxed);
    });
    eprintln!("{} calls over {times} hand-overs", answered.load(Ordering::Relaxed));
}

#[test]
fn a_request_is_passed_on_for_a_listener_of_the_daemon_and_by_its_own_user_alone() {
    let gateway = start();
    let (hello, _) = Socket::local(&gateway, "http");
    assert!(hello["error"].as_str().is_some_and(|why| why.contains("no listener has the address")), "{hello}");
}
