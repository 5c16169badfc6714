//! Streamable HTTP: sessions for the legacy era, header checks for the modern one.

use std::collections::HashMap;
use std::convert::Infallible;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use axum::Router;
use axum::body::{Body, Bytes};
use axum::extract::State;
use axum::http::{HeaderMap, StatusCode, Uri};
use axum::response::{IntoResponse as _, Response};
use axum::routing::{MethodRouter, post};
use axum::serve::Listener;
use futures_util::{Stream, StreamExt as _, stream};
use serde_json::{Map, Value, json};
use tokio::sync::mpsc;

use super::FakeResponseKind;
use super::behaviour::Behaviour;
use super::foreign;
use super::polled::Polled;
use super::server::{FakeRequest, FakeServer, MODERN, notification};
use super::slip;

struct FakeHttpState {
    server: Arc<FakeServer>,
    sessions: Mutex<HashMap<String, FakeSession>>,
    /// Sessions so far.
    opened: AtomicU64,
    polled: Polled,
}

#[derive(Default)]
struct FakeSession {
    /// Requests served.
    served: u64,
    /// The session's own stream.
    stream: Option<mpsc::UnboundedSender<String>>,
}

/// Serves the connections of a listener at that address, under `/mcp`.
pub(crate) async fn serve(server: Arc<FakeServer>, listener: impl Listener<Addr = SocketAddr>, address: SocketAddr) {
    let sessions = Mutex::default();
    let life = server.args.behaviours.iter().find_map(|behaviour| match behaviour {
        Behaviour::Login(seconds) => Some(*seconds),
        _ => None,
    });
    let asked = Arc::clone(&server);
    let origin = server.args.origin.clone().unwrap_or_else(|| format!("http://{address}"));
    let web = Arc::new(FakeHttpState { server, sessions, opened: AtomicU64::new(0), polled: Polled::default() });
    let limit = axum::extract::DefaultBodyLimit::disable();
    let router = Router::new().route("/mcp", routes()).route("/mcp/", routes()).layer(limit).with_state(web);
    let router = match life {
        Some(life) => super::login::in_front(router, asked, origin, life),
        None => router,
    };
    axum::serve(listener, router).await.unwrap();
}

fn routes() -> MethodRouter<Arc<FakeHttpState>> {
    post(answer).get(listen_stream).delete(end)
}

fn text(headers: &HeaderMap, name: &str) -> Option<String> {
    headers.get(name).and_then(|value| value.to_str().ok()).map(str::to_owned)
}

/// Returns a header's value, with its Base64 decoded.
fn decoded(headers: &HeaderMap, name: &str) -> Option<String> {
    let value = text(headers, name)?;
    let inner = value.strip_prefix("=?base64?").and_then(|rest| rest.strip_suffix("?="));
    let bytes = inner.map(|inner| data_encoding::BASE64.decode(inner.as_bytes()).unwrap());
    Some(bytes.map_or(value.clone(), |bytes| String::from_utf8(bytes).unwrap()))
}

fn refuse(status: u16, id: &Value, code: i64, message: &str) -> Response {
    let error = json!({"jsonrpc": "2.0", "id": id, "error": {"code": code, "message": message}});
    (StatusCode::from_u16(status).unwrap(), [("content-type", "application/json")], error.to_string()).into_response()
}

/// Returns the response that an option describes: a status and a body. A status with `!` comes with
/// a challenge.
fn verbatim(text: &str, id: &Value) -> Response {
    let (status, body) = text.split_once(' ').unwrap_or((text, ""));
    let body = body.replace("${ID}", &id.to_string());
    let kind = if body.starts_with('{') { "application/json" } else { "text/plain" };
    if let Some(status) = status.strip_suffix('!') {
        let headers = [("content-type", kind), ("www-authenticate", "Bearer realm=\"x\"")];
        return (StatusCode::from_u16(status.parse().unwrap()).unwrap(), headers, body).into_response();
    }
    (StatusCode::from_u16(status.parse().unwrap()).unwrap(), [("content-type", kind)], body).into_response()
}

