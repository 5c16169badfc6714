//! What the gateway does with one request, whatever transport it came on.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use arc_swap::ArcSwap;
use futures_util::future::BoxFuture;
use tokio::sync::{Semaphore, watch};
use tokio_util::sync::CancellationToken;

use crate::catalog::page::{CursorKey, CursorScope};
use crate::engine::call::Outgoing;
use crate::engine::call::{Executed, Failure, Progress, Reason};
use crate::engine::route::{Params, Resume, RouteError, Routed, route};
use crate::engine::state::{Carried, StateKey};
use crate::engine::task_id::TaskKey;
use crate::mcp::capability::{AtPresent, discover_result};
use crate::mcp::input::{Kinds, Roots, all_accepted, without_roots};
use crate::mcp::log::{LogLevel, LogSwitch};
use crate::mcp::meta::{Meta, MetaError};
use crate::mcp::method::{List, Method};
use crate::mcp::task;
use crate::mcp::version::{Era, Revision};
use crate::policy::{CallerLimiter, Decision, Facts, ItemRules, Kind, Permit, Record, decide};
use crate::runtime::asker::Asker;
use crate::runtime::budget::Budget;
use crate::runtime::clock;
use crate::runtime::held::Parks;
use crate::runtime::ledger::Ledger;
use crate::runtime::live::{CallLabels, InFlight, InputContext, LiveCall, TaskWay};
use crate::runtime::queue::Queue;
use crate::runtime::recent::Recent;
use crate::runtime::shares::{Good, Shares};
use crate::runtime::snapshot::{Snapshot, View, Viewer};
use crate::runtime::tasks::TaskGroup;
use crate::runtime::upstream::lane::{ClientTag, Wants};
use crate::runtime::watching::Subscriptions;
use crate::telemetry::metrics::{MethodLabel, Metrics, OutcomeLabel};
use crate::wire::code;
use crate::wire::message::{Request, error_object};
use crate::wire::raw::{RawJson, RawObject};

mod about_task;

/// The caller that exists without any configuration of callers: this user, on this machine.
pub(crate) const LOCAL: &str = "local";

/// What all connections share.
#[derive(Debug)]
pub(crate) struct Service {
    pub(crate) snapshots: Arc<ArcSwap<Snapshot>>,
    /// Counts snapshots; listeners wait for it to grow.
    pub(crate) generation: watch::Receiver<u64>,
    pub(crate) metrics: Metrics,
    pub(crate) tasks: TaskGroup,
    /// Fires when no new request is accepted any more.
    pub(crate) draining: CancellationToken,
    /// Fires when calls in flight are given up.
    pub(crate) giving_up: CancellationToken,
    pub(crate) cursors: CursorKey,
    pub(crate) states: StateKey,
    pub(crate) task_ids: TaskKey,
    pub(crate) parks: Parks,
    /// Grants and open prompts.
    pub(crate) ledger: Arc<Ledger>,
    /// Calls in flight, of all callers.
    pub(crate) in_flight: Arc<Semaphore>,
    /// Calls that wait for a place among them.
    pub(crate) queued: Queue,
    pub(crate) queue_time: Duration,
    /// Longest result that a client is sent, in bytes.
    pub(crate) max_result_bytes: usize,
    pub(crate) budget: Arc<Budget>,
    pub(crate) shares: Shares,
    /// Requests of callers other than the local user.
    pub(crate) caller_rate: Option<CallerLimiter>,
    pub(crate) calls: AtomicU64,
    /// The last decisions, for the console.
    pub(crate) recent: Recent,
    /// Where the console is, without a slash at the end; unset where there is none.
    pub(crate) console: OnceLock<Arc<str>>,
    pub(crate) started: Instant,
}

/// Who asks, and how its answers must look.
#[derive(Clone, Debug)]
pub(crate) struct ClientContext {
    pub(crate) caller: Arc<str>,
    pub(crate) profile: Option<Arc<str>>,
    pub(crate) revision: Revision,
    /// What the client can be asked for.
    pub(crate) offered: Kinds,
    /// How a legacy client is asked, where it can be.
    pub(crate) asker: Option<Arc<Asker>>,
    /// The log level of a legacy session.
    pub(crate) log: Option<Arc<LogSwitch>>,
    /// What a legacy client watches.
    pub(crate) watched: Option<Arc<Subscriptions>>,
    /// Below the caller: the session or the pipe.
    pub(crate) tag: Option<Arc<ClientTag>>,
}

