//! Requests of a modern client about a task that one of its calls became. The sealed task id names
//! the upstream.

use std::sync::Arc;
use std::time::Instant;

use crate::base::clock;
use crate::engine::askers::CallOrigin;
use crate::engine::call::OutgoingCall;
use crate::engine::failure::CallFailure;
use crate::engine::sealed::run_id::split_mark;
use crate::engine::sealed::task_id::TaskName;
use crate::gateway::answer::{RequestAnswer, refusal_answer};
use crate::gateway::client::quota::QuotaKind;
use crate::gateway::client::{ClientContext, view_of};
use crate::gateway::decision::found::FoundItem;
use crate::gateway::decision::prepared::{ClientTaskUse, InputContext, PreparedCall};
use crate::gateway::decision::{CallContinuation, RecordedRefusal};
use crate::gateway::service::Service;
use crate::gateway::waiting::client_call::RequestOutcome;
use crate::mcp::asking::kinds::InputKinds;
use crate::mcp::extension::TASKS;
use crate::mcp::meta::Meta;
use crate::mcp::method::{ItemList, Method};
use crate::policy::ActionKind;
use crate::wire::code;
use crate::wire::json::raw::{RawJson, RawObject};

/// Returns the answer to an id that names no task of this caller. All such ids get the same answer,
/// so a client cannot learn ids by trying.
pub(super) fn unknown() -> RequestAnswer {
    RequestAnswer::error(code::INVALID_PARAMS, "Unknown task", None)
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
    ) -> RequestOutcome {
        if !meta.declares(&TASKS) {
            let text = "this method needs the tasks extension";
            let answer = RequestAnswer::error(code::MISSING_CAPABILITY, text, Some(&TASKS.required_data()));
            return RequestOutcome::Answer(answer.with_status(400));
        }
        let Some(ours) = params.string("taskId") else {
            return RequestOutcome::Answer(RequestAnswer::error(code::INVALID_PARAMS, "params lacks `taskId`", None));
        };
        let responses = params.get("inputResponses").filter(|raw| raw.is_object());
        if method == Method::TasksUpdate && responses.is_none() {
            return RequestOutcome::Answer(RequestAnswer::error(
                code::INVALID_PARAMS,
                "params lacks `inputResponses`",
                None,
            ));
        }
        let (run, sealed) = split_mark(&ours);
        if run.is_some_and(|run| self.keys.run.get().is_some() && !self.keys.run.is_own(run)) {
            return RequestOutcome::Answer(self.refusal(&CallFailure::replica_lost(), method, client.revision));
        }
        let Some(name) = self.keys.task_ids.open(&client.caller, sealed, clock::uptime()) else {
            return RequestOutcome::Answer(unknown());
        };
        let responses = responses.filter(|_| method == Method::TasksUpdate);
        let outgoing = task_request(method, &name, responses, meta);
        self.send_on(client, outgoing, &name, ours, arrived)
    }

    /// Decides the request by the rules of the tool whose call became the task, and prepares it for
    /// the upstream.
    fn send_on(
        self: &Arc<Self>,
        client: &ClientContext,
        mut outgoing: OutgoingCall,
        name: &TaskName,
        ours: String,
        arrived: Instant,
    ) -> RequestOutcome {
        let snapshot = self.snapshots.load_full();
        let Some(view) = view_of(&snapshot, client) else { return RequestOutcome::Answer(unknown()) };
        let at = view.catalog.entries().iter().position(|entry| {
            entry.list == ItemList::Tools
                && entry.is_for(client.apps.is_some())
                && *entry.canonical == *name.item
                && entry.upstream_name.as_str() == name.upstream
        });
        let found = at.and_then(|at| FoundItem::new(&snapshot, view, at));
        let Some(found) = found else { return RequestOutcome::Answer(unknown()) };
        let Some(share) = self.admission.quota.take(&client.caller, QuotaKind::Call) else {
            return RequestOutcome::Overloaded;
        };
        let action = found.action(client, ActionKind::Task, None);
        let labels = self.labels(outgoing.method, arrived);
        self.withhold(&mut outgoing, &found, client, &action);
        let offered = InputKinds::of(outgoing.capabilities.as_ref());
        outgoing.capabilities = Some(TASKS.added_to(outgoing.capabilities.as_ref()));
        let input = Box::new(InputContext {
            offered,
            is_here: client.is_here,
            round: 0,
            carrier: client.carrier(),
            client_requests: None,
            parked: None,
            task: Some(ClientTaskUse::Named { theirs: name.id.clone(), ours }),
        });
        let prepared = PreparedCall {
            client,
            found,
            action,
            labels,
            outgoing,
            asked: None,
            token: None,
            going_on: CallContinuation::Permitted(None),
            asks: InputKinds::default(),
            input: Some(input),
            share,
        };
        let Some(place) = self.enter(client) else { return RequestOutcome::Overloaded };
        match self.decide(&prepared.found, &prepared.action, &prepared.going_on, labels.call) {
            Ok(permit) => self.permitted(prepared, permit, place),
            Err(RecordedRefusal { refusal, recorded }) => {
                let told = |failure| refusal_answer(&failure, &labels, client.revision);
                RequestOutcome::Answer(refusal.failure().map_or_else(unknown, told)).after(recorded)
            }
        }
    }
}

/// Builds the request for the upstream, with the upstream's own task id.
fn task_request(method: Method, name: &TaskName, responses: Option<&RawJson>, meta: Meta) -> OutgoingCall {
    let mut body = RawObject::of_strings(&[("taskId", &name.id)]);
    body.set_some("inputResponses", responses.cloned());
    OutgoingCall {
        method,
        body,
        wants_progress: false,
        // True, so that a server which is legacy now gets no request: it cannot have made the task.
        resumed: true,
        capabilities: meta.input_capabilities(),
        can_be_asked: false,
        log_level: None,
        party: CallOrigin::default(),
        meta,
    }
}
