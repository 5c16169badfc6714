//! Takes lines of an upstream that were not kept: too large, or without room.

use std::time::Instant;

use super::{CallPort, Peer, Waiting};
use crate::engine::attribution::End;
use crate::engine::call::Outcome;
use crate::engine::failure::{Executed, Failure, Reason};
use crate::engine::fault::Fault;
use crate::engine::pending::Lookup;
use crate::wire::id::WireId;
use crate::wire::raw::RawJson;
use crate::wire::start::Start;
use crate::wire::unreadable::Unreadable;

impl<P: CallPort> Peer<P> {
    /// Takes a line of which only `start` was kept. Ends the call or the list reading that the line
    /// answers; if its start does not tell, ends all that are in flight.
    pub fn handle_skipped(&mut self, start: &[u8], failure: &Failure, now: Instant) {
        self.fault(Fault::Oversize);
        // A lack of room is not the server's doing.
        if failure.reason != Reason::Busy {
            self.name(Unreadable::new(start, failure.detail.trim_end_matches('.')));
        }
        let start = Start::of(start);
        let ours = |id| std::str::from_utf8(id).ok()?.parse().ok().map(WireId);
        match start {
            Start::Request(_) | Start::Notifies | Start::Asks => {}
            // The skipped line was the answer, so there is nothing to cancel.
            Start::Answer(id) if let Some(id) = ours(id) => {
                self.give_up(id, failure, End::Answered, now);
            }
            Start::Answer(_) | Start::Unknown => {
                // Lists that are read again meanwhile are not given up a second time.
                for id in self.pending.find_all(|waiting| matches!(waiting, Waiting::Call(_) | Waiting::List(..))) {
                    if self.give_up(id, failure, End::GivenUp, now) {
                        self.cancelled(id, "a message of the server was too large to be read", now);
                    }
                }
            }
        }
    }

    /// Ends the call or the list reading whose request was not delivered, or whose delivery failed.
    /// A call that may have been executed is cancelled.
    pub fn handle_refused(&mut self, id: &RawJson, failure: &Failure, now: Instant) {
        if let Some(id) = WireId::from_raw(id) {
            let was_call = self.give_up(id, failure, End::GivenUp, now);
            if was_call && failure.executed != Executed::No {
                self.cancelled(id, "its delivery failed", now);
            }
        }
    }

    /// Ends a call or a list reading without its answer, and returns whether it was a call. Leaves
    /// all other requests of ours in flight.
    fn give_up(&mut self, id: WireId, failure: &Failure, end: End, now: Instant) -> bool {
        if !matches!(self.pending.get_mut(id), Some(Waiting::Call(_) | Waiting::List(..))) {
            return false;
        }
        match self.pending.take(id) {
            Lookup::Found(Waiting::Call(port)) => {
                self.end_call(port, Outcome::Failed(failure.clone()), end, now);
                return true;
            }
            Lookup::Found(Waiting::List(reading, _)) if failure.reason == Reason::Busy => {
                self.lists.no_room(reading.list);
                self.read_lists(now);
            }
            Lookup::Found(Waiting::List(reading, _)) => {
                self.fault(Fault::BadList);
                self.lists.failed(reading.list, &failure.detail, now);
                self.read_lists(now);
            }
            Lookup::Found(_) | Lookup::Late | Lookup::Unknown => {}
        }
        false
    }
}