impl ClientContext {
    /// A client of which nothing else is known yet: it can be asked nothing, watches nothing and has no session.
    pub(crate) fn new(caller: Arc<str>, profile: Option<Arc<str>>, revision: Revision) -> Self {
        Self { caller, profile, revision, offered: Kinds::default(), asker: None, log: None, watched: None, tag: None }
    }

    pub(crate) fn viewer(&self) -> Viewer<'_> {
        let Kinds { form, url, sampling, .. } = self.offered;
        Viewer { caller: &self.caller, revision: self.revision, can_be_asked: form || url || sampling }
    }
}

/// An answer that is ready.
#[derive(Debug)]
pub(crate) struct Answer {
    pub(crate) outcome: Result<RawJson, RawJson>,
    /// For errors that the modern era gives an HTTP status of their own.
    pub(crate) status: Option<u16>,
}

impl Answer {
    pub(crate) fn ok(result: RawJson) -> Self {
        Self { outcome: Ok(result), status: None }
    }

    pub(crate) fn error(code: i64, message: &str, data: Option<&RawJson>) -> Self {
        Self { outcome: Err(error_object(code, message, data)), status: None }
    }

    pub(crate) fn with_status(mut self, status: u16) -> Self {
        self.status = Some(status);
        self
    }
}

/// What became of a request.
pub(crate) enum Handled {
    Answer(Answer),
    Call(Box<LiveCall>),
    /// An answer that takes a moment.
    Later(BoxFuture<'static, Answer>),
    /// The gateway itself is full; HTTP says 503.
    Overloaded,
}

impl Service {
    /// Serves a request that is not bound to a session or stream of its own.
    pub(crate) fn handle(
        self: &Arc<Self>,
        client: &ClientContext,
        request: &Request,
        params: Result<Params, RouteError>,
    ) -> Handled {
        if self.is_full() {
            return Handled::Overloaded;
        }
        let arrived = clock::now();
        let method = Method::parse(&request.method);
        let era = client.revision.era();
        let Params { object: params, meta } = match params {
            Ok(params) => params,
            Err(error) => return Handled::Answer(invalid(&error)),
        };
        if let Err(error) = meta.progress_token() {
            return Handled::Answer(invalid(&error.into()));
        }
        if !method.defined_in(era) {
            return Handled::Answer(not_found(&request.method, era));
        }
        match method {
            Method::Ping => Handled::Answer(Answer::ok(RawJson::EMPTY_OBJECT)),
            Method::Discover => Handled::Answer(Answer::ok(discover_result(self.at_present()))),
            Method::ToolsList => Handled::Answer(self.list(client, List::Tools, &params)),
            Method::PromptsList => Handled::Answer(self.list(client, List::Prompts, &params)),
            Method::ResourcesList => Handled::Answer(self.list(client, List::Resources, &params)),
            Method::TemplatesList => Handled::Answer(self.list(client, List::Templates, &params)),
            Method::ToolsCall | Method::PromptsGet | Method::ResourcesRead | Method::Complete => {
                self.call(client, method, &params, meta, arrived)
            }
            Method::ResourcesSubscribe => Handled::Later(Box::pin(Arc::clone(self).subscribe(client.clone(), params))),
            Method::ResourcesUnsubscribe => Handled::Answer(Self::unsubscribe(client, &params)),
            Method::SetLevel => Handled::Answer(set_level(client, &params)),
            Method::TasksGet | Method::TasksCancel | Method::TasksUpdate if era == Era::Modern => {
                self.task(client, method, &params, meta, arrived)
            }
            // Legacy clients are never given a task.
            Method::TasksGet | Method::TasksCancel | Method::TasksResult => Handled::Answer(about_task::unknown()),
            Method::Initialize | Method::Listen | Method::TasksList | Method::TasksUpdate | Method::Unknown => {
                Handled::Answer(not_found(&request.method, era))
            }
        }
    }

    fn at_present(&self) -> AtPresent {
        let snapshot = self.snapshots.load();
        AtPresent { completions: snapshot.completes(), tasks: snapshot.tasks.contains(&true) }
    }

    /// Whether no request can be taken: every place and the queue before them are taken, or too many bytes are held.
    fn is_full(&self) -> bool {
        let no_place = self.in_flight.available_permits() == 0 && self.queued.is_full();
        no_place || self.budget.is_used_up()
    }

