//! The HTTP+SSE transport of 2024-11-05: a stream for every answer, and POSTs to the endpoint of
//! its first event.

use std::collections::HashMap;
use std::convert::Infallible;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex};

use axum::Router;
use axum::body::{Body, Bytes};
use axum::extract::State;
use axum::http::{HeaderMap, StatusCode, Uri};
use axum::response::{IntoResponse as _, Response};
use axum::routing::{get, post};
use axum::serve::Listener;
use futures_util::{StreamExt as _, stream};
use serde_json::{Map, Value, json};
use tokio::sync::mpsc;

use super::behaviour::Behaviour;
use super::foreign::{self, HEARTBEATS};
use super::server::{FakeRequest, FakeServer};
use super::slip;

struct FakeSseState {
    server: Arc<FakeServer>,
    /// The streams, each with its messages; an empty text ends it.
    sessions: Mutex<HashMap<String, mpsc::UnboundedSender<String>>>,
}

/// Serves the connections of a listener, under `/sse`.
pub(crate) async fn serve(server: Arc<FakeServer>, listener: impl Listener<Addr = SocketAddr>) {
    let web = Arc::new(FakeSseState { server, sessions: Mutex::default() });
    let limit = axum::extract::DefaultBodyLimit::disable();
    let router = Router::new()
        .route("/sse", get(open))
        .route("/sse/", get(open))
        .route("/messages/", post(take))
        .route("/messages", post(take))
        .layer(limit)
        .with_state(web);
    axum::serve(listener, router).await.unwrap();
}

fn note_headers(server: &FakeServer, http: &str, headers: &HeaderMap) {
    let seen: Map<String, Value> = headers
        .iter()
        .map(|(name, value)| (name.to_string(), json!(String::from_utf8_lossy(value.as_bytes()))))
        .collect();
    server.note(&json!({"http": http, "headers": seen}).to_string());
}

async fn open(State(web): State<Arc<FakeSseState>>, uri: Uri, headers: HeaderMap) -> Response {
    if let Some(redirect) = foreign::redirect(&web.server, &uri, "GET") {
        return redirect;
    }
    if web.server.args.media.is_some() {
        let page = ([("content-type", "application/json")], "{}").into_response();
        return foreign::apply_habits(&web.server, page);
    }
    if web.server.is_sick() {
        return StatusCode::SERVICE_UNAVAILABLE.into_response();
    }
    note_headers(&web.server, "GET", &headers);
    let (messages, outbox) = mpsc::unbounded_channel::<String>();
    let id = {
        let mut sessions = web.sessions.lock().unwrap();
        let id = format!("session-{}-{}", web.server.number(), sessions.len() + 1);
        sessions.insert(id.clone(), messages);
        id
    };
    let named = web.server.args.endpoint.clone().unwrap_or_else(|| format!("/messages?sessionId={id}"));
    let first = format!(": welcome\n\nevent: endpoint\ndata: {named}\n\n");
    let told = stream::unfold(outbox, |mut outbox| async move {
        let text = outbox.recv().await.filter(|text| !text.is_empty())?;
        Some((format!("event: message\ndata: {text}\n\n"), outbox))
    });
    let second = web.server.does(Behaviour::SecondEndpoint);
    let changes = web.server.changes.subscribe();
    let changed = stream::unfold(changes, |mut changes| async move {
        let text = changes.recv().await.ok()?;
        Some((format!("data: {text}\n\n"), changes))
    });
    let heartbeats = web.server.does(Behaviour::Heartbeats);
    let told = told.map(move |text| if heartbeats { format!("{HEARTBEATS}{text}") } else { text }).map(move |text| {
        // Clients must ignore a second endpoint event.
        if second { format!("event: endpoint\ndata: https://evil.example/messages\n\n{text}") } else { text }
    });
    let ended = stream::once(async { String::new() });
    let body = stream::select(told.chain(ended), changed).take_while(|text| std::future::ready(!text.is_empty()));
    let body = stream::iter([first]).chain(body).map(|text| Ok::<_, Infallible>(slip::bytes(&text)));
    ([("content-type", "text/event-stream"), ("cache-control", "no-store")], Body::from_stream(body)).into_response()
}

async fn take(State(web): State<Arc<FakeSseState>>, uri: Uri, headers: HeaderMap, body: Bytes) -> Response {
    let server = Arc::clone(&web.server);
    if server.is_sick() {
        return StatusCode::SERVICE_UNAVAILABLE.into_response();
    }
    note_headers(&server, "POST", &headers);
    server.note(&String::from_utf8_lossy(&body));
    let id = uri.query().and_then(|query| query.strip_prefix("sessionId="));
    let notices = id.and_then(|id| web.sessions.lock().unwrap().get(id).cloned());
    let Some(notices) = notices else { return StatusCode::NOT_FOUND.into_response() };
    let Ok(message) = serde_json::from_slice::<Value>(&body) else { return StatusCode::BAD_REQUEST.into_response() };
    let method = message["method"].as_str().unwrap_or_default().to_owned();
    if method == "notifications/cancelled" {
        server.cancel(id.unwrap_or_default(), &message["params"]["requestId"]);
    }
    if method.is_empty() {
        server.asking.answered(id.unwrap_or_default(), &message);
    }
    if server.does(Behaviour::HttpCut) && method == "tools/call" {
        drop(notices.send(String::new()));
        return StatusCode::ACCEPTED.into_response();
    }
    for behaviour in &server.args.behaviours {
        if let Behaviour::Status(code) = behaviour
            && method == "tools/call"
        {
            return StatusCode::from_u16(u16::try_from(*code).unwrap()).unwrap().into_response();
        }
    }
    if !method.is_empty() && !message["id"].is_null() {
        let (session, aside) = (id.unwrap_or_default().to_owned(), Some(notices.clone()));
        let (id, params) = (message["id"].clone(), message["params"].clone());
        let request = FakeRequest { id, method, params, param_headers: Map::default(), notices, session, aside };
        let held = server.does(Behaviour::HoldPosts);
        let answered = tokio::spawn(one(server, request));
        if held {
            answered.await.unwrap();
        }
    }
    (StatusCode::ACCEPTED, "Accepted").into_response()
}

async fn one(server: Arc<FakeServer>, request: FakeRequest) {
    if server.script.answers(&request, &request.notices) {
        return;
    }
    let Some(answer) = server.answer(&request).await else { return };
    let call = request.method == "tools/call";
    if server.does(Behaviour::HugeLine) && call {
        return drop(request.notices.send("y".repeat(20 << 20)));
    }
    drop(request.notices.send(answer));
}
