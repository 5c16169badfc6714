//! Admits requests: how often a caller may ask, what it may hold at once, and how many calls of all
//! callers run or wait. Every client-facing endpoint asks here before it hands a request to the
//! service.
//!
//! Each request of a caller other than our own user takes from `caller-rate`; over HTTP so does
//! each POST, before its body is read, and each GET and DELETE of a session. A batch takes one for
//! each request in it, and is admitted as a whole or not at all. A refusal is 429 over HTTP, and
//! elsewhere an error that says when to try again. Each stream of a caller, and each subscription
//! on lines, takes from `streams-per-caller`. Callers share the slots for calls fairly
//! (`base::fair_slots`).

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use arc_swap::ArcSwapOption;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use crate::base::callers::CallerNumber;
use crate::base::clock;
use crate::base::fair_slots::{FairSlot, FairSlots, QueuedCall};
use crate::config::Limits;
use crate::engine::failure::{CallFailure, ExecutionDoubt, FailureReason};
use crate::gateway::client::quota::{Quota, QuotaLimits};
use crate::policy::{Caller, CallerLimiter};

/// Most calls that may wait at once while their client is asked.
const MAX_ASKING: usize = 1024;

/// The rates and quotas of all callers, and the slots that all calls share. The local user has no
/// rate and no quota, and takes its turn with the other callers.
#[derive(Debug)]
pub struct RequestAdmission {
    rate: ArcSwapOption<CallerLimiter>,
    pub quota: Quota,
    in_flight: FairSlots,
    /// Longest wait for a slot, in milliseconds.
    queue_time: AtomicU64,
    asking: Arc<Semaphore>,
}

/// A call's slot among all running calls, or its position in the queue for one.
#[derive(Debug)]
pub enum CallPlace {
    Running(FairSlot),
    Queued(Box<QueuedCall>),
}

/// The error of a caller that has used up its rate.
#[derive(Clone, Copy, Debug, thiserror::Error)]
#[error("too many requests; try again in {} s", self.seconds())]
pub struct RateExceeded {
    wait: Duration,
}

impl RateExceeded {
    /// Returns the time until the caller may ask again, in whole seconds as in `Retry-After`.
    pub fn seconds(self) -> u64 {
        self.wait.as_secs() + 1
    }
}

impl RequestAdmission {
    pub fn new(limits: &Limits) -> Self {
        Self {
            rate: ArcSwapOption::from(new_limiter(limits)),
            quota: Quota::new(quota_limits(limits)),
            in_flight: FairSlots::new(limits.in_flight, limits.queue),
            queue_time: AtomicU64::new(clock::millis(limits.queue_timeout)),
            asking: Arc::new(Semaphore::new(MAX_ASKING)),
        }
    }

    /// Puts new limits in force. A rate that is unchanged is not refilled.
    pub fn set_limits(&self, old: &Limits, new: &Limits) {
        if (old.caller_rate, old.caller_burst) != (new.caller_rate, new.caller_burst) {
            self.rate.store(new_limiter(new));
        }
        self.quota.set_limits(quota_limits(new));
        self.in_flight.set_number(new.in_flight);
        self.in_flight.set_queue_limit(new.queue);
        self.queue_time.store(clock::millis(new.queue_timeout), Ordering::Relaxed);
    }

    /// Takes a number of requests from a caller's rate, all or none.
    ///
    /// # Errors
    /// [`RateExceeded`]: nothing was taken.
    pub fn admit(&self, caller: &Caller, requests: usize) -> Result<(), RateExceeded> {
        if caller.is_local() || requests == 0 {
            return Ok(());
        }
        let rate = self.rate.load();
        let Some(rate) = &*rate else { return Ok(()) };
        let requests = u32::try_from(requests).unwrap_or(u32::MAX);
        rate.take(caller.key(), requests, clock::uptime()).map_err(|wait| RateExceeded { wait })
    }

