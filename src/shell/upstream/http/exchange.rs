//! Streamable HTTP towards an upstream: a POST for each message, polled by the request that waits.
//!
//! Long, and one file on purpose: a link starts its exchanges, and each exchange drives its link.

use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use arc_swap::ArcSwapOption;
use bytes::Bytes;
use http::header::RETRY_AFTER;
use http::{HeaderName, HeaderValue, Method as HttpMethod, Request, Response, StatusCode, Uri};
use http_body_util::Full;
use parking_lot::Mutex;
use tokio::sync::{Notify, mpsc};
use tokio::time::Sleep;

use crate::engine::call::{CallOutcome, OutgoingCall};
use crate::engine::connection::ask::{ClientAnswer, DeclaredCapabilities, unanswered_answer};
use crate::engine::connection::attribution::CallEnd;
use crate::engine::connection::lost::{SessionVerdict, is_of_no_request, judge_status};
use crate::engine::connection::unasked::MessageStream;
use crate::engine::event::CallEvent;
use crate::engine::failure::ExecutionDoubt;
use crate::engine::handshake::HandshakeAgreement;
use crate::mcp::log::SessionLogLevel;
use crate::mcp::meta::HopMeta;
use crate::mcp::method::Method;
use crate::mcp::version::Era;
use crate::policy::Caller;
use crate::upstream::http::answer::{AnswerReader, AnswerRules, drain, is_event_stream};
use crate::upstream::http::failure::failure;
use crate::upstream::http::parts::{HeaderFields, LinkParts, SESSION};
use crate::upstream::http::remote::TokenVersion;
use crate::upstream::http::resume::StreamResumption;
use crate::upstream::http::unspoken::NonMessageAnswer;
use crate::upstream::login::tokens::TokenAttempts;
use crate::upstream::net::connections::{AnswerBody, AnswerHeadFuture, ClientError};
use crate::upstream::shared::{SharedWork, SharedWorkSlot};
use crate::upstream::state::http_error::HttpError;
use crate::wire::headers::ParamHeaders;
use crate::wire::id::WireId;
use crate::wire::json::raw::RawJson;
use crate::wire::message::{self, Message};

mod again;
mod cancel;
mod desk;
mod doubt;
mod heard;
mod questions;
mod renew;
mod step;

use self::desk::{CallInSession, SessionCalls};
use self::step::{DoubtfulAnswer, ExchangeStep, RetryDecision, SessionRenewal};

const LAST_EVENT_ID: HeaderName = HeaderName::from_static("last-event-id");
/// Most messages on a session's own stream that wait for one call.
const SIDE: usize = 32;

/// The link to an HTTP upstream whose era is known, with its session and the calls in it.
pub struct HttpLink {
    pub agreed: HandshakeAgreement,
    /// The log level that the server was asked for.
    pub logs: SessionLogLevel,
    session: ArcSwapOption<HeaderValue>,
    /// Number of the session, since a server may give two sessions the same id.
    number: AtomicU64,
    renewing: SharedWorkSlot,
    /// Value of [`Health::renewals`](crate::upstream::state::health::UpstreamHealth) when the
    /// server was last known to know the session.
    looked: AtomicU64,
    looking: SharedWorkSlot,
    /// True after an answer that blamed the session: the next call waits until the server has said
    /// whether it knows the session.
    is_suspect: AtomicBool,
    /// Time when the server was last asked whether it knows the session, in milliseconds of uptime;
    /// 0 for never.
    probed: AtomicU64,
    /// Notified when the session's own stream has to be opened again; one task waits for it.
    pub renewed: Notify,
    /// Notified when the server says that lists have changed.
    pub changed: Notify,
    /// Notified when the server speaks another revision, so that this link is of no use any more.
    pub outdated: Notify,
    ids: AtomicU64,
    hop: HopMeta,
    parts: LinkParts,
    /// For legacy sessions: calls in flight, and the server's questions in the middle of them.
    desk: Mutex<SessionCalls>,
}

