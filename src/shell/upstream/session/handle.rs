//! The handle of one upstream: its lanes, its call slots, its counters.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicU64, AtomicUsize, Ordering};
use std::time::Duration;

use arc_swap::{ArcSwap, ArcSwapOption};
use futures_util::future::BoxFuture;
use tokio::sync::{Notify, watch};

use crate::base::callers::CallerNumber;
use crate::base::clock;
use crate::base::fair_slots::{FairSlot, FairSlots};
use crate::catalog::inventory::{Inventory, ListExcess};
use crate::catalog::name::UpstreamName;
use crate::config::{StartMode, UpstreamSettings, UpstreamTarget};
use crate::engine::askers::AskerRegistry;
use crate::engine::call::OutgoingCall;
use crate::engine::failure::{CallFailure, ExecutionDoubt, FailureReason};
use crate::mcp::log::LogLevel;
use crate::mcp::meta::Meta;
use crate::mcp::method::{ItemList, Method};
use crate::mcp::task::ServerTask;
use crate::mcp::version::Era;
use crate::policy::Permit;
use crate::telemetry::metrics::UpstreamMetrics;
use crate::upstream::http::exchange::HttpLink;
use crate::upstream::login::link::LoginLink;
use crate::upstream::login::tokens::TokenKeeper;
use crate::upstream::process::lifeline::Lifeline;
use crate::upstream::session::lane::{Lane, LaneChoice, LaneRequest, LaneUse, Lanes};
use crate::upstream::session::link::{LinkState, UpstreamLink};
use crate::upstream::session::sent::SentCall;
use crate::upstream::spawner::Spawner;
use crate::upstream::state::flaws::ListFlaws;
use crate::upstream::state::health::UpstreamHealth;
use crate::upstream::state::unread::UnreadLists;
use crate::wire::digest::Digest;
use crate::wire::headers::ParamHeaders;
use crate::wire::json::raw::RawJson;

/// How long a server may take to set its log level.
const SET_LEVEL: Duration = Duration::from_secs(2);

/// Longest time for a start, unless `start-timeout` is longer.
const LONGEST_START: Duration = Duration::from_secs(600);

/// A function that spawns the task of an owner's lane.
pub type LaneOpener = fn(&Arc<UpstreamHandle>, &Spawner, &Arc<Lane>);

/// The handle of an upstream, shared by the task that sets its state and the requests that use it.
#[derive(Debug)]
pub struct UpstreamHandle {
    pub name: UpstreamName,
    pub metrics: UpstreamMetrics,
    /// The configuration in force; timeouts and limits may change while calls run.
    pub spec: ArcSwap<UpstreamSettings>,
    pub main: Arc<Lane>,
    pub lanes: Lanes,
    spawner: Spawner,
    opener: LaneOpener,
    slots: FairSlots,
    /// Calls in flight of this handle alone; the gauge also counts those of a handle that it
    /// replaced.
    pub in_flight: AtomicUsize,
    pub incarnation: AtomicU64,
    /// Name of the replica that runs the program, if one of several does.
    pub runs_at: ArcSwapOption<String>,
    pub health: Arc<UpstreamHealth>,
    /// The tokens of an upstream behind a URL that has no credential in the configuration.
    pub keeper: Option<Arc<TokenKeeper>>,
    /// Limits how often persons are led to the page of the upstream's login.
    pub login_link: LoginLink,
    /// Fires when the configuration was applied again, which ends a wait between starts.
    pub again: Notify,
    /// Number of starts that took longer than they may.
    late_starts: AtomicU32,
    /// Fires for the actor when the configuration in force has changed.
    pub configured: Notify,
    /// Items that are not offered because the lists are too long, in the order of
    /// [`ItemList::ALL`](crate::mcp::method::ItemList::ALL).
    excess: ArcSwap<[ListExcess; 4]>,
    flaws: ArcSwap<ListFlaws>,
    pub unread: UnreadLists,
    /// How long it took to judge the last lists, sent after each time.
    pub judged: watch::Sender<Duration>,
}

/// A call slot of an upstream; released on drop.
#[derive(Debug)]
pub struct CallSlot {
    handle: Arc<UpstreamHandle>,
    _place: FairSlot,
}

impl Drop for CallSlot {
    fn drop(&mut self) {
        self.handle.in_flight.fetch_sub(1, Ordering::Relaxed);
        self.handle.metrics.in_flight().dec();
    }
}

