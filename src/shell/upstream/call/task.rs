//! A call that its server continues as a task, for a client without the extension: the client's
//! request stays open, and the gateway polls the task until it ends, as [`crate::engine::task`]
//! decides.
//!
//! To other code this is one call upstream: it yields questions, progress and one outcome, and
//! dropping it cancels the task.

use std::sync::Arc;
use std::time::Duration;

use futures_util::future::BoxFuture;

use crate::base::clock;
use crate::base::task_group::TaskGroup;
use crate::catalog::merge::CatalogEntry;
use crate::engine::call::{CallOutcome, OutgoingCall};
use crate::engine::connection::ask::ClientAnswer;
use crate::engine::event::CallEvent;
use crate::engine::task::{FollowedCall, TaskRequest};
use crate::mcp::asking::elicitation::ElicitationTerms;
use crate::mcp::asking::input::decline;
use crate::mcp::asking::kinds::InputKinds;
use crate::mcp::extension::TASKS;
use crate::mcp::method::Method;
use crate::mcp::task::{self, ServerTask};
use crate::mcp::version::Era;
use crate::policy::Permit;
use crate::upstream::session::handle::UpstreamHandle;
use crate::upstream::session::lane::LaneUse;
use crate::upstream::session::link::UpstreamLink;
use crate::upstream::session::sent::SentCall;
use crate::upstream::turns::SharedCallTurn;
use crate::wire::headers::ParamHeaders;
use crate::wire::json::raw::{RawJson, RawObject};

/// How long to wait for a cancellation, or for the answer to an abandoned call.
const FAREWELL: Duration = Duration::from_secs(5);

/// The relation of a call to tasks of its server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum TaskRelation {
    /// The call cannot become a task, or its client handles tasks itself.
    Plain,
    /// The server of 2025-11-25 accepts the call only as a task.
    Required,
    /// The server of 2026-07-28 may require a client that supports tasks.
    Perhaps,
}

impl TaskRelation {
    /// Determines the relation. `declared`: the client handles tasks itself.
    pub(crate) fn of(link: &UpstreamLink, method: Method, entry: &CatalogEntry, declared: bool) -> Self {
        let agreed = link.agreed();
        if method != Method::ToolsCall || !agreed.offers.extensions.has(&TASKS) {
            return Self::Plain;
        }
        match agreed.revision.era() {
            Era::Modern if !declared => Self::Perhaps,
            Era::Legacy if task::is_required(&entry.definition) => Self::Required,
            Era::Modern | Era::Legacy => Self::Plain,
        }
    }
}

/// Everything needed to send further requests to the server of a call.
#[derive(Debug)]
pub struct CallRoute {
    pub handle: Arc<UpstreamHandle>,
    pub link: UpstreamLink,
    pub lane: LaneUse,
    pub permit: Permit,
    pub tasks: TaskGroup,
}

/// The sender of requests about one call's task.
#[derive(Debug)]
struct TaskRequests {
    way: CallRoute,
    /// The call's parameters that requests about its task share.
    pattern: OutgoingCall,
}

impl TaskRequests {
    /// Sends a request about the task with this id.
    fn send(&self, method: Method, id: &str, responses: Option<RawJson>) -> SentCall {
        let mut body = RawObject::of_strings(&[("taskId", id)]);
        body.set_some("inputResponses", responses);
        // Only the request that waits for the result can bring a legacy server's questions.
        let waits = method == Method::TasksResult;
        let can_be_asked = self.pattern.can_be_asked && waits;
        let outgoing = OutgoingCall { method, body, can_be_asked, ..self.pattern.clone() };
        self.way.handle.call(&self.way.link, &self.way.permit, outgoing, &ParamHeaders::default())
    }

    /// Asks the server to cancel the task, and waits for the answer for [`FAREWELL`] at most. The
    /// answer is ignored.
    async fn cancel(&self, id: &str) {
        let mut exchange = self.send(Method::TasksCancel, id, None);
        drop(tokio::time::timeout(FAREWELL, exchange.outcome()).await);
    }

    /// Waits for the answer to a call that no client waits for, for [`FAREWELL`] at most, and
    /// cancels the task if the answer names one.
    async fn abandon(&self, mut call: SentCall, era: Era) {
        let answered = tokio::time::timeout(FAREWELL, call.outcome()).await;
        if let Ok(CallOutcome::Result { raw, .. }) = answered
            && let Some(task) = ServerTask::created(&raw, era == Era::Legacy)
        {
            self.cancel(&task.id).await;
        }
    }
}

