//! Streamable HTTP towards an upstream: one POST for each message, polled in place by the request that waits for it.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use arc_swap::ArcSwapOption;
use bytes::{Bytes, BytesMut};
use futures_util::future::BoxFuture;
use http::header::{ACCEPT, CONTENT_ENCODING, CONTENT_TYPE, RETRY_AFTER};
use http::{HeaderMap, HeaderName, HeaderValue, Method as HttpMethod, Request, Response, StatusCode, Uri};
use http_body_util::{BodyExt as _, Full};
use hyper::body::{Body as _, Incoming};
use hyper_util::client::legacy::{Error as ClientError, ResponseFuture};

use crate::engine::call::{Executed, Failure, Outcome, Outgoing, Reason};
use crate::engine::handshake::{Agreed, initialize_params, judge_initialize};
use crate::engine::peer::{malformed, progress_token};
use crate::mcp::meta::HopMeta;
use crate::mcp::method::Method;
use crate::mcp::version::{Era, Revision};
use crate::runtime::exchange::ExchangeEvent;
use crate::runtime::tasks::TaskGroup;
use crate::runtime::upstream::actor::Intake;
use crate::runtime::upstream::client::HttpClient;
use crate::telemetry::metrics::UpstreamMetrics;
use crate::wire::code;
use crate::wire::frame::Frame;
use crate::wire::headers::{ParamHeaders, encode_value};
use crate::wire::message::{self, Message};
use crate::wire::raw::RawJson;
use crate::wire::sse::SseDecoder;

const BOTH: HeaderValue = HeaderValue::from_static("application/json, text/event-stream");
const JSON: HeaderValue = HeaderValue::from_static("application/json");
const SESSION: HeaderName = HeaderName::from_static("mcp-session-id");
const VERSION: HeaderName = HeaderName::from_static("mcp-protocol-version");

/// The way to an HTTP upstream whose era is known.
pub(crate) struct HttpLink {
    pub(crate) agreed: Agreed,
    client: HttpClient,
    uri: Uri,
    /// The operator's headers, credentials among them.
    fixed: HeaderMap,
    session: ArcSwapOption<HeaderValue>,
    renewing: tokio::sync::Mutex<()>,
    ids: AtomicU64,
    hop: HopMeta,
    tasks: TaskGroup,
    gauge: Gauge,
}

/// How answers are measured and bounded.
#[derive(Clone, Debug)]
pub(crate) struct Gauge {
    pub(crate) metrics: UpstreamMetrics,
    pub(crate) intake: Intake,
}

impl std::fmt::Debug for HttpLink {
    /// Without the headers, which hold credentials.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "HttpLink({}, {})", self.uri, self.agreed.revision)
    }
}

/// What came instead of a usable answer, for the upstream's own life: probing, lists, streams.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum HttpError {
    /// No connection: nothing was sent.
    Connect(String),
    /// The connection broke after the request was sent.
    Broken(String),
    Status(StatusCode),
    Protocol(String),
}

impl std::fmt::Display for HttpError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Connect(why) => write!(f, "connect: {why}"),
            Self::Broken(why) => write!(f, "connection broken: {why}"),
            Self::Status(status) => write!(f, "HTTP status {status}"),
            Self::Protocol(why) => f.write_str(why),
        }
    }
}

impl HttpLink {
    pub(crate) fn new(
        client: HttpClient,
        uri: Uri,
        fixed: HeaderMap,
        agreed: Agreed,
        tasks: TaskGroup,
        gauge: Gauge,
    ) -> Self {
        Self {
            agreed,
            client,
            uri,
            fixed,
            session: ArcSwapOption::empty(),
            renewing: tokio::sync::Mutex::new(()),
            ids: AtomicU64::new(1),
            hop: HopMeta::bare(),
            tasks,
            gauge,
        }
    }

    pub(crate) fn gauge(&self) -> &Gauge {
        &self.gauge
    }

