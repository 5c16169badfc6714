//! A bounded queue that only counts its waiters; each waits on its own.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

/// Number of waiters and its limit.
#[derive(Clone, Debug)]
pub(crate) struct Queue {
    waiting: Arc<AtomicUsize>,
    limit: Arc<AtomicUsize>,
}

impl Queue {
    pub(crate) fn new(limit: usize) -> Self {
        Self { waiting: Arc::default(), limit: Arc::new(AtomicUsize::new(limit)) }
    }

    /// Waiters beyond a lower limit stay.
    pub(crate) fn set_limit(&self, limit: usize) {
        self.limit.store(limit, Ordering::Relaxed);
    }

    pub(crate) fn len(&self) -> usize {
        self.waiting.load(Ordering::Relaxed)
    }

    pub(crate) fn is_full(&self) -> bool {
        self.len() >= self.limit.load(Ordering::Relaxed)
    }

    /// Adds a waiter for as long as the value lives; `None` when the queue is full.
    pub(crate) fn enter(&self) -> Option<Queued> {
        // Dropping the value subtracts again, also when the queue is full.
        let before = self.waiting.fetch_add(1, Ordering::Relaxed);
        let queued = Queued(Arc::clone(&self.waiting));
        (before < self.limit.load(Ordering::Relaxed)).then_some(queued)
    }
}

/// A place in the queue.
#[derive(Debug)]
pub(crate) struct Queued(Arc<AtomicUsize>);

impl Drop for Queued {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_full_queue_takes_nobody_until_somebody_leaves() {
        let queue = Queue::new(2);
        let places = [queue.enter(), queue.enter()];
        assert!(places.iter().all(Option::is_some));
        assert!(queue.enter().is_none());
        assert!(queue.enter().is_none());
        drop(places);
        assert!(queue.enter().is_some());
    }
}