/// Declines the questions with these keys, which a client's own task asks, in the background. The
/// answer is ignored, since the client polls the task again in any case.
pub(crate) fn decline_questions<'k>(
    way: CallRoute,
    call: &OutgoingCall,
    id: &str,
    keys: impl Iterator<Item = &'k str>,
) {
    let mut responses = RawObject::default();
    for key in keys {
        responses.set(key, decline());
    }
    let tasks = way.tasks.clone();
    let errands = TaskRequests { way, pattern: OutgoingCall { body: RawObject::default(), ..call.clone() } };
    let mut exchange = errands.send(Method::TasksUpdate, id, Some(responses.encode()));
    tasks.spawn("declined question", async move {
        drop(tokio::time::timeout(FAREWELL, exchange.outcome()).await);
        drop(errands);
    });
}

/// A call that its server may turn into a task, followed until its outcome. Dropping it before
/// cancels the task or abandons the call, in the background.
#[derive(Debug)]
pub struct TaskExchange {
    following: FollowedCall,
    /// The call or the request about its task that is under way; `None` between two polls.
    sent: Option<SentCall>,
    /// The sender of the task's requests; `None` only while the value is dropped.
    errands: Option<TaskRequests>,
}

impl TaskExchange {
    /// Sends a call, telling the server that it may become a task.
    pub fn start(way: CallRoute, terms: ElicitationTerms, mut outgoing: OutgoingCall, headers: &ParamHeaders) -> Self {
        let era = way.link.agreed().revision.era();
        let terms = ElicitationTerms { offered: InputKinds::of(outgoing.capabilities.as_ref()), ..terms };
        if era == Era::Legacy {
            let ttl = way.handle.spec.load().call_max.as_millis();
            outgoing.body.set("task", RawJson::trusted(format!(r#"{{"ttl":{ttl}}}"#)));
            outgoing.party.is_task = true;
        } else {
            outgoing.capabilities = Some(TASKS.added_to(outgoing.capabilities.as_ref()));
        }
        let following = FollowedCall::new(era, way.handle.name.to_string(), terms, outgoing.wants_progress);
        let pattern =
            OutgoingCall { body: RawObject::default(), wants_progress: false, log_level: None, ..outgoing.clone() };
        let sent = way.handle.call(&way.link, &way.permit, outgoing, headers);
        Self { following, sent: Some(sent), errands: Some(TaskRequests { way, pattern }) }
    }

    /// Waits for the next event. Cancel-safe: requests in progress are kept.
    pub fn next(&mut self) -> BoxFuture<'_, CallEvent> {
        Box::pin(async move {
            loop {
                if let Some(event) = self.following.poll_event() {
                    return event;
                }
                let errand = if let Some(sent) = &mut self.sent {
                    let event = sent.next().await;
                    // Requests about a task belong to a call that has begun.
                    if matches!(event, CallEvent::Unwritten) && self.following.running().is_some() {
                        continue;
                    }
                    let CallEvent::Done(outcome) = event else { return event };
                    self.answered(outcome)
                } else {
                    let due = self.following.due();
                    clock::sleep_until(due).await;
                    due.and_then(|due| self.following.ask_after(due))
                };
                self.sent = errand.and_then(|errand| self.send(errand));
            }
        })
    }

    fn answered(&mut self, outcome: CallOutcome) -> Option<TaskRequest> {
        let handle = &self.errands.as_ref()?.way.handle;
        let idle = handle.spec.load().call_timeout;
        self.following.answered(outcome, |raw| handle.task(raw), idle, clock::now())
    }

    /// Sends the request that the task's state asks for.
    fn send(&self, errand: TaskRequest) -> Option<SentCall> {
        let (method, responses) = match errand {
            TaskRequest::Call | TaskRequest::Get => (Method::TasksGet, None),
            TaskRequest::Update(responses) => (Method::TasksUpdate, Some(responses)),
            TaskRequest::Result => (Method::TasksResult, None),
        };
        Some(self.errands.as_ref()?.send(method, self.following.running()?, responses))
    }

    /// Passes on the client's answer to a question, by its id.
    pub fn reply(&mut self, id: &RawJson, answer: ClientAnswer) {
        match self.following.era() {
            Era::Modern => self.following.reply(id, answer, clock::now()),
            Era::Legacy => {
                if let Some(sent) = &mut self.sent {
                    sent.reply(id, answer);
                }
            }
        }
    }

    /// Parks the request in progress: the client has all questions asked so far.
    pub fn parked(&mut self, turn: SharedCallTurn) {
        if let Some(sent) = &mut self.sent {
            sent.parked(turn);
        }
    }
}

impl Drop for TaskExchange {
    fn drop(&mut self) {
        let Some(errands) = self.errands.take() else { return };
        let (tasks, era) = (errands.way.tasks.clone(), self.following.era());
        match (self.following.running().map(str::to_owned), self.sent.take()) {
            (Some(id), _) => tasks.spawn("cancelled task", async move { errands.cancel(&id).await }),
            // While no task runs, only the call itself can be under way.
            (None, Some(call)) => tasks.spawn("abandoned call", async move { errands.abandon(call, era).await }),
            (None, None) => {}
        }
    }
}