impl std::fmt::Debug for HttpLink {
    /// Writes the address and the revision, but not the headers, which hold credentials.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "HttpLink({}, {})", self.parts.remote.uri, self.agreed.revision)
    }
}

impl HttpLink {
    pub fn new(mut parts: LinkParts, agreed: HandshakeAgreement) -> Self {
        parts.gauge.revision = Some(agreed.revision);
        let renewals = parts.remote.health.renewals();
        let desk = SessionCalls::new(parts.declared.clone(), Arc::clone(parts.news.turns.askers()));
        Self {
            agreed,
            logs: SessionLogLevel::default(),
            session: ArcSwapOption::empty(),
            number: AtomicU64::new(0),
            renewing: SharedWorkSlot::default(),
            looked: AtomicU64::new(renewals),
            looking: SharedWorkSlot::default(),
            is_suspect: AtomicBool::new(false),
            probed: AtomicU64::new(0),
            renewed: Notify::new(),
            changed: Notify::new(),
            outdated: Notify::new(),
            ids: AtomicU64::new(1),
            hop: parts.declared.hop(),
            parts,
            desk: Mutex::new(desk),
        }
    }

    /// Returns the parts of a link to this address for a session with other capabilities.
    pub fn parts_with(&self, declared: DeclaredCapabilities) -> LinkParts {
        LinkParts { declared, is_main: false, ..self.parts.clone() }
    }

    pub fn gauge(&self) -> &AnswerRules {
        &self.parts.gauge
    }

    pub fn hop(&self) -> &HopMeta {
        &self.hop
    }

    /// Enters the legacy session that `initialize` has opened, and tells the server so. Forgets
    /// what was known of the calls in the session before.
    pub async fn enter(&self, session: Option<HeaderValue>) {
        self.session.store(session.map(Arc::new));
        self.number.fetch_add(1, Ordering::Release);
        // It knows no call of the session before.
        {
            let mut desk = self.desk.lock();
            desk.attribution.forget();
            self.tell_gate(&mut desk);
        }
        self.tell(message::encode_notification("notifications/initialized", None)).await;
    }

    /// Returns the number of the current session. To be read before the session's id, so that it is
    /// never newer than the id.
    fn number(&self) -> u64 {
        self.number.load(Ordering::Acquire)
    }

    /// Returns true if `session` is the id of the current session.
    fn is_in(&self, session: Option<&HeaderValue>) -> bool {
        self.session.load().as_deref() == session
    }

    fn is_modern(&self) -> bool {
        self.agreed.revision.era() == Era::Modern
    }

    /// Builds a request with the headers of the revision, and with the id of a legacy session.
    pub fn request(&self, http: HttpMethod, body: Bytes, fields: &HeaderFields) -> Request<Full<Bytes>> {
        let mut request = self.parts.request(self.agreed.revision, http, body, fields);
        if let Some(session) = self.session.load_full().filter(|_| !self.is_modern()) {
            request.headers_mut().insert(&SESSION, session.as_ref().clone());
        }
        request
    }

    /// Builds the request for the rest of an event stream, after the event with the id `last`.
    fn continuation(&self, last: Option<HeaderValue>) -> Request<Full<Bytes>> {
        let mut request = self.request(HttpMethod::GET, Bytes::new(), &HeaderFields::default());
        request.headers_mut().extend(last.map(|last| (LAST_EVENT_ID, last)));
        request
    }

    /// Sends a request that is no call and waits for the head of its answer.
    ///
    /// # Errors
    /// [`HttpError`].
    pub async fn send(&self, request: Request<Full<Bytes>>) -> Result<Response<AnswerBody>, HttpError> {
        self.parts.remote.fetch(request).await.map(|(response, _)| response)
    }

