//! The life of one upstream: start, serve, die, wait, start again. It alone sets the handle's state.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use tokio::io::{AsyncRead, AsyncWrite};
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;

use crate::base::budget::Budget;
use crate::base::clock;
use crate::base::task_group::TaskGroup;
use crate::catalog::inventory::{Inventory, ListBounds};
use crate::catalog::name::UpstreamName;
use crate::config::{EraChoice, Instance, Start, Target, Transport, Upstream};
use crate::engine::ask::Declared;
use crate::engine::handshake::{Agreed, EraHint};
use crate::engine::peer::{PeerOptions, PeerTimes};
use crate::engine::restart::{Backoff, Verdict};
use crate::mcp::input::Kinds;
use crate::mcp::voice::Ear;
use crate::store::pins::LaunchGate;
use crate::upstream::client::HttpClient;
use crate::upstream::handle::{Handle, Link, LinkState};
use crate::upstream::http_actor::{self, Remote};
use crate::upstream::process::{LastWords, Launch, Process, drain_stderr};
use crate::upstream::session::Lane;
use crate::upstream::sse;
use crate::upstream::stdio::{self, Ended, StdioNews, StdioOptions};
use crate::wire::frame::Bounds;

/// What an actor tells the supervisor.
#[derive(Debug)]
pub(crate) struct Report {
    pub(crate) upstream: UpstreamName,
    /// Reports of a handle that was replaced meanwhile are dropped.
    pub(crate) handle: Arc<Handle>,
    pub(crate) news: News,
}

#[derive(Debug)]
pub(crate) enum News {
    /// Complete lists, and what the upstream agreed to.
    Inventory(Inventory, Agreed),
    /// The link went up or down.
    State,
}

/// How much is taken from upstreams.
#[derive(Clone, Debug)]
pub(crate) struct Intake {
    pub(crate) budget: Arc<Budget>,
    /// Longest line of a child and longest body or event of an HTTP answer.
    pub(crate) max_message_bytes: usize,
    /// Depth and number of values of each message.
    pub(crate) bounds: Bounds,
}

impl Intake {
    /// Hears the upstream of that name.
    pub(crate) fn ear(&self, upstream: &UpstreamName) -> Ear {
        let budget = Arc::clone(&self.budget);
        Ear::new(upstream.as_str(), self.bounds, move |bytes| budget.count(bytes))
    }
}

/// What it takes to open a lane.
#[derive(Clone, Debug)]
pub(crate) struct Nursery {
    /// Ends with the upstream.
    pub(crate) stop: CancellationToken,
    pub(crate) tasks: TaskGroup,
    pub(crate) http: HttpClient,
    pub(crate) intake: Intake,
    /// Whether others than the local user can call.
    pub(crate) many_callers: bool,
    /// Stands before each start.
    pub(crate) gate: Arc<LaunchGate>,
}

impl Nursery {
    /// What a server is told on the main lane. A process that everybody shares may only ask where everybody is one person.
    pub(crate) fn declared(&self, spec: &Upstream) -> Declared {
        let shared = matches!(spec.target, Target::Stdio { .. })
            && matches!(spec.instance, Instance::Auto | Instance::Shared)
            && !self.many_callers;
        if shared {
            Declared::new(Kinds { form: true, sampling: true, roots: true, ..Kinds::default() }, &spec.roots)
        } else {
            Declared::default()
        }
    }

    /// Opens a lane of an owner's own.
    pub(crate) fn open(&self, handle: &Arc<Handle>, lane: &Arc<Lane>) {
        let context = Context {
            handle: Arc::clone(handle),
            lane: Arc::clone(lane),
            reports: None,
            nursery: Self { stop: self.stop.child_token(), ..self.clone() },
            remembered: Some(EraHint::Legacy),
        };
        self.tasks.spawn("lane", run_owned(context));
    }
}

/// Everything an actor works with.
#[derive(Clone)]
pub(crate) struct Context {
    pub(crate) handle: Arc<Handle>,
    pub(crate) lane: Arc<Lane>,
    /// For the main lane, whose news are the upstream's.
    pub(crate) reports: Option<mpsc::Sender<Report>>,
    pub(crate) nursery: Nursery,
    /// What the last run of this program learnt of the upstream's era.
    pub(crate) remembered: Option<EraHint>,
}

impl Context {
    pub(crate) async fn report(&self, news: News) {
        let Some(reports) = &self.reports else { return };
        let report = Report { upstream: self.handle.name.clone(), handle: Arc::clone(&self.handle), news };
        // The supervisor outlives its actors except in the last moments of a shutdown.
        drop(reports.send(report).await);
    }

