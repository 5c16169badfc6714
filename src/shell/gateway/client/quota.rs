//! Caller quotas: connections, calls and streams of one caller at once. The local user has no
//! quota, only the global limits, which it shares with other callers (`base::fair_slots`,
//! `serve::front`).

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use foldhash::fast::RandomState;
use parking_lot::Mutex;

use crate::policy::Caller;

/// What is shared out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Good {
    Connection,
    Call,
    Stream,
}

/// The most of each that one caller may hold.
#[derive(Clone, Copy, Debug)]
pub struct QuotaLimits {
    pub connections: usize,
    pub calls: usize,
    pub streams: usize,
}

/// What every caller holds. The table is bounded by the configured callers.
#[derive(Debug)]
pub struct Quota {
    connections: AtomicUsize,
    calls: AtomicUsize,
    streams: AtomicUsize,
    held: Mutex<HashMap<Caller, Arc<Held>, RandomState>>,
}

#[derive(Debug, Default)]
struct Held {
    connections: AtomicUsize,
    calls: AtomicUsize,
    streams: AtomicUsize,
}

impl Held {
    fn count(&self, good: Good) -> &AtomicUsize {
        match good {
            Good::Connection => &self.connections,
            Good::Call => &self.calls,
            Good::Stream => &self.streams,
        }
    }
}

/// One of a caller's goods, given back on drop.
#[derive(Debug)]
pub struct Place(Option<(Arc<Held>, Good)>);

impl Drop for Place {
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

    /// Puts other shares in force. What a caller holds beyond a smaller one stays.
    pub fn set_limits(&self, limits: QuotaLimits) {
        self.connections.store(limits.connections, Ordering::Relaxed);
        self.calls.store(limits.calls, Ordering::Relaxed);
        self.streams.store(limits.streams, Ordering::Relaxed);
    }

    /// Takes one more for a caller; `None` when it holds its share already.
    pub fn take(&self, caller: &Caller, good: Good) -> Option<Place> {
        if caller.is_local() {
            return Some(Place(None));
        }
        let limit = match good {
            Good::Connection => &self.connections,
            Good::Call => &self.calls,
            Good::Stream => &self.streams,
        };
        let limit = limit.load(Ordering::Relaxed);
        let held = {
            let mut table = self.held.lock();
            Arc::clone(table.entry(caller.clone()).or_default())
        };
        let place = Place(Some((Arc::clone(&held), good)));
        // The place gives back what this adds, also when it is refused.
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
        let first = quota.take(&ci, Good::Call);
        let second = quota.take(&ci, Good::Call);
        assert!(first.is_some() && second.is_some());
        assert!(quota.take(&ci, Good::Call).is_none());
        assert!(quota.take(&ci, Good::Stream).is_some());
        assert!(quota.take(&dev, Good::Call).is_some());
        drop(first);
        assert!(quota.take(&ci, Good::Call).is_some());
        quota.set_limits(QuotaLimits { connections: 1, calls: 1, streams: 1 });
        assert!(quota.take(&ci, Good::Call).is_none(), "one is held");
        drop(second);
        assert!(quota.take(&ci, Good::Call).is_some());
    }

    #[test]
    fn the_local_user_has_no_share() {
        let quota = Quota::new(QuotaLimits { connections: 0, calls: 0, streams: 0 });
        assert!(quota.take(Caller::local(), Good::Call).is_some());
    }
}
