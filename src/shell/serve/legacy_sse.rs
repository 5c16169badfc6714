//! The HTTP+SSE transport of 2024-11-05 for clients: `GET /sse` opens a stream whose first event
//! names the address for POSTs, and every answer is sent on the stream. POSTs and stream are turned
//! into the two directions of a pipe, on which [`super::lines`] serves the client.
//!
//! A session is its stream: it belongs to the caller that opened the stream, and ends with the
//! stream. The transport cannot resume a stream, so the stream does not end when its credential
//! expires: it still brings the answers of calls in flight, and nothing else until the next POST
//! has a valid credential. The session ends if none comes for as long as a session may be idle.
//!
//! Source: MCP 2024-11-05, basic/transports, "HTTP with SSE".

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use futures_util::{Stream, StreamExt as _, stream};
use http::request::Parts;
use http::{Method as HttpMethod, Response, StatusCode};
use hyper::body::Incoming;
use tokio::sync::mpsc;
use tokio_util::io::StreamReader;

use crate::engine::client::heard::ClientInput;
use crate::engine::sealed::run_id::split_mark;
use crate::gateway::client::ClientContext;
use crate::gateway::client::quota::{QuotaKind, QuotaSlot};
use crate::listener::body::ReplyBody;
use crate::listener::callers::credentials::CallerAccess;
use crate::listener::pieces::{MessageSlices, QueuedMessage};
use crate::listener::reply;
use crate::listener::routes::{SSE_MESSAGES, SSE_STREAM};
use crate::mcp::version::Revision;
use crate::serve::front::{HttpConnection, ListenerState};
use crate::serve::lines::posts::{PostedCredential, PostedMessage};
use crate::serve::lines::{self, LineClient};
use crate::serve::passing::PassableRequest;
use crate::serve::request_body::{accepts, no_message, not_json, read_body};
use crate::serve::sessions::{ClientSession, StreamRight};
use crate::wire::frame::{Frame, JsonBounds};
use crate::wire::sse;

type HttpReply = Response<ReplyBody>;

/// The path of messages; that of a profile has its name below it.
const MESSAGES: &str = "/messages";
/// Messages of a client that may wait; further POSTs are held.
const INBOUND: usize = 4;
/// How long a POST may be held until there is room for its message.
const PATIENCE: Duration = Duration::from_secs(10);

/// A path of the transport.
pub(crate) enum LegacySsePath {
    /// The event stream, for the whole catalog or a profile.
    Stream { profile: Option<Arc<str>> },
    /// The messages to sessions of the whole catalog or of a profile.
    Messages { profile: Option<Arc<str>> },
}

impl LegacySsePath {
    /// Recognizes a path of the transport; `None` for others, and if the transport is not enabled.
    pub(crate) fn of(front: &ListenerState, path: &str) -> Option<Self> {
        if !front.legacy_sse {
            return None;
        }
        let stream = || front.profile_at("/sse", path).map(|profile| Self::Stream { profile });
        stream().or_else(|| front.profile_at(MESSAGES, path).map(|profile| Self::Messages { profile }))
    }

    /// Returns the profile, whose tokens are accepted at the path.
    pub(crate) fn profile(&self) -> Option<&str> {
        match self {
            Self::Stream { profile } | Self::Messages { profile } => profile.as_deref(),
        }
    }

    /// Checks the method of a request to this path.
    ///
    /// # Errors
    /// 405 for any method but the path's own.
    pub(crate) fn admit(&self, method: &HttpMethod) -> Result<(), Box<HttpReply>> {
        let route = match self {
            Self::Stream { .. } => SSE_STREAM,
            Self::Messages { .. } => SSE_MESSAGES,
        };
        if route.has(method) { Ok(()) } else { Err(Box::new(reply::method_not_allowed(route.methods))) }
    }
}

/// Answers a request whose caller is known.
pub(crate) async fn handle(
    front: &Arc<ListenerState>,
    path: LegacySsePath,
    caller: CallerAccess,
    seat: &HttpConnection,
    request: (&Parts, Incoming),
) -> HttpReply {
    let (head, body) = request;
    if let Err(response) = front.admit_request(&caller.caller) {
        return *response;
    }
    match path {
        LegacySsePath::Stream { profile } => open(front, caller, profile, head, seat.is_here(&head.headers)),
        LegacySsePath::Messages { profile } => {
            let posted = take(front, caller, profile.as_deref(), (head, body)).await;
            posted.unwrap_or_else(|refused| *refused)
        }
    }
}

