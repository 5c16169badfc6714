//! Runs all upstreams and is the only writer of the [`Snapshot`].
//!
//! Takes reports of upstream actors and orders of the operator, and publishes a snapshot after each
//! change. Slow work (judging, merging, writing lists to disk) runs on blocking threads.

use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;
use std::time::{Duration, Instant};

use arc_swap::ArcSwap;
use tokio::sync::{mpsc, watch};
use tokio::task::JoinHandle;
use tokio::time::MissedTickBehavior;
use tokio_util::sync::CancellationToken;

use crate::base::clock;
use crate::base::never::or_never;
use crate::base::slots::SlotPool;
use crate::base::stop::StopTimes;
use crate::base::tally::LogTally;
use crate::base::task_group::TaskGroup;
use crate::catalog::inventory::{Inventory, ListGap};
use crate::catalog::merge::{Catalog, ItemFilters};
use crate::catalog::name::UpstreamName;
use crate::config::plan::{ReloadPlan, diff};
use crate::config::{Config, UpstreamSettings};
use crate::gateway::role::GatewayRole;
use crate::gateway::snapshot::{CatalogView, Snapshot};
use crate::mcp::version::Revision;
use crate::policy::{Limiter, Policy};
use crate::store::directory::StateDir;
use crate::store::leases::Leases;
use crate::store::pins::{LaunchGate, PinRegistry};
use crate::store::port::wait_for_change;
use crate::telemetry::metrics::Metrics;
use crate::upstream::actor;
use crate::upstream::actor::context::{ActorContext, ActorReport};
use crate::upstream::login::parts::LoginServices;
use crate::upstream::net::client::HttpClient;
use crate::upstream::process::lifeline::Lifeline;
use crate::upstream::process::mark::OwnerMarks;
use crate::upstream::process::prior::PriorPrograms;
use crate::upstream::session::handle::UpstreamHandle;
use crate::upstream::spawner::{ClusterMembership, IntakeLimits, Spawner};

mod draft;
mod launches;
mod lifelines;
mod made;
mod making;
mod order;
mod pinned;
mod publication;
mod reports;
mod room;
mod steered;

pub use self::order::SupervisorOrder;

use self::launches::{filters, join, launch_denial, leave_closed};
use self::made::{PendingSnapshot, SnapshotCallback};
use self::room::{MAX_INVENTORY_BYTES, too_many_bytes};

/// How long the first lists wait for upstreams that are still starting.
const SETTLE: Duration = Duration::from_millis(1500);
/// Interval at which pins changed by other processes are read.
const REFRESH: Duration = Duration::from_secs(2);
/// Capacity of the report queue; all waiting reports go into one snapshot.
const REPORTS: usize = 64;
/// Freshness of lists told to modern clients while an upstream is missing, in milliseconds.
const TTL_DEGRADED_MS: u32 = 5_000;

/// The services and settings that the supervisor works with.
#[derive(Debug)]
pub struct SupervisorServices {
    pub metrics: Metrics,
    pub store: Option<StateDir>,
    pub http: HttpClient,
    pub intake: IntakeLimits,
    pub logins: LoginServices,
    pub leases: Leases,
    pub pins: PinRegistry,
    pub times: StopTimes,
    pub marks: OwnerMarks,
    /// Programs of the daemon before this one.
    pub prior: PriorPrograms,
    pub membership: ClusterMembership,
    pub role: GatewayRole,
}

/// The handles by which the rest of the gateway reads, orders and stops the supervisor.
#[derive(Debug)]
pub struct SupervisorHandle {
    pub snapshots: Arc<ArcSwap<Snapshot>>,
    pub generation: watch::Receiver<u64>,
    /// True once every upstream has listed or failed, or the time for that is over.
    pub settled: watch::Receiver<bool>,
    pub orders: mpsc::Sender<SupervisorOrder>,
    /// Cancelled to end the supervisor, which then stops every upstream.
    pub stop: CancellationToken,
    pub tasks: TaskGroup,
}

