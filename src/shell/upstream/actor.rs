//! The life of one upstream: it starts, serves, dies, waits, and starts again. Only this task sets
//! the state of the main lane.
//!
//! A lazy upstream rests between uses, in the state `idle`: without process, session or connection.
//! A call or a subscription that needs it starts it, and it is started once if its lists are
//! unknown. It goes to rest when it has been unused for its `idle-stop`, or as soon as its lists
//! are read if nothing else needed it. Uses are calls (in flight, parked, or waiting for the link),
//! watched resources, clients' own sessions, and tasks during their time to live. Going to rest is
//! no death: there is no back-off, no restart is counted, and the lists stay. A lazy upstream that
//! dies is restarted like any other until it has answered, since an upstream that cannot start must
//! not look like one at rest.

mod askers;
pub(crate) mod context;
pub(crate) mod conversation;
pub(crate) mod http;
mod http_lists;
pub(super) mod listing;
mod placed;
mod retry;
pub(crate) mod sse;

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use crate::base::clock;
use crate::config::{EraChoice, HttpTransport, Placement, StartMode, UpstreamSettings, UpstreamTarget, duration_text};
use crate::engine::handshake::EraHint;
use crate::engine::pace::restart::{StartBackoff, StartFailure};
use crate::upstream::actor::context::{ActorContext, ActorNews, LifeResult};
use crate::upstream::actor::conversation::serve_process;
use crate::upstream::actor::placed::serve_placed;
use crate::upstream::actor::retry::{RestEnd, forget, pause};
use crate::upstream::http::remote::RemoteServer;
use crate::upstream::process::launch::Launch;
use crate::upstream::session::handle::UpstreamHandle;
use crate::upstream::session::lane::{Lane, ListReceiver};
use crate::upstream::session::link::LinkState;
use crate::upstream::spawner::{ClusterMembership, Spawner};
use crate::upstream::state::last_words::without;
use crate::upstream::state::standing::CredentialStanding;

/// A start counts as slow after this time, or half of its limit: it is logged, and others need not
/// wait for it.
const SLOW: Duration = Duration::from_secs(10);
/// Number of failures in a row that are logged as an error.
const KEEPS_FAILING: u32 = 5;
/// Interval at which a lazy upstream that could not go to rest is checked again.
const LOOK: Duration = Duration::from_millis(50);

/// Spawns the task of a lane that an owner has for itself, or that reads the lists.
pub(crate) fn open(handle: &Arc<UpstreamHandle>, spawner: &Spawner, lane: &Arc<Lane>) {
    let context = ActorContext {
        handle: Arc::clone(handle),
        lane: Arc::clone(lane),
        reports: None,
        spawner: Spawner { stop: spawner.stop.child_token(), ..spawner.clone() },
        remembered: Some(EraHint::Legacy),
        is_known: false,
        lists_first: false,
    };
    match lane.lists_to().cloned() {
        Some(to) => spawner.tasks.spawn("listing", run_listing(context, to)),
        None => spawner.tasks.spawn("lane", run_owned(context)),
    }
}

/// Serves one life of the upstream. Values of variables are removed from the reason for its end.
async fn serve(context: &ActorContext, hint: EraHint) -> LifeResult {
    let spec = context.handle.spec.load_full();
    let run = Box::pin(serve_as(context, &spec, hint)).await;
    LifeResult { why: without(&spec.expanded, run.why), ..run }
}

