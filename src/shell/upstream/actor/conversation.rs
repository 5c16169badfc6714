//! One conversation with an upstream over lines, from its start to its end: over a child's pipes,
//! or over the two carriers of HTTP+SSE.

use std::os::unix::process::ExitStatusExt as _;
use std::pin::Pin;
use std::sync::Arc;
use std::time::{Duration, Instant};

use tokio::io::{AsyncRead, AsyncWrite};
use tokio::sync::{mpsc, oneshot};
use tokio_util::sync::CancellationToken;

use crate::base::aside::{MANY_ITEMS, run_aside_if};
use crate::base::clock;
use crate::base::never::or_never;
use crate::base::stop;
use crate::catalog::inventory::{Inventory, ListBounds, ListGap};
use crate::engine::failure::CallFailure;
use crate::engine::fault::ProtocolFault;
use crate::engine::handshake::{EraHint, HandshakeAgreement, PROBE_TIME};
use crate::engine::peer::{PeerOptions, PeerTimes};
#[cfg(any(test, feature = "testing"))]
use crate::stage::program::ProgramHandle;
use crate::upstream::actor::context::{ActorContext, LifeResult, open, ready};
use crate::upstream::actor::listing::LineLists;
use crate::upstream::line::connection::{self, ConnectionEnd, RefusedRequest, StdioNews, StdioOptions};
#[cfg(not(any(test, feature = "testing")))]
use crate::upstream::process::guard::GuardedChild as ProgramHandle;
use crate::upstream::process::launch::Launch;
use crate::upstream::process::leased::LeasedWriter;
use crate::upstream::process::stderr;
use crate::upstream::session::link::{LinkState, UpstreamLink};
use crate::upstream::spawner::Spawner;
use crate::upstream::state::last_words::LastWords;
use crate::upstream::state::unread::ListReaders;
use crate::wire::foreign;

/// How long to wait for the rest of stderr after a child has exited.
const LAST_WORDS: Duration = Duration::from_millis(500);

/// The carrier of a conversation.
pub(crate) enum LineCarrier {
    /// The pipes of a program, which other replicas may use too.
    Program { is_shared: bool },
    /// An event stream and POSTs, with the messages that could not be posted.
    Posts(mpsc::Receiver<RefusedRequest>),
    /// The link to the replica that runs the program.
    Replica,
}

