//! Splits the byte stream of stdio into lines, with a bound on their length from which the decoder
//! recovers.
//!
//! The caller appends the bytes it read to [`LineDecoder::buffer`] and drains
//! [`LineDecoder::next_line`] until it returns `None`. A line is a slice of the read buffer, rarely
//! a copy, and each byte is searched once. A line above the limit is not kept: its first bytes are
//! reported (so that a response can still name the request) and the rest is discarded up to the
//! next newline.
//!
//! Source: MCP 2024-11-05, basic/transports, "stdio"; later revisions keep the framing.

use bytes::{Buf, Bytes, BytesMut};
use memchr::memchr;

/// The room that is made for one read, in bytes.
const READ_BYTES: usize = 32 * 1024;

/// The length of an unfinished line, in bytes, from which the buffer gets all the room that a line
/// may need.
const LONG_LINE_BYTES: usize = 512 * 1024;

/// The spare room, in bytes, below which the buffer grows before a read.
const MIN_ROOM_BYTES: usize = 8 * 1024;

/// The largest allocation that an idle decoder keeps, in bytes.
const KEEP_BYTES: usize = 64 * 1024;

/// The part of an oversize line that is kept, in bytes: enough to read an id from its start.
const PREFIX_BYTES: usize = 4 * 1024;

/// One line of the stream.
#[derive(Debug, PartialEq, Eq)]
pub enum StreamLine {
    /// A line without its LF and without one CR before it. Never blank.
    Full(Bytes),
    /// A line above the limit; the stream continues with the line after it.
    Oversize {
        /// The first bytes of the line, at most 4 KiB.
        prefix: Bytes,
        /// The length of the whole line in bytes, without its LF.
        bytes: u64,
    },
}

/// The part of an oversize line that is remembered while the rest is discarded.
#[derive(Debug)]
struct DiscardedLine {
    prefix: Bytes,
    bytes: u64,
}

/// A decoder that splits a byte stream at newlines. See the module documentation for the calling
/// pattern.
#[derive(Debug)]
pub struct LineDecoder {
    buffer: BytesMut,
    /// The number of bytes at the start of `buffer` that are known to hold no newline.
    scanned: usize,
    /// The largest capacity since the last allocation was given back, in bytes. The buffer alone
    /// cannot tell: its capacity counts only the room behind its start.
    peak: usize,
    /// Bytes of lines that were taken from this allocation; a slice of it keeps them in memory.
    passed: usize,
    max_line_bytes: usize,
    discard: Option<DiscardedLine>,
}

impl LineDecoder {
    /// Creates a decoder that refuses lines longer than `max_line_bytes` (without the LF; a CR
    /// before it counts).
    pub fn new(max_line_bytes: usize) -> Self {
        Self { buffer: BytesMut::new(), scanned: 0, peak: 0, passed: 0, max_line_bytes, discard: None }
    }

    /// Returns the buffer to append to, with spare room for one read.
    ///
    /// Append only: bytes already in the buffer have been searched. Drain [`Self::next_line`]
    /// before the next append, or the limit is enforced late.
    pub fn buffer(&mut self) -> &mut BytesMut {
        let length = self.buffer.len();
        if self.buffer.capacity() - length >= MIN_ROOM_BYTES {
            return &mut self.buffer;
        }
        if length <= READ_BYTES {
            self.buffer.reserve(READ_BYTES);
            // `reserve` may have reused a large allocation from its beginning; only a small one is
            // new.
            if self.buffer.capacity() <= KEEP_BYTES {
                self.passed = 0;
            }
        } else {
            // Doubles, but never beyond the needs of one line: a stream without newlines must not
            // cost twice the limit.
            let ceiling = self.max_line_bytes.saturating_add(READ_BYTES);
            // A long line gets all its room at once: untouched pages cost nothing, copies of
            // half-read lines would.
            let wanted = if length < LONG_LINE_BYTES { length.saturating_mul(2) } else { ceiling };
            let capacity = wanted.min(ceiling).max(length + READ_BYTES);
            let mut grown = BytesMut::with_capacity(capacity);
            grown.extend_from_slice(&self.buffer);
            self.buffer = grown;
            self.passed = 0;
        }
        &mut self.buffer
    }

    /// Takes the next complete line; `None` if more bytes are needed. Blank lines are skipped.
    pub fn next_line(&mut self) -> Option<StreamLine> {
        self.peak = self.peak.max(self.buffer.capacity());
        loop {
            let fresh = self.buffer.get(self.scanned..).unwrap_or_default();
            let Some(at) = memchr(b'\n', fresh) else {
                self.rest();
                return None;
            };
            let length = self.scanned + at;
            self.scanned = 0;
            if let Some(line) = self.take(length) {
                return Some(line);
            }
        }
    }

