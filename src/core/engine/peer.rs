//! The protocol state of one connection to an upstream over lines (stdio, or the streams of
//! HTTP+SSE): handshake, lists, calls. Performs no IO and reads no clock.
//!
//! Contract: call one `handle_*`, write out everything in [`Peer::outgoing`], drain
//! [`Peer::poll_event`] until `None`, then arm a timer for [`Peer::poll_timeout`]. `now` must not
//! go backwards. Answers and progress of calls go straight to their [`CallPort`].
//!
//! Long, and one file on purpose: one state machine, whose inputs all work on the same few tables.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::{BufMut, Bytes, BytesMut};

use crate::catalog::inventory::{Inventory, ListBounds, ListReading};
use crate::engine::askers::{AskerRegistry, CallOrigin, ConductLesson};
use crate::engine::call::{CallOutcome, OutgoingCall};
use crate::engine::connection::ask::{
    ClientAnswer, DeclaredCapabilities, ServerRequest, unable_answer, unanswered_answer,
};
use crate::engine::connection::attribution::{
    AttributionResult, CallEnd, CallInFlight, QuestionAttribution, SettledQuestion,
};
use crate::engine::connection::batch;
use crate::engine::connection::pending::{PendingLookup, PendingRequests};
use crate::engine::connection::turns::TurnGate;
use crate::engine::connection::unasked::{MessageStream, NoticeRecipient, RequestDecision, find_recipient};
use crate::engine::failure::CallFailure;
use crate::engine::fault::ProtocolFault;
use crate::engine::handshake::{
    EraHint, Handshake, HandshakeAction, HandshakeAgreement, HandshakeQuestion, HandshakeReply, HandshakeTransport,
    listen_params,
};
use crate::engine::lists::{ListTrouble, UpstreamLists};
use crate::mcp::meta::{HopMeta, SUBSCRIPTION_ID};
use crate::mcp::method::{ItemList, Method};
use crate::mcp::notice::NoticeKind;
use crate::mcp::version::Era;
use crate::mcp::voice::{RemovedWords, UpstreamMessage, UpstreamReader};
use crate::wire::frame::Frame;
use crate::wire::id::WireId;
use crate::wire::json::raw::{RawJson, RawObject};
use crate::wire::message::{self, Message, Notification, Request, Response};
use crate::wire::quirk::Quirk;
use crate::wire::unreadable::UnreadableBytes;

mod lists;
mod skipped;
mod unread;

/// Most events that wait between two drains. Those of a flood of faults and notices are dropped.
const MAX_EVENTS: usize = 64;

/// The caller's end of one call, which takes its events and its outcome.
pub trait CallPort {
    /// Returns the caller's own key for this call, by which it cancels.
    fn key(&self) -> u64;
    /// Returns the caller and the item of the call.
    fn party(&self) -> &CallOrigin;
    /// Takes the `params` of a progress notification, with our token still in it.
    fn progress(&mut self, params: RawJson);
    /// Takes the `params` of a log message that can only be this call's.
    fn log(&mut self, params: RawJson);
    /// Takes a notification on the stream of a `subscriptions/listen` request.
    fn notice(&mut self, notification: Notification);
    /// Passes a request of the server to the call's client; false if that client cannot be asked.
    fn ask(&mut self, request: ServerRequest) -> bool;
    /// Tells the client that the server no longer wants an answer to that request.
    fn withdrawn(&mut self, id: &RawJson);
    /// Ends the call with its outcome.
    fn done(self, outcome: CallOutcome);
}

/// Settings of one connection.
#[derive(Clone, Debug)]
pub struct PeerOptions {
    /// The reader of the upstream's messages.
    pub ear: UpstreamReader,
    pub hint: EraHint,
    pub times: PeerTimes,
    pub bounds: ListBounds,
    /// Capabilities declared to a legacy server.
    pub declared: DeclaredCapabilities,
    /// True if the server's lists are read on this connection.
    pub lists: bool,
    /// The items of the server that ask questions, as seen on all of its connections.
    pub askers: Arc<AskerRegistry>,
}

