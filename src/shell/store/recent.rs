//! The last decisions of the policy in memory, for the console. The audit log has all of them.

use std::borrow::Cow;
use std::sync::atomic::{AtomicU64, Ordering};

use parking_lot::Mutex;

use crate::policy::DecisionRecord;

/// Capacity of the ring.
const KEPT: usize = 200;

/// A decision as the console shows it, without arguments.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct DecisionView {
    /// Time of the decision, in seconds since 1970.
    pub at: u64,
    /// `allow`, `ask`, `deny` or `limit`.
    pub decision: &'static str,
    pub caller: String,
    pub kind: &'static str,
    /// Canonical name of the item.
    pub item: String,
    pub rule: String,
    pub why: Cow<'static, str>,
}

/// A ring buffer of the last decisions.
#[derive(Debug, Default)]
pub struct RecentDecisions {
    /// Entries are overwritten in place, so a decision allocates nothing once the ring is full.
    ring: Mutex<Vec<DecisionView>>,
    /// Number of decisions since the start.
    count: AtomicU64,
}

impl RecentDecisions {
    /// Adds a decision, overwriting the oldest one if the ring is full. `now` is in seconds since
    /// 1970.
    pub fn push(&self, record: &DecisionRecord<'_>, now: u64) {
        let mut ring = self.ring.lock();
        let count = self.count.fetch_add(1, Ordering::Relaxed);
        let at = usize::try_from(count % KEPT as u64).unwrap_or(0);
        if ring.len() <= at {
            ring.push(DecisionView::default());
        }
        let Some(place) = ring.get_mut(at) else { return };
        place.at = now;
        let DecisionRecord { action, decision, .. } = record;
        place.decision = decision.into_str();
        place.kind = action.kind.into_str();
        place.why = record.why();
        for (to, from) in [
            (&mut place.caller, action.caller.name()),
            (&mut place.item, &action.listed),
            (&mut place.rule, decision.rule()),
        ] {
            to.clear();
            to.push_str(from);
        }
    }

    /// Returns the number of decisions since the start.
    pub fn count(&self) -> u64 {
        self.count.load(Ordering::Relaxed)
    }

    /// Returns the last decisions, the latest first.
    pub fn last(&self, at_most: usize) -> Vec<DecisionView> {
        let ring = self.ring.lock();
        let next = usize::try_from(self.count() % KEPT as u64).unwrap_or(0);
        let (newer, older) = ring.split_at_checked(next).unwrap_or((&ring, &[]));
        newer.iter().rev().chain(older.iter().rev()).take(at_most).cloned().collect()
    }
}
