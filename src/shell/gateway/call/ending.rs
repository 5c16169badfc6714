//! The one end of a call: what its outcome is to the client, and what is counted and recorded of it.

use std::sync::Arc;

use crate::base::access::Access;
use crate::base::clock;
use crate::engine::call::Outcome;
use crate::engine::failure::{Executed, Failure, Reason};
use crate::engine::fault::Fault;
use crate::gateway::answer::{Answer, refused};
use crate::gateway::call::outcome::{is_tool_error, translate};
use crate::gateway::call::{Call, ClientEvent};
use crate::gateway::prepared::TaskWay;
use crate::mcp::method::Method;
use crate::mcp::nulls;
use crate::mcp::project::{self, is_complete};
use crate::mcp::version::Era;
use crate::policy::{Entry, Event};
use crate::telemetry::metrics::OutcomeLabel;
use crate::wire::quirk::Quirk;
use crate::wire::raw::RawJson;
use crate::wire::unreadable::Unreadable;

impl Call {
    /// The outcome for the client. Rewritten bytes take room of their own.
    pub(super) fn ended(&mut self, outcome: Outcome) -> Option<ClientEvent> {
        let received = match &outcome {
            Outcome::Result { raw, .. } | Outcome::Error { raw } => raw.bytes().as_ptr(),
            Outcome::Failed(_) => std::ptr::null(),
        };
        match self.finish(outcome)? {
            ClientEvent::Done(answer) if answer.bytes().as_ptr() != received => {
                Some(ClientEvent::Done(self.counted(answer)))
            }
            event @ (ClientEvent::Done(_) | ClientEvent::Notice(_) | ClientEvent::Question(_)) => Some(event),
        }
    }

    /// The same answer, with room for the bytes that were written for it.
    pub(super) fn counted(&self, answer: Answer) -> Answer {
        let (budget, caller) = (&self.service.budget, self.access.caller());
        let count = |raw: RawJson| RawJson::trusted(budget.count_rewritten(caller, raw.into_bytes()));
        Answer { outcome: answer.outcome.map(count).map_err(count), status: answer.status }
    }

    fn finish(&mut self, outcome: Outcome) -> Option<ClientEvent> {
        let answer = match outcome {
            Outcome::Failed(failure) => return Some(self.fail(&failure)),
            Outcome::Result { raw, .. } if matches!(self.task_way(), Some(TaskWay::Named { .. })) => {
                return Some(self.about_task(&raw));
            }
            Outcome::Result { raw, era } => {
                if era == Era::Modern && !is_complete(&raw) {
                    return if self.task_way().is_some() { self.became(&raw) } else { self.ask(&raw) };
                }
                if raw.bytes().len() > self.service.max_result_bytes() {
                    return Some(self.fail(&self.too_large()));
                }
                let raw = self.without_nulls(self.without_null_content(raw, era));
                let tool_error = self.labels.method == Method::ToolsCall && is_tool_error(&raw);
                let whole = raw.clone();
                let Some(shown) = project::result(self.labels.method, raw, era, self.revision) else {
                    let why = "a member of the result stands twice";
                    self.handle.health.flaws.unread(&Unreadable::new(whole.bytes(), why));
                    return Some(self.fail(&Failure::malformed()));
                };
                self.count(if tool_error { OutcomeLabel::ToolError } else { OutcomeLabel::Ok });
                Answer::ok(shown)
            }
            Outcome::Error { raw } => {
                if self.retry_as_task(&raw) {
                    return None;
                }
                let wanted = self.pages_of(&raw);
                if let Some(answer) = self.pages(&wanted) {
                    self.count(OutcomeLabel::InputRequired);
                    answer
                } else {
                    self.count(OutcomeLabel::Error);
                    translate(self.labels.method, &raw, self.revision, &wanted)
                }
            }
        };
        self.end();
        Some(ClientEvent::Done(answer))
    }

    /// A result without the optional members that are `null`, which strict clients refuse.
    fn without_nulls(&self, raw: RawJson) -> RawJson {
        let Some(without) = nulls::without_in_result(self.labels.method, &raw) else { return raw };
        self.handle.metrics.fault(Fault::Lenient);
        self.handle.health.flaws.read(Quirk::NullOptional);
        without
    }