    /// Prepares a call, and enters it in a legacy session. Nothing is sent until the returned
    /// exchange is polled.
    pub fn call(link: &Arc<Self>, outgoing: &OutgoingCall, params: &ParamHeaders) -> HttpExchange {
        let (id, number) = (link.ids.fetch_add(1, Ordering::Relaxed), link.number());
        let raw_id = RawJson::trusted(id.to_string());
        let name = outgoing.method.name_member().filter(|_| link.is_modern()).and_then(|m| outgoing.body.said(m));
        let bytes = outgoing.message(link.agreed.revision, &raw_id, &link.hop);
        // The message is kept until the call has ended.
        let Ok(bytes) = link.parts.gauge.intake.budget.try_count(bytes) else {
            let mut post = HttpPost::start(Arc::clone(link), (id, number), Bytes::new(), HeaderFields::default());
            post.stage = PostStage::NoRoom;
            return HttpExchange { post, side: None };
        };
        let mut fields = HeaderFields::of(outgoing.method, name.as_deref());
        if link.is_modern() && !params.is_empty() {
            let arguments = outgoing.body.get("arguments").map(RawJson::text);
            for (name, value) in params.values(arguments.as_deref()).unwrap_or_default() {
                let name = HeaderName::try_from(format!("mcp-param-{name}"));
                if let (Ok(name), Ok(value)) = (name, HeaderValue::from_str(&value)) {
                    fields.more.push((name, value));
                }
            }
        }
        for (name, value) in outgoing.meta.trace() {
            if let Ok(value) = HeaderValue::from_str(&value) {
                fields.more.push((HeaderName::from_static(name), value));
            }
        }
        let side = (!link.is_modern()).then(|| {
            let (events, side) = mpsc::channel(SIDE);
            let mut desk = link.desk.lock();
            desk.attribution.carries(id, &outgoing.party);
            desk.calls.insert(id, CallInSession { events, party: outgoing.party.clone() });
            link.tell_gate(&mut desk);
            side
        });
        let mut post = HttpPost::start(Arc::clone(link), (id, number), bytes, fields);
        if let Some(look) = link.look() {
            post.stage = PostStage::Look(look);
        }
        post.caller.clone_from(&outgoing.party.caller);
        post.listens = outgoing.method == Method::Listen;
        HttpExchange { post, side }
    }

    /// Reads the rest of an answer in a task of its own, so that its call need not wait.
    fn drain(&self, body: AnswerBody) {
        self.parts.tasks.spawn("drain", drain(body));
    }

    fn tell_later(self: &Arc<Self>, message: Bytes) {
        let link = Arc::clone(self);
        self.parts.tasks.spawn("message", async move { link.tell(message).await });
    }

    /// Sends a request of the gateway's own, and waits for the result or error object of its
    /// answer. If the server has lost the session, opens another one and sends the request once
    /// more.
    ///
    /// # Errors
    /// [`HttpError`].
    pub async fn ask(
        self: &Arc<Self>,
        method: Method,
        params: Option<&RawJson>,
    ) -> Result<Result<RawJson, RawJson>, HttpError> {
        self.ask_within(method, params, SessionRenewal::Due).await
    }

    /// Sends a request as [`Self::ask`] does, with the given behaviour if the session is lost.
    async fn ask_within(
        self: &Arc<Self>,
        method: Method,
        params: Option<&RawJson>,
        renewal: SessionRenewal,
    ) -> Result<Result<RawJson, RawJson>, HttpError> {
        let (id, number) = (self.ids.fetch_add(1, Ordering::Relaxed), self.number());
        let raw_id = RawJson::trusted(id.to_string());
        let bytes = message::encode_request(&raw_id, method.as_str(), params);
        let mut post = HttpPost::start(Arc::clone(self), (id, number), bytes, HeaderFields::of(method, None));
        post.quiet = true;
        post.renewal = renewal;
        loop {
            match post.step().await {
                ExchangeStep::Event(_) => {}
                ExchangeStep::Answer(answer) => return Ok(answer.outcome),
                ExchangeStep::Failed(error, _) => return Err(error),
            }
        }
    }

