//! Every metric, in one place.
//!
//! Label values come from the configuration and from closed sets, never from clients or upstreams. A call touches only
//! handles that were resolved before: its path has no look-up by label.
//!
//! Long, and one file on purpose: a metric is declared, registered, counted and forgotten here.
//! Families that nothing else needs have files of their own.

use std::sync::atomic::{AtomicU8, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use prometheus::{
    Encoder as _, Gauge, Histogram, HistogramVec, IntCounter, IntCounterVec, IntGauge, IntGaugeVec, Registry,
    TextEncoder,
};
use strum::VariantArray as _;

mod alive;
mod approvals;
mod audit;
mod builder;
mod callers;
mod label;
mod login;
mod own;
mod own_process;
mod shortage;
mod usage;

pub(crate) use self::alive::{Connected, Running};
pub(crate) use self::approvals::{ApprovalMetrics, ApprovalNumbers};
pub(crate) use self::audit::AuditMetrics;
use self::builder::{Builder, signed};
use self::callers::CallerMetrics;
pub(crate) use self::label::{MethodLabel, OutcomeLabel};
use self::login::LoginFamilies;
pub(crate) use self::login::Renewal;
pub(crate) use self::own::{DiskUse, OwnMetrics};
use self::own_process::OwnProcess;
pub(crate) use self::shortage::Shortage;
use self::shortage::Shortages;
pub(crate) use self::usage::{Usage, UsageMetrics};
use crate::engine::fault::Fault;
use crate::mcp::voice::Taken;
use crate::policy::Event;
use crate::telemetry::upstream_state::UpstreamState;

/// From half a millisecond to the longest call that a configuration usually allows, in seconds.
const CALL_BUCKETS: &[f64] =
    &[0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 300.0];

/// The gateway itself adds tens of microseconds, unless a call waits. In seconds.
const OVERHEAD_BUCKETS: &[f64] =
    &[0.000_025, 0.000_05, 0.000_1, 0.000_25, 0.000_5, 0.001, 0.005, 0.025, 0.1, 0.5, 2.5, 10.0, 60.0];

/// The kinds of catalog items, in the order of [`crate::mcp::method::List::ALL`].
const KINDS: [&str; 4] = ["tool", "prompt", "resource", "template"];

/// Kinds of gateway words that an upstream used, in the order of the members of [`Taken`].
const RESERVED: [&str; 2] = ["meta", "error"];

/// The registry and everything in it. Clones share it.
#[derive(Clone, Debug)]
pub(crate) struct Metrics(Arc<Families>);

#[derive(Debug)]
struct Families {
    registry: Registry,
    calls: IntCounterVec,
    call_duration: HistogramVec,
    upstream_duration: HistogramVec,
    overhead: HistogramVec,
    queue_wait: HistogramVec,
    in_flight: IntGaugeVec,
    processes: IntGaugeVec,
    upstream_sessions: IntGaugeVec,
    state: IntGaugeVec,
    restarts: IntCounterVec,
    faults: IntCounterVec,
    reserved: IntCounterVec,
    items: IntGaugeVec,
    upstream_bytes: IntCounterVec,
    client_bytes: IntCounterVec,
    connections: IntGaugeVec,
    sessions: IntGauge,
    tasks: IntGauge,
    waiting: IntGauge,
    held: IntGauge,
    /// Those that got through, and those that did not.
    notices: [IntCounter; 2],
    buffered: IntGauge,
    buffered_limit: IntGauge,
    withheld: IntGauge,
    excess: IntGaugeVec,
    repairs: IntGaugeVec,
    unread_lists: IntGaugeVec,
    pins_waiting: IntGaugeVec,
    logins: LoginFamilies,
    decisions: IntCounterVec,
    limit_hits: IntCounterVec,
    auth_failures: IntCounter,
    reload_ok: IntGauge,
    reload_time: Gauge,
    audit_records: IntCounterVec,
    audit_failures: IntCounter,
    degraded: IntGaugeVec,
    no_descriptor: IntCounter,
    shortages: Shortages,
    store_writable: IntGauge,
    approvals: ApprovalMetrics,
    callers: CallerMetrics,
    own: OwnMetrics,
    usage: Arc<UsageMetrics>,
}

impl Metrics {
    /// # Errors
    /// A family that the registry refuses, which is a mistake in this file.
    pub(crate) fn new() -> Result<Self, prometheus::Error> {
        let b = Builder { registry: Registry::new() };
        b.registry.register(Box::new(OwnProcess::new()?))?;
        let build = b.gauges("headend_build_info", "The running version; the value is always 1.", &["version"])?;
        build.with_label_values(&[env!("CARGO_PKG_VERSION")]).set(1);
        let call = &["upstream", "method"];
        Ok(Self(Arc::new(Families {
            calls: b.counters(
                "headend_calls_total",
                "Calls that ended, by upstream, method and outcome.",
                &["upstream", "method", "outcome"],
            )?,
            call_duration: b.histograms(
                "headend_call_duration_seconds",
                "Time from a call's arrival to its answer.",
                call,
                CALL_BUCKETS,
            )?,
            upstream_duration: b.histograms(
                "headend_upstream_duration_seconds",
                "Time that the upstream took to answer a call.",
                call,
                CALL_BUCKETS,
            )?,
            overhead: b.histograms(
                "headend_call_overhead_seconds",
                "Time of a call that was not the upstream's: routing, policy and waiting for a slot.",
                &["upstream"],
                OVERHEAD_BUCKETS,
            )?,
            queue_wait: b.histograms(
                "headend_queue_wait_seconds",
                "Time that calls waited for a free slot at their upstream.",
                &["upstream"],
                OVERHEAD_BUCKETS,
            )?,
            in_flight: b.gauges("headend_calls_in_flight", "Calls that the upstream is working on.", &["upstream"])?,
            processes: b.gauges(
                "headend_upstream_processes",
                "Processes of an upstream that headend started and that have not ended.",
                &["upstream"],
            )?,
            upstream_sessions: b.gauges(
                "headend_upstream_sessions",
                "Sessions or processes that an upstream has for one client or caller alone.",
                &["upstream"],
            )?,
            state: b.gauges(
                "headend_upstream_state",
                "The state of an upstream: 1 for the state that it is in, 0 for the others.",
                &["upstream", "state"],
            )?,
            restarts: b.counters(
                "headend_upstream_restarts_total",
                "Restarts and reconnects of an upstream that had ended.",
                &["upstream"],
            )?,
            faults: b.counters(
                "headend_upstream_faults_total",
                "Violations of the protocol by an upstream, by kind.",
                &["upstream", "fault"],
            )?,
            reserved: b.counters(
                "headend_upstream_reserved_total",
                "Reserved words of the gateway that an upstream used: removed keys of _meta, replaced errors.",
                &["upstream", "kind"],
            )?,
            items: b.gauges(
                "headend_catalog_items",
                "Items that an upstream offers after its filters, by kind.",
                &["upstream", "kind"],
            )?,
            withheld: b.gauge(
                "headend_catalog_withheld_items",
                "Items withheld from clients because they are malformed or too many.",
            )?,
            excess: b.gauges(
                "headend_catalog_excess_items",
                "Items of an upstream that are not offered because its lists are longer than max-inventory.",
                &["upstream"],
            )?,
            repairs: b.gauges(
                "headend_catalog_repairs",
                "Changes of an upstream's definitions that made them valid for strict clients.",
                &["upstream"],
            )?,
            unread_lists: b.gauges(
                "headend_catalog_unread_lists",
                "Lists of an upstream that could not be read when they were last asked for.",
                &["upstream"],
            )?,
            pins_waiting: b.gauges(
                "headend_pins_waiting",
                "Items of an upstream that wait for approval because they changed or were never approved.",
                &["upstream"],
            )?,
            upstream_bytes: b.counters(
                "headend_upstream_bytes_total",
                "Bytes exchanged with an upstream; direction is seen from headend.",
                &["upstream", "direction"],
            )?,
            client_bytes: b.counters(
                "headend_client_bytes_total",
                "Bytes exchanged with clients; direction is seen from headend.",
                &["transport", "direction"],
            )?,
            connections: b.gauges("headend_client_connections", "Connections of clients.", &["transport"])?,
            sessions: b.gauge("headend_client_sessions", "Live HTTP sessions of clients of the legacy revisions.")?,
            tasks: b.gauge("headend_tasks", "Tasks of the program that have not ended.")?,
            waiting: b.gauge("headend_calls_waiting", "Calls that wait for a slot among all calls in flight.")?,
            held: b.gauge("headend_calls_held", "Calls that are held open while a person decides about them.")?,
            notices: {
                let help = "Notices of open approvals that were sent by [policy.consent] notify, by outcome.";
                let family = b.counters("headend_notices_total", help, &["outcome"])?;
                ["ok", "failed"].map(|outcome| family.with_label_values(&[outcome]))
            },
            buffered: b
                .gauge("headend_buffered_bytes", "Bytes of messages that are being read or wait for a reader.")?,
            buffered_limit: b.gauge("headend_buffered_limit_bytes", "Limit of those bytes.")?,
            decisions: b.counters(
                "headend_policy_decisions_total",
                "Decisions on calls, by effect and by the rule that decided.",
                &["effect", "rule"],
            )?,
            limit_hits: b.counters(
                "headend_limit_hits_total",
                "Calls, credentials and connections that a limit refused, by limit.",
                &["limit"],
            )?,
            auth_failures: b.add(IntCounter::new("headend_auth_failures_total", "Requests without a valid token.")?)?,
            reload_ok: b.gauge(
                "headend_config_last_reload_successful",
                "Whether the last attempt to load the configuration succeeded.",
            )?,
            reload_time: b.add(Gauge::new(
                "headend_config_last_reload_success_timestamp_seconds",
                "When the configuration in force was loaded.",
            )?)?,
            audit_records: b.counters(
                "headend_audit_records_total",
                "Records written to the audit log, by event.",
                &["event"],
            )?,
            audit_failures: b
                .add(IntCounter::new("headend_audit_failures_total", "Records that the audit log could not take.")?)?,
            degraded: b.gauges(
                "headend_degraded",
                "Whether something does not work, by reason: 1 while it does not; see headend status.",
                &["reason"],
            )?,
            no_descriptor: b.add(IntCounter::new(
                "headend_descriptor_shortages_total",
                "Connections and processes for which there was no file descriptor.",
            )?)?,
            shortages: Shortages::default(),
            store_writable: b.gauge(
                "headend_store_writable",
                "Whether the store in the state directory takes writes: 1, or 0 while its disk is full or read-only.",
            )?,
            logins: LoginFamilies::new(&b.registry)?,
            approvals: ApprovalMetrics::new(&b)?,
            callers: CallerMetrics::new(&b)?,
            own: OwnMetrics::new(&b)?,
            usage: Arc::new(UsageMetrics::new(&b)?),
            registry: b.registry,
        })))
    }

    /// The handles of one upstream. Every call returns the same series.
    pub(crate) fn upstream(&self, name: &str) -> UpstreamMetrics {
        let families = &self.0;
        UpstreamMetrics(Arc::new(OfUpstream {
            name: name.to_owned(),
            tells: AtomicU8::new(EVERYTHING),
            calls: Default::default(),
            call_duration: Default::default(),
            upstream_duration: Default::default(),
            overhead: families.overhead.with_label_values(&[name]),
            queue_wait: families.queue_wait.with_label_values(&[name]),
            in_flight: families.in_flight.with_label_values(&[name]),
            processes: families.processes.with_label_values(&[name]),
            sessions: families.upstream_sessions.with_label_values(&[name]),
            restarts: families.restarts.with_label_values(&[name]),
            sent: families.upstream_bytes.with_label_values(&[name, "sent"]),
            received: families.upstream_bytes.with_label_values(&[name, "received"]),
            families: self.clone(),
        }))
    }

    /// Drops the series of an upstream that is no longer configured.
    pub(crate) fn forget_upstream(&self, name: &str) {
        let f = &self.0;
        // Removing a series that does not exist fails, and nothing is left to do then.
        for method in MethodLabel::VARIANTS.iter().map(MethodLabel::into_str) {
            drop(f.call_duration.remove_label_values(&[name, method]));
            drop(f.upstream_duration.remove_label_values(&[name, method]));
            for outcome in OutcomeLabel::VARIANTS.iter().map(OutcomeLabel::into_str) {
                drop(f.calls.remove_label_values(&[name, method, outcome]));
            }
        }
        [&f.overhead, &f.queue_wait].iter().for_each(|family| drop(family.remove_label_values(&[name])));
        drop(f.restarts.remove_label_values(&[name]));
        let gauges =
            [&f.in_flight, &f.processes, &f.upstream_sessions, &f.pins_waiting, &f.excess, &f.repairs, &f.unread_lists];
        gauges.iter().for_each(|family| drop(family.remove_label_values(&[name])));
        f.logins.forget(name);
        f.usage.forget(name);
        UpstreamState::VARIANTS.iter().for_each(|state| drop(f.state.remove_label_values(&[name, state.into_str()])));
        KINDS.iter().for_each(|kind| drop(f.items.remove_label_values(&[name, kind])));
        for direction in ["sent", "received"] {
            drop(f.upstream_bytes.remove_label_values(&[name, direction]));
        }
        RESERVED.iter().for_each(|kind| drop(f.reserved.remove_label_values(&[name, kind])));
        for fault in Fault::VARIANTS {
            drop(f.faults.remove_label_values(&[name, fault.into_str()]));
        }
    }

    /// Everything, in Prometheus' text format.
    pub(crate) fn render(&self) -> String {
        let mut text = Vec::new();
        if let Err(error) = TextEncoder::new().encode(&self.0.registry.gather(), &mut text) {
            tracing::error!(error = %error, "metrics cannot be rendered");
        }
        String::from_utf8(text).unwrap_or_default()
    }

    pub(crate) fn decision(&self, effect: &str, rule: &str) {
        self.0.decisions.with_label_values(&[effect, rule]).inc();
    }

    pub(crate) fn limit_hit(&self, limit: &str) {
        self.0.limit_hits.with_label_values(&[limit]).inc();
    }

    /// There was none left at this time of uptime.
    pub(crate) fn short_of(&self, shortage: Shortage, now: Duration) {
        self.0.shortages.met(shortage, now);
        if shortage == Shortage::Descriptors {
            self.0.no_descriptor.inc();
        }
    }

    /// Whether there was none left some seconds ago.
    pub(crate) fn is_short_of(&self, shortage: Shortage, now: Duration) -> bool {
        self.0.shortages.is_on(shortage, now)
    }

    /// Sets what does not work, just before a scrape.
    pub(crate) fn degraded(&self, reasons: impl Iterator<Item = (&'static str, bool)>) {
        reasons.for_each(|(reason, is_on)| self.0.degraded.with_label_values(&[reason]).set(i64::from(is_on)));
    }

    pub(crate) fn approvals(&self) -> &ApprovalMetrics {
        &self.0.approvals
    }

    pub(crate) fn callers(&self) -> &CallerMetrics {
        &self.0.callers
    }

    pub(crate) fn own(&self) -> &OwnMetrics {
        &self.0.own
    }

    pub(crate) fn usage(&self) -> &UsageMetrics {
        &self.0.usage
    }

    /// The handles of the audit log.
    pub(crate) fn audit(&self) -> AuditMetrics {
        AuditMetrics {
            records: Event::VARIANTS
                .iter()
                .map(|event| self.0.audit_records.with_label_values(&[event.into_str()]))
                .collect(),
            failures: self.0.audit_failures.clone(),
        }
    }

    pub(crate) fn auth_failed(&self) {
        self.0.auth_failures.inc();
    }

    /// Records the end of an attempt to load the configuration.
    pub(crate) fn reloaded(&self, ok: bool, unix_seconds: u64) {
        self.0.reload_ok.set(i64::from(ok));
        if ok {
            #[expect(
                clippy::cast_precision_loss,
                reason = "seconds since 1970 fit a double for longer than the sun shines"
            )]
            self.0.reload_time.set(unix_seconds as f64);
        }
    }

    pub(crate) fn withheld(&self, items: usize) {
        self.0.withheld.set(signed(items));
    }

    /// Sets values that other places count, just before a scrape: sessions, calls that wait for a slot or for a person, and the
    /// bytes that are buffered and may be.
    pub(crate) fn observe(&self, sessions: usize, (waiting, held): (usize, usize), buffered: (usize, usize)) {
        self.0.sessions.set(signed(sessions));
        self.0.waiting.set(signed(waiting));
        self.0.held.set(signed(held));
        self.0.buffered.set(signed(buffered.0));
        self.0.buffered_limit.set(signed(buffered.1));
    }

    /// A notice of open approvals got through, or did not.
    pub(crate) fn notified(&self, ok: bool) {
        let [good, failed] = &self.0.notices;
        if ok { good.inc() } else { failed.inc() }
    }

    /// The same for the tasks of the runtime.
    pub(crate) fn tasks(&self, alive: usize) {
        self.0.tasks.set(signed(alive));
    }

    /// Sets whether the store takes writes, just before a scrape.
    pub(crate) fn observe_store(&self, is_writable: bool) {
        self.0.store_writable.set(i64::from(is_writable));
    }

    /// A client connected over a transport, `http` or `stdio`.
    pub(crate) fn connected(&self, transport: &'static str) -> Connected {
        let counter = |direction| self.0.client_bytes.with_label_values(&[transport, direction]);
        let open = self.0.connections.with_label_values(&[transport]);
        open.inc();
        Connected { open, received: counter("received"), sent: counter("sent") }
    }
}