/// Opens a session and responds with its stream.
fn open(
    front: &Arc<ListenerState>,
    caller: CallerAccess,
    profile: Option<Arc<str>>,
    head: &Parts,
    is_here: bool,
) -> HttpReply {
    if !accepts(&head.headers, "text/event-stream") {
        let text = "Accept must allow text/event-stream";
        return reply::refusal(StatusCode::NOT_ACCEPTABLE, text);
    }
    let no_room = |text| reply::retry_later(StatusCode::SERVICE_UNAVAILABLE, 5, text);
    let Some(share) = front.service.admission.quota.take(&caller.caller, QuotaKind::Stream) else {
        return no_room("too many streams");
    };
    let (pipe, inbound) = mpsc::channel(INBOUND);
    // The revision is agreed later, on the pipe.
    let CallerAccess { caller, access } = caller;
    let client = ClientContext { is_here, ..ClientContext::new(caller, access, profile, Revision::V2024_11_05) };
    let Some(session) = front.sessions.open(client, Some(pipe)) else {
        return no_room("no room for another session");
    };
    let Some(place) = session.stream() else { return no_room("no room for another session") };
    let (out, messages) = lines::channel();
    serve(front, &session, inbound, out);
    let outbound =
        LegacySseStream { front: Arc::clone(front), session, messages, opening: true, _held: (place, share) };
    reply::events(stream::unfold(outbound, LegacySseStream::step))
}

/// Spawns a task that serves the session as a client on a pipe.
fn serve(
    front: &Arc<ListenerState>,
    session: &Arc<ClientSession>,
    inbound: mpsc::Receiver<PostedMessage>,
    out: mpsc::Sender<QueuedMessage>,
) {
    let terms = front.terms.load_full();
    let posts = Arc::new(PostedCredential::new(Arc::clone(&session.client.access), terms.limits.session_idle));
    let client = LineClient {
        is_relay: false,
        service: Arc::clone(&front.service),
        caller: session.client.caller.clone(),
        access: Arc::clone(&session.client.access),
        profile: session.client.profile.clone(),
        connected: None,
        is_here: session.client.is_here,
        posts: Some(Arc::clone(&posts)),
        drains: false,
        max_line_bytes: terms.limits.body_bytes,
        max_uris: terms.limits.uris_per_stream,
    };
    let reader = StreamReader::new(Box::pin(messages(inbound, Arc::clone(session), posts)));
    let serving = lines::serve_to(client, reader, out, front.service.draining.clone());
    front.service.tasks.spawn("session", serving);
}

/// Turns posted messages into lines until the session ends. Each line end is a separate chunk, so
/// that a reader that has received one holds no further message and no further room. The next
/// message, with its credential, is received once the reader has handled the one before.
fn messages(
    inbound: mpsc::Receiver<PostedMessage>,
    session: Arc<ClientSession>,
    posts: Arc<PostedCredential>,
) -> impl Stream<Item = std::io::Result<Bytes>> + Send {
    let messages = stream::unfold((inbound, session, posts), |(mut inbound, session, posts)| async move {
        let PostedMessage { bytes, access } = tokio::select! {
            message = inbound.recv() => message?,
            () = session.ended.cancelled() => return None,
        };
        posts.renew(access);
        Some((bytes, (inbound, session, posts)))
    });
    messages.flat_map(|message| stream::iter([Ok(message), Ok(Bytes::from_static(b"\n"))]))
}

/// The event stream of a session. Dropping it, because the client disconnected, ends the session
/// and cancels its calls.
struct LegacySseStream {
    front: Arc<ListenerState>,
    session: Arc<ClientSession>,
    messages: mpsc::Receiver<QueuedMessage>,
    /// True until the first event was sent.
    opening: bool,
    _held: (StreamRight, QuotaSlot),
}