    /// Posts a message that has no answer, and ignores a failure.
    pub async fn tell(&self, bytes: Bytes) {
        // Nothing depends on the answer; a dead upstream is noticed by its own requests.
        drop(self.send(self.request(HttpMethod::POST, bytes, &HeaderFields::default())).await);
    }

    /// Asks the server to end the session, if there is one. Waits a second at most, and ignores a
    /// failure.
    pub async fn close(&self) {
        if self.session.load().is_some() {
            let request = self.request(HttpMethod::DELETE, Bytes::new(), &HeaderFields::default());
            drop(tokio::time::timeout(Duration::from_secs(1), self.send(request)).await);
        }
    }
}

/// The progress of a POST.
enum PostStage {
    /// The session may be lost: the server is asked first whether it knows the session.
    Look(SharedWork),
    /// The request waits for its credentials.
    Unsent,
    /// The request is written at the next poll. If it has waited, the call was checked again.
    Ready,
    Head(AnswerHeadFuture),
    /// The server refused the token: the request is sent once more with another token, if there is
    /// one.
    Refused(RetryDecision, Option<Box<Response<AnswerBody>>>),
    /// The server has forgotten the session: another one is opened, then the request is sent again.
    Renew(SharedWork),
    Body(Box<AnswerReader>),
    /// The answer is no message; its beginning is being read, for the error.
    Unspoken(Option<Box<NonMessageAnswer>>, Option<Duration>),
    /// The server is asked whether it knows the session, since this answer may mean that it does
    /// not.
    Doubt(SharedWork, DoubtfulAnswer),
    /// The stream ended early. It is requested again when the server allows; the error is kept.
    Pause(Pin<Box<Sleep>>, String),
    Resume(AnswerHeadFuture, String),
    /// The byte budget has no room for the message; the next step fails.
    NoRoom,
    Ended,
}

/// One call to an HTTP upstream, polled by the request that waits for it.
#[derive(Debug)]
pub struct HttpExchange {
    post: HttpPost,
    /// Messages for this call on the session's own stream.
    side: Option<mpsc::Receiver<CallEvent>>,
}

/// One POST and its response.
struct HttpPost {
    link: Arc<HttpLink>,
    id: u64,
    /// The caller of the call; `None` for the gateway's own requests.
    caller: Option<Caller>,
    /// The message, for the repetition after a lost session or a refused token.
    bytes: Bytes,
    /// The request that carries it, until it is sent.
    unsent: Request<Full<Bytes>>,
    /// The address that the request was sent to.
    address: Uri,
    /// True if a redirect led to `address`.
    is_redirected: bool,
    /// Headers to repeat when the request is retried.
    fields: HeaderFields,
    pass: TokenVersion,
    attempts: Option<TokenAttempts>,
    stage: PostStage,
    /// Id of the session that the request was sent in.
    session: Option<HeaderValue>,
    /// Number of that session.
    number: u64,
    renewal: SessionRenewal,
    /// Verdict on the session by the status of the answer.
    verdict: SessionVerdict,
    /// The head of an answer that does not admit the gateway, if it may be about the session
    /// instead.
    unadmitted: Option<Box<Response<()>>>,
    /// True if the request has waited since its call was last checked.
    has_waited: bool,
    /// Resumption of the event stream of the answer.
    resumption: StreamResumption,
    /// True for a request of the gateway's own, which is not cancelled by message.
    quiet: bool,
    /// True for a `subscriptions/listen` request, on whose stream every notification is wanted.
    listens: bool,
}

impl std::fmt::Debug for HttpPost {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Post({})", self.id)
    }
}

