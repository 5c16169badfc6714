//! Reads the lists of an upstream over its connection.

use std::time::{Duration, Instant};

use super::{CallPort, Peer, PeerEvent, PeerState, RequestInFlight};
use crate::engine::fault::ProtocolFault;
use crate::engine::lists::DuePage;
use crate::wire::id::WireId;

impl<P: CallPort> Peer<P> {
    /// Returns the earliest deadline of the pages in flight.
    pub(super) fn list_deadline(&self) -> Option<Instant> {
        if !self.lists.are_read() {
            return None;
        }
        let mut earliest = None;
        self.pending.find(|waiting| {
            if let RequestInFlight::List(_, Some(until)) = waiting {
                earliest = Some(earliest.map_or(*until, |e: Instant| e.min(*until)));
            }
            false
        });
        earliest
    }

    /// Notes that a page of a list was not answered in time. Its answer is still taken; of other
    /// late requests for the same list it is not.
    pub(super) fn list_is_late(&mut self, id: WireId, now: Instant) {
        let Some(RequestInFlight::List(reading, until)) = self.pending.get_mut(id) else { return };
        *until = None;
        let list = reading.list;
        let late = |w: &RequestInFlight<P>| matches!(w, RequestInFlight::List(reading, None) if reading.list == list);
        for older in self.pending.find_all(late).into_iter().filter(|older| *older != id) {
            self.pending.take(older);
        }
        self.fault(ProtocolFault::BadList);
        self.lists.failed(list, "not answered within `start-timeout`", now);
    }

    /// Reads at once all lists that could not be read, because the operator wants to know.
    pub fn retry_lists(&mut self, now: Instant) {
        if matches!(self.state, PeerState::Ready(_)) {
            self.lists.retry();
            self.read_lists(now);
        }
    }

    /// Notes that the inventory was judged and how long that took, and reads the lists that are
    /// due.
    pub fn handle_judged(&mut self, took: Duration, now: Instant) {
        self.lists.judged(took, now);
        if matches!(self.state, PeerState::Ready(_)) {
            self.read_lists(now);
        }
    }

    /// Reports what was read, and asks for the lists that are due.
    pub(super) fn read_lists(&mut self, now: Instant) {
        for quirk in self.lists.take_quirks() {
            self.tell(PeerEvent::Quirk(quirk));
        }
        while let Some((list, trouble)) = self.lists.told() {
            self.events.push_back(PeerEvent::List(list, trouble));
        }
        self.events.extend(self.lists.news(now).map(PeerEvent::Inventory));
        while let Some(page) = self.lists.next(now) {
            self.ask_page(page, now);
        }
    }

    /// Requests a page of a list.
    pub(super) fn ask_page(&mut self, page: DuePage, now: Instant) {
        let PeerState::Ready(agreed) = self.state else { return };
        let (params, method) = (page.params(&self.hop, agreed.revision), page.reading.list.method());
        self.ask(method, params.as_ref(), RequestInFlight::List(Box::new(page.reading), Some(now + self.times.start)));
    }
}