    pub(crate) fn hop(&self) -> &HopMeta {
        &self.hop
    }

    pub(crate) fn adopt_session(&self, session: Option<HeaderValue>) {
        self.session.store(session.map(Arc::new));
    }

    fn is_modern(&self) -> bool {
        self.agreed.revision.era() == Era::Modern
    }

    /// A request with everything that this hop demands. `name` is the value of `Mcp-Name`.
    pub(crate) fn request(
        &self,
        http: HttpMethod,
        body: Bytes,
        method: Option<(Method, Option<&str>)>,
    ) -> Request<Full<Bytes>> {
        let empty = body.is_empty();
        self.gauge.metrics.sent(body.len());
        let mut request = Request::new(Full::new(body));
        *request.method_mut() = http;
        *request.uri_mut() = self.uri.clone();
        let headers = request.headers_mut();
        headers.clone_from(&self.fixed);
        headers.insert(ACCEPT, BOTH);
        if !empty {
            headers.insert(CONTENT_TYPE, JSON);
        }
        // An `initialize` and the probe carry no version of a session that does not exist; 2025-03-26 knows no such header.
        if self.agreed.revision >= Revision::V2025_06_18 {
            headers.insert(VERSION, HeaderValue::from_static(self.agreed.revision.as_str()));
        }
        if self.is_modern() {
            if let Some((method, name)) = method {
                headers.insert("mcp-method", HeaderValue::from_static(method.as_str()));
                if let Some(value) = name.and_then(|name| HeaderValue::from_str(&encode_value(name)).ok()) {
                    headers.insert("mcp-name", value);
                }
            }
        } else if let Some(session) = self.session.load_full() {
            headers.insert(SESSION, session.as_ref().clone());
        }
        request
    }

    /// Sends a request; the response's head is awaited by the caller.
    pub(crate) fn send(&self, request: Request<Full<Bytes>>) -> ResponseFuture {
        self.client.request(request)
    }

    /// Starts a call.
    pub(crate) fn call(link: &Arc<Self>, outgoing: &Outgoing, params: &ParamHeaders) -> HttpExchange {
        let id = link.ids.fetch_add(1, Ordering::Relaxed);
        let raw_id = RawJson::trusted(id.to_string());
        let body = outgoing.params(link.agreed.revision, &raw_id, &link.hop);
        let name = outgoing.method.name_member().filter(|_| link.is_modern()).and_then(|m| outgoing.body.string(m));
        let bytes = message::encode_request(&raw_id, outgoing.method.as_str(), Some(&body));
        let mut request = link.request(HttpMethod::POST, bytes.clone(), Some((outgoing.method, name.as_deref())));
        if link.is_modern() && !params.is_empty() {
            let arguments = outgoing.body.get("arguments").map(RawJson::text);
            for (name, value) in params.values(arguments.as_deref()).unwrap_or_default() {
                let name = HeaderName::try_from(format!("mcp-param-{name}"));
                if let (Ok(name), Ok(value)) = (name, HeaderValue::from_str(&value)) {
                    request.headers_mut().insert(name, value);
                }
            }
        }
        for (name, value) in outgoing.meta.trace() {
            if let Ok(value) = HeaderValue::from_str(&value) {
                request.headers_mut().insert(name, value);
            }
        }
        HttpExchange::start(Arc::clone(link), id, bytes, request)
    }

    /// A request of the gateway's own, answered as JSON-RPC.
    ///
    /// # Errors
    /// [`HttpError`].
    pub(crate) async fn ask(
        self: &Arc<Self>,
        method: Method,
        params: Option<&RawJson>,
    ) -> Result<Result<RawJson, RawJson>, HttpError> {
        let id = self.ids.fetch_add(1, Ordering::Relaxed);
        let raw_id = RawJson::trusted(id.to_string());
        let bytes = message::encode_request(&raw_id, method.as_str(), params);
        let request = self.request(HttpMethod::POST, bytes.clone(), Some((method, None)));
        let mut exchange = HttpExchange::start(Arc::clone(self), id, bytes, request);
        exchange.quiet = true;
        loop {
            match exchange.step().await {
                Step::Progress(_) | Step::Log(_) => {}
                Step::Answer(answer) => return Ok(answer),
                Step::Failed(error, _) => return Err(error),
            }
        }
    }