impl HttpExchange {
    /// Waits for the next event of the call, from its own answer or from the session's stream.
    /// Reports the outcome to the upstream's health. Cancel-safe.
    pub async fn next(&mut self) -> CallEvent {
        let Self { post, side } = self;
        let aside = async {
            match side {
                Some(side) => side.recv().await,
                None => None,
            }
        };
        let step = tokio::select! {
            biased;
            Some(event) = aside => Err(event),
            step = post.step() => Ok(step),
        };
        let step = match step {
            Ok(step) => step,
            Err(event) => {
                if matches!(event, CallEvent::Done(_)) {
                    self.post.stage = PostStage::Ended;
                    self.leave(CallEnd::Answered);
                } else {
                    self.post.wait_again();
                }
                return event;
            }
        };
        if !matches!(step, ExchangeStep::Event(_)) {
            // The call's questions end here, however long its outcome is kept.
            self.leave(if matches!(step, ExchangeStep::Answer(_)) { CallEnd::Answered } else { CallEnd::GivenUp });
        }
        let health = &self.post.link.parts.remote.health;
        match step {
            ExchangeStep::Event(event) => event,
            ExchangeStep::Answer(answer) => {
                health.answered();
                CallEvent::Done(self.post.link.gauge().outcome(answer))
            }
            ExchangeStep::Failed(error, wait) => {
                health.unanswered(&error);
                CallEvent::Done(CallOutcome::Failed(failure(&self.post.link.parts.upstream, &error, wait)))
            }
        }
    }

    /// Removes the call from its session, and declines its open questions in the background. An
    /// answer may end the doubt about cancelled calls. Does nothing a second time.
    fn leave(&mut self, end: CallEnd) {
        if self.side.take().is_none() {
            return;
        }
        let (open, in_doubt) = self.post.link.call_ended(self.post.id, end);
        if end == CallEnd::Answered && in_doubt {
            self.post.link.clear_later(self.post.id);
        }
        for request in open {
            self.post.link.tell_later(message::encode_answer(&request.id, &unanswered_answer(&request.method)));
        }
    }

    pub fn reply(&self, id: &RawJson, answer: &ClientAnswer) {
        self.post.link.reply(id, answer);
    }

    pub fn parked(&self) {
        self.post.link.call_parked(self.post.id);
    }
}

impl HttpPost {
    fn start(link: Arc<HttpLink>, (id, number): (u64, u64), bytes: Bytes, fields: HeaderFields) -> Self {
        let request = link.request(HttpMethod::POST, bytes.clone(), &fields);
        let session = request.headers().get(&SESSION).cloned();
        Self {
            link,
            id,
            caller: None,
            bytes,
            address: request.uri().clone(),
            is_redirected: false,
            unsent: request,
            fields,
            pass: TokenVersion::default(),
            attempts: Some(TokenAttempts::default()),
            stage: PostStage::Unsent,
            session,
            number,
            renewal: SessionRenewal::Due,
            verdict: SessionVerdict::Answer,
            unadmitted: None,
            has_waited: false,
            resumption: StreamResumption::default(),
            quiet: false,
            listens: false,
        }
    }