    /// Takes the last line at the end of the stream, which has no newline.
    pub fn last_line(&mut self) -> Option<StreamLine> {
        let length = self.buffer.len();
        if length == 0 && self.discard.is_none() {
            return None;
        }
        self.buffer.extend_from_slice(b"\n");
        self.scanned = 0;
        self.take(length)
    }

    /// Returns the length of the unfinished line in the buffer, in bytes.
    pub fn held(&self) -> usize {
        self.buffer.len()
    }

    /// Returns the beginning of the unfinished line.
    pub fn unfinished(&self) -> &[u8] {
        self.discard.as_ref().map_or(&self.buffer, |discard| &discard.prefix)
    }

    /// Discards the unfinished line; once its newline arrives it is reported as
    /// [`StreamLine::Oversize`].
    pub fn discard(&mut self) {
        if self.discard.is_none() && !self.buffer.is_empty() {
            let length = self.buffer.len();
            self.discard = Some(DiscardedLine { prefix: self.prefix(length), bytes: length as u64 });
            self.clear();
            self.scanned = 0;
        }
    }

    /// Ends the stream and resets the decoder, which may be used again. Returns how many bytes of
    /// an unfinished line were dropped, if any.
    pub fn finish(&mut self) -> Option<usize> {
        let kept = self.buffer.len();
        let discarded = self.discard.take().map_or(0, |discard| discard.bytes);
        self.replace(BytesMut::new());
        let dropped = kept.saturating_add(usize::try_from(discarded).unwrap_or(usize::MAX));
        (dropped > 0).then_some(dropped)
    }

    /// Takes `length` bytes and the newline after them off the buffer. `None` for a blank line.
    fn take(&mut self, length: usize) -> Option<StreamLine> {
        let passed = self.passed;
        self.passed += length + 1;
        if let Some(discard) = self.discard.take() {
            self.buffer.advance(length + 1);
            return Some(StreamLine::Oversize { prefix: discard.prefix, bytes: discard.bytes + length as u64 });
        }
        if length > self.max_line_bytes {
            let prefix = self.prefix(length);
            self.buffer.advance(length + 1);
            return Some(StreamLine::Oversize { prefix, bytes: length as u64 });
        }
        let mut line = self.buffer.split_to(length);
        self.buffer.advance(1);
        if line.last() == Some(&b'\r') {
            line.truncate(length - 1);
        }
        if line.iter().all(u8::is_ascii_whitespace) {
            return None;
        }
        // Copied: a short line must not keep a large allocation in memory.
        let is_short = line.len() < PREFIX_BYTES || passed / 4 > line.len();
        let apart = self.peak > KEEP_BYTES && is_short;
        Some(StreamLine::Full(if apart { Bytes::copy_from_slice(&line) } else { line.freeze() }))
    }

    /// Handles a buffer without a newline: starts or continues discarding, and gives memory back.
    fn rest(&mut self) {
        let length = self.buffer.len();
        if let Some(discard) = &mut self.discard {
            discard.bytes += length as u64;
            self.clear();
        } else if length > self.max_line_bytes {
            let prefix = self.prefix(length);
            self.discard = Some(DiscardedLine { prefix, bytes: length as u64 });
            self.clear();
        } else if self.peak > KEEP_BYTES && length <= PREFIX_BYTES {
            let rest = BytesMut::from(self.buffer.as_ref());
            self.replace(rest);
        }
        self.scanned = self.buffer.len();
    }

    /// Copies the start of the line in the buffer, so that the kept prefix does not hold the whole
    /// allocation.
    ///
    /// The line limit bounds it too, so that the prefix is the same if the line arrived whole or in
    /// parts.
    fn prefix(&self, length: usize) -> Bytes {
        let length = length.min(PREFIX_BYTES).min(self.max_line_bytes);
        Bytes::copy_from_slice(self.buffer.get(..length).unwrap_or_default())
    }

    /// Empties the buffer; an allocation above [`KEEP_BYTES`] is given back.
    fn clear(&mut self) {
        if self.peak > KEEP_BYTES {
            self.replace(BytesMut::new());
        } else {
            self.buffer.clear();
        }
    }

    /// Replaces the allocation. Lines handed out keep their own share of the old one.
    fn replace(&mut self, buffer: BytesMut) {
        self.peak = buffer.capacity();
        self.scanned = buffer.len();
        self.passed = 0;
        self.buffer = buffer;
    }
}

#[cfg(test)]
mod tests;
