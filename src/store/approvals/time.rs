//! The clock of grants: it never goes back, not even over restarts.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use crate::base::clock;
use crate::policy::consent::Wall;

/// Wall time, or what the monotonic clock makes of the latest time ever seen, whichever is later.
#[derive(Debug)]
pub(super) struct WallClock {
    base: Wall,
    started: Duration,
    latest: AtomicU64,
    /// Seconds that a test has let pass.
    #[cfg(test)]
    pub(super) ahead: AtomicU64,
}

impl WallClock {
    /// `seen` is the latest time that was kept, 0 for none.
    pub(super) fn new(seen: Wall) -> Self {
        let base = seen.max(clock::unix_seconds());
        Self {
            base,
            started: clock::uptime(),
            latest: AtomicU64::new(base),
            #[cfg(test)]
            ahead: AtomicU64::new(0),
        }
    }

    pub(super) fn now(&self) -> Wall {
        let run = clock::uptime().saturating_sub(self.started).as_secs();
        let now = (self.base + run).max(clock::unix_seconds());
        #[cfg(test)]
        let now = now + self.ahead.load(Ordering::Relaxed);
        self.latest.fetch_max(now, Ordering::Relaxed).max(now)
    }
}