/// Starts a child and converses with it until it ends. Explains its end with exit status and last
/// words.
pub(super) async fn serve_process(context: &ActorContext, launch: Launch, hint: EraHint) -> LifeResult {
    let handle = &context.handle;
    let Spawner { stop, tasks, times, .. } = &context.spawner;
    let started = tokio::select! {
        started = ProgramHandle::start(handle.name.as_str(), &launch) => started.map_err(Some),
        () = stop.cancelled() => Err(None),
    };
    let (mut keeper, (stdin, stdout, stderr)) = match started {
        Ok(started) => started,
        Err(Some(error)) => {
            if error.lacks_descriptors() {
                handle.health.no_descriptor();
            }
            if let Some(remedy) = error.remedy() {
                handle.health.lasts(remedy);
            }
            return LifeResult { why: error.to_string(), next: None, served: None };
        }
        Err(None) => return LifeResult { why: "stopped".to_owned(), next: None, served: None },
    };
    let _running = handle.metrics.process(keeper.number());
    let hidden: Vec<_> = launch.env.iter().chain(&launch.expanded).cloned().collect();
    let words = LastWords::of(&hidden);
    handle.health.flaws.hide(LastWords::of(&hidden));
    let (draining, drained) = oneshot::channel::<()>();
    let drain = stderr::drain(Arc::clone(&handle.health), stderr, words.clone());
    // A process that the child leaves behind may keep its stderr open forever.
    let over = CancellationToken::new();
    let _over = over.clone().drop_guard();
    tasks.spawn("stderr", async move {
        tokio::select! {
            () = drain => {}
            () = over.cancelled() => {}
        }
        drop(draining);
    });
    let (begun, start) = (clock::now(), handle.start_limit());
    let context =
        ActorContext { spawner: Spawner { stop: stop.child_token(), ..context.spawner.clone() }, ..context.clone() };
    let stdin = LeasedWriter::new(stdin, launch.lease.clone());
    let carrier = LineCarrier::Program { is_shared: launch.lease.is_some() };
    let talk = converse(&context, (hint, start), stdin, stdout, carrier);
    tokio::pin!(talk);
    let mut lost = None;
    let (ended, served) = tokio::select! {
        ended = &mut talk => ended,
        () = keeper.lost() => {
            lost = Some("the process that guards it was ended");
            context.spawner.stop.cancel();
            talk.await
        }
    };
    if served.is_none() && clock::now().duration_since(begun) >= start {
        handle.health.ran_out();
    }
    // A child that exited by itself has a status of its own, which ending it would hide.
    let early = tokio::time::timeout(stop::ENDED, keeper.exited()).await.ok().flatten();
    let status = keeper.stop(times).await;
    let status = early.or(status);
    // A broken or closed pipe explains less than the end of the program behind it.
    let ended_by_itself = early.is_some() || status.and_then(|status| status.code()).is_some_and(|code| code != 0);
    let what = if ended.left && ended_by_itself { "the program ended".to_owned() } else { ended.why };
    let mut why = lost.map_or(what, str::to_owned);
    if let Some(status) = status.filter(|status| !status.success()) {
        // Without an early exit, the signal was sent by headend.
        let is_ours = early.is_none() && status.signal().is_some();
        why = if is_ours { format!("{why}; headend ended the program") } else { format!("{why} ({status})") };
    } else if let Some(status) = early.filter(|_| ended.left && served.is_none()) {
        // The program exited successfully, because it had nothing to read.
        why = format!("{why} ({status}) before it was ready");
        if launch.lacks_stdin() {
            why.push_str("; its standard input had ended, since the container has none: write `run -i`");
        }
    }
    // The program may have written the reason just before it ended.
    if !stop.is_cancelled() {
        drop(tokio::time::timeout(LAST_WORDS, drained).await);
    }
    if let Some(line) = words.last().filter(|_| !stop.is_cancelled()) {
        why = format!("{why}; last line of stderr: {}", foreign::short(&line, 200));
    }
    handle.health.heard(words.all());
    LifeResult { why, next: ended.next, served }
}

/// Runs a conversation beside the future that carries its lines. If that one ends first, its reason
/// is that of the end.
pub(super) async fn run_carried(
    mut talk: Pin<&mut impl Future<Output = (ConnectionEnd, Option<Duration>)>>,
    mut carry: Pin<&mut impl Future<Output = String>>,
) -> LifeResult {
    let mut lost = None;
    let (ended, served) = loop {
        tokio::select! {
            ended = &mut talk => break ended,
            // The conversation reads everything that was received before, then the end.
            why = &mut carry, if lost.is_none() => lost = Some(why),
        }
    };
    LifeResult { why: lost.unwrap_or(ended.why), next: ended.next, served }
}

