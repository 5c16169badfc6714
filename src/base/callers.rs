//! Numbers of callers, and counts by caller that cost a call neither a lock nor an allocation.
//!
//! The first [`COUNTED`] callers of a process have a number each; all later ones share a count, so
//! they have one share together.

use std::sync::LazyLock;
use std::sync::atomic::AtomicUsize;

use parking_lot::Mutex;

use crate::policy::LOCAL;

/// Callers that are counted apart.
const COUNTED: usize = 128;

/// The names of the callers that are counted apart; a name's place is its number.
static NAMES: LazyLock<Mutex<Vec<Box<str>>>> = LazyLock::new(|| Mutex::new(vec![Box::from(LOCAL)]));

/// The number of a caller, the same for as long as the process lives.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct CallerNumber(usize);

impl CallerNumber {
    /// The number of our own user.
    pub(crate) const LOCAL: Self = Self(0);

    /// The number of the caller of that name. Takes a lock.
    pub(crate) fn of(caller: &str) -> Self {
        let mut names = NAMES.lock();
        let known = names.iter().position(|name| **name == *caller);
        Self(known.unwrap_or_else(|| {
            if names.len() < COUNTED {
                names.push(Box::from(caller));
                names.len() - 1
            } else {
                COUNTED
            }
        }))
    }
}

impl CallerNumber {
    /// The place of the caller's count in [`CallerCounts::all`]; `None` if it has no count of its own.
    pub(crate) fn own_place(self) -> Option<usize> {
        (self.0 < COUNTED).then_some(self.0)
    }
}

/// One count for each caller.
#[derive(Debug)]
pub(crate) struct CallerCounts {
    counts: [AtomicUsize; COUNTED],
    /// The count of all callers that are not counted apart.
    others: AtomicUsize,
}

impl Default for CallerCounts {
    fn default() -> Self {
        Self { counts: [const { AtomicUsize::new(0) }; COUNTED], others: AtomicUsize::new(0) }
    }
}

impl CallerCounts {
    pub(crate) fn of(&self, caller: CallerNumber) -> &AtomicUsize {
        self.counts.get(caller.0).unwrap_or(&self.others)
    }

    /// The counts in the order of the callers' numbers; the last one is that of all later callers.
    pub(crate) fn all(&self) -> impl Iterator<Item = &AtomicUsize> {
        self.counts.iter().chain([&self.others])
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_caller_keeps_its_number_and_later_ones_share_a_count() {
        assert_eq!(CallerNumber::of(LOCAL), CallerNumber::LOCAL);
        let counts = CallerCounts::default();
        let [ci, dev] = ["numbered-ci", "numbered-dev"].map(CallerNumber::of);
        assert!(ci == CallerNumber::of("numbered-ci") && ci != dev);
        assert!(!std::ptr::eq(counts.of(ci), counts.of(dev)));
        let beyond = counts.of(CallerNumber(COUNTED));
        assert!(std::ptr::eq(beyond, counts.of(CallerNumber(COUNTED + 1))) && counts.all().count() == COUNTED + 1);
    }
}
