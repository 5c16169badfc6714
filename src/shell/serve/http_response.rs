//! Runs a call over HTTP and answers it: with one JSON body, or with an event stream if there is
//! more to send.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use futures_util::stream;
use http::Response;
use tokio_util::sync::CancellationToken;

use crate::engine::answer::RequestAnswer;
use crate::engine::question::AWAY;
use crate::gateway::call::ClientEvent;
use crate::gateway::service::Service;
use crate::gateway::waiting::client_call::ClientCall;
use crate::listener::body::ReplyBody;
use crate::listener::pieces::MessageSlices;
use crate::listener::reply;
use crate::mcp::version::EventIds;
use crate::serve::open_request::OpenRequest;
use crate::serve::replay::SessionRecording;
use crate::serve::sessions::ClientSession;
use crate::wire::id::ClientId;
use crate::wire::sse;

/// Time after which a call without an answer is answered with a stream, so that keep-alives can
/// flow.
const COMMIT_TO_STREAM: Duration = Duration::from_secs(5);

/// An open request of a legacy session.
pub(crate) struct SessionRequest {
    session: Arc<ClientSession>,
    open: OpenRequest,
}

impl SessionRequest {
    pub(crate) fn new(session: &Arc<ClientSession>, id: &ClientId, ticket: CancellationToken) -> Self {
        Self { session: Arc::clone(session), open: OpenRequest::new(&session.protocol, id, ticket) }
    }
}

/// A call and the response that carries its answer.
pub(crate) struct HttpCall {
    call: Option<Box<ClientCall>>,
    id: ClientId,
    /// Set in legacy sessions, whose clients cancel by message and may disconnect without
    /// cancelling.
    entered: Option<SessionRequest>,
    keepalive: Duration,
}

/// The result of waiting for a call.
enum CallUpdate {
    Event(ClientEvent),
    /// Nothing happened for the given time.
    Quiet,
    Cancelled,
}

impl HttpCall {
    pub(crate) fn new(
        call: Box<ClientCall>,
        id: ClientId,
        entered: Option<SessionRequest>,
        keepalive: Duration,
    ) -> Self {
        Self { call: Some(call), id, entered, keepalive }
    }

    /// Responds with one JSON answer if the outcome comes first and soon, or if the client accepts
    /// nothing else; otherwise with a stream.
    pub(crate) async fn respond(mut self, service: &Arc<Service>, accepts_events: bool) -> Response<ReplyBody> {
        // The client cancelled the request: there is no answer, but HTTP needs a response.
        let withdrawn = || reply::events(stream::empty::<Bytes>());
        if !accepts_events {
            let id = self.id.clone();
            return Box::pin(self.answer()).await.map_or_else(withdrawn, |answer| reply::answer(id.raw(), answer));
        }
        let first = match self.turn(COMMIT_TO_STREAM).await {
            CallUpdate::Event(ClientEvent::Done(answer)) => return reply::answer(self.id.raw(), answer),
            CallUpdate::Cancelled => return withdrawn(),
            CallUpdate::Event(event) => Some(event),
            CallUpdate::Quiet => None,
        };
        if self.is_recorded() {
            return self.record(service, first);
        }
        let first = match first {
            Some(ClientEvent::Notice(message) | ClientEvent::Question(message)) => {
                MessageSlices::from(message).event(None, None)
            }
            Some(ClientEvent::Done(_)) | None => sse::comment("working").into(),
        };
        reply::events(stream::unfold((Some(first), Some(self)), next_piece))
    }

    fn is_recorded(&self) -> bool {
        self.entered.as_ref().is_some_and(|entered| entered.session.streams.ids() != EventIds::None)
    }

    /// Responds with a stream that can be resumed. A task of its own runs the call to its end, even
    /// if the stream has no reader.
    fn record(mut self, service: &Arc<Service>, first: Option<ClientEvent>) -> Response<ReplyBody> {
        let (Some(call), Some(entered)) = (self.call.take(), self.entered.take()) else {
            return reply::events(stream::empty::<Bytes>());
        };
        let (recording, reader) = entered.session.streams.open();
        let recorded = RecordedCall { recording, entered, id: self.id.clone() };
        service.tasks.spawn("streamed call", recorded.run(call, first, service.draining.clone()));
        let keepalive = self.keepalive;
        reply::events(stream::unfold(
            reader,
            move |mut reader| async move { Some((reader.next(keepalive).await?, reader)) },
        ))
    }

    /// Waits for the answer and drops all other events; `None` if the client cancelled the request.
    pub(crate) async fn answer(mut self) -> Option<RequestAnswer> {
        loop {
            match self.turn(Duration::from_secs(3600)).await {
                CallUpdate::Event(ClientEvent::Done(answer)) => return Some(answer),
                CallUpdate::Event(ClientEvent::Notice(_) | ClientEvent::Question(_)) | CallUpdate::Quiet => {}
                CallUpdate::Cancelled => return None,
            }
        }
    }