/// Starts a program or connects to a server, as the configuration says, unless the launch is not
/// allowed.
async fn serve_as(context: &ActorContext, spec: &UpstreamSettings, hint: EraHint) -> LifeResult {
    let health = &context.handle.health;
    // The main session has waited before it took a slot for its start.
    if context.spawner.stop.run_until_cancelled(context.spawner.prior.wait(spec)).await.is_none() {
        return LifeResult { why: "stopped".to_owned(), next: None, served: None };
    }
    if !spec.lacks.is_empty() {
        health.lasts(
            "set the variable where headend starts, then start headend again; for a file, `headend reload` is enough",
        );
        return LifeResult { why: spec.lacks.join("; "), next: None, served: None };
    }
    let found = match context.spawner.gate.pass(spec) {
        Ok(found) => found,
        Err(why) => {
            if context.spawner.gate.shut().is_none() {
                health.lasts("install the program, or correct `command` or PATH");
            }
            return LifeResult { why, next: None, served: None };
        }
    };
    if let Some(mut launch) = Launch::of(spec, found, context.spawner.marks.next()) {
        launch.lifeline.clone_from(&context.spawner.lifeline);
        if spec.placement == Placement::Each {
            return Box::pin(serve_process(context, launch, hint)).await;
        }
        return match &context.spawner.membership {
            ClusterMembership::Alone => Box::pin(serve_process(context, launch, hint)).await,
            ClusterMembership::Replica(cluster) if context.lane.is_main() => {
                Box::pin(serve_placed(context, cluster, launch, hint)).await
            }
            ClusterMembership::Replica(_) => {
                LifeResult { why: "it has a single session".to_owned(), next: None, served: None }
            }
            ClusterMembership::Outside => {
                let why = "`placement = \"one\"`: only the daemons of the cluster run it".to_owned();
                LifeResult { why, next: None, served: None }
            }
        };
    }
    match spec.target.clone() {
        UpstreamTarget::Stdio { .. } => {
            LifeResult { why: "there is nothing to start".to_owned(), next: None, served: None }
        }
        UpstreamTarget::Http { transport, .. } => {
            match RemoteServer::of(spec, &context.spawner.http, health, context.handle.keeper.as_ref()) {
                Ok(remote) if transport == HttpTransport::Sse => {
                    Box::pin(sse::serve(context, &Arc::new(remote), context.handle.start_limit())).await
                }
                Ok(remote) => Box::pin(http::serve(context, &Arc::new(remote), hint)).await,
                Err(why) => {
                    health.lasts("correct `url`, `headers` or the proxy, then `headend reload`");
                    LifeResult { why, next: None, served: None }
                }
            }
        }
    }
}

/// Serves one life of the main session. Only a few programs start at a time, and a slow start is
/// logged.
async fn serve_main(context: &ActorContext, hint: EraHint) -> LifeResult {
    let (handle, stop) = (&context.handle, &context.spawner.stop);
    let spec = handle.spec.load_full();
    let is_program = matches!(spec.target, UpstreamTarget::Stdio { .. });
    if stop.run_until_cancelled(context.spawner.prior.wait(&spec)).await.is_none() {
        return LifeResult { why: "stopped".to_owned(), next: None, served: None };
    }
    let place = if is_program {
        let place = stop.run_until_cancelled(context.spawner.starts.take()).await;
        let Some(place) = place else { return LifeResult { why: "stopped".to_owned(), next: None, served: None } };
        Some(place)
    } else {
        None
    };
    let mut serving = Box::pin(serve(context, hint));
    let patience = SLOW.min(handle.start_limit() / 2);
    tokio::select! {
        run = &mut serving => return run,
        () = context.lane.started(patience) => {}
    }
    if matches!(*context.lane.state(), LinkState::Starting) {
        let limit = duration_text(handle.start_limit());
        let (so_far, most) = (in_words(patience), in_words(handle.start_limit()));
        let name = &handle.name;
        let since_s = patience.as_secs_f64();
        tracing::info!(upstream.name = %name, since_s, limit, "upstream still starting ({so_far} of {most})");
    }
    drop(place);
    serving.await
}

/// Returns a time in seconds, or in whole minutes from two minutes on.
fn in_words(time: Duration) -> String {
    match time.as_secs() {
        seconds if seconds >= 120 && seconds.is_multiple_of(60) => format!("{} min", seconds / 60),
        seconds => format!("{seconds} s"),
    }
}

/// Runs a client's own session once, until it fails or no client needs it.
async fn run_owned(context: ActorContext) {
    let (lane, stop) = (&context.lane, context.spawner.stop.clone());
    let mut serving = Box::pin(serve(&context, EraHint::Legacy));
    let lanes = &context.handle.lanes;
    let unused = async {
        lane.over(&context.handle.spec).await;
        while !lanes.close_unused(lane) {
            lane.over(&context.handle.spec).await;
        }
    };
    let ended = tokio::select! {
        run = &mut serving => Some(run),
        () = unused => None,
    };
    match ended {
        Some(run) => {
            lanes.close(lane);
            let handle = &context.handle;
            if !stop.is_cancelled() {
                handle.health.doubt(&run.why);
            }
            let told = || handle.health.lines.sessions.count(clock::uptime());
            if let Some(count) = (!stop.is_cancelled()).then(told).flatten() {
                tracing::warn!(upstream.name = %handle.name, error = %run.why, count, "a client's own session ended");
            }
        }
        None => {
            stop.cancel();
            serving.await;
        }
    }
    context.handle.main.used_like(lane);
}

