//! Records one event stream, so that a legacy client that comes back can read on.
//!
//! A recording has one writer and at most one reader. A client that resumes becomes the reader, and
//! the reader before it ends without another event. When there is no room, notices are dropped;
//! questions and the answer are not while there is a reader. Without a reader, a recording that
//! outgrows its bounds is forgotten.
//!
//! Source: MCP 2025-11-25, basic/transports, "Resumability and Redelivery".

use std::collections::VecDeque;
use std::time::Duration;

/// Most events in a recording.
pub const MAX_EVENTS: usize = 256;
/// Most bytes of messages in a recording.
pub const MAX_BYTES: usize = 1024 * 1024;
/// Time for which a recording is kept without a reader and without a new event.
pub const KEPT: Duration = Duration::from_secs(300);

/// The recorded events of one stream. `M` is a message.
#[derive(Debug)]
pub struct StreamRecording<M> {
    events: VecDeque<RecordedEvent<M>>,
    bytes: usize,
    /// Number of the next event. The priming event has number 0.
    next: u64,
    /// Number of the first event that the reader was not given yet.
    read: u64,
    /// First number from which a client can read on without missing an event that must arrive.
    whole_from: u64,
    /// Number of the reader; 0 if there is none.
    reader: u64,
    /// Number of readers so far.
    readers: u64,
    /// True if nothing more will be written.
    ended: bool,
    /// True if the stream can no longer be resumed.
    forgotten: bool,
    /// Uptime when the recording was last written, or left by a reader.
    quiet_since: Duration,
}

/// A recorded event.
#[derive(Debug)]
struct RecordedEvent<M> {
    number: u64,
    message: M,
    /// Length of the message, in bytes.
    bytes: usize,
    /// True for an event that is dropped first if there is no room.
    may_be_missed: bool,
}

/// The next thing in a recording for its reader.
#[derive(Debug, PartialEq, Eq)]
pub enum RecordingItem<T> {
    Event(T),
    /// No event yet.
    Nothing,
    /// The recording has ended, or there is another reader.
    Over,
}

impl<M> StreamRecording<M> {
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

    /// Returns the number of bytes of messages that are kept.
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// Makes a new reader, which begins with event `from`, and returns its number. An earlier
    /// reader ends.
    pub fn attach(&mut self, from: u64) -> u64 {
        self.readers += 1;
        (self.reader, self.read) = (self.readers, from);
        self.reader
    }

    /// Makes a reader of the events after number `last`, and returns its number; `None` if an event
    /// that must arrive is lost.
    pub fn resume(&mut self, last: u64) -> Option<u64> {
        let is_known = last < self.next && last.saturating_add(1) >= self.whole_from;
        (is_known && !self.forgotten).then(|| self.attach(last.saturating_add(1)))
    }

    /// Notes that a reader is gone; false if another one has taken its place. Without a reader, the
    /// recording must fit its bounds, or it is forgotten.
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

    /// Writes a message of so many bytes. `message` is called only if the event is kept.
    pub fn push(&mut self, message: impl FnOnce() -> M, bytes: usize, may_be_missed: bool, now: Duration) {
        self.quiet_since = now;
        let number = self.next;
        self.next += 1;
        if self.forgotten && self.reader == 0 {
            return;
        }
        self.bytes += bytes;
        self.events.push_back(RecordedEvent { number, message: message(), bytes, may_be_missed });
        self.fit(0);
    }

    /// Ends the recording: nothing more will be written.
    pub fn end(&mut self, now: Duration) {
        (self.ended, self.quiet_since) = (true, now);
    }

    /// Drops notices, and then events that were read, until the recording is within its bounds and
    /// `excess` bytes smaller. If that is not enough, forgets the recording, unless it has a
    /// reader.
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

    /// Drops all events. The stream can no longer be resumed.
    pub fn forget(&mut self) {
        self.forgotten = true;
        self.events = VecDeque::new();
        self.bytes = 0;
    }

    /// Takes the next event for that reader, as `read` makes it from the number and the message.
    pub fn find<T>(&mut self, reader: u64, read: impl FnOnce(u64, &M) -> T) -> RecordingItem<T> {
        if self.reader != reader {
            return RecordingItem::Over;
        }
        let at = self.events.partition_point(|event| event.number < self.read);
        let Some(event) = self.events.get(at) else {
            return if self.ended { RecordingItem::Over } else { RecordingItem::Nothing };
        };
        let found = RecordingItem::Event(read(event.number, &event.message));
        self.read = event.number.saturating_add(1);
        // Events beyond the bounds were kept for this reader.
        self.fit(0);
        found
    }

    pub fn has_reader(&self) -> bool {
        self.reader != 0
    }

    /// Returns whether the recording has ended or is forgotten, and has no reader.
    pub fn is_over(&self) -> bool {
        !self.has_reader() && (self.ended || self.forgotten)
    }

    /// Returns whether the recording has no reader, and nothing was written for longer than
    /// [`KEPT`].
    pub fn is_stale(&self, now: Duration) -> bool {
        !self.has_reader() && now.saturating_sub(self.quiet_since) > KEPT
    }
}

#[cfg(test)]
mod tests;