    /// Whether a caller has used up its requests, and for how long. The local user has no such limit.
    pub(crate) fn over_rate(&self, caller: &str) -> Option<Duration> {
        let limiter = self.caller_rate.as_ref().filter(|_| caller != LOCAL)?;
        limiter.take(caller, clock::uptime()).err()
    }

    /// One page of a list, from the bytes that all callers of one view share.
    pub(crate) fn list(&self, client: &ClientContext, list: List, params: &RawObject) -> Answer {
        let snapshot = self.snapshots.load_full();
        let Some(view) = snapshot.view(client.profile.as_deref()) else {
            return Answer::error(code::INVALID_PARAMS, "this profile no longer exists", None);
        };
        let page = match params.get("cursor") {
            None => Some(0),
            Some(raw) if raw.bytes().as_ref() == b"null" => Some(0),
            Some(raw) => raw.parse::<String>().ok().and_then(|cursor| {
                let scope =
                    CursorScope { list, generation: snapshot.generation, caller: &client.caller, view: &view.name };
                self.cursors.open(scope, &cursor)
            }),
        };
        let rendered = snapshot.list(view, list, client.viewer(), &self.cursors);
        let page = page.and_then(|page| rendered.pages.get(usize::try_from(page).ok()?));
        page.map_or_else(
            || Answer::error(code::INVALID_PARAMS, "the cursor is not valid any more; list again from the start", None),
            |page| Answer::ok(page.clone()),
        )
    }

    /// Finds the item, asks the policy, and prepares the call; nothing has been sent yet.
    #[expect(clippy::wildcard_enum_match_arm, reason = "only the four methods that call an upstream come here")]
    fn call(
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
            Err(error) => return Handled::Answer(unroutable(&error, params, client.revision.era())),
        };
        let Some((entry, rules)) = view.item(routed.entry) else {
            return Handled::Answer(Answer::error(code::INTERNAL, "the catalog is inconsistent", None));
        };
        let Some(handle) = snapshot.handles.get(entry.upstream).cloned() else {
            return Handled::Answer(Answer::error(code::INTERNAL, "the catalog is inconsistent", None));
        };
        if method == Method::Complete && !snapshot.completes.get(entry.upstream).copied().unwrap_or_default() {
            return Handled::Answer(Answer::ok(no_completions(client.revision)));
        }
        let Some(share) = self.shares.take(&client.caller, Good::Call) else { return Handled::Overloaded };
        let call = self.calls.fetch_add(1, Ordering::Relaxed);
        let labels = CallLabels { method, label: label(method), call, arrived };
        let upstream = entry.upstream_name.as_str();
        let kind = match method {
            Method::ToolsCall => Kind::Tool,
            Method::PromptsGet => Kind::Prompt,
            Method::Complete => Kind::Completion,
            _ => Kind::Resource,
        };
        let canonical = routed.canonical.as_deref().unwrap_or(&entry.canonical);
        // The catalog's rules fit the catalog's items; a completion and a URI that a template covers have their own.
        let own_rules = (routed.canonical.is_some() || kind == Kind::Completion)
            .then(|| snapshot.policy.item_rules(kind, upstream, canonical));
        let rules = own_rules.as_ref().unwrap_or(rules);
        let facts = Facts { caller: &client.caller, upstream, canonical, kind };
        if let Some(asker) = &client.asker {
            routed.outgoing.capabilities = Some(asker.capabilities.clone());
        }
        if let Some(log) = &client.log {
            routed.outgoing.log_level = log.get();
        }
        if handle.spec.load().roots != Roots::Client {
            let capabilities = routed.outgoing.capabilities.take();
            routed.outgoing.capabilities = capabilities.as_ref().and_then(without_roots);
        }
        let has_tasks = method == Method::ToolsCall && snapshot.tasks.get(entry.upstream).copied().unwrap_or_default();
        let passes_tasks = has_tasks && routed.outgoing.meta.declares_tasks();
        let can_ask = client.asker.is_some() || client.revision.era() == Era::Modern;
        let mut input = (kind != Kind::Completion && can_ask).then(|| {
            Box::new(InputContext {
                caller: Arc::clone(&client.caller),
                profile: client.profile.clone(),
                item: Arc::from(canonical),
                arguments: routed.outgoing.body.get("arguments").cloned(),
                offered: Kinds::of(routed.outgoing.capabilities.as_ref()),
                round: 0,
                asker: client.asker.clone(),
                parked: None,
                task: passes_tasks.then_some(TaskWay::Passes),
            })
        });
        if passes_tasks {
            routed.outgoing.capabilities = Some(task::declaring(routed.outgoing.capabilities.as_ref()));
        }
        routed.outgoing.can_be_asked = input.as_ref().is_some_and(|input| input.offered.any());
        if let Some(resume) = &routed.resume
            && let Err(error) = self.resume(resume, &mut routed.outgoing, input.as_deref_mut(), upstream)
        {
            return Handled::Answer(if error == RouteError::PageDeclined {
                refused(&Failure::new(Reason::Denied, Executed::No, error.to_string()), &labels, client.revision)
            } else {
                unroutable(&error, params, client.revision.era())
            });
        }
        let permit = match self.judge(&snapshot, rules, &facts, &entry.canonical, call) {
            Ok(permit) => permit,
            Err(Refusal::Hidden) => {
                let unknown = match method {
                    Method::ToolsCall => RouteError::UnknownTool(entry.exposed.to_string()),
                    Method::PromptsGet => RouteError::UnknownPrompt(entry.exposed.to_string()),
                    _ => RouteError::UnknownResource(params.string("uri").unwrap_or_default()),
                };
                return Handled::Answer(unroutable(&unknown, params, client.revision.era()));
            }
            Err(Refusal::Told(failure)) => {
                let outcome =
                    if failure.reason == Reason::Limited { OutcomeLabel::Limited } else { OutcomeLabel::Denied };
                handle.metrics.count(labels.label, outcome);
                return Handled::Answer(refused(&failure, &labels, client.revision));
            }
        };
        let Some(place) = self.place() else { return Handled::Overloaded };
        let offered = input.as_ref().map_or_else(Kinds::default, |input| input.offered);
        let wants = Wants { caller: Arc::clone(&client.caller), client: client.tag.clone(), offered };
        let Routed { outgoing, token, entry, .. } = routed;
        let progress = token.map(|token| Progress::new(token, client.revision));
        let view = Arc::clone(&view);
        Handled::Call(Box::new(LiveCall::new(
            Arc::clone(self),
            handle,
            wants,
            view,
            entry,
            permit,
            outgoing,
            progress,
            client.revision,
            labels,
            place,
            share,
            input,
        )))
    }