impl UpstreamHandle {
    pub fn new(spec: UpstreamSettings, metrics: UpstreamMetrics, spawner: Spawner, opener: LaneOpener) -> Self {
        let is_remote = matches!(spec.target, UpstreamTarget::Http { .. });
        let health = Arc::new(UpstreamHealth::new(spec.name.clone(), metrics.clone(), is_remote));
        let askers = Arc::new(AskerRegistry::new(spec.attribution_timeout));
        let main = Lane::main(spec.name.clone(), spawner.declared(&spec), Arc::clone(&askers), Arc::clone(&health));
        let keeper = TokenKeeper::of(&spec, &spawner.logins, &health, (&spawner.tasks, &spawner.stop));
        let unread = UnreadLists::new(spec.name.clone(), metrics.clone());
        Self {
            name: spec.name.clone(),
            metrics,
            slots: FairSlots::new(spec.max_in_flight, spec.queue),
            spec: ArcSwap::from_pointee(spec),
            main: Arc::new(main),
            lanes: Lanes::new(askers, Arc::clone(&health)),
            spawner,
            opener,
            in_flight: AtomicUsize::new(0),
            incarnation: AtomicU64::new(0),
            runs_at: ArcSwapOption::empty(),
            health,
            keeper,
            login_link: LoginLink::default(),
            again: Notify::new(),
            late_starts: AtomicU32::new(0),
            configured: Notify::new(),
            excess: ArcSwap::default(),
            flaws: ArcSwap::default(),
            unread,
            judged: watch::channel(Duration::ZERO).0,
        }
    }

    /// Returns the items that are not offered because the lists are too long.
    pub fn excess(&self) -> [ListExcess; 4] {
        **self.excess.load()
    }

    /// Returns the definitions that were repaired or withheld because they are invalid.
    pub fn flaws(&self) -> Arc<ListFlaws> {
        self.flaws.load_full()
    }

    /// Records the lists after they were read. Logs a change of the items that are not offered or
    /// were repaired.
    pub fn listed(&self, inventory: &Inventory) {
        self.repaired(ListFlaws::of(inventory));
        let excess = inventory.excess();
        self.metrics.excess(excess.iter().map(|excess| excess.items).sum());
        if self.excess() == excess {
            return;
        }
        self.excess.store(Arc::new(excess));
        for (list, excess) in ItemList::ALL.into_iter().zip(excess).filter(|(_, excess)| !excess.is_none()) {
            tracing::warn!(
                upstream.name = %self.name, list = list.member(), not_offered = excess.items, or_more = excess.or_more, max_inventory = self.spec.load().max_inventory,
                "the list is longer than `max-inventory`: its first items are offered"
            );
        }
    }

    /// Records and logs a change of repaired definitions.
    fn repaired(&self, flaws: ListFlaws) {
        self.metrics.repairs(flaws.repairs);
        if *self.flaws() == flaws {
            return;
        }
        // The supervisor logs withheld items.
        if flaws.repairs > 0
            && let Some(count) = self.health.lines.lists.count(clock::uptime())
        {
            tracing::warn!(
                upstream.name = %self.name, repairs = flaws.repairs, count,
                "definitions are not as the protocol wants them and were repaired; `headend status {}` lists the repairs", self.name
            );
        }
        self.flaws.store(Arc::new(flaws));
    }

    /// Reads unread lists again now. A lazy upstream at rest is started for that, also if its rest
    /// begins meanwhile.
    pub fn relist(&self) {
        self.unread.now.notify_one();
        self.unread.now_for_askers.notify_one();
        if self.spec.load().start == StartMode::Lazy && !self.unread.all().is_empty() {
            self.main.order();
        }
    }

    /// Returns the digest of the program or address that answers; grants are bound to it and to the
    /// definition.
    pub fn launch(&self) -> Digest {
        self.spawner.gate.digest()
    }

    /// Returns the time until the next start, if the upstream waits for one.
    pub fn next_start(&self) -> Option<Duration> {
        match *self.main.state() {
            LinkState::Down { until } => Some(until.saturating_duration_since(clock::now())),
            LinkState::Idle | LinkState::Starting | LinkState::Ready(_) | LinkState::Stopped => None,
        }
    }

