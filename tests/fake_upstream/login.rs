//! An authorization server in front of `/mcp`, for `--behaviour login=SECONDS`: tokens that live so
//! long, refresh tokens that are exchanged at each use, and families of them that end when one
//! comes a second time. Its page agrees at once. Clients and workloads get tokens of their own.
//! Everything that it is asked goes to the log.
//!
//! A POST to `/set` changes what it says from then on: `issuer` is the one that the resource's
//! metadata names, `page` the origin of the login page, `needed` a scope without which a token is
//! refused with 403.

use std::collections::{HashMap, HashSet};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use axum::Router;
use axum::body::{Body, Bytes};
use axum::extract::{Request, State};
use axum::http::{HeaderMap, StatusCode};
use axum::middleware::{Next, from_fn_with_state};
use axum::response::{IntoResponse as _, Response};
use axum::routing::{get, post};
use serde_json::json;
use tokio::sync::watch;
use url::form_urlencoded;

use super::server::FakeServer;

/// The state of the authorization server.
pub(crate) struct Issuer {
    server: Arc<FakeServer>,
    origin: String,
    life: u64,
    inner: Mutex<IssuedTokens>,
    /// Whether codes are exchanged at once; switched by `/hold` and `/release`.
    is_open: watch::Sender<bool>,
}

#[derive(Default)]
struct IssuedTokens {
    count: u64,
    /// Challenges of PKCE by code.
    codes: HashMap<String, String>,
    /// Family and end by access token.
    access: HashMap<String, (u64, Instant)>,
    /// Scopes by access token or code.
    scopes: HashMap<String, String>,
    /// Values that `/set` gave, by name.
    set: LoginFormFields,
    /// Family by refresh token; used ones too.
    refresh: HashMap<String, u64>,
    used: HashSet<String>,
    ended: HashSet<u64>,
}

type LoginFormFields = HashMap<String, String>;

fn fields(text: &[u8]) -> LoginFormFields {
    form_urlencoded::parse(text).into_owned().collect()
}

fn json_of(status: StatusCode, body: &serde_json::Value) -> Response {
    (status, [("content-type", "application/json")], body.to_string()).into_response()
}

fn refused(error: &str) -> Response {
    json_of(StatusCode::BAD_REQUEST, &json!({ "error": error }))
}

impl Issuer {
    fn note(&self, what: &str) {
        self.server.note(&json!({ "login": what }).to_string());
    }

    /// Returns the value that `/set` gave a name, or `otherwise`.
    fn word(&self, name: &str, otherwise: &str) -> String {
        self.inner.lock().unwrap().set.get(name).map_or(otherwise, String::as_str).to_owned()
    }

    /// Issues tokens of a family with these scopes.
    fn grant(&self, inner: &mut IssuedTokens, family: u64, scope: &str) -> Response {
        inner.count += 1;
        let (access, refresh) = (format!("canary-access-{}", inner.count), format!("canary-refresh-{}", inner.count));
        inner.access.insert(access.clone(), (family, Instant::now() + Duration::from_secs(self.life)));
        inner.refresh.insert(refresh.clone(), family);
        inner.scopes.insert(access.clone(), scope.to_owned());
        inner.scopes.insert(refresh.clone(), scope.to_owned());
        let answer = json!({ "access_token": access, "refresh_token": refresh, "token_type": "Bearer", "expires_in": self.life,
            "scope": scope });
        json_of(StatusCode::OK, &answer)
    }
}

async fn resource(State(issuer): State<Arc<Issuer>>) -> Response {
    let resource = format!("{}/mcp", issuer.origin);
    let named = issuer.word("issuer", &issuer.origin);
    json_of(
        StatusCode::OK,
        &json!({ "resource": resource, "authorization_servers": [named], "scopes_supported": ["mcp"] }),
    )
}

async fn metadata(State(issuer): State<Arc<Issuer>>) -> Response {
    issuer.note("metadata");
    let at = |path: &str| format!("{}{path}", issuer.origin);
    let page = format!("{}/authorize", issuer.word("page", &issuer.origin));
    let document = json!({
        "issuer": issuer.origin, "authorization_endpoint": page, "token_endpoint": at("/token"),
        "registration_endpoint": at("/register"), "revocation_endpoint": at("/revoke"),
        "code_challenge_methods_supported": ["S256"], "token_endpoint_auth_methods_supported": ["none"],
        "response_types_supported": ["code"], "authorization_response_iss_parameter_supported": true,
    });
    json_of(StatusCode::OK, &document)
}

async fn register(State(issuer): State<Arc<Issuer>>, body: Bytes) -> Response {
    issuer.note("register");
    let mut client: serde_json::Value = serde_json::from_slice(&body).unwrap();
    client["client_id"] = json!("fake-client");
    client["token_endpoint_auth_method"] = json!("none");
    json_of(StatusCode::CREATED, &client)
}

async fn authorize(State(issuer): State<Arc<Issuer>>, request: Request) -> Response {
    issuer.note("authorize");
    let asked = fields(request.uri().query().unwrap_or_default().as_bytes());
    let mut inner = issuer.inner.lock().unwrap();
    inner.count += 1;
    let code = format!("canary-code-{}", inner.count);
    inner.codes.insert(code.clone(), asked["code_challenge"].clone());
    inner.scopes.insert(code.clone(), asked.get("scope").cloned().unwrap_or_default());
    let back = form_urlencoded::Serializer::new(String::new())
        .append_pair("code", &code)
        .append_pair("state", &asked["state"])
        .append_pair("iss", &issuer.origin)
        .finish();
    (StatusCode::FOUND, [("location", format!("{}?{back}", asked["redirect_uri"]))]).into_response()
}