/// Runs a session that reads the lists once, until it fails or its reader is gone. A program takes
/// a start slot, like the main one of its upstream.
async fn run_listing(context: ActorContext, to: ListReceiver) {
    let (lane, stop) = (&context.lane, context.spawner.stop.clone());
    let is_program = matches!(context.handle.spec.load().target, UpstreamTarget::Stdio { .. });
    let mut place = None;
    if is_program {
        tokio::select! {
            taken = context.spawner.starts.take() => place = Some(taken),
            () = to.closed() => return,
            () = stop.cancelled() => return,
        }
    }
    let started = async {
        lane.started(SLOW).await;
        drop(place);
        std::future::pending::<()>().await;
    };
    let mut serving = Box::pin(serve(&context, EraHint::Legacy));
    tokio::select! {
        run = &mut serving => drop(to.send(Err(run.why)).await),
        () = started => {}
        () = to.closed() => {
            stop.cancel();
            serving.await;
        }
    }
}

/// Waits at rest until a call or subscription needs the upstream, or it is no longer lazy. Returns
/// `false` if it is stopped instead.
async fn rest(context: &ActorContext) -> bool {
    let (handle, lane) = (&context.handle, &context.lane);
    lane.set_state(LinkState::Idle);
    while handle.spec.load().start == StartMode::Lazy && !lane.is_wanted() {
        tokio::select! {
            () = lane.wanted.notified() => {}
            () = handle.configured.notified() => {}
            () = context.spawner.stop.cancelled() => return false,
        }
    }
    !context.spawner.stop.is_cancelled()
}

/// Waits until a lazy upstream has been unused for its `idle-stop`, and takes its link away. An
/// upstream that was started only to read its lists is unused once they are read.
async fn wait_until_idle(context: &ActorContext, only_lists: bool) {
    let (handle, lane) = (&context.handle, &context.lane);
    let begun = clock::now();
    loop {
        let spec = handle.spec.load_full();
        if spec.start == StartMode::Eager {
            handle.configured.notified().await;
            continue;
        }
        let wait = handle.unused_for().map_or(spec.idle_stop, |unused| {
            let no_call_yet = only_lists && unused >= clock::since(begun);
            if no_call_yet { Duration::ZERO } else { spec.idle_stop.saturating_sub(unused) }
        });
        if wait.is_zero() && lane.listed.load(Ordering::Relaxed) && handle.unread.may_rest() && lane.rest() {
            return;
        }
        tokio::select! {
            () = tokio::time::sleep(wait.max(LOOK)) => {}
            () = handle.configured.notified() => {}
        }
    }
}