    /// Returns what an operator can do about the upstream's state, if it has failed.
    pub fn advice(&self) -> Option<String> {
        if let Some(text) = unset(&self.spec.load().lacks).filter(|_| self.health.state().has_failed()) {
            return Some(text);
        }
        let now = format!("`headend restart {}` tries at once", self.name);
        let advice = || self.health.remedy().map_or_else(|| now.clone(), |remedy| format!("{remedy}; {now}"));
        self.health.state().has_failed().then(advice)
    }

    /// Returns the time limit for a start: `start-timeout`, doubled for each start that took
    /// longer.
    pub fn start_limit(&self) -> Duration {
        let stated = self.spec.load().start_timeout;
        let late = self.late_starts.load(Ordering::Relaxed).min(16);
        stated.saturating_mul(1 << late).min(stated.max(LONGEST_START))
    }

    /// Doubles the time limit of the next start, because one took longer than it may.
    pub fn started_late(&self) {
        self.late_starts.fetch_add(1, Ordering::Relaxed);
    }

    /// Applies changed settings; calls in flight keep their slots.
    pub fn configure(&self, spec: UpstreamSettings) {
        self.slots.set_number(spec.max_in_flight);
        self.slots.set_queue_limit(spec.queue);
        self.main.news.turns.askers().set_patience(spec.attribution_timeout);
        self.spec.store(Arc::new(spec));
        self.configured.notify_one();
    }

    /// Returns the pipe that the guards of the upstream's programs hold; `None` without programs.
    pub fn lifeline(&self) -> Option<&Arc<Lifeline>> {
        self.spawner.lifeline.as_ref()
    }

    /// Returns whether the upstream starts programs.
    pub fn is_program(&self) -> bool {
        matches!(self.spec.load().target, UpstreamTarget::Stdio { .. })
    }

    /// Returns whether a call has a slot of the upstream, or waits for one.
    pub fn is_in_use(&self) -> bool {
        self.in_flight.load(Ordering::Relaxed) > 0 || self.slots.waiting() > 0
    }

    /// Ends the upstream and all its sessions, and starts no further program.
    pub fn end(&self) {
        self.spawner.stop.cancel();
        self.spawner.lifeline.iter().for_each(|lifeline| lifeline.close());
    }

    /// Returns how long nothing has used the upstream; `None` while a call, a watched resource or a
    /// client's own session does.
    pub fn unused_for(&self) -> Option<Duration> {
        self.main.unused_for().filter(|_| self.lanes.len() == 0)
    }

    /// Returns the lane for a call of this client, with its link, if both are open already.
    pub fn open_lane(&self, wants: &LaneRequest) -> Option<(LaneUse, UpstreamLink)> {
        // Counted before looking for the link, see `Lane::rest`.
        let used = self.main.take();
        let main = self.main.open_link()?;
        if main.agreed().revision.era() == Era::Modern {
            return Some((used, main));
        }
        let lane = self.lanes.find(&self.spec.load(), main.agreed(), wants)?;
        match lane {
            None => Some((used, main)),
            Some(lane) => lane.open_link().map(|link| (lane, link)),
        }
    }

    /// Waits for the lane for a call of this client, and its link. Opens a lane of the client's own
    /// at its first use.
    ///
    /// # Errors
    /// [`CallFailure`]: nothing was sent.
    pub async fn lane(self: &Arc<Self>, wants: &LaneRequest) -> Result<(LaneUse, UpstreamLink), CallFailure> {
        let spec = self.spec.load_full();
        let mut is_second = false;
        loop {
            let used = self.main.take();
            let main = self.main.link(&spec).await?;
            let (lane, is_new) = match self.lanes.choose(&spec, main.agreed(), wants)? {
                LaneChoice::Main => return Ok((used, main)),
                LaneChoice::Owned(lane) => (lane, false),
                LaneChoice::New(lane, used) => {
                    self.open(&lane);
                    (used, true)
                }
            };
            match lane.link(&spec).await {
                // The lane was about to end, which is no failed start.
                Err(_) if !is_new && !is_second && matches!(*lane.state(), LinkState::Stopped) => is_second = true,
                link => return Ok((lane, link?)),
            }
        }
    }

    /// Opens a lane besides the main one.
    pub fn open(self: &Arc<Self>, lane: &Arc<Lane>) {
        (self.opener)(self, &self.spawner, lane);
    }

