//! Parked calls, which wait for a modern client: the result of its request asks it, and its next
//! request answers.
//!
//! The call upstream outlives the request that began it. Requests attach to it and see its events.
//! A request that is sent again because its response was lost attaches once more: no answer goes
//! upstream twice.

use std::collections::HashMap;
use std::time::{Duration, Instant};

use crate::engine::call::CallOutcome;
use crate::engine::connection::ask::{ClientAnswer, ServerRequest, unable_answer, unanswered_answer};
use crate::engine::event::CallEvent;
use crate::engine::question::{MAX_OPEN, PATIENCE};
use crate::policy::Caller;
use crate::wire::json::raw::{RawJson, RawObject};

/// Time for which a call without open questions, or its outcome, waits for a client whose response
/// was lost. Together with the time that the final connection upstream may stay open, everything is
/// released within a minute.
pub const GRACE: Duration = Duration::from_secs(30);
/// Most parked calls of all callers.
const MAX_PARKED: usize = 256;
/// Most parked calls of one caller. For [`Caller::is_local`] only the bound of all callers counts.
pub const MAX_PER_CALLER: usize = 16;

/// The name of a parked call, which travels only inside a sealed state.
pub type ParkId = [u8; 16];

/// The state of one parked call.
#[derive(Debug)]
pub struct ParkedCall {
    /// Open questions, by the keys that the client knows.
    open: Vec<(RawJson, ServerRequest)>,
    /// Number of questions so far; makes their keys.
    asked: u32,
    outcome: Option<CallOutcome>,
    /// True while a request is attached.
    is_attached: bool,
    /// Time at which the call is given up, if no request is attached.
    until: Instant,
}

/// An action that follows from an event.
#[derive(Debug)]
pub enum ParkAction {
    /// Send this answer to the server's request of that id.
    Reply(RawJson, ClientAnswer),
    /// Show this event to the attached request.
    Show(CallEvent),
}

impl ParkedCall {
    /// Parks a call, with the request attached that began it.
    pub fn new(now: Instant) -> Self {
        Self { open: Vec::new(), asked: 0, outcome: None, is_attached: true, until: now }
    }

    /// Returns when the call is given up; `None` while a request is attached.
    pub fn due(&self) -> Option<Instant> {
        (!self.is_attached).then_some(self.until)
    }

    /// Returns whether a question is open.
    pub fn asks(&self) -> bool {
        !self.open.is_empty()
    }

    /// Attaches a request that brings answers by key. Returns the answers for the server, then the
    /// questions that are still open and the outcome, for the request. An answer that is no object
    /// answers nothing.
    pub fn attach(&mut self, answers: &RawObject) -> Vec<ParkAction> {
        self.is_attached = true;
        let answer = |key: &RawJson| answers.get(&key.parse::<String>().ok()?).filter(|answer| answer.is_object());
        let answered = self.open.extract_if(.., |(key, _)| answer(key).is_some());
        let replies =
            answered.filter_map(|(key, request)| Some(ParkAction::Reply(request.id, Ok(answer(&key)?.clone()))));
        let mut acts: Vec<ParkAction> = replies.collect();
        acts.extend(self.open.iter().map(|(key, request)| ParkAction::Show(asked(key, request))));
        acts.extend(self.outcome.clone().map(|outcome| ParkAction::Show(CallEvent::Done(outcome))));
        acts
    }

    /// Detaches the request, which is gone. The call now waits for another one.
    pub fn leave(&mut self, now: Instant) {
        self.is_attached = false;
        self.wait(now);
    }

    /// Restarts the wait for a request, if none is attached.
    fn wait(&mut self, now: Instant) {
        if !self.is_attached {
            self.until = now + if self.open.is_empty() { GRACE } else { PATIENCE };
        }
    }

    /// Ends the question with that key, and returns the attached request's answer for the server.
    pub fn answer(&mut self, key: &RawJson, answer: ClientAnswer) -> Option<ParkAction> {
        let at = self.open.iter().position(|(open, _)| open == key)?;
        Some(ParkAction::Reply(self.open.swap_remove(at).1.id, answer))
    }

