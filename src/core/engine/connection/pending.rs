//! The table of requests in flight on one connection, indexed by our own ids. No id is used twice.

use slab::Slab;

use crate::wire::id::WireId;

/// Requests in flight, by [`WireId`].
#[derive(Debug)]
pub struct PendingRequests<T> {
    slots: Slab<(u64, T)>,
    /// Number of requests so far; gives each use of a slot another id.
    uses: u64,
}

/// The result of looking up the id of a response.
#[derive(Debug, PartialEq, Eq)]
pub enum PendingLookup<T> {
    /// The request, which is removed from the table.
    Found(T),
    /// An id of ours whose request has ended.
    Late,
    /// An id that was never given out.
    Unknown,
}

impl<T> PendingRequests<T> {
    pub fn new() -> Self {
        Self { slots: Slab::new(), uses: 0 }
    }

    /// Adds a request and returns its id; `None` when [`WireId::MAX_SLOTS`] requests are in flight.
    pub fn insert(&mut self, value: T) -> Option<WireId> {
        if self.slots.len() >= WireId::MAX_SLOTS {
            return None;
        }
        self.uses += 1;
        let slot = self.slots.insert((self.uses, value));
        Some(WireId::new(slot, self.uses))
    }

    /// Returns the [`WireId::number`] that the next request gets.
    pub fn next_number(&self) -> u64 {
        self.uses + 1
    }

    pub fn get_mut(&mut self, id: WireId) -> Option<&mut T> {
        let slot = id.slot();
        self.slots.get_mut(slot).filter(|(uses, _)| WireId::new(slot, *uses) == id).map(|(_, value)| value)
    }

    /// Removes the request with that id and returns it, or tells why there is none.
    pub fn take(&mut self, id: WireId) -> PendingLookup<T> {
        let slot = id.slot();
        match self.slots.get(slot) {
            Some((uses, _)) if WireId::new(slot, *uses) == id => PendingLookup::Found(self.slots.remove(slot).1),
            _ if id.0 >> 12 <= self.uses && id.0 >> 12 > 0 => PendingLookup::Late,
            _ => PendingLookup::Unknown,
        }
    }

    /// Returns the id of the first request that `test` accepts.
    pub fn find(&self, mut test: impl FnMut(&T) -> bool) -> Option<WireId> {
        self.slots.iter().find(|(_, (_, value))| test(value)).map(|(slot, (uses, _))| WireId::new(slot, *uses))
    }

    /// Returns the ids of all requests that `test` accepts.
    pub(crate) fn find_all(&self, mut test: impl FnMut(&T) -> bool) -> Vec<WireId> {
        let found = self.slots.iter().filter(|(_, (_, value))| test(value));
        found.map(|(slot, (uses, _))| WireId::new(slot, *uses)).collect()
    }

    /// Returns all requests in flight.
    pub fn iter_mut(&mut self) -> impl Iterator<Item = &mut T> {
        self.slots.iter_mut().map(|(_, (_, value))| value)
    }

    /// Removes all requests and returns them in the order of their slots.
    pub fn drain(&mut self) -> impl Iterator<Item = T> + '_ {
        self.slots.drain().map(|(_, value)| value)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_late_reply_never_reaches_the_slots_next_request() {
        let mut pending = PendingRequests::new();
        let first = pending.insert("first").unwrap();
        assert_eq!(pending.take(first), PendingLookup::Found("first"));
        let second = pending.insert("second").unwrap();
        assert_eq!(first.slot(), second.slot());
        assert_eq!(pending.take(first), PendingLookup::Late);
        assert_eq!(pending.take(WireId(u64::MAX >> 12)), PendingLookup::Unknown);
        assert_eq!(pending.take(second), PendingLookup::Found("second"));
        assert!(pending.slots.is_empty());
    }

    #[test]
    fn the_table_is_bounded() {
        let mut pending = PendingRequests::new();
        for n in 0..WireId::MAX_SLOTS {
            assert!(pending.insert(n).is_some());
        }
        assert!(pending.insert(0).is_none());
    }
}