    /// Waits as [`Self::lane`] does, in a future that can be kept.
    pub fn way(
        self: &Arc<Self>,
        wants: &LaneRequest,
    ) -> BoxFuture<'static, Result<(LaneUse, UpstreamLink), CallFailure>> {
        let (handle, wants) = (Arc::clone(self), wants.clone());
        Box::pin(async move { handle.lane(&wants).await })
    }

    /// Takes a call slot, if one is free and no call waits for it.
    pub fn free_slot(self: &Arc<Self>, caller: &CallerNumber) -> Option<CallSlot> {
        self.slots.try_take(caller).map(|place| self.taken(place))
    }

    /// Waits for a call slot in the caller's turn: longer while the upstream starts, which calls
    /// with slots wait for too, and up to `call-max` while another caller has more slots.
    ///
    /// # Errors
    /// [`FailureReason::Busy`]: nothing was sent.
    pub async fn slot(self: &Arc<Self>, caller: &CallerNumber) -> Result<CallSlot, CallFailure> {
        if let Some(slot) = self.free_slot(caller) {
            return Ok(slot);
        }
        let spec = self.spec.load_full();
        let busy = || {
            let detail = format!("The server `{}` is busy.", self.name);
            CallFailure::new(FailureReason::Busy, ExecutionDoubt::No, detail)
                .retry_after(spec.queue_timeout.max(Duration::from_secs(1)))
        };
        let is_shared = self.spawner.intake.budget.is_shared();
        let mut queued = self.slots.queue(caller, is_shared).ok_or_else(busy)?;
        let start = if self.main.open_link().is_some() { Duration::ZERO } else { spec.start_wait };
        let patience = spec.queue_timeout + start;
        let place = queued.wait(patience, patience.max(spec.call_max)).await;
        place.map(|place| self.taken(place)).ok_or_else(busy)
    }

    /// Counts a call slot that was taken.
    fn taken(self: &Arc<Self>, place: FairSlot) -> CallSlot {
        self.in_flight.fetch_add(1, Ordering::Relaxed);
        self.metrics.in_flight().inc();
        CallSlot { handle: Arc::clone(self), _place: place }
    }

    /// Asks a legacy server for log messages of at least this level, unless it was asked before.
    /// The level belongs to the session, so it stays; each client gets messages of its own level
    /// only.
    pub async fn ask_for_logs(&self, link: &UpstreamLink, permit: &Permit, wanted: LogLevel) {
        let agreed = link.agreed();
        if agreed.revision.era() == Era::Modern || !agreed.offers.logging || !link.logs().lower(wanted) {
            return;
        }
        let mut outgoing = OutgoingCall::own(Method::SetLevel, Meta::default());
        outgoing.body.set("level", RawJson::string(wanted.into_str()));
        let mut exchange = self.call(link, permit, outgoing, &ParamHeaders::default());
        // A server that does not answer this is not worth waiting for.
        drop(tokio::time::timeout(SET_LEVEL, exchange.outcome()).await);
    }

    /// Parses the task in the upstream's answer to `tasks/get`, and counts reserved words in it.
    pub fn task(&self, result: &RawJson) -> Option<ServerTask> {
        let task = ServerTask::got(result, self.name.as_str())?;
        self.metrics.reserved(task.taken);
        Some(task)
    }

    /// Passes a permitted call, or its next round, to the upstream: nothing is sent without a
    /// permit.
    pub fn call(&self, link: &UpstreamLink, _: &Permit, outgoing: OutgoingCall, headers: &ParamHeaders) -> SentCall {
        match link {
            UpstreamLink::Stdio(link) => SentCall::Stdio(link.call(outgoing)),
            UpstreamLink::Http(link) => SentCall::Http(Box::new(HttpLink::call(link, &outgoing, headers))),
        }
    }
}

/// Returns how to set the variables that a configuration lacks; `None` if it lacks no variable.
fn unset(lacks: &[String]) -> Option<String> {
    let name = |text: &String| Some(text.split_once("the environment variable `")?.1.split_once('`')?.0.to_owned());
    let names: Vec<String> = lacks.iter().filter_map(name).collect();
    let names = names.join(" and ");
    let text = format!(
        "set {names} where headend starts, then start headend again; with `{{ file = ... }}`, `headend reload` is enough"
    );
    (!names.is_empty()).then_some(text)
}

#[cfg(test)]
mod tests;
