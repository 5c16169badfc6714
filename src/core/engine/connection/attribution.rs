//! Finds the call that a legacy server's question belongs to, on a stream that several calls share.
//!
//! Such a stream is a pipe or a session's own stream; nothing in the question names its call.
//!
//! | when the question comes | the question |
//! |---|---|
//! | one call runs, and none was cancelled just now | belongs to that call |
//! | several calls of one caller run | is held; new calls wait ([`super::turns`]), others may end |
//! | no call runs, or calls of two callers were on this connection | is refused |
//!
//! A server does not answer a call before its question is answered. So a held question belongs to
//! the one call that is left of those that ran when it came, as soon as the others were answered.
//! The question is refused when that takes longer than `attribution-timeout`, when one of these
//! calls is cancelled, and together with a second question that comes meanwhile.
//!
//! A server that asks and does not wait for the answer can so reach another client of the same
//! caller, but never of another caller. An item that was seen to ask after its call was answered
//! gets no more questions through: nothing is tied while such a call is in flight, or was within
//! `attribution-timeout`.

use std::sync::Arc;
use std::time::Instant;

use crate::engine::askers::{AskerRegistry, CallOrigin, ConductLesson, DefinedItem, ItemConduct};
use crate::engine::connection::ask::{
    CallCandidates, DeclaredCapabilities, OpenRequests, RequestVerdict, judge_request,
};
use crate::engine::connection::doubt::CancellationDoubt;
use crate::engine::connection::turns::TurnGate;
use crate::engine::connection::unasked::{RequestDecision, decide_request};
use crate::policy::Caller;
use crate::wire::json::raw::RawJson;
use crate::wire::message::Request;

/// A call in flight.
#[derive(Clone, Debug)]
pub struct CallInFlight {
    pub call: u64,
    pub party: CallOrigin,
}

/// The way in which a call leaves its connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CallEnd {
    /// The server has answered the call.
    Answered,
    /// The call was cancelled or failed, so the server may still run it.
    GivenUp,
}

/// The callers of all calls that a connection carried.
#[derive(Debug, Default)]
enum ConnectionCallers {
    #[default]
    None,
    One(Caller),
    Several,
}

/// A question that is held because its call is not certain yet.
#[derive(Debug)]
struct HeldQuestion {
    request: Request,
    /// Calls that ran when the question came and have not ended.
    left: Vec<CallInFlight>,
    /// Time at which the question is refused.
    until: Instant,
}

/// A question and the decision on it.
#[derive(Debug)]
pub struct SettledQuestion {
    pub request: Request,
    pub asked: RequestDecision,
}

/// The consequences of one input: questions that are decided, and news about items.
#[derive(Debug, Default)]
pub struct AttributionResult {
    pub settled: Vec<SettledQuestion>,
    pub learned: Vec<ConductLesson>,
}

/// The attribution of a server's questions on one connection.
#[derive(Debug)]
pub struct QuestionAttribution {
    declared: DeclaredCapabilities,
    pub open: OpenRequests,
    pub doubt: CancellationDoubt,
    askers: Arc<AskerRegistry>,
    callers: ConnectionCallers,
    held: Option<HeldQuestion>,
    /// True if a held question was settled since the gate was reported. New calls may then pass
    /// once, even if the next question is held already.
    was_lifted: bool,
    /// The gate as it was last reported.
    told: TurnGate,
    /// Calls of items that ask, which hold no turn because they were sent before that was known.
    without_turn: Vec<u64>,
    /// The item of the call that was answered last, and the time of the answer.
    last: Option<(DefinedItem, Instant)>,
    /// Time until which a question may belong to an ended call.
    late_until: Option<Instant>,
}

impl QuestionAttribution {
    /// Begins the attribution for a server to which `declared` was declared.
    pub fn new(declared: DeclaredCapabilities, askers: Arc<AskerRegistry>) -> Self {
        Self {
            declared,
            open: OpenRequests::default(),
            doubt: CancellationDoubt::default(),
            askers,
            callers: ConnectionCallers::None,
            held: None,
            was_lifted: false,
            told: TurnGate::default(),
            without_turn: Vec::new(),
            last: None,
            late_until: None,
        }
    }

    /// Notes that a call of that party is sent on this connection.
    pub fn carries(&mut self, call: u64, party: &CallOrigin) {
        // The call was on its way when its item was seen to ask.
        if !party.in_turn && self.asks(party) {
            self.without_turn.push(call);
        }
        let Some(caller) = &party.caller else { return };
        match &self.callers {
            ConnectionCallers::One(known) if known != caller => self.callers = ConnectionCallers::Several,
            ConnectionCallers::None => self.callers = ConnectionCallers::One(caller.clone()),
            ConnectionCallers::One(_) | ConnectionCallers::Several => {}
        }
    }

