//! Limits how often each list of one upstream is read.
//!
//! A list that changes all the time is read [`BURST`] times at once and then once per [`INTERVAL`].
//! After each reading, the list rests for [`REST`] times as long as judging the reading took. While
//! every reading differs from the one before, the rest doubles up to [`LONGEST_PAUSE`].

use std::time::{Duration, Instant};

use crate::mcp::method::ItemList;

/// Interval between two readings of one list.
const INTERVAL: Duration = Duration::from_secs(1);
/// Readings that may follow each other without an interval, after a quiet time.
const BURST: u32 = 5;
/// Rest after a reading, as a multiple of the time that judging it took. Judging thus takes a tenth
/// of one processor at most.
const REST: u32 = 9;
/// Longest rest because judging took long.
const LONGEST_REST: Duration = Duration::from_secs(300);
/// Longest rest because all readings differ.
const LONGEST_PAUSE: Duration = Duration::from_secs(60);

/// The pace at which one list is read.
#[derive(Debug, Default)]
struct ListPace {
    /// Time at which the whole burst is available again.
    whole: Option<Instant>,
    /// Number of readings that differed from the one before. A reading that does not differ halves
    /// it.
    differing: u32,
    /// End of the last reading.
    ended: Option<Instant>,
    /// True until the last reading has been judged.
    is_unjudged: bool,
    /// End of the current rest.
    rests_until: Option<Instant>,
}

impl ListPace {
    /// Extends the rest to `until`, and never shortens it.
    fn rest(&mut self, until: Instant) {
        self.rests_until = Some(self.rests_until.map_or(until, |earlier| earlier.max(until)));
    }
}

/// The pace of each list of one upstream.
#[derive(Debug, Default)]
pub(crate) struct ListReadAllowance([ListPace; 4]);

impl ListReadAllowance {
    /// Returns the earliest time at which the list may be read.
    pub(crate) fn due(&self, list: ItemList, now: Instant) -> Instant {
        let Some(pace) = self.0.get(list as usize) else { return now };
        let allowed = pace.whole.unwrap_or(now).checked_sub(INTERVAL * (BURST - 1)).unwrap_or(now);
        pace.rests_until.map_or(allowed, |until| until.max(allowed)).max(now)
    }

    /// Counts one reading of the list; returns false, and counts nothing, if the list is not due
    /// yet.
    pub(crate) fn take(&mut self, list: ItemList, now: Instant) -> bool {
        let due = self.due(list, now) <= now;
        if let Some(pace) = self.0.get_mut(list as usize).filter(|_| due) {
            pace.whole = Some(pace.whole.map_or(now, |whole| whole.max(now)) + INTERVAL);
        }
        due
    }

    /// Records the end of a reading and whether it differs from the one before, and lets the list
    /// rest.
    pub(crate) fn ended(&mut self, list: ItemList, differs: bool, now: Instant) {
        let Some(pace) = self.0.get_mut(list as usize) else { return };
        let was_quiet = pace.ended.is_some_and(|ended| now.saturating_duration_since(ended) > LONGEST_PAUSE * 2);
        let before = if was_quiet { 0 } else { pace.differing };
        // A reading that does not differ takes back half of those that did.
        pace.differing = if differs { before.saturating_add(1).min(16) } else { before / 2 };
        let pause = pace.differing.checked_sub(BURST).map_or(Duration::ZERO, |over| INTERVAL * (1 << over));
        // The rest because of an earlier reading that took long to judge may last longer.
        pace.rest(now + pause.min(LONGEST_PAUSE));
        (pace.ended, pace.is_unjudged) = (Some(now), true);
    }

