//! Back-off: the time of an upstream's next start.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

/// First wait; doubles up to [`LONGEST`].
const SHORTEST: Duration = Duration::from_millis(500);
const LONGEST: Duration = Duration::from_secs(60);
/// So many deaths within [`WINDOW`] and the upstream rests for [`REST`].
const DEATHS: usize = 5;
const WINDOW: Duration = Duration::from_secs(60);
const REST: Duration = Duration::from_secs(300);
/// An upstream that was ready for so long starts over with the shortest wait.
const STABLE: Duration = Duration::from_secs(30);

/// The back-off of one upstream.
#[derive(Debug, Default)]
pub struct Backoff {
    deaths: VecDeque<Instant>,
    step: u32,
}

/// The consequence of a death.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// Start again after this wait.
    Retry(Duration),
    /// It dies in a loop; start again after this longer wait.
    Broken(Duration),
}

impl Backoff {
    /// Records a death. `was_ready` is how long the upstream served before, `jitter` a random number in 0..1 that spreads
    /// the restarts of many upstreams.
    pub fn died(&mut self, now: Instant, was_ready: Option<Duration>, jitter: f64) -> Verdict {
        if was_ready.is_some_and(|served| served >= STABLE) {
            self.step = 0;
            self.deaths.clear();
        }
        while self.deaths.front().is_some_and(|at| now.duration_since(*at) > WINDOW) {
            self.deaths.pop_front();
        }
        self.deaths.push_back(now);
        if self.deaths.len() >= DEATHS {
            self.deaths.clear();
            return Verdict::Broken(REST);
        }
        let full = SHORTEST.saturating_mul(1 << self.step.min(16)).min(LONGEST);
        self.step += 1;
        Verdict::Retry(full.mul_f64(0.5 + 0.5 * jitter.clamp(0.0, 1.0)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn waits_double_and_a_crash_loop_rests() {
        let start = crate::engine::sim::epoch();
        let mut backoff = Backoff::default();
        let mut waits = Vec::new();
        for n in 0..4 {
            waits.push(backoff.died(start + Duration::from_secs(n), None, 1.0));
        }
        assert_eq!(waits, [500, 1000, 2000, 4000].map(|ms| Verdict::Retry(Duration::from_millis(ms))));
        assert_eq!(backoff.died(start + Duration::from_secs(5), None, 1.0), Verdict::Broken(REST));
    }

    #[test]
    fn a_stable_run_forgets_the_past() {
        let start = crate::engine::sim::epoch();
        let mut backoff = Backoff::default();
        for n in 0..3 {
            backoff.died(start + Duration::from_secs(n), None, 1.0);
        }
        let verdict = backoff.died(start + Duration::from_secs(50), Some(STABLE), 0.0);
        assert_eq!(verdict, Verdict::Retry(Duration::from_millis(250)));
    }
}
