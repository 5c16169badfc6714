//! Calls: found, decided, prepared. Nothing has been sent yet.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Instant;

use crate::base::clock;
use crate::engine::call::{Executed, Failure, Outgoing, Progress, Reason};
use crate::engine::question::approval;
use crate::engine::route::{Resume, RouteError, Routed};
use crate::engine::state::{Carried, StateId, StateScope};
use crate::gateway::answer::{Answer, CallLabels, label, no_completions, not_found, refused, unroutable};
use crate::gateway::awaiting_approval::{ClientCall, Handled, Request};
use crate::gateway::call::{Call, InFlight, InputContext, Permitted, TaskWay};
use crate::gateway::client::ClientContext;
use crate::gateway::found::Found;
use crate::gateway::quota::Good;
use crate::gateway::service::{Refusal, Service};
use crate::mcp::extension::TASKS;
use crate::mcp::input::{Kinds, Roots, all_accepted, without};
use crate::mcp::meta::Meta;
use crate::mcp::method::Method;
use crate::mcp::version::Era;
use crate::policy::consent::{Asked, PromptId, Shown};
use crate::policy::{Action, Decision, Kind, Record, decide, decide_again};
use crate::telemetry::metrics::OutcomeLabel;
use crate::upstream::session::Wants;
use crate::wire::raw::{RawJson, RawObject};

/// What a request has to do with an earlier one.
pub(super) enum GoingOn {
    Anew,
    /// It continues a call that was permitted: that permit is good for all its rounds.
    Permitted,
    /// It answers our own question.
    Consent {
        prompt: PromptId,
        answer: Option<RawJson>,
    },
}

impl Service {
    /// Finds the item, asks the policy, and prepares the call.
    pub(crate) fn call(
        self: &Arc<Self>,
        client: &ClientContext,
        method: Method,
        params: &RawObject,
        meta: Meta,
        arrived: Instant,
    ) -> Handled {
        let snapshot = self.snapshots.load_full();
        if method == Method::Complete && client.revision.era() == Era::Modern && !snapshot.completes() {
            // Not declared at present, so it does not exist; a legacy client was told that it does.
            return Handled::Answer(not_found(method.as_str(), Era::Modern));
        }
        let (found, mut routed) = match self.find(&snapshot, client, method, params, meta) {
            Ok(found) => found,
            Err(answer) => return Handled::Answer(answer),
        };
        let Found { entry, handle, .. } = found;
        if method == Method::Complete && !snapshot.completes.get(entry.upstream).copied().unwrap_or_default() {
            return Handled::Answer(Answer::ok(no_completions(client.revision)));
        }
        let Some(share) = self.quota.take(&client.caller, Good::Call) else { return Handled::Overloaded };
        let call = self.calls.fetch_add(1, Ordering::Relaxed);
        let labels = CallLabels { method, label: label(method), call, arrived };
        let action = Action {
            arguments: routed.outgoing.body.get("arguments").cloned(),
            ..found.action(client, Kind::of(method), routed.canonical.take())
        };
        let own_rules = found.own_rules(&action);
        let rules = own_rules.as_ref().unwrap_or(found.rules);
        if action.kind == Kind::Completion
            && let Some(asks) = self.keeps_completions(&found, &action, rules)
        {
            let why = "answered empty: no consent to calls of this item lasts";
            self.wrote_ask(&Record { why, ..Record::new(&action, &asks) }, call);
            return Handled::Answer(Answer::ok(no_completions(client.revision)));
        }
        let (own, mut input) = self.prepare(&mut routed.outgoing, &found, client, &action);
        let going_on = match &routed.resume {
            None => GoingOn::Anew,
            Some(resume) => match self.resume(resume, &mut routed.outgoing, input.as_deref_mut(), &action) {
                Ok(going_on) => going_on,
                Err(RouteError::PageDeclined) => {
                    let failure = Failure::new(Reason::Denied, Executed::No, RouteError::PageDeclined.to_string());
                    return Handled::Answer(refused(&failure, &labels, client.revision));
                }
                Err(error) => return Handled::Answer(unroutable(&error, params, client.revision)),
            },
        };
        let decision = if matches!(going_on, GoingOn::Permitted) {
            decide_again(&snapshot.policy, rules, &action)
        } else {
            let consent = |rule: &Arc<str>, need| {
                self.approvals.grants().claim(&Asked::new(&action, rule, need), self.approvals.wall())
            };
            decide(&snapshot.policy, rules, &action, &consent, &snapshot.limiter, clock::since_1970())
        };
        if let Decision::Ask { rule, need } = &decision {
            let shown = Shown::new(&entry.exposed, action.annotations, action.arguments.as_ref());
            if !matches!(going_on, GoingOn::Consent { answer: Some(_), .. }) {
                self.wrote_ask(&Record::new(&action, &decision), call);
            }
            let mut params = params.clone();
            params.remove("requestState");
            params.remove("inputResponses");
            let meta = routed.outgoing.meta.clone();
            let request =
                Request { client: client.clone(), method, params, meta, labels, metrics: handle.metrics.clone() };
            let offered = if input.is_some() { own } else { Kinds::default() };
            let question = (Asked::new(&action, rule, *need), shown);
            return self.ask(request, input.as_deref(), &action, question, going_on, offered, share);
        }
        let (permit, gate) = match self.judged(decision, &action, call) {
            Ok(permitted) => permitted,
            Err(refusal) => return refuse(&refusal, &found, client, &labels, params),
        };
        let Some(place) = self.place() else { return Handled::Overloaded };
        let offered = input.as_ref().map_or_else(Kinds::default, |input| input.offered);
        let wants = Wants { caller: Arc::clone(&client.caller), client: client.tag.clone(), offered };
        let Routed { outgoing, token, .. } = routed;
        let permitted = Permitted {
            handle: Arc::clone(handle),
            wants,
            view: Arc::clone(found.view),
            entry: found.at,
            permit,
            gate,
            outgoing,
            progress: token.map(|token| Progress::new(token, client.revision)),
            revision: client.revision,
            labels,
            place,
            share,
            input,
            action,
            generation: snapshot.generation,
        };
        Handled::Call(Box::new(ClientCall::Permitted(Call::new(Arc::clone(self), permitted))))
    }