/// What an upstream's handles still write. One that was replaced leaves the series to the one that has its name now: it counts on, and
/// says no more how it is. One that was removed makes no series any more.
const EVERYTHING: u8 = 0;
const COUNTS: u8 = 1;
const NOTHING: u8 = 2;

/// The series of one upstream. Clones share them.
#[derive(Clone, Debug)]
pub(crate) struct UpstreamMetrics(Arc<OfUpstream>);

#[derive(Debug)]
struct OfUpstream {
    name: String,
    tells: AtomicU8,
    families: Metrics,
    /// Filled when an outcome first occurs, so that a scrape does not show hundreds of zeros.
    calls: [[OnceLock<IntCounter>; OutcomeLabel::VARIANTS.len()]; MethodLabel::VARIANTS.len()],
    call_duration: [OnceLock<Histogram>; MethodLabel::VARIANTS.len()],
    upstream_duration: [OnceLock<Histogram>; MethodLabel::VARIANTS.len()],
    overhead: Histogram,
    queue_wait: Histogram,
    in_flight: IntGauge,
    processes: IntGauge,
    sessions: IntGauge,
    restarts: IntCounter,
    sent: IntCounter,
    received: IntCounter,
}

impl UpstreamMetrics {
    /// The upstream was removed, or replaced by another one of its name. Comes before [`Metrics::forget_upstream`].
    pub(crate) fn retire(&self, is_replaced: bool) {
        self.0.tells.store(if is_replaced { COUNTS } else { NOTHING }, Ordering::Relaxed);
    }

