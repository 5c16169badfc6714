//! Follows the task that a server makes of a call, for a client without the tasks extension.
//!
//! Decides when to poll the task, which of its questions are new, and what its state means for the
//! call. Questions of a task of 2026-07-28 look like requests of a legacy server, so they reach
//! every client in the same ways.

use std::collections::{HashSet, VecDeque};
use std::time::{Duration, Instant};

use crate::engine::ask::{ClientAnswer, ServerRequest, response};
use crate::engine::call::Outcome;
use crate::engine::event::ExchangeEvent;
use crate::engine::failure::{Executed, Failure, Reason};
use crate::mcp::elicitation::Terms;
use crate::mcp::input::{InputError, InputRequest, MAX_QUESTIONS};
use crate::mcp::task::{self, Status, Task};
use crate::mcp::version::Era;
use crate::wire::raw::{RawJson, RawObject};

/// Number of requests about a task that fail in a row without reaching the server, before the call
/// fails.
const MAX_MISSED: u8 = 3;

/// A request in the course of a call that may become a task.
#[derive(Clone, Debug)]
pub enum Errand {
    /// The tool call itself.
    Call,
    /// `tasks/get`.
    Get,
    /// `tasks/update`, with the answers to the task's questions.
    Update(RawJson),
    /// `tasks/result` of 2025-11-25, which is answered when the task has ended.
    Result,
}

/// The current activity for a call.
#[derive(Debug)]
enum Doing {
    /// This request is in flight.
    Waiting(Errand),
    /// No request is in flight, and the next one is due at this time.
    Rest(Instant),
    /// The call has its outcome.
    Over,
}

/// A call, and the task that it may have become.
#[derive(Debug)]
pub struct Following {
    era: Era,
    /// Name of the server.
    upstream: String,
    terms: Terms,
    wants_progress: bool,
    doing: Doing,
    /// The server's own id of the running task.
    running: Option<String>,
    /// Pause before the next poll, as the server wants it.
    poll: Duration,
    /// Number of reports on the task so far; counts as progress.
    polls: u32,
    /// Number of requests in a row that did not reach the server.
    missed: u8,
    /// Questions that wait for an answer: key and method.
    open: Vec<(String, String)>,
    /// Keys of all questions so far.
    known: HashSet<String>,
    /// Answers by key that the server does not have yet.
    answers: RawObject,
    events: VecDeque<ExchangeEvent>,
}

impl Following {
    /// Begins to follow a call that was sent.
    pub fn new(era: Era, upstream: String, terms: Terms, wants_progress: bool) -> Self {
        Self {
            era,
            upstream,
            terms,
            wants_progress,
            doing: Doing::Waiting(Errand::Call),
            running: None,
            poll: Duration::ZERO,
            polls: 0,
            missed: 0,
            open: Vec::new(),
            known: HashSet::new(),
            answers: RawObject::default(),
            events: VecDeque::new(),
        }
    }

    pub fn era(&self) -> Era {
        self.era
    }

    /// Returns the server's own id of the running task.
    pub fn running(&self) -> Option<&str> {
        self.running.as_deref()
    }

    /// Takes the next event for the holder of the call. After the outcome, only failures follow.
    pub fn poll_event(&mut self) -> Option<ExchangeEvent> {
        let is_over = matches!(self.doing, Doing::Over);
        let end = || ExchangeEvent::Done(Outcome::Failed(Failure::malformed()));
        self.events.pop_front().or_else(|| is_over.then(end))
    }

    /// Returns when [`Self::ask_after`] must be called; `None` while a request is in flight, and
    /// after the outcome.
    pub fn due(&self) -> Option<Instant> {
        if let Doing::Rest(until) = self.doing { Some(until) } else { None }
    }

    /// Returns the request to send now, if one is due: the answers if all are there, else a poll.
    pub fn ask_after(&mut self, now: Instant) -> Option<Errand> {
        self.due().filter(|due| *due <= now)?;
        let errand = if self.has_answers() { Errand::Update(self.answers.encode()) } else { Errand::Get };
        self.doing = Doing::Waiting(errand.clone());
        Some(errand)
    }

