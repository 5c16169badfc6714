//! One upstream of the gateway: its server, the bytes between the two, and the connection or session, whose protocol is the
//! engine's.

use std::cell::RefCell;
use std::collections::VecDeque;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Instant;

use bytes::Bytes;

use super::chance::{Chance, Pipe};
use super::http::Http;
use super::server::{Manner, Server};
use super::truth::Truth;
use crate::engine::ask::{ClientAnswer, ServerRequest};
use crate::engine::askers::{Askers, Party};
use crate::engine::call::{Outcome, Outgoing};
use crate::engine::event::ExchangeEvent;
use crate::engine::failure::Failure;
use crate::engine::handshake::EraHint;
use crate::engine::peer::{CallPort, Peer, PeerEvent};
use crate::engine::sim::options;
use crate::engine::turns::{Gate, Passer, Ticket, Turns};
use crate::mcp::version::{Era, Revision};
use crate::policy::Permit;
use crate::wire::lines::{Line, LineDecoder};
use crate::wire::message::Notification;
use crate::wire::raw::RawJson;

/// Longest line of a server that is read.
pub(super) const MAX_LINE: usize = 4096;

/// What all upstreams say, by the key of the call, until the gateway has dealt with it.
pub(super) type Events = Rc<RefCell<VecDeque<(u64, ExchangeEvent)>>>;

/// Where one call's events go.
#[derive(Debug)]
pub(super) struct Port {
    pub(super) key: u64,
    pub(super) party: Party,
    pub(super) askable: bool,
    pub(super) events: Events,
}

impl Port {
    pub(super) fn say(&self, event: ExchangeEvent) {
        self.events.borrow_mut().push_back((self.key, event));
    }
}

impl CallPort for Port {
    fn key(&self) -> u64 {
        self.key
    }
    fn party(&self) -> &Party {
        &self.party
    }
    fn progress(&mut self, params: RawJson) {
        self.say(ExchangeEvent::Progress(params));
    }
    fn log(&mut self, _: RawJson) {}
    fn notice(&mut self, _: Notification) {}
    fn ask(&mut self, request: ServerRequest) -> bool {
        if self.askable {
            self.say(ExchangeEvent::Ask(request));
        }
        self.askable
    }
    fn withdrawn(&mut self, id: &RawJson) {
        self.say(ExchangeEvent::Withdrawn(id.clone()));
    }
    fn done(self, outcome: Outcome) {
        self.say(ExchangeEvent::Done(outcome));
    }
}

/// A connection of lines.
pub(super) struct Lines {
    peer: Peer<Port>,
    decoder: LineDecoder,
    to_server: VecDeque<Bytes>,
    to_gateway: Pipe,
    is_ready: bool,
    /// The gates that its peer has told, in this order.
    gates: VecDeque<Gate>,
    failed: bool,
    /// The handshake took too long, so that it may fail.
    is_late: bool,
}

impl Lines {
    fn open(name: &str, hint: EraHint, askers: &Arc<Askers>, now: Instant) -> Self {
        let mut options = options(name, hint);
        (options.lists, options.askers) = (false, Arc::clone(askers));
        let peer = Peer::new(options, now);
        let (to_server, to_gateway) = (VecDeque::new(), Pipe::default());
        Self {
            peer,
            decoder: LineDecoder::new(MAX_LINE),
            to_server,
            to_gateway,
            is_ready: false,
            gates: VecDeque::new(),
            failed: false,
            is_late: false,
        }
    }

    /// Takes what the peer has to write and to tell.
    fn drain(&mut self) {
        let out = self.peer.outgoing().split().freeze();
        let mut from = 0;
        for at in memchr::memchr_iter(b'\n', &out) {
            self.to_server.push_back(out.slice(from..at));
            from = at + 1;
        }
        while let Some(event) = self.peer.poll_event() {
            match event {
                PeerEvent::Ready(_) => self.is_ready = true,
                PeerEvent::Failed { .. } => self.failed = true,
                PeerEvent::Gate(gate) => self.gates.push_back(gate),
                PeerEvent::Inventory(_)
                | PeerEvent::List(..)
                | PeerEvent::Fault(_)
                | PeerEvent::Quirk(_)
                | PeerEvent::Unreadable(_)
                | PeerEvent::Learned(_)
                | PeerEvent::Updated(_)
                | PeerEvent::Unclaimed(_) => {}
            }
        }
    }