    fn tells(&self) -> u8 {
        self.0.tells.load(Ordering::Relaxed)
    }

    pub(crate) fn set_state(&self, state: UpstreamState) {
        if self.tells() > EVERYTHING {
            return;
        }
        for known in UpstreamState::VARIANTS.iter().copied().filter(|known| *known != UpstreamState::Disabled) {
            let series = self.0.families.0.state.with_label_values(&[self.0.name.as_str(), known.into_str()]);
            series.set(i64::from(known == state));
        }
    }

    /// There was no descriptor left for a connection or process of the upstream.
    pub(crate) fn no_descriptor(&self, now: Duration) {
        self.0.families.short_of(Shortage::Descriptors, now);
    }

    /// Counts an attempt to renew the login.
    pub(crate) fn renewal(&self, result: Renewal) {
        if self.tells() < NOTHING {
            self.0.families.0.logins.renewal(&self.0.name, result);
        }
    }

    /// The token in use expires then, in time since 1970; `None` without a token, and for one that never does.
    pub(crate) fn token_expires(&self, end: Option<Duration>) {
        if self.tells() == EVERYTHING {
            self.0.families.0.logins.token_expires(&self.0.name, end);
        }
    }

    pub(crate) fn restarted(&self) {
        self.0.restarts.inc();
    }

