//! Quotas of callers: the most connections, calls and streams of one caller at once. The local user
//! has no quota, only the global limits, which it shares with other callers (`base::fair_slots`,
//! `serve::front`).

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use foldhash::fast::RandomState;
use parking_lot::Mutex;

use crate::policy::Caller;

/// The kind of resource that a quota counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum QuotaKind {
    Connection,
    Call,
    Stream,
}

/// The most of each resource that one caller may hold.
#[derive(Clone, Copy, Debug)]
pub struct QuotaLimits {
    pub connections: usize,
    pub calls: usize,
    pub streams: usize,
}

/// The quotas, and the resources that each caller holds. The table is bounded by the number of
/// configured callers.
#[derive(Debug)]
pub struct Quota {
    connections: AtomicUsize,
    calls: AtomicUsize,
    streams: AtomicUsize,
    held: Mutex<HashMap<Caller, Arc<CallerUsage>, RandomState>>,
}

/// The number of each resource that one caller holds.
#[derive(Debug, Default)]
struct CallerUsage {
    connections: AtomicUsize,
    calls: AtomicUsize,
    streams: AtomicUsize,
}

impl CallerUsage {
    fn count(&self, good: QuotaKind) -> &AtomicUsize {
        match good {
            QuotaKind::Connection => &self.connections,
            QuotaKind::Call => &self.calls,
            QuotaKind::Stream => &self.streams,
        }
    }
}

/// A slot held by one caller; released on drop. `None` for the local user, which has no quota.
#[derive(Debug)]
pub struct QuotaSlot(Option<(Arc<CallerUsage>, QuotaKind)>);

impl Drop for QuotaSlot {
    fn drop(&mut self) {
        if let Some((held, good)) = &self.0 {
            held.count(*good).fetch_sub(1, Ordering::Relaxed);
        }
    }
}

impl Quota {
    pub fn new(limits: QuotaLimits) -> Self {
        let QuotaLimits { connections, calls, streams } = limits;
        Self {
            connections: AtomicUsize::new(connections),
            calls: AtomicUsize::new(calls),
            streams: AtomicUsize::new(streams),
            held: Mutex::default(),
        }
    }

    /// Puts new quotas in force. A caller keeps what it holds beyond a smaller one.
    pub fn set_limits(&self, limits: QuotaLimits) {
        self.connections.store(limits.connections, Ordering::Relaxed);
        self.calls.store(limits.calls, Ordering::Relaxed);
        self.streams.store(limits.streams, Ordering::Relaxed);
    }

    /// Takes a slot for a caller; `None` if its quota is used up.
    pub fn take(&self, caller: &Caller, good: QuotaKind) -> Option<QuotaSlot> {
        if caller.is_local() {
            return Some(QuotaSlot(None));
        }
        let limit = match good {
            QuotaKind::Connection => &self.connections,
            QuotaKind::Call => &self.calls,
            QuotaKind::Stream => &self.streams,
        };
        let limit = limit.load(Ordering::Relaxed);
        let held = {
            let mut table = self.held.lock();
            Arc::clone(table.entry(caller.clone()).or_default())
        };
        let place = QuotaSlot(Some((Arc::clone(&held), good)));
        // The slot subtracts what this adds, also if it is refused.
        (held.count(good).fetch_add(1, Ordering::Relaxed) < limit).then_some(place)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_caller_gets_its_share_and_no_more() {
        let quota = Quota::new(QuotaLimits { connections: 1, calls: 2, streams: 1 });
        let [ci, dev] = ["ci", "dev"].map(Caller::named);
        let first = quota.take(&ci, QuotaKind::Call);
        let second = quota.take(&ci, QuotaKind::Call);
        assert!(first.is_some() && second.is_some());
        assert!(quota.take(&ci, QuotaKind::Call).is_none());
        assert!(quota.take(&ci, QuotaKind::Stream).is_some());
        assert!(quota.take(&dev, QuotaKind::Call).is_some());
        drop(first);
        assert!(quota.take(&ci, QuotaKind::Call).is_some());
        quota.set_limits(QuotaLimits { connections: 1, calls: 1, streams: 1 });
        assert!(quota.take(&ci, QuotaKind::Call).is_none(), "one is held");
        drop(second);
        assert!(quota.take(&ci, QuotaKind::Call).is_some());
    }

    #[test]
    fn the_local_user_has_no_share() {
        let quota = Quota::new(QuotaLimits { connections: 0, calls: 0, streams: 0 });
        assert!(quota.take(Caller::local(), QuotaKind::Call).is_some());
    }
}
