//! One stdio connection to an upstream: handshake, lists, calls. Performs no IO and reads no clock.
//!
//! Contract: call one `handle_*`, write out everything in [`Peer::outgoing`], drain [`Peer::poll_event`] until `None`, then
//! arm a timer for [`Peer::poll_timeout`]. `now` must not go backwards. Answers and progress of calls go straight to their
//! [`CallPort`].
//!
//! Long, and one file on purpose: one state machine, whose inputs all work on the same few tables.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::{BufMut, Bytes, BytesMut};

use crate::catalog::inventory::{Inventory, ListBounds, Reading};
use crate::engine::ask::{ClientAnswer, Declared, ServerRequest, declined, unable};
use crate::engine::askers::{Askers, Lesson, Party};
use crate::engine::attribution::{Attribution, End, InFlight, Settled, Step};
use crate::engine::batch;
use crate::engine::call::{Outcome, Outgoing};
use crate::engine::failure::{Executed, Failure, Reason};
use crate::engine::fault::Fault;
use crate::engine::handshake::{Agreed, Carrier, EraHint, Handshake, Next, Question, Reply, listen_params};
use crate::engine::lists::{Lists, Page, Trouble};
use crate::engine::pending::{Lookup, Pending};
use crate::engine::turns::Gate;
use crate::engine::unasked::{Asked, Stream, Told, told};
use crate::mcp::meta::{HopMeta, SUBSCRIPTION_ID};
use crate::mcp::method::{List, Method};
use crate::mcp::notice::NoticeKind;
use crate::mcp::version::Era;
use crate::mcp::voice::{Ear, Heard, Taken};
use crate::wire::frame::Frame;
use crate::wire::id::WireId;
use crate::wire::message::{self, Message, Notification, Request, Response};
use crate::wire::quirk::Quirk;
use crate::wire::raw::{RawJson, RawObject};
use crate::wire::unreadable::Unreadable;

mod skipped;
mod unread;

/// News between two drains; a flood of them is cut.
const MAX_EVENTS: usize = 64;

/// Where the answer and the progress of one call go.
pub trait CallPort {
    /// The caller's own key for this call, by which it cancels.
    fn key(&self) -> u64;
    /// Whose call it is, and of what.
    fn party(&self) -> &Party;
    /// `params` of a progress notification, with our token still in it.
    fn progress(&mut self, params: RawJson);
    /// `params` of a log message that can only be this call's.
    fn log(&mut self, params: RawJson);
    /// A notification of a stream that was asked for as a whole.
    fn notice(&mut self, notification: Notification);
    /// A request of the server that belongs to this call for certain; `false` when its client cannot be asked.
    fn ask(&mut self, request: ServerRequest) -> bool;
    /// The server does not want an answer to that request any more.
    fn withdrawn(&mut self, id: &RawJson);
    fn done(self, outcome: Outcome);
}

/// How a connection is opened and what it is for.
#[derive(Clone, Debug)]
pub struct PeerOptions {
    /// Reads the upstream's messages.
    pub ear: Ear,
    pub hint: EraHint,
    pub times: PeerTimes,
    pub bounds: ListBounds,
    /// Capabilities declared to a legacy server.
    pub declared: Declared,
    /// Whether the server's lists are read here.
    pub lists: bool,
    /// The conduct of the server's items, on all of its connections.
    pub askers: Arc<Askers>,
}

/// How long the parts of a handshake may take.
#[derive(Clone, Copy, Debug)]
pub struct PeerTimes {
    /// For the answer to `server/discover` where the era is not known; half of `start` at most.
    pub probe: Duration,
    /// For the whole handshake, and for each page of a list.
    pub start: Duration,
}

/// Events of the connection for its owner.
#[derive(Debug)]
pub enum PeerEvent {
    /// The handshake succeeded; calls can be sent.
    Ready(Agreed),
    /// All that the server offers, as far as its lists could be read.
    Inventory(Inventory),
    /// How the last reading of a list ended.
    List(List, Option<Trouble>),
    Fault(Fault),
    /// A message broke the protocol and was read all the same.
    Quirk(Quirk),
    /// A line is no message.
    Unreadable(Unreadable),
    /// New calls should wait, or wait no more.
    Gate(Gate),
    /// Calls of these items take turns from now on.
    Learned(Lesson),
    /// A notification for the client whose connection this is, if it is one client's: it belongs to no call for certain.
    Unclaimed(Notification),
    /// A legacy server says that this resource has changed.
    Updated(String),
    /// The connection is of no use; end it. `silent` probes teach that the next start should not probe.
    Failed {
        why: String,
        next: EraHint,
    },
}

