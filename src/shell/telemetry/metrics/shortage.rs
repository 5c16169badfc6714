//! Shortages that pass by themselves: the process lacks file descriptors or connection slots. Keeps
//! when each occurred last.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// How long a shortage is reported after it last occurred.
const LASTS: Duration = Duration::from_secs(10);

/// A resource that the process can run out of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Shortage {
    /// File descriptors for connections and processes.
    Descriptors,
    /// Slots for connections of clients.
    Places,
}

/// The last occurrence of each shortage, in milliseconds of uptime plus one; 0 for never.
#[derive(Debug, Default)]
pub(super) struct Shortages([AtomicU64; 2]);

impl Shortages {
    /// Records that a shortage occurs now.
    pub(super) fn met(&self, shortage: Shortage, now: Duration) {
        if let Some(last) = self.0.get(shortage as usize) {
            last.store(millis(now).saturating_add(1), Ordering::Relaxed);
        }
    }

    /// Returns whether the shortage occurred within the last [`LASTS`].
    pub(super) fn is_on(&self, shortage: Shortage, now: Duration) -> bool {
        let last = self.0.get(shortage as usize).map_or(0, |last| last.load(Ordering::Relaxed));
        last.checked_sub(1).is_some_and(|last| millis(now).saturating_sub(last) < millis(LASTS))
    }
}

fn millis(time: Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_shortage_passes_some_seconds_after_it_was_met() {
        let shortages = Shortages::default();
        let at = Duration::from_secs;
        assert!(!shortages.is_on(Shortage::Descriptors, at(0)), "never met");
        shortages.met(Shortage::Descriptors, at(0));
        for (second, is_on) in [(0, true), (9, true), (10, false), (1000, false)] {
            assert_eq!(shortages.is_on(Shortage::Descriptors, at(second)), is_on, "after {second} s");
            assert!(!shortages.is_on(Shortage::Places, at(second)), "another one");
        }
        shortages.met(Shortage::Descriptors, at(1000));
        assert!(shortages.is_on(Shortage::Descriptors, at(1001)));
    }
}
