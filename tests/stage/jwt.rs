//! Tests of callers that present a JWT of an issuer on the stage.

use std::time::Duration;

use axum::Router;
use axum::http::header::CONTENT_TYPE;
use axum::routing::get as route;
use serde_json::{Value, json};

use crate::stage::harness::{Gateway, GatewaySetup};
use crate::stage::http::{TestConnection, TestResponse, get, request};
use crate::stage::mcp::{ClientEra, Mcp};
use crate::stage::net::Listener;
use crate::stage::process::{eventually, said};
use crate::stage::upstream::{Fake, Listening};
use crate::stage::{block_on, now};
use headend_core::identity::fixtures::{TestKey, key_set};
use headend_shell::base::clock;

mod old_transport;
mod people;

const PUBLIC: &str = "https://mcp.example.com";

/// A gateway, and an issuer that it accepts.
struct IssuerStage {
    gateway: Gateway,
    key: TestKey,
    issuer: String,
    /// The upstream, if it listens.
    server: Option<Listening>,
}

impl IssuerStage {
    fn new() -> Self {
        Self::with(GatewaySetup::new().fake("fx", &Fake::stdio("both")))
    }

    /// Starts a gateway from this setup, whose upstream is `fx`.
    fn with(setup: GatewaySetup) -> Self {
        let key = TestKey::new("k1");
        let listener = Listener::bind(0);
        let issuer = format!("http://{}", listener.address);
        let document = json!({ "issuer": issuer, "jwks_uri": format!("{issuer}/keys") }).to_string();
        let keys = key_set(&[&key]);
        let text = |text: String| route(move || async move { ([(CONTENT_TYPE, "application/json")], text) });
        let router =
            Router::new().route("/.well-known/openid-configuration", text(document)).route("/keys", text(keys));
        block_on(async {
            #[allow(clippy::disallowed_methods, reason = "a server of a test")]
            drop(tokio::spawn(async move { axum::serve(listener, router).await }));
        });
        let auth = format!(
            "legacy-sse = true\n[server.auth]\nmode = [\"token\", \"jwt\"]\npublic-url = \"{PUBLIC}\"\n\
             [[server.auth.issuers]]\nname = \"corp\"\nissuer = \"{issuer}\""
        );
        let gateway = setup.server(&auth).toml("[profiles.p]").start();
        gateway.wait_for_tools(&["fx__echo"]);
        Self { gateway, key, issuer, server: None }
    }

    /// Returns a token for a place with a number that makes it unlike others.
    fn token(&self, subject: &str, path: &str, life: u64, number: u32) -> String {
        let exp = clock::since_1970().as_secs() + life;
        let claims = json!({
            "iss": self.issuer, "aud": format!("{PUBLIC}{path}"), "exp": exp, "sub": subject, "jti": number,
        });
        self.key.token(&claims.to_string())
    }

    fn client(&self, token: &str, era: ClientEra, path: &str) -> Mcp {
        Mcp::http_at(self.gateway.address, Some(token.to_owned()), era, path, json!({}))
    }

    /// Sends a request without a body, with this token and this session.
    fn ask(&self, method: &str, path: &str, token: Option<&str>, session: Option<&str>) -> TestResponse {
        self.send(method, path, token, session, "")
    }

    /// Sends a request like [`Self::ask`], with a body of JSON.
    fn send(&self, method: &str, path: &str, token: Option<&str>, session: Option<&str>, body: &str) -> TestResponse {
        let mut headers = vec![
            ("Host".to_owned(), self.gateway.address.to_string()),
            ("Accept".to_owned(), "application/json, text/event-stream".to_owned()),
            ("Content-Type".to_owned(), "application/json".to_owned()),
        ];
        headers.extend(token.map(|token| ("Authorization".to_owned(), format!("Bearer {token}"))));
        headers.extend(session.map(|session| ("Mcp-Session-Id".to_owned(), session.to_owned())));
        let mut conn = TestConnection::open(self.gateway.address).unwrap();
        conn.send(&request(method, path, &headers, body.as_bytes())).unwrap();
        conn.response().unwrap()
    }
}