/// An upstream with its lists and the times that decide whether they are shown.
#[derive(Clone)]
struct ManagedUpstream {
    handle: Arc<UpstreamHandle>,
    stop: CancellationToken,
    gate: Arc<LaunchGate>,
    filters: Arc<ItemFilters>,
    inventory: Option<Arc<(Inventory, Revision)>>,
    bytes: usize,
    /// True once this launch has listed; before that the inventory is an older one.
    is_read: bool,
    /// Number of items that earlier readings had and readings since the last draft lack.
    removed: u64,
    /// True if the lists were read since the last draft of a snapshot.
    is_fresh: bool,
    down_since: Option<Instant>,
    /// True once the upstream has listed or failed, or if its lists were recalled from disk.
    heard: bool,
}

struct Supervisor {
    /// The configuration as it was read, with upstreams that are switched off.
    written: Config,
    /// The configuration in force, without the upstreams that are switched off.
    config: Arc<Config>,
    policy: Arc<Policy>,
    limiter: Arc<Limiter>,
    managed: HashMap<UpstreamName, ManagedUpstream>,
    lifelines: HashMap<UpstreamName, Arc<Lifeline>>,
    parts: SupervisorServices,
    snapshots: Arc<ArcSwap<Snapshot>>,
    generation: watch::Sender<u64>,
    settled: watch::Sender<bool>,
    /// Upstreams whose lists are newer than on disk.
    unsaved: BTreeSet<UpstreamName>,
    /// The write of one upstream's lists that is under way.
    saving: Option<JoinHandle<()>>,
    /// `Some` if a snapshot is due; true to make it even if clients would see no change.
    wanted: Option<bool>,
    making: Option<PendingSnapshot>,
    refresh_due: bool,
    /// Replies to send once the next snapshot is in force.
    afterwards: Vec<SnapshotCallback>,
    max_inventory_bytes: usize,
    /// True if the store took writes of pins at the last check.
    took_writes: bool,
    reports: mpsc::Sender<ActorReport>,
    actors: TaskGroup,
    stop: CancellationToken,
    /// Slots for programs that may start at once.
    starts: SlotPool,
    /// Bounds on log lines about withheld items, and about pins that cannot be read.
    dropped: LogTally,
    unread: LogTally,
}

/// Starts all upstreams and the supervisor's task.
///
/// # Errors
/// The policy, limits or patterns cannot be compiled, which `check` would have said.
pub fn start(config: Config, parts: SupervisorServices) -> Result<SupervisorHandle, String> {
    let (supervisor, reports, orders, supervised) = build(config, parts)?;
    supervised.tasks.spawn("supervisor", supervisor.run(reports, orders));
    Ok(supervised)
}

