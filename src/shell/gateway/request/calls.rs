//! Turns a request into a call: finds its item, prepares what goes upstream, decides it. Nothing is
//! sent here.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Instant;

use crate::base::clock;
use crate::config::AppsChoice;
use crate::engine::call::OutgoingCall;
use crate::engine::failure::{CallFailure, ExecutionDoubt, FailureReason};
use crate::engine::question::{approval, login};
use crate::engine::route::{CallResumption, RouteError, RoutedRequest};
use crate::engine::sealed::run_id::split_mark;
use crate::engine::sealed::state::{StatePayload, StateScope, StateUse};
use crate::gateway::answer::{RequestAnswer, method_not_found, no_completions, refusal_answer, unknown_item_answer};
use crate::gateway::call::PermittedCall;
use crate::gateway::client::ClientContext;
use crate::gateway::client::admission::CallPlace;
use crate::gateway::client::quota::QuotaKind;
use crate::gateway::decision::found::FoundItem;
use crate::gateway::decision::prepared::{ClientTaskUse, InputContext, PreparedCall};
use crate::gateway::decision::{CallContinuation, DecisionRefusal, GatedPermit, RecordedRefusal};
use crate::gateway::service::Service;
use crate::gateway::snapshot::Snapshot;
use crate::gateway::waiting::channel::PriorWaits;
use crate::gateway::waiting::client_call::{ClientCall, RequestOutcome};
use crate::mcp::asking::input::{Roots, all_accepted};
use crate::mcp::asking::kinds::{InputKinds, remove_capabilities};
use crate::mcp::extension::TASKS;
use crate::mcp::meta::Meta;
use crate::mcp::method::Method;
use crate::mcp::version::Era;
use crate::policy::consent::ApprovalId;
use crate::policy::{ActionKind, DecisionRecord, PolicyAction};
use crate::telemetry::metrics::OutcomeLabel;
use crate::wire::json::raw::{RawJson, RawObject};

impl Service {
    /// Counts the call for its caller, finds its item, and decides it.
    pub fn call(
        self: &Arc<Self>,
        client: &ClientContext,
        method: Method,
        params: &RawObject,
        meta: Meta,
        arrived: Instant,
    ) -> RequestOutcome {
        self.calls_of.of(client.access.counted()).fetch_add(1, Ordering::Relaxed);
        self.call_after(client, method, params, meta, arrived, PriorWaits::default())
    }

    /// Finds, prepares and decides a call. `waits` names what the call has waited for already, if
    /// it is decided again.
    pub fn call_after(
        self: &Arc<Self>,
        client: &ClientContext,
        method: Method,
        params: &RawObject,
        meta: Meta,
        arrived: Instant,
        waits: PriorWaits,
    ) -> RequestOutcome {
        let snapshot = self.snapshots.load_full();
        let mut prepared = match self.prepare(&snapshot, client, method, params, meta, arrived) {
            Ok(prepared) => prepared,
            Err(handled) => return handled,
        };
        if matches!(prepared.going_on, CallContinuation::Anew) {
            let waited = waits.approval.map(|approval| CallContinuation::Consent { approval, answer: None });
            prepared.going_on = waits.listed.or(waited).unwrap_or(CallContinuation::Anew);
        }
        // Before the decision, so that a call refused for want of a place takes nothing from its
        // limits.
        let Some(place) = self.enter(client) else { return RequestOutcome::Overloaded };
        let decided = self.decide(&prepared.found, &prepared.action, &prepared.going_on, prepared.labels.call);
        let RecordedRefusal { refusal, recorded } = match decided {
            Ok(permitted) => {
                return match self.await_login(params, &prepared, waits.approval, waits.login) {
                    None => self.permitted(prepared, permitted, place),
                    Some(handled) => {
                        // The call is decided again after the login, and must use up nothing
                        // before.
                        self.give_back(permitted.permit, &prepared.action);
                        handled
                    }
                };
            }
            Err(refusal) => refusal,
        };
        let handled = match refusal {
            DecisionRefusal::Ask { rule, need } => self.ask(params, prepared, &rule, need),
            DecisionRefusal::Told(failure) => {
                let is_limited = failure.reason == FailureReason::Limited;
                let outcome = if is_limited { OutcomeLabel::Limited } else { OutcomeLabel::Denied };
                prepared.found.handle.metrics.count(prepared.labels.label, outcome);
                RequestOutcome::Answer(refusal_answer(&failure, &prepared.labels, client.revision))
            }
            DecisionRefusal::Hidden => {
                RequestOutcome::Answer(unknown_item_answer(&prepared.found.unknown(params), params, client.revision))
            }
        };
        handled.after(recorded)
    }