    /// Completes what goes upstream by what is known of the client. Returns what the client can be asked for by us, and what it
    /// takes to pass on what the upstream asks.
    fn prepare(
        &self,
        outgoing: &mut Outgoing,
        found: &Found<'_>,
        client: &ClientContext,
        action: &Action,
    ) -> (Kinds, Option<Box<InputContext>>) {
        self.declare(outgoing, client);
        // What we ask for ourselves is no upstream's asking.
        let own = Kinds::of(outgoing.capabilities.as_ref());
        self.withhold(outgoing, found, client);
        let passes_tasks = action.kind == Kind::Tool
            && found.snapshot.tasks.get(found.entry.upstream).copied().unwrap_or_default()
            && outgoing.meta.declares(&TASKS);
        let can_ask = client.client_requests.is_some() || client.revision.era() == Era::Modern;
        let input = (action.kind != Kind::Completion && can_ask).then(|| {
            Box::new(InputContext {
                offered: Kinds::of(outgoing.capabilities.as_ref()),
                is_here: client.is_here,
                round: 0,
                client_requests: client.client_requests.clone(),
                parked: None,
                task: passes_tasks.then_some(TaskWay::Passes),
            })
        });
        if passes_tasks {
            outgoing.capabilities = Some(TASKS.added_to(outgoing.capabilities.as_ref()));
        }
        outgoing.can_be_asked = input.as_ref().is_some_and(|input| input.offered.any());
        (own, input)
    }

    /// What the upstream is told of the client: what it can be asked for, and how much it wants to hear.
    fn declare(&self, outgoing: &mut Outgoing, client: &ClientContext) {
        if let Some(client_requests) = &client.client_requests {
            outgoing.capabilities = Some(client_requests.capabilities.clone());
        }
        if let Some(log) = &client.log {
            outgoing.log_level = log.get();
        }
    }

