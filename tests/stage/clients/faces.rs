//! Tests that every request of a client works over HTTP and on pipes, with clients and upstreams of
//! both eras.

use serde_json::json;

use crate::stage::harness::GatewaySetup;
use crate::stage::mcp::{ClientEra, Mcp};
use crate::stage::steps::faces::{TOOLS, everything_works};
use crate::stage::upstream::{Fake, Listening};

#[test]
fn every_request_works_over_http_in_front_of_a_legacy_process() {
    http_round(|setup| (setup.fake("fx", &Fake::stdio("legacy")), None));
}

#[test]
fn every_request_works_over_http_in_front_of_a_modern_process() {
    http_round(|setup| (setup.fake("fx", &Fake::stdio("modern")), None));
}

#[test]
fn every_request_works_over_http_in_front_of_a_process_of_both_eras() {
    http_round(|setup| (setup.fake("fx", &Fake::stdio("both")), None));
}

#[test]
fn every_request_works_over_http_in_front_of_a_legacy_http_server() {
    http_round(|setup| behind_http(setup, "legacy", "json"));
}

#[test]
fn every_request_works_over_http_in_front_of_a_legacy_http_server_that_streams() {
    http_round(|setup| behind_http(setup, "legacy", "sse"));
}

#[test]
fn every_request_works_over_http_in_front_of_a_modern_http_server() {
    http_round(|setup| behind_http(setup, "modern", "json"));
}

#[test]
fn every_request_works_over_http_in_front_of_a_modern_http_server_that_streams() {
    http_round(|setup| behind_http(setup, "modern", "sse"));
}

#[test]
fn every_revision_with_sessions_is_served() {
    let gateway = GatewaySetup::new().fake("fx", &Fake::stdio("both")).start();
    gateway.wait_for_tools(TOOLS);
    for revision in ["2024-11-05", "2025-03-26", "2025-06-18", "2025-11-25"] {
        let mut client = gateway.client(ClientEra::Legacy(revision));
        assert_eq!(client.greeting["protocolVersion"], revision, "{revision}");
        assert_eq!(client.call("fx__echo", json!({"text": revision})).text(), revision, "{revision}");
        assert!(client.session().is_some(), "{revision}: a session id is given");
        assert!(matches!(client.end_session(), 200..=204 | 405), "{revision}");
    }
}

#[test]
fn every_request_works_on_pipes() {
    for upstream in ["legacy", "modern"] {
        let gateway = GatewaySetup::new().fake("fx", &Fake::stdio(upstream)).start();
        gateway.wait_for_tools(TOOLS);
        for era in ClientEra::BOTH {
            everything_works(&mut Mcp::stdio(gateway.pipe(), era), era, false, upstream);
        }
    }
}

#[test]
fn a_profile_shows_its_part_of_the_catalog_and_no_more() {
    let gateway = GatewaySetup::new()
        .fake("fx", &Fake::stdio("both"))
        .fake("other", &Fake::stdio("both"))
        .toml("[profiles.reader]\nupstreams = [\"fx\"]\ntools = { allow = [\"fx__e*\"] }")
        .toml("[profiles.bare]\nupstreams = [\"fx\"]\ntransparent = true")
        .start();
    gateway.wait_for_tools(&["fx__echo", "other__echo"]);
    for era in ClientEra::BOTH {
        let at = |path: &str| Mcp::http_at(gateway.address, gateway.token(), era, path, json!({}));
        let mut reader = at("/mcp/reader");
        let listed = reader.tool_names();
        assert!(listed.contains(&"fx__echo".to_owned()), "{era:?}: {listed:?}");
        assert!(listed.iter().all(|name| name.starts_with("fx__e")), "{era:?}: {listed:?}");
        assert_eq!(reader.call("fx__write", json!({})).code(), Some(-32602), "{era:?}");
        let mut bare = at("/mcp/bare");
        assert!(bare.tool_names().contains(&"echo".to_owned()), "{era:?}");
        assert_eq!(bare.call("echo", json!({"text": "bare"})).text(), "bare", "{era:?}");
    }
}

#[test]
fn a_changed_list_is_announced_to_both_eras() {
    let gateway = GatewaySetup::new().fake("fx", &Fake::stdio("both")).start();
    gateway.wait_for_tools(&["fx__mutate"]);
    let mut legacy = gateway.legacy();
    let mut stream = legacy.listen();
    assert_eq!(stream.head().status, 200);
    let mut modern = gateway.modern();
    let mut listening = modern.open("subscriptions/listen", json!({"notifications": {"toolsListChanged": true}}));
    let first = listening.next().unwrap();
    assert_eq!(first["method"], "notifications/subscriptions/acknowledged");
    assert!(!legacy.call("fx__mutate", json!({})).is_error());
    let legacy_notice = stream.next().expect("the stream stays open");
    assert_eq!(legacy_notice["method"], "notifications/tools/list_changed");
    let modern_notice = listening.next().expect("the subscription stays open");
    assert_eq!(modern_notice["method"], "notifications/tools/list_changed");
    assert_eq!(modern_notice["params"]["_meta"]["io.modelcontextprotocol/subscriptionId"], listening.id);
}

/// Starts a daemon and makes every request with a client of each era over HTTP.
fn http_round(setup: impl Fn(GatewaySetup) -> (GatewaySetup, Option<Listening>)) {
    let (setup, _server) = setup(GatewaySetup::new());
    let gateway = setup.start();
    gateway.wait_for_tools(TOOLS);
    for era in ClientEra::BOTH {
        everything_works(&mut gateway.client(era), era, true, "http");
    }
}

fn behind_http(setup: GatewaySetup, era: &str, answers: &str) -> (GatewaySetup, Option<Listening>) {
    let server = Fake::http(era).with("--answers", answers).spawn();
    (setup.url("fx", &server.url), Some(server))
}