/// Time limits of the handshake and of the lists.
#[derive(Clone, Copy, Debug)]
pub struct PeerTimes {
    /// For the answer to `server/discover` if the era is not known. At most half of `start` is
    /// used.
    pub probe: Duration,
    /// For the whole handshake, and for each page of a list.
    pub start: Duration,
}

/// An event of the connection for its owner.
#[derive(Debug)]
pub enum PeerEvent {
    /// The handshake succeeded; calls can be sent.
    Ready(HandshakeAgreement),
    /// The items that the server offers, as far as its lists could be read.
    Inventory(Inventory),
    /// The end of a reading of a list, and the trouble if it failed.
    List(ItemList, Option<ListTrouble>),
    Fault(ProtocolFault),
    /// A message that broke the protocol and was read all the same.
    Quirk(Quirk),
    /// A line that is no message.
    Unreadable(UnreadableBytes),
    /// New conditions for calls that want to pass.
    Gate(TurnGate),
    /// Items that were seen to ask, whose calls take turns from now on.
    Learned(ConductLesson),
    /// A notification that belongs to no call for certain. It is for the client that owns the
    /// connection, if there is one.
    Unclaimed(Notification),
    /// The URI of a resource that has changed, as a legacy server says.
    Updated(String),
    /// The handshake failed. The owner ends the connection, which is of no use.
    Failed {
        /// The reason, for the operator.
        why: String,
        /// How the next start should ask for the era.
        next: EraHint,
    },
}

/// A request of ours in flight.
#[derive(Debug)]
enum RequestInFlight<P> {
    Handshake,
    /// `server/discover` after its deadline. A late answer still tells the era.
    Discover,
    /// A page of a list, with its deadline; `None` after it. A late answer is still taken.
    List(Box<ListReading>, Option<Instant>),
    Listen,
    Call(P),
    /// A ping whose answer ends a doubt.
    Ping,
}

/// The phase of the connection.
#[derive(Debug)]
enum PeerState {
    /// The handshake is in progress.
    Opening {
        handshake: Handshake,
        /// Deadline of the answer to the current question.
        until: Instant,
        /// Deadline of the whole handshake.
        deadline: Instant,
    },
    Ready(HandshakeAgreement),
    Failed,
}

/// The protocol state of one connection. `P` is the caller's end of a call.
#[derive(Debug)]
pub struct Peer<P> {
    ear: UpstreamReader,
    taken: RemovedWords,
    times: PeerTimes,
    declared: DeclaredCapabilities,
    reads_lists: bool,
    lists: UpstreamLists,
    attribution: QuestionAttribution,
    hop: HopMeta,
    state: PeerState,
    pending: PendingRequests<RequestInFlight<P>>,
    /// The first line of the handshake that is no message. A line that looks like one replaces
    /// others.
    unread: Option<UnreadableBytes>,
    out: BytesMut,
    events: VecDeque<PeerEvent>,
    /// The server's result of the handshake.
    greeting: Option<RawJson>,
}

impl<P: CallPort> Peer<P> {
    /// Begins the handshake and writes its first question to [`Self::outgoing`].
    pub fn new(options: PeerOptions, now: Instant) -> Self {
        let PeerOptions { ear, hint, times, bounds, declared, lists: reads_lists, askers } = options;
        let deadline = now + times.start;
        let until = if hint == EraHint::Probe { now + times.probe.min(times.start / 2) } else { deadline };
        let handshake = Handshake::new(hint, HandshakeTransport::Lines);
        let question = handshake.question();
        let mut peer = Self {
            ear,
            taken: RemovedWords::default(),
            times,
            attribution: QuestionAttribution::new(declared.clone(), askers),
            hop: declared.hop(),
            declared,
            reads_lists,
            lists: UpstreamLists::new(bounds),
            state: PeerState::Opening { handshake, until, deadline },
            pending: PendingRequests::new(),
            unread: None,
            out: BytesMut::new(),
            events: VecDeque::new(),
            greeting: None,
        };
        peer.ask_question(question);
        peer
    }

    /// Returns the lines to write, newlines included. The owner takes them from the front.
    pub fn outgoing(&mut self) -> &mut BytesMut {
        &mut self.out
    }