    pub(crate) fn fault(&self, fault: Fault) {
        let (name, fault) = (self.0.name.as_str(), fault.into_str());
        if self.tells() < NOTHING {
            self.0.families.0.faults.with_label_values(&[name, fault]).inc();
        }
        tracing::debug!(upstream.name = name, fault, "upstream misbehaved");
    }

    /// Counts gateway words that the upstream used.
    pub(crate) fn reserved(&self, taken: Taken) {
        if self.tells() == NOTHING {
            return;
        }
        for (kind, count) in RESERVED.into_iter().zip([taken.keys, taken.errors]).filter(|(_, count)| *count > 0) {
            let counter = self.0.families.0.reserved.with_label_values(&[self.0.name.as_str(), kind]);
            counter.inc_by(u64::try_from(count).unwrap_or(u64::MAX));
        }
    }

    /// A call got its slot after this wait.
    pub(crate) fn queued(&self, waited: Duration) {
        self.0.queue_wait.observe(waited.as_secs_f64());
    }

    /// Calls that hold a slot.
    pub(crate) fn in_flight(&self) -> &IntGauge {
        &self.0.in_flight
    }

    /// A process that was started, counted until the value is dropped. `guard` is the number of its
    /// guard.
    pub(crate) fn process(&self, guard: Option<u32>) -> Running {
        self.0.processes.inc();
        let usage = Arc::clone(&self.0.families.0.usage);
        if self.tells() < NOTHING {
            guard.into_iter().for_each(|guard| usage.add_guard(&self.0.name, guard));
        }
        Running { open: self.0.processes.clone(), guard, usage }
    }

