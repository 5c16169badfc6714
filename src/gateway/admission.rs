//! Admission: how often a caller may ask, what it may hold at once, and how many calls of all callers run or wait. Every face
//! asks here before it hands a request to the service.
//!
//! Each request of a caller other than our own user takes from `caller-rate`; over HTTP so does each POST, before its body is
//! read, and each GET and DELETE of a session. A batch takes one for each request in it, and is admitted as a whole or not at
//! all. A refusal is 429 over HTTP, and elsewhere an error that says when to try again. Each stream of a caller, and each
//! subscription on lines, takes from `streams-per-caller`.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use crate::base::clock;
use crate::base::queue::{Queue, Queued};
use crate::config::Limits;
use crate::engine::call::{Executed, Failure, Reason};
use crate::gateway::quota::{Quota, QuotaLimits};
use crate::policy::{CallerLimiter, LOCAL};

/// Calls that may wait for a person at once.
const MAX_ASKING: usize = 1024;

/// The rates and shares of all callers, and the places that all calls share. The local user has no rate and no share.
#[derive(Debug)]
pub(crate) struct Admission {
    rate: Option<CallerLimiter>,
    pub(crate) quota: Quota,
    in_flight: Arc<Semaphore>,
    queue: Queue,
    queue_time: Duration,
    asking: Arc<Semaphore>,
}

/// A call's place among all calls in flight, or its turn to get one. Held, not read.
#[derive(Debug)]
pub(crate) enum InFlight {
    Running(#[expect(dead_code, reason = "given back on drop")] OwnedSemaphorePermit),
    Queued(#[expect(dead_code, reason = "given back on drop")] Queued),
}

/// A caller has used up its requests.
#[derive(Clone, Copy, Debug)]
pub(crate) struct OverRate {
    wait: Duration,
}

impl OverRate {
    /// When the caller may come again, in whole seconds as `Retry-After` has them.
    pub(crate) fn seconds(self) -> u64 {
        self.wait.as_secs() + 1
    }
}

impl fmt::Display for OverRate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "too many requests; try again in {} s", self.seconds())
    }
}

impl Admission {
    pub(crate) fn new(limits: &Limits) -> Self {
        let burst = u32::try_from(limits.caller_burst).unwrap_or(u32::MAX);
        Self {
            rate: CallerLimiter::new(limits.caller_rate, burst),
            quota: Quota::new(QuotaLimits {
                connections: limits.connections_per_caller,
                calls: limits.in_flight_per_caller,
                streams: limits.streams_per_caller,
            }),
            in_flight: Arc::new(Semaphore::new(limits.in_flight)),
            queue: Queue::new(limits.queue),
            queue_time: limits.queue_timeout,
            asking: Arc::new(Semaphore::new(MAX_ASKING)),
        }
    }

    /// Takes so many requests from a caller's rate, all or none. A batch takes one for each request in it.
    ///
    /// # Errors
    /// [`OverRate`]: nothing was taken.
    pub(crate) fn admit(&self, caller: &str, requests: usize) -> Result<(), OverRate> {
        let Some(rate) = self.rate.as_ref().filter(|_| caller != LOCAL && requests > 0) else { return Ok(()) };
        let requests = u32::try_from(requests).unwrap_or(u32::MAX);
        rate.take(caller, requests, clock::uptime()).map_err(|wait| OverRate { wait })
    }

    /// Whether every place for a call is taken, and the queue before them is full.
    pub(crate) fn is_full(&self) -> bool {
        self.in_flight.available_permits() == 0 && self.queue.is_full()
    }

    /// How many calls wait for a place.
    pub(crate) fn waiting(&self) -> usize {
        self.queue.len()
    }

    /// A place among all calls, or a turn to get one; `None` where too many wait.
    pub(crate) fn enter(&self) -> Option<InFlight> {
        match Arc::clone(&self.in_flight).try_acquire_owned() {
            Ok(permit) => Some(InFlight::Running(permit)),
            Err(_) => self.queue.enter().map(InFlight::Queued),
        }
    }

    /// Waits for a place among all calls, where there was none at once.
    ///
    /// # Errors
    /// [`Reason::Busy`]: it took too long.
    pub(crate) async fn place(&self) -> Result<InFlight, Failure> {
        let free = Arc::clone(&self.in_flight).acquire_owned();
        match tokio::time::timeout(self.queue_time, free).await {
            Ok(Ok(permit)) => Ok(InFlight::Running(permit)),
            Ok(Err(_)) | Err(_) => {
                let busy = Failure::new(Reason::Busy, Executed::No, "The gateway is busy.");
                Err(busy.retry_after(self.queue_time.max(Duration::from_secs(1))))
            }
        }
    }

    /// A place among all calls that wait for a person.
    pub(crate) fn ask(&self) -> Option<OwnedSemaphorePermit> {
        Arc::clone(&self.asking).try_acquire_owned().ok()
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
    }
}