    /// Waits for an event of the call, for its cancellation, or for `quiet` to pass. Drops the call
    /// after its answer or cancellation.
    async fn turn(&mut self, quiet: Duration) -> CallUpdate {
        let Some(call) = &mut self.call else { return CallUpdate::Cancelled };
        let (entered, is_held) = (self.entered.as_ref(), call.is_held());
        let turn = tokio::select! {
            biased;
            () = cancelled(entered), if is_held => CallUpdate::Cancelled,
            event = call.next() => CallUpdate::Event(event),
            () = cancelled(entered) => CallUpdate::Cancelled,
            () = tokio::time::sleep(quiet) => CallUpdate::Quiet,
        };
        if matches!(turn, CallUpdate::Event(ClientEvent::Done(_)) | CallUpdate::Cancelled) {
            self.call = None;
        }
        turn
    }
}

/// Resolves when the client cancels its request, or its session ends. A request without a session
/// ends with its stream instead.
async fn cancelled(entered: Option<&SessionRequest>) {
    let Some(entered) = entered else { return std::future::pending().await };
    tokio::select! {
        () = entered.open.cancelled.cancelled() => {}
        () = entered.session.ended.cancelled() => {}
    }
}

impl Drop for HttpCall {
    fn drop(&mut self) {
        // The response was dropped before the answer because the client disconnected. In a session
        // that is not a cancellation.
        if let Some(call) = self.call.take() {
            let cancelled = self.entered.as_ref().is_none_or(|e| e.open.cancelled.is_cancelled());
            if !cancelled {
                call.detach();
            }
        }
    }
}

/// A call whose events are recorded on a stream that can be resumed.
struct RecordedCall {
    recording: Arc<SessionRecording>,
    entered: SessionRequest,
    id: ClientId,
}

impl RecordedCall {
    /// Runs the call and records its events until it is answered or cancelled, its session ends, or
    /// the gateway ends while the stream has no reader.
    async fn run(self, mut call: Box<ClientCall>, first: Option<ClientEvent>, draining: CancellationToken) {
        if first.is_some_and(|event| self.write(event)) {
            return;
        }
        let unread = self.recording.unread(AWAY);
        tokio::pin!(unread);
        loop {
            let is_held = call.is_held();
            let event = tokio::select! {
                biased;
                () = self.entered.open.cancelled.cancelled(), if is_held => return,
                () = self.entered.session.ended.cancelled(), if is_held => return,
                event = call.next() => event,
                () = self.entered.open.cancelled.cancelled() => return,
                () = self.entered.session.ended.cancelled() => return,
                () = self.recording.forsaken(&draining) => return,
                () = &mut unread, if call.is_asking() => {
                    call.nobody_answers();
                    unread.set(self.recording.unread(AWAY));
                    continue;
                }
            };
            if self.write(event) {
                return;
            }
        }
    }

    /// Records an event. Returns whether it was the answer.
    fn write(&self, event: ClientEvent) -> bool {
        let (message, may_be_missed, last) = match event {
            ClientEvent::Notice(notice) => (notice.into(), true, false),
            ClientEvent::Question(question) => (question.into(), false, false),
            ClientEvent::Done(answer) => (MessageSlices::answer(self.id.raw(), answer), false, true),
        };
        self.entered.session.streams.push(&self.recording, message, may_be_missed);
        last
    }
}

impl Drop for RecordedCall {
    fn drop(&mut self) {
        // The reader must not wait for more, however the call ended.
        self.recording.end();
    }
}

/// The first event of a streamed answer, if it is still to be sent, and the call that provides the
/// rest.
type StreamedCall = (Option<MessageSlices>, Option<HttpCall>);

/// Returns the next event of a streamed answer; `None` at its end.
async fn next_piece((first, conversation): StreamedCall) -> Option<(MessageSlices, StreamedCall)> {
    let mut conversation = conversation?;
    if let Some(first) = first {
        return Some((first, (None, Some(conversation))));
    }
    match conversation.turn(conversation.keepalive).await {
        CallUpdate::Event(ClientEvent::Notice(notice) | ClientEvent::Question(notice)) => {
            Some((MessageSlices::from(notice).event(None, None), (None, Some(conversation))))
        }
        CallUpdate::Quiet => Some((sse::comment("keep-alive").into(), (None, Some(conversation)))),
        CallUpdate::Event(ClientEvent::Done(answer)) => {
            Some((MessageSlices::answer(conversation.id.raw(), answer).event(None, None), (None, None)))
        }
        CallUpdate::Cancelled => None,
    }
}
