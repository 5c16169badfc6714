//! One HTTP request: from its head through the ladder of checks to an answer. The order of the rungs is the order in
//! which the first failing one answers.

use std::collections::VecDeque;
use std::sync::Arc;

use bytes::Bytes;
use futures_util::stream::FuturesUnordered;
use http::header::HeaderMap;
use http::request::Parts;
use http::{HeaderValue, Method as HttpMethod, Request as HttpRequest, Response, StatusCode};
use hyper::body::Incoming;
use tokio_util::sync::CancellationToken;

use crate::engine::answer::{Answer, not_found};
use crate::engine::client::head::{self, is_modern, mismatch};
use crate::engine::client::heard::{Batch, Heard};
use crate::engine::route::{Params, RouteError, params_object};
use crate::gateway::awaiting_approval::Handled;
use crate::gateway::client::ClientContext;
use crate::gateway::question::client_requests::ClientRequests;
use crate::gateway::quota::Good;
use crate::listener::body::ReplyBody;
use crate::listener::pieces::Pieces;
use crate::listener::reply;
use crate::mcp::capability::initialize_result;
use crate::mcp::input::Kinds;
use crate::mcp::meta::Meta;
use crate::mcp::method::Method;
use crate::mcp::trace;
use crate::mcp::version::{Era, Revision};
use crate::serve::front::{Front, Seat};
use crate::serve::http_response::{Conversation, Entered};
use crate::serve::legacy_sse;
use crate::serve::modern;
use crate::serve::request_body::{accepts, no_message, not_json, read_body};
use crate::serve::session_stream;
use crate::serve::sessions::Session;
use crate::upstream::session_news::ClientTag;
use crate::wire::code;
use crate::wire::id::ClientId;
use crate::wire::message::{self, Message, Notification, Request};

type Reply = Response<ReplyBody>;

const SESSION_HEADER: &str = "mcp-session-id";

/// Everything that the rungs after authentication need to know of a request.
struct Asked<'a> {
    front: &'a Arc<Front>,
    seat: &'a Seat,
    headers: &'a HeaderMap,
    caller: Arc<str>,
    profile: Option<Arc<str>>,
    accepts_events: bool,
}

/// Answers one HTTP request.
pub(crate) async fn handle(front: &Arc<Front>, request: HttpRequest<Incoming>, seat: &Seat) -> Reply {
    let (head, body) = request.into_parts();
    match admit(front, &head, seat) {
        Err(response) => *response,
        Ok(Route::WellKnown) => front.resource_metadata(&head),
        Ok(Route::Endpoint { caller, .. } | Route::LegacySse { caller, .. }) if !seat.allows(front, &caller) => {
            let mut response = reply::retry_later(StatusCode::SERVICE_UNAVAILABLE, 5, "too many connections");
            response.headers_mut().insert(http::header::CONNECTION, HeaderValue::from_static("close"));
            response
        }
        Ok(Route::Endpoint { profile, caller }) => {
            let events = accepts(&head.headers, "text/event-stream");
            let asked = Asked { front, seat, headers: &head.headers, caller, profile, accepts_events: events };
            if head.method == HttpMethod::POST { asked.post(&head, body).await } else { asked.get_or_delete(&head) }
        }
        Ok(Route::LegacySse { path, caller }) => legacy_sse::handle(front, path, caller, seat, (&head, body)).await,
    }
}

enum Route {
    Endpoint { profile: Option<Arc<str>>, caller: Arc<str> },
    LegacySse { path: legacy_sse::Path, caller: Arc<str> },
    WellKnown,
}

