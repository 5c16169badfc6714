//! The arithmetic of a bucket. A bucket is one number, which calls raise and which time, or the end
//! of calls, makes harmless again. A bucket is full if all its calls are available.
//!
//! | part of a limit | the number | one call adds | full again |
//! |---|---|---|---|
//! | rate, burst (GCRA) | time when it is full again, in ns | interval of the rate | at that time |
//! | per day | day since 1970, then 32 bits for the day's calls | 1 | on another day |
//! | concurrent | the running calls | 1 | when none runs |
//!
//! Times are nanoseconds since 1970 on a clock that never goes back. A refused call leaves the
//! number as it is.

use std::time::Duration;

use super::rate::Rate;

const SECOND: u64 = 1_000_000_000;
const DAY: u64 = 86_400 * SECOND;
/// Longest time to fill an empty bucket, in nanoseconds: a hundred years, far from overflow.
const MAX_FILL: u64 = 100 * 366 * DAY;
/// Position of the day in the number of a daily quota, in bits.
const DAY_SHIFT: u32 = 32;
/// Largest daily quota and number of slots. The number of calls must never reach the bits of the
/// day.
const MAX_CALLS: u32 = 1_000_000_000;
/// Most calls that one lease is ahead: the calls that a crash can cost a bucket.
const MAX_AHEAD: u32 = 64;
/// Divisor of a bucket's calls that gives the calls of one lease.
const AHEAD_OF: u32 = 16;

/// Time to retry for a caller with too many calls under way, since the end of a call cannot be
/// predicted.
const WHEN_ONE_ENDS: Duration = Duration::from_secs(1);

/// The arithmetic of one part of a limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::policy) enum Meter {
    Rate {
        /// Cost of one call in nanoseconds, rounded up so that the rate is never exceeded.
        interval: u64,
        /// Most nanoseconds that the number may be ahead of the time after a call: `burst`
        /// intervals.
        capacity: u64,
        burst: u32,
    },
    Day {
        quota: u32,
    },
    Concurrent {
        places: u32,
    },
}

/// The reason why the numbers of a limit cannot be used.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub(in crate::policy) enum MeterError {
    #[error("must not be zero; to forbid the calls, write a rule with effect = \"deny\"")]
    NoRate,
    #[error("must be at least 1, else no call is ever admitted")]
    NoBurst,
    #[error("would take over a hundred years to refill at this rate")]
    Endless,
    #[error("must be from 1 to 1000000000; to forbid the calls, write a rule with effect = \"deny\"")]
    PerDay,
    #[error("must be from 1 to 1000000000; to forbid the calls, write a rule with effect = \"deny\"")]
    Concurrent,
}

impl MeterError {
    /// Returns the key of the configuration that is wrong.
    pub(in crate::policy) const fn key(self) -> &'static str {
        match self {
            Self::NoRate => "rate",
            Self::NoBurst | Self::Endless => "burst",
            Self::PerDay => "per-day",
            Self::Concurrent => "concurrent",
        }
    }
}

/// A bucket's number as it is on disk.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Default)]
pub struct StoredBucket {
    /// Day since 1970; zero for a rate.
    pub day: i64,
    /// Calls of that day, or the time at which the bucket is full again, in nanoseconds since 1970.
    pub state: i64,
}

impl StoredBucket {
    /// Returns the bucket's number. A row that this program cannot have written counts as used up.
    pub(in crate::policy) fn number(self) -> u64 {
        let (day, state) = (u64::try_from(self.day), u64::try_from(self.state));
        match (day, state) {
            (Ok(0), Ok(state)) => state,
            (Ok(day), Ok(state)) if day <= u64::from(u32::MAX) => (day << DAY_SHIFT) | state.min(u64::from(u32::MAX)),
            _ => u64::MAX >> 1,
        }
    }
}

/// Returns the day of UTC, counted from 1970, that contains this time. Quotas of earlier days are
/// over.
pub fn day_of(now: Duration) -> i64 {
    i64::try_from(now.as_secs() / 86_400).unwrap_or(i64::MAX)
}

/// The answer of [`Meter::admit`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::policy) enum MeterAnswer {
    Admit,
    /// Refused. The same call is admitted after this time, if no other call comes first.
    RetryAfter(Duration),
}

impl Meter {
    /// Makes the meter of a rate with a burst.
    pub(in crate::policy) fn rate(rate: Rate, burst: u32) -> Result<Self, MeterError> {
        if rate.count == 0 {
            return Err(MeterError::NoRate);
        }
        if burst == 0 {
            return Err(MeterError::NoBurst);
        }
        let interval = rate.per.nanos().div_ceil(u64::from(rate.count));
        match interval.checked_mul(u64::from(burst)) {
            Some(capacity) if capacity <= MAX_FILL => Ok(Self::Rate { interval, capacity, burst }),
            Some(_) | None => Err(MeterError::Endless),
        }
    }

    /// Makes the meter of a daily quota.
    pub(in crate::policy) const fn per_day(quota: u32) -> Result<Self, MeterError> {
        if quota == 0 || quota > MAX_CALLS { Err(MeterError::PerDay) } else { Ok(Self::Day { quota }) }
    }

    /// Makes the meter of a number of slots for calls at once.
    pub(in crate::policy) const fn concurrent(places: u32) -> Result<Self, MeterError> {
        if places == 0 || places > MAX_CALLS { Err(MeterError::Concurrent) } else { Ok(Self::Concurrent { places }) }
    }

