//! The last decisions, for the console. The audit log has all of them.

use std::sync::atomic::{AtomicU64, Ordering};

use parking_lot::Mutex;

use crate::policy::Record;

/// How many are kept.
const KEPT: usize = 200;

/// One decision of the policy.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct DecisionView {
    /// Unix seconds.
    pub at: u64,
    /// `allow`, `ask`, `deny` or `limit`.
    pub decision: &'static str,
    pub caller: String,
    pub kind: &'static str,
    /// The canonical name.
    pub item: String,
    pub rule: String,
    pub why: &'static str,
}

/// A ring of decisions: who, what and why, no arguments.
#[derive(Debug, Default)]
pub struct Recent {
    /// Places are filled again, so a decision costs no allocation once the ring is full.
    ring: Mutex<Vec<DecisionView>>,
    count: AtomicU64,
}

impl Recent {
    /// Keeps a decision; the oldest gives way.
    pub fn push(&self, record: &Record<'_>, now: u64) {
        let mut ring = self.ring.lock();
        let count = self.count.fetch_add(1, Ordering::Relaxed);
        let at = usize::try_from(count % KEPT as u64).unwrap_or(0);
        if ring.len() <= at {
            ring.push(DecisionView::default());
        }
        let Some(place) = ring.get_mut(at) else { return };
        place.at = now;
        let Record { action, decision, why } = record;
        place.decision = decision.into_str();
        place.kind = action.kind.into_str();
        place.why = *why;
        for (to, from) in [
            (&mut place.caller, action.caller.name()),
            (&mut place.item, &action.listed),
            (&mut place.rule, decision.rule()),
        ] {
            to.clear();
            to.push_str(from);
        }
    }

    /// How many there were since the start.
    pub fn count(&self) -> u64 {
        self.count.load(Ordering::Relaxed)
    }

    /// The last ones, the latest first.
    pub fn last(&self, at_most: usize) -> Vec<DecisionView> {
        let ring = self.ring.lock();
        let next = usize::try_from(self.count() % KEPT as u64).unwrap_or(0);
        let (newer, older) = ring.split_at_checked(next).unwrap_or((&ring, &[]));
        newer.iter().rev().chain(older.iter().rev()).take(at_most).cloned().collect()
    }
}