/// Runs an upstream until the context is stopped.
pub(crate) async fn run(context: ActorContext) {
    let (handle, lane, stop) = (&context.handle, &context.lane, &context.spawner.stop);
    // A launch that is not allowed is reported like a failed start.
    let is_lazy = handle.spec.load().start == StartMode::Lazy;
    let mut rests = is_lazy && context.is_known && context.spawner.gate.shut().is_none();
    let mut backoff = StartBackoff::default();
    let mut hint = context.first_hint();
    // A hint of an earlier run may be wrong by now.
    let mut recalled = context.remembered.is_some() && handle.spec.load().era == EraChoice::Auto;
    let mut told = String::new();
    loop {
        if std::mem::take(&mut rests) && !rest(&context).await {
            break;
        }
        let is_lazy = handle.spec.load().start == StartMode::Lazy;
        let life = context.life(is_lazy);
        let began = clock::now();
        lane.listed.store(false, Ordering::Relaxed);
        lane.begin();
        handle.incarnation.fetch_add(1, Ordering::Relaxed);
        let mut serving = Box::pin(serve_main(&life, hint));
        let mut run = tokio::select! {
            run = &mut serving => run,
            () = wait_until_idle(&context, is_lazy && !lane.is_used()) => {
                life.spawner.stop.cancel();
                serving.await;
                tracing::info!(upstream.name = %handle.name, "upstream stopped until it is needed");
                // Neither a failure nor a lasting hint: the program may be another one at the next
                // start.
                (backoff, told) = (StartBackoff::default(), String::new());
                recalled = handle.spec.load().era == EraChoice::Auto && hint != EraHint::Probe;
                rests = true;
                continue;
            }
        };
        if stop.is_cancelled() {
            break;
        }
        // A start that only showed how to ask for the era is repeated at once, because nothing has
        // died yet. A start that used up its time is a failure.
        let late = run.served.is_none() && handle.health.has_run_out();
        let is_open = run.served.is_none() && handle.spec.load().era == EraChoice::Auto;
        let learnt = run.next.filter(|next| *next != hint && is_open);
        if let Some(next) = learnt.filter(|_| hint == EraHint::Probe) {
            tracing::debug!(upstream.name = %handle.name, why = %run.why, "starting again without the era probe");
            hint = next;
            if !late {
                continue;
            }
        } else if run.served.is_none() && std::mem::take(&mut recalled) {
            tracing::debug!(upstream.name = %handle.name, why = %run.why, "starting again with the era probe");
            hint = EraHint::Probe;
            if !late {
                continue;
            }
        } else if let Some(next) = learnt {
            // It may be another server, or only be slow: the next start asks.
            hint = next;
        }
        if late {
            let had = handle.start_limit();
            handle.started_late();
            let (had, next) = (duration_text(had), duration_text(handle.start_limit()));
            run.why = format!("not ready within its `start-timeout` of {had}, the next start has {next}: {}", run.why);
        }
        recalled = false;
        let wait = backoff.failed(kind(&context), run.served, clock::jitter());
        if run.served.is_some() {
            told.clear();
            forget(&handle.again);
        }
        // A call may have noticed the end first.
        if handle.health.take_told() {
            told.clone_from(&run.why);
        }
        log_failure(&context, &run.why, &told, backoff.failures(), wait);
        lane.restarts.fetch_add(1, Ordering::Relaxed);
        handle.metrics.restarted();
        told.clone_from(&run.why);
        handle.health.failed(handle.health.flaws.completed(run.why));
        // A call that saw an earlier state may have asked for a start.
        forget(&lane.wanted);
        lane.set_state(LinkState::Down { until: clock::now() + wait });
        context.report(ActorNews::State).await;
        match pause(&context, began, wait).await {
            RestEnd::Due => {}
            RestEnd::Mended => (backoff, told) = (StartBackoff::default(), String::new()),
            RestEnd::Stopped => break,
        }
    }
    lane.set_state(LinkState::Stopped);
}

/// Returns the kind of the last failure, on which the back-off depends.
fn kind(context: &ActorContext) -> StartFailure {
    match context.handle.spec.load().target {
        _ if context.handle.health.standing() != CredentialStanding::Admitted => StartFailure::Unadmitted,
        _ if context.handle.health.remedy().is_some() => StartFailure::Lasting,
        UpstreamTarget::Stdio { .. } => StartFailure::Process,
        UpstreamTarget::Http { .. } => StartFailure::Connection,
    }
}

/// Logs a failure. A failure that repeats the last one (`told`) is logged at debug level only, and
/// once more as an error after several in a row. So are all further failures of a server behind a
/// URL, because their texts vary while it is away.
fn log_failure(context: &ActorContext, why: &str, told: &str, failures: u32, wait: Duration) {
    let (name, retry_ms, health) = (&context.handle.name, clock::millis(wait), &context.handle.health);
    let is_still_away = !told.is_empty() && kind(context) == StartFailure::Connection;
    let (next, stderr) = (health.remedy(), health.stderr().join("\n"));
    let stderr = Some(stderr.as_str()).filter(|lines| !lines.is_empty());
    if failures == KEEPS_FAILING && next.is_none() {
        tracing::error!(upstream.name = %name, error = %why, failures, retry_ms, stderr, "upstream keeps failing");
    } else if why == told || is_still_away {
        tracing::debug!(upstream.name = %name, error = %why, failures, retry_ms, "upstream still down");
    } else if next.is_some() {
        tracing::warn!(upstream.name = %name, error = %why, next = next.as_deref(), retry_ms, stderr, "upstream down until it is mended");
    } else {
        tracing::warn!(upstream.name = %name, error = %why, retry_ms, stderr, "upstream down");
    }
}
