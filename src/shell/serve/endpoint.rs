//! Handles one HTTP request, from its head through all checks to an answer. If several checks would
//! fail, the first one in this order answers. Checks of the message itself are in
//! [`crate::engine::client`].

use std::sync::Arc;

use bytes::Bytes;
use http::header::HeaderMap;
use http::request::Parts;
use http::{HeaderName, HeaderValue, Method as HttpMethod, Request as HttpRequest, Response, StatusCode};
use hyper::body::Incoming;

use crate::base::access::Access;
use crate::engine::answer::RequestAnswer;
use crate::engine::client::asked::{CheckedRequest, fits_session, is_modern};
use crate::engine::client::heard::{ClientInput, claims_revision};
use crate::engine::client::{ClientAction, ClientProtocol};
use crate::engine::route::RequestParams;
use crate::engine::sealed::run_id::RunId;
use crate::gateway::client::quota::QuotaKind;
use crate::gateway::client::{ClientContext, ClientTag};
use crate::gateway::waiting::client_call::RequestOutcome;
use crate::listener::body::ReplyBody;
use crate::listener::callers::credentials::CallerAccess;
use crate::listener::challenge::NeededScopes;
use crate::listener::reply;
use crate::mcp::capability::initialize_result;
use crate::mcp::client_name::ClientName;
use crate::mcp::method::Method;
use crate::mcp::version::{Era, Revision};
use crate::policy::Caller;
use crate::serve::front::{HttpConnection, ListenerState};
use crate::serve::http_response::{HttpCall, SessionRequest};
use crate::serve::legacy_sse;
use crate::serve::listening::OpenSubscription;
use crate::serve::modern::{self, RequestHeaders};
use crate::serve::request_body::{accepts, no_message, not_json, read_body};
use crate::serve::session_stream;
use crate::serve::sessions::{ClientSession, MissingSession};
use crate::wire::frame::JsonBounds;
use crate::wire::id::ClientId;
use crate::wire::json::raw::RawJson;
use crate::wire::message::{Message, Request};

mod batch;
pub(super) mod cluster;
mod programs;
mod route;
mod subscription;

use self::route::{EndpointRoute, admit};
use self::subscription::{listen, trace_of};

type HttpReply = Response<ReplyBody>;

static SESSION: HeaderName = HeaderName::from_static("mcp-session-id");

/// A request that passed authentication, with everything that later checks need to know about it.
struct AuthenticatedRequest<'a> {
    front: &'a Arc<ListenerState>,
    seat: &'a HttpConnection,
    head: &'a Parts,
    headers: &'a HeaderMap,
    caller: Caller,
    access: Arc<Access>,
    profile: Option<Arc<str>>,
    /// True if the Accept header allows an event stream.
    accepts_events: bool,
    /// The run of the replica that has passed the request on.
    passed_by: Option<RunId>,
}

/// Answers one HTTP request, to the endpoint or to HTTP+SSE.
pub(crate) async fn handle(
    front: &Arc<ListenerState>,
    request: HttpRequest<Incoming>,
    seat: &HttpConnection,
) -> HttpReply {
    let (head, body) = request.into_parts();
    match admit(front, &head, seat).await {
        Err(response) => *response,
        Ok(EndpointRoute::Endpoint { ref caller, .. } | EndpointRoute::LegacySse { ref caller, .. })
            if !seat.allows(front, caller) =>
        {
            reply::closing(reply::retry_later(StatusCode::SERVICE_UNAVAILABLE, 5, "too many connections"))
        }
        Ok(EndpointRoute::Endpoint { profile, caller }) => {
            AuthenticatedRequest::new(front, seat, &head, profile, caller).respond(body).await
        }
        Ok(EndpointRoute::LegacySse { path, caller }) => {
            legacy_sse::handle(front, path, caller, seat, (&head, body)).await
        }
    }
}

impl<'a> AuthenticatedRequest<'a> {
    fn new(
        front: &'a Arc<ListenerState>,
        seat: &'a HttpConnection,
        head: &'a Parts,
        profile: Option<Arc<str>>,
        caller: CallerAccess,
    ) -> Self {
        let (headers, accepts_events) = (&head.headers, accepts(&head.headers, "text/event-stream"));
        let CallerAccess { caller, access } = caller;
        Self { front, seat, head, headers, caller, access, profile, accepts_events, passed_by: None }
    }

    async fn respond(&self, body: Incoming) -> HttpReply {
        if self.head.method != HttpMethod::POST {
            return self.get_or_delete().await;
        }
        let mut response = self.post(body).await;
        if let Some(scopes) = NeededScopes::take(&mut response) {
            let credentials = self.front.credentials.load();
            scopes.challenge(&mut response, credentials.metadata_address(self.profile.as_deref()));
        }
        response
    }

