//! Calls that become tasks, and requests about these tasks.

use std::sync::Arc;

use crate::base::clock;
use crate::engine::sealed::task_id::TaskName;
use crate::gateway::answer::RequestAnswer;
use crate::gateway::call::context::CallContext;
use crate::gateway::call::running::RunningCall;
use crate::gateway::call::state::CallState;
use crate::gateway::call::{ClientEvent, PermittedCall};
use crate::gateway::decision::prepared::ClientTaskUse;
use crate::mcp::asking::input::InputError;
use crate::mcp::extension::TASKS;
use crate::mcp::method::Method;
use crate::mcp::task::ServerTask;
use crate::telemetry::metrics::OutcomeLabel;
use crate::upstream::call::exchange::UpstreamExchange;
use crate::upstream::call::task::{CallRoute, TaskExchange, TaskRelation, decline_questions};
use crate::upstream::session::lane::LaneUse;
use crate::upstream::session::link::UpstreamLink;
use crate::wire::json::raw::RawJson;

impl PermittedCall {
    /// Sends the call again as one that may become a task, if its server accepts it only as such.
    /// Returns false if the error says otherwise or the call may not be sent again.
    pub(super) fn retry_as_task(&mut self, error: &RawJson) -> bool {
        let context = &self.context;
        let CallState::Running(running) = &mut self.state else { return false };
        let Some(request) = &running.request else { return false };
        let is_first = !matches!(running.exchange, UpstreamExchange::Task(_));
        let is_wanted = is_first && TASKS.alone_is_wanted(error);
        let Some(link) = running.lane.open_link().filter(|_| is_wanted) else { return false };
        let Ok(entry) = context.item() else { return false };
        if TaskRelation::of(&link, context.labels.method, entry, context.task_way().is_some()) != TaskRelation::Perhaps
        {
            return false;
        }
        if context.recheck(false).is_err() {
            return false;
        }
        let way = context.task_channel(link, running.lane.clone());
        let exchange = TaskExchange::start(way, context.terms(), request.clone(), &entry.headers);
        running.exchange = UpstreamExchange::Task(Box::new(exchange));
        true
    }

    /// Ends the call with the task that it became as its answer, under an id sealed for its caller.
    /// Any other incomplete result is a request for input, and is handled as such.
    pub(super) fn became(&mut self, raw: &RawJson) -> Option<ClientEvent> {
        let Some(task) = ServerTask::created(raw, false).filter(|_| self.context.input.is_some()) else {
            return self.ask(raw);
        };
        let (upstream, item) = (self.context.handle.name.to_string(), self.context.action.canonical.to_string());
        let name = TaskName { upstream, item, id: task.id.clone() };
        let keys = &self.context.service.keys;
        let id = keys.task_ids.seal(&self.context.action.caller, &name, clock::uptime(), clock::random());
        let Some(id) = id else { return Some(self.misasked(InputError::Malformed)) };
        let id = keys.run.get().map_or_else(|| id.clone(), |run| run.mark(&id));
        if let CallState::Running(running) = &self.state {
            // Keeps a lazy upstream from being stopped while the task runs.
            running.lane.keep_for(task.life());
        }
        self.count(OutcomeLabel::Task);
        self.end();
        Some(ClientEvent::Done(RequestAnswer::ok(task.for_caller(&id))))
    }

    /// Declines, at the server, the questions of a task that the client is not shown; `declined`
    /// has their keys.
    fn decline_in_task(&self, task: &str, declined: &[(String, InputError)]) {
        let CallState::Running(RunningCall { lane, request: Some(request), .. }) = &self.state else { return };
        let Some(link) = lane.open_link().filter(|_| !declined.is_empty()) else { return };
        let way = self.context.task_channel(link, lane.clone());
        decline_questions(way, request, task, declined.iter().map(|(key, _)| key.as_str()));
    }

    /// Makes the client's answer from `raw`, the server's result of a request about a task, and
    /// ends the call. The questions of the task that the client is not shown are declined at the
    /// server.
    pub(super) fn about_task(&mut self, raw: &RawJson) -> ClientEvent {
        let Some(ClientTaskUse::Named { theirs, ours }) = self.context.task_way() else {
            return self.misasked(InputError::Malformed);
        };
        let shown = if self.context.labels.method == Method::TasksGet {
            let task = self.context.handle.task(raw).filter(|task| task.id == *theirs).ok_or(InputError::Malformed);
            task.and_then(|task| task.shown(ours, &self.context.terms()))
        } else {
            Ok((RawJson::trusted(r#"{"resultType":"complete"}"#), Vec::new()))
        };
        let shown = shown.and_then(|(shown, declined)| {
            declined.iter().for_each(|(_, why)| self.context.declined(*why));
            self.decline_in_task(theirs, &declined);
            self.context.hand_uris_of_task(shown).map_err(|_| InputError::Malformed)
        });
        match shown {
            Ok(shown) if shown.bytes().len() > self.context.service.max_result_bytes() => {
                self.fail(&self.context.too_large())
            }
            Ok(shown) => {
                self.count(OutcomeLabel::Ok);
                self.end();
                ClientEvent::Done(RequestAnswer::ok(shown))
            }
            Err(why) => self.misasked(why),
        }
    }
}

impl CallContext {
    /// Returns the request's relation to tasks, if its client knows them.
    pub(super) fn task_way(&self) -> Option<&ClientTaskUse> {
        self.input.as_ref().and_then(|input| input.task.as_ref())
    }

    /// Builds the channel over which a call that may become a task is sent and followed.
    pub(super) fn task_channel(&self, link: UpstreamLink, lane: LaneUse) -> CallRoute {
        let (handle, tasks) = (Arc::clone(&self.handle), self.service.tasks.clone());
        CallRoute { handle, link, lane, permit: self.permit.onward(), tasks }
    }
}