/// Builds a supervisor, starts all upstreams and publishes a snapshot of remembered lists.
///
/// # Errors
/// As [`start`].
fn build(
    config: Config,
    parts: SupervisorServices,
) -> Result<(Supervisor, mpsc::Receiver<ActorReport>, mpsc::Receiver<SupervisorOrder>, SupervisorHandle), String> {
    let policy = Policy::build(&config.policy).map_err(|problems| join(&problems))?;
    let limiter = parts.leases.limiter(&policy).map_err(|error| error.to_string())?;
    let (reports_in, reports) = mpsc::channel(REPORTS);
    let (orders_in, orders) = mpsc::channel(8);
    let (generation_in, generation) = watch::channel(0);
    let (settled_in, settled) = watch::channel(false);
    let starts = SlotPool::new(config.server.limits.starts);
    let written = config.clone();
    let (config, policy, limiter) = (Arc::new(config), Arc::new(policy), Arc::new(limiter));
    let empty = Snapshot {
        generation: 0,
        config: Arc::clone(&config),
        handles: Vec::new(),
        completes: Vec::new(),
        logs: Vec::new(),
        extensions: Vec::new(),
        instructions: Vec::new(),
        unlisted: Vec::new(),
        input: Vec::new(),
        whole: Arc::new(CatalogView::new("", Catalog::default(), &policy)),
        profiles: HashMap::new(),
        unkept: HashMap::new(),
        policy: Arc::clone(&policy),
        limiter: Arc::clone(&limiter),
        dropped: Vec::new(),
        ttl_ms: TTL_DEGRADED_MS,
    };
    let snapshots = Arc::new(ArcSwap::from_pointee(empty));
    let stop = CancellationToken::new();
    let tasks = TaskGroup::default();
    let mut supervisor = Supervisor {
        written,
        config,
        policy,
        limiter,
        managed: HashMap::new(),
        lifelines: HashMap::new(),
        parts,
        snapshots: Arc::clone(&snapshots),
        generation: generation_in,
        settled: settled_in,
        unsaved: BTreeSet::new(),
        saving: None,
        wanted: None,
        making: None,
        refresh_due: false,
        afterwards: Vec::new(),
        max_inventory_bytes: MAX_INVENTORY_BYTES,
        took_writes: true,
        reports: reports_in,
        actors: TaskGroup::default(),
        stop: stop.clone(),
        starts,
        dropped: LogTally::of(200),
        unread: LogTally::default(),
    };
    let serves = supervisor.parts.role == GatewayRole::Serve;
    if serves {
        let may_start = |spec: &&UpstreamSettings| launch_denial(&supervisor.policy, &spec.name).is_none();
        supervisor.parts.pins.pin_new_launches(supervisor.config.upstreams.iter().filter(may_start));
        if let Some(store) = &supervisor.parts.store {
            store.forget_strays(&supervisor.inventory_keys());
        }
    }
    for upstream in supervisor.config.upstreams.clone() {
        supervisor.launch(upstream)?;
    }
    // Made in place: no client is connected yet that this could delay.
    let draft = supervisor.draft(true);
    supervisor.put(draft.make());
    supervisor.settle(!serves);
    let supervised = SupervisorHandle { snapshots, generation, settled, orders: orders_in, stop, tasks };
    Ok((supervisor, reports, orders, supervised))
}

impl Supervisor {
    /// Takes reports and orders until the stop, then writes unsaved lists and waits for all actors.
    async fn run(mut self, mut reports: mpsc::Receiver<ActorReport>, mut orders: mpsc::Receiver<SupervisorOrder>) {
        let settle = tokio::time::sleep(SETTLE);
        tokio::pin!(settle);
        let mut grace = tokio::time::interval(Duration::from_secs(30));
        // Ticks missed while no upstream was down are not made up for.
        grace.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let mut refresh = tokio::time::interval(REFRESH);
        let (mut news, pins) = (Vec::with_capacity(REPORTS), self.parts.pins.clone());
        let mut changes = pins.store_changes();
        loop {
            // Not while a snapshot is being made: it writes pins and announces them itself.
            if self.making.is_none() && std::mem::take(&mut self.refresh_due) {
                self.refresh().await;
            }
            self.make();
            while self.saving.is_none() && !self.unsaved.is_empty() {
                self.remember();
            }
            tokio::select! {
                // Reports that came while the last snapshot was made go into one.
                1.. = reports.recv_many(&mut news, REPORTS) => self.take_reports(&mut news),
                Some(order) = orders.recv() => self.order(order),
                made = or_never(self.making.as_mut().map(|making| &mut making.made)) => self.made(made.ok()),
                () = &mut settle, if !*self.settled.borrow() => self.settle(true),
                _ = or_never(self.saving.as_mut()) => self.saving = None,
                // The only change without a report: a dead upstream's items expire.
                _ = grace.tick(), if self.managed.values().any(|m| m.down_since.is_some()) => self.publish(false),
                _ = refresh.tick() => self.refresh_due = true,
                () = wait_for_change(&mut changes) => self.refresh_due = true,
                () = pins.app_seen() => self.publish(false),
                () = self.stop.cancelled() => break,
            }
        }
        for managed in self.managed.values() {
            managed.stop.cancel();
        }
        if let Some(making) = self.making.take() {
            drop(making.made.await);
        }
        loop {
            if let Some(saving) = self.saving.take() {
                drop(saving.await);
            }
            if self.unsaved.is_empty() {
                break;
            }
            self.remember();
        }
        self.afterwards.clear();
        // Actors still report while they end; with the queue closed none waits for room in it.
        drop(reports);
        self.actors.join().await;
    }