#[derive(Debug)]
enum Waiting<P> {
    Handshake,
    /// The answer to `server/discover`, whose time is over; it still tells the era.
    Discover,
    /// `None` stands for a time that is over; the answer is still taken.
    List(Box<Reading>, Option<Instant>),
    Listen,
    Call(P),
    /// Its answer ends a doubt.
    Ping,
}

#[derive(Debug)]
enum State {
    /// The answer to its question may come until then.
    Opening {
        handshake: Handshake,
        until: Instant,
        /// The end of the whole handshake.
        deadline: Instant,
    },
    Ready(Agreed),
    Failed,
}

/// Protocol state for one stdio upstream.
#[derive(Debug)]
pub struct Peer<P> {
    ear: Ear,
    taken: Taken,
    times: PeerTimes,
    declared: Declared,
    reads_lists: bool,
    lists: Lists,
    attribution: Attribution,
    hop: HopMeta,
    state: State,
    pending: Pending<Waiting<P>>,
    /// The first line of the handshake that is no message.
    unread: Option<Unreadable>,
    out: BytesMut,
    events: VecDeque<PeerEvent>,
}

impl<P: CallPort> Peer<P> {
    /// Opens the connection; the first question is in [`Self::outgoing`] at once.
    pub fn new(options: PeerOptions, now: Instant) -> Self {
        let PeerOptions { ear, hint, times, bounds, declared, lists: reads_lists, askers } = options;
        let deadline = now + times.start;
        let until = if hint == EraHint::Probe { now + times.probe.min(times.start / 2) } else { deadline };
        let handshake = Handshake::new(hint, Carrier::Lines);
        let question = handshake.question();
        let mut peer = Self {
            ear,
            taken: Taken::default(),
            times,
            attribution: Attribution::new(declared.clone(), askers),
            declared,
            reads_lists,
            lists: Lists::new(bounds),
            hop: HopMeta::bare(),
            state: State::Opening { handshake, until, deadline },
            pending: Pending::new(),
            unread: None,
            out: BytesMut::new(),
            events: VecDeque::new(),
        };
        peer.ask_question(question);
        peer
    }

    /// Lines to write, newline included; the owner takes from the front.
    pub fn outgoing(&mut self) -> &mut BytesMut {
        &mut self.out
    }

    /// The gateway words that it used since the last look.
    pub fn taken(&mut self) -> Taken {
        std::mem::take(&mut self.taken)
    }

    pub fn poll_event(&mut self) -> Option<PeerEvent> {
        self.attribution.poll_gate().map(PeerEvent::Gate).or_else(|| self.events.pop_front())
    }

    /// When [`Self::handle_timeout`] wants to be called. Calls have deadlines of their own, where they are waited for.
    pub fn poll_timeout(&self) -> Option<Instant> {
        match self.state {
            State::Opening { until, .. } => Some(until),
            State::Ready(_) => {
                let Attribution { doubt, .. } = &self.attribution;
                let due = [self.list_deadline(), self.lists.refresh_at(), doubt.ping_until(), self.attribution.until()];
                due.into_iter().flatten().min()
            }
            State::Failed => None,
        }
    }

    fn list_deadline(&self) -> Option<Instant> {
        if !self.lists.are_read() {
            return None;
        }
        let mut earliest = None;
        self.pending.find(|waiting| {
            if let Waiting::List(_, Some(until)) = waiting {
                earliest = Some(earliest.map_or(*until, |e: Instant| e.min(*until)));
            }
            false
        });
        earliest
    }

    /// Sends a call. A peer that is not ready answers it at once: nothing was sent.
    pub fn handle_call(&mut self, call: &Outgoing, port: P) {
        let State::Ready(agreed) = self.state else {
            return port.done(Outcome::Failed(Failure::down()));
        };
        self.attribution.carries(port.key(), port.party());
        let Some(id) = self.pending.insert(Waiting::Call(port)) else {
            // The slots of an upstream are fewer than the table's; this cannot be reached by load.
            return;
        };
        let raw_id = RawJson::trusted(id.to_string());
        put_line(&mut self.out, &call.message(agreed.revision, &raw_id, &self.hop));
    }