    /// A tool's result without `structuredContent: null`: a legacy server can mean nothing by it,
    /// and for a client of an older revision it stays only where the tool's schema is wrapped with
    /// it.
    fn without_null_content(&self, raw: RawJson, era: Era) -> RawJson {
        let both_modern = era == Era::Modern && self.revision.era() == Era::Modern;
        if self.labels.method != Method::ToolsCall || both_modern {
            return raw;
        }
        let Some(without) = project::without_null_content(&raw) else { return raw };
        if era == Era::Legacy {
            self.handle.metrics.fault(Fault::Lenient);
            self.handle.health.flaws.read(Quirk::NullContent);
            return without;
        }
        let is_wrapped =
            || self.view.item(self.entry).is_some_and(|(entry, _)| project::wraps_results(&entry.definition));
        if is_wrapped() { raw } else { without }
    }

    pub(super) fn too_large(&self) -> Failure {
        let text = format!("The result is longer than {} bytes.", self.service.max_result_bytes());
        Failure::new(Reason::ResultTooLarge, Executed::Unknown, text)
    }

    /// Why a call ends before its time.
    pub(super) fn given_up(&self, executed: Executed) -> Failure {
        given_up(&self.access, executed)
    }

    /// Ends the call because the caller's access has ended.
    pub(super) fn give_up(&mut self) -> ClientEvent {
        let failure = self.given_up(Executed::Unknown);
        self.fail(&failure)
    }

    pub(super) fn fail(&mut self, failure: &Failure) -> ClientEvent {
        let outcome = match failure.reason {
            Reason::UpstreamDown | Reason::ShuttingDown | Reason::DaemonAway => OutcomeLabel::UpstreamDown,
            Reason::UpstreamCrashed => OutcomeLabel::Crashed,
            Reason::UpstreamTimeout => OutcomeLabel::Timeout,
            Reason::UpstreamProtocol | Reason::ResultTooLarge => OutcomeLabel::Protocol,
            Reason::Busy => OutcomeLabel::Busy,
            Reason::Denied | Reason::Gone => OutcomeLabel::Denied,
            Reason::Limited => OutcomeLabel::Limited,
            Reason::AwaitingApproval => OutcomeLabel::AwaitingApproval,
            Reason::NeedsLogin => OutcomeLabel::NeedsLogin,
            Reason::Unrecorded => OutcomeLabel::Unrecorded,
        };
        self.count(outcome);
        self.end();
        let answer = if failure.reason == Reason::UpstreamProtocol {
            // A protocol violation of the server is not a tool's result.
            Answer { outcome: Err(failure.error_object(self.labels.call)), status: None }
        } else {
            refused(failure, &self.labels, self.revision)
        };
        ClientEvent::Done(answer)
    }

    /// Counts and records the end of the call.
    pub(super) fn count(&self, outcome: OutcomeLabel) {
        let now = clock::now();
        let total = now.duration_since(self.labels.arrived);
        let upstream = self.running.as_ref().map(|running| now.duration_since(running.sent));
        self.handle.metrics.finished(self.labels.label, outcome, total, upstream);
        let entry = Entry {
            call: Some(self.labels.call),
            caller: Some(self.action.caller.clone()),
            kind: Some(self.action.kind),
            item: Some(Arc::clone(&self.action.canonical)),
            result: outcome.into_str(),
            duration: Some(total),
            ..Entry::new(Event::Outcome)
        };
        // The call has ended: no task waits for this record, and nothing depends on it.
        drop(self.service.audit.record(entry, false));
    }

    /// Ends the exchange: one that has not answered is cancelled by being dropped.
    pub(super) fn end(&mut self) {
        self.done = true;
        self.running = None;
        self.permit.leave();
    }
}

/// Why a call ends whose caller's access has ended.
pub fn given_up(access: &Access, executed: Executed) -> Failure {
    if access.is_withdrawn() {
        return Failure::new(Reason::Denied, executed, "The access of this caller was withdrawn.");
    }
    Failure::new(Reason::ShuttingDown, executed, "The gateway is shutting down.")
}
