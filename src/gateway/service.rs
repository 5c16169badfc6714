//! What the gateway does with one request, whatever transport it came on.

use std::sync::atomic::AtomicU64;
use std::sync::{Arc, Mutex, OnceLock};
use std::time::{Duration, Instant};

use arc_swap::ArcSwap;
use bytes::Bytes;
use futures_util::future::BoxFuture;
use tokio::sync::{Semaphore, watch};
use tokio_util::sync::CancellationToken;

use crate::base::budget::Budget;
use crate::base::clock;
use crate::base::queue::Queue;
use crate::base::task_group::TaskGroup;
use crate::catalog::merge::Entry;
use crate::catalog::page::{CursorKey, CursorScope};
use crate::engine::call::{Executed, Failure, Reason};
use crate::engine::route::{Params, RouteError};
use crate::engine::state::StateKey;
use crate::engine::task_id::TaskKey;
use crate::engine::used::Used;
use crate::gateway::awaiting_approval::ClientCall;
use crate::gateway::call::CallLabels;
use crate::gateway::gate::Gate;
use crate::gateway::question::client_requests::Asker;
use crate::gateway::quota::Shares;
use crate::gateway::snapshot::{Snapshot, View, Viewer};
use crate::gateway::subscriptions::Subscriptions;
use crate::gateway::turned_away::TurnedAway;
use crate::mcp::capability::{AtPresent, discover_result};
use crate::mcp::elicitation::Own;
use crate::mcp::input::Kinds;
use crate::mcp::log::{LogLevel, LogSwitch};
use crate::mcp::meta::MetaError;
use crate::mcp::method::{List, Method};
use crate::mcp::version::{Era, Revision};
use crate::policy::{self, CallerLimiter, Decision, Event, Facts, Permit, Record};
use crate::store::approvals::Ledger;
use crate::store::audit::Audit;
use crate::store::leases::{Leases, limited};
use crate::store::recent::Recent;
use crate::telemetry::metrics::{MethodLabel, Metrics};
use crate::upstream::parked::Parks;
use crate::upstream::session::ClientTag;
use crate::wire::code;
use crate::wire::message::{Request, error_object};
use crate::wire::raw::{RawJson, RawObject};

mod about_task;
mod calls;
mod completions;
mod consent;

/// The caller that exists without any configuration of callers: this user, on this machine.
pub(crate) const LOCAL: &str = "local";

/// Calls that may wait for a person at once.
pub(crate) const MAX_ASKING: usize = 1024;

/// The session of all clients that have none. What is allowed for it lasts as long as a session may, at most.
pub(crate) const STATELESS: u64 = 0;

/// What all connections share.
#[derive(Debug)]
pub(crate) struct Service {
    pub(crate) snapshots: Arc<ArcSwap<Snapshot>>,
    /// Counts snapshots; listeners wait for it to grow.
    pub(crate) generation: watch::Receiver<u64>,
    pub(crate) metrics: Metrics,
    pub(crate) audit: Audit,
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
    /// What calls use of their limits, on disk.
    pub(crate) leases: Leases,
    /// Calls in flight, of all callers.
    pub(crate) in_flight: Arc<Semaphore>,
    /// Calls that wait for a place among them.
    pub(crate) queued: Queue,
    pub(crate) queue_time: Duration,
    /// Calls that wait for a person, of all callers.
    pub(crate) asking: Arc<Semaphore>,
    /// Longest result that a client is sent, in bytes.
    pub(crate) max_result_bytes: usize,
    pub(crate) budget: Arc<Budget>,
    pub(crate) shares: Shares,
    /// Requests of callers other than the local user.
    pub(crate) caller_rate: Option<CallerLimiter>,
    pub(crate) calls: AtomicU64,
    /// Calls that were answered as if their item did not exist.
    pub(crate) turned_away: TurnedAway,
    /// The last decisions, for the console.
    pub(crate) recent: Recent,
    pub(crate) started: Instant,
    /// States that calls have gone on with.
    pub(crate) used: Mutex<Used>,
    /// Where the console is, once it listens: the beginning of its pages' URLs.
    pub(crate) console: OnceLock<String>,
    /// The ports that this process listens on.
    pub(crate) ports: OnceLock<Vec<u16>>,
}

impl Service {
    /// Our own listeners: those of this process, and those of the configuration, which another process may serve.
    pub(crate) fn own(&self) -> Own {
        let snapshot = self.snapshots.load();
        let config = &snapshot.config;
        let listens = config.server.listen.iter().chain(&config.metrics).chain(&config.console.listen);
        let mut ports: Vec<u16> = listens.map(std::net::SocketAddr::port).collect();
        ports.extend(self.ports.get().into_iter().flatten());
        Own { ports, names: config.server.allowed_hosts.clone() }
    }
}

