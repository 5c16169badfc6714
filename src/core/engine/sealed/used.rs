//! Remembers the request states that were used in this process, so that each continues a call once.

use std::collections::{HashMap, VecDeque};
use std::time::Duration;

use foldhash::fast::RandomState;

use crate::engine::sealed::state::{StateId, StateUse};

/// Most states that are remembered at a time. While it is reached, no further state is accepted.
pub const CAPACITY: usize = 65_536;

/// The states that were used and have not expired.
#[derive(Debug, Default)]
pub struct UsedStateTable {
    /// Known states; false for a state whose use was taken back.
    seen: HashMap<StateId, bool, RandomState>,
    /// The known states in the order of their first use.
    order: VecDeque<StateUse>,
}

impl UsedStateTable {
    /// Marks a state as used, and returns true if it was unused. Forgets expired states first.
    /// `now` is the time since 1970.
    ///
    /// The caller must not continue a call if this returns false: a reused state would let one
    /// permit allow any number of calls.
    pub fn first(&mut self, state: StateUse, now: Duration) -> bool {
        while let Some(old) = self.order.front().copied()
            && old.until <= now.as_secs()
        {
            self.order.pop_front();
            self.seen.remove(&old.id);
        }
        if let Some(is_used) = self.seen.get_mut(&state.id) {
            return !std::mem::replace(is_used, true);
        }
        if self.order.len() >= CAPACITY {
            return false;
        }
        self.seen.insert(state.id, true);
        self.order.push_back(state);
        true
    }

    /// Marks a state as unused again, because its use could not be stored.
    pub fn give_back(&mut self, id: &StateId) {
        if let Some(is_used) = self.seen.get_mut(id) {
            *is_used = false;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::engine::sealed::state::LIFE;

    const NOW: Duration = Duration::from_secs(5);

    fn of(id: StateId, now: Duration) -> StateUse {
        StateUse { id, until: (now + LIFE).as_secs() }
    }

    #[test]
    fn a_state_is_fresh_once() {
        let mut used = UsedStateTable::default();
        assert!(used.first(of([1; 12], NOW), NOW));
        assert!(!used.first(of([1; 12], NOW), NOW));
        assert!(used.first(of([2; 12], NOW), NOW));
        assert!(used.first(of([3; 12], NOW + LIFE), NOW + LIFE));
        assert_eq!(used.seen.len(), 1, "what cannot be opened any more is forgotten");
    }

    #[test]
    fn a_use_that_was_given_back_can_be_made_once_more() {
        let mut used = UsedStateTable::default();
        assert!(used.first(of([1; 12], NOW), NOW));
        used.give_back(&[1; 12]);
        assert!(used.first(of([1; 12], NOW), NOW));
        assert!(!used.first(of([1; 12], NOW), NOW));
        for _ in 0..100 {
            used.give_back(&[1; 12]);
            assert!(used.first(of([1; 12], NOW), NOW));
        }
        assert_eq!((used.seen.len(), used.order.len()), (1, 1), "a disk that takes no writes uses no room up");
    }

    #[test]
    fn with_no_room_to_remember_nothing_is_fresh() {
        let mut used = UsedStateTable::default();
        for n in 0..CAPACITY {
            let mut id = [0; 12];
            id[..8].copy_from_slice(&n.to_be_bytes());
            assert!(used.first(of(id, NOW), NOW));
        }
        assert!(!used.first(of([255; 12], NOW), NOW));
        assert!(used.first(of([255; 12], NOW + LIFE), NOW + LIFE));
    }
}