    /// Takes a call back of which nothing was written; the connection is over.
    pub fn take_call(&mut self, key: u64) -> Option<P> {
        let id = self.pending.find(|w| matches!(w, Waiting::Call(port) if port.key() == key))?;
        match self.pending.take(id) {
            Lookup::Found(Waiting::Call(port)) => Some(port),
            Lookup::Found(_) | Lookup::Late | Lookup::Unknown => None,
        }
    }

    /// The caller has gone or run out of time; the upstream is told and a late answer is dropped.
    pub fn handle_cancel(&mut self, key: u64, now: Instant) {
        let found = self.pending.find(|w| matches!(w, Waiting::Call(port) if port.key() == key));
        if let Some(id) = found
            && let Lookup::Found(Waiting::Call(port)) = self.pending.take(id)
        {
            self.leave(&port, End::GivenUp, now);
            self.cancelled(id, "cancelled by the client", now);
        }
    }

    /// Tells the server that a call is not waited for any more. What a legacy one says may be about that call until it has read so.
    fn cancelled(&mut self, id: WireId, why: &str, now: Instant) {
        let params = RawJson::trusted(format!(r#"{{"requestId":{id},"reason":"{why}"}}"#));
        put_line(&mut self.out, &message::encode_notification("notifications/cancelled", Some(&params)));
        if matches!(self.state, State::Ready(agreed) if agreed.revision.era() == Era::Legacy) {
            self.attribution.doubt.cancelled();
            self.attribution.doubt.delivered(self.pending.next_number());
            self.ping(now);
        }
    }

    /// Asks for an answer that ends the doubt, where there is one.
    fn ping(&mut self, now: Instant) {
        if self.attribution.doubt.pings(now + self.times.start) {
            self.ask(Method::Ping, None, Waiting::Ping);
        }
    }

    /// The answer to a request of the server. One that was withdrawn or answered already is ignored.
    pub fn handle_reply(&mut self, id: &RawJson, answer: &ClientAnswer) {
        if self.attribution.open.take(id).is_some() {
            self.reply(id, answer);
        }
    }

    /// The client of a call has the server's question before it, and the call waits.
    pub fn handle_parked(&mut self, key: u64) {
        self.attribution.park(key);
    }

    fn reply(&mut self, id: &RawJson, answer: &ClientAnswer) {
        put_line(&mut self.out, &message::encode_answer(id, answer));
    }

    /// The call has ended, so its questions end too.
    fn end_requests_of(&mut self, call: u64) {
        for request in self.attribution.open.of_call(call) {
            self.reply(&request.id, &declined(&request.method));
        }
    }

    /// Calls in flight and requests of the server that are open.
    #[cfg(test)]
    pub fn left(&mut self) -> usize {
        self.ports().count() + self.attribution.open.left() + usize::from(self.attribution.until().is_some())
    }

    /// One line of the upstream.
    pub fn handle_line(&mut self, line: Bytes, now: Instant) {
        let Ok(frame) = Frame::from_upstream(line.clone()) else { return self.handle_no_json(&line, now) };
        drop(line);
        let revision = match self.state {
            State::Ready(agreed) => Some(agreed.revision),
            State::Opening { .. } | State::Failed => None,
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

    fn handle_message(&mut self, frame: &Frame, now: Instant) {
        let Heard { message, broken, quirk, taken } = match self.ear.hear(frame) {
            Ok(heard) => heard,
            Err(error) => return self.handle_malformed(frame, &error, now),
        };
        self.taken += taken;
        quirk.into_iter().for_each(|quirk| self.tell(PeerEvent::Quirk(quirk)));
        if broken.is_some() {
            self.fault(Fault::Complex);
        }
        if let Some(broken) = broken.filter(|_| !matches!(message, Message::Response(_))) {
            self.name(Unreadable::new(frame.bytes(), broken.to_string()));
        }
        match message {
            Message::Response(response) => self.handle_response(response, frame, now),
            Message::Notification(notification) => self.handle_notification(notification, now),
            Message::Request(request) if self.ends_at_echo(&request) => {}
            Message::Request(request) => self.handle_request(&request, now),
        }
    }

    /// The process or its pipe has ended. Every call in flight ends; whether it was executed is not known.
    pub fn handle_closed(&mut self, why: &str) {
        for waiting in self.pending.drain() {
            if let Waiting::Call(port) = waiting {
                port.done(Outcome::Failed(Failure::new(
                    Reason::UpstreamCrashed,
                    Executed::Unknown,
                    "The server ended while the call was in progress.",
                )));
            }
        }
        if let State::Opening { handshake, .. } = &mut self.state
            && let Next::Failed { why, hint, .. } = handshake.heard(None, Reply::Lost(why.to_owned()))
        {
            self.fail(why, hint);
        }
        self.attribution.forget();
        self.state = State::Failed;
    }

    pub fn handle_timeout(&mut self, now: Instant) {
        match self.state {
            State::Opening { ref handshake, until, .. } if now >= until => {
                // A late answer to this question is none to the next.
                let is_discover = matches!(handshake.question(), Question::Discover(_));
                if let Some(id) = self.pending.find(|waiting| matches!(waiting, Waiting::Handshake)) {
                    match self.pending.get_mut(id) {
                        Some(waiting) if is_discover => *waiting = Waiting::Discover,
                        Some(_) | None => drop(self.pending.take(id)),
                    }
                }
                self.opening(Reply::Silence, now);
            }
            State::Ready(_) => {
                if self.attribution.until().is_some_and(|until| now >= until) {
                    let step = self.attribution.lapse(|| in_flight(&mut self.pending), now);
                    self.settle(step);
                }
                if self.attribution.doubt.ping_until().is_some_and(|until| now >= until) {
                    self.attribution.doubt.ping_ended();
                    if let Some(id) = self.pending.find(|waiting| matches!(waiting, Waiting::Ping)) {
                        self.pending.take(id);
                    }
                }
                let is_late = |w: &Waiting<P>| matches!(w, Waiting::List(_, Some(until)) if now >= *until);
                self.pending.find_all(is_late).into_iter().for_each(|id| self.list_is_late(id, now));
                self.read_lists(now);
            }
            State::Opening { .. } | State::Failed => {}
        }
    }

    /// A list was not answered in time. Its answer is still taken, and that of no other request for this list which is late.
    fn list_is_late(&mut self, id: WireId, now: Instant) {
        let Some(Waiting::List(reading, until)) = self.pending.get_mut(id) else { return };
        *until = None;
        let list = reading.list;
        let late = |w: &Waiting<P>| matches!(w, Waiting::List(reading, None) if reading.list == list);
        for older in self.pending.find_all(late).into_iter().filter(|older| *older != id) {
            self.pending.take(older);
        }
        self.fault(Fault::BadList);
        self.lists.failed(list, "not answered within `start-timeout`", now);
    }

    /// The operator wants to know: lists that could not be read are read at once.
    pub fn retry_lists(&mut self, now: Instant) {
        if matches!(self.state, State::Ready(_)) {
            self.lists.retry();
            self.read_lists(now);
        }
    }

    /// What was read has been judged, which took so long.
    pub fn handle_judged(&mut self, took: Duration, now: Instant) {
        self.lists.judged(took, now);
        if matches!(self.state, State::Ready(_)) {
            self.read_lists(now);
        }
    }

    fn ask_question(&mut self, question: Question) {
        let params = question.params(&self.hop, &self.declared);
        self.ask(question.method(), Some(&params), Waiting::Handshake);
    }

    /// Goes on with the handshake.
    fn opening(&mut self, reply: Reply, now: Instant) {
        let State::Opening { handshake, .. } = &mut self.state else { return };
        let next = handshake.heard(None, reply);
        self.go_on(next, now);
    }

    fn go_on(&mut self, next: Next, now: Instant) {
        let State::Opening { until, deadline, .. } = &mut self.state else { return };
        match next {
            Next::Ask(question) => {
                *until = *deadline;
                self.ask_question(question);
            }
            Next::Wait(time) => *until = time.map_or(*until, |time| (now + time).min(*deadline)),
            Next::Agreed(agreed) => self.ready(agreed, now),
            Next::Failed { why, hint, .. } => self.fail(why, hint),
        }
    }

    fn ask(&mut self, method: Method, params: Option<&RawJson>, waiting: Waiting<P>) {
        if let Some(id) = self.pending.insert(waiting) {
            let id = RawJson::trusted(id.to_string());
            put_line(&mut self.out, &message::encode_request(&id, method.as_str(), params));
        }
    }

    fn handle_response(&mut self, response: Response, frame: &Frame, now: Instant) {
        let Some(id) = response.id.as_ref().and_then(WireId::from_raw) else {
            return self.handle_unknown(frame);
        };
        let found = self.pending.take(id);
        if !matches!(found, Lookup::Unknown) {
            self.attribution.doubt.answered(id.number());
        }
        match found {
            Lookup::Late => self.fault(Fault::LateReply),
            Lookup::Unknown => self.handle_unknown(frame),
            Lookup::Found(Waiting::Call(port)) => self.finish_call(port, response, now),
            Lookup::Found(Waiting::Handshake) => self.opening(Reply::Answer(response.outcome), now),
            Lookup::Found(Waiting::Discover) => {
                let State::Opening { handshake, .. } = &mut self.state else { return };
                let next = handshake.heard_late(&response.outcome);
                self.go_on(next, now);
            }
            Lookup::Found(Waiting::List(reading, _)) => {
                let (page, fault) = self.lists.answered(*reading, response.outcome, now);
                fault.into_iter().for_each(|fault| self.fault(fault));
                page.into_iter().for_each(|page| self.ask_page(page, now));
                self.read_lists(now);
            }
            Lookup::Found(Waiting::Listen) => {}
            Lookup::Found(Waiting::Ping) => {
                self.attribution.doubt.ping_ended();
                self.ping(now);
            }
        }
    }

    fn finish_call(&mut self, port: P, response: Response, now: Instant) {
        let era = match self.state {
            State::Ready(agreed) => agreed.revision.era(),
            State::Opening { .. } | State::Failed => Era::Legacy,
        };
        response.unreadable().into_iter().for_each(|unreadable| self.name(unreadable));
        let outcome = Outcome::of(response, era);
        if let Some(fault) = outcome.fault() {
            self.fault(fault);
        }
        self.end_call(port, outcome, End::Answered, now);
    }

    /// Ends a call, and what its server asked in the middle of it.
    fn end_call(&mut self, port: P, outcome: Outcome, end: End, now: Instant) {
        self.leave(&port, end, now);
        port.done(outcome);
    }

    /// A call has left, and with it what its server asked in the middle of it. What waited for that may go on.
    fn leave(&mut self, port: &P, end: End, now: Instant) {
        let ended = (port.key(), port.party());
        let step = self.attribution.ended(ended, end, || in_flight(&mut self.pending), now);
        self.end_requests_of(port.key());
        self.settle(step);
    }

    fn ready(&mut self, agreed: Agreed, now: Instant) {
        // The answer to the other question of the handshake decides nothing any more.
        let is_over = |waiting: &Waiting<P>| matches!(waiting, Waiting::Handshake | Waiting::Discover);
        self.pending.find_all(is_over).into_iter().for_each(|id| drop(self.pending.take(id)));
        if agreed.revision.era() == Era::Legacy {
            put_line(&mut self.out, &message::encode_notification("notifications/initialized", None));
        }
        self.state = State::Ready(agreed);
        self.events.push_back(PeerEvent::Ready(agreed));
        if !self.reads_lists {
            return;
        }
        if agreed.revision.era() == Era::Modern && agreed.offers.changes {
            let params = listen_params(&self.hop, agreed.revision);
            self.ask(Method::Listen, Some(&params), Waiting::Listen);
        }
        self.lists.begin(agreed.offers);
        self.read_lists(now);
    }

    /// Tells what was read and asks for the lists that are due.
    fn read_lists(&mut self, now: Instant) {
        for quirk in self.lists.take_quirks() {
            self.tell(PeerEvent::Quirk(quirk));
        }
        while let Some((list, trouble)) = self.lists.told() {
            self.events.push_back(PeerEvent::List(list, trouble));
        }
        self.events.extend(self.lists.news(now).map(PeerEvent::Inventory));
        while let Some(page) = self.lists.next(now) {
            self.ask_page(page, now);
        }
    }

    fn ask_page(&mut self, page: Page, now: Instant) {
        let State::Ready(agreed) = self.state else { return };
        let (params, method) = (page.params(&self.hop, agreed.revision), page.reading.list.method());
        self.ask(method, params.as_ref(), Waiting::List(Box::new(page.reading), Some(now + self.times.start)));
    }

    fn handle_notification(&mut self, notification: Notification, now: Instant) {
        let kind = NoticeKind::of(&notification.method);
        let of_stream = matches!(kind, NoticeKind::Updated | NoticeKind::Changed(_) | NoticeKind::Other);
        let subscribed = notification.params.as_ref().filter(|_| of_stream).and_then(subscription);
        let stream = match subscribed {
            Some(id) if matches!(self.pending.get_mut(id), Some(Waiting::Call(_))) => Stream::Listening(id),
            Some(_) | None => Stream::Shared,
        };
        match told(notification, stream) {
            Told::Progress(id, params) => match self.pending.get_mut(id) {
                Some(Waiting::Call(port)) => port.progress(params),
                Some(_) | None => self.fault(Fault::BadProgress),
            },
            Told::Notice(id, notification) => {
                if let Some(Waiting::Call(port)) = self.pending.get_mut(id) {
                    port.notice(notification);
                }
            }
            Told::Log(_, notification) => self.handle_log(notification),
            Told::Withdrawn(id) => self.handle_withdrawn(&id),
            Told::Owner(notification) => self.tell(PeerEvent::Unclaimed(notification)),
            Told::Updated(uri) => self.tell(PeerEvent::Updated(uri)),
            Told::Changed(lists) => {
                self.lists.changed(lists);
                self.read_lists(now);
            }
            Told::Wrong(fault) => self.fault(fault),
            Told::Nobody => {}
        }
    }

    fn handle_log(&mut self, notification: Notification) {
        // On a pipe nothing says which call a message belongs to; with one call in flight there is no doubt.
        let several = self.ports().nth(1).is_some() || self.attribution.doubt.is_open();
        let Some(only) = self.ports().next().filter(|_| !several) else {
            return self.tell(PeerEvent::Unclaimed(notification));
        };
        if let Some(params) = notification.params {
            only.log(params);
        }
    }

    /// The server has withdrawn one of its requests.
    fn handle_withdrawn(&mut self, id: &RawJson) {
        if self.attribution.withdrawn(id) {
            return;
        }
        let Some(call) = self.attribution.open.take(id) else { return };
        if let Some(port) = self.ports().find(|port| port.key() == call) {
            port.withdrawn(id);
        }
    }

    /// The calls in flight.
    fn ports(&mut self) -> impl Iterator<Item = &mut P> {
        self.pending.iter_mut().filter_map(|waiting| match waiting {
            Waiting::Call(port) => Some(port),
            Waiting::Handshake | Waiting::Discover | Waiting::List(..) | Waiting::Listen | Waiting::Ping => None,
        })
    }

    /// A request of a legacy server.
    fn handle_request(&mut self, request: &Request, now: Instant) {
        let calls = in_flight(&mut self.pending);
        let step = self.attribution.heard(request, &calls, now);
        self.settle(step);
    }

    /// Asks clients, and answers what is not for one.
    fn settle(&mut self, step: Step) {
        step.learned.into_iter().for_each(|lesson| self.tell(PeerEvent::Learned(lesson)));
        for Settled { request, asked } in step.settled {
            let (answer, fault) = match asked {
                Asked::Answered(answer, fault) => (answer, fault),
                Asked::Client(asked, call) => {
                    if self.ports().find(|port| port.key() == call).is_some_and(|port| port.ask(asked)) {
                        continue;
                    }
                    self.attribution.open.take(request.id.raw());
                    (unable(&request.method), Some(Fault::RefusedRequest))
                }
            };
            fault.into_iter().for_each(|fault| self.fault(fault));
            self.reply(request.id.raw(), &answer);
        }
    }

    fn fault(&mut self, fault: Fault) {
        self.tell(PeerEvent::Fault(fault));
    }

    /// Tells what may be missed: a flood of it between two drains is cut.
    fn tell(&mut self, event: PeerEvent) {
        if self.events.len() < MAX_EVENTS {
            self.events.push_back(event);
        }
    }
}

/// The calls that a question may belong to.
fn in_flight<P: CallPort>(pending: &mut Pending<Waiting<P>>) -> Vec<InFlight> {
    let call = |waiting: &mut Waiting<P>| match waiting {
        Waiting::Call(port) => Some(InFlight { call: port.key(), party: port.party().clone() }),
        Waiting::Handshake | Waiting::Discover | Waiting::List(..) | Waiting::Listen | Waiting::Ping => None,
    };
    pending.iter_mut().filter_map(call).collect()
}

/// The request of ours whose stream a notification of a modern server belongs to.
fn subscription(params: &RawJson) -> Option<WireId> {
    let meta = RawObject::parse(params).ok()?.remove("_meta")?;
    WireId::from_raw(RawObject::parse(&meta).ok()?.get(SUBSCRIPTION_ID)?)
}

fn put_line(out: &mut BytesMut, line: &[u8]) {
    out.reserve(line.len() + 1);
    out.put_slice(line);
    out.put_u8(b'\n');
}
