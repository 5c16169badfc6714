//! All metrics of the program.
//!
//! Label values come from the configuration and from closed sets, never from clients or upstreams.
//! A call uses only handles that were resolved before; its path has no look-up by label.
//!
//! Families are declared in `table` only. Metrics that only a few callers use have a file of their
//! own.

use std::sync::atomic::{AtomicU8, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use prometheus::{Encoder as _, Histogram, HistogramVec, IntCounter, IntGauge, IntGaugeVec, Registry, TextEncoder};
use strum::VariantArray as _;

mod alive;
mod approvals;
mod audit;
mod callers;
mod family;
mod label;
mod own;
mod own_process;
mod shortage;
mod table;
mod usage;

pub use self::alive::{CountedConnection, CountedProcess};
pub use self::approvals::{ApprovalMetrics, ApprovalNumbers};
pub use self::audit::AuditMetrics;
use self::callers::CallerMetrics;
use self::family::{FamilyTable as _, signed};
pub use self::label::{MethodLabel, OutcomeLabel, RenewalLabel};
pub use self::own::DiskUse;
use self::own_process::OwnProcess;
pub use self::shortage::Shortage;
use self::shortage::Shortages;
use self::table::Families;
pub use self::usage::{Usage, UsageMetrics};
use crate::engine::fault::ProtocolFault;
use crate::mcp::voice::RemovedWords;
use crate::policy::AuditEvent;
use crate::telemetry::upstream_state::UpstreamState;

/// The kinds of catalog items, in the order of [`crate::mcp::method::ItemList::ALL`].
const KINDS: [&str; 4] = ["tool", "prompt", "resource", "template"];

/// Kinds of reserved words that an upstream used, in the order of the fields of [`RemovedWords`].
const RESERVED: [&str; 2] = ["meta", "error"];

/// Outcomes of notices: delivered, and not delivered.
const NOTICES: [&str; 2] = ["ok", "failed"];

/// The registry and all metrics in it. Clones share it.
#[derive(Clone, Debug)]
pub struct Metrics(Arc<MetricState>);

/// The metrics and their registries.
#[derive(Debug)]
struct MetricState {
    registry: Registry,
    process: OwnProcess,
    families: Arc<Families>,
    shortages: Shortages,
    approvals: ApprovalMetrics,
    callers: CallerMetrics,
    usage: Arc<UsageMetrics>,
}

impl Metrics {
    /// Creates all families.
    ///
    /// # Errors
    /// The registry refuses a family, which is a mistake in the table.
    pub fn new() -> Result<Self, prometheus::Error> {
        let registry = Registry::new();
        let families = Arc::new(Families::register(&registry)?);
        families.build.with_label_values(&[env!("CARGO_PKG_VERSION")]).set(1);
        NOTICES.iter().for_each(|outcome| drop(families.notices.with_label_values(&[outcome])));
        Ok(Self(Arc::new(MetricState {
            registry,
            process: OwnProcess::new()?,
            shortages: Shortages::default(),
            approvals: ApprovalMetrics::new(Arc::clone(&families)),
            callers: CallerMetrics::new(families.caller_calls.clone()),
            usage: Arc::new(UsageMetrics::new(Arc::clone(&families))),
            families,
        })))
    }

    /// Returns the handles of one upstream. Handles of the same name share their series.
    pub fn upstream(&self, name: &str) -> UpstreamMetrics {
        let families = &self.0.families;
        UpstreamMetrics(Arc::new(UpstreamSeries {
            name: name.to_owned(),
            tells: AtomicU8::new(EVERYTHING),
            calls: Default::default(),
            call_duration: Default::default(),
            upstream_duration: Default::default(),
            overhead: families.overhead.with_label_values(&[name]),
            queue_wait: families.queue_wait.with_label_values(&[name]),
            in_flight: families.in_flight.with_label_values(&[name]),
            processes: families.processes.with_label_values(&[name]),
            restarts: families.restarts.with_label_values(&[name]),
            sent: families.upstream_bytes.with_label_values(&[name, "sent"]),
            received: families.upstream_bytes.with_label_values(&[name, "received"]),
            metrics: self.clone(),
            families: Arc::clone(families),
        }))
    }

    /// Drops the series of an upstream that is no longer configured.
    pub fn forget_upstream(&self, name: &str) {
        self.0.usage.forget(name);
        self.0.families.forget(name);
    }

    /// Renders all metrics in Prometheus' text format.
    pub fn render(&self) -> String {
        let (mut all, mut text) = (self.0.registry.gather(), Vec::new());
        all.extend(self.0.process.gather());
        if let Err(error) = TextEncoder::new().encode(&all, &mut text) {
            tracing::error!(error = %error, "metrics cannot be rendered");
        }
        String::from_utf8(text).unwrap_or_default()
    }

    pub fn decision(&self, effect: &str, rule: &str) {
        self.0.families.decisions.with_label_values(&[effect, rule]).inc();
    }

    pub fn limit_hit(&self, limit: &str) {
        self.0.families.limit_hits.with_label_values(&[limit]).inc();
    }

    /// Records that the process lacked this resource at this time of uptime.
    pub fn short_of(&self, shortage: Shortage, now: Duration) {
        self.0.shortages.met(shortage, now);
        if shortage == Shortage::Descriptors {
            self.0.families.no_descriptor.inc();
        }
    }

    /// Returns whether the process lacked this resource within the last ten seconds.
    pub fn is_short_of(&self, shortage: Shortage, now: Duration) -> bool {
        self.0.shortages.is_on(shortage, now)
    }

    /// Updates which parts do not work, just before a scrape.
    pub fn degraded(&self, reasons: impl Iterator<Item = (&'static str, bool)>) {
        reasons.for_each(|(reason, is_on)| self.0.families.degraded.with_label_values(&[reason]).set(i64::from(is_on)));
    }

    pub fn approvals(&self) -> &ApprovalMetrics {
        &self.0.approvals
    }

    pub fn callers(&self) -> &CallerMetrics {
        &self.0.callers
    }

    pub fn usage(&self) -> &UsageMetrics {
        &self.0.usage
    }

    /// Returns the handles of the audit log.
    pub fn audit(&self) -> AuditMetrics {
        AuditMetrics {
            records: AuditEvent::VARIANTS
                .iter()
                .map(|event| self.0.families.audit_records.with_label_values(&[event.into_str()]))
                .collect(),
            failures: self.0.families.audit_failures.clone(),
        }
    }

    pub fn auth_failed(&self) {
        self.0.families.auth_failures.inc();
    }

    /// Records the outcome of an attempt to load the configuration.
    pub fn reloaded(&self, ok: bool, unix_seconds: u64) {
        self.0.families.reload_ok.set(i64::from(ok));
        if ok {
            #[expect(
                clippy::cast_precision_loss,
                reason = "seconds since 1970 fit a double for longer than the sun shines"
            )]
            self.0.families.reload_time.set(unix_seconds as f64);
        }
    }

    /// Sets the expiry of each certificate of the listeners, by its file, in seconds since 1970.
    pub fn certificates<'a>(&self, expiries: impl Iterator<Item = (&'a str, u64)>) {
        let family = &self.0.families.tls_expiry;
        family.reset();
        for (file, expiry) in expiries {
            family.with_label_values(&[file]).set(i64::try_from(expiry).unwrap_or(i64::MAX));
        }
    }

    /// Counts certificates that could not be used after a change.
    pub fn certificates_refused(&self, count: usize) {
        self.0.families.tls_failures.inc_by(count as u64);
    }

    pub fn withheld(&self, items: usize) {
        self.0.families.withheld.set(signed(items));
    }

    /// Updates values that are counted elsewhere, just before a scrape: sessions, calls that wait
    /// for a slot or for a person, and the bytes that are buffered and that may be.
    pub fn observe(&self, sessions: usize, (waiting, held): (usize, usize), buffered: (usize, usize)) {
        self.0.families.sessions.set(signed(sessions));
        self.0.families.waiting.set(signed(waiting));
        self.0.families.held.set(signed(held));
        self.0.families.buffered.set(signed(buffered.0));
        self.0.families.buffered_limit.set(signed(buffered.1));
    }

    /// Counts a notice of open approvals by its outcome.
    pub fn notified(&self, ok: bool) {
        let [good, failed] = NOTICES;
        self.0.families.notices.with_label_values(&[if ok { good } else { failed }]).inc();
    }

    /// Updates the number of live tasks in the runtime.
    pub fn tasks(&self, alive: usize) {
        self.0.families.tasks.set(signed(alive));
    }

    /// Updates whether the store takes writes, just before a scrape.
    pub fn observe_store(&self, is_writable: bool) {
        self.0.families.store_writable.set(i64::from(is_writable));
    }

    /// Counts a client's connection over a transport, `http` or `stdio`, until the value is
    /// dropped.
    pub fn connected(&self, transport: &'static str) -> CountedConnection {
        let counter = |direction| self.0.families.client_bytes.with_label_values(&[transport, direction]);
        let open = self.0.families.connections.with_label_values(&[transport]);
        open.inc();
        CountedConnection { open, received: counter("received"), sent: counter("sent") }
    }
}