    /// How to ask for the era at the next start.
    pub(crate) fn first_hint(&self) -> EraHint {
        match self.handle.spec.load().era {
            EraChoice::Auto => self.remembered.unwrap_or(EraHint::Probe),
            EraChoice::Legacy => EraHint::Legacy,
            EraChoice::Modern => EraHint::Modern,
        }
    }

    async fn serve(&self, hint: EraHint) -> Run {
        let spec = self.handle.spec.load_full();
        let program = match self.nursery.gate.pass(&spec) {
            Ok(program) => program,
            Err(why) => return Run { why, next: None, served: None },
        };
        match spec.target.clone() {
            Target::Stdio { command, env, cwd } => {
                let launch = Launch { command, program, env, cwd, confinement: spec.confinement };
                serve_stdio(self, launch, hint).await
            }
            Target::Http { transport, .. } => match Remote::of(self) {
                Ok(remote) if transport == Transport::Sse => Box::pin(sse::serve(self, &remote)).await,
                Ok(remote) => Box::pin(http_actor::serve(self, &remote, hint)).await,
                Err(why) => Run { why, next: None, served: None },
            },
        }
    }
}

/// Runs a lane of an owner's own, once: until it fails, or nobody needs it any more.
async fn run_owned(context: Context) {
    let (lane, stop) = (&context.lane, context.nursery.stop.clone());
    let mut serving = Box::pin(context.serve(EraHint::Legacy));
    let lanes = &context.handle.lanes;
    let unused = async {
        lane.over().await;
        while !lanes.close_unused(lane) {
            lane.over().await;
        }
    };
    let ended = tokio::select! {
        run = &mut serving => Some(run),
        () = unused => None,
    };
    match ended {
        Some(run) => {
            lanes.close(lane);
            if !stop.is_cancelled() {
                tracing::warn!(upstream.name = %context.handle.name, error = %run.why, "a client's own session ended");
            }
        }
        None => {
            stop.cancel();
            serving.await;
        }
    }
}

/// Runs an upstream until the context is stopped.
pub(crate) async fn run(context: Context) {
    let (handle, lane, stop) = (&context.handle, &context.lane, &context.nursery.stop);
    if handle.spec.load().start == Start::Lazy {
        tokio::select! {
            () = lane.wanted.notified() => {}
            () = stop.cancelled() => return,
        }
    }
    let mut backoff = Backoff::default();
    let mut hint = context.first_hint();
    // A verdict of an earlier run, which may be wrong by now.
    let mut recalled = context.remembered.is_some() && handle.spec.load().era == EraChoice::Auto;
    loop {
        lane.set_state(LinkState::Starting);
        handle.incarnation.fetch_add(1, Ordering::Relaxed);
        let run = Box::pin(context.serve(hint)).await;
        if stop.is_cancelled() {
            break;
        }
        // A start that only taught how to ask is repeated at once: nothing has died yet.
        let learnt = run.next.filter(|next| *next != hint && run.served.is_none());
        if let Some(next) = learnt {
            tracing::debug!(upstream.name = %handle.name, why = %run.why, "starting again without the era probe");
            hint = next;
            continue;
        }
        if run.served.is_none() && std::mem::take(&mut recalled) {
            tracing::debug!(upstream.name = %handle.name, why = %run.why, "starting again with the era probe");
            hint = EraHint::Probe;
            continue;
        }
        recalled = false;
        let wait = match backoff.died(clock::now(), run.served, clock::jitter()) {
            Verdict::Retry(wait) => {
                tracing::warn!(upstream.name = %handle.name, error = %run.why, retry_ms = wait.as_millis(), "upstream down");
                wait
            }
            Verdict::Broken(wait) => {
                tracing::error!(upstream.name = %handle.name, error = %run.why, retry_s = wait.as_secs(), "upstream keeps failing");
                wait
            }
        };
        lane.restarts.fetch_add(1, Ordering::Relaxed);
        handle.metrics.restarted();
        handle.last_error.store(Arc::new(run.why));
        lane.set_state(LinkState::Down { until: clock::now() + wait });
        context.report(News::State).await;
        tokio::select! {
            () = tokio::time::sleep(wait) => {}
            () = context.nursery.gate.reviewed.notified() => {}
            () = stop.cancelled() => break,
        }
    }
    lane.set_state(LinkState::Stopped);
}

/// How one incarnation went.
#[derive(Debug)]
pub(crate) struct Run {
    pub(crate) why: String,
    pub(crate) next: Option<EraHint>,
    /// How long it was ready, if it ever was.
    pub(crate) served: Option<Duration>,
}