    /// Posts a message that has no answer.
    pub(crate) async fn tell(&self, bytes: Bytes) {
        // Nothing depends on the answer; a dead upstream is noticed by its own requests.
        drop(self.send(self.request(HttpMethod::POST, bytes, None)).await);
    }

    /// Opens a new session after the upstream forgot the old one; at most one caller does it, the others wait.
    async fn renew(self: Arc<Self>, lost: Option<Arc<HeaderValue>>) -> Result<(), HttpError> {
        let _turn = self.renewing.lock().await;
        let current = self.session.load_full();
        if current.as_deref() != lost.as_deref() {
            return Ok(());
        }
        let (agreed, session) = initialize(&self.client, &self.uri, &self.fixed, &self.gauge).await?;
        if agreed.revision != self.agreed.revision {
            return Err(HttpError::Protocol("the new session speaks another revision".to_owned()));
        }
        self.adopt_session(session);
        self.tell(message::encode_notification("notifications/initialized", None)).await;
        tracing::info!(upstream.url = %self.uri, "upstream session opened anew");
        Ok(())
    }

    /// Ends the session, politely and within a second.
    pub(crate) async fn close(&self) {
        if self.session.load().is_some() {
            let request = self.request(HttpMethod::DELETE, Bytes::new(), None);
            drop(tokio::time::timeout(Duration::from_secs(1), self.send(request)).await);
        }
    }
}

/// Posts `initialize` without any header of a session or version and reads what was agreed.
///
/// # Errors
/// [`HttpError`].
pub(crate) async fn initialize(
    client: &HttpClient,
    uri: &Uri,
    fixed: &HeaderMap,
    gauge: &Gauge,
) -> Result<(Agreed, Option<HeaderValue>), HttpError> {
    let body = message::encode_request(&RawJson::trusted("0"), Method::Initialize.as_str(), Some(&initialize_params()));
    let mut request = Request::new(Full::new(body));
    *request.method_mut() = HttpMethod::POST;
    *request.uri_mut() = uri.clone();
    request.headers_mut().clone_from(fixed);
    request.headers_mut().insert(ACCEPT, BOTH);
    request.headers_mut().insert(CONTENT_TYPE, JSON);
    let response = client.request(request).await.map_err(|error| transport_error(&error))?;
    let session = response.headers().get(SESSION).cloned();
    let mut reader = Reader::of(response, gauge).await?;
    loop {
        match reader.next().await? {
            Message::Response(answer) => {
                let agreed = judge_initialize(&answer.outcome).map_err(HttpError::Protocol)?;
                return Ok((agreed, session));
            }
            Message::Notification(_) | Message::Request(_) => {}
        }
    }
}

pub(crate) fn transport_error(error: &ClientError) -> HttpError {
    let mut text = error.to_string();
    let mut source = std::error::Error::source(error);
    while let Some(cause) = source {
        text = format!("{text}: {cause}");
        source = cause.source();
    }
    if error.is_connect() { HttpError::Connect(text) } else { HttpError::Broken(text) }
}

/// The messages of one response body, JSON or SSE.
pub(crate) struct Reader {
    body: Incoming,
    format: Format,
    gauge: Gauge,
}

enum Format {
    Json { collected: BytesMut },
    Sse { decoder: Box<SseDecoder> },
}

