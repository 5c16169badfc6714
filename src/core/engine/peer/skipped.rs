//! Takes lines of an upstream that were not kept: too large, or without room.

use std::time::Instant;

use super::{CallPort, Peer, RequestInFlight};
use crate::engine::call::CallOutcome;
use crate::engine::connection::attribution::CallEnd;
use crate::engine::connection::pending::PendingLookup;
use crate::engine::failure::{CallFailure, ExecutionDoubt, FailureReason};
use crate::engine::fault::ProtocolFault;
use crate::wire::id::WireId;
use crate::wire::json::raw::RawJson;
use crate::wire::start::MessageStart;
use crate::wire::unreadable::UnreadableBytes;

impl<P: CallPort> Peer<P> {
    /// Takes a line of which only `start` was kept. Ends the call or the list reading that the line
    /// answers; if its start does not tell, ends all that are in flight.
    pub fn handle_skipped(&mut self, start: &[u8], failure: &CallFailure, now: Instant) {
        self.fault(ProtocolFault::Oversize);
        // A lack of room is not the server's doing.
        if failure.reason != FailureReason::Busy {
            self.name(UnreadableBytes::new(start, failure.detail.trim_end_matches('.')));
        }
        let start = MessageStart::of(start);
        let ours = |id| std::str::from_utf8(id).ok()?.parse().ok().map(WireId);
        match start {
            MessageStart::Request(_) | MessageStart::Notifies | MessageStart::Asks => {}
            // The skipped line was the answer, so there is nothing to cancel.
            MessageStart::Answer(id) if let Some(id) = ours(id) => {
                self.give_up(id, failure, CallEnd::Answered, now);
            }
            MessageStart::Answer(_) | MessageStart::Unknown => {
                // Lists that are read again meanwhile are not given up a second time.
                for id in self
                    .pending
                    .find_all(|waiting| matches!(waiting, RequestInFlight::Call(_) | RequestInFlight::List(..)))
                {
                    if self.give_up(id, failure, CallEnd::GivenUp, now) {
                        self.cancelled(id, "a message of the server was too large to be read", now);
                    }
                }
            }
        }
    }

    /// Ends the call or the list reading whose request was not delivered, or whose delivery failed.
    /// A call that may have been executed is cancelled.
    pub fn handle_refused(&mut self, id: &RawJson, failure: &CallFailure, now: Instant) {
        if let Some(id) = WireId::from_raw(id) {
            let was_call = self.give_up(id, failure, CallEnd::GivenUp, now);
            if was_call && failure.executed != ExecutionDoubt::No {
                self.cancelled(id, "its delivery failed", now);
            }
        }
    }

    /// Ends a call or a list reading without its answer, and returns whether it was a call. Leaves
    /// all other requests of ours in flight.
    fn give_up(&mut self, id: WireId, failure: &CallFailure, end: CallEnd, now: Instant) -> bool {
        if !matches!(self.pending.get_mut(id), Some(RequestInFlight::Call(_) | RequestInFlight::List(..))) {
            return false;
        }
        match self.pending.take(id) {
            PendingLookup::Found(RequestInFlight::Call(port)) => {
                self.end_call(port, CallOutcome::Failed(failure.clone()), end, now);
                return true;
            }
            PendingLookup::Found(RequestInFlight::List(reading, _)) if failure.reason == FailureReason::Busy => {
                self.lists.no_room(reading.list);
                self.read_lists(now);
            }
            PendingLookup::Found(RequestInFlight::List(reading, _)) => {
                self.fault(ProtocolFault::BadList);
                self.lists.failed(reading.list, &failure.detail, now);
                self.read_lists(now);
            }
            PendingLookup::Found(_) | PendingLookup::Late | PendingLookup::Unknown => {}
        }
        false
    }
}