impl LegacySseStream {
    /// Returns the next event of the stream; `None` once the session is over.
    async fn step(mut self) -> Option<(MessageSlices, Self)> {
        if std::mem::take(&mut self.opening) {
            let profile = self.session.client.profile.as_ref().map(|name| format!("/{name}")).unwrap_or_default();
            let endpoint = format!("{MESSAGES}{profile}?sessionId={}", self.session.id);
            return Some((sse::event(None, Some("endpoint"), &[endpoint.as_bytes()]).into(), self));
        }
        tokio::select! {
            queued = self.messages.recv() => Some((queued?.message.event(None, Some("message")), self)),
            () = tokio::time::sleep(self.front.keepalive()) => Some((sse::comment("keep-alive").into(), self)),
        }
    }
}

impl Drop for LegacySseStream {
    fn drop(&mut self) {
        self.front.sessions.close(&self.session.id, &self.session.client.caller);
    }
}

/// Accepts one posted message for a session of a profile, or of the whole catalog, and passes it
/// on, waiting for room if needed.
async fn take(
    front: &Arc<ListenerState>,
    caller: CallerAccess,
    profile: Option<&str>,
    (head, body): (&Parts, Incoming),
) -> Result<HttpReply, Box<HttpReply>> {
    let refusal = |status, text| Box::new(reply::refusal(status, text));
    if let Some(response) = not_json(&head.headers) {
        return Err(Box::new(response));
    }
    let Some(id) = session_id(head.uri.query().unwrap_or_default()) else {
        let text = "the query must name one session, as the endpoint event does";
        return Err(Box::new(reply::refusal_and_close(StatusCode::BAD_REQUEST, text)));
    };
    let bytes = read_body(body, &head.headers, front, caller.access.caller()).await?;
    if let (Some(cluster), Some(run)) = (&front.service.cluster, split_mark(&id).0) {
        let CallerAccess { caller, access } = &caller;
        let revision = Revision::V2024_11_05;
        let passable = PassableRequest { front, cluster, head, body: &bytes, caller, access, revision };
        if let Some(response) = Box::pin(passable.to_run(run)).await {
            return Ok(response);
        }
    }
    let frame = Frame::from_client(bytes, JsonBounds::CLIENT).map_err(|e| Box::new(no_message(&e.into())))?;
    match ClientInput::of(&frame, JsonBounds::CLIENT) {
        ClientInput::Message(Err(unreadable)) => return Err(Box::new(no_message(&unreadable))),
        // The POST has been counted as one request already. It is not known here whether the
        // session's revision allows batches.
        heard @ (ClientInput::Message(_) | ClientInput::Batch(_)) => {
            front.admit(&caller.caller, heard.requests().saturating_sub(1))?
        }
    }
    let unknown = || refusal(StatusCode::NOT_FOUND, "no such session; open the event stream again");
    let session = front.sessions.find(&id, &caller.caller).ok_or_else(unknown)?;
    if session.client.profile.as_deref() != profile {
        return Err(unknown());
    }
    let message = PostedMessage { bytes: frame.bytes().clone(), access: caller.access };
    let pipe = session.pipe.as_ref().ok_or_else(unknown)?;
    tokio::select! {
        sent = pipe.send(message) => sent.map_err(|_| unknown())?,
        () = session.ended.cancelled() => return Err(unknown()),
        () = tokio::time::sleep(PATIENCE) => {
            let text = "the session does not keep up; read its event stream";
            return Err(Box::new(reply::retry_later(StatusCode::SERVICE_UNAVAILABLE, 1, text)));
        }
    }
    Ok(reply::accepted())
}

/// Returns the session id in a query. One SDK writes `session_id`, which proxies may also pass on.
fn session_id(query: &str) -> Option<String> {
    let mut named = url::form_urlencoded::parse(query.as_bytes())
        .filter(|(name, _)| matches!(name.as_ref(), "sessionId" | "session_id"));
    let id = named.next()?.1.into_owned();
    (!id.is_empty() && named.next().is_none()).then_some(id)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_query_names_one_session_or_none() {
        for (label, query, wanted) in [
            ("one", "sessionId=a", Some("a")),
            ("in the other spelling", "session_id=a", Some("a")),
            ("beside others", "x=1&sessionId=a%2Db", Some("a-b")),
            ("none", "", None),
            ("empty", "sessionId=", None),
            ("twice", "sessionId=a&sessionId=a", None),
            ("in both spellings", "sessionId=a&session_id=b", None),
        ] {
            assert_eq!(session_id(query).as_deref(), wanted, "{label}");
        }
    }
}
