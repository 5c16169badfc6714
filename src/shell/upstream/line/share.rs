//! Serves a program that runs under a lease to another replica of the cluster, as lines: the other
//! replica speaks to it as if the program were its own.
//!
//! The handshake is answered with the program's own result, so both agree on the same revision and
//! offers. A request becomes a call on the program's connection, beside the calls of this replica,
//! and keeps the other replica's id and progress token. Nothing is judged here: the replica that
//! asks has done that. A question of the program reaches no one, since the program was told that it
//! can ask nothing. A resource stays subscribed once a replica has subscribed to it, because the
//! program cannot tell the replicas apart.
//!
//! Calls in flight when the program ends are not answered: the end of the lines says that their
//! outcome is unknown.

use std::collections::HashMap;

use bytes::{BufMut as _, Bytes, BytesMut};
use futures_util::stream::FuturesUnordered;
use futures_util::{Stream, StreamExt as _};
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;

use crate::engine::askers::CallOrigin;
use crate::engine::call::{CallOutcome, OutgoingCall};
use crate::engine::client::heard::ClientInput;
use crate::engine::event::CallEvent;
use crate::engine::failure::FailureReason;
use crate::mcp::log::LogLevel;
use crate::mcp::meta::{Meta, SUBSCRIPTION_ID};
use crate::mcp::method::Method;
use crate::mcp::version::Era;
use crate::upstream::line::link::{SharedProgram, StdioLink};
use crate::wire::code;
use crate::wire::frame::JsonBounds;
use crate::wire::id::{ClientId, IdKey};
use crate::wire::json::raw::{RawJson, RawObject};
use crate::wire::lines::{LineDecoder, StreamLine};
use crate::wire::message::{self, Message, Request};

/// Most calls of one replica in flight.
const MAX_CALLS: usize = 1024;
/// Serves a program to another replica until one of them ends: takes its bytes from `input`, and
/// sends messages with their newlines to `out`. After `leaving` has fired, ends as soon as no call
/// is in flight.
pub(crate) async fn serve(
    link: StdioLink,
    mut input: impl Stream<Item = Bytes> + Unpin,
    out: mpsc::Sender<Bytes>,
    max_message_bytes: usize,
    leaving: CancellationToken,
) {
    let Some(shared) = link.shared.clone() else { return };
    let mut changes = shared.changes.subscribe();
    let mut served = ServedReplica { link, shared, out, calls: HashMap::new() };
    let mut running = FuturesUnordered::new();
    let mut decoder = LineDecoder::new(max_message_bytes);
    loop {
        while let Some(line) = decoder.next_line() {
            // A line above the limit is a call that its replica gives up in time.
            let StreamLine::Full(line) = line else { continue };
            match served.read(line).await {
                Ok(call) => running.extend(call),
                Err(ReplicaGone) => return,
            }
        }
        tokio::select! {
            piece = input.next() => match piece {
                Some(piece) => decoder.buffer().extend_from_slice(&piece),
                None => return,
            },
            Some(ended) = running.next() => match ended {
                Ok(id) => drop(served.calls.remove(&id)),
                Err(ReplicaGone) => return,
            },
            change = changes.recv() => match change {
                Ok(change) => for message in change.messages() {
                    if served.put(message).await.is_err() {
                        return;
                    }
                },
                Err(_) => return,
            },
            () = served.link.ended() => return,
            () = served.out.closed() => return,
            () = leaving.cancelled(), if served.calls.is_empty() => return,
        }
    }
}

/// The end of a link: the other replica takes no more messages, or the program has ended.
#[derive(Debug)]
struct ReplicaGone;

/// A replica that is served.
struct ServedReplica {
    link: StdioLink,
    shared: SharedProgram,
    out: mpsc::Sender<Bytes>,
    /// The calls in flight; each token cancels its call.
    calls: HashMap<IdKey, CancellationToken>,
}

impl ServedReplica {
    /// Acts on one line. Returns the call that it begins.
    async fn read(
        &mut self,
        line: Bytes,
    ) -> Result<Option<impl Future<Output = Result<IdKey, ReplicaGone>> + use<>>, ReplicaGone> {
        // The client's message has passed narrower bounds at the other replica.
        let ClientInput::Message(Ok(message)) = ClientInput::read(line, JsonBounds::UPSTREAM) else { return Ok(None) };
        match message {
            Message::Request(request) => match self.answer(&request) {
                Some(answer) => self.put(message::encode_answer(request.id.raw(), &answer)).await.map(|()| None),
                None => Ok(Some(self.call(request))),
            },
            Message::Notification(notice) if notice.method == "notifications/cancelled" => {
                let params = notice.params.and_then(|params| RawObject::parse(&params).ok()).unwrap_or_default();
                let id = params.get("requestId").cloned().and_then(ClientId::from_raw);
                id.and_then(|id| self.calls.get(&id.key())).iter().for_each(|call| call.cancel());
                Ok(None)
            }
            Message::Notification(_) | Message::Response(_) => Ok(None),
        }
    }