    /// Checks the headers and the caller's rate, reads the body, and handles the message in it.
    async fn post(&self, body: Incoming) -> HttpReply {
        if let Some(response) = not_json(self.headers) {
            return response;
        }
        if !self.accepts_events && !accepts(self.headers, "application/json") {
            let text = "Accept must allow application/json or text/event-stream";
            return reply::refusal_and_close(StatusCode::NOT_ACCEPTABLE, text);
        }
        if let Err(response) = self.front.admit_request(&self.caller) {
            return *response;
        }
        match read_body(body, self.headers, self.front, self.access.caller()).await {
            // A body may take its time, and the token may have become invalid meanwhile.
            Ok(_) if self.access.is_withdrawn() => {
                self.front.credentials.load().unauthorized(self.headers, self.profile.as_deref())
            }
            // Boxed: inlined, it would grow the future of every request.
            Ok(bytes) if self.front.service.cluster.is_some() => self.message_in_cluster(bytes).await,
            Ok(bytes) => self.message(bytes, None).await,
            Err(response) => *response,
        }
    }

    /// Parses the body as JSON and as JSON-RPC, and handles the message or batch. `body` is there
    /// in a cluster.
    async fn message(&self, bytes: Bytes, body: Option<&Bytes>) -> HttpReply {
        let heard = ClientInput::read(bytes, JsonBounds::CLIENT);
        let requests = heard.requests();
        match heard {
            ClientInput::Batch(batch) => Box::pin(self.batch(batch, requests)).await,
            ClientInput::Message(Ok(Message::Request(request))) => self.request(request, body).await,
            ClientInput::Message(Err(unreadable)) => no_message(&unreadable),
            ClientInput::Message(Ok(message)) => self.told(message).await,
        }
    }

    /// Determines the era of a request from its body, checks that the headers agree, and serves it.
    /// `body` is there in a cluster.
    async fn request(&self, request: Request, body: Option<&Bytes>) -> HttpReply {
        let mut asked = match CheckedRequest::of(&request, Some(&RequestHeaders(self.headers))) {
            Ok(asked) => asked,
            Err(refused) => return reply::answer(request.id.raw(), refused),
        };
        if let CheckedRequest::Legacy(params) | CheckedRequest::Modern { params, .. } = &mut asked {
            trace_of(self.headers, &mut params.meta);
        }
        match asked {
            CheckedRequest::Modern { revision, method, params } => match body {
                // Boxed: inlined, it would grow the future of every request.
                Some(body) => Box::pin(self.modern_in_cluster(body, request, revision, method, params)).await,
                None => self.modern(request, revision, method, params).await,
            },
            CheckedRequest::Initialize { .. } | CheckedRequest::Legacy(_) => self.legacy(request, asked).await,
        }
    }

    /// Serves a request of a modern client, which needs no session.
    async fn modern(&self, request: Request, revision: Revision, method: Method, params: RequestParams) -> HttpReply {
        let (offered, apps) = params.meta.client_offer();
        // Whether the client is on this machine matters only if it can open addresses.
        let is_here = offered.url && self.seat.is_here(self.headers);
        let name = params.meta.client_info().and_then(|info| self.seat.last_name.lock().read(info));
        if let Some(name) = &name {
            self.seat.entry.get_or_init(|| self.front.service.clients.enter(&self.caller, Some(name.clone())));
        }
        let connection = self.seat.number;
        let client = ClientContext { offered, apps, is_here, name, connection, ..self.client(revision) };
        if method == Method::Listen {
            let Some(place) = self.front.service.admission.quota.take(&self.caller, QuotaKind::Stream) else {
                return reply::retry_later(StatusCode::SERVICE_UNAVAILABLE, 5, "too many streams");
            };
            let id = request.id.raw();
            let uris = self.front.terms.load().limits.uris_per_stream;
            // Boxed: this is rare, and inlining it would grow every request's future.
            return match Box::pin(OpenSubscription::open(&self.front.service, client, id, &params.object, uris)).await {
                Ok(listening) => listen(listening, place, self.front.keepalive()),
                Err(refused) => reply::answer(id, refused),
            };
        }
        self.front.service.settled().await;
        if method == Method::ToolsCall
            && let Err(refused) =
                modern::check_param_headers(&self.front.service, &client, self.headers, &params.object)
        {
            return reply::answer(request.id.raw(), refused);
        }
        self.serve(&client, request, params, None).await
    }

