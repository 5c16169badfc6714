//! Requests of a modern client about a task that one of its calls became. The sealed task id names
//! the upstream.

use std::sync::Arc;
use std::time::Instant;

use crate::base::clock;
use crate::engine::askers::Party;
use crate::engine::call::Outgoing;
use crate::engine::task_id::TaskName;
use crate::gateway::answer::{Answer, refused};
use crate::gateway::client::ClientContext;
use crate::gateway::client::quota::Good;
use crate::gateway::decision::found::Found;
use crate::gateway::decision::prepared::{InputContext, Prepared, TaskWay};
use crate::gateway::decision::{GoingOn, RecordedRefusal};
use crate::gateway::service::Service;
use crate::gateway::waiting::client_call::Handled;
use crate::mcp::extension::TASKS;
use crate::mcp::kinds::Kinds;
use crate::mcp::meta::Meta;
use crate::mcp::method::{List, Method};
use crate::policy::Kind;
use crate::wire::code;
use crate::wire::raw::{RawJson, RawObject};

/// Returns the answer to an id that names no task of this caller. All such ids get the same answer,
/// so a client cannot learn ids by trying.
pub(super) fn unknown() -> Answer {
    Answer::error(code::INVALID_PARAMS, "Unknown task", None)
}

impl Service {
    /// Serves `tasks/get`, `tasks/update` and `tasks/cancel` of a modern client: opens the task id
    /// and sends the request to its upstream.
    pub(super) fn task(
        self: &Arc<Self>,
        client: &ClientContext,
        method: Method,
        params: &RawObject,
        meta: Meta,
        arrived: Instant,
    ) -> Handled {
        if !meta.declares(&TASKS) {
            let text = "this method needs the tasks extension";
            let answer = Answer::error(code::MISSING_CAPABILITY, text, Some(&TASKS.required_data()));
            return Handled::Answer(answer.with_status(400));
        }
        let Some(ours) = params.string("taskId") else {
            return Handled::Answer(Answer::error(code::INVALID_PARAMS, "params lacks `taskId`", None));
        };
        let responses = params.get("inputResponses").filter(|raw| raw.is_object());
        if method == Method::TasksUpdate && responses.is_none() {
            return Handled::Answer(Answer::error(code::INVALID_PARAMS, "params lacks `inputResponses`", None));
        }
        let Some(name) = self.keys.task_ids.open(&client.caller, &ours, clock::uptime()) else {
            return Handled::Answer(unknown());
        };
        let responses = responses.filter(|_| method == Method::TasksUpdate);
        let outgoing = about(method, &name, responses, meta);
        self.send_on(client, outgoing, &name, ours, arrived)
    }

    /// Decides the request by the rules of the tool whose call became the task, and prepares it for
    /// the upstream.
    fn send_on(
        self: &Arc<Self>,
        client: &ClientContext,
        mut outgoing: Outgoing,
        name: &TaskName,
        ours: String,
        arrived: Instant,
    ) -> Handled {
        let snapshot = self.snapshots.load_full();
        let Some(view) = snapshot.view(client.profile.as_deref()) else { return Handled::Answer(unknown()) };
        let at = view.catalog.entries().iter().position(|entry| {
            entry.list == List::Tools && *entry.canonical == *name.item && entry.upstream_name.as_str() == name.upstream
        });
        let found = at.and_then(|at| Found::new(&snapshot, view, at));
        let Some(found) = found else { return Handled::Answer(unknown()) };
        let Some(share) = self.admission.quota.take(&client.caller, Good::Call) else { return Handled::Overloaded };
        let action = found.action(client, Kind::Task, None);
        let labels = self.labels(outgoing.method, arrived);
        self.withhold(&mut outgoing, &found, client);
        let offered = Kinds::of(outgoing.capabilities.as_ref());
        outgoing.capabilities = Some(TASKS.added_to(outgoing.capabilities.as_ref()));
        let input = Box::new(InputContext {
            offered,
            is_here: client.is_here,
            round: 0,
            carrier: client.carrier(),
            client_requests: None,
            parked: None,
            task: Some(TaskWay::Named { theirs: name.id.clone(), ours }),
        });
        let prepared = Prepared {
            client,
            found,
            action,
            labels,
            outgoing,
            token: None,
            going_on: GoingOn::Permitted(None),
            asks: Kinds::default(),
            input: Some(input),
            share,
        };
        let Some(place) = self.enter(client) else { return Handled::Overloaded };
        match self.decide(&prepared.found, &prepared.action, &prepared.going_on, labels.call) {
            Ok(permit) => self.permitted(prepared, permit, place),
            Err(RecordedRefusal { refusal, recorded }) => {
                let told = |failure| refused(&failure, &labels, client.revision);
                Handled::Answer(refusal.failure().map_or_else(unknown, told)).after(recorded)
            }
        }
    }
}

/// Builds the request for the upstream, with the upstream's own task id.
fn about(method: Method, name: &TaskName, responses: Option<&RawJson>, meta: Meta) -> Outgoing {
    let mut body = RawObject::of_strings(&[("taskId", &name.id)]);
    body.set_some("inputResponses", responses.cloned());
    Outgoing {
        method,
        body,
        wants_progress: false,
        // True, so that a server which is legacy now gets no request: it cannot have made the task.
        resumed: true,
        capabilities: meta.input_capabilities(),
        can_be_asked: false,
        log_level: None,
        party: Party::default(),
        meta,
    }
}
