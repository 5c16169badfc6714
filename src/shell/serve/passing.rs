//! Passes a request on to the replica that holds its session, its parked call or its task, and
//! relays the response, streams included.
//!
//! A request goes to one other replica at most, which serves it or says that it does not hold what
//! the request is for. A replica that refuses the connection is dead: its session goes on here. One
//! that breaks off has taken the request, so its call is answered as lost and never sent again.

use std::sync::Arc;
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use futures_util::stream;
use http::header::{ACCEPT, ALLOW, CACHE_CONTROL, CONTENT_LENGTH, CONTENT_TYPE, HOST, RETRY_AFTER, WWW_AUTHENTICATE};
use http::request::Parts;
use http::{HeaderName, HeaderValue, Method as HttpMethod, Request as HttpRequest, Response, StatusCode};
use http_body_util::{BodyExt as _, Full};

use crate::base::access::Access;
use crate::base::never::or_never;
use crate::cluster::link::{PassingError, PeerBody, PeerLink};
use crate::cluster::membership::{Cluster, HolderDoubt, NamedSession, SessionHolder};
use crate::cluster::passed::{BODY, CALLER, LAST_EVENT, is_served_by, passed_request};
use crate::engine::client::heard::ClientInput;
use crate::engine::failure::{CallFailure, ExecutionDoubt, FailureReason};
use crate::engine::sealed::run_id::RunId;
use crate::listener::body::ReplyBody;
use crate::listener::callers::credentials::passed_credential;
use crate::listener::pieces::MessageSlices;
use crate::listener::reply;
use crate::mcp::method::Method;
use crate::mcp::version::Revision;
use crate::policy::Caller;
use crate::serve::front::ListenerState;
use crate::serve::request_body::accepts;
use crate::wire::digest::Digest;
use crate::wire::frame::JsonBounds;
use crate::wire::message::Message;

type HttpReply = Response<ReplyBody>;

/// Headers of a response that reach the client.
static RELAYED: [HeaderName; 7] = [
    CONTENT_TYPE,
    CACHE_CONTROL,
    RETRY_AFTER,
    WWW_AUTHENTICATE,
    ALLOW,
    HeaderName::from_static("mcp-session-id"),
    HeaderName::from_static("x-accel-buffering"),
];

/// Most replicas that are tried for one request; none of them takes it but the last.
const ATTEMPTS: usize = 3;
/// Longest wait for the head of a response that may be a stream: these begin after a few seconds.
const HEAD_TIME: Duration = Duration::from_secs(30);
/// Time after which a request may be repeated while the store of the cluster is away.
const STORE_WAIT: Duration = Duration::from_secs(1);
/// Largest response that is read as a whole before the client gets any of it, in bytes.
const WHOLE: usize = 256 * 1024;

/// A request that may belong to another replica.
#[derive(Clone, Copy)]
pub(super) struct PassableRequest<'a> {
    pub front: &'a Arc<ListenerState>,
    pub cluster: &'a Arc<Cluster>,
    pub head: &'a Parts,
    pub body: &'a Bytes,
    pub caller: &'a Caller,
    pub access: &'a Access,
    /// The revision in which a lost call is answered.
    pub revision: Revision,
}

/// The outcome of passing a request on.
enum PassingOutcome {
    Answered(Box<HttpReply>),
    /// The replica has not taken the request: it does not hold what the request is for, does not
    /// know the caller, or something else answers at its address.
    Misdirected,
    /// Nothing listens at the address of the replica.
    Refused,
}

