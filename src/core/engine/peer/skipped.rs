//! Lines of an upstream that were not kept: too large, or without room.

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
    /// A line was skipped. Its call or the reading of its list ends; where its start does not tell whose it is, all that are in
    /// flight do.
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
            // It was the answer, so that there is nothing to cancel.
            Start::Answer(id) if let Some(id) = ours(id) => {
                self.give_up(id, failure, End::Answered, now);
            }
            Start::Answer(_) | Start::Unknown => {
                // Those that are asked for again on the way are not given up a second time.
                for id in self.pending.find_all(|waiting| matches!(waiting, Waiting::Call(_) | Waiting::List(..))) {
                    if self.give_up(id, failure, End::GivenUp, now) {
                        self.cancelled(id, "a message of the server was too large to be read", now);
                    }
                }
            }
        }
    }

    /// A request was not delivered, or its delivery failed. Its call or the reading of its list ends.
    pub fn handle_refused(&mut self, id: &RawJson, failure: &Failure, now: Instant) {
        if let Some(id) = WireId::from_raw(id) {
            let was_call = self.give_up(id, failure, End::GivenUp, now);
            if was_call && failure.executed != Executed::No {
                self.cancelled(id, "its delivery failed", now);
            }
        }
    }

    /// Ends a call or the reading of a list without its answer; other requests of our own go on waiting. Whether it was a call.
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