    /// Returns the client of a session, with the access of this request: another credential of the
    /// same caller may give other rights.
    fn in_session(&self, session: &ClientSession) -> ClientContext {
        ClientContext { access: Arc::clone(&self.access), ..session.client.clone() }
    }

    fn client(&self, revision: Revision) -> ClientContext {
        let (caller, access) = (self.caller.clone(), Arc::clone(&self.access));
        ClientContext::new(caller, access, self.profile.clone(), revision)
    }

    /// Serves a request of a legacy client in its session.
    async fn legacy(&self, request: Request, asked: CheckedRequest) -> HttpReply {
        // A client that initializes again after a restart does not need its old session.
        let begins = matches!(asked, CheckedRequest::Initialize { .. });
        let session = match self.session_of_header(!begins).await {
            Ok(session) => Some(session),
            // The client initializes, either for the first time or after its session has ended.
            Err(_) if begins => None,
            Err(response) => return *response,
        };
        let step = match &session {
            Some(session) => session.protocol.lock().asked(request, asked),
            None => ClientProtocol::default().asked(request, asked),
        };
        match (step, session) {
            (ClientAction::Serve(served), Some(session)) => {
                let entered = SessionRequest::new(&session, &served.request.id, served.ticket);
                self.front.service.settled().await;
                let mut client = self.in_session(&session);
                // A question to the client needs a stream.
                client.client_requests = client.client_requests.filter(|_| self.accepts_events);
                self.serve(&client, served.request, served.params, Some(entered)).await
            }
            (ClientAction::Initialize(id, revision, capabilities, name), _) => {
                self.initialize(&id, revision, capabilities.as_ref(), name).await
            }
            (ClientAction::Answer(id, answer), _) => reply::answer(id.raw(), answer),
            // Requests lead to none of the other steps.
            _ => reply::accepted(),
        }
    }

    /// Opens a session and returns its id in a header of the response.
    async fn initialize(
        &self,
        id: &ClientId,
        revision: Revision,
        capabilities: Option<&RawJson>,
        name: Option<ClientName>,
    ) -> HttpReply {
        let (is_here, tag) = (self.seat.is_here(self.headers), Some(ClientTag::new()));
        let client = ClientContext { is_here, tag, ..self.client(revision) }.initialized(capabilities, name);
        let (extensions, instructions) = self.front.service.greeting(&client).await;
        let Some(session) = self.front.sessions.open(client, None) else {
            return reply::retry_later(StatusCode::SERVICE_UNAVAILABLE, 5, "no room for another session");
        };
        let result = initialize_result(revision, extensions, &instructions);
        let mut response = reply::answer(id.raw(), RequestAnswer::ok(result));
        if let Ok(value) = HeaderValue::from_str(&session.id) {
            response.headers_mut().insert(&SESSION, value);
        }
        response
    }

    /// Finds the session that the request names, and checks that the version header fits it. If
    /// `revives`, the session may be one from before a restart.
    async fn session_of_header(&self, revives: bool) -> Result<Arc<ClientSession>, Box<HttpReply>> {
        let Some(id) = self.headers.get(&SESSION) else {
            let text = format!(
                "the Mcp-Session-Id header is missing; start with `initialize`, or send params._meta of {}",
                Revision::preferred(Era::Modern)
            );
            return Err(Box::new(reply::refusal(StatusCode::BAD_REQUEST, &text)));
        };
        let found = match id.to_str() {
            Ok(id) => self.find_or_revive(id, revives).await,
            Err(_) => Err(MissingSession::Unknown),
        };
        let session = found.map_err(|missing| {
            Box::new(match missing {
                MissingSession::Unknown => {
                    let text = "no such session; start again with `initialize`";
                    reply::refusal(StatusCode::NOT_FOUND, text)
                }
                MissingSession::NoRoom => {
                    let text = "no room for the session of before the restart";
                    reply::retry_later(StatusCode::SERVICE_UNAVAILABLE, 5, text)
                }
            })
        })?;
        if !fits_session(&RequestHeaders(self.headers)) {
            let text =
                format!("MCP-Protocol-Version is not supported; this session speaks {}", session.client.revision);
            return Err(Box::new(reply::refusal(StatusCode::BAD_REQUEST, &text)));
        }
        Ok(session)
    }

