//! Ends a call: translates its outcome for the client, and writes its metrics and record.

use std::sync::Arc;

use crate::base::clock;
use crate::engine::call::CallOutcome;
use crate::engine::failure::{CallFailure, ExecutionDoubt, FailureReason};
use crate::engine::fault::ProtocolFault;
use crate::gateway::answer::{RequestAnswer, refusal_answer};
use crate::gateway::call::apps::ReadRefusal;
use crate::gateway::call::context::{CallContext, access_failure};
use crate::gateway::call::outcome::{is_tool_error, translate};
use crate::gateway::call::state::CallState;
use crate::gateway::call::{ClientEvent, PermittedCall};
use crate::gateway::decision::prepared::ClientTaskUse;
use crate::mcp::method::Method;
use crate::mcp::nulls;
use crate::mcp::project::{self, is_complete};
use crate::mcp::version::Era;
use crate::policy::{AuditEntry, AuditEvent};
use crate::telemetry::metrics::OutcomeLabel;
use crate::wire::json::raw::RawJson;
use crate::wire::quirk::Quirk;
use crate::wire::unreadable::UnreadableBytes;

impl PermittedCall {
    /// Translates the upstream's outcome into the client's next event, and ends the call if that is
    /// its answer. Returns `None` if the call continues. Bytes that were rewritten are counted in
    /// the buffer budget.
    pub fn ended(&mut self, outcome: CallOutcome) -> Option<ClientEvent> {
        let received = match &outcome {
            CallOutcome::Result { raw, .. } | CallOutcome::Error { raw } => raw.bytes().as_ptr(),
            CallOutcome::Failed(_) => std::ptr::null(),
        };
        match self.finish(outcome)? {
            ClientEvent::Done(answer) if answer.bytes().as_ptr() != received => {
                Some(ClientEvent::Done(self.context.counted(answer)))
            }
            event @ (ClientEvent::Done(_) | ClientEvent::Notice(_) | ClientEvent::Question(_)) => Some(event),
        }
    }

    /// Turns an outcome into the answer, a question or a task, or sends the call a second time as a
    /// task and returns `None`. An answer ends the call, and its metrics and audit record are
    /// written.
    fn finish(&mut self, outcome: CallOutcome) -> Option<ClientEvent> {
        let answer = match outcome {
            CallOutcome::Failed(failure) => return Some(self.fail(&failure)),
            CallOutcome::Result { raw, .. } if matches!(self.context.task_way(), Some(ClientTaskUse::Named { .. })) => {
                return Some(self.about_task(&raw));
            }
            CallOutcome::Result { raw, era } => {
                if era == Era::Modern && !is_complete(&raw) {
                    return if self.context.task_way().is_some() { self.became(&raw) } else { self.ask(&raw) };
                }
                if raw.bytes().len() > self.context.service.max_result_bytes() {
                    return Some(self.fail(&self.context.too_large()));
                }
                let raw = self.context.without_nulls(self.context.without_null_content(raw, era));
                let raw = match self.context.pass_uris(raw) {
                    Ok(raw) => raw,
                    Err(ReadRefusal::Unknown(answer)) => {
                        self.count(OutcomeLabel::Denied);
                        self.end();
                        return Some(ClientEvent::Done(answer));
                    }
                    Err(ReadRefusal::Failed(failure)) => return Some(self.fail(&failure)),
                };
                let tool_error = self.context.labels.method == Method::ToolsCall && is_tool_error(&raw);
                let whole = raw.clone();
                let Some(shown) = project::project_result(self.context.labels.method, raw, era, self.context.revision)
                else {
                    let why = "a member of the result stands twice";
                    self.context.handle.health.flaws.unread(&UnreadableBytes::new(whole.bytes(), why));
                    return Some(self.fail(&CallFailure::malformed()));
                };
                self.count(if tool_error { OutcomeLabel::ToolError } else { OutcomeLabel::Ok });
                RequestAnswer::ok(shown)
            }
            CallOutcome::Error { raw } => {
                if self.retry_as_task(&raw) {
                    return None;
                }
                let wanted = self.context.pages_of(&raw);
                if let Some(answer) = self.context.pages(&wanted) {
                    self.count(OutcomeLabel::InputRequired);
                    answer
                } else {
                    self.count(OutcomeLabel::Error);
                    translate(self.context.labels.method, &raw, self.context.revision, &wanted)
                }
            }
        };
        self.end();
        Some(ClientEvent::Done(answer))
    }

    /// Ends the call because the caller's access has ended; counts and records it, and returns the
    /// answer.
    pub fn give_up(&mut self) -> ClientEvent {
        let failure = self.context.given_up(ExecutionDoubt::Unknown);
        self.fail(&failure)
    }

