//! Follows the task that a server makes of a call, for a client without the tasks extension.
//!
//! Decides when to poll the task, which of its questions are new, and what its state means for the
//! call. Questions of a task of 2026-07-28 look like requests of a legacy server, so they reach
//! every client in the same ways.

use std::collections::{HashSet, VecDeque};
use std::time::{Duration, Instant};

use crate::engine::call::CallOutcome;
use crate::engine::connection::ask::{ClientAnswer, ServerRequest, modern_response};
use crate::engine::event::CallEvent;
use crate::engine::failure::{CallFailure, ExecutionDoubt, FailureReason};
use crate::mcp::asking::elicitation::ElicitationTerms;
use crate::mcp::asking::input::{InputError, InputRequest, MAX_QUESTIONS};
use crate::mcp::task::{self, ServerTask, TaskStatus};
use crate::mcp::version::Era;
use crate::wire::json::raw::{RawJson, RawObject};

/// Number of requests about a task that fail in a row without reaching the server, before the call
/// fails.
const MAX_MISSED: u8 = 3;

/// A request in the course of a call that may become a task.
#[derive(Clone, Debug)]
pub enum TaskRequest {
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
enum TaskActivity {
    /// This request is in flight.
    Waiting(TaskRequest),
    /// No request is in flight, and the next one is due at this time.
    Rest(Instant),
    /// The call has its outcome.
    Over,
}

/// A call, and the task that it may have become.
#[derive(Debug)]
pub struct FollowedCall {
    era: Era,
    /// Name of the server.
    upstream: String,
    terms: ElicitationTerms,
    wants_progress: bool,
    doing: TaskActivity,
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
    events: VecDeque<CallEvent>,
}

impl FollowedCall {
    /// Begins to follow a call that was sent.
    pub fn new(era: Era, upstream: String, terms: ElicitationTerms, wants_progress: bool) -> Self {
        Self {
            era,
            upstream,
            terms,
            wants_progress,
            doing: TaskActivity::Waiting(TaskRequest::Call),
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
    pub fn poll_event(&mut self) -> Option<CallEvent> {
        let is_over = matches!(self.doing, TaskActivity::Over);
        let end = || CallEvent::Done(CallOutcome::Failed(CallFailure::malformed()));
        self.events.pop_front().or_else(|| is_over.then(end))
    }

    /// Returns when [`Self::ask_after`] must be called; `None` while a request is in flight, and
    /// after the outcome.
    pub fn due(&self) -> Option<Instant> {
        if let TaskActivity::Rest(until) = self.doing { Some(until) } else { None }
    }

    /// Returns the request to send now, if one is due: the answers if all are there, else a poll.
    pub fn ask_after(&mut self, now: Instant) -> Option<TaskRequest> {
        self.due().filter(|due| *due <= now)?;
        let errand = if self.has_answers() { TaskRequest::Update(self.answers.encode()) } else { TaskRequest::Get };
        self.doing = TaskActivity::Waiting(errand.clone());
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
        match modern_response(&method, answer) {
            Some(response) => self.answers.set(&key, response),
            None => {
                self.events.clear();
                return self.end(broken("The client refused the server's request for input."));
            }
        }
        if self.open.is_empty() && matches!(self.doing, TaskActivity::Rest(_)) {
            self.doing = TaskActivity::Rest(now);
        }
    }

    /// Ends the call with this outcome.
    fn end(&mut self, outcome: CallOutcome) {
        self.doing = TaskActivity::Over;
        self.events.push_back(CallEvent::Done(outcome));
    }

    /// Takes the outcome of the request that was sent last, and returns the request to send at
    /// once, if there is one. `read` reads a task, and `idle` is the longest time for which a
    /// server may be silent.
    pub fn answered(
        &mut self,
        outcome: CallOutcome,
        read: impl FnOnce(&RawJson) -> Option<ServerTask>,
        idle: Duration,
        now: Instant,
    ) -> Option<TaskRequest> {
        let TaskActivity::Waiting(errand) = std::mem::replace(&mut self.doing, TaskActivity::Over) else { return None };
        match self.follow(errand, outcome, read) {
            Ok(Some(errand)) => {
                self.doing = TaskActivity::Waiting(errand.clone());
                Some(errand)
            }
            Ok(None) => {
                // A server that wants to be polled rarely must not look like a silent one.
                let pause = if self.has_answers() { Duration::ZERO } else { self.poll.min(idle / 2) };
                self.doing = TaskActivity::Rest(now + pause);
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
        errand: TaskRequest,
        outcome: CallOutcome,
        read: impl FnOnce(&RawJson) -> Option<ServerTask>,
    ) -> Result<Option<TaskRequest>, CallOutcome> {
        match (errand, outcome) {
            (TaskRequest::Call, CallOutcome::Result { raw, era }) => {
                match ServerTask::created(&raw, self.era == Era::Legacy) {
                    Some(task) => Ok(self.begin(&task)),
                    None => Err(CallOutcome::Result { raw, era }),
                }
            }
            (TaskRequest::Call, outcome) => Err(outcome),
            (TaskRequest::Get, CallOutcome::Result { raw, .. }) => {
                let task = read(&raw).filter(|task| Some(&task.id) == self.running.as_ref());
                self.look_at(&task.ok_or_else(|| CallOutcome::Failed(CallFailure::malformed()))?)
            }
            (TaskRequest::Update(_), CallOutcome::Result { .. }) => {
                self.missed = 0;
                self.answers = RawObject::default();
                Ok(None)
            }
            (TaskRequest::Result, CallOutcome::Result { raw, era }) => {
                self.running = None;
                Err(match task::strip_task_members(&raw) {
                    Some(raw) => CallOutcome::Result { raw, era },
                    None => CallOutcome::Failed(CallFailure::malformed()),
                })
            }
            (TaskRequest::Result, CallOutcome::Error { raw }) => {
                self.running = None;
                Err(CallOutcome::Error { raw })
            }
            (TaskRequest::Get | TaskRequest::Update(_), CallOutcome::Error { .. }) => {
                Err(broken("The server no longer knows the task of this call."))
            }
            (TaskRequest::Get | TaskRequest::Update(_) | TaskRequest::Result, CallOutcome::Failed(failure)) => {
                // A request that never reached the server is repeated; the task does not know of
                // it.
                self.missed += 1;
                if failure.executed == ExecutionDoubt::No && self.missed < MAX_MISSED {
                    return Ok(None);
                }
                // The server accepted the call itself, even though the request about it failed.
                Err(CallOutcome::Failed(CallFailure { executed: ExecutionDoubt::Unknown, ..failure }))
            }
        }
    }

    /// Notes the task that a call has become. If it has ended already, it is read at once.
    fn begin(&mut self, task: &ServerTask) -> Option<TaskRequest> {
        self.running = Some(task.id.clone());
        self.poll = task.poll;
        self.sign_of_life(task.message.as_deref());
        // Only `tasks/get` and `tasks/result` carry the outcome of a task.
        task.status.is_terminal().then_some(TaskRequest::Get)
    }

    /// Decides what follows the state of the task, as [`Self::follow`] does.
    fn look_at(&mut self, task: &ServerTask) -> Result<Option<TaskRequest>, CallOutcome> {
        (self.missed, self.poll) = (0, task.poll);
        match task.status {
            TaskStatus::Cancelled => {
                self.running = None;
                Err(CallOutcome::Result {
                    raw: task::cancelled(&self.upstream, task.message.as_deref()),
                    era: self.era,
                })
            }
            TaskStatus::Completed | TaskStatus::Failed | TaskStatus::InputRequired if self.era == Era::Legacy => {
                Ok(Some(TaskRequest::Result))
            }
            TaskStatus::Completed | TaskStatus::Failed => {
                self.running = None;
                Err(match task.outcome() {
                    Some(Ok(raw)) => CallOutcome::Result { raw, era: Era::Modern },
                    Some(Err(raw)) => CallOutcome::Error { raw },
                    None => CallOutcome::Failed(CallFailure::malformed()),
                })
            }
            TaskStatus::Working | TaskStatus::InputRequired => {
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
        self.events.extend(withdrawn.map(|(key, _)| CallEvent::Withdrawn(RawJson::string(&key))));
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
            self.events.push_back(CallEvent::Ask(ServerRequest { id, method, params }));
        }
        Ok(())
    }

    /// Reports that the task is alive. Its status message stands in for progress, which tasks do
    /// not have.
    fn sign_of_life(&mut self, message: Option<&str>) {
        self.polls = self.polls.saturating_add(1);
        let message = message.map(|text| format!(r#","message":{}"#, RawJson::string(text).text())).unwrap_or_default();
        let progress = || RawJson::trusted(format!(r#"{{"progressToken":0,"progress":{}{message}}}"#, self.polls));
        let event = if self.wants_progress { CallEvent::Progress(progress()) } else { CallEvent::Alive };
        self.events.push_back(event);
    }
}

/// Returns the outcome of a call whose server broke the protocol.
fn broken(text: &str) -> CallOutcome {
    CallOutcome::Failed(CallFailure::new(FailureReason::UpstreamProtocol, ExecutionDoubt::Unknown, text))
}

#[cfg(test)]
mod tests;