/// Levels of what the handles of an upstream still write: all series; only counters, once another
/// upstream has taken its name; nothing, once it was removed.
const EVERYTHING: u8 = 0;
const COUNTS: u8 = 1;
const NOTHING: u8 = 2;

/// The handles of one upstream. Clones share them.
#[derive(Clone, Debug)]
pub struct UpstreamMetrics(Arc<UpstreamSeries>);

/// The series of one upstream, and what the handles may still write.
#[derive(Debug)]
struct UpstreamSeries {
    name: String,
    /// [`EVERYTHING`], [`COUNTS`] or [`NOTHING`].
    tells: AtomicU8,
    metrics: Metrics,
    families: Arc<Families>,
    /// Filled when an outcome first occurs, so that a scrape does not show hundreds of zeros.
    calls: [[OnceLock<IntCounter>; OutcomeLabel::VARIANTS.len()]; MethodLabel::VARIANTS.len()],
    call_duration: [OnceLock<Histogram>; MethodLabel::VARIANTS.len()],
    upstream_duration: [OnceLock<Histogram>; MethodLabel::VARIANTS.len()],
    overhead: Histogram,
    queue_wait: Histogram,
    in_flight: IntGauge,
    processes: IntGauge,
    restarts: IntCounter,
    sent: IntCounter,
    received: IntCounter,
}