    /// Adds an upstream with its remembered lists and, in a serving process, starts its actor.
    fn launch(&mut self, spec: UpstreamSettings) -> Result<(), String> {
        let filters = Arc::new(filters(&spec)?);
        let mut remembered = self.parts.store.as_ref().and_then(|store| store.recall(&spec.inventory_key()));
        let mut bytes = remembered.as_ref().map_or(0, |r| r.inventory.bytes());
        if bytes > self.inventory_room(&spec.name) {
            tracing::warn!(upstream.name = %spec.name, bytes, "the lists of the last run are read anew: {}", too_many_bytes(bytes));
            (remembered, bytes) = (None, 0);
        }
        let is_whole = remembered
            .as_mut()
            .is_some_and(|r| r.inventory.bound(spec.max_inventory) && !r.inventory.has_gap(ListGap::Unread));
        let metrics = self.parts.metrics.upstream(spec.name.as_str());
        let (name, stop) = (spec.name.clone(), self.stop.child_token());
        let spawner = Spawner {
            stop: stop.clone(),
            tasks: self.actors.clone(),
            http: self.parts.http.clone(),
            intake: self.parts.intake.clone(),
            logins: self.parts.logins.clone(),
            many_callers: self.config.has_many_callers(),
            starts: self.starts.clone(),
            times: self.parts.times,
            marks: self.parts.marks.clone(),
            lifeline: self.lifeline_of(&spec),
            prior: self.parts.prior.clone(),
            membership: self.parts.membership.clone(),
            gate: Arc::new(LaunchGate::new(self.parts.pins.clone(), &spec, launch_denial(&self.policy, &spec.name))),
        };
        let serves = self.parts.role == GatewayRole::Serve;
        if serves {
            // Before remembered items are shown; the actor passes again and reports a refusal.
            drop(spawner.gate.pass(&spec));
        }
        let gate = Arc::clone(&spawner.gate);
        let opener = if serves { actor::open } else { leave_closed };
        let handle = Arc::new(UpstreamHandle::new(spec, metrics, spawner.clone(), opener));
        let context = ActorContext {
            handle: Arc::clone(&handle),
            lane: Arc::clone(&handle.main),
            reports: Some(self.reports.clone()),
            spawner,
            remembered: remembered.as_ref().and_then(|r| r.hint),
            is_known: is_whole,
            lists_first: false,
        };
        if serves {
            self.actors.spawn("upstream", actor::run(context));
        }
        let inventory = remembered.map(|r| Arc::new((r.inventory, r.revision)));
        if let Some(known) = &inventory {
            handle.listed(&known.0);
        }
        let (heard, down_since) = (inventory.is_some() && serves, None);
        let (is_read, removed, is_fresh) = (false, 0, false);
        let managed = ManagedUpstream {
            handle,
            stop,
            gate,
            filters,
            inventory,
            bytes,
            is_read,
            removed,
            is_fresh,
            down_since,
            heard,
        };
        self.managed.insert(name, managed);
        Ok(())
    }

    /// Ends the wait for the first lists if it is time or every upstream has reported.
    fn settle(&self, time_is_over: bool) {
        if time_is_over || self.managed.values().all(|m| m.heard) {
            self.settled.send_replace(true);
        }
    }

