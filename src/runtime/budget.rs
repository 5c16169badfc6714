//! How many bytes of messages the process holds: above the limit no new call is taken.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use bytes::Bytes;

/// Smaller messages are bounded by the number of calls and are not worth counting.
const COUNTED_FROM: usize = 16 * 1024;

/// Bytes in all large messages that are alive.
#[derive(Debug)]
pub(crate) struct Budget {
    used: AtomicUsize,
    limit: usize,
}

struct Counted {
    bytes: Bytes,
    budget: Arc<Budget>,
}

impl AsRef<[u8]> for Counted {
    fn as_ref(&self) -> &[u8] {
        &self.bytes
    }
}

impl Drop for Counted {
    fn drop(&mut self) {
        self.budget.used.fetch_sub(self.bytes.len(), Ordering::Relaxed);
    }
}

impl Budget {
    /// A budget of so many bytes.
    pub(crate) fn new(limit: usize) -> Arc<Self> {
        Arc::new(Self { used: AtomicUsize::new(0), limit })
    }

    /// The same bytes, counted until the last slice of them is dropped.
    pub(crate) fn count(self: &Arc<Self>, bytes: Bytes) -> Bytes {
        if bytes.len() < COUNTED_FROM {
            return bytes;
        }
        self.used.fetch_add(bytes.len(), Ordering::Relaxed);
        Bytes::from_owner(Counted { bytes, budget: Arc::clone(self) })
    }

    pub(crate) fn is_used_up(&self) -> bool {
        self.used.load(Ordering::Relaxed) > self.limit
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_count_as_long_as_a_slice_of_them_lives() {
        let budget = Budget::new(20_000);
        let first = budget.count(Bytes::from(vec![0; 16 * 1024]));
        let second = budget.count(Bytes::from(vec![0; 16 * 1024]));
        assert!(budget.is_used_up());
        let slice = first.slice(1..2);
        drop((first, second));
        assert!(!budget.is_used_up());
        assert_eq!(budget.used.load(Ordering::Relaxed), 16 * 1024);
        drop(slice);
        assert_eq!(budget.used.load(Ordering::Relaxed), 0);
    }
}
