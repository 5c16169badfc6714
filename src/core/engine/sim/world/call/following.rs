//! A call that its server makes a task of.

use super::Call;
use crate::engine::ask::ClientAnswer;
use crate::engine::call::Outgoing;
use crate::engine::event::ExchangeEvent;
use crate::engine::sim::world::chance::Chance;
use crate::engine::sim::world::gateway::Gateway;
use crate::engine::sim::world::link::Link;
use crate::engine::task::{Errand, Following};
use crate::mcp::extension::TASKS;
use crate::mcp::method::Method;
use crate::mcp::version::Era;
use crate::wire::raw::{RawJson, RawObject};

impl Call {
    /// Makes the call as one that may become a task.
    pub(super) fn send_as_task(&mut self, gateway: &mut Gateway, links: &mut [Link]) -> bool {
        let (era, name) = (links[self.link].era(), self.entry.upstream_name.to_string());
        match era {
            Era::Legacy => {
                self.outgoing.body.set("task", RawJson::trusted(r#"{"ttl":300000}"#));
                self.outgoing.party.is_task = true;
            }
            Era::Modern => self.outgoing.capabilities = Some(TASKS.added_to(self.outgoing.capabilities.as_ref())),
        }
        self.following = Some(Following::new(era, name, self.terms.clone(), self.outgoing.wants_progress));
        self.hand_over(&self.outgoing, gateway, links);
        true
    }

    /// Whether the server was told that the call may become a task.
    pub(super) fn may_be_task(&self) -> bool {
        self.outgoing.capabilities.as_ref().is_some_and(|raw| TASKS.is_in(raw))
    }

    /// Sends a request about the call's task.
    pub(super) fn errand(&self, errand: Errand, gateway: &Gateway, links: &mut [Link]) {
        let Some(id) = self.following.as_ref().and_then(Following::running) else { return };
        let (method, responses) = match errand {
            Errand::Call | Errand::Get => (Method::TasksGet, None),
            Errand::Update(responses) => (Method::TasksUpdate, Some(responses)),
            Errand::Result => (Method::TasksResult, None),
        };
        self.hand_over(&self.about_task(method, id, responses), gateway, links);
    }

    pub(super) fn about_task(&self, method: Method, id: &str, responses: Option<RawJson>) -> Outgoing {
        let mut body = RawObject::default();
        body.set("taskId", RawJson::string(id));
        if let Some(responses) = responses {
            body.set("inputResponses", responses);
        }
        let can_be_asked = self.outgoing.can_be_asked && method == Method::TasksResult;
        Outgoing { method, body, can_be_asked, wants_progress: false, ..self.outgoing.clone() }
    }

    /// Takes an answer to the server, by the name that the question has there.
    pub(super) fn tell_server(&mut self, id: &RawJson, answer: ClientAnswer, gateway: &Gateway, links: &mut [Link]) {
        match &mut self.following {
            Some(following) if following.era() == Era::Modern => following.reply(id, answer, gateway.now),
            _ => links[self.link].reply(id, &answer),
        }
    }

    /// What comes of a call that is a task. Whether the call goes on.
    pub(super) fn follow(&mut self, gateway: &mut Gateway, links: &mut [Link], chance: &mut Chance) -> bool {
        while let Some(event) = self.following.as_mut().and_then(Following::poll_event) {
            let is_end = matches!(event, ExchangeEvent::Done(_));
            if is_end {
                self.following = None;
            }
            if !self.hear(event, gateway, links, chance) {
                return false;
            }
            if is_end {
                break;
            }
        }
        true
    }
}