    /// Ends the call with a failure; counts and records it, and returns the answer.
    pub fn fail(&mut self, failure: &CallFailure) -> ClientEvent {
        let outcome = match failure.reason {
            FailureReason::UpstreamDown
            | FailureReason::ShuttingDown
            | FailureReason::DaemonAway
            | FailureReason::ReplicaLost => OutcomeLabel::UpstreamDown,
            FailureReason::UpstreamCrashed => OutcomeLabel::Crashed,
            FailureReason::UpstreamTimeout => OutcomeLabel::Timeout,
            FailureReason::UpstreamProtocol | FailureReason::ResultTooLarge => OutcomeLabel::Protocol,
            FailureReason::Busy => OutcomeLabel::Busy,
            FailureReason::Denied | FailureReason::InsufficientScope => OutcomeLabel::Denied,
            FailureReason::Limited => OutcomeLabel::Limited,
            FailureReason::AwaitingApproval => OutcomeLabel::AwaitingApproval,
            FailureReason::NeedsLogin => OutcomeLabel::NeedsLogin,
            FailureReason::Unrecorded | FailureReason::StoreUnavailable => OutcomeLabel::Unrecorded,
        };
        self.count(outcome);
        self.end();
        let answer = if failure.reason == FailureReason::UpstreamProtocol {
            // A protocol violation of the server is not a tool's result.
            RequestAnswer::failed(failure.error_object(self.context.labels.call))
        } else {
            refusal_answer(failure, &self.context.labels, self.context.revision)
        };
        ClientEvent::Done(answer)
    }

    /// Writes the end of the call to the metrics and the audit log.
    pub fn count(&self, outcome: OutcomeLabel) {
        let now = clock::now();
        let total = now.duration_since(self.context.labels.arrived);
        let upstream =
            if let CallState::Running(running) = &self.state { Some(now.duration_since(running.sent)) } else { None };
        self.context.handle.metrics.finished(self.context.labels.label, outcome, total, upstream);
        let entry = AuditEntry {
            call: Some(self.context.labels.call),
            caller: Some(self.context.action.caller.clone()),
            kind: Some(self.context.action.kind),
            item: Some(Arc::clone(&self.context.action.canonical)),
            result: outcome.into_str(),
            duration: Some(total),
            ..AuditEntry::new(AuditEvent::Outcome)
        };
        // No wait: the call has ended, and nothing depends on this record.
        drop(self.context.service.audit.record(entry, false));
    }

    /// Returns whether the call has ended: it was answered, or ended without an answer, or only
    /// waits for withdrawals of its open questions before the answer.
    pub const fn is_over(&self) -> bool {
        matches!(self.state, CallState::Parting(_) | CallState::Ended)
    }

    /// Ends the call without counting it, and frees the slots of its permit. Drops its exchange,
    /// which cancels a call that the upstream has not answered.
    pub fn end(&mut self) {
        self.state = CallState::Ended;
        self.context.permit.leave();
    }
}

impl CallContext {
    /// Counts the rewritten bytes of an answer in the buffer budget.
    pub(super) fn counted(&self, answer: RequestAnswer) -> RequestAnswer {
        let (budget, caller) = (&self.service.budget, self.access.caller());
        let count = |raw: RawJson| RawJson::trusted(budget.count_rewritten(caller, raw.into_bytes()));
        let RequestAnswer { outcome, status, scopes } = answer;
        RequestAnswer { outcome: outcome.map(count).map_err(count), status, scopes }
    }

    /// Removes optional members that are `null` from a result, since strict clients refuse them;
    /// counts the fault.
    fn without_nulls(&self, raw: RawJson) -> RawJson {
        let Some(without) = nulls::remove_nulls_of_result(self.labels.method, &raw) else { return raw };
        self.handle.metrics.fault(ProtocolFault::Lenient);
        self.handle.health.flaws.read(Quirk::NullOptional);
        without
    }

    /// Removes `structuredContent: null` from a tool's result. A legacy server can mean nothing by
    /// it; from a modern server to a legacy client it stays only if the tool's schema is wrapped.
    fn without_null_content(&self, raw: RawJson, era: Era) -> RawJson {
        let both_modern = era == Era::Modern && self.revision.era() == Era::Modern;
        if self.labels.method != Method::ToolsCall || both_modern {
            return raw;
        }
        let Some(without) = project::without_null_content(&raw) else { return raw };
        if era == Era::Legacy {
            self.handle.metrics.fault(ProtocolFault::Lenient);
            self.handle.health.flaws.read(Quirk::NullContent);
            return without;
        }
        let is_wrapped =
            || self.view.item(self.entry).is_some_and(|(entry, _)| project::wraps_results(&entry.definition));
        if is_wrapped() { raw } else { without }
    }

    pub(super) fn too_large(&self) -> CallFailure {
        let text = format!("The result is longer than {} bytes.", self.service.max_result_bytes());
        CallFailure::new(FailureReason::ResultTooLarge, ExecutionDoubt::Unknown, text)
    }

    /// Returns the failure of a call whose caller's access has ended.
    pub(super) fn given_up(&self, executed: ExecutionDoubt) -> CallFailure {
        access_failure(&self.access, executed)
    }
}