async fn answer(State(web): State<Arc<FakeHttpState>>, uri: Uri, headers: HeaderMap, body: Bytes) -> Response {
    if let Some(redirect) = foreign::redirect(&web.server, &uri, "POST") {
        return redirect;
    }
    let server = Arc::clone(&web.server);
    foreign::apply_habits(&server, answer_here(web, headers, body).await)
}

async fn answer_here(web: Arc<FakeHttpState>, headers: HeaderMap, body: Bytes) -> Response {
    let server = &web.server;
    if server.is_sick() {
        return StatusCode::SERVICE_UNAVAILABLE.into_response();
    }
    for behaviour in &server.args.behaviours {
        if let Behaviour::Status(code) = behaviour {
            return (StatusCode::from_u16(u16::try_from(*code).unwrap()).unwrap(), "oops").into_response();
        }
    }
    let seen: Map<String, Value> = headers
        .iter()
        .map(|(name, value)| (name.to_string(), json!(String::from_utf8_lossy(value.as_bytes()))))
        .collect();
    server.note(&json!({"headers": seen}).to_string());
    server.note(&String::from_utf8_lossy(&body));
    let Ok(message) = serde_json::from_slice::<Value>(&body) else {
        return refuse(400, &Value::Null, -32700, "Parse error");
    };
    let session = text(&headers, "mcp-session-id").unwrap_or_default();
    let Some(method) = message["method"].as_str().map(str::to_owned) else {
        server.asking.answered(&session, &message);
        return StatusCode::ACCEPTED.into_response();
    };
    let (notices, outbox) = mpsc::unbounded_channel();
    let param_headers: Map<String, Value> =
        seen.into_iter().filter(|(name, _)| name.starts_with("mcp-param-")).collect();
    let aside = web.sessions.lock().unwrap().get(&session).and_then(|session| session.stream.clone());
    let (id, params) = (message["id"].clone(), message["params"].clone());
    let request = FakeRequest { id, method, params, param_headers, notices, session, aside };
    match server.args.discover.as_deref().filter(|_| request.method == "server/discover") {
        None => {}
        Some("silence") => return std::future::pending().await,
        Some(text) => return verbatim(text, &request.id),
    }
    if let Err(refused) = web.admit(&headers, &request) {
        return refused;
    }
    if request.method == "subscriptions/listen"
        && let Some(short) = foreign::short_stream(server)
    {
        return short;
    }
    if let Some(reject) = server.args.reject.as_ref().filter(|_| request.params["name"] == "denied") {
        server.note(&json!({"rejected": request.session}).to_string());
        return verbatim(reject, &request.id);
    }
    if let Some(status) = server.instead(&request.method)["status"].as_u64() {
        return (StatusCode::from_u16(u16::try_from(status).unwrap()).unwrap(), "oops").into_response();
    }
    for behaviour in &server.args.behaviours {
        if let (Behaviour::RefuseCalls(code), "tools/call") = (behaviour, request.method.as_str()) {
            let status = StatusCode::from_u16(u16::try_from(*code).unwrap()).unwrap();
            let error = json!({"error": "insufficient_scope"}).to_string();
            let challenge = ("www-authenticate", "Bearer error=\"insufficient_scope\"");
            return (status, [("content-type", "application/json"), challenge], error).into_response();
        }
        if let (Behaviour::ForbidCalls, "tools/call") = (behaviour, request.method.as_str()) {
            return refuse(403, &request.id, -32001, "this tool is not yours");
        }
    }
    for behaviour in &server.args.behaviours {
        if let (Behaviour::SlowRefusal(code), "tools/call", Some(aside)) =
            (behaviour, request.method.as_str(), request.aside.clone())
        {
            let notice =
                json!({"jsonrpc": "2.0", "method": "notifications/message", "params": {"level": "info", "data": 1}});
            tokio::spawn(async move {
                tokio::time::sleep(std::time::Duration::from_millis(50)).await;
                aside.send(notice.to_string()).unwrap();
            });
            let endless = stream::once(async { Ok::<_, Infallible>(Bytes::from("oops")) }).chain(stream::pending());
            let status = StatusCode::from_u16(u16::try_from(*code).unwrap()).unwrap();
            return (status, Body::from_stream(endless)).into_response();
        }
    }
    for behaviour in &server.args.behaviours {
        if let (Behaviour::LateCancel(ms), "notifications/cancelled", Some(aside)) =
            (behaviour, request.method.as_str(), &request.aside)
        {
            let stray = json!({"jsonrpc": "2.0", "id": "stray", "method": "elicitation/create", "params": {
                "message": "Of the call that was cancelled", "requestedSchema": {"type": "object", "properties": {}}
            }});
            aside.send(stray.to_string()).unwrap();
            let log = json!({"level": "error", "data": "of the call that was cancelled"});
            aside.send(notification("notifications/message", &log)).unwrap();
            tokio::time::sleep(std::time::Duration::from_millis(*ms)).await;
        }
    }
    if request.method == "tools/call" {
        server.note(&json!({"executed": request.params["arguments"], "session": request.session}).to_string());
    }
    if request.method == "notifications/cancelled" {
        server.cancel(&request.session, &request.params["requestId"]);
    }
    if request.id.is_null() {
        return StatusCode::ACCEPTED.into_response();
    }
    let session = (request.method == "initialize").then(|| web.open());
    if let Some(session) = &session {
        server.learn(session, &request.params);
    }
    let mut response = web.respond(request, outbox).await;
    if let Some(session) = session.filter(|_| response.status() == StatusCode::OK) {
        response.headers_mut().insert("mcp-session-id", session.parse().unwrap());
    }
    response
}

