//! The back-off between two starts of an upstream.

use std::time::Duration;

/// First wait; doubles up to [`StartFailure::longest`].
const SHORTEST: Duration = Duration::from_millis(500);
/// An upstream that was ready for this long begins again with the shortest wait.
const STABLE: Duration = Duration::from_secs(30);

/// The kind of a failure, which decides how long the waits get.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StartFailure {
    /// The connection to a URL. An attempt costs little, and the server may be back at any moment.
    Connection,
    /// A process, whose start costs much.
    Process,
    /// A start that fails until the operator fixes something. It is retried rarely, because other
    /// events trigger a retry.
    Lasting,
    /// A server that refuses the gateway's credentials. It is asked again when the credentials
    /// change; the rare retries are for servers whose own side was at fault.
    Unadmitted,
}

impl StartFailure {
    /// Returns the longest wait after such failures.
    fn longest(self) -> Duration {
        match self {
            Self::Connection => Duration::from_secs(10),
            Self::Process | Self::Lasting => Duration::from_secs(60),
            Self::Unadmitted => Duration::from_secs(1200),
        }
    }
}

/// The back-off of one upstream. It never gives up.
#[derive(Debug, Default)]
pub struct StartBackoff {
    failures: u32,
}

impl StartBackoff {
    /// Records a failure and returns the wait before the next start. `was_ready` is how long the
    /// upstream was ready before, and `jitter`, a random number in 0..1, spreads the restarts of
    /// many upstreams.
    pub fn failed(&mut self, kind: StartFailure, was_ready: Option<Duration>, jitter: f64) -> Duration {
        if was_ready.is_some_and(|served| served >= STABLE) {
            self.failures = 0;
        }
        let doubled = SHORTEST.saturating_mul(1 << self.failures.min(16));
        let full = if matches!(kind, StartFailure::Lasting | StartFailure::Unadmitted) {
            kind.longest()
        } else {
            doubled.min(kind.longest())
        };
        self.failures = self.failures.saturating_add(1);
        full.mul_f64(0.5 + 0.5 * jitter.clamp(0.0, 1.0))
    }

    /// Returns the number of failures in a row.
    pub fn failures(&self) -> u32 {
        self.failures
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn waits_double_up_to_the_bound_of_their_kind_and_never_end() {
        for (kind, longest) in [(StartFailure::Connection, 10_000), (StartFailure::Process, 60_000)] {
            let mut backoff = StartBackoff::default();
            let waits: Vec<u128> = (0..1000).map(|_| backoff.failed(kind, None, 1.0).as_millis()).collect();
            assert_eq!(waits[..5], [500, 1000, 2000, 4000, 8000], "{kind:?}");
            assert!(waits[8..].iter().all(|wait| *wait == longest), "{kind:?}: {:?}", &waits[..10]);
        }
    }

    #[test]
    fn a_cause_that_lasts_is_tried_seldom_from_the_first_time_on() {
        assert_eq!(StartBackoff::default().failed(StartFailure::Lasting, None, 1.0), Duration::from_secs(60));
    }

    #[test]
    fn the_random_part_is_half_of_the_wait() {
        for (jitter, wait) in [(0.0, 5_000), (0.5, 7_500), (1.0, 10_000), (9.0, 10_000)] {
            let mut backoff = StartBackoff { failures: 40 };
            assert_eq!(backoff.failed(StartFailure::Connection, None, jitter), Duration::from_millis(wait), "{jitter}");
        }
    }

    #[test]
    fn a_stable_run_forgets_the_past() {
        let mut backoff = StartBackoff { failures: 7 };
        assert_eq!(backoff.failed(StartFailure::Process, Some(STABLE), 0.0), Duration::from_millis(250));
        assert_eq!(backoff.failures(), 1);
    }
}
