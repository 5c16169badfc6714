//! A call that its server goes on with as a task, for a client that knows nothing of tasks: the client's request stays open, and
//! the task is asked after until it ends.
//!
//! To everybody else this is one call upstream: it brings questions, signs of life and one outcome, and dropping it cancels the
//! task. Questions of a task of 2026-07-28 look like requests of a legacy server, so they reach every client on the same ways.

use std::collections::{HashSet, VecDeque};
use std::sync::Arc;
use std::time::{Duration, Instant};

use futures_util::future::BoxFuture;

use crate::base::clock;
use crate::base::task_group::TaskGroup;
use crate::catalog::merge::Entry;
use crate::engine::ask::{ClientAnswer, ServerRequest, declined};
use crate::engine::call::{Executed, Failure, Outcome, Outgoing, Reason};
use crate::engine::event::ExchangeEvent;
use crate::mcp::elicitation::Terms;
use crate::mcp::extension::TASKS;
use crate::mcp::input::{InputError, InputRequest, Kinds, MAX_QUESTIONS, decline};
use crate::mcp::method::Method;
use crate::mcp::task::{self, Status, Task};
use crate::mcp::version::Era;
use crate::policy::Permit;
use crate::upstream::handle::Handle;
use crate::upstream::link::Link;
use crate::upstream::sent::Sent;
use crate::upstream::session::LaneUse;
use crate::wire::headers::ParamHeaders;
use crate::wire::raw::{RawJson, RawObject};

/// How long a cancellation, or the answer to an abandoned call, is waited for.
const FAREWELL: Duration = Duration::from_secs(5);
/// Requests about a task that may fail one after the other without having reached the server.
const MAX_MISSED: u8 = 3;

/// What a call has to do with tasks of its server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Manner {
    /// Nothing, or its client deals with them.
    Plain,
    /// The server of 2025-11-25 takes it as a task alone.
    Required,
    /// The server of 2026-07-28 may say that it needs a client that knows tasks.
    Perhaps,
}

impl Manner {
    /// `declared`: the client deals with tasks itself.
    pub(crate) fn of(link: &Link, method: Method, entry: &Entry, declared: bool) -> Self {
        let agreed = link.agreed();
        if method != Method::ToolsCall || !agreed.offers.tasks {
            return Self::Plain;
        }
        match agreed.revision.era() {
            Era::Modern if !declared => Self::Perhaps,
            Era::Legacy if task::is_required(&entry.definition) => Self::Required,
            Era::Modern | Era::Legacy => Self::Plain,
        }
    }
}

/// The way to the server of a call, for more requests than one.
#[derive(Debug)]
pub(crate) struct Way {
    pub(crate) handle: Arc<Handle>,
    pub(crate) link: Link,
    #[expect(dead_code, reason = "held: it stays open for the task")]
    pub(crate) lane: LaneUse,
    pub(crate) permit: Permit,
    pub(crate) tasks: TaskGroup,
}

/// Sends requests about one call's task.
#[derive(Debug)]
struct Errands {
    way: Way,
    /// The call, without what only the call itself needs.
    pattern: Outgoing,
    legacy: bool,
}

impl Errands {
    fn send(&self, method: Method, id: &str, responses: Option<RawJson>) -> Sent {
        let mut body = RawObject::default();
        body.set("taskId", RawJson::string(id));
        if let Some(responses) = responses {
            body.set("inputResponses", responses);
        }
        // Only the request that waits for the result can bring a legacy server's questions.
        let waits = method == Method::TasksResult;
        let can_be_asked = self.pattern.can_be_asked && waits;
        let outgoing = Outgoing { method, body, can_be_asked, ..self.pattern.clone() };
        self.way.handle.call(&self.way.link, &self.way.permit, outgoing, &ParamHeaders::default())
    }

    /// Tells the server that the task is off. Nothing depends on the answer.
    async fn cancel(&self, id: &str) {
        let mut exchange = self.send(Method::TasksCancel, id, None);
        drop(tokio::time::timeout(FAREWELL, outcome(&mut exchange)).await);
    }

    /// Cancels what a call becomes that nobody waits for any more.
    async fn abandon(&self, mut call: Sent) {
        let answered = tokio::time::timeout(FAREWELL, outcome(&mut call)).await;
        if let Ok(Outcome::Result { raw, .. }) = answered
            && let Some(task) = Task::created(&raw, self.legacy)
        {
            self.cancel(&task.id).await;
        }
    }
}