impl FakeHttpState {
    fn open(&self) -> String {
        let mut sessions = self.sessions.lock().unwrap();
        let id = format!("session-{}-{}", self.server.number(), self.opened.fetch_add(1, Ordering::SeqCst) + 1);
        sessions.insert(id.clone(), FakeSession::default());
        id
    }

    /// Returns whether the file of forgotten sessions has this session.
    fn is_forgotten(&self, session: &str) -> bool {
        let text = self.server.args.forget.as_ref().and_then(|path| std::fs::read_to_string(path).ok());
        let number = session.rsplit('-').next().unwrap_or_default();
        text.is_some_and(|text| text.split(' ').any(|forgotten| forgotten == number))
    }

    /// Checks the headers of a request before it is served.
    fn admit(&self, headers: &HeaderMap, request: &FakeRequest) -> Result<(), Response> {
        let version = text(headers, "mcp-protocol-version");
        if request.is_modern() || version.as_deref() == Some(MODERN) {
            if !self.server.speaks_modern() {
                return Err(refuse(400, &request.id, -32600, "Unsupported protocol version"));
            }
            return modern_headers(headers, request, version.as_deref());
        }
        if request.method == "initialize" {
            return Ok(());
        }
        let Some(session) = text(headers, "mcp-session-id") else {
            return Err(refuse(400, &request.id, -32600, "no session"));
        };
        let mut sessions = self.sessions.lock().unwrap();
        let unknown = || match &self.server.args.lost {
            Some(lost) => verbatim(lost, &request.id),
            None => refuse(404, &request.id, -32600, "unknown session"),
        };
        if self.is_forgotten(&session) {
            sessions.remove(&session);
        }
        let Some(FakeSession { served, .. }) = sessions.get_mut(&session) else { return Err(unknown()) };
        *served += 1;
        let worn = |b: &Behaviour| matches!(b, Behaviour::DropSessionAfter(limit) if *served > *limit);
        if self.server.args.behaviours.iter().any(worn) {
            sessions.remove(&session);
            return Err(unknown());
        }
        Ok(())
    }