impl Reader {
    /// Judges the response's head.
    ///
    /// # Errors
    /// [`HttpError::Status`] unless a JSON-RPC body is to be expected.
    pub(crate) async fn of(response: Response<Incoming>, gauge: &Gauge) -> Result<Self, HttpError> {
        let status = response.status();
        let gauge = gauge.clone();
        let content_type = response.headers().get(CONTENT_TYPE).map(HeaderValue::as_bytes).unwrap_or_default();
        let is = |media: &[u8]| {
            content_type.split(|b| *b == b';').next().is_some_and(|t| t.trim_ascii().eq_ignore_ascii_case(media))
        };
        if response.headers().get(CONTENT_ENCODING).is_some_and(|coding| coding != "identity") {
            // None was asked for, and what it would grow to is not known.
            return Err(HttpError::Protocol("the answer has a content encoding".to_owned()));
        }
        if is(b"text/event-stream") && status.is_success() {
            let decoder = Box::new(SseDecoder::new(gauge.intake.max_message_bytes));
            return Ok(Self { body: response.into_body(), format: Format::Sse { decoder }, gauge });
        }
        // A JSON-RPC error may come under an error status; anything else under one is the status alone.
        let body_expected =
            status == StatusCode::OK || (status.is_client_error() && status != StatusCode::UNAUTHORIZED);
        if is(b"application/json") && body_expected {
            let format = Format::Json { collected: BytesMut::new() };
            return Ok(Self { body: response.into_body(), format, gauge });
        }
        drain(response.into_body()).await;
        Err(HttpError::Status(status))
    }

    /// The next message. Cancel-safe.
    ///
    /// # Errors
    /// [`HttpError::Broken`] when the body ends before the answer.
    pub(crate) async fn next(&mut self) -> Result<Message, HttpError> {
        loop {
            if let Format::Sse { decoder } = &mut self.format {
                while let Some(event) = decoder.next_event() {
                    let event = event.map_err(|error| HttpError::Protocol(error.to_string()))?;
                    let is_message = event.name.as_deref().is_none_or(|name| name == "message");
                    if is_message && !event.data.is_empty() {
                        return self.gauge.parse(event.data);
                    }
                }
            }
            match self.body.frame().await {
                Some(Ok(frame)) => {
                    let Ok(data) = frame.into_data() else { continue };
                    self.gauge.metrics.received(data.len());
                    match &mut self.format {
                        Format::Sse { decoder } => decoder.push(data),
                        Format::Json { collected } => {
                            if self.body.is_end_stream() && collected.is_empty() {
                                return self.gauge.parse(data);
                            }
                            collected.extend_from_slice(&data);
                            if collected.len() > self.gauge.intake.max_message_bytes {
                                return Err(HttpError::Protocol("the answer is over the size limit".to_owned()));
                            }
                        }
                    }
                }
                Some(Err(error)) => return Err(HttpError::Broken(error.to_string())),
                None => match &mut self.format {
                    Format::Json { collected } if !collected.is_empty() => {
                        return self.gauge.parse(collected.split().freeze());
                    }
                    Format::Json { .. } | Format::Sse { .. } => {
                        return Err(HttpError::Broken("the answer ended early".to_owned()));
                    }
                },
            }
        }
    }
}

/// Reads the rest of a small body so that its connection can be used again.
pub(crate) async fn drain(mut body: Incoming) {
    let mut left = 64 * 1024_usize;
    while let Ok(Some(Ok(frame))) = tokio::time::timeout(Duration::from_millis(200), body.frame()).await {
        left = left.saturating_sub(frame.data_ref().map_or(0, Bytes::len));
        if left == 0 {
            break;
        }
    }
}

impl Gauge {
    fn parse(&self, bytes: Bytes) -> Result<Message, HttpError> {
        let bytes = self.intake.budget.count(bytes);
        let frame = Frame::from_upstream(bytes).map_err(|error| HttpError::Protocol(error.to_string()))?;
        Message::parse(&frame).map_err(|error| HttpError::Protocol(error.to_string()))
    }
}