    /// Takes a request on the stream that `calls` share, and settles or holds it.
    pub fn heard(&mut self, request: &Request, calls: &[CallInFlight], now: Instant) -> AttributionResult {
        let candidates = self.open.candidates(calls.iter().map(|flight| flight.call), &self.doubt);
        // Any other request gets its answer, no matter which calls run.
        let is_question =
            matches!(judge_request(request, &self.declared, CallCandidates::Several), RequestVerdict::Ambiguous(_));
        let mut step = AttributionResult::default();
        if !is_question {
            self.settle(request.clone(), candidates, &mut step);
        } else if let Some(held) = self.held.take() {
            self.was_lifted = true;
            let more = self.running(calls).filter(|flight| held.left.iter().all(|left| left.call != flight.call));
            let running: Vec<CallInFlight> = held.left.iter().chain(more).cloned().collect();
            self.suspect(2, &running, &mut step);
            self.settle(held.request, CallCandidates::Several, &mut step);
            self.settle(request.clone(), CallCandidates::Several, &mut step);
        } else {
            self.question(request, calls, candidates, now, &mut step);
        }
        if !step.learned.is_empty() {
            self.recount(calls);
        }
        step
    }

    /// Takes a question while none is held, and settles or holds it.
    fn question(
        &mut self,
        request: &Request,
        calls: &[CallInFlight],
        candidates: CallCandidates,
        now: Instant,
        step: &mut AttributionResult,
    ) {
        let any_runs = candidates != CallCandidates::None;
        match candidates {
            _ if any_runs && matches!(self.callers, ConnectionCallers::Several) => {
                self.settle(request.clone(), CallCandidates::Foreign, step);
            }
            _ if any_runs && self.is_late(calls, now) => self.settle(request.clone(), CallCandidates::Late, step),
            CallCandidates::None => {
                self.settle(request.clone(), candidates, step);
                // Many servers ask for roots without a call, so this says nothing about the item
                // of the last call.
                let is_roots = request.method.as_str() == "roots/list";
                let is_refused = !is_roots
                    && step.settled.iter().any(|settled| matches!(settled.asked, RequestDecision::Answered(Err(_), _)));
                if is_refused && !self.doubt.is_open() {
                    self.late_until = Some(now + self.askers.patience());
                    let soon = self.last.as_ref().filter(|(_, at)| now < *at + self.askers.patience());
                    step.learned.extend(soon.and_then(|(item, _)| self.askers.late(item)));
                }
            }
            CallCandidates::One(call) => {
                if let Some(flight) = calls.iter().find(|flight| flight.call == call) {
                    self.learn(&flight.party, step);
                }
                self.settle(request.clone(), candidates, step);
            }
            CallCandidates::Several if self.doubt.is_open() || self.askers.patience().is_zero() => {
                let running: Vec<CallInFlight> = self.running(calls).cloned().collect();
                self.suspect(1, &running, step);
                self.settle(request.clone(), candidates, step);
            }
            CallCandidates::Several => {
                let left = self.running(calls).cloned().collect();
                self.held = Some(HeldQuestion { request: request.clone(), left, until: now + self.askers.patience() });
            }
            CallCandidates::Doubtful | CallCandidates::Foreign | CallCandidates::Late => {
                self.settle(request.clone(), candidates, step);
            }
        }
    }