/// Who asks, and how its answers must look.
#[derive(Clone, Debug)]
pub(crate) struct ClientContext {
    pub(crate) caller: Arc<str>,
    pub(crate) profile: Option<Arc<str>>,
    pub(crate) revision: Revision,
    /// What the client can be asked for.
    pub(crate) offered: Kinds,
    /// It is on this machine: an address on loopback is the same place to it.
    pub(crate) is_here: bool,
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
        Self {
            caller,
            profile,
            revision,
            offered: Kinds::default(),
            is_here: false,
            asker: None,
            log: None,
            watched: None,
            tag: None,
        }
    }

    /// The number of its session or pipe.
    pub(crate) fn session(&self) -> u64 {
        self.tag.as_ref().map_or(STATELESS, |tag| tag.number())
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

    /// The result or error.
    pub(crate) fn bytes(&self) -> &Bytes {
        let (Ok(raw) | Err(raw)) = &self.outcome;
        raw.bytes()
    }

    /// The same, with room for it.
    ///
    /// # Errors
    /// The failure of its call, for which there is none.
    pub(crate) fn counted(self, budget: &Arc<Budget>) -> Result<Self, Failure> {
        let count = |raw: RawJson| budget.try_count(raw.into_bytes()).map(RawJson::trusted);
        let outcome = match self.outcome {
            Ok(raw) => count(raw).map(Ok),
            Err(raw) => count(raw).map(Err),
        };
        let outcome = outcome.map_err(|no_room| no_room.failure(Executed::Unknown))?;
        Ok(Self { outcome, status: self.status })
    }

    pub(crate) fn with_status(mut self, status: u16) -> Self {
        self.status = Some(status);
        self
    }
}

/// What became of a request.
pub(crate) enum Handled {
    Answer(Answer),
    Call(Box<ClientCall>),
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
        no_place || self.budget.is_overdrawn()
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

    fn log_decision(&self, record: &Record<'_>, call: Option<u64>) {
        // The log line is the record of a gateway that keeps nothing.
        let is_record = !self.audit.is_kept();
        macro_rules! told {
            ($level:ident) => {
                tracing::$level!(
                    target: "audit",
                    decision = record.decision(),
                    rule = &**record.rule(),
                    caller = record.caller(),
                    upstream.name = record.upstream(),
                    item.kind = record.kind().as_str(),
                    item.name = record.item(),
                    why = record.why(),
                    retry_after_ms = record.retry_after().map(|wait| wait.as_millis()),
                    call.id = call.map(|call| format!("{call:x}")),
                    "decision"
                )
            };
        }
        if is_record {
            told!(info);
        } else {
            told!(debug);
        }
    }

    /// Records the first call in a while of an item that its caller cannot see. Nothing waits for it.
    pub(crate) fn wrote_hidden(&self, record: &Record<'_>, written: policy::Entry) {
        self.log_decision(record, None);
        if self.console.get().is_some() {
            self.recent.push(record, clock::unix_seconds());
        }
        drop(self.audit.record(written, false));
    }

    /// Records a summary of such calls.
    pub(crate) fn wrote_refusals(&self, written: policy::Entry) {
        if !self.audit.is_kept() {
            let caller = written.caller.as_deref().unwrap_or_default();
            tracing::info!(target: "audit", caller, count = written.count, why = %written.why, "refusals");
        }
        drop(self.audit.record(written, false));
    }

    /// Writes a decision down, whatever it is. A permit comes with what has to be on disk before it is used.
    pub(crate) fn judged(
        &self,
        decision: Decision,
        facts: &Facts<'_>,
        entry: &Entry,
        client: &ClientContext,
        call: u64,
    ) -> Result<(Permit, Option<Gate>), Refusal> {
        let record = Record::new(facts, &entry.canonical, &decision);
        self.log_decision(&record, Some(call));
        self.metrics.decision(record.decision(), record.rule());
        if self.console.get().is_some() {
            self.recent.push(&record, clock::unix_seconds());
        }
        let permit = match &decision {
            Decision::Allow(permit) => Some(permit),
            Decision::Ask { .. } | Decision::Deny { .. } | Decision::Limit { .. } => None,
        };
        let grant = permit.and_then(Permit::grant);
        let written = policy::Entry {
            grant: grant.map(|grant| Arc::clone(grant.id())),
            evidence: grant.map(|grant| grant.evidence()),
            by: grant.map(|grant| Arc::clone(grant.by())),
            ..decided(&record, facts, entry, client, Some(call))
        };
        let recorded = self.audit.record(written, permit.is_some_and(|permit| permit.is_grave(facts.annotations)));
        let told = |reason, text: &str| Refusal::Told(Failure::new(reason, Executed::No, text));
        match decision {
            Decision::Allow(permit) => {
                let lease = permit.lease().map(|lease| (self.leases.clone(), lease.clone()));
                let gate = Gate::new(&self.ledger, recorded, permit.grant(), lease);
                Ok((permit, gate))
            }
            Decision::Deny { hidden: true, .. } => Err(Refusal::Hidden),
            Decision::Deny { hidden: false, .. } => Err(told(Reason::Denied, "The policy does not allow this call.")),
            Decision::Ask { .. } => {
                Err(told(Reason::Denied, "This needs an approval, which nobody can be asked for here."))
            }
            Decision::Limit { limit, retry_after } => {
                self.metrics.limit_hit(&limit);
                Err(Refusal::Told(limited(retry_after)))
            }
        }
    }
}

/// A decision as an event of the audit log.
pub(crate) fn decided(
    record: &Record<'_>,
    facts: &Facts<'_>,
    entry: &Entry,
    client: &ClientContext,
    call: Option<u64>,
) -> policy::Entry {
    policy::Entry {
        call,
        caller: Some(Arc::clone(&client.caller)),
        session: Some(client.session()),
        upstream: Some(entry.upstream_name.shared()),
        kind: Some(facts.kind),
        item: Some(Arc::clone(&entry.canonical)),
        definition: Some(entry.definition_digest),
        arguments: facts.arguments.cloned(),
        result: record.decision(),
        rule: Some(Arc::clone(record.rule())),
        why: record.why().into(),
        ..policy::Entry::new(Event::Decision)
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