    /// Returns whether all questions are answered and the server does not have the answers yet.
    fn has_answers(&self) -> bool {
        self.open.is_empty() && !self.answers.is_empty()
    }

    /// Takes the client's answer to a question of a modern task. After the last one, the next
    /// request is due at once. A refusal for which the task has no answer ends the call.
    pub fn reply(&mut self, id: &RawJson, answer: ClientAnswer, now: Instant) {
        let at = id.parse::<String>().ok().and_then(|id| self.open.iter().position(|(key, _)| *key == id));
        let Some((key, method)) = at.map(|at| self.open.swap_remove(at)) else { return };
        match response(&method, answer) {
            Some(response) => self.answers.set(&key, response),
            None => {
                self.events.clear();
                return self.end(broken("The client refused the server's request for input."));
            }
        }
        if self.open.is_empty() && matches!(self.doing, Doing::Rest(_)) {
            self.doing = Doing::Rest(now);
        }
    }

    /// Ends the call with this outcome.
    fn end(&mut self, outcome: Outcome) {
        self.doing = Doing::Over;
        self.events.push_back(ExchangeEvent::Done(outcome));
    }

    /// Takes the outcome of the request that was sent last, and returns the request to send at
    /// once, if there is one. `read` reads a task, and `idle` is the longest time for which a
    /// server may be silent.
    pub fn answered(
        &mut self,
        outcome: Outcome,
        read: impl FnOnce(&RawJson) -> Option<Task>,
        idle: Duration,
        now: Instant,
    ) -> Option<Errand> {
        let Doing::Waiting(errand) = std::mem::replace(&mut self.doing, Doing::Over) else { return None };
        match self.follow(errand, outcome, read) {
            Ok(Some(errand)) => {
                self.doing = Doing::Waiting(errand.clone());
                Some(errand)
            }
            Ok(None) => {
                // A server that wants to be polled rarely must not look like a silent one.
                let pause = if self.has_answers() { Duration::ZERO } else { self.poll.min(idle / 2) };
                self.doing = Doing::Rest(now + pause);
                None
            }
            Err(outcome) => {
                self.end(outcome);
                None
            }
        }
    }

    /// Decides what follows an outcome: a request at once, a rest (`None`), or as an error the
    /// outcome of the call.
    fn follow(
        &mut self,
        errand: Errand,
        outcome: Outcome,
        read: impl FnOnce(&RawJson) -> Option<Task>,
    ) -> Result<Option<Errand>, Outcome> {
        match (errand, outcome) {
            (Errand::Call, Outcome::Result { raw, era }) => match Task::created(&raw, self.era == Era::Legacy) {
                Some(task) => Ok(self.begin(&task)),
                None => Err(Outcome::Result { raw, era }),
            },
            (Errand::Call, outcome) => Err(outcome),
            (Errand::Get, Outcome::Result { raw, .. }) => {
                let task = read(&raw).filter(|task| Some(&task.id) == self.running.as_ref());
                self.look_at(&task.ok_or_else(|| Outcome::Failed(Failure::malformed()))?)
            }
            (Errand::Update(_), Outcome::Result { .. }) => {
                self.missed = 0;
                self.answers = RawObject::default();
                Ok(None)
            }
            (Errand::Result, Outcome::Result { raw, era }) => {
                self.running = None;
                Err(match task::inlined(&raw) {
                    Some(raw) => Outcome::Result { raw, era },
                    None => Outcome::Failed(Failure::malformed()),
                })
            }
            (Errand::Result, Outcome::Error { raw }) => {
                self.running = None;
                Err(Outcome::Error { raw })
            }
            (Errand::Get | Errand::Update(_), Outcome::Error { .. }) => {
                Err(broken("The server no longer knows the task of this call."))
            }
            (Errand::Get | Errand::Update(_) | Errand::Result, Outcome::Failed(failure)) => {
                // A request that never reached the server is repeated; the task does not know of
                // it.
                self.missed += 1;
                if failure.executed == Executed::No && self.missed < MAX_MISSED {
                    return Ok(None);
                }
                // The server accepted the call itself, even though the request about it failed.
                Err(Outcome::Failed(Failure { executed: Executed::Unknown, ..failure }))
            }
        }
    }