async fn serve_stdio(context: &Context, launch: Launch, hint: EraHint) -> Run {
    let handle = &context.handle;
    let Nursery { stop, tasks, .. } = &context.nursery;
    let process = match Process::start(&launch) {
        Ok(process) => process,
        Err(error) => return Run { why: error.to_string(), next: None, served: None },
    };
    let (stdin, stdout, stderr, mut reaper) = process.split();
    let words = LastWords::default();
    tasks.spawn("stderr", drain_stderr(handle.name.to_string(), stderr, words.clone()));
    let start = handle.spec.load().start_timeout;
    let (ended, served) = converse(context, (hint, start), stdin, stdout).await;
    let early = tokio::time::timeout(Duration::from_millis(50), reaper.exited()).await.ok().flatten();
    let status = if early.is_some() { early } else { reaper.stop().await };
    let mut why = ended.why;
    if let Some(status) = status.filter(|status| !status.success()) {
        why = format!("{why} ({status})");
    }
    if let Some(line) = words.last().filter(|_| !stop.is_cancelled()) {
        let line: String = line.chars().take(200).collect();
        why = format!("{why}; last line of stderr: {}", line.escape_debug());
    }
    Run { why, next: ended.next, served }
}

/// Speaks over a duplex of lines, tells the supervisor what is learnt there, and says for how long it was ready. `start` is
/// how to ask for the era and how long the handshake may take.
pub(crate) async fn converse(
    context: &Context,
    start: (EraHint, Duration),
    writer: impl AsyncWrite + Unpin,
    reader: impl AsyncRead + Unpin,
) -> (Ended, Option<Duration>) {
    let (handle, lane) = (&context.handle, &context.lane);
    let Nursery { stop, intake, .. } = &context.nursery;
    let peer = PeerOptions {
        ear: intake.ear(&handle.name),
        hint: start.0,
        times: PeerTimes { probe: PROBE_TIME, start: start.1 },
        bounds: ListBounds::default(),
        declared: lane.declared.clone(),
        lists: lane.is_main(),
    };
    let options = StdioOptions { peer, intake: intake.clone() };
    let (news_in, mut news_out) = mpsc::channel(64);
    let mut tell = |news: StdioNews| match news {
        StdioNews::Fault(fault) => {
            handle.metrics.fault(fault.as_str());
            tracing::debug!(upstream.name = %handle.name, fault = fault.as_str(), "upstream misbehaved");
        }
        StdioNews::Unclaimed(notice) => lane.tell(notice),
        StdioNews::Updated(uri) => lane.updates.updated(&uri),
        StdioNews::Ambiguous => lane.turns.begin(&handle.name),
        // Emptied before each turn of the connection, so it is never full.
        StdioNews::Ready(_) | StdioNews::Inventory(_) => drop(news_in.try_send(news)),
    };
    let mut ready_at: Option<Instant> = None;
    let ended = {
        let connection = stdio::run(writer, reader, options, &handle.metrics, stop, &mut tell);
        tokio::pin!(connection);
        let mut agreed: Option<Agreed> = None;
        loop {
            tokio::select! {
                biased;
                Some(news) = news_out.recv() => match news {
                    StdioNews::Ready(link) => {
                        agreed = Some(link.agreed);
                        ready_at = Some(clock::now());
                        ready(context, &link.agreed);
                        let link = Link::Stdio(link);
                        lane.set_state(LinkState::Ready(link.clone()));
                        restore(context, link);
                        context.report(News::State).await;
                    }
                    StdioNews::Inventory(inventory) => if let Some(agreed) = agreed {
                        context.report(News::Inventory(inventory, agreed)).await;
                    },
                    StdioNews::Fault(_) | StdioNews::Ambiguous | StdioNews::Updated(_) | StdioNews::Unclaimed(_) => {}
                },
                ended = &mut connection => break ended,
            }
        }
    };
    let served = ready_at.map(|at| clock::now().duration_since(at));
    // No call may find the old link while what is behind it is ended, which takes its time.
    lane.set_state(LinkState::Starting);
    (ended, served)
}

/// Says that a lane is open.
pub(crate) fn ready(context: &Context, agreed: &Agreed) {
    let (upstream, revision) = (&context.handle.name, agreed.revision);
    if context.lane.is_main() {
        tracing::info!(upstream.name = %upstream, revision = %revision, "upstream ready");
    } else {
        tracing::debug!(upstream.name = %upstream, revision = %revision, "upstream session of a client's own ready");
    }
}

/// Has a server that was started anew told what is watched there.
pub(crate) fn restore(context: &Context, link: Link) {
    let (handle, lane) = (Arc::clone(&context.handle), Arc::clone(&context.lane));
    context.nursery.tasks.spawn("restore", async move { lane.updates.restore(&handle, &link).await });
}

/// How long an upstream of unknown era may take to answer `server/discover`: the start of a package runner is in it.
pub(crate) const PROBE_TIME: Duration = Duration::from_secs(10);