enum Stage {
    Head(ResponseFuture),
    /// The upstream has forgotten the session: open another one, then ask once more.
    Renew(BoxFuture<'static, Result<(), HttpError>>),
    Body(Box<Reader>),
    Ended,
}

enum Step {
    Progress(RawJson),
    Log(RawJson),
    Answer(Result<RawJson, RawJson>),
    /// What went wrong, and the wait that the upstream asked for.
    Failed(HttpError, Option<Duration>),
}

/// One call to an HTTP upstream, polled by the request that waits for it.
pub(crate) struct HttpExchange {
    link: Arc<HttpLink>,
    id: u64,
    /// The message, for the one repetition after a lost session.
    bytes: Bytes,
    stage: Stage,
    renewed: bool,
    /// The gateway's own requests are not cancelled by message.
    quiet: bool,
}

impl std::fmt::Debug for HttpExchange {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "HttpExchange({})", self.id)
    }
}

impl HttpExchange {
    fn start(link: Arc<HttpLink>, id: u64, bytes: Bytes, request: Request<Full<Bytes>>) -> Self {
        let stage = Stage::Head(link.send(request));
        Self { link, id, bytes, stage, renewed: false, quiet: false }
    }

    pub(crate) async fn next(&mut self) -> ExchangeEvent {
        match self.step().await {
            Step::Progress(params) => ExchangeEvent::Progress(params),
            Step::Log(params) => ExchangeEvent::Log(params),
            Step::Answer(Ok(raw)) if raw.is_object() => {
                ExchangeEvent::Done(Outcome::Result { raw, era: self.link.agreed.revision.era() })
            }
            Step::Answer(Ok(_)) => ExchangeEvent::Done(Outcome::Failed(malformed())),
            Step::Answer(Err(raw)) => ExchangeEvent::Done(Outcome::Error { raw }),
            Step::Failed(error, wait) => ExchangeEvent::Done(Outcome::Failed(failure(&error, wait))),
        }
    }

    /// Cancel-safe: everything that is under way is kept in `stage`.
    async fn step(&mut self) -> Step {
        loop {
            let next = match &mut self.stage {
                Stage::Head(head) => match head.await {
                    Ok(response) => match self.head(response).await {
                        Ok(stage) => stage,
                        Err(step) => return self.end(step),
                    },
                    Err(error) => return self.end(Step::Failed(transport_error(&error), None)),
                },
                Stage::Renew(renewal) => match renewal.await {
                    Ok(()) => {
                        Stage::Head(self.link.send(self.link.request(HttpMethod::POST, self.bytes.clone(), None)))
                    }
                    Err(error) => return self.end(Step::Failed(HttpError::Connect(error.to_string()), None)),
                },
                Stage::Body(reader) => match reader.next().await {
                    Ok(message) => match self.message(message) {
                        Some(step) => return step,
                        None => continue,
                    },
                    Err(error) => return self.end(Step::Failed(error, None)),
                },
                Stage::Ended => return Step::Failed(HttpError::Broken("ended".to_owned()), None),
            };
            self.stage = next;
        }
    }

    fn end(&mut self, step: Step) -> Step {
        self.stage = Stage::Ended;
        step
    }

    async fn head(&mut self, response: Response<Incoming>) -> Result<Stage, Step> {
        let lost = self.link.session.load_full();
        if response.status() == StatusCode::NOT_FOUND && lost.is_some() && !self.renewed {
            self.renewed = true;
            drain(response.into_body()).await;
            return Ok(Stage::Renew(Box::pin(Arc::clone(&self.link).renew(lost))));
        }
        let wait = response.headers().get(RETRY_AFTER).and_then(|v| v.to_str().ok()?.parse().ok());
        match Reader::of(response, &self.link.gauge).await {
            Ok(reader) => Ok(Stage::Body(Box::new(reader))),
            Err(error) => Err(Step::Failed(error, wait.map(Duration::from_secs))),
        }
    }