    fn deliver(&mut self, server: &mut Server, chance: &mut Chance, truth: &mut Truth, now: Instant) {
        let up = !self.to_server.is_empty() && (self.to_gateway.is_empty() || chance.one_in(2));
        if up {
            let line = self.to_server.pop_front().unwrap_or_default();
            server.hear(std::str::from_utf8(&line).unwrap(), None, truth);
            return;
        }
        let piece = self.to_gateway.piece(chance);
        self.decoder.buffer().extend_from_slice(&piece);
        while let Some(line) = self.decoder.next_line() {
            match line {
                Line::Full(line) => self.peer.handle_line(line, now),
                Line::Oversize { prefix, .. } => self.peer.handle_skipped(&prefix, &Failure::too_large(), now),
            }
        }
        self.drain();
        assert!(!self.failed || self.is_late, "a server that keeps the protocol was given up");
    }
}

enum Way {
    Lines(Box<Lines>),
    Http(Box<Http>),
}

pub(super) struct Link {
    pub(super) name: &'static str,
    pub(super) server: Server,
    way: Way,
    /// The conduct of the server's items, over its lives.
    pub(super) askers: Arc<Askers>,
    turns: Turns,
    /// The gate for new calls.
    gate: Gate,
}

impl Link {
    pub(super) fn open(name: &'static str, revision: Revision, http: bool, chance: &mut Chance, now: Instant) -> Self {
        let manners = Manner::ALL.into_iter().filter(|manner| !http || *manner != Manner::Serial);
        let server = Server::new(revision, !http, chance.pick(&manners.collect::<Vec<_>>()));
        let askers = Arc::default();
        let way = way(name, &server, http, &askers, chance, now);
        let mut link = Self { name, server, way, askers, turns: Turns::default(), gate: Gate::default() };
        link.drain();
        link
    }

    pub(super) fn is_http(&self) -> bool {
        matches!(self.way, Way::Http(_))
    }

    pub(super) fn era(&self) -> Era {
        self.server.revision.era()
    }

    pub(super) fn is_ready(&self) -> bool {
        match &self.way {
            Way::Lines(lines) => lines.is_ready,
            Way::Http(http) => http.is_ready(),
        }
    }

    /// Sends a call, which nothing but a permit allows.
    pub(super) fn call(&mut self, _: &Permit, outgoing: &Outgoing, port: Port) {
        let is_ready = self.is_ready();
        match &mut self.way {
            _ if !is_ready => port.done(Outcome::Failed(Failure::down())),
            Way::Lines(lines) => lines.peer.handle_call(outgoing, port),
            Way::Http(http) => http.call(outgoing, port),
        }
        self.drain();
    }

    pub(super) fn cancel(&mut self, key: u64, now: Instant) {
        match &mut self.way {
            Way::Lines(lines) => lines.peer.handle_cancel(key, now),
            Way::Http(http) => http.cancel(key, &mut self.server, now),
        }
        self.drain();
    }

    pub(super) fn reply(&mut self, id: &RawJson, answer: &ClientAnswer) {
        match &mut self.way {
            Way::Lines(lines) => lines.peer.handle_reply(id, answer),
            Way::Http(http) => http.reply(id, answer),
        }
        self.drain();
    }

    pub(super) fn parked(&mut self, key: u64) {
        match &mut self.way {
            Way::Lines(lines) => lines.peer.handle_parked(key),
            Way::Http(http) => http.parked(key),
        }
        self.drain();
    }

    /// How a call of that party passes; `None` where nothing keeps it.
    pub(super) fn passer(&self, party: &Party) -> Option<Passer> {
        let asks = party.item.as_ref().is_some_and(|item| self.askers.conduct(item).is_some());
        if asks { Some(Passer::Asker) } else { self.gate.is_held.then_some(Passer::Plain) }
    }

    fn next_gate(&mut self) -> Option<Gate> {
        match &mut self.way {
            Way::Lines(lines) => lines.gates.pop_front(),
            Way::Http(http) => http.poll_gate(),
        }
    }