    /// Records how long the start of the upstream took.
    pub(crate) fn started(&self, took: Duration) {
        if self.tells() == EVERYTHING {
            self.0.families.0.usage.started(&self.0.name, took);
        }
    }

    /// Sets the number of sessions of clients' own, just before a scrape.
    pub(crate) fn sessions(&self, open: usize) {
        if self.tells() > EVERYTHING {
            return;
        }
        self.0.sessions.set(signed(open));
    }

    pub(crate) fn sent(&self, bytes: usize) {
        self.0.sent.inc_by(u64::try_from(bytes).unwrap_or(u64::MAX));
    }

    pub(crate) fn received(&self, bytes: usize) {
        self.0.received.inc_by(u64::try_from(bytes).unwrap_or(u64::MAX));
    }

    /// Counts a call that was refused too early to measure its time.
    pub(crate) fn count(&self, method: MethodLabel, outcome: OutcomeLabel) {
        if self.tells() == NOTHING {
            return;
        }
        let counter = || {
            let labels = [self.0.name.as_str(), method.into_str(), outcome.into_str()];
            self.0.families.0.calls.with_label_values(&labels)
        };
        match self.0.calls.get(method as usize).and_then(|row| row.get(outcome as usize)) {
            Some(cell) => cell.get_or_init(counter).inc(),
            None => counter().inc(),
        }
    }