    /// Applies changed pins: stops upstreams whose launch was rejected, and adds them anew to wait
    /// for its approval; wakes all that wait for one; publishes a snapshot.
    fn review(&mut self) {
        let revoked: Vec<UpstreamName> =
            self.managed.iter().filter(|(name, m)| m.gate.is_revoked(name)).map(|(name, _)| name.clone()).collect();
        for name in revoked {
            let Some(old) = self.managed.remove(&name) else { continue };
            // At once, without a drain: the operator rejected this program.
            old.stop.cancel();
            old.handle.metrics.retire(true);
            let spec = old.handle.spec.load_full();
            if let Err(error) = self.launch((*spec).clone()) {
                tracing::error!(upstream.name = %name, error = %error, "upstream cannot be started");
            }
        }
        for managed in self.managed.values().filter(|managed| managed.gate.shut().is_some()) {
            managed.gate.reviewed.notify_one();
        }
        self.publish(false);
    }

    /// Reads the pins that other processes changed and publishes what follows. If the store takes
    /// writes again, also judges and saves anew what could not be stored before.
    async fn refresh(&mut self) {
        let takes_writes = self.parts.pins.takes_writes();
        let is_back = !std::mem::replace(&mut self.took_writes, takes_writes) && takes_writes;
        if is_back {
            let listed = self.managed.iter().filter(|(_, managed)| managed.inventory.is_some());
            self.unsaved.extend(listed.map(|(name, _)| name.clone()));
        }
        match self.parts.pins.refresh().await {
            Ok(true) => self.review(),
            Ok(false) if is_back => self.review(),
            Ok(false) => {}
            Err(error) => {
                if let Some(count) = self.unread.count(clock::uptime()) {
                    tracing::warn!(error = %error, count, "the pins of other processes cannot be read");
                }
            }
        }
    }

    /// Puts a configuration in force, without the upstreams in `off`. All that can fail is done
    /// before anything changes. Unchanged upstreams keep running.
    ///
    /// # Errors
    /// The reason why the configuration cannot be put in force.
    fn enforce(&mut self, written: Config, off: &[UpstreamName]) -> Result<ReloadPlan, String> {
        let new = written.clone().without(off);
        let plan = diff(&self.config, &new);
        if let Some(why) = plan.refusal() {
            return Err(why);
        }
        let policy = Policy::build(&new.policy).map_err(|problems| join(&problems))?;
        for upstream in &new.upstreams {
            filters(upstream)?;
        }
        let judged_anew = |name: &&UpstreamName| launch_denial(&self.policy, name) != launch_denial(&policy, name);
        let judged_anew: Vec<UpstreamName> = self.managed.keys().filter(judged_anew).cloned().collect();
        let mut before = self.inventory_keys();
        for name in plan.stop.iter().chain(&plan.replace).chain(&judged_anew) {
            if let Some(old) = self.managed.remove(name) {
                old.handle.metrics.retire(!plan.stop.contains(name));
                self.retire(old);
                if plan.stop.contains(name) {
                    self.parts.metrics.forget_upstream(name.as_str());
                }
            }
        }
        self.parts.intake.set_limits(&new.server.limits);
        self.starts.set_number(new.server.limits.starts);
        self.limiter = Arc::new(self.limiter.carry_over(&policy, clock::since_1970()));
        self.policy = Arc::new(policy);
        (self.written, self.config) = (written, Arc::new(new));
        if let Some(store) = &self.parts.store {
            let now = self.inventory_keys();
            before.retain(|key| !now.contains(key));
            before.iter().for_each(|key| store.forget(key));
        }
        for spec in self.config.upstreams.clone() {
            match self.managed.get_mut(&spec.name) {
                Some(kept) => {
                    kept.filters = Arc::new(filters(&spec)?);
                    kept.handle.configure(spec);
                    kept.handle.again.notify_one();
                    kept.handle.relist();
                }
                None => self.launch(spec)?,
            }
        }
        self.publish(true);
        Ok(plan)
    }
}

#[cfg(test)]
mod tests;
