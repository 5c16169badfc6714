//! Tests that every request of a client works over HTTP and on pipes, with clients and upstreams of
//! both eras.

use serde_json::json;

use crate::stage::harness::Setup;
use crate::stage::mcp::{Era, MODERN, Mcp, names};
use crate::stage::upstream::{Fake, Listening};

const TOOLS: &[&str] = &["fx__echo", "fx__fail", "fx__sleep"];

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
    let gateway = Setup::new().fake("fx", &Fake::stdio("both")).start();
    gateway.wait_for_tools(TOOLS);
    for revision in ["2024-11-05", "2025-03-26", "2025-06-18", "2025-11-25"] {
        let mut client = gateway.client(Era::Legacy(revision));
        assert_eq!(client.greeting["protocolVersion"], revision, "{revision}");
        assert_eq!(client.call("fx__echo", json!({"text": revision})).text(), revision, "{revision}");
        assert!(client.session().is_some(), "{revision}: a session id is given");
        assert!(matches!(client.end_session(), 200..=204 | 405), "{revision}");
    }
}

#[test]
fn every_request_works_on_pipes() {
    for upstream in ["legacy", "modern"] {
        let gateway = Setup::new().fake("fx", &Fake::stdio(upstream)).start();
        gateway.wait_for_tools(TOOLS);
        for era in Era::BOTH {
            everything_works(&mut Mcp::stdio(gateway.pipe(), era), era, false, upstream);
        }
    }
}

#[test]
fn a_profile_shows_its_part_of_the_catalog_and_no_more() {
    let gateway = Setup::new()
        .fake("fx", &Fake::stdio("both"))
        .fake("other", &Fake::stdio("both"))
        .toml("[profiles.reader]\nupstreams = [\"fx\"]\ntools = { allow = [\"fx__e*\"] }")
        .toml("[profiles.bare]\nupstreams = [\"fx\"]\ntransparent = true")
        .start();
    gateway.wait_for_tools(&["fx__echo", "other__echo"]);
    for era in Era::BOTH {
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
    let gateway = Setup::new().fake("fx", &Fake::stdio("both")).start();
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
fn http_round(setup: impl Fn(Setup) -> (Setup, Option<Listening>)) {
    let (setup, _server) = setup(Setup::new());
    let gateway = setup.start();
    gateway.wait_for_tools(TOOLS);
    for era in Era::BOTH {
        everything_works(&mut gateway.client(era), era, true, "http");
    }
}

fn behind_http(setup: Setup, era: &str, answers: &str) -> (Setup, Option<Listening>) {
    let server = Fake::http(era).with("--answers", answers).spawn();
    (setup.url("fx", &server.url), Some(server))
}

fn everything_works(client: &mut Mcp, era: Era, http: bool, at: &str) {
    let at = format!("{era:?} at {at}");
    greets(client, era, http, &at);
    lists(client, &at);
    calls(client, era, &at);
    refuses(client, era, http, &at);
}

fn greets(client: &mut Mcp, era: Era, http: bool, at: &str) {
    if era == Era::Modern {
        let answer = client.request("server/discover", json!({}));
        let versions = answer.result()["supportedVersions"].as_array().cloned().unwrap_or_default();
        assert!(versions.contains(&json!(MODERN)), "{at}: {}", answer.raw);
        assert!(answer.result()["capabilities"]["tools"].is_object(), "{at}: {}", answer.raw);
        let ping = client.request("ping", json!({}));
        assert_eq!(ping.code(), Some(-32601), "{at}: {}", ping.raw);
        assert!(!http || ping.status == 404, "{at}: {}", ping.status);
    } else {
        assert_eq!(client.greeting["serverInfo"]["name"], "headend", "{at}: {}", client.greeting);
        assert!(client.greeting["capabilities"]["tools"].is_object(), "{at}: {}", client.greeting);
        assert_eq!(client.request("ping", json!({})).result(), &json!({}), "{at}");
    }
}

fn lists(client: &mut Mcp, at: &str) {
    let tools = client.tool_names();
    assert!(TOOLS.iter().all(|tool| tools.iter().any(|name| name == tool)), "{at}: {tools:?}");
    assert!(names(&client.list("prompts/list", "prompts")).contains(&"fx__p".to_owned()), "{at}");
    let resources = client.list("resources/list", "resources");
    assert!(resources.iter().any(|resource| resource["uri"] == "fx://doc/1"), "{at}: {resources:?}");
    let templates = client.list("resources/templates/list", "resourceTemplates");
    assert!(templates.iter().any(|template| template["uriTemplate"] == "fx://doc/{id}"), "{at}: {templates:?}");
}

fn calls(client: &mut Mcp, era: Era, at: &str) {
    let echo = client.call("fx__echo", json!({"text": "grüße \"quoted\" \u{1f600}"}));
    assert_eq!(echo.text(), "grüße \"quoted\" \u{1f600}", "{at}");
    if era == Era::Modern {
        assert_eq!(echo.result()["resultType"], "complete", "{at}: {}", echo.raw);
    }
    let failed = client.call("fx__fail", json!({}));
    assert!(failed.is_error(), "{at}: {}", failed.raw);
    let prompt = client.request("prompts/get", json!({"name": "fx__p", "arguments": {"a": "blue"}}));
    assert!(prompt.result()["messages"].to_string().contains("blue"), "{at}: {}", prompt.raw);
    for uri in ["fx://doc/1", "fx://doc/77"] {
        let read = client.request("resources/read", json!({"uri": uri}));
        assert_eq!(read.result()["contents"][0]["uri"], uri, "{at}: {}", read.raw);
    }
    let reference = json!({"ref": {"type": "ref/prompt", "name": "fx__p"}, "argument": {"name": "a", "value": "b"}});
    let completion = client.request("completion/complete", reference);
    assert!(completion.result()["completion"]["values"].is_array(), "{at}: {}", completion.raw);
}

fn refuses(client: &mut Mcp, era: Era, http: bool, at: &str) {
    for (label, method, params) in [
        ("unknown tool", "tools/call", json!({"name": "fx__nope", "arguments": {}})),
        ("a tool by its upstream's name", "tools/call", json!({"name": "echo", "arguments": {}})),
        ("unknown prompt", "prompts/get", json!({"name": "fx__nope"})),
        ("no name", "tools/call", json!({"arguments": {}})),
    ] {
        assert_eq!(client.request(method, params).code(), Some(-32602), "{at}: {label}");
    }
    let unread = client.request("resources/read", json!({"uri": "nowhere://x"}));
    assert!(matches!(unread.code(), Some(-32002 | -32602)), "{at}: {}", unread.raw);
    let unknown = client.request("no/such/method", json!({}));
    assert_eq!(unknown.code(), Some(-32601), "{at}: {}", unknown.raw);
    if http {
        assert_eq!(unknown.status, if era == Era::Modern { 404 } else { 200 }, "{at}");
    }
}