    pub(super) fn enters(&mut self, passer: Passer, party: &Party) -> Ticket {
        self.turns.enter(passer, party.item.clone())
    }

    pub(super) fn leaves(&mut self, ticket: Ticket) {
        self.turns.leave(ticket);
    }

    pub(super) fn forces(&mut self, ticket: Ticket) {
        self.turns.force(ticket);
    }

    /// The next call that may pass, and how.
    pub(super) fn passes(&mut self) -> Option<(Ticket, Passer)> {
        loop {
            if let Some(passes) = self.turns.pass(&self.askers) {
                return Some(passes);
            }
            self.gate = self.next_gate()?;
            self.turns.set(self.gate);
        }
    }

    /// Whether bytes are on their way.
    pub(super) fn moves(&self) -> bool {
        match &self.way {
            Way::Lines(lines) => !lines.to_server.is_empty() || !lines.to_gateway.is_empty(),
            Way::Http(http) => http.moves(),
        }
    }

    /// Delivers the next piece, in either direction.
    pub(super) fn deliver(&mut self, chance: &mut Chance, truth: &mut Truth, now: Instant) {
        match &mut self.way {
            Way::Lines(lines) => lines.deliver(&mut self.server, chance, truth, now),
            Way::Http(http) => http.deliver(&mut self.server, chance, truth, now),
        }
        self.drain();
        self.start_again(chance, now);
    }

    /// Starts a server anew that was given up.
    fn start_again(&mut self, chance: &mut Chance, now: Instant) {
        if matches!(&self.way, Way::Lines(lines) if lines.failed) {
            self.dies(chance, now);
        }
    }

    /// Puts what both ends say on its way.
    pub(super) fn drain(&mut self) {
        match &mut self.way {
            Way::Lines(lines) => {
                lines.drain();
                for said in self.server.out.drain(..) {
                    lines.to_gateway.line(&said.text);
                }
            }
            Way::Http(http) => http.drain(&mut self.server),
        }
    }

    /// The process ends, or the machine behind the address is started anew.
    pub(super) fn dies(&mut self, chance: &mut Chance, now: Instant) {
        match &mut self.way {
            Way::Lines(lines) => {
                lines.peer.handle_closed("killed");
                // What it said before may have been cut.
                lines.to_gateway.clear();
                self.server.restart();
                self.gate = Gate::default();
                self.turns.set(self.gate);
                self.way = way(self.name, &self.server, false, &self.askers, chance, now);
            }
            Way::Http(http) => {
                self.server.restart();
                http.server_died(now);
            }
        }
        self.drain();
    }

    /// A stream of the server breaks, where it has any.
    pub(super) fn breaks(&mut self, chance: &mut Chance, now: Instant) -> bool {
        match &mut self.way {
            Way::Lines(_) => false,
            Way::Http(http) => http.breaks(chance, now),
        }
    }

    pub(super) fn pass(&mut self, chance: &mut Chance, now: Instant) {
        match &mut self.way {
            Way::Lines(lines) => {
                if lines.peer.poll_timeout().is_some_and(|at| at <= now) {
                    lines.is_late |= !lines.is_ready;
                    lines.peer.handle_timeout(now);
                }
            }
            Way::Http(http) => http.pass(now),
        }
        self.drain();
        self.start_again(chance, now);
    }

    /// What is left in its tables, which is nothing when no call is left.
    pub(super) fn left(&mut self) -> usize {
        let waiting = self.turns.left_over();
        waiting
            + match &mut self.way {
                Way::Lines(lines) => lines.peer.left(),
                Way::Http(http) => http.left(),
            }
    }
}

fn way(name: &str, server: &Server, http: bool, askers: &Arc<Askers>, chance: &mut Chance, now: Instant) -> Way {
    let known = if server.is_modern() { EraHint::Modern } else { EraHint::Legacy };
    let hint = if chance.one_in(3) { EraHint::Probe } else { known };
    if http {
        return Way::Http(Box::new(Http::open(name, server.revision, hint, askers)));
    }
    Way::Lines(Box::new(Lines::open(name, hint, askers, now)))
}