    /// `None` for a message that does not concern the caller.
    fn message(&mut self, message: Message) -> Option<Step> {
        match message {
            Message::Response(response) => {
                let ours = response.id.as_ref().is_none_or(|id| id.bytes().as_ref() == self.id.to_string().as_bytes());
                let step = if ours {
                    Step::Answer(response.outcome)
                } else {
                    Step::Failed(HttpError::Protocol("the answer has another request's id".to_owned()), None)
                };
                Some(self.end(step))
            }
            Message::Notification(notice) => {
                let params = notice.params?;
                if notice.method == "notifications/message" {
                    return Some(Step::Log(params));
                }
                if notice.method != "notifications/progress" {
                    return None;
                }
                (progress_token(&params)?.0 == self.id).then_some(Step::Progress(params))
            }
            Message::Request(request) => {
                // No capability was declared, so only `ping` may be asked; the server must not wait for ever.
                let id = request.id.raw();
                let answer = if Method::parse(&request.method) == Method::Ping {
                    message::encode_result(id, b"{}")
                } else {
                    let text = "this client declared no capability for such a request";
                    message::encode_error(Some(id), &message::error_object(code::METHOD_NOT_FOUND, text, None))
                };
                let link = Arc::clone(&self.link);
                self.link.tasks.spawn("answer", async move { link.tell(answer).await });
                None
            }
        }
    }
}

impl Drop for HttpExchange {
    fn drop(&mut self) {
        // Dropping the response is the whole cancellation of a modern upstream; a legacy one is told by message.
        let sent = matches!(self.stage, Stage::Head(_) | Stage::Body(_));
        if sent && !self.quiet && !self.link.is_modern() {
            let params = RawJson::trusted(format!(r#"{{"requestId":{},"reason":"cancelled by the client"}}"#, self.id));
            let notice = message::encode_notification("notifications/cancelled", Some(&params));
            let link = Arc::clone(&self.link);
            self.link.tasks.spawn("cancel", async move { link.tell(notice).await });
        }
    }
}

/// What a transport error means for a call. The upstream's status never becomes ours.
fn failure(error: &HttpError, wait: Option<Duration>) -> Failure {
    let failure = match error {
        HttpError::Connect(_) => {
            let text = "The server behind this item cannot be reached.";
            Failure::new(Reason::UpstreamDown, Executed::No, text).retry_after(Duration::from_secs(1))
        }
        HttpError::Broken(_) => {
            let text = "The connection to the server broke during the call.";
            Failure::new(Reason::UpstreamCrashed, Executed::Unknown, text)
        }
        HttpError::Status(StatusCode::TOO_MANY_REQUESTS | StatusCode::SERVICE_UNAVAILABLE) => {
            let wait = wait.unwrap_or(Duration::from_secs(1)).min(Duration::from_secs(300));
            Failure::new(Reason::Busy, Executed::No, "The server behind this item is overloaded.").retry_after(wait)
        }
        HttpError::Status(StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN) => {
            let text = "The server behind this item refused the gateway's credentials; the operator has to renew them.";
            Failure::new(Reason::UpstreamDown, Executed::No, text)
        }
        HttpError::Status(status) if status.is_client_error() => {
            let text = format!("The server behind this item refused the request with HTTP status {}.", status.as_u16());
            Failure::new(Reason::UpstreamProtocol, Executed::No, text)
        }
        // Neither an answer nor a refusal; redirects are not followed.
        HttpError::Status(status) if status.is_success() || status.is_redirection() => malformed(),
        HttpError::Status(status) => {
            let text = format!("The server behind this item failed with HTTP status {}.", status.as_u16());
            Failure::new(Reason::UpstreamCrashed, Executed::Unknown, text)
        }
        HttpError::Protocol(_) => malformed(),
    };
    tracing::debug!(error = %error, "call to an HTTP upstream failed");
    failure
}