impl UpstreamMetrics {
    /// Stops writing gauges, and also counters unless another upstream of the same name replaces
    /// this one. To be called before [`Metrics::forget_upstream`].
    pub fn retire(&self, is_replaced: bool) {
        self.0.tells.store(if is_replaced { COUNTS } else { NOTHING }, Ordering::Relaxed);
    }

    fn tells(&self) -> u8 {
        self.0.tells.load(Ordering::Relaxed)
    }

    /// Sets the gauges of the upstream's state. `Disabled` has no series.
    pub fn set_state(&self, state: UpstreamState) {
        if self.tells() > EVERYTHING {
            return;
        }
        for known in UpstreamState::VARIANTS.iter().copied().filter(|known| *known != UpstreamState::Disabled) {
            let series = self.0.families.state.with_label_values(&[self.0.name.as_str(), known.into_str()]);
            series.set(i64::from(known == state));
        }
    }

    /// Records that no file descriptor was left for a connection or process of the upstream.
    pub fn no_descriptor(&self, now: Duration) {
        self.0.metrics.short_of(Shortage::Descriptors, now);
    }

    /// Counts an attempt to renew the login.
    pub fn renewal(&self, result: RenewalLabel) {
        if self.tells() < NOTHING {
            self.0.families.login_renewals.with_label_values(&[self.0.name.as_str(), result.into_str()]).inc();
        }
    }

    /// Sets when the token in use expires, as time since 1970; `None` if there is no token or it
    /// never expires.
    pub fn token_expires(&self, end: Option<Duration>) {
        if self.tells() > EVERYTHING {
            return;
        }
        let (ends, series) = (&self.0.families.login_ends, [self.0.name.as_str()]);
        match end.and_then(|end| i64::try_from(end.as_secs()).ok()) {
            Some(end) => ends.with_label_values(&series).set(end),
            // There may have been no series.
            None => drop(ends.remove_label_values(&series)),
        }
    }

    pub fn restarted(&self) {
        self.0.restarts.inc();
    }

    /// Counts a violation of the protocol and logs it.
    pub fn fault(&self, fault: ProtocolFault) {
        let (name, fault) = (self.0.name.as_str(), fault.into_str());
        if self.tells() < NOTHING {
            self.0.families.faults.with_label_values(&[name, fault]).inc();
        }
        tracing::debug!(upstream.name = name, fault, "upstream misbehaved");
    }