/// Tells the server of a client's own task that these questions are declined. The client asks after the task again in any case.
pub(crate) fn decline_questions<'k>(way: Way, call: &Outgoing, id: &str, keys: impl Iterator<Item = &'k str>) {
    let mut responses = RawObject::default();
    for key in keys {
        responses.set(key, decline());
    }
    let tasks = way.tasks.clone();
    let errands = Errands { way, pattern: Outgoing { body: RawObject::default(), ..call.clone() }, legacy: false };
    let mut exchange = errands.send(Method::TasksUpdate, id, Some(responses.encode()));
    tasks.spawn("declined question", async move {
        drop(tokio::time::timeout(FAREWELL, outcome(&mut exchange)).await);
        drop(errands);
    });
}

async fn outcome(exchange: &mut Sent) -> Outcome {
    loop {
        if let ExchangeEvent::Done(outcome) = exchange.next().await {
            return outcome;
        }
    }
}

/// What is under way.
#[derive(Debug)]
enum Leg {
    /// The tool call itself.
    Call(Sent),
    /// Nothing, until then.
    Rest(Instant),
    Get(Sent),
    Update(Sent),
    /// `tasks/result` of 2025-11-25, which is answered when the task has ended.
    Result(Sent),
    Ended,
}

/// A call and the task that it may become.
#[derive(Debug)]
pub(crate) struct TaskExchange {
    /// Taken when this is dropped.
    errands: Option<Errands>,
    upstream: String,
    terms: Terms,
    wants_progress: bool,
    leg: Leg,
    /// The upstream's own id of the task that runs.
    running: Option<String>,
    poll: Duration,
    polls: u32,
    missed: u8,
    /// Questions that wait for an answer: key and method.
    open: Vec<(String, String)>,
    /// The keys of all questions so far.
    known: HashSet<String>,
    answers: RawObject,
    events: VecDeque<ExchangeEvent>,
}

