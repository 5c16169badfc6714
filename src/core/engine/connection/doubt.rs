//! Tracks whether a legacy server may still send messages about a call that was cancelled.
//!
//! Until the server has read a cancellation, a message outside a call's own stream may be about the
//! cancelled call, so it is tied to no other call. Our requests have growing numbers, and a server
//! reads in order: its answer to a request that was sent after the cancellation ends the doubt. One
//! ping is sent to get such an answer. If the server does not answer pings, its next answer to a
//! call ends the doubt.

use std::time::Instant;

/// Tracks the cancellations on one connection that the server may not have read. Until it has, a
/// message of the server may be about a cancelled call.
#[derive(Debug, Default)]
pub struct CancellationDoubt {
    /// Number of cancellations that the transport has not delivered yet.
    on_their_way: usize,
    /// Number of the first request after the last delivered cancellation. An answer to it or to a
    /// later one ends the doubt.
    ends_with: Option<u64>,
    /// Deadline of the ping in flight.
    ping_until: Option<Instant>,
}

impl CancellationDoubt {
    /// Returns true if a message of the server may be about a cancelled call.
    pub fn is_open(&self) -> bool {
        self.on_their_way > 0 || self.ends_with.is_some()
    }

    /// Notes that a call is being cancelled.
    pub fn cancelled(&mut self) {
        self.on_their_way += 1;
    }

    /// Notes that a cancellation was delivered. `next` is the number that the next request gets.
    pub fn delivered(&mut self, next: u64) {
        self.on_their_way = self.on_their_way.saturating_sub(1);
        self.ends_with = Some(next);
    }

    /// Returns true if the caller must send a ping now, and then notes `until` as its deadline.
    /// Only one ping is in flight at a time.
    pub fn pings(&mut self, until: Instant) -> bool {
        let is_due = self.on_their_way == 0 && self.ends_with.is_some() && self.ping_until.is_none();
        if is_due {
            self.ping_until = Some(until);
        }
        is_due
    }

    /// Returns the deadline of the ping in flight.
    pub fn ping_until(&self) -> Option<Instant> {
        self.ping_until
    }

    /// Notes that the ping was answered or has timed out.
    pub fn ping_ended(&mut self) {
        self.ping_until = None;
    }

    /// Notes that the server answered the request with this number, which may end the doubt.
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
        let mut doubt = CancellationDoubt::default();
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