    /// Counts and times a call: as a whole, and the upstream's part if it was reached.
    pub(crate) fn finished(
        &self,
        method: MethodLabel,
        outcome: OutcomeLabel,
        total: Duration,
        upstream: Option<Duration>,
    ) {
        if self.tells() == NOTHING {
            return;
        }
        self.count(method, outcome);
        let families = &self.0.families.0;
        let observe = |cells: &[OnceLock<Histogram>], family: &HistogramVec, time: Duration| {
            let histogram = || family.with_label_values(&[self.0.name.as_str(), method.into_str()]);
            if let Some(cell) = cells.get(method as usize) {
                cell.get_or_init(histogram).observe(time.as_secs_f64());
            }
        };
        observe(&self.0.call_duration, &families.call_duration, total);
        if let Some(upstream) = upstream {
            observe(&self.0.upstream_duration, &families.upstream_duration, upstream);
            self.0.overhead.observe(total.saturating_sub(upstream).as_secs_f64());
        }
    }

    /// Items that wait for approval.
    pub(crate) fn pins_waiting(&self, count: usize) {
        if self.tells() > EVERYTHING {
            return;
        }
        self.0.families.0.pins_waiting.with_label_values(&[self.0.name.as_str()]).set(signed(count));
    }

    /// Items that are not offered for want of room.
    pub(crate) fn excess(&self, count: usize) {
        self.0.families.0.excess.with_label_values(&[self.0.name.as_str()]).set(signed(count));
    }

    /// Changes that made definitions valid.
    pub(crate) fn repairs(&self, count: usize) {
        self.0.families.0.repairs.with_label_values(&[self.0.name.as_str()]).set(signed(count));
    }

    /// Lists that could not be read.
    pub(crate) fn unread_lists(&self, count: usize) {
        if self.tells() > EVERYTHING {
            return;
        }
        self.0.families.0.unread_lists.with_label_values(&[self.0.name.as_str()]).set(signed(count));
    }

    /// How many items of each kind the upstream offers, in the order of [`crate::mcp::method::List::ALL`].
    pub(crate) fn items(&self, counts: [usize; 4]) {
        if self.tells() > EVERYTHING {
            return;
        }
        for (kind, count) in KINDS.into_iter().zip(counts) {
            self.0.families.0.items.with_label_values(&[self.0.name.as_str(), kind]).set(signed(count));
        }
    }
}

#[cfg(test)]
mod tests;