/// Rungs 3 to 6: Host and Origin, path and method, credentials.
fn admit(front: &Arc<Front>, head: &Parts, seat: &Seat) -> Result<Route, Box<Reply>> {
    front.guard.admit(head)?;
    let path = head.uri.path();
    if path == "/.well-known/oauth-protected-resource" && front.guard.asks_for_token() {
        return Ok(Route::WellKnown);
    }
    if let Some(path) = legacy_sse::Path::of(front, path) {
        path.admit(&head.method)?;
        return Ok(Route::LegacySse { path, caller: front.authenticate(head, seat)? });
    }
    let Some(profile) = front.profile_at(&front.endpoint, path) else {
        let text = "nothing here; the MCP endpoint has another path";
        return Err(Box::new(reply::refusal(StatusCode::NOT_FOUND, code::INVALID_REQUEST, text)));
    };
    let known = [HttpMethod::POST, HttpMethod::GET, HttpMethod::DELETE];
    if !known.contains(&head.method) {
        return Err(Box::new(reply::method_not_allowed("POST, GET, DELETE")));
    }
    Ok(Route::Endpoint { profile, caller: front.authenticate(head, seat)? })
}

/// The trace context of the HTTP request, for a message that has none.
fn trace_of(headers: &HeaderMap, meta: &mut Meta) {
    let mut parents = headers.get_all(trace::PARENT).iter().filter_map(|value| value.to_str().ok());
    if let (Some(parent), None) = (parents.next(), parents.next()) {
        let states: Vec<&str> = headers.get_all(trace::STATE).iter().filter_map(|value| value.to_str().ok()).collect();
        meta.fall_back_on(parent.trim(), (!states.is_empty()).then(|| states.join(",")).as_deref());
    }
}