impl PassableRequest<'_> {
    /// Passes the request on to the replica that holds its session, and returns the response;
    /// `None` if this replica holds the session.
    pub(super) async fn to_holder(self, session: &NamedSession) -> Option<HttpReply> {
        let mut doubt = HolderDoubt::None;
        for _ in 0..ATTEMPTS {
            let peer = match self.cluster.holder(session, doubt).await {
                Ok(SessionHolder::Own) => return None,
                Ok(_) if self.front.is_for_peers => return Some(misdirected()),
                Ok(SessionHolder::Peer(peer)) => peer,
                Ok(SessionHolder::Unreachable) => {
                    return Some(later("the replica that has this session names no `peer-url`"));
                }
                Err(error) => {
                    tracing::debug!(error = %error, "the holder of a session is not known");
                    return Some(self.store_away());
                }
            };
            match Box::pin(self.to_peer(&peer)).await {
                PassingOutcome::Answered(response) => return Some(*response),
                PassingOutcome::Refused => doubt = HolderDoubt::Refused(peer.run),
                PassingOutcome::Misdirected => doubt = HolderDoubt::Denied,
            }
        }
        Some(later(
            "no replica takes the request: they do not agree on which of them has this session, or on its caller",
        ))
    }

    /// Passes the request on to the replica in whose memory its call, task or session is, and
    /// returns the response; `None` if that is this one, or none that lives.
    pub(super) async fn to_run(self, run: RunId) -> Option<HttpReply> {
        if self.cluster.is_own(run) {
            return None;
        }
        if self.front.is_for_peers {
            return Some(misdirected());
        }
        let peer = self.cluster.peer(run).await?;
        match Box::pin(self.to_peer(&peer)).await {
            PassingOutcome::Answered(response) => Some(*response),
            PassingOutcome::Misdirected | PassingOutcome::Refused => None,
        }
    }

    /// Sends the request to a replica and waits for the head of its response.
    async fn to_peer(self, peer: &Arc<PeerLink>) -> PassingOutcome {
        let answered = |response| PassingOutcome::Answered(Box::new(response));
        let Some(request) = self.for_peer(peer) else {
            return answered(later("the request cannot be passed on to the replica that has its session"));
        };
        let may_stream = accepts(&self.head.headers, "text/event-stream");
        let is_bounded = may_stream || self.head.method != HttpMethod::POST;
        let sent = tokio::select! {
            biased;
            sent = Box::pin(peer.send(request)) => sent,
            () = self.cluster.ended(peer.run) => Err(PassingError::Lost("it sends no heartbeat".to_owned())),
            () = tokio::time::sleep(HEAD_TIME), if is_bounded => {
                Err(PassingError::Lost("it does not answer".to_owned()))
            }
        };
        let error = match sent {
            Ok(response) if is_served_by(response.headers(), peer.run) => {
                return answered(self.relay(peer, response).await);
            }
            Ok(_) => return PassingOutcome::Misdirected,
            Err(error) => error,
        };
        tracing::warn!(replica = %peer.name, error = %error, "a request was not answered by another replica");
        match error {
            PassingError::Refused => PassingOutcome::Refused,
            PassingError::Unreached(_) | PassingError::Busy => {
                answered(later("the replica that has this session cannot be reached at the moment"))
            }
            PassingError::Lost(_) => answered(self.lost_reply()),
        }
    }

    /// Builds the request for a replica: with the caller and without the client's credential.
    fn for_peer(self, peer: &PeerLink) -> Option<HttpRequest<Full<Bytes>>> {
        let from = self.cluster.run()?;
        let digest = Digest::of(self.body);
        let passed = passed_request(self.head, from, peer.run, digest);
        let sealed = self.cluster.vouch(&passed, self.caller, passed_credential(self.access)?)?;
        let mut request = HttpRequest::new(Full::new(self.body.clone()));
        *request.method_mut() = self.head.method.clone();
        *request.uri_mut() = passed.target.parse().ok()?;
        let headers = request.headers_mut();
        for (name, value) in &self.head.headers {
            let is_ours = name.as_str().starts_with("mcp-") || matches!(name.as_str(), "traceparent" | "tracestate");
            if is_ours || [&ACCEPT, &CONTENT_TYPE, &LAST_EVENT].contains(&name) {
                headers.append(name, value.clone());
            }
        }
        headers.insert(HOST, HeaderValue::from_str(peer.authority.as_str()).ok()?);
        headers.insert(&CALLER, HeaderValue::from_str(&from.mark(&sealed)).ok()?);
        headers.insert(&BODY, HeaderValue::from_str(&digest.hex()).ok()?);
        Some(request)
    }

    /// Turns the response of a replica into the client's.
    async fn relay(self, peer: &Arc<PeerLink>, response: Response<PeerBody>) -> HttpReply {
        let (head, mut body) = response.into_parts();
        let is_stream = head.headers.get(CONTENT_TYPE).is_some_and(|kind| kind == "text/event-stream");
        let length = head.headers.get(CONTENT_LENGTH).and_then(|length| length.to_str().ok()?.parse::<usize>().ok());
        let mut relayed = if is_stream || length.is_none_or(|length| length > WHOLE) {
            let failure = if is_stream { self.lost_event() } else { None };
            let silence = is_stream.then(|| self.front.keepalive() * 3);
            let (cluster, run) = (Arc::clone(self.cluster), peer.run);
            let mut relayed = reply::events(stream::unfold(
                Some(RelayedBody { body, cluster, run, failure, silence, is_between: true }),
                RelayedBody::next,
            ));
            relayed.headers_mut().clear();
            // A body that ends before its length is a broken one to the client.
            relayed.headers_mut().extend(length.map(|length| (CONTENT_LENGTH, HeaderValue::from(length))));
            relayed
        } else {
            let mut whole = BytesMut::new();
            while let Some(frame) = body.frame().await {
                match frame.map(http_body::Frame::into_data) {
                    Ok(Ok(data)) if whole.len() + data.len() <= WHOLE => whole.extend_from_slice(&data),
                    Ok(Err(_)) => {}
                    Ok(Ok(_)) | Err(_) => return self.lost_reply(),
                }
            }
            reply::with_status(head.status, ReplyBody::whole(whole.freeze()))
        };
        *relayed.status_mut() = head.status;
        for name in &RELAYED {
            if let Some(value) = head.headers.get(name) {
                relayed.headers_mut().insert(name, value.clone());
            }
        }
        relayed
    }

    /// Returns the answer to the call in the body, which may have been executed; `None` if the body
    /// has no request.
    fn lost_answer(self) -> Option<MessageSlices> {
        self.answer(&CallFailure::replica_lost())
    }

    /// Returns the refusal of the request in the body; `None` if it has none.
    fn answer(self, failure: &CallFailure) -> Option<MessageSlices> {
        let ClientInput::Message(Ok(Message::Request(request))) =
            ClientInput::read(self.body.clone(), JsonBounds::CLIENT)
        else {
            return None;
        };
        let answer = self.front.service.refusal(failure, Method::parse(&request.method), self.revision);
        Some(MessageSlices::answer(request.id.raw(), answer))
    }

    /// Returns the response to a request whose session is at a replica that the store cannot name.
    fn store_away(self) -> HttpReply {
        let text = "The store of the cluster does not answer, so it is not known which replica has this session.";
        let failure = CallFailure::new(FailureReason::StoreUnavailable, ExecutionDoubt::No, text);
        match self.answer(&failure.retry_after(STORE_WAIT)) {
            Some(answer) => reply::slices(StatusCode::OK, answer.slices().collect()),
            None => later(text),
        }
    }

    fn lost_event(self) -> Option<MessageSlices> {
        self.lost_answer().map(|answer| answer.event(None, None))
    }

    fn lost_reply(self) -> HttpReply {
        match self.lost_answer() {
            Some(answer) => reply::slices(StatusCode::OK, answer.slices().collect()),
            None => {
                let text = "the replica that has this session broke off; what was sent may have been executed";
                reply::refusal(StatusCode::BAD_GATEWAY, text)
            }
        }
    }
}

