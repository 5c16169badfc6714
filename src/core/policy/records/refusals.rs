//! Hidden refusals: calls of items that their caller cannot see.
//!
//! The audit log gets one record of the first such call, then one summary a minute for each caller,
//! so a caller that tries names as fast as it can costs the log two lines a minute. A minute
//! without such a call ends the counting, and the next call is recorded by itself again.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use crate::policy::caller::Caller;
/// Time between two summaries of a caller.
pub const EVERY: Duration = Duration::from_secs(60);
/// Most callers that are counted one by one; all others are counted together.
const MAX_CALLERS: usize = 1024;
/// Most items that a summary names.
const MAX_ITEMS: usize = 8;

/// The refused calls of one caller since its last line in the log.
#[derive(Debug)]
struct CallerTally {
    /// The time at which the next summary is due.
    due: Duration,
    calls: u64,
    items: Vec<Arc<str>>,
    /// True if there were more items than are named.
    others: bool,
}

/// The content of a summary.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RefusalSummary {
    /// The caller; `None` for all callers that are not counted one by one.
    pub caller: Option<Caller>,
    pub calls: u64,
    /// Canonical names of the items, in the order of their first call.
    pub items: Vec<Arc<str>>,
    /// True if there were more items than are named.
    pub others: bool,
}

/// The counts of refused calls by caller. Times are passed in, as time since any fixed moment.
#[derive(Debug, Default)]
pub struct RefusalCounter {
    callers: HashMap<Option<Caller>, CallerTally>,
}

impl RefusalCounter {
    /// Counts a refused call. Returns whether it gets a record of its own.
    pub fn refused(&mut self, caller: &Caller, item: &Arc<str>, now: Duration) -> bool {
        let caller = Some(caller.clone());
        let is_new = !self.callers.contains_key(&caller);
        let fits = !is_new || self.callers.len() < MAX_CALLERS;
        let empty = || CallerTally { due: now + EVERY, calls: 0, items: Vec::new(), others: false };
        let tally = self.callers.entry(caller.filter(|_| fits)).or_insert_with(empty);
        if is_new && fits {
            return true;
        }
        tally.calls = tally.calls.saturating_add(1);
        if !tally.items.contains(item) {
            if tally.items.len() < MAX_ITEMS {
                tally.items.push(Arc::clone(item));
            } else {
                tally.others = true;
            }
        }
        false
    }

    /// Returns when the next summary is due.
    pub fn next(&self) -> Option<Duration> {
        self.callers.values().map(|tally| tally.due).min()
    }

    /// Removes and returns the summaries that are due, and forgets callers without calls since
    /// their last line.
    pub fn due(&mut self, now: Duration) -> Vec<RefusalSummary> {
        let mut summaries = Vec::new();
        self.callers.retain(|caller, tally| {
            if tally.due > now {
                return true;
            }
            if tally.calls == 0 {
                return false;
            }
            let CallerTally { calls, items, others, .. } =
                std::mem::replace(tally, CallerTally { due: now + EVERY, calls: 0, items: Vec::new(), others: false });
            summaries.push(RefusalSummary { caller: caller.clone(), calls, items, others });
            true
        });
        summaries.sort_by(|a, b| a.caller.cmp(&b.caller));
        summaries
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn s(seconds: u64) -> Duration {
        Duration::from_secs(seconds)
    }

    #[test]
    fn the_first_is_recorded_and_the_rest_summed_up_each_minute() {
        let [ada, bob] = ["ada", "bob"].map(Caller::named);
        let [x, y] = ["fx__x", "fx__y"].map(Arc::<str>::from);
        let mut refusals = RefusalCounter::default();
        assert!(refusals.refused(&ada, &x, s(0)));
        assert!(!refusals.refused(&ada, &x, s(1)));
        assert!(refusals.refused(&bob, &x, s(30)), "each caller has its own");
        assert!(!refusals.refused(&ada, &y, s(59)));
        assert!(refusals.due(s(59)).is_empty());
        assert_eq!(refusals.next(), Some(s(60)));
        let summary = |calls, items: &[&Arc<str>]| RefusalSummary {
            caller: Some(ada.clone()),
            calls,
            items: items.iter().map(|item| Arc::clone(item)).collect(),
            others: false,
        };
        assert_eq!(refusals.due(s(60)), [summary(2, &[&x, &y])]);
        assert!(!refusals.refused(&ada, &y, s(61)), "still a summary");
        assert_eq!(refusals.due(s(120)), [summary(1, &[&y])], "bob had one record and nothing to add");
        assert!(refusals.due(s(180)).is_empty());
        assert_eq!(refusals.next(), None);
        assert!(refusals.refused(&ada, &y, s(181)), "after a quiet minute it is recorded again");
    }

    #[test]
    fn neither_callers_nor_items_take_more_than_their_room() {
        let mut refusals = RefusalCounter::default();
        let item = Arc::<str>::from("i");
        for n in 0..2 * MAX_CALLERS {
            let own = refusals.refused(&Caller::named(&format!("c{n}")), &item, s(0));
            assert_eq!(own, n < MAX_CALLERS, "{n}");
        }
        for n in 0..3 * MAX_ITEMS {
            refusals.refused(&Caller::named("c0"), &Arc::from(format!("i{n}")), s(1));
        }
        assert_eq!(refusals.callers.len(), MAX_CALLERS + 1);
        let summaries = refusals.due(s(60));
        assert_eq!(summaries.len(), 2);
        assert_eq!((&summaries[0].caller, summaries[0].calls), (&None, MAX_CALLERS as u64));
        assert_eq!((summaries[1].items.len(), summaries[1].calls), (MAX_ITEMS, 3 * MAX_ITEMS as u64));
        assert!(summaries[1].others);
    }
}