    /// Returns the calls that may ask. Parked calls count only if no other call runs.
    fn running<'c>(&self, calls: &'c [CallInFlight]) -> impl Iterator<Item = &'c CallInFlight> + use<'c> {
        let parked: Vec<bool> = calls.iter().map(|flight| self.open.is_parked(flight.call)).collect();
        let all = parked.iter().all(|parked| *parked);
        calls.iter().zip(parked).filter(move |(_, parked)| all || !parked).map(|(flight, _)| flight)
    }

    /// Notes that a call has left the connection; `calls` gives those that are still in flight. The
    /// held question is settled if the call was given up, or if at most one of its calls is left.
    pub fn ended(
        &mut self,
        (call, party): (u64, &CallOrigin),
        end: CallEnd,
        calls: impl FnOnce() -> Vec<CallInFlight>,
        now: Instant,
    ) -> AttributionResult {
        self.without_turn.retain(|without| *without != call);
        if let (CallEnd::Answered, Some(item), false) = (end, &party.item, party.is_task) {
            if self.askers.any_late() && self.askers.conduct(item) == Some(ItemConduct::Late) {
                self.late_until = Some(now + self.askers.patience());
            }
            self.last = Some((item.clone(), now));
        }
        let mut step = AttributionResult::default();
        let Some(mut held) = self.held.take() else { return step };
        let was_lifted = self.was_lifted;
        let Some(at) = held.left.iter().position(|flight| flight.call == call) else {
            self.held = Some(held);
            return step;
        };
        let gone = held.left.swap_remove(at);
        self.was_lifted = true;
        match held.left.as_slice() {
            _ if end == CallEnd::GivenUp => {
                // The question may be about the call that was given up.
                held.left.push(gone);
                self.suspect(1, &held.left, &mut step);
                self.settle(held.request, CallCandidates::Several, &mut step);
            }
            [] => self.settle(held.request, CallCandidates::None, &mut step),
            [only] => {
                self.learn(&only.party, &mut step);
                self.settle(held.request, CallCandidates::One(only.call), &mut step);
            }
            [_, _, ..] => (self.held, self.was_lifted) = (Some(held), was_lifted),
        }
        if !step.learned.is_empty() {
            self.recount(&calls());
        }
        step
    }

    /// Returns when [`Self::lapse`] must be called.
    pub fn until(&self) -> Option<Instant> {
        self.held.as_ref().map(|held| held.until)
    }

    /// Refuses the held question if it has waited too long.
    pub fn lapse(&mut self, calls: impl FnOnce() -> Vec<CallInFlight>, now: Instant) -> AttributionResult {
        let mut step = AttributionResult::default();
        let Some(held) = self.held.take_if(|held| held.until <= now) else { return step };
        self.was_lifted = true;
        self.suspect(1, &held.left, &mut step);
        self.settle(held.request, CallCandidates::Several, &mut step);
        if !step.learned.is_empty() {
            self.recount(&calls());
        }
        step
    }

    /// Drops the held question if the server withdraws it, and returns whether it was that one.
    pub fn withdrawn(&mut self, id: &RawJson) -> bool {
        let was_held = self.held.take_if(|held| held.request.id.raw() == id).is_some();
        self.was_lifted |= was_held;
        was_held
    }

    /// Notes that the client of a call has its questions before it, and that the call waits. It
    /// needs no turn meanwhile.
    pub fn park(&mut self, call: u64) {
        self.open.park(call);
        if self.open.is_parked(call) {
            self.without_turn.retain(|without| *without != call);
        }
    }

    /// Returns the gate for new calls if it has changed since the last report. Must be called until
    /// it returns `None`: between two held questions the gate opens once, so that waiting calls
    /// pass however fast one question follows the other.
    pub fn poll_gate(&mut self) -> Option<TurnGate> {
        let was_lifted = std::mem::take(&mut self.was_lifted) && self.told.is_held;
        let gate = TurnGate { is_held: self.held.is_some() && !was_lifted, is_taken: !self.without_turn.is_empty() };
        (std::mem::replace(&mut self.told, gate) != gate).then_some(gate)
    }

    /// Forgets the held question and what is known of the calls: the server is gone or has another
    /// session, and knows nothing of what it asked.
    pub fn forget(&mut self) {
        self.was_lifted |= self.held.is_some();
        (self.held, self.last, self.late_until) = (None, None, None);
        self.without_turn.clear();
        self.doubt = CancellationDoubt::default();
    }

    /// Decides a request by its candidates, and adds the decision to `step`.
    fn settle(&mut self, request: Request, candidates: CallCandidates, step: &mut AttributionResult) {
        let asked = decide_request(&request, &self.declared, candidates, &mut self.open);
        step.settled.push(SettledQuestion { request, asked });
    }

    /// Notes that a question is tied to a call of that party, whose item thus asks.
    fn learn(&self, party: &CallOrigin, step: &mut AttributionResult) {
        step.learned.extend(party.item.as_ref().and_then(|item| self.askers.asked(item)));
    }

    /// Notes that so many questions belong to any of these calls. A call whose own question is open
    /// already explains none of them.
    fn suspect(&self, questions: usize, calls: &[CallInFlight], step: &mut AttributionResult) {
        let waits = |flight: &&CallInFlight| self.open.has_open(flight.call);
        let is_known = |item: &&DefinedItem| self.askers.conduct(item).is_some();
        let waiting = calls.iter().filter(waits).filter_map(|flight| flight.party.item.as_ref());
        let others = calls.iter().filter(|flight| !waits(flight)).filter_map(|flight| flight.party.item.as_ref());
        // Collected before the call below, which holds the lock that `is_known` takes.
        let suspects: Vec<&DefinedItem> = others.chain(waiting.filter(|item| !is_known(item))).collect();
        step.learned.extend(self.askers.suspect(questions, suspects.into_iter()));
    }

    /// Finds anew the calls of items that ask which hold no turn.
    fn recount(&mut self, calls: &[CallInFlight]) {
        let without = calls.iter().filter(|flight| !flight.party.in_turn && self.asks(&flight.party));
        self.without_turn = without.map(|flight| flight.call).filter(|call| !self.open.is_parked(*call)).collect();
    }

    /// Returns whether calls of that party's item take turns.
    fn asks(&self, party: &CallOrigin) -> bool {
        party.item.as_ref().is_some_and(|item| self.askers.conduct(item).is_some())
    }

    /// Returns whether a question may belong to a call that has ended.
    fn is_late(&self, calls: &[CallInFlight], now: Instant) -> bool {
        let is_late = |item: &DefinedItem| self.askers.conduct(item) == Some(ItemConduct::Late);
        self.askers.any_late()
            && (self.late_until.is_some_and(|until| now < until)
                || calls.iter().filter_map(|flight| flight.party.item.as_ref()).any(is_late))
    }
}
