//! Retention of the audit log: which old files are removed, by the age of their last record and by
//! the size of all files together.

use std::time::Duration;

/// The bounds for which records are kept. Without a bound all records are kept.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RetentionBounds {
    /// Age after which records are removed, a whole file at a time.
    pub age: Option<Duration>,
    /// Approximate bound on the size of all files together, in bytes.
    pub size: Option<u64>,
}

/// Files that are removed together or not at all.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LogPiece {
    pub bytes: u64,
    /// Time of the last record, in milliseconds since 1970.
    pub last: u64,
}

impl RetentionBounds {
    /// Whether all records are kept.
    pub const fn is_everything(&self) -> bool {
        self.age.is_none() && self.size.is_none()
    }

    /// Returns how many pieces to remove, the oldest first. `pieces` are in the order of their last
    /// records; `kept` are the bytes of files that cannot be removed. `now` is in milliseconds
    /// since 1970.
    pub fn expired(&self, pieces: &[LogPiece], kept: u64, now: u64) -> usize {
        let is_old = |piece: &&LogPiece| {
            self.age.is_some_and(|age| u128::from(piece.last).saturating_add(age.as_millis()) <= u128::from(now))
        };
        let old = pieces.iter().take_while(is_old).count();
        let mut bytes = pieces.iter().skip(old).fold(kept, |sum, piece| sum.saturating_add(piece.bytes));
        let too_large = |piece: &&LogPiece| {
            let is_over = self.size.is_some_and(|size| bytes > size);
            bytes = bytes.saturating_sub(piece.bytes);
            is_over
        };
        old + pieces.iter().skip(old).take_while(too_large).count()
    }
}

/// Raises the times of one chain's pieces, given oldest first, so that no piece is older than the
/// one before it. The clock may have been set back between them.
pub fn order_times(pieces: &mut [LogPiece]) {
    let mut latest = 0;
    for piece in pieces {
        latest = piece.last.max(latest);
        piece.last = latest;
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const DAY: u64 = 24 * 3_600_000;
    const AGE: Duration = Duration::from_millis(10 * DAY);

    fn pieces(all: &[(u64, u64)]) -> Vec<LogPiece> {
        all.iter().map(|(bytes, day)| LogPiece { bytes: *bytes, last: day * DAY }).collect()
    }

    #[test]
    fn what_is_too_old_or_too_much_goes_from_the_oldest_on() {
        let all = pieces(&[(10, 1), (20, 5), (30, 9), (40, 12)]);
        type Row = (&'static str, Option<Duration>, Option<u64>, u64, u64, usize);
        let rows: &[Row] = &[
            // Age, size, bytes that stay, day.
            ("everything is kept", None, None, 1_000_000, 1000, 0),
            ("nothing is old yet", Some(AGE), None, 0, 10, 0),
            ("to the moment", Some(AGE), None, 0, 11, 1),
            ("two are old", Some(AGE), None, 0, 16, 2),
            ("all are old", Some(AGE), None, 0, 100, 4),
            ("all fit", None, Some(100), 0, 1000, 0),
            ("one is too much", None, Some(99), 0, 1000, 1),
            ("what stays counts", None, Some(99), 21, 1000, 2),
            ("nothing fits", None, Some(5), 6, 1000, 4),
            ("by age and then by size", Some(AGE), Some(70), 0, 11, 2),
            ("by size and not by age", Some(AGE), Some(40), 0, 11, 3),
        ];
        for (label, age, size, kept, day, want) in rows {
            let retain = RetentionBounds { age: *age, size: *size };
            assert_eq!(retain.expired(&all, *kept, day * DAY), *want, "{label}");
        }
        let clock_at_the_end = RetentionBounds { age: Some(Duration::MAX), size: Some(u64::MAX) };
        assert_eq!(clock_at_the_end.expired(&all, u64::MAX, u64::MAX), 0);
    }

    proptest! {
        #[test]
        fn no_more_goes_than_has_to(all in prop::collection::vec((0_u64..50, 0_u64..50), 0..12), size in 0_u64..300, age in 0_u64..50, now in 0_u64..60) {
            let mut all = pieces(&all);
            order_times(&mut all);
            prop_assert!(all.is_sorted_by_key(|piece| piece.last));
            let age = Duration::from_millis(age * DAY);
            let gone = RetentionBounds { age: Some(age), size: Some(size) }.expired(&all, 0, now * DAY);
            let sum = |pieces: &[LogPiece]| pieces.iter().map(|piece| piece.bytes).sum::<u64>();
            let is_old = |piece: &LogPiece| piece.last + u64::try_from(age.as_millis()).unwrap() <= now * DAY;
            prop_assert!(sum(&all[gone..]) <= size && !all[gone..].iter().any(is_old));
            if gone > 0 {
                prop_assert!(is_old(&all[gone - 1]) || sum(&all[gone - 1..]) > size);
            }
        }
    }
}
