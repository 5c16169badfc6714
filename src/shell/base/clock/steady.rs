//! The clock of every promise in time: grants, approvals, denials, embargoes, limits, sessions,
//! sign-ins, states and cursors.
//!
//! It follows a wall clock that is ahead. When the wall clock is set back, it continues from where
//! it was at the rate of the machine's own time. The store carries it over restarts and to other
//! processes (`store/sqlite/tables/meta`).

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// One reading of the machine's clocks. The wall clock must be read first: a pause between the two
/// readings then never sets the clock ahead.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct ClockReading {
    /// Wall time since 1970; zero for a time before.
    pub(super) wall: Duration,
    /// Time on the monotonic clock, which never goes back.
    pub(super) machine: Duration,
}

/// A clock of time since 1970 that never goes back and never stands still.
///
/// The value is the zero point of the monotonic clock on this clock, in nanoseconds since 1970. It
/// only grows.
#[derive(Debug)]
pub(super) struct SteadyClock(AtomicU64);

impl SteadyClock {
    pub(super) const fn new() -> Self {
        Self(AtomicU64::new(0))
    }

    /// Returns the time since 1970 at this reading, and moves the clock forward if the wall clock
    /// is ahead.
    pub(super) fn time(&self, reading: ClockReading) -> Duration {
        reading.machine.saturating_add(self.start_not_before(reading.wall, reading.machine))
    }

    /// Sets the clock forward to `seen`, a time since 1970 that another or an earlier process has
    /// seen; never back.
    pub(super) fn advance(&self, seen: Duration, machine: Duration) {
        self.start_not_before(seen, machine);
    }

    /// Raises the zero point so that the clock shows at least `seen` now. Returns the zero point.
    fn start_not_before(&self, seen: Duration, machine: Duration) -> Duration {
        let start = u64::try_from(seen.saturating_sub(machine).as_nanos()).unwrap_or(u64::MAX);
        Duration::from_nanos(self.0.fetch_max(start, Ordering::Relaxed).max(start))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const HOUR: u64 = 3600;

    /// Returns the times, in seconds, of a clock at these readings of wall and monotonic time.
    fn times(clock: &SteadyClock, readings: &[(u64, u64)]) -> Vec<u64> {
        let read = |(wall, machine): &(u64, u64)| {
            let (wall, machine) = (Duration::from_secs(*wall), Duration::from_secs(*machine));
            clock.time(ClockReading { wall, machine }).as_secs()
        };
        readings.iter().map(read).collect()
    }

    #[test]
    fn it_follows_the_wall_forward_and_goes_on_at_the_machines_rate_when_the_wall_is_set_back() {
        for (label, readings, want) in [
            ("no step", &[(1000, 10), (1075, 85)][..], &[1000, 1075][..]),
            ("a step forward", &[(1000, 10), (9000, 20)], &[1000, 9000]),
            ("ahead once and back", &[(1000, 10), (9000, 20), (1020, 30), (1075, 85)], &[1000, 9000, 9010, 9065]),
            ("ahead again", &[(9000, 20), (1000, 30), (9005, 40), (20_000, 50)], &[9000, 9010, 9020, 20_000]),
            ("small steps to and fro", &[(1000, 10), (1002, 11), (1001, 12), (1003, 13)], &[1000, 1002, 1003, 1004]),
            ("back before 1970", &[(1000, 10), (0, 20), (0, 30)], &[1000, 1010, 1020]),
            ("begun before 1970", &[(0, 10), (0, 70), (5000, 80)], &[10, 70, 5000]),
            ("a night's sleep", &[(1000, 10), (1000 + 8 * HOUR, 10 + 8 * HOUR)], &[1000, 1000 + 8 * HOUR]),
            (
                "asleep after the wall was set back",
                &[(1000 + HOUR, 10), (1000, 20), (1000 + HOUR / 2, 20 + HOUR / 2)],
                &[1000 + HOUR, 1010 + HOUR, 1010 + HOUR + HOUR / 2],
            ),
        ] {
            assert_eq!(times(&SteadyClock::new(), readings), want, "{label}");
        }
    }

    #[test]
    fn a_time_that_was_seen_before_sets_it_forward_and_never_back() {
        let (clock, at) = (SteadyClock::new(), Duration::from_secs);
        clock.advance(at(9000), at(10));
        assert_eq!(times(&clock, &[(1000, 20), (1010, 30)]), [9010, 9020]);
        clock.advance(at(9001), at(30));
        assert_eq!(times(&clock, &[(1020, 40)]), [9030]);
        clock.advance(at(9100), at(40));
        assert_eq!(times(&clock, &[(1030, 50), (20_000, 60)]), [9110, 20_000]);
        clock.advance(Duration::MAX, at(60));
        assert!(clock.time(ClockReading { wall: at(1), machine: Duration::MAX }) >= at(20_000), "no overflow");
    }

    #[test]
    fn it_never_goes_back_nor_stands_still_whatever_the_wall_does() {
        proptest::proptest!(|(steps in proptest::collection::vec((0_u64..20_000, 1_u64..100), 1..200))| {
            let (clock, mut machine, mut last) = (SteadyClock::new(), 0, None);
            for (wall, passed) in steps {
                machine += passed;
                let now = times(&clock, &[(wall, machine)])[0];
                proptest::prop_assert!(now >= wall, "behind the wall");
                proptest::prop_assert!(last.is_none_or(|last| now >= last + passed), "less than what has passed");
                last = Some(now);
            }
        });
    }
}
