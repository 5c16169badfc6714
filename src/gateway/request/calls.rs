//! Calls: found, decided, prepared. Nothing has been sent yet.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Instant;

use crate::base::clock;
use crate::catalog::merge::Entry;
use crate::engine::call::{Executed, Failure, Outgoing, Progress, Reason};
use crate::engine::question::approval;
use crate::engine::route::{Resume, RouteError, Routed, route};
use crate::engine::state::Carried;
use crate::gateway::answer::CallLabels;
use crate::gateway::answer::{Answer, label, no_completions, not_found, refused, unroutable};
use crate::gateway::awaiting_approval::Handled;
use crate::gateway::awaiting_approval::{ClientCall, Request};
use crate::gateway::call::{Action, Call, InFlight, InputContext, Permitted, TaskWay};
use crate::gateway::client::ClientContext;
use crate::gateway::quota::Good;
use crate::gateway::service::{Refusal, Service, decided};
use crate::gateway::snapshot::Snapshot;
use crate::mcp::extension::TASKS;
use crate::mcp::input::{Kinds, Roots, all_accepted, without};
use crate::mcp::meta::Meta;
use crate::mcp::method::Method;
use crate::mcp::version::Era;
use crate::policy::consent::{Asked, PromptId, Shown};
use crate::policy::{self, Decision, Evidence, Facts, Kind, Record, decide, decide_again};
use crate::telemetry::metrics::OutcomeLabel;
use crate::upstream::handle::Handle;
use crate::upstream::session::Wants;
use crate::wire::code;
use crate::wire::digest::Digest;
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
        let Some(view) = snapshot.view(client.profile.as_deref()).cloned() else {
            return Handled::Answer(Answer::error(code::INVALID_PARAMS, "this profile no longer exists", None));
        };
        if method == Method::Complete && client.revision.era() == Era::Modern && !snapshot.completes() {
            // Not declared at present, so it does not exist; a legacy client was told that it does.
            return Handled::Answer(not_found(method.as_str(), Era::Modern));
        }
        let visible = |at| view.visible(&snapshot.policy, at, client.viewer());
        let mut routed = match route(&view.catalog, method, params, meta, visible) {
            Ok(routed) => routed,
            Err(error) => {
                if error.is_unknown() {
                    self.turned_away.tell(&snapshot, client, method, params);
                }
                return Handled::Answer(unroutable(&error, params, client.revision));
            }
        };
        let inconsistent = || Handled::Answer(Answer::error(code::INTERNAL, "the catalog is inconsistent", None));
        let Some((entry, item_rules)) = view.item(routed.entry) else { return inconsistent() };
        let Some(handle) = snapshot.handles.get(entry.upstream).cloned() else { return inconsistent() };
        if method == Method::Complete && !snapshot.completes.get(entry.upstream).copied().unwrap_or_default() {
            return Handled::Answer(Answer::ok(no_completions(client.revision)));
        }
        let Some(share) = self.quota.take(&client.caller, Good::Call) else { return Handled::Overloaded };
        let call = self.calls.fetch_add(1, Ordering::Relaxed);
        let labels = CallLabels { method, label: label(method), call, arrived };
        let upstream = entry.upstream_name.as_str();
        let kind = kind_of(method);
        let name: Arc<str> = routed.canonical.as_deref().map_or_else(|| Arc::clone(&entry.canonical), Arc::from);
        let canonical = &*name;
        // The catalog's rules fit the catalog's items; a completion and a URI that a template covers have their own.
        let own_rules = (routed.canonical.is_some() || kind == Kind::Completion)
            .then(|| snapshot.policy.item_rules(kind, upstream, canonical));
        let rules = own_rules.as_ref().unwrap_or(item_rules);
        let arguments = routed.outgoing.body.get("arguments").cloned();
        let facts = Facts {
            caller: &client.caller,
            profile: client.profile.as_deref().unwrap_or_default(),
            upstream,
            canonical,
            kind,
            annotations: entry.annotations,
            arguments: arguments.as_ref(),
        };
        if kind == Kind::Completion
            && let Some((rule, need)) =
                self.keeps_completions(&snapshot, (item_rules, rules), &facts, entry, client, &handle)
        {
            self.wrote_empty(rule, need, &facts, entry, client, call);
            return Handled::Answer(Answer::ok(no_completions(client.revision)));
        }
        let (own, mut input) = self.prepare(&mut routed.outgoing, &snapshot, client, entry, &handle, &facts, &name);
        let going_on = match &routed.resume {
            None => GoingOn::Anew,
            Some(resume) => match self.resume(resume, &mut routed.outgoing, input.as_deref_mut(), upstream) {
                Ok(going_on) => going_on,
                Err(RouteError::PageDeclined) => {
                    let failure = Failure::new(Reason::Denied, Executed::No, RouteError::PageDeclined.to_string());
                    return Handled::Answer(refused(&failure, &labels, client.revision));
                }
                Err(error) => return Handled::Answer(unroutable(&error, params, client.revision)),
            },
        };
        let asked = |rule: &Arc<str>, need: Evidence| Asked {
            caller: Arc::clone(&client.caller),
            session: Some(client.session()),
            upstream: entry.upstream_name.shared(),
            kind,
            item: Arc::clone(&name),
            definition: entry.definition_digest,
            launch: handle.launch(),
            arguments: Digest::of_arguments(arguments.as_ref()),
            rule: Arc::clone(rule),
            need,
            destructive: entry.annotations.known_destructive,
        };
        let decision = if matches!(going_on, GoingOn::Permitted) {
            decide_again(&snapshot.policy, rules, &facts)
        } else {
            let consent =
                |rule: &Arc<str>, need| self.approvals.grants().claim(&asked(rule, need), self.approvals.wall());
            decide(&snapshot.policy, rules, &facts, &consent, &snapshot.limiter, clock::since_1970())
        };
        if let Decision::Ask { rule, need } = &decision {
            let (asked, shown) = (asked(rule, *need), Shown::new(&entry.exposed, facts.annotations, facts.arguments));
            if !matches!(going_on, GoingOn::Consent { answer: Some(_), .. }) {
                let record = Record::new(&facts, &entry.canonical, &decision);
                let evidence = Some(*need);
                let written = policy::Entry { evidence, ..decided(&record, &facts, entry, client, Some(call)) };
                self.wrote_ask(&record, written);
            }
            let mut params = params.clone();
            params.remove("requestState");
            params.remove("inputResponses");
            let meta = routed.outgoing.meta.clone();
            let request =
                Request { client: client.clone(), method, params, meta, labels, metrics: handle.metrics.clone() };
            let offered = if input.is_some() { own } else { Kinds::default() };
            return self.ask(request, input.as_deref(), asked, shown, going_on, offered, share);
        }
        let (permit, gate) = match self.judged(decision, &facts, entry, client, call) {
            Ok(permitted) => permitted,
            Err(refusal) => return refuse(&refusal, entry, &handle, client, &labels, params),
        };
        let Some(place) = self.place() else { return Handled::Overloaded };
        let offered = input.as_ref().map_or_else(Kinds::default, |input| input.offered);
        let wants = Wants { caller: Arc::clone(&client.caller), client: client.tag.clone(), offered };
        let definition = entry.definition_digest;
        let Routed { outgoing, token, entry, .. } = routed;
        let permitted = Permitted {
            handle,
            wants,
            view: Arc::clone(&view),
            entry,
            permit,
            gate,
            outgoing,
            progress: token.map(|token| Progress::new(token, client.revision)),
            revision: client.revision,
            labels,
            place,
            share,
            input,
            action: Action {
                kind,
                canonical: Arc::clone(&name),
                definition,
                arguments,
                generation: snapshot.generation,
            },
        };
        Handled::Call(Box::new(ClientCall::Permitted(Call::new(Arc::clone(self), permitted))))
    }

    /// Completes what goes upstream by what is known of the client. Returns what the client can be asked for by us, and what it
    /// takes to pass on what the upstream asks.
    #[expect(clippy::too_many_arguments, reason = "called once, where all of them were found out")]
    fn prepare(
        &self,
        outgoing: &mut Outgoing,
        snapshot: &Snapshot,
        client: &ClientContext,
        entry: &Entry,
        handle: &Handle,
        facts: &Facts<'_>,
        name: &Arc<str>,
    ) -> (Kinds, Option<Box<InputContext>>) {
        self.declare(outgoing, client);
        // What we ask for ourselves is no upstream's asking.
        let own = Kinds::of(outgoing.capabilities.as_ref());
        let shows_roots = handle.spec.load().roots == Roots::Client;
        self.withhold(outgoing, snapshot, entry.upstream, client, shows_roots);
        let knows_tasks = facts.kind == Kind::Tool && snapshot.tasks.get(entry.upstream).copied().unwrap_or_default();
        let passes_tasks = knows_tasks && outgoing.meta.declares(&TASKS);
        let can_ask = client.client_requests.is_some() || client.revision.era() == Era::Modern;
        let input = (facts.kind != Kind::Completion && can_ask).then(|| {
            Box::new(InputContext {
                caller: Arc::clone(&client.caller),
                profile: client.profile.clone(),
                item: Arc::clone(name),
                arguments: facts.arguments.cloned(),
                definition: entry.definition_digest,
                launch: handle.launch(),
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
    pub(super) fn withhold(
        &self,
        outgoing: &mut Outgoing,
        snapshot: &Snapshot,
        upstream: usize,
        client: &ClientContext,
        shows_roots: bool,
    ) {
        if outgoing.capabilities.is_none() {
            return;
        }
        let mut names = Vec::new();
        if !shows_roots {
            names.push("roots");
        }
        if let Some(input) = snapshot.input.get(upstream) {
            let profile = client.profile.as_deref().unwrap_or_default();
            names.extend(input.denied(&snapshot.policy, &client.caller, profile));
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
        upstream: &str,
    ) -> Result<GoingOn, RouteError> {
        // Legacy clients were never given a state.
        let input = input.filter(|input| input.client_requests.is_none()).ok_or(RouteError::State)?;
        let opened = self.states.open(&input.scope(outgoing.method, upstream), &resume.state, clock::uptime());
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
    fn continued(&self, id: crate::engine::state::StateId) -> GoingOn {
        let mut used = self.used.lock();
        if used.first(id, clock::uptime()) { GoingOn::Permitted } else { GoingOn::Anew }
    }
}

/// What a method calls, to the policy.
#[expect(clippy::wildcard_enum_match_arm, reason = "only the four methods that call an upstream come here")]
fn kind_of(method: Method) -> Kind {
    match method {
        Method::ToolsCall => Kind::Tool,
        Method::PromptsGet => Kind::Prompt,
        Method::Complete => Kind::Completion,
        _ => Kind::Resource,
    }
}

/// Answers a call that the policy does not let through.
#[expect(clippy::wildcard_enum_match_arm, reason = "only the four methods that call an upstream come here")]
fn refuse(
    refusal: &Refusal,
    entry: &Entry,
    handle: &Handle,
    client: &ClientContext,
    labels: &CallLabels,
    params: &RawObject,
) -> Handled {
    match refusal {
        Refusal::Hidden => {
            let unknown = match labels.method {
                Method::ToolsCall => RouteError::UnknownTool(entry.exposed.to_string()),
                Method::PromptsGet => RouteError::UnknownPrompt(entry.exposed.to_string()),
                _ => RouteError::UnknownResource(params.string("uri").unwrap_or_default()),
            };
            Handled::Answer(unroutable(&unknown, params, client.revision))
        }
        Refusal::Told(failure) => {
            let outcome = if failure.reason == Reason::Limited { OutcomeLabel::Limited } else { OutcomeLabel::Denied };
            handle.metrics.count(labels.label, outcome);
            Handled::Answer(refused(failure, labels, client.revision))
        }
    }
}