    /// Answers a request that does not reach the program; `None` for any other.
    fn answer(&self, request: &Request) -> Option<Result<RawJson, RawJson>> {
        let method = Method::parse(&request.method);
        let greets = match self.link.agreed.revision.era() {
            Era::Modern => Method::Discover,
            Era::Legacy => Method::Initialize,
        };
        match method {
            Method::Discover | Method::Initialize if method == greets => Some(Ok(self.shared.greeting.clone())),
            Method::Discover | Method::Initialize | Method::Unknown => {
                Some(Err(message::error_object(code::METHOD_NOT_FOUND, "unknown method", None)))
            }
            Method::Ping | Method::ResourcesUnsubscribe => Some(Ok(RawJson::EMPTY_OBJECT)),
            Method::SetLevel => {
                let params = request.params.as_ref().and_then(|params| RawObject::parse(params).ok());
                let level = params.and_then(|params| params.get("level").and_then(LogLevel::read));
                // The level belongs to the program's session: the finest one that any replica
                // wants.
                let is_finer = level.is_some_and(|level| self.link.logs.lower(level));
                (!is_finer).then_some(Ok(RawJson::EMPTY_OBJECT))
            }
            Method::ToolsList
            | Method::ToolsCall
            | Method::PromptsList
            | Method::PromptsGet
            | Method::ResourcesList
            | Method::TemplatesList
            | Method::ResourcesRead
            | Method::ResourcesSubscribe
            | Method::Listen
            | Method::Complete
            | Method::TasksGet
            | Method::TasksResult
            | Method::TasksList
            | Method::TasksCancel
            | Method::TasksUpdate => {
                let has_room = self.calls.len() < MAX_CALLS && !self.calls.contains_key(&request.id.key());
                let refusal = || message::error_object(code::INTERNAL, "too many calls of one replica in flight", None);
                (!has_room).then(|| Err(refusal()))
            }
        }
    }

    /// Passes a call to the program. The returned future sends its progress and its answer.
    fn call(&mut self, request: Request) -> impl Future<Output = Result<IdKey, ReplicaGone>> + use<> {
        let params = request.params.as_ref().and_then(|params| RawObject::parse(params).ok());
        let mut body = params.unwrap_or_default();
        let meta = Meta::of(&body).unwrap_or_default();
        body.remove("_meta");
        let is_legacy = self.link.agreed.revision.era() == Era::Legacy;
        let outgoing = OutgoingCall {
            method: Method::parse(&request.method),
            body,
            wants_progress: meta.get("progressToken").is_some(),
            resumed: false,
            capabilities: meta.client_capabilities().cloned(),
            can_be_asked: false,
            // The other replica picks by level.
            log_level: if is_legacy { Some(LogLevel::Debug) } else { meta.log_level() },
            party: CallOrigin::default(),
            meta,
        };
        let (key, cancelled, out) = (request.id.key(), CancellationToken::new(), self.out.clone());
        self.calls.insert(key.clone(), cancelled.clone());
        let mut exchange = self.link.call(outgoing);
        async move {
            let id = request.id.raw();
            loop {
                let event = tokio::select! {
                    event = exchange.next() => event,
                    // Dropping the exchange tells the program.
                    () = cancelled.cancelled() => return Ok(key),
                };
                let message = match event {
                    CallEvent::Progress(params) => {
                        let Ok(mut params) = RawObject::parse(&params) else { continue };
                        params.set("progressToken", id.clone());
                        message::encode_notification("notifications/progress", Some(&params.encode()))
                    }
                    CallEvent::Log(params) => message::encode_notification("notifications/message", Some(&params)),
                    CallEvent::Notice(notice) => {
                        let params = notice.params.and_then(|params| RawObject::parse(&params).ok());
                        let mut params = params.unwrap_or_default();
                        let mut meta = params.object("_meta").unwrap_or_default();
                        meta.set(SUBSCRIPTION_ID, id.clone());
                        params.set("_meta", meta.encode());
                        message::encode_notification(&notice.method, Some(&params.encode()))
                    }
                    CallEvent::Done(CallOutcome::Result { raw, .. }) => {
                        put(&out, message::encode_result(id, raw.bytes())).await?;
                        return Ok(key);
                    }
                    CallEvent::Done(CallOutcome::Error { raw }) => {
                        put(&out, message::encode_error(Some(id), &raw)).await?;
                        return Ok(key);
                    }
                    CallEvent::Done(CallOutcome::Failed(failure))
                        if matches!(failure.reason, FailureReason::UpstreamCrashed | FailureReason::UpstreamDown) =>
                    {
                        return Err(ReplicaGone);
                    }
                    CallEvent::Done(CallOutcome::Failed(failure)) => {
                        let error = message::error_object(code::INTERNAL, &failure.detail, None);
                        put(&out, message::encode_error(Some(id), &error)).await?;
                        return Ok(key);
                    }
                    CallEvent::Ask(_) | CallEvent::Withdrawn(_) | CallEvent::Alive | CallEvent::Unwritten => continue,
                };
                put(&out, message).await?;
            }
        }
    }

    async fn put(&self, message: Bytes) -> Result<(), ReplicaGone> {
        put(&self.out, message).await
    }
}

/// Sends a message as a line.
async fn put(out: &mpsc::Sender<Bytes>, message: Bytes) -> Result<(), ReplicaGone> {
    let mut line = BytesMut::from(message);
    line.put_u8(b'\n');
    out.send(line.freeze()).await.map_err(|_| ReplicaGone)
}