    async fn respond(self: &Arc<Self>, request: FakeRequest, mut outbox: mpsc::UnboundedReceiver<String>) -> Response {
        if request.method == "tools/call" {
            for behaviour in &self.server.args.behaviours {
                if let Behaviour::Polled(retry) = behaviour {
                    return self.polled.call(&self.server, request, outbox, *retry);
                }
            }
            if self.server.does(Behaviour::Aside) {
                let server = Arc::clone(&self.server);
                tokio::spawn(async move { server.answer(&request).await.map(|answer| server.changes.send(answer)) });
                return events(stream::pending::<Result<String, Infallible>>());
            }
        }
        let streams = self.server.args.answers == FakeResponseKind::Sse || request.method == "subscriptions/listen";
        let cut = self.server.does(Behaviour::HttpCut) && request.method == "tools/call";
        if self.server.script.answers(&request, &request.notices) {
            drop(request);
            let lines = std::iter::from_fn(|| outbox.try_recv().ok()).collect::<Vec<_>>();
            if streams {
                return events(stream::iter(lines.into_iter().map(Ok::<_, Infallible>)));
            }
            let last = lines.into_iter().next_back().unwrap_or_default();
            return ([("content-type", "application/json")], slip::bytes(&last)).into_response();
        }
        if !streams && !cut {
            let (server, gone) = (Arc::clone(&self.server), HangUpGuard::new(&self.server, &request));
            let answer = server.answer(&request).await;
            gone.disarm();
            drop(request);
            // One JSON body has no room for notices.
            outbox.close();
            return match answer {
                Some(answer) => {
                    let unknown = answer.contains("\"code\":-32601");
                    let status = if unknown && answer.contains("Method not found") { 404 } else { 200 };
                    let status = if self.server.speaks_modern() { status } else { 200 };
                    (StatusCode::from_u16(status).unwrap(), [("content-type", "application/json")], answer)
                        .into_response()
                }
                None => StatusCode::ACCEPTED.into_response(),
            };
        }
        let server = Arc::clone(&self.server);
        let gone = HangUpGuard::new(&self.server, &request);
        let answered = stream::once(async move {
            // After the request's notices.
            server.answer(&request).await.into_iter().for_each(|answer| drop(request.notices.send(answer)));
            drop(request);
            gone.disarm();
            String::new()
        });
        let notices = stream::unfold(outbox, |mut outbox| async move { Some((outbox.recv().await?, outbox)) });
        if cut {
            return events(stream::iter([Err::<String, _>(std::io::Error::other("cut"))]));
        }
        events(
            stream::select(notices, answered)
                .filter(|text| std::future::ready(!text.is_empty()))
                .map(Ok::<_, Infallible>),
        )
    }
}

/// Cancels a request whose client hangs up, and logs that.
struct HangUpGuard {
    server: Arc<FakeServer>,
    session: String,
    id: Value,
    armed: bool,
}

impl HangUpGuard {
    fn new(server: &Arc<FakeServer>, request: &FakeRequest) -> Self {
        Self { server: Arc::clone(server), session: request.session.clone(), id: request.id.clone(), armed: true }
    }

    fn disarm(mut self) {
        self.armed = false;
    }
}

impl Drop for HangUpGuard {
    fn drop(&mut self) {
        if self.armed {
            self.server.note(&json!({"cancelled": self.id}).to_string());
            self.server.cancel(&self.session, &self.id);
        }
    }
}