    /// Takes the server's result of the handshake, which is there once the handshake has succeeded.
    pub fn take_greeting(&mut self) -> Option<RawJson> {
        self.greeting.take()
    }

    /// Takes the counts of reserved words that were removed from the server's messages since the
    /// last call.
    pub fn taken(&mut self) -> RemovedWords {
        std::mem::take(&mut self.taken)
    }

    /// Takes the next event, if there is one.
    pub fn poll_event(&mut self) -> Option<PeerEvent> {
        self.attribution.poll_gate().map(PeerEvent::Gate).or_else(|| self.events.pop_front())
    }

    /// Returns when [`Self::handle_timeout`] must be called. Deadlines of calls are not part of it:
    /// their callers keep them.
    pub fn poll_timeout(&self) -> Option<Instant> {
        match self.state {
            PeerState::Opening { until, .. } => Some(until),
            PeerState::Ready(_) => {
                let QuestionAttribution { doubt, .. } = &self.attribution;
                let due = [self.list_deadline(), self.lists.refresh_at(), doubt.ping_until(), self.attribution.until()];
                due.into_iter().flatten().min()
            }
            PeerState::Failed => None,
        }
    }

    /// Sends a call: writes it to [`Self::outgoing`]. Before the handshake has succeeded and after
    /// the connection has failed, the call fails at once and nothing is sent.
    pub fn handle_call(&mut self, call: &OutgoingCall, port: P) {
        let PeerState::Ready(agreed) = self.state else {
            return port.done(CallOutcome::Failed(CallFailure::down()));
        };
        self.attribution.carries(port.key(), port.party());
        let Some(id) = self.pending.insert(RequestInFlight::Call(port)) else {
            // Not reached by load: an upstream has fewer call slots than this table.
            return;
        };
        let raw_id = RawJson::trusted(id.to_string());
        put_line(&mut self.out, &call.message(agreed.revision, &raw_id, &self.hop));
    }

    /// Removes a call of which nothing was written and returns its port. The connection is over by
    /// then.
    pub fn take_call(&mut self, key: u64) -> Option<P> {
        let id = self.pending.find(|w| matches!(w, RequestInFlight::Call(port) if port.key() == key))?;
        match self.pending.take(id) {
            PendingLookup::Found(RequestInFlight::Call(port)) => Some(port),
            PendingLookup::Found(_) | PendingLookup::Late | PendingLookup::Unknown => None,
        }
    }

    /// Cancels a call whose caller has gone or run out of time. The upstream is told, and a late
    /// answer is dropped.
    pub fn handle_cancel(&mut self, key: u64, now: Instant) {
        let found = self.pending.find(|w| matches!(w, RequestInFlight::Call(port) if port.key() == key));
        if let Some(id) = found
            && let PendingLookup::Found(RequestInFlight::Call(port)) = self.pending.take(id)
        {
            self.leave(&port, CallEnd::GivenUp, now);
            self.cancelled(id, "cancelled by the client", now);
        }
    }