    /// Takes an event from the server, and returns the action that follows.
    pub fn hear(&mut self, event: CallEvent, now: Instant) -> Option<ParkAction> {
        Some(match event {
            CallEvent::Ask(request) if self.open.len() >= MAX_OPEN => {
                ParkAction::Reply(request.id, unable_answer(&request.method))
            }
            CallEvent::Ask(request) => {
                self.asked += 1;
                let kind = request.method.split('/').next().unwrap_or_default();
                let key = RawJson::string(&format!("{kind}-{}", self.asked));
                let shown = asked(&key, &request);
                self.open.push((key, request));
                self.wait(now);
                ParkAction::Show(shown)
            }
            CallEvent::Withdrawn(id) => {
                let at = self.open.iter().position(|(_, request)| request.id == id)?;
                ParkAction::Show(CallEvent::Withdrawn(self.open.swap_remove(at).0))
            }
            CallEvent::Done(outcome) => {
                self.open.clear();
                self.outcome = Some(outcome.clone());
                self.wait(now);
                ParkAction::Show(CallEvent::Done(outcome))
            }
            CallEvent::Notice(_) | CallEvent::Unwritten => return None,
            CallEvent::Progress(_) | CallEvent::Log(_) | CallEvent::Alive => ParkAction::Show(event),
        })
    }

    /// Ends all open questions, because no client answers any more, and returns what to tell the
    /// server.
    pub fn end(&mut self) -> impl Iterator<Item = ParkAction> + '_ {
        self.open.drain(..).map(|(_, request)| ParkAction::Reply(request.id, unanswered_answer(&request.method)))
    }
}

/// Returns the question under the key that the client knows.
fn asked(key: &RawJson, request: &ServerRequest) -> CallEvent {
    CallEvent::Ask(ServerRequest { id: key.clone(), ..request.clone() })
}

/// All parked calls. `W` is the handle of one.
#[derive(Debug)]
pub struct ParkTable<W>(HashMap<ParkId, ParkEntry<W>>);

/// A parked call in the table.
#[derive(Debug)]
struct ParkEntry<W> {
    caller: Caller,
    way: W,
    /// Time at which the call got its outcome.
    ended: Option<Instant>,
}

impl<W> Default for ParkTable<W> {
    fn default() -> Self {
        Self(HashMap::new())
    }
}

impl<W> ParkTable<W> {
    /// Adds a call; false if there is no room. Calls that have ended give way, the oldest first.
    pub fn enter(&mut self, id: ParkId, caller: &Caller, way: W) -> bool {
        loop {
            let mine = self.0.values().filter(|parked| parked.caller == *caller).count();
            let has_share = caller.is_local() || mine < MAX_PER_CALLER;
            if has_share && self.0.len() < MAX_PARKED {
                self.0.insert(id, ParkEntry { caller: caller.clone(), way, ended: None });
                return true;
            }
            let ended = self.0.iter().filter(|(_, parked)| has_share || parked.caller == *caller);
            let oldest = ended.filter_map(|(id, parked)| Some((parked.ended?, *id))).min();
            let Some((_, id)) = oldest else { return false };
            self.0.remove(&id);
        }
    }

    /// Number of parked calls.
    #[cfg(any(test, feature = "testing"))]
    pub fn count(&self) -> usize {
        self.0.len()
    }

    /// Returns the handle of a parked call of this caller.
    pub fn find(&self, caller: &Caller, id: &ParkId) -> Option<&W> {
        self.0.get(id).filter(|parked| parked.caller == *caller).map(|parked| &parked.way)
    }

    /// Returns the handle of a parked call of this caller, to be changed.
    pub fn find_mut(&mut self, caller: &Caller, id: &ParkId) -> Option<&mut W> {
        self.0.get_mut(id).filter(|parked| parked.caller == *caller).map(|parked| &mut parked.way)
    }

    /// Notes that a call has its outcome, which waits for a client whose response was lost.
    pub fn ended(&mut self, id: &ParkId, now: Instant) {
        if let Some(parked) = self.0.get_mut(id) {
            parked.ended.get_or_insert(now);
        }
    }

    pub fn remove(&mut self, id: &ParkId) {
        self.0.remove(id);
    }
}

#[cfg(test)]
mod tests;