async fn token(State(issuer): State<Arc<Issuer>>, body: Bytes) -> Response {
    let asked = fields(&body);
    if asked["grant_type"] == "authorization_code" {
        issuer.note("code");
        issuer.is_open.subscribe().wait_for(|is_open| *is_open).await.unwrap();
    }
    let mut inner = issuer.inner.lock().unwrap();
    match asked["grant_type"].as_str() {
        "authorization_code" => {
            let Some(challenge) = inner.codes.remove(&asked["code"]) else { return refused("invalid_grant") };
            let digest = ring::digest::digest(&ring::digest::SHA256, asked["code_verifier"].as_bytes());
            assert_eq!(challenge, data_encoding::BASE64URL_NOPAD.encode(digest.as_ref()), "PKCE");
            assert_eq!(asked["resource"], format!("{}/mcp", issuer.origin));
            inner.count += 1;
            let (family, scope) = (inner.count, inner.scopes.remove(&asked["code"]).unwrap_or_default());
            issuer.grant(&mut inner, family, &scope)
        }
        "refresh_token" => {
            let old = asked["refresh_token"].clone();
            let Some(family) = inner.refresh.get(&old).copied() else { return refused("invalid_grant") };
            let scope = inner.scopes.get(&old).cloned().unwrap_or_default();
            if !inner.used.insert(old) {
                issuer.note("reuse");
                inner.ended.insert(family);
            }
            if inner.ended.contains(&family) {
                return refused("invalid_grant");
            }
            issuer.note("refresh");
            issuer.grant(&mut inner, family, &scope)
        }
        "client_credentials" | "urn:ietf:params:oauth:grant-type:jwt-bearer" => {
            issuer.note("by itself");
            inner.count += 1;
            let (family, scope) = (inner.count, asked.get("scope").cloned().unwrap_or_default());
            issuer.grant(&mut inner, family, &scope)
        }
        _ => refused("unsupported_grant_type"),
    }
}

async fn revoke(State(issuer): State<Arc<Issuer>>, body: Bytes) -> Response {
    issuer.note("revoke");
    let asked = fields(&body);
    let mut inner = issuer.inner.lock().unwrap();
    let of_access = inner.access.get(&asked["token"]).map(|(family, _)| *family);
    let family = inner.refresh.get(&asked["token"]).copied().or(of_access);
    inner.ended.extend(family);
    StatusCode::OK.into_response()
}

/// Ends every login, as an administrator would.
async fn end_all(State(issuer): State<Arc<Issuer>>) -> Response {
    let mut inner = issuer.inner.lock().unwrap();
    let all: Vec<u64> = inner.refresh.values().copied().collect();
    inner.ended.extend(all);
    StatusCode::OK.into_response()
}

async fn set(State(issuer): State<Arc<Issuer>>, request: Request) {
    let words = fields(request.uri().query().unwrap_or_default().as_bytes());
    issuer.inner.lock().unwrap().set.extend(words);
}

async fn hold(State(issuer): State<Arc<Issuer>>) {
    issuer.is_open.send_replace(false);
}

async fn release(State(issuer): State<Arc<Issuer>>) {
    issuer.is_open.send_replace(true);
}

async fn guard(State(issuer): State<Arc<Issuer>>, headers: HeaderMap, request: Request<Body>, next: Next) -> Response {
    let token = headers.get("authorization").and_then(|value| value.to_str().ok()?.strip_prefix("Bearer "));
    let is_good = token.is_some_and(|token| {
        let inner = issuer.inner.lock().unwrap();
        inner.access.get(token).is_some_and(|(family, end)| *end > Instant::now() && !inner.ended.contains(family))
    });
    if is_good {
        let needed = issuer.word("needed", "");
        let scopes = issuer.inner.lock().unwrap().scopes.get(token.unwrap_or_default()).cloned().unwrap_or_default();
        if needed.is_empty() || scopes.split(' ').any(|scope| scope == needed) {
            return next.run(request).await;
        }
        issuer.note("few scopes");
        let challenge = format!("Bearer error=\"insufficient_scope\", scope=\"mcp {needed}\"");
        return (StatusCode::FORBIDDEN, [("www-authenticate", challenge)], "no").into_response();
    }
    issuer.note(if token.is_some() { "wrong token" } else { "no token" });
    let error = if token.is_some() { "error=\"invalid_token\", " } else { "" };
    let challenge = format!(
        "Bearer {error}scope=\"mcp\", resource_metadata=\"{}/.well-known/oauth-protected-resource/mcp\"",
        issuer.origin
    );
    (StatusCode::UNAUTHORIZED, [("www-authenticate", challenge)], "no").into_response()
}

/// Puts the authorization server in front of a router.
pub(crate) fn in_front(router: Router, server: Arc<FakeServer>, origin: String, life: u64) -> Router {
    let issuer = Arc::new(Issuer { server, origin, life, inner: Mutex::default(), is_open: watch::Sender::new(true) });
    let documents = Router::new()
        .route("/.well-known/oauth-protected-resource/mcp", get(resource))
        .route("/.well-known/oauth-authorization-server", get(metadata))
        .route("/register", post(register))
        .route("/authorize", get(authorize))
        .route("/token", post(token))
        .route("/revoke", post(revoke))
        .route("/end-all", post(end_all))
        .route("/set", post(set))
        .route("/hold", post(hold))
        .route("/release", post(release))
        .with_state(Arc::clone(&issuer));
    router.layer(from_fn_with_state(issuer, guard)).merge(documents)
}
