//! Calls that become tasks of the client, and requests about these tasks.

use std::sync::Arc;

use crate::base::clock;
use crate::engine::task_id::TaskName;
use crate::gateway::answer::Answer;
use crate::gateway::call::{Call, ClientEvent};
use crate::gateway::prepared::TaskWay;
use crate::mcp::extension::TASKS;
use crate::mcp::input::InputError;
use crate::mcp::method::Method;
use crate::mcp::task::Task;
use crate::telemetry::metrics::OutcomeLabel;
use crate::upstream::exchange::Exchange;
use crate::upstream::link::Link;
use crate::upstream::session::LaneUse;
use crate::upstream::task::{Manner, TaskExchange, Way, decline_questions};
use crate::wire::raw::RawJson;

impl Call {
    pub(super) fn task_way(&self) -> Option<&TaskWay> {
        self.input.as_ref().and_then(|input| input.task.as_ref())
    }

    pub(super) fn way(&self, link: Link, lane: LaneUse) -> Way {
        let (handle, tasks) = (Arc::clone(&self.handle), self.service.tasks.clone());
        Way { handle, link, lane, permit: self.permit.onward(), tasks }
    }

    /// Makes the call again as one that may become a task, where the server did not take it otherwise.
    pub(super) fn retry_as_task(&mut self, error: &RawJson) -> bool {
        let Some((running, outgoing)) = self.running.as_ref().zip(self.kept.as_ref()) else { return false };
        let is_first = !matches!(running.exchange, Exchange::Task(_));
        let is_wanted = is_first && TASKS.alone_is_wanted(error);
        let Some(link) = running.lane.open_link().filter(|_| is_wanted) else { return false };
        let Some((entry, _)) = self.view.item(self.entry) else { return false };
        if Manner::of(&link, self.labels.method, entry, self.task_way().is_some()) != Manner::Perhaps {
            return false;
        }
        if self.recheck().is_err() {
            return false;
        }
        let way = self.way(link, running.lane.clone());
        let exchange = TaskExchange::start(way, self.terms(), outgoing.clone(), &entry.headers);
        if let Some(running) = &mut self.running {
            running.exchange = Exchange::Task(Box::new(exchange));
        }
        true
    }

    /// The call has become a task, or asks for input.
    pub(super) fn became(&mut self, raw: &RawJson) -> Option<ClientEvent> {
        let Some(task) = Task::created(raw, false).filter(|_| self.input.is_some()) else { return self.ask(raw) };
        let (upstream, item) = (self.handle.name.to_string(), self.action.canonical.to_string());
        let name = TaskName { upstream, item, id: task.id.clone() };
        let Some(id) = self.service.keys.task_ids.seal(&self.action.caller, &name, clock::uptime(), clock::random())
        else {
            return Some(self.misasked(InputError::Malformed));
        };
        if let Some(running) = &self.running {
            // A lazy upstream must not be stopped in the middle of it.
            running.lane.keep_for(task.life());
        }
        self.count(OutcomeLabel::Task);
        self.end();
        Some(ClientEvent::Done(Answer::ok(task.for_caller(&id))))
    }

    /// Answers questions of the client's own task that the client is not shown.
    fn decline_in_task(&self, task: &str, declined: &[(String, InputError)]) {
        let (Some(running), Some(outgoing)) = (&self.running, &self.kept) else { return };
        let Some(link) = running.lane.open_link().filter(|_| !declined.is_empty()) else { return };
        let way = self.way(link, running.lane.clone());
        decline_questions(way, outgoing, task, declined.iter().map(|(key, _)| key.as_str()));
    }

    /// The answer to a request about a task.
    pub(super) fn about_task(&mut self, raw: &RawJson) -> ClientEvent {
        let Some(TaskWay::Named { theirs, ours }) = self.task_way() else {
            return self.misasked(InputError::Malformed);
        };
        let shown = if self.labels.method == Method::TasksGet {
            let task = self.handle.task(raw).filter(|task| task.id == *theirs).ok_or(InputError::Malformed);
            task.and_then(|task| task.shown(ours, &self.terms()))
        } else {
            Ok((RawJson::trusted(r#"{"resultType":"complete"}"#), Vec::new()))
        };
        let shown = shown.map(|(shown, declined)| {
            declined.iter().for_each(|(_, why)| self.declined(*why));
            self.decline_in_task(theirs, &declined);
            shown
        });
        match shown {
            Ok(shown) if shown.bytes().len() > self.service.max_result_bytes() => self.fail(&self.too_large()),
            Ok(shown) => {
                self.count(OutcomeLabel::Ok);
                self.end();
                ClientEvent::Done(Answer::ok(shown))
            }
            Err(why) => self.misasked(why),
        }
    }
}