    /// Drives the request to its next event, its answer or its failure. Cancel-safe: everything
    /// that is under way is kept in `stage`.
    async fn step(&mut self) -> ExchangeStep {
        loop {
            let next = match &mut self.stage {
                PostStage::Look(look) => match look.await {
                    Ok(()) => {
                        self.enter();
                        PostStage::Unsent
                    }
                    Err(error) => return self.end(ExchangeStep::Failed(error, None)),
                },
                PostStage::Unsent => match self.authorize().await {
                    Ok(()) if self.has_waited && !self.quiet => {
                        self.stage = PostStage::Ready;
                        return ExchangeStep::Event(CallEvent::Unwritten);
                    }
                    Ok(()) => PostStage::Ready,
                    Err(error) => return self.end(ExchangeStep::Failed(error, None)),
                },
                PostStage::Ready => {
                    self.has_waited = false;
                    PostStage::Head(self.link.parts.remote.start(std::mem::take(&mut self.unsent)))
                }
                PostStage::Head(head) => match head.await {
                    Ok(response) => match self.began(response) {
                        Ok(stage) => stage,
                        Err(step) => return self.end(step),
                    },
                    Err(error) => return self.end(ExchangeStep::Failed(self.link.parts.remote.lost(&error), None)),
                },
                PostStage::Refused(judging, response) => {
                    let (again, attempts) = judging.await;
                    let response = response.take();
                    match self.judged(again, attempts, response) {
                        Ok(stage) => stage,
                        Err(step) => return self.end(step),
                    }
                }
                PostStage::Renew(renewal) => match renewal.await {
                    Ok(()) => {
                        self.write_anew();
                        PostStage::Unsent
                    }
                    Err(error) => return self.end(ExchangeStep::Failed(error, None)),
                },
                PostStage::Body(reader) => match reader.next().await {
                    Ok(Message::Response(answer)) => match self.answered(answer) {
                        Ok(stage) => stage,
                        Err(step) => return self.end(step),
                    },
                    Ok(message) => match self.message(message) {
                        Some(step) => return step,
                        None => continue,
                    },
                    Err(HttpError::Broken(why)) if self.unadmitted.is_none() => {
                        let position = reader.take_position();
                        self.resumption.ended(position);
                        match self.pause(why) {
                            Ok(stage) => stage,
                            Err(step) => return self.end(step),
                        }
                    }
                    Err(error) => match self.unread(error) {
                        Ok(stage) => stage,
                        Err(step) => return self.end(step),
                    },
                },
                PostStage::Unspoken(unspoken, wait) => {
                    if let Some(unspoken) = unspoken {
                        unspoken.read().await;
                    }
                    let (unspoken, wait) = (unspoken.take(), *wait);
                    match self.unspoken(unspoken, wait) {
                        Ok(stage) => stage,
                        Err(step) => return self.end(step),
                    }
                }
                PostStage::Doubt(work, refusal) => {
                    // A session that cannot be opened leaves the answer as it is.
                    let _unopened = work.await;
                    let refusal = std::mem::take(refusal);
                    match self.looked(refusal) {
                        Ok(stage) => stage,
                        Err(step) => return self.end(step),
                    }
                }
                PostStage::Pause(pause, why) => {
                    pause.as_mut().await;
                    let mut request = self.link.continuation(self.resumption.last_event_id());
                    match self.link.parts.remote.authorize(&mut request).await {
                        Ok(_) => PostStage::Resume(self.link.parts.remote.start(request), std::mem::take(why)),
                        Err(error) => return self.end(ExchangeStep::Failed(error, None)),
                    }
                }
                PostStage::Resume(head, why) => {
                    let head = head.await;
                    let why = std::mem::take(why);
                    match self.resumed(head, why) {
                        Ok(stage) => stage,
                        Err(step) => return self.end(step),
                    }
                }
                PostStage::NoRoom => {
                    return self.end(ExchangeStep::Failed(HttpError::NoRoom(ExecutionDoubt::No), None));
                }
                PostStage::Ended => return ExchangeStep::Failed(HttpError::Broken("ended".to_owned()), None),
            };
            self.stage = next;
        }
    }

    fn head(&mut self, response: Response<AnswerBody>) -> Result<PostStage, ExchangeStep> {
        self.verdict = judge_status(response.status().as_u16());
        self.admitted(&response)?;
        // Only a look, which repeats nothing, reads the body.
        if self.verdict == SessionVerdict::Lost && self.may_be_lost() && !matches!(self.renewal, SessionRenewal::Look) {
            self.link.drain(response.into_body());
            return self.lost();
        }
        let wait = response.headers().get(RETRY_AFTER).and_then(|v| v.to_str().ok()?.parse().ok());
        Ok(self
            .read(response)
            .unwrap_or_else(|answer| PostStage::Unspoken(Some(answer), wait.map(Duration::from_secs))))
    }

