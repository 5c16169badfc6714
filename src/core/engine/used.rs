//! Used request states: each continues a call once.

use std::collections::{HashSet, VecDeque};
use std::time::Duration;

use foldhash::fast::RandomState;

use crate::engine::state::{LIFE, StateId};

/// States that are remembered. With more than these in the time that a state lives, none counts as fresh.
const CAPACITY: usize = 65_536;

/// Remembers states for as long as they could be opened.
#[derive(Debug, Default)]
pub struct Used {
    seen: HashSet<StateId, RandomState>,
    order: VecDeque<(Duration, StateId)>,
}

impl Used {
    /// Whether a state is used for the first time. `now` is the time since the process started.
    ///
    /// A reused state proves no permit: otherwise one permit would allow any number of calls.
    pub fn first(&mut self, id: StateId, now: Duration) -> bool {
        while let Some((until, old)) = self.order.front().copied()
            && until <= now
        {
            self.order.pop_front();
            self.seen.remove(&old);
        }
        if self.order.len() >= CAPACITY || !self.seen.insert(id) {
            return false;
        }
        self.order.push_back((now.saturating_add(LIFE), id));
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: Duration = Duration::from_secs(5);

    #[test]
    fn a_state_is_fresh_once() {
        let mut used = Used::default();
        assert!(used.first([1; 12], NOW));
        assert!(!used.first([1; 12], NOW));
        assert!(used.first([2; 12], NOW));
        assert!(used.first([3; 12], NOW + LIFE));
        assert_eq!(used.seen.len(), 1, "what cannot be opened any more is forgotten");
    }

    #[test]
    fn with_no_room_to_remember_nothing_is_fresh() {
        let mut used = Used::default();
        for n in 0..CAPACITY {
            let mut id = [0; 12];
            id[..8].copy_from_slice(&n.to_be_bytes());
            assert!(used.first(id, NOW));
        }
        assert!(!used.first([255; 12], NOW));
        assert!(used.first([255; 12], NOW + LIFE));
    }
}