    /// Takes away what the upstream may not ask this caller for: roots unless the operator shows them, sampling and
    /// elicitation where a rule denies them.
    pub(super) fn withhold(&self, outgoing: &mut Outgoing, found: &Found<'_>, client: &ClientContext) {
        if outgoing.capabilities.is_none() {
            return;
        }
        let mut names = Vec::new();
        if found.handle.spec.load().roots != Roots::Client {
            names.push("roots");
        }
        if let Some(input) = found.snapshot.input.get(found.entry.upstream) {
            let profile = client.profile.as_deref().unwrap_or_default();
            names.extend(input.denied(&found.snapshot.policy, &client.caller, profile));
        }
        if !names.is_empty() {
            outgoing.capabilities = outgoing.capabilities.take().as_ref().and_then(|raw| without(raw, &names));
        }
    }

    /// A place among all calls, or a turn to get one.
    pub(super) fn place(&self) -> Option<InFlight> {
        match Arc::clone(&self.in_flight).try_acquire_owned() {
            Ok(permit) => Some(InFlight::Running(permit)),
            Err(_) => self.queued.enter().map(InFlight::Queued),
        }
    }

    /// Opens the state of a call that goes on and gives the upstream its own back.
    fn resume(
        &self,
        resume: &Resume,
        outgoing: &mut Outgoing,
        input: Option<&mut InputContext>,
        action: &Action,
    ) -> Result<GoingOn, RouteError> {
        // Legacy clients were never given a state.
        let input = input.filter(|input| input.client_requests.is_none()).ok_or(RouteError::State)?;
        let scope = StateScope { method: outgoing.method, action };
        let opened = self.states.open(&scope, &resume.state, clock::uptime());
        let (opened, id) = opened.ok_or(RouteError::State)?;
        input.round = opened.round;
        match opened.carried {
            Carried::Parked(id) => {
                // It joins the call that runs and starts none, however often it comes.
                input.parked = Some((id, resume.responses.clone()));
                return Ok(GoingOn::Permitted);
            }
            Carried::Consent(prompt) => {
                let responses = resume.responses.as_ref().and_then(|raw| RawObject::parse(raw).ok());
                let answer = responses.and_then(|responses| responses.get(approval::KEY).cloned());
                return Ok(GoingOn::Consent { prompt: PromptId::new(prompt), answer });
            }
            Carried::Upstream(state) => outgoing.body.set("requestState", RawJson::string(&state)),
            Carried::Pages(keys) => {
                // The server refused the call before it began, so this is its first execution.
                let accepted = resume.responses.as_ref().is_some_and(|r| all_accepted(r, keys.split(' ')));
                return if accepted { Ok(self.continued(id)) } else { Err(RouteError::PageDeclined) };
            }
            Carried::Nothing => {}
        }
        if let Some(responses) = &resume.responses {
            outgoing.body.set("inputResponses", responses.clone());
        }
        outgoing.resumed = true;
        Ok(self.continued(id))
    }

    /// A state proves a permit once. Sent again it is a call of its own, which is decided like any other.
    fn continued(&self, id: StateId) -> GoingOn {
        let mut used = self.used.lock();
        if used.first(id, clock::uptime()) { GoingOn::Permitted } else { GoingOn::Anew }
    }
}

/// Answers a call that the policy does not let through.
#[expect(clippy::wildcard_enum_match_arm, reason = "only the four methods that call an upstream come here")]
fn refuse(
    refusal: &Refusal,
    found: &Found<'_>,
    client: &ClientContext,
    labels: &CallLabels,
    params: &RawObject,
) -> Handled {
    match refusal {
        Refusal::Hidden => {
            let unknown = match labels.method {
                Method::ToolsCall => RouteError::UnknownTool(found.entry.exposed.to_string()),
                Method::PromptsGet => RouteError::UnknownPrompt(found.entry.exposed.to_string()),
                _ => RouteError::UnknownResource(params.string("uri").unwrap_or_default()),
            };
            Handled::Answer(unroutable(&unknown, params, client.revision))
        }
        Refusal::Told(failure) => {
            let outcome = if failure.reason == Reason::Limited { OutcomeLabel::Limited } else { OutcomeLabel::Denied };
            found.handle.metrics.count(labels.label, outcome);
            Handled::Answer(refused(failure, labels, client.revision))
        }
    }
}
