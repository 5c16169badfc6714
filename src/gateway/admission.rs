//! Admission: the rate of each caller's requests. Every face asks here before it hands a request to the service.
//!
//! Each request of a caller other than our own user takes from `caller-rate`; over HTTP so does each POST, before its
//! body is read. A batch takes one for each request in it, and is admitted as a whole or not at all. A refusal is 429
//! over HTTP, and elsewhere an error that says when to try again.

use std::fmt;
use std::time::Duration;

use crate::base::clock;
use crate::config::Limits;
use crate::policy::{CallerLimiter, LOCAL};

/// The rates of all callers. The local user has none.
#[derive(Debug)]
pub(crate) struct Admission {
    rate: Option<CallerLimiter>,
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
        Self { rate: CallerLimiter::new(limits.caller_rate, burst) }
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
