//! Limits log lines that peers can cause: a few at once, then one a minute with the number of
//! events in between.

use std::time::Duration;

use parking_lot::Mutex;

/// Time after which a burst of lines ends and the next line is due.
const PAUSE: Duration = Duration::from_secs(60);

/// A counter of events of one kind that says when a log line is due.
#[derive(Debug)]
pub struct LogTally {
    /// Lines that may be written within one [`PAUSE`].
    most: u64,
    state: Mutex<LogTallyState>,
}

/// The current burst of lines, and the events since the last line.
#[derive(Debug, Default)]
struct LogTallyState {
    /// Time of the first line of the current burst.
    begun: Option<Duration>,
    lines: u64,
    /// Events since the last line.
    since: u64,
}

impl Default for LogTally {
    fn default() -> Self {
        Self::of(1)
    }
}

impl LogTally {
    /// Creates a tally that allows `most` lines in each [`PAUSE`].
    pub const fn of(most: u64) -> Self {
        Self { most, state: Mutex::new(LogTallyState { begun: None, lines: 0, since: 0 }) }
    }

    /// Counts one event. Returns the number of events since the last line, this one included, if a
    /// line is due.
    pub fn count(&self, now: Duration) -> Option<u64> {
        let mut state = self.state.lock();
        state.since += 1;
        if state.begun.is_none_or(|begun| now.saturating_sub(begun) >= PAUSE) {
            (state.begun, state.lines) = (Some(now), 0);
        } else if state.lines >= self.most {
            return None;
        }
        state.lines += 1;
        Some(std::mem::take(&mut state.since))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn told(tally: &LogTally, times: impl Iterator<Item = u64>) -> Vec<u64> {
        times.filter_map(|second| tally.count(Duration::from_secs(second))).collect()
    }

    #[test]
    fn a_flood_is_one_line_a_minute_and_no_event_is_lost() {
        assert_eq!(told(&LogTally::default(), 0..180), [1, 60, 60]);
    }

    #[test]
    fn a_few_at_once_are_a_line_each_and_a_flood_of_them_is_counted() {
        let tally = LogTally::of(3);
        assert_eq!(told(&tally, std::iter::repeat_n(5, 1000)), [1, 1, 1]);
        assert_eq!(told(&tally, 65..68), [998, 1, 1], "the first of the next minute says how many there were");
        assert_eq!(told(&tally, [66, 67, 200].into_iter()), [3], "a clock that goes back changes nothing");
    }
}