    /// Returns the permitted call, ready to be run.
    pub(super) fn permitted(
        self: &Arc<Self>,
        prepared: PreparedCall<'_>,
        permitted: GatedPermit,
        place: CallPlace,
    ) -> RequestOutcome {
        RequestOutcome::Call(Box::new(ClientCall::Permitted(PermittedCall::new(
            Arc::clone(self),
            prepared,
            permitted,
            place,
        ))))
    }

    /// Finds the item, takes a slot among its caller's calls, and gathers everything that the call
    /// is made of.
    ///
    /// # Errors
    /// The outcome of a request that comes to no call.
    fn prepare<'s>(
        &self,
        snapshot: &'s Arc<Snapshot>,
        client: &'s ClientContext,
        method: Method,
        params: &RawObject,
        meta: Meta,
        arrived: Instant,
    ) -> Result<PreparedCall<'s>, RequestOutcome> {
        if method == Method::Complete && client.revision.era() == Era::Modern && !snapshot.completes() {
            // Not declared at present, so the method is unknown to a modern client. A legacy client
            // was told that it exists.
            return Err(RequestOutcome::Answer(method_not_found(method.as_str(), Era::Modern)));
        }
        let (found, routed) = self.find(snapshot, client, method, params, meta).map_err(RequestOutcome::Answer)?;
        let RoutedRequest { canonical, mut outgoing, token, resume, .. } = routed;
        let nothing = || RequestOutcome::Answer(RequestAnswer::ok(no_completions(client.revision)));
        if method == Method::Complete && !snapshot.completes.get(found.entry.upstream).copied().unwrap_or_default() {
            return Err(nothing());
        }
        let share = self.admission.quota.take(&client.caller, QuotaKind::Call).ok_or(RequestOutcome::Overloaded)?;
        let labels = self.labels(method, arrived);
        let asked = (method == Method::ResourcesRead).then(|| params.said("uri")).flatten();
        let asked = asked.filter(|uri| outgoing.body.said("uri").is_some_and(|own| own != *uri)).map(Arc::from);
        let found_action = found.action(client, ActionKind::of(method), canonical);
        let action = PolicyAction {
            arguments: outgoing.body.get("arguments").cloned(),
            // A legacy client gives its name once, a modern one in each request.
            client: client.name.clone().or_else(|| outgoing.meta.client_name()),
            ..found_action
        };
        outgoing.party.caller = Some(action.caller.clone());
        if action.kind == ActionKind::Completion
            && let Some(asks) = self.keeps_completions(&found, &action)
        {
            let why = "answered empty: calls of this item have no lasting grant";
            let recorded =
                self.write_down(&DecisionRecord { why, ..DecisionRecord::new(&action, &asks) }, Some(labels.call));
            return Err(nothing().after(recorded));
        }
        let (asks, mut input) = self.complete(&mut outgoing, &found, client, &action);
        let resumed = resume.map(|resume| self.resume(&resume, &mut outgoing, input.as_deref_mut(), &action));
        let going_on = resumed.unwrap_or(Ok(CallContinuation::Anew)).map_err(|error| {
            RequestOutcome::Answer(if error == RouteError::ReplicaLost {
                refusal_answer(&CallFailure::replica_lost(), &labels, client.revision)
            } else if error == RouteError::PageDeclined {
                let failure = CallFailure::new(FailureReason::Denied, ExecutionDoubt::No, error.to_string());
                refusal_answer(&failure, &labels, client.revision)
            } else {
                unknown_item_answer(&error, params, client.revision)
            })
        })?;
        Ok(PreparedCall { client, found, action, labels, outgoing, asked, token, going_on, asks, input, share })
    }

    /// Adds the client's capabilities to the outgoing request. Returns the kinds of question that
    /// the gateway itself can ask this client, and the context for passing the upstream's questions
    /// on.
    fn complete(
        &self,
        outgoing: &mut OutgoingCall,
        found: &FoundItem<'_>,
        client: &ClientContext,
        action: &PolicyAction,
    ) -> (InputKinds, Option<Box<InputContext>>) {
        self.declare(outgoing, client);
        // Before rules take capabilities away: the gateway's own questions are not the upstream's.
        let own = InputKinds::of(outgoing.capabilities.as_ref());
        self.withhold(outgoing, found, client, action);
        let passes_tasks = action.kind == ActionKind::Tool
            && found.snapshot.extensions_of(found.entry.upstream).has(&TASKS)
            && outgoing.meta.declares(&TASKS);
        let can_ask = client.client_requests.is_some() || client.revision.era() == Era::Modern;
        let input = (action.kind != ActionKind::Completion && can_ask).then(|| {
            Box::new(InputContext {
                offered: InputKinds::of(outgoing.capabilities.as_ref()),
                is_here: client.is_here,
                round: 0,
                carrier: client.carrier(),
                client_requests: client.client_requests.clone(),
                parked: None,
                task: passes_tasks.then_some(ClientTaskUse::Passes),
            })
        });
        if passes_tasks {
            outgoing.capabilities = Some(TASKS.added_to(outgoing.capabilities.as_ref()));
        }
        outgoing.can_be_asked = input.as_ref().is_some_and(|input| input.offered.any());
        (if input.is_some() { own } else { InputKinds::default() }, input)
    }

    /// Sets the client's capabilities and log level in the outgoing request, for a legacy client.
    fn declare(&self, outgoing: &mut OutgoingCall, client: &ClientContext) {
        if let Some(client_requests) = &client.client_requests {
            outgoing.capabilities = Some(client_requests.capabilities.clone());
        }
        if let Some(log) = &client.log {
            outgoing.log_level = log.get();
        }
    }

    /// Removes capabilities that the upstream may not use with this caller: roots unless the
    /// operator passes the client's, sampling and elicitation if a rule denies them. Adds Apps as
    /// the client declared them, if the upstream may have them.
    pub(super) fn withhold(
        &self,
        outgoing: &mut OutgoingCall,
        found: &FoundItem<'_>,
        client: &ClientContext,
        action: &PolicyAction,
    ) {
        self.withhold_input(outgoing, found, action);
        if client.apps.is_some() && found.handle.spec.load().apps == AppsChoice::On {
            outgoing.capabilities = client.with_apps(outgoing.capabilities.take());
        }
    }

    fn withhold_input(&self, outgoing: &mut OutgoingCall, found: &FoundItem<'_>, action: &PolicyAction) {
        if outgoing.capabilities.is_none() {
            return;
        }
        let mut names = Vec::new();
        if found.handle.spec.load().roots != Roots::Client {
            names.push("roots");
        }
        if let Some(input) = found.snapshot.input.get(found.entry.upstream) {
            names.extend(input.denied(&found.snapshot.policy, action));
        }
        if !names.is_empty() {
            outgoing.capabilities =
                outgoing.capabilities.take().as_ref().and_then(|raw| remove_capabilities(raw, &names));
        }
    }

    /// Opens the sealed state that a repeated request brings, puts the upstream's own state and the
    /// client's answers into the outgoing request, and returns how the call continues.
    ///
    /// # Errors
    /// The state is unknown, or the client opened no page that the upstream wanted.
    fn resume(
        &self,
        resume: &CallResumption,
        outgoing: &mut OutgoingCall,
        input: Option<&mut InputContext>,
        action: &PolicyAction,
    ) -> Result<CallContinuation, RouteError> {
        // A legacy client was never given a state.
        let input = input.filter(|input| input.client_requests.is_none()).ok_or(RouteError::State)?;
        let scope = StateScope { method: outgoing.method, action, carrier: input.carrier };
        let (run, sealed) = split_mark(&resume.state);
        let opened = self.keys.states.open(&scope, sealed, clock::since_1970());
        let (opened, state) = opened.ok_or(RouteError::State)?;
        input.round = opened.round;
        match opened.carried {
            StatePayload::Parked(_) if run.is_some_and(|run| !self.keys.run.is_own(run)) => {
                return Err(RouteError::ReplicaLost);
            }
            StatePayload::Parked(id) => {
                // The request joins the running call and starts none, however often it is repeated.
                input.parked = Some((id, resume.responses.clone()));
                return Ok(CallContinuation::Permitted(None));
            }
            StatePayload::Consent(prompt) => {
                let responses = resume.responses.as_ref().and_then(|raw| RawObject::parse(raw).ok());
                let answer = responses.and_then(|responses| responses.get(approval::KEY).cloned());
                return Ok(CallContinuation::Consent { approval: ApprovalId::new(prompt), answer });
            }
            StatePayload::Login => {
                let responses = resume.responses.as_ref().and_then(|raw| RawObject::parse(raw).ok());
                return Ok(CallContinuation::Login(responses.and_then(|responses| responses.get(login::KEY).cloned())));
            }
            StatePayload::Upstream(theirs) => outgoing.body.set("requestState", RawJson::string(&theirs)),
            StatePayload::Pages(keys) => {
                // The server refused the call before executing it, so this is its first execution.
                let accepted = resume.responses.as_ref().is_some_and(|r| all_accepted(r, keys.split(' ')));
                return if accepted { Ok(self.continued(state)) } else { Err(RouteError::PageDeclined) };
            }
            StatePayload::Nothing => {}
        }
        outgoing.body.set_some("inputResponses", resume.responses.clone());
        outgoing.resumed = true;
        Ok(self.continued(state))
    }

    /// Returns the continuation for a state, which proves its permit once. Sent a second time, the
    /// request is a new call and decided as one.
    fn continued(&self, state: StateUse) -> CallContinuation {
        if self.keys.used.is_first(state) { CallContinuation::Permitted(Some(state)) } else { CallContinuation::Anew }
    }
}