/// A body that is relayed while it arrives.
struct RelayedBody {
    body: PeerBody,
    cluster: Arc<Cluster>,
    run: RunId,
    /// The event that ends a stream whose replica is lost before the answer.
    failure: Option<MessageSlices>,
    /// Longest time without a byte; `None` without such a limit.
    silence: Option<Duration>,
    /// True if the last bytes were the end of an event.
    is_between: bool,
}

impl RelayedBody {
    /// Returns the next bytes, and the body unless they are the last.
    async fn next(relayed: Option<Self>) -> Option<(MessageSlices, Option<Self>)> {
        let mut relayed = relayed?;
        loop {
            let frame = tokio::select! {
                biased;
                frame = relayed.body.frame() => frame.map(Result::ok),
                () = relayed.cluster.ended(relayed.run) => Some(None),
                () = or_never(relayed.silence.map(tokio::time::sleep)) => Some(None),
            };
            match frame.map(|frame| frame.map(http_body::Frame::into_data)) {
                None => return None,
                Some(Some(Ok(data))) if data.is_empty() => {}
                Some(Some(Ok(data))) => {
                    relayed.is_between = data.ends_with(b"\n\n") || (data.as_ref() == b"\n" && !relayed.is_between);
                    return Some((data.into(), Some(relayed)));
                }
                Some(Some(Err(_))) => {}
                Some(None) => {
                    let failure = relayed.failure.take().filter(|_| relayed.is_between)?;
                    return Some((failure, None));
                }
            }
        }
    }
}

/// Returns the response to a request that was passed on to the wrong replica: nothing was done.
pub(super) fn misdirected() -> HttpReply {
    reply::refusal(StatusCode::MISDIRECTED_REQUEST, "this replica does not hold what the request is for")
}

fn later(text: &str) -> HttpReply {
    reply::retry_later(StatusCode::SERVICE_UNAVAILABLE, 2, &format!("{text}; nothing was executed, try again"))
}