    /// Notes the task that a call has become. If it has ended already, it is read at once.
    fn begin(&mut self, task: &Task) -> Option<Errand> {
        self.running = Some(task.id.clone());
        self.poll = task.poll;
        self.sign_of_life(task.message.as_deref());
        // Only `tasks/get` and `tasks/result` carry the outcome of a task.
        task.status.is_terminal().then_some(Errand::Get)
    }

    /// Decides what follows the state of the task, as [`Self::follow`] does.
    fn look_at(&mut self, task: &Task) -> Result<Option<Errand>, Outcome> {
        (self.missed, self.poll) = (0, task.poll);
        match task.status {
            Status::Cancelled => {
                self.running = None;
                Err(Outcome::Result { raw: task::cancelled(&self.upstream, task.message.as_deref()), era: self.era })
            }
            Status::Completed | Status::Failed | Status::InputRequired if self.era == Era::Legacy => {
                Ok(Some(Errand::Result))
            }
            Status::Completed | Status::Failed => {
                self.running = None;
                Err(match task.outcome() {
                    Some(Ok(raw)) => Outcome::Result { raw, era: Era::Modern },
                    Some(Err(raw)) => Outcome::Error { raw },
                    None => Outcome::Failed(Failure::malformed()),
                })
            }
            Status::Working | Status::InputRequired => {
                self.sign_of_life(task.message.as_deref());
                self.questions(task.asks().unwrap_or_default()).map_err(|why| broken(&why.to_string()))?;
                Ok(None)
            }
        }
    }

    /// Passes new questions on, and withdraws those that the task no longer asks.
    fn questions(&mut self, asked: Vec<(String, RawJson)>) -> Result<(), InputError> {
        // Counted before any of them is stored.
        let new = asked.iter().filter(|(key, _)| !self.known.contains(key)).count();
        if self.known.len() + new > MAX_QUESTIONS {
            return Err(InputError::Malformed);
        }
        let withdrawn = self.open.extract_if(.., |(key, _)| !asked.iter().any(|(asked, _)| asked == key));
        self.events.extend(withdrawn.map(|(key, _)| ExchangeEvent::Withdrawn(RawJson::string(&key))));
        for (key, request) in asked {
            if !self.known.insert(key.clone()) {
                continue;
            }
            let InputRequest { method, params } = InputRequest::read(&request)?;
            // The call that the question reaches labels or declines it. A question that the client
            // did not offer to answer ends the call.
            match InputRequest::of_legacy(&method, params.as_ref(), &self.terms) {
                Err(why) if !why.is_declined() => return Err(why),
                Ok(_) | Err(_) => {}
            }
            let id = RawJson::string(&key);
            self.open.push((key, method.clone()));
            self.events.push_back(ExchangeEvent::Ask(ServerRequest { id, method, params }));
        }
        Ok(())
    }

    /// Reports that the task is alive. Its status message stands in for progress, which tasks do
    /// not have.
    fn sign_of_life(&mut self, message: Option<&str>) {
        self.polls = self.polls.saturating_add(1);
        let message = message.map(|text| format!(r#","message":{}"#, RawJson::string(text).text())).unwrap_or_default();
        let progress = || RawJson::trusted(format!(r#"{{"progressToken":0,"progress":{}{message}}}"#, self.polls));
        let event = if self.wants_progress { ExchangeEvent::Progress(progress()) } else { ExchangeEvent::Alive };
        self.events.push_back(event);
    }
}

/// Returns the outcome of a call whose server broke the protocol.
fn broken(text: &str) -> Outcome {
    Outcome::Failed(Failure::new(Reason::UpstreamProtocol, Executed::Unknown, text))
}

#[cfg(test)]
mod tests;