    /// Whether all slots for calls are taken and the queue has no room for this caller.
    /// `is_shared`: there can be several callers.
    pub fn is_full(&self, caller: &CallerNumber, is_shared: bool) -> bool {
        self.in_flight.is_full(caller, is_shared)
    }

    /// Returns the number of calls that wait for a slot.
    pub fn waiting(&self) -> usize {
        self.in_flight.waiting()
    }

    /// Returns the number of free slots for calls.
    pub fn free(&self) -> usize {
        self.in_flight.free()
    }

    /// Takes a slot among all running calls, or a position in the queue; `None` if the queue has no
    /// room for this caller.
    pub fn enter(&self, caller: &CallerNumber, is_shared: bool) -> Option<CallPlace> {
        if let Some(slot) = self.in_flight.try_take(caller) {
            return Some(CallPlace::Running(slot));
        }
        self.in_flight.queue(caller, is_shared).map(|queued| CallPlace::Queued(Box::new(queued)))
    }

    /// Waits for a slot among all running calls, for `longest` while another caller has more slots,
    /// otherwise for the queue time. Cancel-safe.
    ///
    /// # Errors
    /// [`FailureReason::Busy`]: the wait was too long.
    pub async fn wait(&self, queued: &mut QueuedCall, longest: Duration) -> Result<CallPlace, CallFailure> {
        let queue_time = Duration::from_millis(self.queue_time.load(Ordering::Relaxed));
        queued.wait(queue_time, longest).await.map(CallPlace::Running).ok_or_else(|| {
            let busy = CallFailure::new(FailureReason::Busy, ExecutionDoubt::No, "The gateway is busy.");
            busy.retry_after(queue_time.max(Duration::from_secs(1)))
        })
    }

    /// Takes a slot for a call that waits while its client is asked; `None` if all are taken.
    pub fn ask(&self) -> Option<OwnedSemaphorePermit> {
        Arc::clone(&self.asking).try_acquire_owned().ok()
    }
}

fn new_limiter(limits: &Limits) -> Option<Arc<CallerLimiter>> {
    let burst = u32::try_from(limits.caller_burst).unwrap_or(u32::MAX);
    CallerLimiter::new(limits.caller_rate, burst).map(Arc::new)
}

const fn quota_limits(limits: &Limits) -> QuotaLimits {
    QuotaLimits {
        connections: limits.connections_per_caller,
        calls: limits.in_flight_per_caller,
        streams: limits.streams_per_caller,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::policy::{Rate, RateUnit};

    #[test]
    fn each_caller_has_its_rate_and_the_local_user_none() {
        let limits =
            Limits { caller_burst: 3, caller_rate: Rate { count: 1, per: RateUnit::Hour }, ..Limits::default() };
        let admission = RequestAdmission::new(&limits);
        assert!(admission.admit(&Caller::named("ci"), 3).is_ok() && admission.admit(&Caller::named("ci"), 0).is_ok());
        let over = admission.admit(&Caller::named("ci"), 1).unwrap_err();
        assert!((3590..=3601).contains(&over.seconds()), "{over}");
        assert_eq!(over.to_string(), format!("too many requests; try again in {} s", over.seconds()));
        assert!(admission.admit(&Caller::named("dev"), 1).is_ok() && admission.admit(Caller::local(), 1000).is_ok());
        let other = Limits { in_flight: 1, ..limits.clone() };
        admission.set_limits(&limits, &other);
        assert!(admission.admit(&Caller::named("ci"), 1).is_err(), "the same rate is not refilled");
        let _held = admission.enter(&CallerNumber::LOCAL, false);
        assert!(matches!(admission.enter(&CallerNumber::LOCAL, false), Some(CallPlace::Queued(_))), "one call at once");
        admission.set_limits(&other, &Limits { caller_burst: 4, ..other.clone() });
        assert!(admission.admit(&Caller::named("ci"), 4).is_ok());
    }
}