    /// Records how long it took to judge the readings that ended, and lets their lists rest.
    pub(crate) fn judged(&mut self, took: Duration, now: Instant) {
        let until = now + took.saturating_mul(REST).min(LONGEST_REST);
        for pace in self.0.iter_mut().filter(|pace| pace.is_unjudged) {
            pace.is_unjudged = false;
            pace.rest(until);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::engine::sim::epoch;

    #[test]
    fn a_few_readings_at_once_and_then_one_a_second() {
        let start = epoch();
        let mut allowance = ListReadAllowance::default();
        let taken =
            (0..10_000).filter(|ms| allowance.take(ItemList::Tools, start + Duration::from_millis(*ms))).count();
        assert_eq!(taken, 5 + 9);
        let now = start + Duration::from_secs(10);
        assert_eq!(allowance.due(ItemList::Tools, now), now);
        assert_eq!(allowance.due(ItemList::Prompts, start), start, "each list has its own");
        assert!(allowance.take(ItemList::Prompts, start));
    }

    #[test]
    fn a_reading_that_ends_after_the_one_before_was_judged_shortens_no_rest() {
        let start = epoch();
        let mut allowance = ListReadAllowance::default();
        assert!(allowance.take(ItemList::Tools, start));
        allowance.ended(ItemList::Tools, false, start);
        assert!(allowance.take(ItemList::Tools, start));
        let judged = start + Duration::from_secs(10);
        allowance.judged(Duration::from_secs(10), judged);
        let rest = allowance.due(ItemList::Tools, judged);
        assert_eq!(rest, judged + Duration::from_secs(90));
        allowance.ended(ItemList::Tools, false, judged);
        assert_eq!(allowance.due(ItemList::Tools, judged), rest);
    }

    /// Reads the list as soon as it is due, and returns the time of that reading.
    fn read(allowance: &mut ListReadAllowance, differs: bool, took: Duration, now: Instant) -> Instant {
        let now = allowance.due(ItemList::Tools, now);
        assert!(allowance.take(ItemList::Tools, now));
        allowance.ended(ItemList::Tools, differs, now);
        allowance.judged(took, now + took);
        now
    }

    /// Returns the rests before these readings, in seconds.
    fn rests(allowance: &mut ListReadAllowance, readings: &[bool], took: Duration, from: &mut Instant) -> Vec<u64> {
        let rest = |differs: &bool| {
            let at = read(allowance, *differs, took, *from);
            let rest = at.duration_since(*from).as_secs();
            *from = at;
            rest
        };
        readings.iter().map(rest).collect()
    }

    #[test]
    fn the_rest_doubles_while_readings_differ_and_comes_back_down() {
        let (mut now, mut allowance) = (epoch(), ListReadAllowance::default());
        let none = Duration::ZERO;
        let growing = rests(&mut allowance, &[true; 14], none, &mut now);
        assert_eq!(growing, [0, 0, 0, 0, 0, 1, 2, 4, 8, 16, 32, 60, 60, 60]);
        let falling = rests(&mut allowance, &[false; 4], none, &mut now);
        assert_eq!(falling, [60, 4, 0, 0]);
        rests(&mut allowance, &[true; 14], none, &mut now);
        now += LONGEST_PAUSE * 3;
        assert_eq!(rests(&mut allowance, &[true; 3], none, &mut now), [0, 0, 0], "a quiet time forgets it all");
    }

    #[test]
    fn the_rest_is_a_multiple_of_what_judging_took_with_a_bound() {
        for (took, readings, want) in [
            (Duration::from_millis(10), [false; 3], [0, 0, 0]),
            // The judging itself, and nine times as long.
            (Duration::from_secs(1), [false; 3], [0, 10, 10]),
            (Duration::from_secs(4), [true; 3], [0, 40, 40]),
            (Duration::from_secs(100), [true; 3], [0, 400, 400]),
        ] {
            let (mut now, mut allowance) = (epoch(), ListReadAllowance::default());
            assert_eq!(rests(&mut allowance, &readings, took, &mut now), want, "{took:?}");
        }
        let (now, mut allowance) = (epoch(), ListReadAllowance::default());
        allowance.judged(Duration::from_secs(9), now);
        assert_eq!(allowance.due(ItemList::Tools, now), now, "a list that was not read does not rest");
    }

    #[test]
    fn a_server_that_always_changes_has_judging_for_a_tenth_of_the_time_at_most() {
        for millis in [1, 50, 1_000, 5_000, 30_000] {
            let (start, mut allowance) = (epoch(), ListReadAllowance::default());
            let (took, mut now, mut spent) = (Duration::from_millis(millis), start, Duration::ZERO);
            while now.duration_since(start) < Duration::from_secs(3600) {
                now = read(&mut allowance, true, took, now) + took;
                spent += took;
            }
            assert!(spent * 10 <= now.duration_since(start) + took * 10, "{millis}: {spent:?}");
            assert!(spent <= took * 80, "{millis}: {spent:?}");
        }
    }
}