    pub(in crate::policy) const fn is_concurrent(self) -> bool {
        matches!(self, Self::Concurrent { .. })
    }

    /// Returns the amount that one call adds.
    pub(in crate::policy) const fn unit(self) -> u64 {
        match self {
            Self::Rate { interval, .. } => interval,
            Self::Day { .. } | Self::Concurrent { .. } => 1,
        }
    }

    /// Returns the number of a full bucket at this time. Any lower number means full too.
    pub(in crate::policy) const fn full(self, now: u64) -> u64 {
        match self {
            Self::Rate { .. } => now,
            Self::Day { .. } => (now / DAY) << DAY_SHIFT,
            Self::Concurrent { .. } => 0,
        }
    }

    /// Converts the number of a bucket of the same limit with another rate or burst: the same
    /// number of calls is used up, at most all of this bucket's.
    pub(in crate::policy) fn carried(self, from: Self, state: u64, now: u64) -> u64 {
        match (from, self) {
            (Self::Rate { interval: old, .. }, Self::Rate { interval, burst, .. }) => {
                let used = state.saturating_sub(now).div_ceil(old).min(u64::from(burst));
                now.saturating_add(interval.saturating_mul(used))
            }
            _ => state,
        }
    }

    /// Returns the time from which a bucket with this number is full.
    pub(in crate::policy) const fn full_at(self, state: u64) -> u64 {
        match self {
            Self::Rate { .. } => state,
            Self::Day { .. } => end_of_day(state),
            Self::Concurrent { .. } => u64::MAX,
        }
    }

    /// Adds a number of calls to one bucket, all or none: returns its number after them, and
    /// whether they are admitted.
    ///
    /// A batch larger than the burst would never fit. It is admitted once at most one call is
    /// missing from the burst, because the message that carries the batch may have been charged for
    /// one. The excess is owed: it delays the next call.
    pub(in crate::policy) fn admit(self, calls: u32, state: u64, now: u64) -> (u64, MeterAnswer) {
        let before = state.max(self.full(now));
        let after = |calls: u32| before.saturating_add(self.unit().saturating_mul(u64::from(calls)));
        let needed = match self {
            Self::Rate { burst, .. } => calls.min(burst.saturating_sub(1).max(1)),
            Self::Day { .. } | Self::Concurrent { .. } => calls,
        };
        match self.judge(after(needed), now) {
            MeterAnswer::Admit => (after(calls), MeterAnswer::Admit),
            refused @ MeterAnswer::RetryAfter(_) => (state, refused),
        }
    }

    /// Returns whether a bucket may have this number after a call.
    pub(in crate::policy) fn judge(self, after: u64, now: u64) -> MeterAnswer {
        let wait = match self {
            Self::Rate { capacity, .. } => Duration::from_nanos(after.saturating_sub(capacity).saturating_sub(now)),
            // A thread that read its clock before midnight draws from the day that others have
            // begun.
            Self::Day { quota } if after & u64::from(u32::MAX) > u64::from(quota) => {
                Duration::from_nanos(end_of_day(after).saturating_sub(now).max(1))
            }
            Self::Concurrent { places } if after > u64::from(places) => WHEN_ONE_ENDS,
            Self::Day { .. } | Self::Concurrent { .. } => Duration::ZERO,
        };
        if wait.is_zero() { MeterAnswer::Admit } else { MeterAnswer::RetryAfter(wait) }
    }

    /// Returns a bucket's number in the form on disk.
    pub(in crate::policy) fn stored(self, state: u64) -> StoredBucket {
        let (day, state) = match self {
            Self::Day { .. } => (state >> DAY_SHIFT, state & u64::from(u32::MAX)),
            Self::Rate { .. } | Self::Concurrent { .. } => (0, state),
        };
        StoredBucket { day: i64::try_from(day).unwrap_or(i64::MAX), state: i64::try_from(state).unwrap_or(i64::MAX) }
    }

    /// Returns the bound for the disk if `after` is in use: as if a few further calls had been
    /// made, as far as the limit has any.
    pub(in crate::policy) fn ahead(self, after: u64, now: u64) -> u64 {
        let full = self.full(now).max(match self {
            // The day of the number, which may have begun for others already.
            Self::Day { .. } => (after >> DAY_SHIFT) << DAY_SHIFT,
            Self::Rate { .. } | Self::Concurrent { .. } => 0,
        });
        let most = match self {
            Self::Rate { capacity, .. } => full.saturating_add(capacity),
            Self::Day { quota } => full.saturating_add(u64::from(quota)),
            Self::Concurrent { .. } => after,
        };
        after.saturating_add(self.further()).min(most).max(after)
    }

    /// Returns the amount that the further calls of a lease add.
    fn further(self) -> u64 {
        let calls = match self {
            Self::Rate { burst, .. } => burst,
            Self::Day { quota } => quota,
            Self::Concurrent { .. } => 0,
        };
        let calls = (calls / AHEAD_OF).clamp(1, MAX_AHEAD) - 1;
        self.unit().saturating_mul(u64::from(calls))
    }
}

/// Returns the end of the day in a daily quota's number, in nanoseconds since 1970.
const fn end_of_day(state: u64) -> u64 {
    (state >> DAY_SHIFT).saturating_add(1).saturating_mul(DAY)
}
