//! One upstream's handle: its link of the moment, its call slots, its counters.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use arc_swap::ArcSwap;
use tokio::sync::{Notify, OwnedSemaphorePermit, Semaphore};

use crate::catalog::name::UpstreamName;
use crate::config::Upstream;
use crate::engine::call::{Executed, Failure, Outgoing, Reason};
use crate::engine::handshake::Agreed;
use crate::policy::Permit;
use crate::runtime::clock;
use crate::runtime::exchange::Exchange;
use crate::runtime::queue::Queue;
use crate::runtime::upstream::http::HttpLink;
use crate::runtime::upstream::stdio::StdioLink;
use crate::telemetry::metrics::UpstreamMetrics;
use crate::wire::headers::ParamHeaders;

/// What an upstream is doing.
#[derive(Clone, Debug)]
pub(crate) enum LinkState {
    /// Configured as lazy and not asked for yet.
    Idle,
    Starting,
    Ready(Link),
    Down {
        /// When it is tried again.
        until: Instant,
    },
    Stopped,
}

impl LinkState {
    pub(crate) fn as_str(&self) -> &'static str {
        match self {
            Self::Idle => "idle",
            Self::Starting => "starting",
            Self::Ready(_) => "ready",
            Self::Down { .. } => "down",
            Self::Stopped => "stopped",
        }
    }
}

/// The way to a running upstream.
#[derive(Clone, Debug)]
pub(crate) enum Link {
    Stdio(StdioLink),
    Http(Arc<HttpLink>),
}

impl Link {
    pub(crate) fn agreed(&self) -> Agreed {
        match self {
            Self::Stdio(link) => link.agreed,
            Self::Http(link) => link.agreed,
        }
    }
}

/// Shared by the actor that sets the state and the requests that use it.
#[derive(Debug)]
pub(crate) struct Handle {
    pub(crate) name: UpstreamName,
    pub(crate) metrics: UpstreamMetrics,
    /// The configuration in force; timeouts and limits may change while calls run.
    pub(crate) spec: ArcSwap<Upstream>,
    state: ArcSwap<LinkState>,
    changed: Notify,
    /// A call wants a lazy upstream started.
    pub(crate) wanted: Notify,
    slots: Arc<Semaphore>,
    /// Slots that a smaller limit has taken away and calls still hold.
    owed: AtomicUsize,
    queue: Queue,
    /// Of this incarnation's handle alone; the gauge also counts those of a handle that it replaced.
    pub(crate) in_flight: AtomicUsize,
    pub(crate) restarts: AtomicU64,
    pub(crate) incarnation: AtomicU64,
    /// Last words of the process, or the last error.
    pub(crate) last_error: ArcSwap<String>,
}

/// A call's place among the calls of its upstream, given back on drop.
#[derive(Debug)]
pub(crate) struct Slot {
    handle: Arc<Handle>,
    permit: Option<OwnedSemaphorePermit>,
}

impl Drop for Slot {
    fn drop(&mut self) {
        self.handle.in_flight.fetch_sub(1, Ordering::Relaxed);
        self.handle.metrics.in_flight().dec();
        let owes = self.handle.owed.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |owed| owed.checked_sub(1));
        if let (Ok(_), Some(permit)) = (owes, self.permit.take()) {
            permit.forget();
        }
    }
}

impl Handle {
    pub(crate) fn new(spec: Upstream, metrics: UpstreamMetrics) -> Self {
        Self {
            name: spec.name.clone(),
            metrics,
            queue: Queue::new(spec.queue),
            slots: Arc::new(Semaphore::new(spec.max_in_flight)),
            owed: AtomicUsize::new(0),
            spec: ArcSwap::from_pointee(spec),
            state: ArcSwap::from_pointee(LinkState::Idle),
            changed: Notify::new(),
            wanted: Notify::new(),
            in_flight: AtomicUsize::new(0),
            restarts: AtomicU64::new(0),
            incarnation: AtomicU64::new(0),
            last_error: ArcSwap::from_pointee(String::new()),
        }
    }

