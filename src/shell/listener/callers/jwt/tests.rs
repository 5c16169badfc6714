//! Tests of callers with JWTs, with an issuer in memory.

use std::cell::{Cell, RefCell};
use std::io;
use std::sync::atomic::{AtomicUsize, Ordering};

use http::header::{AUTHORIZATION, RETRY_AFTER, WWW_AUTHENTICATE};
use http::{HeaderMap, HeaderValue, StatusCode};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _, DuplexStream};
use tokio::sync::mpsc;

use super::*;
use crate::base::access::IssuerAccess;
use crate::identity::fixtures::{TestKey, key_set};
use crate::listener::callers::credentials::{Credentials, Unauthenticated};
use crate::listener::callers::validated::MAX_TOKENS;
use crate::policy::Caller;
use crate::stage::net::install_connector;

thread_local! {
    /// Connections to the issuer of this thread's test; `None` while it is away.
    static CONNECTIONS: RefCell<Option<mpsc::Sender<DuplexStream>>> = const { RefCell::new(None) };
    /// Attempts to connect while the issuer is away.
    static FAILED: Cell<usize> = const { Cell::new(0) };
}

/// An issuer in memory that counts requests for its keys.
struct TestIssuer {
    address: String,
    keys: Arc<Mutex<String>>,
    asked: Arc<AtomicUsize>,
    connections: mpsc::Sender<DuplexStream>,
}

impl Drop for TestIssuer {
    fn drop(&mut self) {
        self.stop();
        install_connector(None);
    }
}

/// Connects to the issuer of this thread's test.
fn connect(_port: u16) -> io::Result<DuplexStream> {
    let (ours, theirs) = tokio::io::duplex(64 * 1024);
    let sent = CONNECTIONS.with_borrow(|issuer| issuer.as_ref().map(|issuer| issuer.try_send(theirs).unwrap()));
    if sent.is_none() {
        FAILED.set(FAILED.get() + 1);
        return Err(io::ErrorKind::ConnectionRefused.into());
    }
    Ok(ours)
}

