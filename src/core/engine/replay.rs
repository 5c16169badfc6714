//! Resumption: the recording of one event stream for a legacy client that comes back, which events it keeps, and from where it
//! can be read again.
//!
//! A recording has one writer and at most one reader. A client that resumes becomes the reader, and the one before ends without
//! another event. Notices give way when there is no room; questions and the answer do not while somebody reads. Without a reader
//! a recording that outgrows its bounds is forgotten.
//!
//! Source: MCP 2025-11-25, basic/transports, "Resumability and Redelivery".

use std::collections::VecDeque;
use std::time::Duration;

/// Of one recording: events, bytes of their messages, and how long it is kept when it has ended and nobody reads.
pub const MAX_EVENTS: usize = 256;
pub const MAX_BYTES: usize = 1024 * 1024;
pub const KEPT: Duration = Duration::from_secs(300);

/// The events of one stream. `M` is a message.
#[derive(Debug)]
pub struct Recording<M> {
    events: VecDeque<Event<M>>,
    bytes: usize,
    /// The number of the next event. The priming event is number 0.
    next: u64,
    /// The reader was given everything before this number.
    read: u64,
    /// From here on nothing is gone that must not be missed.
    whole_from: u64,
    /// The number of the reader; 0 when nobody reads.
    reader: u64,
    readers: u64,
    ended: bool,
    /// It cannot be resumed any more.
    forgotten: bool,
    /// Uptime when it was last written or left by a reader.
    quiet_since: Duration,
}

#[derive(Debug)]
struct Event<M> {
    number: u64,
    message: M,
    /// The length of the message.
    bytes: usize,
    may_be_missed: bool,
}

/// What a reader finds.
#[derive(Debug, PartialEq, Eq)]
pub enum Found<T> {
    Event(T),
    Nothing,
    /// The end, or another reader.
    Over,
}

impl<M> Recording<M> {
    pub fn new(now: Duration) -> Self {
        Self {
            events: VecDeque::new(),
            bytes: 0,
            next: 1,
            read: 1,
            whole_from: 0,
            reader: 0,
            readers: 0,
            ended: false,
            forgotten: false,
            quiet_since: now,
        }
    }

    /// Bytes of messages that are kept.
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// Makes a new reader, which begins with that event; its number. An earlier one ends.
    pub fn attach(&mut self, from: u64) -> u64 {
        self.readers += 1;
        (self.reader, self.read) = (self.readers, from);
        self.reader
    }

    /// A reader of what came after that event, where all of it is here.
    pub fn resume(&mut self, last: u64) -> Option<u64> {
        let is_known = last < self.next && last.saturating_add(1) >= self.whole_from;
        (is_known && !self.forgotten).then(|| self.attach(last.saturating_add(1)))
    }

    /// The reader is gone. `false` where another one has taken its place.
    pub fn leave(&mut self, reader: u64, now: Duration) -> bool {
        if self.reader != reader {
            return false;
        }
        (self.reader, self.quiet_since) = (0, now);
        if self.forgotten {
            self.forget()
        } else {
            self.fit(0)
        }
        true
    }

    /// Writes a message of that length, which is made only where it is kept.
    pub fn push(&mut self, message: impl FnOnce() -> M, bytes: usize, may_be_missed: bool, now: Duration) {
        self.quiet_since = now;
        let number = self.next;
        self.next += 1;
        if self.forgotten && self.reader == 0 {
            return;
        }
        self.bytes += bytes;
        self.events.push_back(Event { number, message: message(), bytes, may_be_missed });
        self.fit(0);
    }

    /// Nothing will be written any more.
    pub fn end(&mut self, now: Duration) {
        (self.ended, self.quiet_since) = (true, now);
    }

    /// Keeps the recording within its bounds, and gives up so many bytes more where it can.
    pub fn fit(&mut self, excess: usize) {
        let within = self.bytes.saturating_sub(excess).min(MAX_BYTES);
        while self.events.len() > MAX_EVENTS || self.bytes > within {
            let missable = self.events.iter().position(|event| event.may_be_missed);
            let at = missable.or_else(|| self.events.iter().position(|event| event.number < self.read));
            let Some(event) = at.and_then(|at| self.events.remove(at)) else {
                if self.reader == 0 {
                    self.forget();
                }
                return;
            };
            if !event.may_be_missed {
                self.whole_from = self.whole_from.max(event.number.saturating_add(1));
            }
            self.bytes = self.bytes.saturating_sub(event.bytes);
        }
    }

    /// It cannot be resumed any more.
    pub fn forget(&mut self) {
        self.forgotten = true;
        self.events = VecDeque::new();
        self.bytes = 0;
    }

    /// The next event for that reader, as `read` makes it of the number and the message.
    pub fn find<T>(&mut self, reader: u64, read: impl FnOnce(u64, &M) -> T) -> Found<T> {
        if self.reader != reader {
            return Found::Over;
        }
        let at = self.events.partition_point(|event| event.number < self.read);
        let Some(event) = self.events.get(at) else {
            return if self.ended { Found::Over } else { Found::Nothing };
        };
        let found = Found::Event(read(event.number, &event.message));
        self.read = event.number.saturating_add(1);
        // What was too large to be kept was kept for this reader.
        self.fit(0);
        found
    }

    pub fn has_reader(&self) -> bool {
        self.reader != 0
    }

    /// It has ended and nobody reads it.
    pub fn is_over(&self) -> bool {
        !self.has_reader() && (self.ended || self.forgotten)
    }

    /// Nobody reads it, and nothing was said for long.
    pub fn is_stale(&self, now: Duration) -> bool {
        !self.has_reader() && now.saturating_sub(self.quiet_since) > KEPT
    }
}

#[cfg(test)]
mod tests;
