//! The rate of list reads: a server that reports change after change is asked once a second.

use std::time::{Duration, Instant};

use crate::mcp::method::List;

/// Between two readings of one list.
const INTERVAL: Duration = Duration::from_secs(1);
/// So many may come at once, after a quiet time.
const BURST: u32 = 5;

/// When the allowance of each list is whole again.
#[derive(Debug, Default)]
pub(crate) struct Allowance([Option<Instant>; 4]);

impl Allowance {
    /// From when on the list may be read.
    pub(crate) fn due(&self, list: List, now: Instant) -> Instant {
        let whole = self.0.get(list as usize).copied().flatten().unwrap_or(now);
        whole.checked_sub(INTERVAL * (BURST - 1)).map_or(now, |due| due.max(now))
    }

    /// Takes one reading; `false` when it is not due yet.
    pub(crate) fn take(&mut self, list: List, now: Instant) -> bool {
        let due = self.due(list, now) <= now;
        if let Some(whole) = self.0.get_mut(list as usize).filter(|_| due) {
            *whole = Some(whole.map_or(now, |whole| whole.max(now)) + INTERVAL);
        }
        due
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    #[expect(clippy::disallowed_methods, reason = "any moment will do to count from")]
    fn a_few_readings_at_once_and_then_one_a_second() {
        let start = Instant::now();
        let mut allowance = Allowance::default();
        let taken = (0..10_000).filter(|ms| allowance.take(List::Tools, start + Duration::from_millis(*ms))).count();
        assert_eq!(taken, 5 + 9);
        let now = start + Duration::from_secs(10);
        assert_eq!(allowance.due(List::Tools, now), now);
        assert_eq!(allowance.due(List::Prompts, start), start, "each list has its own");
        assert!(allowance.take(List::Prompts, start));
    }
}