fn events<E>(texts: impl Stream<Item = Result<String, E>> + Send + 'static) -> Response
where
    E: std::error::Error + Send + Sync + 'static,
{
    let events = texts.map(|text| text.map(|text| slip::bytes(&format!("event: message\ndata: {text}\n\n"))));
    ([("content-type", "text/event-stream"), ("cache-control", "no-store")], Body::from_stream(events)).into_response()
}

fn modern_headers(headers: &HeaderMap, request: &FakeRequest, version: Option<&str>) -> Result<(), Response> {
    let mismatch = |what: &str| Err(refuse(400, &request.id, -32020, &format!("{what} differs from the body")));
    if version != Some(MODERN) || !request.is_modern() {
        return mismatch("MCP-Protocol-Version");
    }
    if text(headers, "mcp-method").as_deref() != Some(request.method.as_str()) {
        return mismatch("Mcp-Method");
    }
    let named = match request.method.as_str() {
        "tools/call" | "prompts/get" => Some("name"),
        "resources/read" => Some("uri"),
        _ => None,
    };
    if let Some(member) = named
        && decoded(headers, "mcp-name").as_deref() != request.params[member].as_str()
    {
        return mismatch("Mcp-Name");
    }
    if request.params["name"] == "region" {
        let arguments = &request.params["arguments"];
        for (header, value) in [("region", &arguments["region"]), ("n", &arguments["n"])] {
            let wanted = match value {
                Value::Null => None,
                Value::String(text) => Some(text.clone()),
                other => Some(other.to_string()),
            };
            if decoded(headers, &format!("mcp-param-{header}")) != wanted {
                return mismatch("Mcp-Param");
            }
        }
    }
    Ok(())
}

async fn listen_stream(State(web): State<Arc<FakeHttpState>>, uri: Uri, headers: HeaderMap) -> Response {
    if let Some(redirect) = foreign::redirect(&web.server, &uri, "GET") {
        return redirect;
    }
    let server = Arc::clone(&web.server);
    foreign::apply_habits(&server, listen_here(&web, &headers))
}

fn listen_here(web: &FakeHttpState, headers: &HeaderMap) -> Response {
    if web.server.is_sick() {
        return StatusCode::SERVICE_UNAVAILABLE.into_response();
    }
    let session = text(headers, "mcp-session-id").unwrap_or_default();
    if let Some(last) = text(headers, "last-event-id") {
        web.server.note(&json!({"http": "GET", "last": last, "session": session}).to_string());
        let found = web.polled.resume(&last).filter(|_| !web.server.does(Behaviour::ForgetEvents));
        return found.unwrap_or_else(|| StatusCode::NOT_FOUND.into_response());
    }
    if web.server.does(Behaviour::NoChanges) {
        return StatusCode::METHOD_NOT_ALLOWED.into_response();
    }
    let note = json!({"http": "GET", "session": session}).to_string();
    if let Some(short) = foreign::short_stream(&web.server) {
        web.server.note(&note);
        return short;
    }
    let (told, outbox) = mpsc::unbounded_channel();
    let mut sessions = web.sessions.lock().unwrap();
    let Some(entry) = sessions.get_mut(&session) else {
        web.server.note(&note);
        return match &web.server.args.lost {
            Some(lost) if !session.is_empty() => verbatim(lost, &Value::Null),
            _ if session.is_empty() => StatusCode::METHOD_NOT_ALLOWED.into_response(),
            _ => StatusCode::NOT_FOUND.into_response(),
        };
    };
    // A new stream ends the one before.
    entry.stream = Some(told);
    let changes = web.server.changes.subscribe();
    drop(sessions);
    web.server.note(&note);
    let opening = stream::iter([": open\n\n".to_owned()]);
    let frame = |text: String| format!("event: message\ndata: {text}\n\n");
    let own = stream::unfold(outbox, |mut outbox| async move { Some((outbox.recv().await?, outbox)) });
    let ended = stream::once(std::future::ready(String::new()));
    let changed = stream::unfold(changes, |mut changes| async move { Some((changes.recv().await.ok()?, changes)) });
    let told = stream::select(own.chain(ended), changed).take_while(|text| std::future::ready(!text.is_empty()));
    let body = Body::from_stream(opening.chain(told.map(frame)).map(Ok::<_, Infallible>));
    ([("content-type", "text/event-stream"), ("cache-control", "no-store")], body).into_response()
}

async fn end(State(web): State<Arc<FakeHttpState>>, headers: HeaderMap) -> Response {
    let session = text(&headers, "mcp-session-id").unwrap_or_default();
    web.server.note(&json!({"http": "DELETE", "session": session}).to_string());
    let ended = web.sessions.lock().unwrap().remove(&session);
    let status = if ended.is_some() { StatusCode::NO_CONTENT } else { StatusCode::NOT_FOUND };
    status.into_response()
}