    /// Tells the server that a call is cancelled. If the server is a legacy one, a doubt begins:
    /// its messages may be about that call until it has read the cancellation.
    fn cancelled(&mut self, id: WireId, why: &str, now: Instant) {
        let params = RawJson::trusted(format!(r#"{{"requestId":{id},"reason":"{why}"}}"#));
        put_line(&mut self.out, &message::encode_notification("notifications/cancelled", Some(&params)));
        if matches!(self.state, PeerState::Ready(agreed) if agreed.revision.era() == Era::Legacy) {
            self.attribution.doubt.cancelled();
            self.attribution.doubt.delivered(self.pending.next_number());
            self.ping(now);
        }
    }

    /// Sends a ping whose answer ends the doubt, if one is due.
    fn ping(&mut self, now: Instant) {
        if self.attribution.doubt.pings(now + self.times.start) {
            self.ask(Method::Ping, None, RequestInFlight::Ping);
        }
    }

    /// Sends a client's answer to a request of the server, unless that request is no longer open.
    pub fn handle_reply(&mut self, id: &RawJson, answer: &ClientAnswer) {
        if self.attribution.open.take(id).is_some() {
            self.reply(id, answer);
        }
    }

    /// Notes that the client of a call has a question of the server before it, and that the call
    /// waits.
    pub fn handle_parked(&mut self, key: u64) {
        self.attribution.park(key);
    }

    /// Writes the answer to a request of the server.
    fn reply(&mut self, id: &RawJson, answer: &ClientAnswer) {
        put_line(&mut self.out, &message::encode_answer(id, answer));
    }

    /// Declines the open requests of a call that has ended.
    fn end_requests_of(&mut self, call: u64) {
        for request in self.attribution.open.of_call(call) {
            self.reply(&request.id, &unanswered_answer(&request.method));
        }
    }

    /// Returns the number of calls in flight and of requests of the server that wait.
    #[cfg(test)]
    pub fn left(&mut self) -> usize {
        self.ports().count() + self.attribution.open.left() + usize::from(self.attribution.until().is_some())
    }

    /// Takes one line of the upstream: a message or a batch.
    pub fn handle_line(&mut self, line: Bytes, now: Instant) {
        let Ok(frame) = Frame::from_upstream(line.clone()) else { return self.handle_no_json(&line, now) };
        drop(line);
        let revision = match self.state {
            PeerState::Ready(agreed) => Some(agreed.revision),
            PeerState::Opening { .. } | PeerState::Failed => None,
        };
        match batch::split(&frame, revision) {
            Some((frames, _)) if frames.is_empty() => self.handle_empty_batch(&frame),
            Some((frames, quirk)) => {
                quirk.into_iter().for_each(|quirk| self.tell(PeerEvent::Quirk(quirk)));
                frames.iter().for_each(|frame| self.handle_message(frame, now));
            }
            None => self.handle_message(&frame, now),
        }
    }

    /// Reads one message, and acts on it by its kind.
    fn handle_message(&mut self, frame: &Frame, now: Instant) {
        let UpstreamMessage { message, broken, quirk, taken } = match self.ear.hear(frame) {
            Ok(heard) => heard,
            Err(error) => return self.handle_malformed(frame, &error, now),
        };
        self.taken += taken;
        quirk.into_iter().for_each(|quirk| self.tell(PeerEvent::Quirk(quirk)));
        if broken.is_some() {
            self.fault(ProtocolFault::Complex);
        }
        if let Some(broken) = broken.filter(|_| !matches!(message, Message::Response(_))) {
            self.name(UnreadableBytes::new(frame.bytes(), broken.to_string()));
        }
        match message {
            Message::Response(response) => self.handle_response(response, frame, now),
            Message::Notification(notification) => self.handle_notification(notification, now),
            Message::Request(request) if self.ends_at_echo(&request) => {}
            Message::Request(request) => self.handle_request(&request, now),
        }
    }

    /// Fails every call in flight, because the process or its pipe has ended. Whether the calls
    /// were executed is not known.
    pub fn handle_closed(&mut self, why: &str) {
        self.handle_loss(why, &CallFailure::crashed());
    }

    /// Fails every call in flight with this failure, because the connection has ended.
    pub fn handle_loss(&mut self, why: &str, failure: &CallFailure) {
        for waiting in self.pending.drain() {
            if let RequestInFlight::Call(port) = waiting {
                port.done(CallOutcome::Failed(failure.clone()));
            }
        }
        if let PeerState::Opening { handshake, .. } = &mut self.state
            && let HandshakeAction::Failed { why, hint, .. } =
                handshake.heard(None, HandshakeReply::Lost(why.to_owned()))
        {
            self.fail(why, hint);
        }
        self.attribution.forget();
        self.state = PeerState::Failed;
    }

    /// Acts on every deadline that has passed.
    pub fn handle_timeout(&mut self, now: Instant) {
        match self.state {
            PeerState::Opening { ref handshake, until, .. } if now >= until => {
                // A late answer to this question must not be taken for the answer to the next one.
                let is_discover = matches!(handshake.question(), HandshakeQuestion::Discover(_));
                if let Some(id) = self.pending.find(|waiting| matches!(waiting, RequestInFlight::Handshake)) {
                    match self.pending.get_mut(id) {
                        Some(waiting) if is_discover => *waiting = RequestInFlight::Discover,
                        Some(_) | None => drop(self.pending.take(id)),
                    }
                }
                self.opening(HandshakeReply::Silence, now);
            }
            PeerState::Ready(_) => {
                if self.attribution.until().is_some_and(|until| now >= until) {
                    let step = self.attribution.lapse(|| calls_in_flight(&mut self.pending), now);
                    self.settle(step);
                }
                if self.attribution.doubt.ping_until().is_some_and(|until| now >= until) {
                    self.attribution.doubt.ping_ended();
                    if let Some(id) = self.pending.find(|waiting| matches!(waiting, RequestInFlight::Ping)) {
                        self.pending.take(id);
                    }
                }
                let is_late =
                    |w: &RequestInFlight<P>| matches!(w, RequestInFlight::List(_, Some(until)) if now >= *until);
                self.pending.find_all(is_late).into_iter().for_each(|id| self.list_is_late(id, now));
                self.read_lists(now);
            }
            PeerState::Opening { .. } | PeerState::Failed => {}
        }
    }

    /// Sends a question of the handshake.
    fn ask_question(&mut self, question: HandshakeQuestion) {
        let params = question.params(&self.hop, &self.declared);
        self.ask(question.method(), Some(&params), RequestInFlight::Handshake);
    }

    /// Continues the handshake with what came of its question.
    fn opening(&mut self, reply: HandshakeReply, now: Instant) {
        let PeerState::Opening { handshake, .. } = &mut self.state else { return };
        let next = handshake.heard(None, reply);
        self.go_on(next, now);
    }

    /// Does what the handshake says next.
    fn go_on(&mut self, next: HandshakeAction, now: Instant) {
        let PeerState::Opening { until, deadline, .. } = &mut self.state else { return };
        match next {
            HandshakeAction::Ask(question) => {
                *until = *deadline;
                self.ask_question(question);
            }
            HandshakeAction::Wait(time) => *until = time.map_or(*until, |time| (now + time).min(*deadline)),
            HandshakeAction::Agreed(agreed) => self.ready(agreed, now),
            HandshakeAction::Failed { why, hint, .. } => self.fail(why, hint),
        }
    }

    /// Sends a request of ours, and notes what its answer is for.
    fn ask(&mut self, method: Method, params: Option<&RawJson>, waiting: RequestInFlight<P>) {
        if let Some(id) = self.pending.insert(waiting) {
            let id = RawJson::trusted(id.to_string());
            put_line(&mut self.out, &message::encode_request(&id, method.as_str(), params));
        }
    }

    /// Acts on a response by the request of ours that it answers.
    fn handle_response(&mut self, response: Response, frame: &Frame, now: Instant) {
        let Some(id) = response.id.as_ref().and_then(WireId::from_raw) else {
            return self.handle_unknown(frame);
        };
        let found = self.pending.take(id);
        if !matches!(found, PendingLookup::Unknown) {
            self.attribution.doubt.answered(id.number());
        }
        match found {
            PendingLookup::Late => self.fault(ProtocolFault::LateReply),
            PendingLookup::Unknown => self.handle_unknown(frame),
            PendingLookup::Found(RequestInFlight::Call(port)) => self.finish_call(port, response, now),
            PendingLookup::Found(RequestInFlight::Handshake) => {
                self.opening(HandshakeReply::Answer(response.outcome), now)
            }
            PendingLookup::Found(RequestInFlight::Discover) => {
                let PeerState::Opening { handshake, .. } = &mut self.state else { return };
                let next = handshake.heard_late(&response.outcome);
                self.go_on(next, now);
            }
            PendingLookup::Found(RequestInFlight::List(reading, _)) => {
                let (page, fault) = self.lists.answered(*reading, response.outcome, now);
                fault.into_iter().for_each(|fault| self.fault(fault));
                page.into_iter().for_each(|page| self.ask_page(page, now));
                self.read_lists(now);
            }
            PendingLookup::Found(RequestInFlight::Listen) => {}
            PendingLookup::Found(RequestInFlight::Ping) => {
                self.attribution.doubt.ping_ended();
                self.ping(now);
            }
        }
    }

    /// Ends a call with the server's response, and reports what is wrong with the response.
    fn finish_call(&mut self, port: P, response: Response, now: Instant) {
        let era = match self.state {
            PeerState::Ready(agreed) => agreed.revision.era(),
            PeerState::Opening { .. } | PeerState::Failed => Era::Legacy,
        };
        response.unreadable().into_iter().for_each(|unreadable| self.name(unreadable));
        let outcome = CallOutcome::of(response, era);
        if let Some(fault) = outcome.fault() {
            self.fault(fault);
        }
        self.end_call(port, outcome, CallEnd::Answered, now);
    }

    /// Ends a call, and declines the requests that its server made in the middle of it.
    fn end_call(&mut self, port: P, outcome: CallOutcome, end: CallEnd, now: Instant) {
        self.leave(&port, end, now);
        port.done(outcome);
    }

    /// Takes a call off the connection and declines the requests that its server made in the middle
    /// of it. May settle a question that was held because of the call.
    fn leave(&mut self, port: &P, end: CallEnd, now: Instant) {
        let ended = (port.key(), port.party());
        let step = self.attribution.ended(ended, end, || calls_in_flight(&mut self.pending), now);
        self.end_requests_of(port.key());
        self.settle(step);
    }

    /// Ends the handshake with success, and begins to read the lists if they are read here.
    fn ready(&mut self, agreed: HandshakeAgreement, now: Instant) {
        // The answer to the other question of the handshake no longer decides anything.
        let is_over =
            |waiting: &RequestInFlight<P>| matches!(waiting, RequestInFlight::Handshake | RequestInFlight::Discover);
        self.pending.find_all(is_over).into_iter().for_each(|id| drop(self.pending.take(id)));
        if agreed.revision.era() == Era::Legacy {
            put_line(&mut self.out, &message::encode_notification("notifications/initialized", None));
        }
        let (instructions, greeting) = match &self.state {
            PeerState::Opening { handshake, .. } => (handshake.instructions(agreed), handshake.result(agreed).cloned()),
            PeerState::Ready(_) | PeerState::Failed => (None, None),
        };
        self.greeting = greeting;
        self.state = PeerState::Ready(agreed);
        self.events.push_back(PeerEvent::Ready(agreed));
        if !self.reads_lists {
            return;
        }
        if agreed.revision.era() == Era::Modern && agreed.offers.changes {
            let params = listen_params(&self.hop, agreed.revision);
            self.ask(Method::Listen, Some(&params), RequestInFlight::Listen);
        }
        self.lists.begin(agreed.offers);
        self.lists.set_instructions(instructions);
        self.read_lists(now);
    }

    /// Passes a notification to its recipient, or reports it.
    fn handle_notification(&mut self, notification: Notification, now: Instant) {
        let kind = NoticeKind::of(&notification.method);
        let of_stream = matches!(kind, NoticeKind::Updated | NoticeKind::Changed(_) | NoticeKind::Other);
        let subscribed = notification.params.as_ref().filter(|_| of_stream).and_then(subscription);
        let stream = match subscribed {
            Some(id) if matches!(self.pending.get_mut(id), Some(RequestInFlight::Call(_))) => {
                MessageStream::Listening(id)
            }
            Some(_) | None => MessageStream::Shared,
        };
        match find_recipient(notification, stream) {
            NoticeRecipient::Progress(id, params) => match self.pending.get_mut(id) {
                Some(RequestInFlight::Call(port)) => port.progress(params),
                Some(_) | None => self.fault(ProtocolFault::BadProgress),
            },
            NoticeRecipient::Notice(id, notification) => {
                if let Some(RequestInFlight::Call(port)) = self.pending.get_mut(id) {
                    port.notice(notification);
                }
            }
            NoticeRecipient::Log(_, notification) => self.handle_log(notification),
            NoticeRecipient::Withdrawn(id) => self.handle_withdrawn(&id),
            NoticeRecipient::Owner(notification) => self.tell(PeerEvent::Unclaimed(notification)),
            NoticeRecipient::Updated(uri) => self.tell(PeerEvent::Updated(uri)),
            NoticeRecipient::Changed(lists) => {
                self.lists.changed(lists);
                self.read_lists(now);
            }
            NoticeRecipient::Wrong(fault) => self.fault(fault),
            NoticeRecipient::Nobody => {}
        }
    }

    /// Passes a log message to the only call in flight, or reports it as unclaimed.
    fn handle_log(&mut self, notification: Notification) {
        // A pipe does not tell which call a message belongs to; with one call in flight there is no
        // doubt.
        let several = self.ports().nth(1).is_some() || self.attribution.doubt.is_open();
        let Some(only) = self.ports().next().filter(|_| !several) else {
            return self.tell(PeerEvent::Unclaimed(notification));
        };
        if let Some(params) = notification.params {
            only.log(params);
        }
    }

    /// Takes back a request that the server has withdrawn, and tells the client that was asked.
    fn handle_withdrawn(&mut self, id: &RawJson) {
        if self.attribution.withdrawn(id) {
            return;
        }
        let Some(call) = self.attribution.open.take(id) else { return };
        if let Some(port) = self.ports().find(|port| port.key() == call) {
            port.withdrawn(id);
        }
    }

    /// Returns the ports of the calls in flight.
    fn ports(&mut self) -> impl Iterator<Item = &mut P> {
        self.pending.iter_mut().filter_map(|waiting| match waiting {
            RequestInFlight::Call(port) => Some(port),
            RequestInFlight::Handshake
            | RequestInFlight::Discover
            | RequestInFlight::List(..)
            | RequestInFlight::Listen
            | RequestInFlight::Ping => None,
        })
    }

    /// Settles or holds a request of a legacy server.
    fn handle_request(&mut self, request: &Request, now: Instant) {
        let calls = calls_in_flight(&mut self.pending);
        let step = self.attribution.heard(request, &calls, now);
        self.settle(step);
    }

    /// Passes settled questions to their clients, and answers those that are for no client.
    fn settle(&mut self, step: AttributionResult) {
        step.learned.into_iter().for_each(|lesson| self.tell(PeerEvent::Learned(lesson)));
        for SettledQuestion { request, asked } in step.settled {
            let (answer, fault) = match asked {
                RequestDecision::Answered(answer, fault) => (answer, fault),
                RequestDecision::Client(asked, call) => {
                    if self.ports().find(|port| port.key() == call).is_some_and(|port| port.ask(asked)) {
                        continue;
                    }
                    self.attribution.open.take(request.id.raw());
                    (unable_answer(&request.method), Some(ProtocolFault::RefusedRequest))
                }
            };
            fault.into_iter().for_each(|fault| self.fault(fault));
            self.reply(request.id.raw(), &answer);
        }
    }

    fn fault(&mut self, fault: ProtocolFault) {
        self.tell(PeerEvent::Fault(fault));
    }

    /// Reports an event that may be missed: a flood of such events between two drains is cut.
    fn tell(&mut self, event: PeerEvent) {
        if self.events.len() < MAX_EVENTS {
            self.events.push_back(event);
        }
    }
}

/// Returns the calls that a question may belong to.
fn calls_in_flight<P: CallPort>(pending: &mut PendingRequests<RequestInFlight<P>>) -> Vec<CallInFlight> {
    let call = |waiting: &mut RequestInFlight<P>| match waiting {
        RequestInFlight::Call(port) => Some(CallInFlight { call: port.key(), party: port.party().clone() }),
        RequestInFlight::Handshake
        | RequestInFlight::Discover
        | RequestInFlight::List(..)
        | RequestInFlight::Listen
        | RequestInFlight::Ping => None,
    };
    pending.iter_mut().filter_map(call).collect()
}

/// Returns the id of our request on whose stream a notification of a modern server came.
fn subscription(params: &RawJson) -> Option<WireId> {
    let meta = RawObject::parse(params).ok()?.remove("_meta")?;
    WireId::from_raw(RawObject::parse(&meta).ok()?.get(SUBSCRIPTION_ID)?)
}

fn put_line(out: &mut BytesMut, line: &[u8]) {
    out.reserve(line.len() + 1);
    out.put_slice(line);
    out.put_u8(b'\n');
}