impl Asked<'_> {
    async fn post(&self, head: &Parts, body: Incoming) -> Reply {
        if let Some(response) = not_json(self.headers) {
            return response;
        }
        if !self.accepts_events && !accepts(self.headers, "application/json") {
            let text = "Accept must allow application/json or text/event-stream";
            return reply::refusal_and_close(StatusCode::NOT_ACCEPTABLE, code::INVALID_REQUEST, text);
        }
        if let Err(response) = self.front.admit(&self.caller, 1) {
            return *response;
        }
        match read_body(body, &head.headers, self.front).await {
            Ok(bytes) => self.message(bytes).await,
            Err(response) => *response,
        }
    }

    /// Rungs 10 and 11: JSON, then JSON-RPC.
    async fn message(&self, bytes: Bytes) -> Reply {
        match Heard::read(bytes, self.front.bounds) {
            Heard::Batch(batch) => Box::pin(self.batch(batch)).await,
            Heard::Message(Ok(Message::Request(request))) => self.request(request).await,
            Heard::Message(Ok(Message::Notification(notification))) => self.notification(&notification),
            Heard::Message(Ok(Message::Response(response))) => self.response(response),
            Heard::Message(Err(unreadable)) => no_message(&unreadable),
        }
    }

    /// Rung 12: the body says which era it is of, and the headers must agree.
    async fn request(&self, request: Request) -> Reply {
        let answer = |answer| reply::answer(request.id.raw(), answer);
        let header_is_modern = is_modern(self.headers);
        if request.method.starts_with("rpc.") {
            // Reserved by JSON-RPC: no header can make these a method.
            let era = if header_is_modern { Era::Modern } else { Era::Legacy };
            return answer(not_found(&request.method, era));
        }
        let method = Method::parse(&request.method);
        let mut params = Params::read(request.params.as_ref());
        if let Ok(params) = &mut params {
            trace_of(self.headers, &mut params.meta);
        }
        let claims = params.as_ref().is_ok_and(|params| params.meta.has_claim());
        if method == Method::Initialize && !claims {
            if header_is_modern {
                return answer(mismatch("`initialize` does not exist in the version that the header names"));
            }
            return self.initialize(&request);
        }
        if !claims && !header_is_modern {
            return self.legacy_request(request, params).await;
        }
        let Ok(params) = params else {
            let text = "params and params._meta must be objects";
            return answer(Answer::error(code::INVALID_PARAMS, text, None).with_status(400));
        };
        match params.meta.modern() {
            Err(error) => answer(Answer::error(code::INVALID_PARAMS, &error.to_string(), None).with_status(400)),
            Ok(envelope) => self.modern_request(request, method, params, &envelope.version).await,
        }
    }

    async fn modern_request(&self, request: Request, method: Method, params: Params, claimed: &str) -> Reply {
        let answer = |answer| reply::answer(request.id.raw(), answer);
        let revision = match head::check(self.headers, &request, method, &params.object, claimed) {
            Ok(revision) => revision,
            Err(refused) => return answer(refused),
        };
        let offered = Kinds::of(params.meta.input_capabilities().as_ref());
        // Only for addresses it matters where the client is.
        let is_here = offered.url && self.seat.is_here(self.headers);
        let client = ClientContext { offered, is_here, ..self.client(revision) };
        if !method.defined_in(revision.era()) {
            return answer(not_found(&request.method, revision.era()));
        }
        if method == Method::Listen {
            let Some(place) = self.front.service.admission.quota.take(&self.caller, Good::Stream) else {
                return reply::retry_later(StatusCode::SERVICE_UNAVAILABLE, 5, "too many streams");
            };
            return modern::listen(self.front, &client, &request, &params.object, place);
        }
        self.front.settled().await;
        if method == Method::ToolsCall
            && let Err(refused) =
                modern::check_param_headers(&self.front.service, &client, self.headers, &params.object)
        {
            return answer(refused);
        }
        self.serve(&client, request, Ok(params), None).await
    }

    fn client(&self, revision: Revision) -> ClientContext {
        ClientContext::new(Arc::clone(&self.caller), self.profile.clone(), revision)
    }

    fn initialize(&self, request: &Request) -> Reply {
        let id = request.id.raw();
        if self.session_of_header().is_ok() {
            let text = "this session is initialized already";
            return reply::answer(id, Answer::error(code::INVALID_REQUEST, text, None).with_status(400));
        }
        let params = params_object(request.params.as_ref()).ok();
        let version = params.as_ref().and_then(|params| params.string("protocolVersion"));
        let (Some(version), Some(params)) = (version, params) else {
            let text = "`initialize` needs params.protocolVersion";
            return reply::answer(id, Answer::error(code::INVALID_PARAMS, text, None));
        };
        let revision = Revision::negotiate(&version);
        let capabilities = params.get("capabilities");
        let client = ClientContext {
            offered: capabilities.map(|raw| Kinds::of(Some(raw))).unwrap_or_default(),
            is_here: self.seat.is_here(self.headers),
            client_requests: ClientRequests::new(capabilities),
            log: Some(Arc::default()),
            watched: Some(Arc::default()),
            tag: Some(ClientTag::new()),
            ..self.client(revision)
        };
        let Some(session) = self.front.sessions.open(client, None) else {
            return reply::retry_later(StatusCode::SERVICE_UNAVAILABLE, 5, "no room for another session");
        };
        let mut response = reply::answer(id, Answer::ok(initialize_result(revision)));
        if let Ok(value) = HeaderValue::from_str(&session.id) {
            response.headers_mut().insert(SESSION_HEADER, value);
        }
        response
    }

    /// Rung 13: the session, and a version header that fits it.
    fn session_of_header(&self) -> Result<Arc<Session>, Box<Reply>> {
        let Some(id) = self.headers.get(SESSION_HEADER) else {
            let text = format!(
                "the Mcp-Session-Id header is missing; start with `initialize`, or send params._meta of {}",
                Revision::preferred(Era::Modern)
            );
            return Err(Box::new(reply::refusal(StatusCode::BAD_REQUEST, code::INVALID_REQUEST, &text)));
        };
        let found = id.to_str().ok().and_then(|id| self.front.sessions.find(id, &self.caller));
        let Some(session) = found.filter(|s| s.client.profile == self.profile && s.pipe.is_none()) else {
            let text = "no such session; start again with `initialize`";
            return Err(Box::new(reply::refusal(StatusCode::NOT_FOUND, code::INVALID_REQUEST, text)));
        };
        if !head::fits_session(self.headers) {
            let text =
                format!("MCP-Protocol-Version is not supported; this session speaks {}", session.client.revision);
            return Err(Box::new(reply::refusal(StatusCode::BAD_REQUEST, code::INVALID_REQUEST, &text)));
        }
        Ok(session)
    }

    async fn legacy_request(&self, request: Request, params: Result<Params, RouteError>) -> Reply {
        match self.session_of_header() {
            Ok(session) => {
                self.front.settled().await;
                let mut client = session.client.clone();
                // A question needs a stream.
                client.client_requests = client.client_requests.filter(|_| self.accepts_events);
                self.serve(&client, request, params, Some(session)).await
            }
            Err(response) => *response,
        }
    }

    /// Serves a request whose client and era are known.
    async fn serve(
        &self,
        client: &ClientContext,
        request: Request,
        params: Result<Params, RouteError>,
        session: Option<Arc<Session>>,
    ) -> Reply {
        let entered = match &session {
            None => None,
            Some(session) => match Entered::new(session, &request.id) {
                Ok(entered) => Some(entered),
                Err(refused) => return reply::answer(request.id.raw(), refused),
            },
        };
        match self.front.service.handle(client, &request, params) {
            Handled::Answer(answer) => reply::answer(request.id.raw(), answer),
            Handled::Later(later) => reply::answer(request.id.raw(), later.await),
            Handled::Overloaded => reply::retry_later(StatusCode::SERVICE_UNAVAILABLE, 1, "too many calls in flight"),
            Handled::Call(call) => {
                let keep = self.front.keepalive;
                Conversation::new(call, request.id, entered, keep)
                    .respond(&self.front.service, self.accepts_events)
                    .await
            }
        }
    }

    fn notification(&self, notification: &Notification) -> Reply {
        let params = params_object(notification.params.as_ref()).unwrap_or_default();
        let claims = Meta::of(&params).is_ok_and(|meta| meta.has_claim());
        if claims || is_modern(self.headers) {
            // The modern era knows no client notification over HTTP; a cancellation is a closed connection.
            return reply::accepted();
        }
        match self.session_of_header() {
            Err(response) => *response,
            Ok(session) => {
                if notification.method == "notifications/cancelled"
                    && let Some(id) = params.get("requestId").cloned().and_then(ClientId::from_raw)
                {
                    let ticket = session.protocol.lock().ticket(&id);
                    ticket.iter().for_each(CancellationToken::cancel);
                }
                reply::accepted()
            }
        }
    }

    /// A client's answer to a question of ours.
    fn response(&self, response: message::Response) -> Reply {
        if is_modern(self.headers) {
            let text = "responses are not accepted in this protocol version";
            return reply::refusal(StatusCode::BAD_REQUEST, code::INVALID_REQUEST, text);
        }
        match self.session_of_header() {
            Err(refused) => *refused,
            Ok(session) => {
                if let Some(client_requests) = &session.client.client_requests {
                    client_requests.answered(response);
                }
                reply::accepted()
            }
        }
    }

    async fn batch(&self, batch: Batch) -> Reply {
        let session = self.session_of_header();
        if let Some(text) = batch.refusal(session.as_ref().ok().map(|session| session.client.revision)) {
            return reply::refusal(StatusCode::BAD_REQUEST, code::INVALID_REQUEST, text);
        }
        // The POST paid for one request.
        let admitted = self.front.admit(&self.caller, batch.requests().saturating_sub(1));
        let session = match admitted.and(session) {
            Ok(session) => session,
            Err(response) => return *response,
        };
        self.front.settled().await;
        let mut answers: Vec<Pieces> = Vec::new();
        let mut running = FuturesUnordered::new();
        for message in batch.into_messages() {
            match message {
                Ok(Message::Request(request)) if request.method != "initialize" => {
                    match Entered::new(&session, &request.id) {
                        Ok(entered) => running.push(self.one_of_batch(&session.client, request, entered)),
                        Err(refused) => answers.push(Pieces::answer(request.id.raw(), refused)),
                    }
                }
                Ok(Message::Notification(notification)) => drop(self.notification(&notification)),
                Ok(Message::Response(response)) => drop(self.response(response)),
                Ok(Message::Request(_)) | Err(_) => {
                    let error =
                        message::error_object(code::INVALID_REQUEST, "not a message that a batch may hold", None);
                    answers.push(message::encode_error(None, &error).into());
                }
            }
        }
        while let Some(answer) = futures_util::StreamExt::next(&mut running).await {
            answers.extend(answer);
        }
        if answers.is_empty() {
            return reply::accepted();
        }
        let mut body = VecDeque::new();
        for answer in answers {
            body.push_back(Bytes::from_static(if body.is_empty() { b"[" } else { b"," }));
            body.extend(answer.slices());
        }
        body.push_back(Bytes::from_static(b"]"));
        reply::slices(StatusCode::OK, body)
    }

    /// The answer to a request of a batch; `None` where the client has withdrawn it.
    async fn one_of_batch(&self, client: &ClientContext, request: Request, entered: Entered) -> Option<Pieces> {
        let id = request.id.clone();
        // A question needs a stream.
        let client = ClientContext { client_requests: None, ..client.clone() };
        let answer = match self.front.service.handle(&client, &request, Params::read(request.params.as_ref())) {
            Handled::Answer(answer) => answer,
            Handled::Later(answer) => answer.await,
            Handled::Overloaded => Answer::error(code::INTERNAL, "too many calls in flight", None),
            Handled::Call(call) => {
                let call = Conversation::new(call, request.id, Some(entered), self.front.keepalive);
                Box::pin(call.answer()).await?
            }
        };
        Some(Pieces::answer(id.raw(), answer))
    }

    /// The event after which a client wants to go on. One that leads nowhere is as good as none.
    fn last_event(&self) -> Option<&str> {
        let mut values = self.headers.get_all("last-event-id").iter();
        let last = values.next()?.to_str().ok()?;
        values.next().is_none().then_some(last)
    }

    fn get_or_delete(&self, head: &Parts) -> Reply {
        if is_modern(self.headers) {
            return reply::method_not_allowed("POST");
        }
        let has_session = self.headers.contains_key(SESSION_HEADER);
        if head.method == HttpMethod::GET && !has_session {
            // Hosts take a 400 here for a broken server and a 405 for one without this stream.
            return reply::method_not_allowed("POST");
        }
        if let Err(response) = self.front.admit(&self.caller, 1) {
            return *response;
        }
        let session = match self.session_of_header() {
            Ok(session) => session,
            Err(response) => return *response,
        };
        if head.method == HttpMethod::DELETE {
            self.front.sessions.close(&session.id, &self.caller);
            let mut response = Response::new(ReplyBody::empty());
            *response.status_mut() = StatusCode::NO_CONTENT;
            return response;
        }
        if !self.accepts_events {
            let text = "Accept must allow text/event-stream";
            return reply::refusal(StatusCode::NOT_ACCEPTABLE, code::INVALID_REQUEST, text);
        }
        let Some(share) = self.front.service.admission.quota.take(&self.caller, Good::Stream) else {
            return reply::retry_later(StatusCode::SERVICE_UNAVAILABLE, 5, "too many streams");
        };
        if let Some(resumed) = self.last_event().and_then(|last| session.streams.resume(last)) {
            return session_stream::resume(self.front, &session, resumed, share);
        }
        match session.stream() {
            Some(place) => session_stream::open(self.front, &session, place, share),
            None => reply::refusal(StatusCode::CONFLICT, code::INVALID_REQUEST, "this session has a stream already"),
        }
    }
}