impl TaskExchange {
    /// Makes a call that may become a task.
    pub(crate) fn start(way: Way, terms: Terms, mut outgoing: Outgoing, headers: &ParamHeaders) -> Self {
        let legacy = way.link.agreed().revision.era() == Era::Legacy;
        let terms = Terms { offered: Kinds::of(outgoing.capabilities.as_ref()), ..terms };
        if legacy {
            let ttl = way.handle.spec.load().call_max.as_millis();
            outgoing.body.set("task", RawJson::trusted(format!(r#"{{"ttl":{ttl}}}"#)));
        } else {
            outgoing.capabilities = Some(TASKS.added_to(outgoing.capabilities.as_ref()));
        }
        let wants_progress = outgoing.wants_progress;
        let pattern =
            Outgoing { body: RawObject::default(), wants_progress: false, log_level: None, ..outgoing.clone() };
        let upstream = way.handle.name.to_string();
        let call = way.handle.call(&way.link, &way.permit, outgoing, headers);
        let errands = Errands { way, pattern, legacy };
        Self::new(Some(errands), upstream, terms, wants_progress, Leg::Call(call))
    }

    fn new(errands: Option<Errands>, upstream: String, terms: Terms, wants_progress: bool, leg: Leg) -> Self {
        Self {
            errands,
            upstream,
            terms,
            wants_progress,
            leg,
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

    /// Cancel-safe: everything that is under way is kept in `leg`.
    pub(crate) fn next(&mut self) -> BoxFuture<'_, ExchangeEvent> {
        Box::pin(async move {
            loop {
                if let Some(event) = self.events.pop_front() {
                    return event;
                }
                let event = match &mut self.leg {
                    Leg::Call(exchange) | Leg::Get(exchange) | Leg::Update(exchange) | Leg::Result(exchange) => {
                        exchange.next().await
                    }
                    Leg::Rest(until) => {
                        clock::sleep_until(Some(*until)).await;
                        self.leg = self.ask_after();
                        continue;
                    }
                    Leg::Ended => ExchangeEvent::Done(Outcome::Failed(Failure::malformed())),
                };
                let ExchangeEvent::Done(outcome) = event else { return event };
                match self.answered(outcome) {
                    Ok(leg) => self.leg = leg,
                    Err(outcome) => {
                        self.leg = Leg::Ended;
                        return ExchangeEvent::Done(outcome);
                    }
                }
            }
        })
    }

    /// The client's answer to a question, by its id.
    pub(crate) fn reply(&mut self, id: &RawJson, answer: ClientAnswer) {
        if self.is_legacy() {
            if let Leg::Call(exchange) | Leg::Result(exchange) = &mut self.leg {
                exchange.reply(id, answer);
            }
            return;
        }
        let at = id.parse::<String>().ok().and_then(|id| self.open.iter().position(|(key, _)| *key == id));
        let Some((key, method)) = at.map(|at| self.open.swap_remove(at)) else { return };
        // The protocol has no place for an error among the answers.
        match answer.or_else(|_| declined(&method)) {
            Ok(response) => self.answers.set(&key, response),
            Err(_) => return self.fail("The client refused what the server asked for."),
        }
        if self.open.is_empty() && matches!(self.leg, Leg::Rest(_)) {
            self.leg = Leg::Rest(clock::now());
        }
    }

    /// The client has everything that was asked before it.
    pub(crate) fn parked(&mut self) {
        if let Leg::Call(exchange) | Leg::Result(exchange) = &mut self.leg {
            exchange.parked();
        }
    }

    fn is_legacy(&self) -> bool {
        self.errands.as_ref().is_some_and(|errands| errands.legacy)
    }

    fn fail(&mut self, text: &str) {
        self.leg = Leg::Ended;
        self.events.clear();
        self.events.push_back(ExchangeEvent::Done(broken(text)));
    }

    /// The next request about the task.
    fn ask_after(&mut self) -> Leg {
        let (Some(errands), Some(id)) = (&self.errands, &self.running) else { return Leg::Ended };
        if self.open.is_empty() && !self.answers.is_empty() {
            return Leg::Update(errands.send(Method::TasksUpdate, id, Some(self.answers.encode())));
        }
        Leg::Get(errands.send(Method::TasksGet, id, None))
    }

    /// What follows the outcome of a request.
    fn answered(&mut self, outcome: Outcome) -> Result<Leg, Outcome> {
        let leg = std::mem::replace(&mut self.leg, Leg::Ended);
        match (leg, outcome) {
            (Leg::Call(_), Outcome::Result { raw, era }) => match Task::created(&raw, self.is_legacy()) {
                Some(task) => self.begin(&task),
                None => Err(Outcome::Result { raw, era }),
            },
            (Leg::Get(_), Outcome::Result { raw, .. }) => {
                let task = self.got(&raw).filter(|task| Some(&task.id) == self.running.as_ref());
                self.look_at(&task.ok_or_else(|| Outcome::Failed(Failure::malformed()))?)
            }
            (Leg::Update(_), Outcome::Result { .. }) => {
                self.missed = 0;
                self.answers = RawObject::default();
                Ok(self.rest())
            }
            (Leg::Result(_), Outcome::Result { raw, era }) => {
                self.running = None;
                Err(match task::inlined(&raw) {
                    Some(raw) => Outcome::Result { raw, era },
                    None => Outcome::Failed(Failure::malformed()),
                })
            }
            (Leg::Result(_), Outcome::Error { raw }) => {
                self.running = None;
                Err(Outcome::Error { raw })
            }
            (Leg::Get(_) | Leg::Update(_), Outcome::Error { .. }) => {
                Err(broken("The server knows nothing of the task any more that it made of this call."))
            }
            (Leg::Get(_) | Leg::Update(_) | Leg::Result(_), Outcome::Failed(failure)) => self.missed(failure),
            (Leg::Call(_) | Leg::Rest(_) | Leg::Ended, outcome) => Err(outcome),
        }
    }

    /// The task in an answer of its server.
    fn got(&self, raw: &RawJson) -> Option<Task> {
        self.errands.as_ref()?.way.handle.task(raw)
    }

    fn begin(&mut self, task: &Task) -> Result<Leg, Outcome> {
        self.running = Some(task.id.clone());
        self.poll = task.poll;
        self.sign_of_life(task.message.as_deref());
        // Only `tasks/get` and `tasks/result` carry what a task came to.
        Ok(if task.status.is_terminal() { Leg::Rest(clock::now()) } else { self.rest() })
    }

    /// What follows the state of the task.
    fn look_at(&mut self, task: &Task) -> Result<Leg, Outcome> {
        (self.missed, self.poll) = (0, task.poll);
        let is_legacy = self.is_legacy();
        match task.status {
            Status::Cancelled => {
                self.running = None;
                let raw = task::cancelled(&self.upstream, task.message.as_deref());
                let era = if is_legacy { Era::Legacy } else { Era::Modern };
                Err(Outcome::Result { raw, era })
            }
            Status::Completed | Status::Failed | Status::InputRequired if is_legacy => {
                let (Some(errands), Some(id)) = (&self.errands, &self.running) else { return Ok(Leg::Ended) };
                Ok(Leg::Result(errands.send(Method::TasksResult, id, None)))
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
                Ok(self.rest())
            }
        }
    }

    /// Passes new questions on and takes back those that are not asked any more.
    fn questions(&mut self, asked: Vec<(String, RawJson)>) -> Result<(), InputError> {
        // Before anything is made of them.
        let new = asked.iter().filter(|(key, _)| !self.known.contains(key)).count();
        if self.known.len() + new > MAX_QUESTIONS {
            return Err(InputError::Malformed);
        }
        let events = &mut self.events;
        self.open.retain(|(key, _)| {
            let stays = asked.iter().any(|(asked, _)| asked == key);
            if !stays {
                events.push_back(ExchangeEvent::Withdrawn(RawJson::string(key)));
            }
            stays
        });
        for (key, request) in asked {
            if !self.known.insert(key.clone()) {
                continue;
            }
            let InputRequest { method, params } = InputRequest::read(&request)?;
            // The call that it reaches labels it or declines it; a question that the client did not offer to answer ends the call.
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

    /// The status stands in for progress, which tasks do not have.
    fn sign_of_life(&mut self, message: Option<&str>) {
        self.polls = self.polls.saturating_add(1);
        let message = message.map(|text| format!(r#","message":{}"#, RawJson::string(text).text())).unwrap_or_default();
        let progress = || RawJson::trusted(format!(r#"{{"progressToken":0,"progress":{}{message}}}"#, self.polls));
        let event = if self.wants_progress { ExchangeEvent::Progress(progress()) } else { ExchangeEvent::Alive };
        self.events.push_back(event);
    }

    /// A request that never reached the server is made again; the task does not know of it.
    fn missed(&mut self, failure: Failure) -> Result<Leg, Outcome> {
        self.missed += 1;
        if failure.executed == Executed::No && self.missed < MAX_MISSED {
            return Ok(self.rest());
        }
        // The call itself was taken, whatever became of the question about it.
        Err(Outcome::Failed(Failure { executed: Executed::Unknown, ..failure }))
    }

    fn rest(&self) -> Leg {
        if self.open.is_empty() && !self.answers.is_empty() {
            return Leg::Rest(clock::now());
        }
        // A server that wants to be asked seldom must not look like one that is silent.
        let idle = self.errands.as_ref().map_or(self.poll, |errands| errands.way.handle.spec.load().call_timeout);
        Leg::Rest(clock::now() + self.poll.min(idle / 2))
    }
}

fn broken(text: &str) -> Outcome {
    Outcome::Failed(Failure::new(Reason::UpstreamProtocol, Executed::Unknown, text))
}

impl Drop for TaskExchange {
    fn drop(&mut self) {
        let Some(errands) = self.errands.take() else { return };
        let tasks = errands.way.tasks.clone();
        let leg = std::mem::replace(&mut self.leg, Leg::Ended);
        match (leg, self.running.take()) {
            (_, Some(id)) => tasks.spawn("cancelled task", async move { errands.cancel(&id).await }),
            (Leg::Call(call), None) => tasks.spawn("abandoned call", async move { errands.abandon(call).await }),
            (_, None) => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_task_that_asks_too_much_is_not_heard_at_all() {
        let form = RawJson::trusted(r#"{"method":"elicitation/create","params":{"message":"Which?"}}"#);
        let asked = |from: usize, to: usize| -> Vec<(String, RawJson)> {
            (from..to).map(|n| (format!("k{n:06}"), form.clone())).collect()
        };
        let terms = Terms::for_tests(Kinds { form: true, ..Kinds::default() });
        let mut task = TaskExchange::new(None, "git".to_owned(), terms, false, Leg::Ended);
        assert_eq!(task.questions(asked(0, 100_000)), Err(InputError::Malformed));
        assert!(task.open.is_empty() && task.known.is_empty() && task.events.is_empty());
        assert_eq!(task.questions(asked(0, MAX_QUESTIONS)), Ok(()));
        assert_eq!(task.questions(asked(0, MAX_QUESTIONS)), Ok(()), "the same once more");
        assert_eq!((task.open.len(), task.events.len()), (MAX_QUESTIONS, MAX_QUESTIONS));
        assert_eq!(task.questions(asked(1, MAX_QUESTIONS + 1)), Err(InputError::Malformed), "over its life");
        assert_eq!((task.open.len(), task.events.len()), (MAX_QUESTIONS, MAX_QUESTIONS));
    }
}