    /// A place among all calls, or a turn to get one.
    fn place(&self) -> Option<InFlight> {
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
    ) -> Result<(), RouteError> {
        // Legacy clients were never given a state.
        let input = input.filter(|input| input.asker.is_none()).ok_or(RouteError::State)?;
        let opened = self.states.open(&input.scope(outgoing.method, upstream), &resume.state, clock::uptime());
        let opened = opened.ok_or(RouteError::State)?;
        input.round = opened.round;
        match opened.carried {
            Carried::Parked(id) => {
                input.parked = Some((id, resume.responses.clone()));
                return Ok(());
            }
            Carried::Upstream(state) => outgoing.body.set("requestState", RawJson::string(&state)),
            Carried::Pages(keys) => {
                // The server refused the call before it began, so this is its first execution.
                let accepted = resume.responses.as_ref().is_some_and(|r| all_accepted(r, keys.split(' ')));
                return if accepted { Ok(()) } else { Err(RouteError::PageDeclined) };
            }
            Carried::Nothing => {}
        }
        if let Some(responses) = &resume.responses {
            outgoing.body.set("inputResponses", responses.clone());
        }
        outgoing.resumed = true;
        Ok(())
    }

    /// One decision, one audit line.
    pub(crate) fn judge(
        &self,
        snapshot: &Snapshot,
        rules: &ItemRules,
        facts: &Facts<'_>,
        item: &str,
        call: u64,
    ) -> Result<Permit, Refusal> {
        let decision = decide(&snapshot.policy, rules, facts, &snapshot.limiter, clock::uptime());
        self.judged(decision, facts, item, call)
    }

