//! A semaphore whose number of slots can change while slots are held.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use parking_lot::Mutex;
use tokio::sync::Semaphore;

/// A set of slots that are taken one at a time. Clones share the slots.
#[derive(Clone, Debug)]
pub struct SlotPool(Arc<SlotPoolState>);

/// The state that clones and slots share.
#[derive(Debug)]
struct SlotPoolState {
    free: Semaphore,
    /// Held slots that no longer exist since the number was reduced; they vanish when released.
    owed: AtomicUsize,
    /// The current number of slots. The lock serializes changes and guards nothing else.
    number: Mutex<usize>,
}

/// A slot; released on drop.
#[derive(Debug)]
pub struct PoolSlot(Arc<SlotPoolState>);

impl Drop for PoolSlot {
    fn drop(&mut self) {
        let owed = &self.0.owed;
        if owed.fetch_update(Ordering::AcqRel, Ordering::Relaxed, |owed| owed.checked_sub(1)).is_err() {
            self.0.free.add_permits(1);
        }
    }
}

impl SlotPool {
    pub fn new(number: usize) -> Self {
        let number = number.min(Semaphore::MAX_PERMITS);
        Self(Arc::new(SlotPoolState {
            free: Semaphore::new(number),
            owed: AtomicUsize::new(0),
            number: Mutex::new(number),
        }))
    }

    /// Takes a slot if one is free.
    pub fn try_take(&self) -> Option<PoolSlot> {
        self.0.free.try_acquire().ok()?.forget();
        Some(PoolSlot(Arc::clone(&self.0)))
    }

    /// Waits for a slot, in the order of arrival.
    pub async fn take(&self) -> PoolSlot {
        match self.0.free.acquire().await {
            Ok(permit) => permit.forget(),
            // The semaphore is never closed.
            Err(_) => std::future::pending().await,
        }
        PoolSlot(Arc::clone(&self.0))
    }

    #[cfg(test)]
    pub fn free(&self) -> usize {
        self.0.free.available_permits()
    }

    /// Changes the number of slots. Held slots stay with their holders; those beyond a smaller
    /// number are not given out again.
    pub fn set_number(&self, wanted: usize) {
        let wanted = wanted.min(Semaphore::MAX_PERMITS);
        let mut number = self.0.number.lock();
        let before = std::mem::replace(&mut *number, wanted);
        if wanted >= before {
            let more = wanted - before;
            // New slots first pay off the deficit of an earlier reduction. `fetch_update` cannot
            // fail here.
            let owed = self.0.owed.fetch_update(Ordering::AcqRel, Ordering::Relaxed, |o| Some(o.saturating_sub(more)));
            self.0.free.add_permits(more.saturating_sub(owed.unwrap_or_default()));
        } else {
            let taken = self.0.free.forget_permits(before - wanted);
            self.0.owed.fetch_add(before - wanted - taken, Ordering::AcqRel);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_smaller_number_holds_once_places_are_given_back() {
        let slots = SlotPool::new(3);
        let mut held: Vec<PoolSlot> = (0..3).filter_map(|_| slots.try_take()).collect();
        assert!(held.len() == 3 && slots.try_take().is_none());
        slots.set_number(1);
        held.truncate(1);
        assert!(slots.try_take().is_none(), "one is held, and one is all there is");
        held.clear();
        assert_eq!(slots.free(), 1);
        let held = slots.try_take();
        slots.set_number(0);
        slots.set_number(2);
        assert_eq!(slots.free(), 1, "two, of which one is held");
        drop(held);
        assert_eq!(slots.free(), 2);
    }
}