#[test]
fn a_client_finds_the_issuer_of_a_place_and_calls_with_its_token() {
    let stage = IssuerStage::new();
    let refused = stage.ask("GET", "/mcp/p", None, None);
    let metadata = format!("{PUBLIC}/.well-known/oauth-protected-resource/mcp/p");
    assert_eq!(refused.head.status, 401);
    assert_eq!(refused.head.header("www-authenticate"), Some(&*format!("Bearer resource_metadata=\"{metadata}\"")));
    for (path, resource) in [("/mcp/p", "/mcp/p"), ("/mcp", "/mcp"), ("", "/mcp")] {
        let answer = get(stage.gateway.address, &format!("/.well-known/oauth-protected-resource{path}")).unwrap();
        let document: Value = serde_json::from_slice(&answer.body).unwrap();
        assert_eq!(document["resource"], format!("{PUBLIC}{resource}"), "{path}");
        assert_eq!(document["authorization_servers"], json!([stage.issuer]));
    }
    assert_eq!(get(stage.gateway.address, "/.well-known/oauth-protected-resource/x").unwrap().head.status, 404);
    let status = stage.gateway.run(&["status"]);
    assert!(said(&status).contains(&format!("hosts: {PUBLIC}/mcp, on this machine headend")), "{}", said(&status));
    for era in ClientEra::BOTH {
        for path in ["/mcp", "/mcp/p"] {
            let token = stage.token("alice", path, 300, 1);
            let called = stage.client(&token, era, path).call("fx__echo", json!({ "text": "hi" }));
            assert!(called.text().contains("hi"), "{path}");
        }
    }
    let elsewhere = stage.token("alice", "/mcp", 300, 2);
    assert_eq!(stage.ask("GET", "/mcp/p", Some(&elsewhere), None).head.status, 401);
    let own = stage.gateway.token().unwrap();
    assert_eq!(
        stage.ask("GET", "/mcp/p", Some(&own), None).head.status,
        405,
        "the generated token is valid everywhere"
    );
}

#[test]
fn a_session_goes_on_with_the_next_token_of_its_caller_and_of_no_other() {
    let stage = IssuerStage::new();
    let client = stage.client(&stage.token("alice", "/mcp", 300, 1), ClientEra::LEGACY, "/mcp");
    let session = client.session().unwrap();
    let other = stage.token("bob", "/mcp", 300, 1);
    assert_eq!(stage.ask("DELETE", "/mcp", Some(&other), Some(&session)).head.status, 404);
    let next = stage.token("alice", "/mcp", 300, 2);
    assert_eq!(stage.ask("DELETE", "/mcp", Some(&next), Some(&session)).head.status, 204);
}

#[test]
fn a_stream_ends_when_its_token_expires_and_its_session_stays() {
    let stage = IssuerStage::new();
    let client = stage.client(&stage.token("alice", "/mcp", 30, 1), ClientEra::LEGACY, "/mcp");
    let session = client.session().unwrap();
    let mut stream = client.listen();
    let begun = now();
    while stream.event().is_some() {}
    let lasted = now() - begun;
    assert!((Duration::from_secs(80)..Duration::from_secs(100)).contains(&lasted), "{lasted:?}");
    let next = stage.token("alice", "/mcp", 300, 2);
    assert_eq!(stage.ask("DELETE", "/mcp", Some(&next), Some(&session)).head.status, 204);
}

#[test]
fn a_removed_issuer_ends_the_sessions_of_its_callers() {
    let stage = IssuerStage::new();
    let token = stage.token("alice", "/mcp", 300, 1);
    let client = stage.client(&token, ClientEra::LEGACY, "/mcp");
    let session = client.session().unwrap();
    let text = std::fs::read_to_string(&stage.gateway.config).unwrap();
    let start = text.find("mode = ").unwrap();
    let end = text.find("issuer = ").map(|at| at + text[at..].find('\n').unwrap()).unwrap();
    let without = format!("{}{}", &text[..start], &text[end..]);
    assert!(stage.gateway.reload(&without).status.success(), "{without}");
    eventually("the token is refused", || stage.ask("GET", "/mcp", Some(&token), Some(&session)).head.status == 401);
    let own = stage.gateway.token().unwrap();
    assert_eq!(stage.ask("DELETE", "/mcp", Some(&own), Some(&session)).head.status, 404);
}

#[test]
fn callers_of_an_issuer_are_counted_together_by_its_name() {
    let stage = IssuerStage::new();
    for subject in ["alice", "bob"] {
        let mut client = stage.client(&stage.token(subject, "/mcp", 300, 1), ClientEra::Modern, "/mcp");
        assert_eq!(client.call("fx__echo", json!({ "text": "hi" })).text(), "hi");
    }
    let page = stage.gateway.scrape();
    assert!(page.contains("headend_caller_calls_total{caller=\"corp\"} 2"), "{page}");
    assert!(!page.contains("alice") && !page.contains("bob"), "a subject is no label");
}