    /// Finds the session of this id if it belongs to this caller and was opened at this path. If
    /// `revives`, brings it back from before a restart, and watches its resources again.
    async fn find_or_revive(&self, id: &str, revives: bool) -> Result<Arc<ClientSession>, MissingSession> {
        if let Some(session) = self.front.sessions.find(id, &self.caller) {
            let is_here = session.client.profile == self.profile && session.pipe.is_none();
            return if is_here { Ok(session) } else { Err(MissingSession::Unknown) };
        }
        if !revives {
            return Err(MissingSession::Unknown);
        }
        let is_here = self.seat.is_here(self.headers);
        let client = ClientContext { is_here, ..self.client(Revision::preferred(Era::Legacy)) };
        let (session, is_first) = Box::pin(self.front.sessions.revive(id, client)).await?;
        if is_first {
            let service = Arc::clone(&self.front.service);
            let watching = service.watch_again(session.client.clone(), session.ended.clone());
            self.front.service.tasks.spawn("revived session", watching);
        }
        Ok(session)
    }

    /// Serves a request whose client and era are known.
    async fn serve(
        &self,
        client: &ClientContext,
        request: Request,
        params: RequestParams,
        entered: Option<SessionRequest>,
    ) -> HttpReply {
        match self.front.service.handle(client, &request, Ok(params)) {
            RequestOutcome::Answer(answer) => reply::answer(request.id.raw(), answer),
            RequestOutcome::Later(later) => reply::answer(request.id.raw(), later.await),
            RequestOutcome::Overloaded => {
                reply::retry_later(StatusCode::SERVICE_UNAVAILABLE, 1, "too many calls in flight")
            }
            RequestOutcome::Call(call) => {
                let keep = self.front.keepalive();
                HttpCall::new(call, request.id, entered, keep).respond(&self.front.service, self.accepts_events).await
            }
        }
    }

    /// Handles a notification, or a response to a question of the gateway. Always accepted with 202
    /// unless the session is unknown.
    async fn told(&self, message: Message) -> HttpReply {
        match &message {
            Message::Response(_) if is_modern(&RequestHeaders(self.headers)) => {
                let text = "responses are not accepted in this protocol version";
                return reply::refusal(StatusCode::BAD_REQUEST, text);
            }
            // Over HTTP, no notification of a modern client has a meaning; a client cancels by
            // closing the connection.
            Message::Notification(_) if is_modern(&RequestHeaders(self.headers)) || claims_revision(&message) => {
                return reply::accepted();
            }
            Message::Request(_) | Message::Notification(_) | Message::Response(_) => {}
        }
        match self.session_of_header(true).await {
            Err(response) => *response,
            Ok(session) => {
                self.front.sessions.handle_message(&session, message, &RequestHeaders(self.headers));
                reply::accepted()
            }
        }
    }

    /// Opens, resumes or ends a session's event stream.
    async fn get_or_delete(&self) -> HttpReply {
        let head = self.head;
        if is_modern(&RequestHeaders(self.headers)) {
            return reply::method_not_allowed("POST");
        }
        let has_session = self.headers.contains_key(&SESSION);
        if head.method == HttpMethod::GET && !has_session {
            // Hosts take a 400 here for a broken server, and a 405 for a server without this
            // stream.
            return reply::method_not_allowed("POST");
        }
        if let Err(response) = self.front.admit_request(&self.caller) {
            return *response;
        }
        if let Some(response) = self.pass_on(&Bytes::new()).await {
            return response;
        }
        let session = match self.session_of_header(true).await {
            Ok(session) => session,
            Err(response) => return *response,
        };
        if head.method == HttpMethod::DELETE {
            if !self.front.sessions.close_for_good(&session.id, &self.caller).await {
                let text = "the session has ended, but that cannot be recorded at the moment: until it is, a restart of the \
                            gateway would let its client go on with it";
                return reply::retry_later(StatusCode::SERVICE_UNAVAILABLE, 5, text);
            }
            return reply::with_status(StatusCode::NO_CONTENT, ReplyBody::empty());
        }
        if !self.accepts_events {
            let text = "Accept must allow text/event-stream";
            return reply::refusal(StatusCode::NOT_ACCEPTABLE, text);
        }
        let Some(share) = self.front.service.admission.quota.take(&self.caller, QuotaKind::Stream) else {
            return reply::retry_later(StatusCode::SERVICE_UNAVAILABLE, 5, "too many streams");
        };
        if let Some(resumed) = session_stream::last_event(self.headers).and_then(|last| session.streams.resume(last)) {
            return session_stream::resume(self.front, &session, resumed, &self.access, share);
        }
        match session.stream() {
            Some(place) => session_stream::open(self.front, &session, place, &self.access, share),
            None => reply::refusal(StatusCode::CONFLICT, "this session has a stream already"),
        }
    }
}