    /// Begins to read an answer, whose bytes count in the share of the call's caller. Returns the
    /// answer if it is no message.
    fn read(&self, response: Response<AnswerBody>) -> Result<PostStage, Box<NonMessageAnswer>> {
        let reader = AnswerReader::of(response, &self.link.parts.gauge)?;
        Ok(PostStage::Body(Box::new(reader.with_caller(self.caller.as_ref()).of_request(self.id))))
    }

    /// Returns the stage after a broken stream: a pause before its rest is requested, or a failure
    /// if it cannot be resumed. The call itself is never sent again.
    fn pause(&mut self, why: String) -> Result<PostStage, ExchangeStep> {
        let current = self.link.session.load_full();
        let same = !self.link.is_modern() && current.as_deref() == self.session.as_ref();
        match self.resumption.wait().filter(|_| same) {
            Some(wait) => Ok(PostStage::Pause(Box::pin(tokio::time::sleep(wait)), why)),
            None => Err(ExchangeStep::Failed(HttpError::Broken(why), None)),
        }
    }

    fn resumed(
        &mut self,
        head: Result<Response<AnswerBody>, ClientError>,
        why: String,
    ) -> Result<PostStage, ExchangeStep> {
        let response = match head {
            Ok(response) if response.status() == StatusCode::OK && is_event_stream(&response) => response,
            // The server may not have noticed yet that the stream broke, or may be starting anew.
            Ok(response) if response.status() == StatusCode::CONFLICT || response.status().is_server_error() => {
                return self.pause(why);
            }
            Ok(_) => return Err(ExchangeStep::Failed(HttpError::Broken(why), None)),
            Err(_) => return self.pause(why),
        };
        tracing::debug!(upstream.name = %self.link.parts.upstream, "event stream resumed");
        self.read(response).map_err(|_| ExchangeStep::Failed(HttpError::Broken(why), None))
    }

    /// Handles a message on the answer's stream, and returns the step that it means for this call.
    /// `None` for any other message; one for another call is passed on to it.
    fn message(&mut self, message: Message) -> Option<ExchangeStep> {
        match message {
            Message::Response(response) => {
                let step = self.answer(response);
                Some(self.end(step))
            }
            Message::Notification(notice) => {
                let (call, event) = self.link.told(notice, self.stream())?;
                if call != self.id {
                    self.link.to_call(call, event);
                    return None;
                }
                Some(ExchangeStep::Event(event))
            }
            Message::Request(request) => {
                let asked = self.link.asked(&request, self.stream())?;
                Some(ExchangeStep::Event(CallEvent::Ask(asked)))
            }
        }
    }

    /// Returns the last step of the request for a response: the answer, or a failure if the
    /// response has the id of another request.
    fn answer(&self, response: message::Response) -> ExchangeStep {
        let is_refusal = self.verdict != SessionVerdict::Answer && is_of_no_request(&response);
        if is_refusal || response.id.as_ref().is_none_or(|id| self.is_ours(id)) {
            return ExchangeStep::Answer(response);
        }
        ExchangeStep::Failed(self.link.gauge().other_id(&response), None)
    }

    fn is_ours(&self, id: &RawJson) -> bool {
        id.bytes().as_ref() == self.id.to_string().as_bytes()
    }

    fn stream(&self) -> MessageStream {
        match (self.quiet, self.listens) {
            (true, _) => MessageStream::Own,
            (false, true) => MessageStream::Listening(WireId(self.id)),
            (false, false) => MessageStream::Call(WireId(self.id)),
        }
    }
}

impl Drop for HttpExchange {
    fn drop(&mut self) {
        // The doubt begins before the call leaves: no message in between is tied to another.
        self.post.cancel();
        self.post.stage = PostStage::Ended;
        self.leave(CallEnd::GivenUp);
    }
}

impl Drop for HttpPost {
    fn drop(&mut self) {
        self.cancel();
    }
}
