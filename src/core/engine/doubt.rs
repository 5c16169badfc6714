//! The doubt after a cancellation: until a legacy server has read it, a message outside a call's own stream may be about the call
//! that has left, so it is tied to no other.
//!
//! Requests have numbers that grow, and a server reads in order: an answer to a request that was sent after the cancellation ends
//! the doubt. One ping is sent to get such an answer. A server that answers no pings ends it with its next answer to a call.

use std::time::Instant;

/// What is not known of one connection.
#[derive(Debug, Default)]
pub struct Doubt {
    /// Cancellations that the transport has not handed over yet.
    on_their_way: usize,
    /// The first request after the last cancellation that was handed over.
    ends_with: Option<u64>,
    /// Until when the ping that is under way may be answered.
    ping_until: Option<Instant>,
}

impl Doubt {
    /// Whether a message may be about a call that is not in flight any more.
    pub fn is_open(&self) -> bool {
        self.on_their_way > 0 || self.ends_with.is_some()
    }

    /// A call is cancelled.
    pub fn cancelled(&mut self) {
        self.on_their_way += 1;
    }

    /// A cancellation was handed over; requests have this number and higher ones from now on.
    pub fn delivered(&mut self, next: u64) {
        self.on_their_way = self.on_their_way.saturating_sub(1);
        self.ends_with = Some(next);
    }

    /// Whether a ping is to be sent now; it may be answered until then. There is one at a time.
    pub fn pings(&mut self, until: Instant) -> bool {
        let is_due = self.on_their_way == 0 && self.ends_with.is_some() && self.ping_until.is_none();
        if is_due {
            self.ping_until = Some(until);
        }
        is_due
    }

    /// Until when the ping that is under way may be answered.
    pub fn ping_until(&self) -> Option<Instant> {
        self.ping_until
    }

    /// The ping was answered, or will not be.
    pub fn ping_ended(&mut self) {
        self.ping_until = None;
    }

    /// The server has answered the request of that number.
    pub fn answered(&mut self, number: u64) {
        if self.ends_with.is_some_and(|first| number >= first) {
            self.ends_with = None;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::engine::sim::epoch;

    #[test]
    fn a_doubt_ends_with_the_first_answer_that_shows_that_the_last_cancellation_was_read() {
        let mut doubt = Doubt::default();
        doubt.answered(1);
        assert!(!doubt.is_open() && !doubt.pings(epoch()));
        doubt.cancelled();
        assert!(doubt.is_open() && !doubt.pings(epoch()), "it is on its way");
        doubt.delivered(5);
        assert!(doubt.pings(epoch()) && !doubt.pings(epoch()), "one ping");
        doubt.answered(4);
        assert!(doubt.is_open(), "sent before the cancellation");
        doubt.cancelled();
        doubt.answered(5);
        assert!(doubt.is_open(), "another call was cancelled since");
        doubt.delivered(9);
        doubt.ping_ended();
        assert!(doubt.pings(epoch()), "the first ping was sent before");
        doubt.ping_ended();
        assert!(doubt.is_open(), "it was not answered");
        doubt.answered(12);
        assert!(!doubt.is_open() && doubt.ping_until().is_none());
    }
}