impl TestIssuer {
    fn start(keys: &[&TestKey]) -> Self {
        let (connections, mut accepted) = mpsc::channel::<DuplexStream>(64);
        let address = "http://127.0.0.1:4711".to_owned();
        let (keys, asked) = (Arc::new(Mutex::new(key_set(keys))), Arc::<AtomicUsize>::default());
        let (current, count, issuer) = (Arc::clone(&keys), Arc::clone(&asked), address.clone());
        #[allow(clippy::disallowed_methods, reason = "a server of a test")]
        drop(tokio::spawn(async move {
            while let Some(mut stream) = accepted.recv().await {
                let mut head = vec![0; 4096];
                let read = stream.read(&mut head).await.unwrap_or_default();
                let body = if head[..read].starts_with(b"GET /keys ") {
                    count.fetch_add(1, Ordering::SeqCst);
                    current.lock().clone()
                } else {
                    format!(r#"{{"issuer":"{issuer}","jwks_uri":"{issuer}/keys"}}"#)
                };
                let length = body.len();
                let answer = format!(
                    "HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: {length}\r\n\r\n{body}"
                );
                let _sent = stream.write_all(answer.as_bytes()).await;
                let _ended = stream.shutdown().await;
            }
        }));
        install_connector(Some(connect));
        let issuer = Self { address, keys, asked, connections };
        issuer.resume();
        issuer
    }

    /// Lets connections fail.
    fn stop(&self) {
        CONNECTIONS.set(None);
        FAILED.set(0);
    }

    fn resume(&self) {
        CONNECTIONS.set(Some(self.connections.clone()));
    }

    fn asked(&self) -> usize {
        self.asked.load(Ordering::SeqCst)
    }

    fn claims(&self, audience: &str, more: &str) -> String {
        self.lasting_claims(audience, more, 300)
    }

    /// Returns the claims of a token that expires in this number of seconds.
    fn lasting_claims(&self, audience: &str, more: &str, life: u64) -> String {
        let exp = clock::since_1970().as_secs() + life;
        format!(r#"{{"iss":"{}","aud":"{audience}","exp":{exp},"sub":"alice"{more}}}"#, self.address)
    }
}

const MCP: &str = "https://mcp.example.com/mcp";
const PROFILE: &str = "https://mcp.example.com/mcp/p";

fn config(issuer: &str, more: &str) -> Config {
    let text = format!(
        "[server.auth]\nmode=\"jwt\"\npublic-url=\"https://mcp.example.com\"\n\
         [[server.auth.issuers]]\nname=\"corp\"\nissuer=\"{issuer}\"\n{more}\n[upstreams.a]\ncommand=[\"/a\"]\n[profiles.p]\n"
    );
    crate::config::parse(&text, "t", &|_| None, &|_| Err(io::ErrorKind::NotFound.into())).unwrap().0
}

fn credentials(config: &Config) -> Credentials {
    let end = CancellationToken::new();
    Credentials::new(Some(&[]), &end).accept_jwts(None, config, &TaskGroup::default(), &end).0
}

fn bearer(token: &str) -> HeaderMap {
    HeaderMap::from_iter([(AUTHORIZATION, HeaderValue::from_str(&format!("Bearer {token}")).unwrap())])
}

/// Authenticates as a listener does: at once if the token is known, else by validating it. Returns
/// the caller's name, or the status of the refusal.
async fn call(credentials: &Credentials, token: &str, profile: Option<&str>) -> Result<CallerAccess, StatusCode> {
    let headers = bearer(token);
    match credentials.authenticate(&headers, profile) {
        Ok(caller) => Ok(caller),
        Err(Unauthenticated::Refused(response)) => Err(response.status()),
        Err(Unauthenticated::Unvalidated) => {
            credentials.validate(&headers, profile).await.map_err(|response| response.status())
        }
    }
}

#[tokio::test]
async fn a_token_is_validated_once_and_its_keys_are_fetched_once() {
    let key = TestKey::new("k1");
    let issuer = TestIssuer::start(&[&key]);
    let credentials = credentials(&config(&issuer.address, ""));
    assert_eq!(issuer.asked(), 0);
    let token = key.token(&issuer.claims(MCP, r#","scope":"a""#));
    let first = call(&credentials, &token, None).await.unwrap();
    assert_eq!(first.caller, Caller::issued("corp", "alice").unwrap());
    assert!(first.access.rights().scopes.has("a") && !first.access.rights().scopes.has("b"));
    let again = credentials.authenticate(&bearer(&token), None).unwrap();
    assert!(Arc::ptr_eq(&first.access, &again.access));
    assert_eq!(issuer.asked(), 1);
}

#[tokio::test]
async fn each_place_accepts_tokens_for_itself() {
    let key = TestKey::new("k1");
    let issuer = TestIssuer::start(&[&key]);
    let credentials = credentials(&config(&issuer.address, "audiences=[\"api://x\"]"));
    for (audience, at_endpoint, at_profile) in [
        (MCP, true, false),
        (PROFILE, false, true),
        ("api://x", true, false),
        ("https://mcp.example.com", false, false),
    ] {
        let token = key.token(&issuer.claims(audience, ""));
        // Twice: from the table too.
        for _ in 0..2 {
            assert_eq!(call(&credentials, &token, None).await.is_ok(), at_endpoint, "{audience}");
            assert_eq!(call(&credentials, &token, Some("p")).await.is_ok(), at_profile, "{audience}");
        }
    }
}

#[tokio::test]
async fn a_new_key_is_looked_up_at_once_and_unknown_ones_seldom() {
    let (old, new) = (TestKey::new("k1"), TestKey::new("k2"));
    let issuer = TestIssuer::start(&[&old]);
    let credentials = credentials(&config(&issuer.address, ""));
    let first = old.token(&issuer.claims(MCP, ""));
    assert!(call(&credentials, &first, None).await.is_ok());
    *issuer.keys.lock() = key_set(&[&new]);
    let token = new.token(&issuer.claims(MCP, ""));
    assert!(call(&credentials, &token, None).await.is_ok());
    assert_eq!(issuer.asked(), 2);
    for number in 0..20 {
        let unknown = TestKey::new(&format!("x{number}")).token(&issuer.claims(MCP, ""));
        assert_eq!(call(&credentials, &unknown, None).await.unwrap_err(), StatusCode::UNAUTHORIZED);
    }
    assert_eq!(issuer.asked(), 2);
    // The old key has left the set, and its token with it.
    assert_eq!(call(&credentials, &first, None).await.unwrap_err(), StatusCode::UNAUTHORIZED);
}

#[tokio::test]
async fn tokens_that_no_key_would_prove_ask_for_none() {
    let key = TestKey::new("k1");
    let issuer = TestIssuer::start(&[&key]);
    let credentials = credentials(&config(&issuer.address, ""));
    let now = clock::since_1970().as_secs();
    let old = format!(r#"{{"iss":"{}","aud":"{MCP}","exp":{},"sub":"a"}}"#, issuer.address, now - 61);
    let foreign = format!(r#"{{"iss":"https://x","aud":"{MCP}","exp":{},"sub":"a"}}"#, now + 60);
    for token in [key.token(&old), key.token(&foreign), "a.b.c".to_owned(), "abc".to_owned()] {
        assert_eq!(call(&credentials, &token, None).await.unwrap_err(), StatusCode::UNAUTHORIZED);
    }
    assert_eq!(issuer.asked(), 0);
}

#[tokio::test]
async fn an_issuer_that_was_never_reached_is_503_and_one_that_is_away_goes_on() {
    let key = TestKey::new("k1");
    let issuer = TestIssuer::start(&[&key]);
    let config = config(&issuer.address, "");
    let known = credentials(&config);
    assert!(call(&known, &key.token(&issuer.claims(MCP, "")), None).await.is_ok());
    issuer.stop();
    let token = key.token(&issuer.claims(MCP, r#","scope":"b""#));
    assert!(call(&known, &token, None).await.is_ok(), "its keys are known");
    let refused = credentials(&config).validate(&bearer(&token), None).await.unwrap_err();
    assert_eq!(
        (refused.status(), refused.headers()[RETRY_AFTER].as_bytes()),
        (StatusCode::SERVICE_UNAVAILABLE, &b"5"[..])
    );
    assert!(!refused.headers().contains_key(WWW_AUTHENTICATE));
}

#[tokio::test]
async fn a_reload_keeps_issuers_that_stay_and_ends_the_callers_of_others() {
    let key = TestKey::new("k1");
    let issuer = TestIssuer::start(&[&key]);
    let config = config(&issuer.address, "");
    let before = credentials(&config);
    let token = key.token(&issuer.claims(MCP, ""));
    let caller = call(&before, &token, None).await.unwrap();
    let (end, tasks) = (CancellationToken::new(), TaskGroup::default());
    let next = || Credentials::new(Some(&[]), &end);
    let (same, gone) = next().accept_jwts(Some(&before), &config, &tasks, &end);
    assert!(gone.is_empty() && same.authenticate(&bearer(&token), None).is_ok() && issuer.asked() == 1);
    let mut without = config.clone();
    without.server.jwt = None;
    let (none, gone) = next().accept_jwts(Some(&same), &without, &tasks, &end);
    assert_eq!(gone.iter().map(|gone| gone.caller.name()).collect::<Vec<_>>(), ["corp:alice"]);
    assert!(caller.access.is_withdrawn());
    assert_eq!(call(&none, &token, None).await.unwrap_err(), StatusCode::UNAUTHORIZED);
    assert!(call(&before, &token, None).await.is_err(), "no request of before the reload is let in");
}

#[test]
fn challenges_and_metadata_are_those_of_the_place() {
    let scopes = "[server.auth.scopes]\na = { tools = [\"a__x\"] }\nb = { tools = [\"a__y\"] }";
    let credentials = credentials(&config("https://login.example.com", scopes));
    let at = "https://mcp.example.com/.well-known/oauth-protected-resource";
    let challenge = |profile, headers: &HeaderMap| {
        credentials.unauthorized(headers, profile).headers()[WWW_AUTHENTICATE].to_str().unwrap().to_owned()
    };
    let none = HeaderMap::new();
    assert_eq!(challenge(None, &none), format!(r#"Bearer scope="a b", resource_metadata="{at}/mcp""#));
    let want = format!(r#"Bearer error="invalid_token", scope="a b", resource_metadata="{at}/mcp/p""#);
    assert_eq!(challenge(Some("p"), &bearer("x")), want);
    let resource = |path: &str| {
        let document = credentials.metadata(&format!("{WELL_KNOWN}{path}"))?;
        document.starts_with(b"{\"resource\":").then(|| String::from_utf8(document.to_vec()).unwrap())
    };
    for (path, resource_of) in [("", Some(MCP)), ("/mcp", Some(MCP)), ("/mcp/p", Some(PROFILE)), ("/mcp/q", None)] {
        let want = resource_of.map(|resource| format!("{{\"resource\":\"{resource}\",\"authorization_servers\""));
        let found = resource(path);
        assert_eq!(found.is_some(), want.is_some(), "{path}");
        assert!(found.is_none_or(|found| found.starts_with(&want.unwrap())), "{path}");
    }
    let mut two = bearer("x");
    two.append(AUTHORIZATION, HeaderValue::from_static("Bearer y"));
    let refused = credentials.authenticate(&two, None);
    assert!(matches!(refused, Err(Unauthenticated::Refused(response)) if response.status() == StatusCode::BAD_REQUEST));
}

#[tokio::test(start_paused = true)]
async fn access_by_a_token_expires_and_is_not_withdrawn_by_that() {
    let end = CancellationToken::new();
    let group = IssuerAccess::new("corp", &end);
    let caller = Caller::issued("corp", "alice").unwrap();
    let soon = clock::since_1970() + Duration::from_secs(100);
    let access = group.of_caller(&caller, CallerRights::all(), soon);
    let begun = clock::now();
    access.expired().await;
    assert_eq!(clock::since(begun).as_secs(), 100);
    assert!(!access.is_withdrawn());
    group.withdraw();
    assert!(access.is_withdrawn());
    access.ended().await;
}

/// Lets time pass, and then what is due.
async fn pass(seconds: u64) {
    tokio::time::sleep(Duration::from_secs(seconds)).await;
    tokio::time::sleep(Duration::from_millis(1)).await;
}

const DAY: u64 = 86_400;

#[tokio::test(start_paused = true)]
async fn keys_are_fetched_again_by_age_while_they_are_in_use() {
    let (old, new) = (TestKey::new("k1"), TestKey::new("k2"));
    let issuer = TestIssuer::start(&[&old]);
    let credentials = credentials(&config(&issuer.address, ""));
    let token = old.token(&issuer.lasting_claims(MCP, "", DAY));
    assert!(call(&credentials, &token, None).await.is_ok());
    pass(590).await;
    assert!(call(&credentials, &token, None).await.is_ok());
    pass(1).await;
    assert_eq!(issuer.asked(), 1, "younger than ten minutes");
    pass(10).await;
    *issuer.keys.lock() = key_set(&[&old, &new]);
    for _ in 0..3 {
        assert!(call(&credentials, &token, None).await.is_ok(), "a call does not wait for the fetch");
    }
    pass(0).await;
    assert_eq!(issuer.asked(), 2);
    // The new key is known before it is used, and needs no look-up.
    assert!(call(&credentials, &new.token(&issuer.claims(MCP, "")), None).await.is_ok());
    assert_eq!(issuer.asked(), 2);
    // A key that has left the set ends its tokens with the next fetch.
    *issuer.keys.lock() = key_set(&[&new]);
    pass(600).await;
    assert!(call(&credentials, &token, None).await.is_ok());
    pass(0).await;
    assert_eq!(call(&credentials, &token, None).await.unwrap_err(), StatusCode::UNAUTHORIZED);
    pass(DAY - 700).await;
    assert_eq!(issuer.asked(), 4, "unused keys are not fetched");
}

#[tokio::test(start_paused = true)]
async fn keys_are_used_for_a_day_while_their_issuer_is_away() {
    let key = TestKey::new("k1");
    let issuer = TestIssuer::start(&[&key]);
    let credentials = credentials(&config(&issuer.address, ""));
    let token = key.token(&issuer.lasting_claims(MCP, "", 2 * DAY));
    let call = async |token: &str| call(&credentials, token, None).await.map(|_| ());
    assert_eq!(call(&token).await, Ok(()));
    issuer.stop();
    pass(600).await;
    for _ in 0..29 {
        assert_eq!(call(&token).await, Ok(()));
        pass(1).await;
    }
    let per_fetch = FAILED.get();
    assert!((1..=4).contains(&per_fetch), "one attempt in 30 s: {per_fetch}");
    pass(DAY - 700).await;
    for more in ["", r#","scope":"new""#] {
        assert_eq!(call(&key.token(&issuer.lasting_claims(MCP, more, 2 * DAY))).await, Ok(()), "{more}");
    }
    pass(100).await;
    assert_eq!(call(&token).await, Err(StatusCode::SERVICE_UNAVAILABLE), "a day has passed");
    issuer.resume();
    assert_eq!(call(&token).await, Err(StatusCode::SERVICE_UNAVAILABLE), "the last attempt was a moment ago");
    pass(5).await;
    assert_eq!(call(&token).await, Ok(()));
}

#[tokio::test]
async fn the_oldest_validated_token_leaves_a_full_table() {
    let key = TestKey::new("k1");
    let issuer = TestIssuer::start(&[&key]);
    let (end, tasks) = (CancellationToken::new(), TaskGroup::default());
    let jwt = JwtCredentials::next(None, &config(&issuer.address, ""), &[], &tasks, &end).unwrap();
    let token = key.token(&issuer.claims(MCP, ""));
    jwt.validate(token.as_bytes(), None).await.unwrap();
    let first = token.as_bytes();
    let known = |text: &[u8]| jwt.tokens.find(text, ValidatedToken::clone);
    let entry = known(first).unwrap();
    let text = |number: usize| number.to_be_bytes();
    for number in 1..MAX_TOKENS {
        jwt.tokens.add(&text(number), entry.clone());
        // A token that is there takes no second place.
        jwt.tokens.add(&text(number), entry.clone());
    }
    assert!(known(first).is_some() && known(&text(1)).is_some());
    jwt.tokens.add(&text(0), entry);
    let is_there = [first, &text(1), &text(MAX_TOKENS - 1), &text(0)].map(|one| known(one).is_some());
    assert_eq!(is_there, [false, true, true, true]);
    // The token that has left is validated again.
    assert!(known(first).is_none() && jwt.validate(first, None).await.is_ok());
    assert!(known(&text(1)).is_none());
}