    /// Counts reserved words of the gateway that the upstream used.
    pub fn reserved(&self, taken: RemovedWords) {
        if self.tells() == NOTHING {
            return;
        }
        for (kind, count) in RESERVED.into_iter().zip([taken.keys, taken.errors]).filter(|(_, count)| *count > 0) {
            let counter = self.0.families.reserved.with_label_values(&[self.0.name.as_str(), kind]);
            counter.inc_by(u64::try_from(count).unwrap_or(u64::MAX));
        }
    }

    /// Records how long a call waited for its slot.
    pub fn queued(&self, waited: Duration) {
        self.0.queue_wait.observe(waited.as_secs_f64());
    }

    /// Returns the gauge of calls that hold a slot.
    pub fn in_flight(&self) -> &IntGauge {
        &self.0.in_flight
    }

    /// Counts a process that was started, until the value is dropped. `guard` is the number of its
    /// guard.
    pub fn process(&self, guard: Option<u32>) -> CountedProcess {
        self.0.processes.inc();
        let usage = Arc::clone(&self.0.metrics.0.usage);
        if self.tells() < NOTHING {
            guard.into_iter().for_each(|guard| usage.add_guard(&self.0.name, guard));
        }
        CountedProcess { open: self.0.processes.clone(), guard, usage }
    }

    /// Records how long the start of the upstream took.
    pub fn started(&self, took: Duration) {
        if self.tells() == EVERYTHING {
            self.0.families.upstream_start.with_label_values(&[self.0.name.as_str()]).set(took.as_secs_f64());
        }
    }

    pub fn sent(&self, bytes: usize) {
        self.0.sent.inc_by(u64::try_from(bytes).unwrap_or(u64::MAX));
    }

    pub fn received(&self, bytes: usize) {
        self.0.received.inc_by(u64::try_from(bytes).unwrap_or(u64::MAX));
    }

    /// Counts a call that was refused too early to measure its time.
    pub fn count(&self, method: MethodLabel, outcome: OutcomeLabel) {
        if self.tells() == NOTHING {
            return;
        }
        let counter = || {
            let labels = [self.0.name.as_str(), method.into_str(), outcome.into_str()];
            self.0.families.calls.with_label_values(&labels)
        };
        match self.0.calls.get(method as usize).and_then(|row| row.get(outcome as usize)) {
            Some(cell) => cell.get_or_init(counter).inc(),
            None => counter().inc(),
        }
    }

    /// Counts and times a call: as a whole, and the upstream's part if it was reached.
    pub fn finished(&self, method: MethodLabel, outcome: OutcomeLabel, total: Duration, upstream: Option<Duration>) {
        if self.tells() == NOTHING {
            return;
        }
        self.count(method, outcome);
        let families = &self.0.families;
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

    /// Sets the number of items that wait for approval.
    pub fn pins_waiting(&self, count: usize) {
        self.set(&self.0.families.pins_waiting, count);
    }

    /// Sets the number of items that are not offered because the lists are too long.
    pub fn excess(&self, count: usize) {
        self.set(&self.0.families.excess, count);
    }

    /// Sets the number of changes that made definitions valid.
    pub fn repairs(&self, count: usize) {
        self.set(&self.0.families.repairs, count);
    }

    /// Sets the number of lists that could not be read.
    pub fn unread_lists(&self, count: usize) {
        self.set(&self.0.families.unread_lists, count);
    }

    /// Sets the number of sessions for single clients or callers, just before a scrape.
    pub fn sessions(&self, open: usize) {
        self.set(&self.0.families.upstream_sessions, open);
    }

    /// Sets a gauge of the upstream, unless the upstream was removed or replaced.
    fn set(&self, family: &IntGaugeVec, count: usize) {
        if self.tells() == EVERYTHING {
            family.with_label_values(&[self.0.name.as_str()]).set(signed(count));
        }
    }

    /// Sets how many items of each kind the upstream offers, in the order of
    /// [`crate::mcp::method::ItemList::ALL`].
    pub fn items(&self, counts: [usize; 4]) {
        if self.tells() > EVERYTHING {
            return;
        }
        for (kind, count) in KINDS.into_iter().zip(counts) {
            self.0.families.items.with_label_values(&[self.0.name.as_str(), kind]).set(signed(count));
        }
    }
}

#[cfg(test)]
mod tests;