    /// Writes a decision down.
    fn judged(&self, decision: Decision, facts: &Facts<'_>, item: &str, call: u64) -> Result<Permit, Refusal> {
        let record = Record::new(facts, item, &decision);
        tracing::info!(
            target: "audit",
            decision = record.decision(),
            rule = record.rule(),
            caller = record.caller(),
            upstream.name = record.upstream(),
            item.kind = record.kind().as_str(),
            item.name = record.item(),
            why = record.why(),
            retry_after_ms = record.retry_after().map(|wait| wait.as_millis()),
            call.id = format_args!("{call:x}"),
            "decision"
        );
        self.metrics.decision(record.decision(), record.rule());
        if self.console.get().is_some() {
            self.recent.push(&record, clock::unix_seconds());
        }
        let told = |reason, text: &str| Refusal::Told(Failure::new(reason, Executed::No, text));
        match decision {
            Decision::Allow(permit) => Ok(permit),
            Decision::Deny { hidden: true, .. } => Err(Refusal::Hidden),
            Decision::Deny { hidden: false, .. } => Err(told(Reason::Denied, "The policy does not allow this call.")),
            Decision::Ask { .. } => {
                Err(told(Reason::Denied, "This call needs an approval, which this release cannot ask for."))
            }
            Decision::Limit { limit, retry_after } => {
                self.metrics.limit_hit(&limit);
                let failure = Failure::new(Reason::Limited, Executed::No, "The rate limit for this call is used up.");
                Err(Refusal::Told(failure.retry_after(retry_after)))
            }
        }
    }
}

pub(crate) enum Refusal {
    /// Answered like what does not exist.
    Hidden,
    Told(Failure),
}

/// Remembers the level of a session; servers that have no log change nothing about that.
fn set_level(client: &ClientContext, params: &RawObject) -> Answer {
    match (params.get("level").and_then(LogLevel::read), &client.log) {
        (Some(level), Some(log)) => {
            log.set(level);
            Answer::ok(RawJson::EMPTY_OBJECT)
        }
        _ => Answer::error(code::INVALID_PARAMS, "`level` must be one of the eight levels of syslog", None),
    }
}

/// The answer of a call that the gateway refused.
pub(crate) fn refused(failure: &Failure, labels: &CallLabels, revision: Revision) -> Answer {
    if labels.method == Method::ToolsCall {
        Answer::ok(failure.tool_result(labels.call, revision))
    } else {
        Answer { outcome: Err(failure.error_object(labels.call)), status: None }
    }
}

/// The error for a method that this era does not define or this release does not serve.
pub(crate) fn not_found(method: &str, era: Era) -> Answer {
    let shown: String = method.chars().take(64).collect();
    let answer = Answer::error(code::METHOD_NOT_FOUND, &format!("Method not found: {}", shown.escape_debug()), None);
    if era == Era::Modern { answer.with_status(404) } else { answer }
}

fn invalid(error: &RouteError) -> Answer {
    let answer = Answer::error(code::INVALID_PARAMS, &error.to_string(), None);
    let malformed = matches!(error, RouteError::Params | RouteError::Meta(MetaError::NotAnObject));
    if malformed { answer.with_status(400) } else { answer }
}

/// Unknown and hidden look the same; the code of a missing resource depends on the era.
pub(crate) fn unroutable(error: &RouteError, params: &RawObject, era: Era) -> Answer {
    if !matches!(error, RouteError::UnknownResource(_)) {
        return Answer::error(code::INVALID_PARAMS, &error.to_string(), None);
    }
    let uri = params.get("uri").cloned().unwrap_or_else(|| RawJson::string(""));
    let data = RawJson::trusted(format!(r#"{{"uri":{}}}"#, uri.text()));
    let code = if era == Era::Modern { code::INVALID_PARAMS } else { code::RESOURCE_NOT_FOUND };
    Answer::error(code, &error.to_string(), Some(&data))
}

/// Clients were told that completions exist, so an upstream without them completes to nothing.
fn no_completions(revision: Revision) -> RawJson {
    RawJson::trusted(if revision.era() == Era::Modern {
        r#"{"resultType":"complete","completion":{"values":[],"total":0,"hasMore":false}}"#
    } else {
        r#"{"completion":{"values":[],"total":0,"hasMore":false}}"#
    })
}

#[expect(clippy::wildcard_enum_match_arm, reason = "only calls are counted by method")]
fn label(method: Method) -> MethodLabel {
    match method {
        Method::ToolsCall => MethodLabel::ToolsCall,
        Method::PromptsGet => MethodLabel::PromptsGet,
        Method::ResourcesRead => MethodLabel::ResourcesRead,
        Method::Complete => MethodLabel::Complete,
        _ => MethodLabel::Other,
    }
}

/// The view of a client, for those that watch it for changes.
pub(crate) fn view_of(snapshot: &Snapshot, client: &ClientContext) -> Option<Arc<View>> {
    snapshot.view(client.profile.as_deref()).cloned()
}
