//! Parked calls: calls that wait for a modern client, which gets a question as the result of its request and answers with the
//! next one.
//!
//! The call upstream outlives the request that began it. Requests attach to it and see its events. A request that is sent again
//! because its response was lost attaches once more: no answer goes upstream twice.

use std::collections::HashMap;
use std::time::{Duration, Instant};

use crate::engine::ask::{ClientAnswer, ServerRequest, declined, unable};
use crate::engine::call::Outcome;
use crate::engine::event::ExchangeEvent;
use crate::engine::question::{MAX_OPEN, PATIENCE};
use crate::policy::Caller;
use crate::wire::raw::{RawJson, RawObject};

/// How long a call without open questions, or its outcome, waits for a client whose response was lost. With the time that the
/// connection of its end may stay open upstream, everything is given back within a minute.
pub const GRACE: Duration = Duration::from_secs(30);
/// Parked calls of all callers, and of one caller where there are several.
const MAX_PARKED: usize = 256;
pub const MAX_PER_CALLER: usize = 16;

/// Names a parked call; it travels only inside a sealed state.
pub type ParkId = [u8; 16];

/// One parked call.
#[derive(Debug)]
pub struct Park {
    /// Its open questions, by the keys that the client knows.
    open: Vec<(RawJson, ServerRequest)>,
    /// Questions so far; makes their keys.
    asked: u32,
    outcome: Option<Outcome>,
    /// A request is attached.
    is_attached: bool,
    until: Instant,
}

/// What follows.
#[derive(Debug)]
pub enum Act {
    /// The server gets the answer to its request of that id.
    Reply(RawJson, ClientAnswer),
    /// The attached request learns of it.
    Show(ExchangeEvent),
}

impl Park {
    /// A call with the request attached that began it.
    pub fn new(now: Instant) -> Self {
        Self { open: Vec::new(), asked: 0, outcome: None, is_attached: true, until: now }
    }

    /// When the call is off, unless a request attaches.
    pub fn due(&self) -> Option<Instant> {
        (!self.is_attached).then_some(self.until)
    }

    /// Whether a question is open.
    pub fn asks(&self) -> bool {
        !self.open.is_empty()
    }

    /// A request attaches, with answers by key. What is no object answers nothing, and the question is shown again.
    pub fn attach(&mut self, answers: &RawObject) -> Vec<Act> {
        self.is_attached = true;
        let answer = |key: &RawJson| answers.get(&key.parse::<String>().ok()?).filter(|answer| answer.is_object());
        let answered = self.open.extract_if(.., |(key, _)| answer(key).is_some());
        let replies = answered.filter_map(|(key, request)| Some(Act::Reply(request.id, Ok(answer(&key)?.clone()))));
        let mut acts: Vec<Act> = replies.collect();
        acts.extend(self.open.iter().map(|(key, request)| Act::Show(asked(key, request))));
        acts.extend(self.outcome.clone().map(|outcome| Act::Show(ExchangeEvent::Done(outcome))));
        acts
    }

    /// The attached request is gone.
    pub fn leave(&mut self, now: Instant) {
        self.is_attached = false;
        self.wait(now);
    }

    fn wait(&mut self, now: Instant) {
        if !self.is_attached {
            self.until = now + if self.open.is_empty() { GRACE } else { PATIENCE };
        }
    }

    /// The attached request answers the question of that key.
    pub fn answer(&mut self, key: &RawJson, answer: ClientAnswer) -> Option<Act> {
        let at = self.open.iter().position(|(open, _)| open == key)?;
        Some(Act::Reply(self.open.swap_remove(at).1.id, answer))
    }

    /// Something comes from the server.
    pub fn hear(&mut self, event: ExchangeEvent, now: Instant) -> Option<Act> {
        Some(match event {
            ExchangeEvent::Ask(request) if self.open.len() >= MAX_OPEN => {
                Act::Reply(request.id, unable(&request.method))
            }
            ExchangeEvent::Ask(request) => {
                self.asked += 1;
                let kind = request.method.split('/').next().unwrap_or_default();
                let key = RawJson::string(&format!("{kind}-{}", self.asked));
                let shown = asked(&key, &request);
                self.open.push((key, request));
                self.wait(now);
                Act::Show(shown)
            }
            ExchangeEvent::Withdrawn(id) => {
                let at = self.open.iter().position(|(_, request)| request.id == id)?;
                Act::Show(ExchangeEvent::Withdrawn(self.open.swap_remove(at).0))
            }
            ExchangeEvent::Done(outcome) => {
                self.open.clear();
                self.outcome = Some(outcome.clone());
                self.wait(now);
                Act::Show(ExchangeEvent::Done(outcome))
            }
            ExchangeEvent::Notice(_) => return None,
            ExchangeEvent::Progress(_) | ExchangeEvent::Log(_) | ExchangeEvent::Alive => Act::Show(event),
        })
    }

    /// Nobody answers any more.
    pub fn end(&mut self) -> impl Iterator<Item = Act> + '_ {
        self.open.drain(..).map(|(_, request)| Act::Reply(request.id, declined(&request.method)))
    }
}

/// The question under the key that the client knows.
fn asked(key: &RawJson, request: &ServerRequest) -> ExchangeEvent {
    ExchangeEvent::Ask(ServerRequest { id: key.clone(), ..request.clone() })
}

/// All parked calls. `W` is the way to one.
#[derive(Debug)]
pub struct ParkTable<W>(HashMap<ParkId, Parked<W>>);

#[derive(Debug)]
struct Parked<W> {
    caller: Caller,
    way: W,
    /// Since when it has its outcome.
    ended: Option<Instant>,
}

impl<W> Default for ParkTable<W> {
    fn default() -> Self {
        Self(HashMap::new())
    }
}

impl<W> ParkTable<W> {
    /// Enters a call; `false` where there is no room. Calls that have ended give way, the oldest first.
    pub fn enter(&mut self, id: ParkId, caller: &Caller, way: W) -> bool {
        loop {
            let mine = self.0.values().filter(|parked| parked.caller == *caller).count();
            let has_share = caller.is_local() || mine < MAX_PER_CALLER;
            if has_share && self.0.len() < MAX_PARKED {
                self.0.insert(id, Parked { caller: caller.clone(), way, ended: None });
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

    /// The way to a parked call of this caller.
    pub fn find(&self, caller: &Caller, id: &ParkId) -> Option<&W> {
        self.0.get(id).filter(|parked| parked.caller == *caller).map(|parked| &parked.way)
    }

    /// The same, to be changed.
    pub fn find_mut(&mut self, caller: &Caller, id: &ParkId) -> Option<&mut W> {
        self.0.get_mut(id).filter(|parked| parked.caller == *caller).map(|parked| &mut parked.way)
    }

    /// The call has its outcome, which waits for a client whose response was lost.
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