/// Converses over a pair of line streams, and reports to the supervisor what it learns. Returns why
/// it ended, and for how long the server was ready. `start` says how to ask for the era, and how
/// long the handshake may take.
pub(crate) async fn converse(
    context: &ActorContext,
    start: (EraHint, Duration),
    writer: impl AsyncWrite + Unpin,
    reader: impl AsyncRead + Unpin,
    carrier: LineCarrier,
) -> (ConnectionEnd, Option<Duration>) {
    let (handle, lane) = (&context.handle, &context.lane);
    let Spawner { stop, intake, .. } = &context.spawner;
    let peer = PeerOptions {
        ear: intake.ear(&handle.name),
        hint: start.0,
        times: PeerTimes { probe: PROBE_TIME, start: start.1 },
        bounds: ListBounds::of(handle.spec.load().max_inventory),
        declared: lane.declared.clone(),
        lists: lane.is_main() || lane.lists_to().is_some(),
        askers: Arc::clone(lane.news.turns.askers()),
    };
    let relist = if lane.is_main() { Arc::clone(&handle.unread.now) } else { Arc::default() };
    let judged = lane.is_main().then(|| handle.judged.subscribe());
    let (refusals, is_shared, loss) = match carrier {
        LineCarrier::Program { is_shared } => (None, is_shared, CallFailure::crashed()),
        LineCarrier::Posts(refusals) => (Some(refusals), false, CallFailure::crashed()),
        LineCarrier::Replica => (None, false, CallFailure::replica_lost()),
    };
    let options = StdioOptions { peer, intake: intake.clone(), relist, judged, is_shared, loss };
    let (news_in, mut news_out) = mpsc::channel(64);
    let mut tell = |news: StdioNews| match news {
        StdioNews::Fault(fault) => handle.metrics.fault(fault),
        StdioNews::Quirk(quirk) => {
            handle.metrics.fault(ProtocolFault::Lenient);
            handle.health.flaws.read(quirk);
        }
        StdioNews::Unreadable(message) => handle.health.flaws.unread(&message),
        StdioNews::List(list, trouble) => {
            if lane.is_main() {
                handle.unread.told(list, ListReaders::Everyone, trouble, &handle.health);
            }
        }
        StdioNews::Unclaimed(notice) => lane.news.tell(notice),
        StdioNews::Updated(uri) => lane.news.updates.updated(&uri),
        StdioNews::Gate(gate) => lane.news.turns.set(gate),
        StdioNews::Learned(lesson) => lane.news.turns.learned(&handle.name, &lesson),
        // Emptied before each round of the connection, so it is never full.
        StdioNews::Ready(_) | StdioNews::Inventory(_) => drop(news_in.try_send(news)),
    };
    let mut ready_at: Option<Instant> = None;
    let ended = {
        let connection = connection::run((writer, reader), refusals, options, &handle.metrics, stop, &mut tell);
        tokio::pin!(connection);
        let mut agreed: Option<HandshakeAgreement> = None;
        let (mut held, mut shown): (Option<UpstreamLink>, Option<oneshot::Receiver<()>>) = (None, None);
        let mut listing = LineLists::new(handle);
        loop {
            tokio::select! {
                biased;
                Some(news) = news_out.recv() => match news {
                    StdioNews::Ready(link) => {
                        agreed = Some(link.agreed);
                        ready_at = Some(clock::now());
                        ready(context, &link.agreed);
                        let link = UpstreamLink::Stdio(link);
                        if context.lists_first {
                            held = Some(link);
                        } else {
                            open(context, link).await;
                        }
                    }
                    StdioNews::Inventory(inventory) => if let Some(to) = lane.lists_to() {
                        // If earlier lists have not been taken yet, these are not needed.
                        drop(to.try_send(Ok(inventory)));
                    } else if let Some(agreed) = agreed {
                        let is_long = inventory.len() >= MANY_ITEMS;
                        let inventory = run_aside_if(is_long, || listing.listed(inventory, agreed));
                        shown = report(context, inventory, agreed, listing.is_awaited()).await;
                    },
                    StdioNews::List(..)
                    | StdioNews::Fault(_)
                    | StdioNews::Quirk(_)
                    | StdioNews::Unreadable(_)
                    | StdioNews::Gate(_)
                    | StdioNews::Learned(_)
                    | StdioNews::Updated(_)
                    | StdioNews::Unclaimed(_) => {}
                },
                inventory = listing.next() => if let Some(agreed) = agreed {
                    shown = report(context, inventory, agreed, listing.is_awaited()).await;
                },
                // Clients now see the lists that were read last, or the supervisor is gone.
                _ = or_never(shown.as_mut()), if held.is_some() => if let Some(link) = held.take() {
                    open(context, link).await;
                },
                ended = &mut connection => break ended,
            }
        }
    };
    let served = ready_at.map(|at| clock::now().duration_since(at));
    // No call may find the old link while the process behind it is being ended, which takes time. A
    // lane at rest has no link.
    if matches!(*lane.state(), LinkState::Ready(_)) {
        lane.set_state(LinkState::Starting);
    }
    (ended, served)
}

/// Reports lists to the supervisor. If no more lists are awaited for now, returns a receiver that
/// resolves once clients see them.
async fn report(
    context: &ActorContext,
    inventory: Inventory,
    agreed: HandshakeAgreement,
    awaits_more: bool,
) -> Option<oneshot::Receiver<()>> {
    let is_whole = !inventory.has_gap(ListGap::Awaited) && !awaits_more;
    let told = context.report_lists(inventory, agreed, is_whole).await;
    is_whole.then_some(told)
}
