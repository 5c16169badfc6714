//! Admission: how often a caller may ask, what it may hold at once, and how many calls of all callers run or wait. Every face
//! asks here before it hands a request to the service.
//!
//! Each request of a caller other than our own user takes from `caller-rate`; over HTTP so does each POST, before its body is
//! read, and each GET and DELETE of a session. A batch takes one for each request in it, and is admitted as a whole or not at
//! all. A refusal is 429 over HTTP, and elsewhere an error that says when to try again. Each stream of a caller, and each
//! subscription on lines, takes from `streams-per-caller`.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use arc_swap::ArcSwapOption;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use crate::base::clock;
use crate::base::queue::{Queue, Queued};
use crate::base::slots::{Slot, Slots};
use crate::config::Limits;
use crate::engine::failure::{Executed, Failure, Reason};
use crate::gateway::quota::{Quota, QuotaLimits};
use crate::policy::{CallerLimiter, LOCAL};

/// Calls that may wait for a person at once.
const MAX_ASKING: usize = 1024;

/// The rates and shares of all callers, and the places that all calls share. The local user has no rate and no share.
#[derive(Debug)]
pub(crate) struct Admission {
    rate: ArcSwapOption<CallerLimiter>,
    pub(crate) quota: Quota,
    in_flight: Slots,
    queue: Queue,
    /// In milliseconds.
    queue_time: AtomicU64,
    asking: Arc<Semaphore>,
}

/// A call's place among all calls in flight, or its turn to get one. Held, not read.
#[derive(Debug)]
pub(crate) enum InFlight {
    Running(#[expect(dead_code, reason = "given back on drop")] Slot),
    Queued(#[expect(dead_code, reason = "given back on drop")] Queued),
}

/// A caller has used up its requests.
#[derive(Clone, Copy, Debug, thiserror::Error)]
#[error("too many requests; try again in {} s", self.seconds())]
pub(crate) struct OverRate {
    wait: Duration,
}

impl OverRate {
    /// When the caller may come again, in whole seconds as `Retry-After` has them.
    pub(crate) fn seconds(self) -> u64 {
        self.wait.as_secs() + 1
    }
}

impl Admission {
    pub(crate) fn new(limits: &Limits) -> Self {
        Self {
            rate: ArcSwapOption::from(rate(limits)),
            quota: Quota::new(shares(limits)),
            in_flight: Slots::new(limits.in_flight),
            queue: Queue::new(limits.queue),
            queue_time: AtomicU64::new(clock::millis(limits.queue_timeout)),
            asking: Arc::new(Semaphore::new(MAX_ASKING)),
        }
    }

    /// Puts other limits in force. A rate that stays the same stays as far used up as it is.
    pub(crate) fn set_limits(&self, old: &Limits, new: &Limits) {
        if (old.caller_rate, old.caller_burst) != (new.caller_rate, new.caller_burst) {
            self.rate.store(rate(new));
        }
        self.quota.set_limits(shares(new));
        self.in_flight.set_number(new.in_flight);
        self.queue.set_limit(new.queue);
        self.queue_time.store(clock::millis(new.queue_timeout), Ordering::Relaxed);
    }

    /// Takes so many requests from a caller's rate, all or none. A batch takes one for each request in it.
    ///
    /// # Errors
    /// [`OverRate`]: nothing was taken.
    pub(crate) fn admit(&self, caller: &str, requests: usize) -> Result<(), OverRate> {
        if caller == LOCAL || requests == 0 {
            return Ok(());
        }
        let rate = self.rate.load();
        let Some(rate) = &*rate else { return Ok(()) };
        let requests = u32::try_from(requests).unwrap_or(u32::MAX);
        rate.take(caller, requests, clock::uptime()).map_err(|wait| OverRate { wait })
    }

    /// Whether every place for a call is taken, and the queue before them is full.
    pub(crate) fn is_full(&self) -> bool {
        self.in_flight.free() == 0 && self.queue.is_full()
    }

    /// How many calls wait for a place.
    pub(crate) fn waiting(&self) -> usize {
        self.queue.len()
    }

    /// A place among all calls, or a turn to get one; `None` where too many wait.
    pub(crate) fn enter(&self) -> Option<InFlight> {
        match self.in_flight.try_take() {
            Some(slot) => Some(InFlight::Running(slot)),
            None => self.queue.enter().map(InFlight::Queued),
        }
    }

    /// Waits for a place among all calls, where there was none at once.
    ///
    /// # Errors
    /// [`Reason::Busy`]: it took too long.
    pub(crate) async fn place(&self) -> Result<InFlight, Failure> {
        let queue_time = Duration::from_millis(self.queue_time.load(Ordering::Relaxed));
        tokio::time::timeout(queue_time, self.in_flight.take()).await.map(InFlight::Running).map_err(|_| {
            let busy = Failure::new(Reason::Busy, Executed::No, "The gateway is busy.");
            busy.retry_after(queue_time.max(Duration::from_secs(1)))
        })
    }

    /// A place among all calls that wait for a person.
    pub(crate) fn ask(&self) -> Option<OwnedSemaphorePermit> {
        Arc::clone(&self.asking).try_acquire_owned().ok()
    }
}

fn rate(limits: &Limits) -> Option<Arc<CallerLimiter>> {
    let burst = u32::try_from(limits.caller_burst).unwrap_or(u32::MAX);
    CallerLimiter::new(limits.caller_rate, burst).map(Arc::new)
}

const fn shares(limits: &Limits) -> QuotaLimits {
    QuotaLimits {
        connections: limits.connections_per_caller,
        calls: limits.in_flight_per_caller,
        streams: limits.streams_per_caller,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::policy::{Per, Rate};

    #[test]
    fn each_caller_has_its_rate_and_the_local_user_none() {
        let limits = Limits { caller_burst: 3, caller_rate: Rate { count: 1, per: Per::Hour }, ..Limits::default() };
        let admission = Admission::new(&limits);
        assert!(admission.admit("ci", 3).is_ok() && admission.admit("ci", 0).is_ok());
        let over = admission.admit("ci", 1).unwrap_err();
        assert!((3590..=3601).contains(&over.seconds()), "{over}");
        assert_eq!(over.to_string(), format!("too many requests; try again in {} s", over.seconds()));
        assert!(admission.admit("dev", 1).is_ok() && admission.admit(LOCAL, 1000).is_ok());
        let other = Limits { in_flight: 1, ..limits.clone() };
        admission.set_limits(&limits, &other);
        assert!(admission.admit("ci", 1).is_err(), "the same rate is not refilled");
        let _held = admission.enter();
        assert!(matches!(admission.enter(), Some(InFlight::Queued(_))), "one call at once");
        admission.set_limits(&other, &Limits { caller_burst: 4, ..other.clone() });
        assert!(admission.admit("ci", 4).is_ok());
    }
}
