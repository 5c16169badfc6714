//! Log lines that strangers can cause: the first at once, then one a minute with the number in between.

use std::time::Duration;

use parking_lot::Mutex;

/// Time between two lines.
const PAUSE: Duration = Duration::from_secs(60);

/// Counts events of one kind between log lines.
#[derive(Debug, Default)]
pub(crate) struct Tally(Mutex<State>);

#[derive(Debug, Default)]
struct State {
    last: Option<Duration>,
    since: u64,
}

impl Tally {
    /// Counts one event. Returns the number of events since the last line, this one included, when a line is due.
    pub(crate) fn count(&self, now: Duration) -> Option<u64> {
        let mut state = self.0.lock();
        state.since += 1;
        if state.last.is_some_and(|last| now.saturating_sub(last) < PAUSE) {
            return None;
        }
        state.last = Some(now);
        Some(std::mem::take(&mut state.since))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_flood_is_one_line_a_minute_and_no_event_is_lost() {
        let tally = Tally::default();
        let told: Vec<u64> = (0..180).filter_map(|second| tally.count(Duration::from_secs(second))).collect();
        assert_eq!(told, [1, 60, 60]);
    }
}