    /// Puts changed settings in force; calls in flight keep their places.
    pub(crate) fn configure(&self, spec: Upstream) {
        let (before, now) = (self.spec.load().max_in_flight, spec.max_in_flight);
        if now > before {
            let more = now - before;
            // What was owed is forgiven first. The update always happens.
            let owed =
                self.owed.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |owed| Some(owed.saturating_sub(more)));
            self.slots.add_permits(more.saturating_sub(owed.unwrap_or_default()));
        } else {
            let taken = self.slots.forget_permits(before - now);
            self.owed.fetch_add(before - now - taken, Ordering::Relaxed);
        }
        self.queue.set_limit(spec.queue);
        self.spec.store(Arc::new(spec));
    }

    pub(crate) fn state(&self) -> Arc<LinkState> {
        self.state.load_full()
    }

    pub(crate) fn set_state(&self, state: LinkState) {
        self.metrics.set_state(state.as_str());
        self.state.store(Arc::new(state));
        self.changed.notify_waiters();
    }

    /// Waits for the way to the upstream: within its queue time, or its start time when it has not run yet.
    ///
    /// # Errors
    /// [`Reason::UpstreamDown`]: nothing was sent.
    pub(crate) async fn link(&self) -> Result<Link, Failure> {
        if let LinkState::Ready(link) = &**self.state.load() {
            return Ok(link.clone());
        }
        let (spec, asked) = (self.spec.load_full(), clock::now());
        loop {
            let changed = self.changed.notified();
            let state = self.state();
            // A server that starts for the first time is worth its start time; one that has failed is not.
            let first_start = self.restarts.load(Ordering::Relaxed) == 0;
            let patience = if first_start { spec.start_timeout.max(spec.queue_timeout) } else { spec.queue_timeout };
            let until = asked + patience;
            match &*state {
                LinkState::Ready(link) => return Ok(link.clone()),
                LinkState::Down { until: retry, .. } if *retry > until => {
                    return Err(self.down(retry.saturating_duration_since(clock::now())));
                }
                LinkState::Stopped => return Err(self.down(Duration::from_secs(1))),
                LinkState::Idle => self.wanted.notify_one(),
                LinkState::Starting | LinkState::Down { .. } => {}
            }
            if tokio::time::timeout_at(until.into(), changed).await.is_err() {
                return Err(self.down(Duration::from_secs(5)));
            }
        }
    }

    fn down(&self, retry: Duration) -> Failure {
        let detail = format!("The server `{}` is not running.", self.name);
        Failure::new(Reason::UpstreamDown, Executed::No, detail).retry_after(retry.max(Duration::from_secs(1)))
    }

    /// Waits for a call slot in the order of arrival.
    ///
    /// # Errors
    /// [`Reason::Busy`]: nothing was sent.
    pub(crate) async fn slot(self: &Arc<Self>) -> Result<Slot, Failure> {
        if let Ok(permit) = Arc::clone(&self.slots).try_acquire_owned() {
            return Ok(self.taken(permit));
        }
        let spec = self.spec.load_full();
        let busy = || {
            let detail = format!("The server `{}` is busy.", self.name);
            Failure::new(Reason::Busy, Executed::No, detail).retry_after(spec.queue_timeout.max(Duration::from_secs(1)))
        };
        let _queued = self.queue.enter().ok_or_else(busy)?;
        let permit = tokio::time::timeout(spec.queue_timeout, Arc::clone(&self.slots).acquire_owned()).await;
        permit.ok().and_then(Result::ok).map(|permit| self.taken(permit)).ok_or_else(busy)
    }

    fn taken(self: &Arc<Self>, permit: OwnedSemaphorePermit) -> Slot {
        self.in_flight.fetch_add(1, Ordering::Relaxed);
        self.metrics.in_flight().inc();
        Slot { handle: Arc::clone(self), permit: Some(permit) }
    }

    /// Hands a permitted call to the upstream, or a permitted call's next round: nothing goes upstream without a permit.
    pub(crate) fn call(&self, link: &Link, _: &Permit, outgoing: Outgoing, headers: &ParamHeaders) -> Exchange {
        match link {
            Link::Stdio(link) => Exchange::Stdio(link.call(outgoing)),
            Link::Http(link) => Exchange::Http(Box::new(HttpLink::call(link, &outgoing, headers))),
        }
    }
}
