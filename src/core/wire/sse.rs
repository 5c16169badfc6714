//! Server-sent events: an encoder for headend's streams and an incremental decoder for streams of
//! upstreams.
//!
//! The encoder builds each event in one allocation. The decoder follows the WHATWG rules for any
//! chunking of the stream, and hands out data as a slice of its chunk if the line was not cut. An
//! event that breaks a rule is one error; the stream continues with the event after it.
//!
//! Source: WHATWG HTML, "Server-sent events", "Interpreting an event stream"; MCP 2025-11-25,
//! basic/transports.

use std::time::Duration;

use bytes::{Buf, Bytes};
use memchr::{memchr, memchr2};

/// Bounds of the `retry` that an upstream asks for: neither a busy loop nor a stream that never
/// comes back.
const RETRY_MIN: Duration = Duration::from_millis(100);
const RETRY_MAX: Duration = Duration::from_secs(30);

const BOM: &[u8] = b"\xEF\xBB\xBF";

/// Encodes one event. The parts of `data` are concatenated on one `data:` line.
///
/// The caller guarantees that no argument contains CR or LF (admission removes them from frames).
pub fn event(id: Option<&str>, name: Option<&str>, data: &[&[u8]]) -> Bytes {
    debug_assert!(data.iter().all(|part| memchr2(b'\r', b'\n', part).is_none()), "data spans lines");
    let data_bytes: usize = data.iter().map(|part| part.len()).sum();
    let mut out = encode_beginning(id, name, data_bytes + 2);
    for part in data {
        out.extend_from_slice(part);
    }
    out.extend_from_slice(b"\n\n");
    Bytes::from(out)
}

/// Encodes the beginning of an event, up to its data; the caller appends one line of data and a
/// blank line.
pub fn event_head(id: Option<&str>, name: Option<&str>) -> Bytes {
    Bytes::from(encode_beginning(id, name, 0))
}

/// Encodes the beginning of an event, with room for `more` bytes.
fn encode_beginning(id: Option<&str>, name: Option<&str>, more: usize) -> Vec<u8> {
    let field = |name: &str, value: Option<&str>| value.map_or(0, |value| name.len() + value.len() + 1);
    let mut out = Vec::with_capacity(field("id: ", id) + field("event: ", name) + "data: ".len() + more);
    put_field(&mut out, "id: ", id);
    put_field(&mut out, "event: ", name);
    out.extend_from_slice(b"data: ");
    out
}

/// Encodes the first event of a resumable stream: it has an id and the retry time, but no data.
pub fn encode_priming_event(id: &str, retry: Duration) -> Bytes {
    debug_assert!(memchr2(b'\r', b'\n', id.as_bytes()).is_none(), "field spans lines");
    Bytes::from(format!("id: {id}\nretry: {}\ndata: \n\n", retry.as_millis()))
}

/// Encodes a comment, which clients ignore; sent to keep idle connections open. `text` must not
/// contain CR or LF.
pub fn comment(text: &str) -> Bytes {
    let mut out = Vec::with_capacity(text.len() + 4);
    put_field(&mut out, ": ", Some(text));
    out.push(b'\n');
    Bytes::from(out)
}

fn put_field(out: &mut Vec<u8>, name: &str, value: Option<&str>) {
    let Some(value) = value else { return };
    debug_assert!(memchr2(b'\r', b'\n', value.as_bytes()).is_none(), "field spans lines");
    out.extend_from_slice(name.as_bytes());
    out.extend_from_slice(value.as_bytes());
    out.push(b'\n');
}

/// An event of an upstream.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct SseEvent {
    /// The `event` field; `None` means "message".
    pub name: Option<String>,
    /// The `id` field of this event (not of an earlier one). An empty id resets the position.
    pub id: Option<String>,
    /// The time to wait before a reconnect, clamped to 100 ms..=30 s.
    pub retry: Option<Duration>,
    /// The `data` lines joined by LF; empty for a priming event. Valid UTF-8.
    pub data: Bytes,
}

/// The reason why an event was dropped.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum SseError {
    #[error("event is larger than {limit} bytes")]
    TooLarge {
        limit: usize,
        /// The start of the event's data, at most 4 KiB.
        start: Bytes,
    },
    #[error("event is not valid UTF-8")]
    Utf8 {
        /// The value of the line that is not UTF-8.
        line: Bytes,
    },
}

#[cfg(any(test, fuzzing, feature = "testing"))]
impl SseError {
    /// Removes the start of the event from the error, since it depends on the cuts between chunks.
    #[must_use]
    pub fn without_start(self) -> Self {
        match self {
            Self::TooLarge { limit, .. } => Self::TooLarge { limit, start: Bytes::new() },
            Self::Utf8 { .. } => self,
        }
    }
}

/// The length of a cut line, in bytes, from which it gets all the room that an event may need:
/// untouched pages cost nothing, copies of half-read lines would.
const LONG_LINE_BYTES: usize = 512 * 1024;

/// The part of a dropped event's data that the error keeps, in bytes.
const PREFIX_BYTES: usize = 4 * 1024;

/// An incremental decoder of one stream.
///
/// Pass a chunk to [`Self::push`], then call [`Self::next_event`] until it returns `None`. An
/// unfinished event at the end of the stream is not reported.
#[derive(Debug)]
pub struct SseDecoder {
    max_event_bytes: usize,
    /// The unread part of the last chunk.
    chunk: Bytes,
    /// The start of a line that the end of a chunk cut. Not kept while `failed`.
    carry: Vec<u8>,
    /// The length of the cut line in bytes, kept or not.
    carried: usize,
    /// True if the last line ended with CR: an LF right after it belongs to that line end.
    after_cr: bool,
    /// True until the first line is read, which may begin with a BOM.
    at_start: bool,
    event: PartialEvent,
}

/// An event of which some lines were read.
#[derive(Debug, Default)]
struct PartialEvent {
    fields: SseEvent,
    /// The joined data lines. Empty while `fields.data` holds the only one.
    joined: Vec<u8>,
    has_data: bool,
    /// True if a field was read, so that a blank line ends an event.
    seen: bool,
    /// True if the event was reported as an error; its remaining lines are skipped.
    failed: bool,
    /// The length of its lines so far in bytes, comments excluded.
    bytes: usize,
}

impl SseDecoder {
    /// Creates a decoder that refuses events whose lines exceed `max_event_bytes` in total.
    pub fn new(max_event_bytes: usize) -> Self {
        Self {
            max_event_bytes,
            chunk: Bytes::new(),
            carry: Vec::new(),
            carried: 0,
            after_cr: false,
            at_start: true,
            event: PartialEvent::default(),
        }
    }

    /// Takes the next chunk of the stream.
    pub fn push(&mut self, chunk: Bytes) {
        if self.chunk.is_empty() {
            self.chunk = chunk;
        } else {
            // Happens only if the caller did not drain the events first.
            self.chunk = Bytes::from([self.chunk.as_ref(), chunk.as_ref()].concat());
        }
    }

    /// Returns the length of the buffered, unfinished event in bytes.
    pub fn held(&self) -> usize {
        let PartialEvent { joined, fields, .. } = &self.event;
        self.chunk.len() + self.carry.len() + joined.len() + fields.data.len()
    }

    /// Drops the unfinished event and returns the start of its data. The rest of the event is
    /// skipped without an error.
    pub fn discard(&mut self) -> Bytes {
        let start = self.start(&self.carry);
        // The caller reports the event itself.
        drop(self.fail(SseError::TooLarge { limit: self.max_event_bytes, start: start.clone() }));
        start
    }

    /// Copies the start of the data of the unfinished event; `line` is its unfinished last line.
    fn start(&self, line: &[u8]) -> Bytes {
        let PartialEvent { joined, fields, .. } = &self.event;
        let line = line.strip_prefix(b"data:").unwrap_or_default();
        let line = line.strip_prefix(b" ").unwrap_or(line);
        let data =
            [joined.as_slice(), &fields.data, line].into_iter().find(|part| !part.is_empty()).unwrap_or_default();
        Bytes::copy_from_slice(data.get(..PREFIX_BYTES.min(data.len())).unwrap_or_default())
    }

    fn too_large_error(&self, line: &[u8]) -> SseError {
        SseError::TooLarge { limit: self.max_event_bytes, start: self.start(line) }
    }

    /// Takes the next event; `None` if more bytes are needed.
    ///
    /// # Errors
    /// [`SseError`] once for each dropped event, as soon as it is known to be bad.
    pub fn next_event(&mut self) -> Option<Result<SseEvent, SseError>> {
        loop {
            if self.after_cr && !self.chunk.is_empty() {
                self.after_cr = false;
                if self.chunk.first() == Some(&b'\n') {
                    self.chunk.advance(1);
                }
            }
            let Some(at) = memchr2(b'\n', b'\r', &self.chunk) else {
                return self.carry_over();
            };
            let tail = self.chunk.split_to(at);
            self.skip_line_end();
            let outcome = self.end_line(tail);
            if outcome.is_some() {
                return outcome;
            }
        }
    }

    /// Keeps the start of a line whose end is not in this chunk.
    fn carry_over(&mut self) -> Option<Result<SseEvent, SseError>> {
        let tail = std::mem::take(&mut self.chunk);
        let comment = self.carry.first().or(tail.first()) == Some(&b':');
        self.carried = self.carried.saturating_add(tail.len());
        if self.event.failed {
            return None;
        }
        if self.too_large(self.carried, comment) {
            let line = if self.carry.is_empty() { &tail[..] } else { &self.carry };
            let error = self.too_large_error(line);
            return Some(self.fail(error));
        }
        if self.carry.capacity() < self.carried && self.carried > LONG_LINE_BYTES {
            self.carry.reserve_exact(self.max_event_bytes.saturating_sub(self.carry.len()).max(tail.len()));
        }
        self.carry.extend_from_slice(&tail);
        None
    }

    /// Skips the LF or CR at the start of the chunk; an LF after a CR is skipped later.
    fn skip_line_end(&mut self) {
        let ends_with_cr = self.chunk.first() == Some(&b'\r');
        self.chunk.advance(1);
        self.after_cr = ends_with_cr;
    }

    /// Processes a complete line, of which `tail` is the part in the current chunk.
    fn end_line(&mut self, tail: Bytes) -> Option<Result<SseEvent, SseError>> {
        let length = self.carried.saturating_add(tail.len());
        let mut line = tail;
        if self.carried > 0 && !self.event.failed {
            self.carry.extend_from_slice(&line);
            line = Bytes::from(std::mem::take(&mut self.carry));
        }
        self.carried = 0;
        if self.event.failed {
            if length == 0 {
                self.event = PartialEvent::default();
            }
            return None;
        }
        let comment = line.first() == Some(&b':');
        if self.too_large(length, comment) {
            let error = self.too_large_error(&line);
            return Some(self.fail(error));
        }
        if std::mem::take(&mut self.at_start) && line.starts_with(BOM) {
            line.advance(BOM.len());
        }
        match line.first() {
            None => self.event.finish().map(Ok),
            Some(b':') => None,
            Some(_) => match self.event.field(&line) {
                Ok(()) => None,
                Err(error) => Some(self.fail(error)),
            },
        }
    }

    /// Reports whether one more line of `length` bytes takes the event above the limit. A comment
    /// is measured alone, or keep-alives between two lines would add up.
    fn too_large(&self, length: usize, comment: bool) -> bool {
        let before = if comment { 0 } else { self.event.bytes };
        before.saturating_add(length) > self.max_event_bytes
    }

    /// Drops the current event; its remaining lines are skipped up to the blank line that ends it.
    fn fail(&mut self, error: SseError) -> Result<SseEvent, SseError> {
        self.at_start = false;
        self.carry = Vec::new();
        self.event = PartialEvent { failed: true, ..PartialEvent::default() };
        Err(error)
    }
}

impl PartialEvent {
    /// Processes one line that is neither blank nor a comment.
    fn field(&mut self, line: &Bytes) -> Result<(), SseError> {
        self.bytes = self.bytes.saturating_add(line.len());
        let colon = memchr(b':', line).unwrap_or(line.len());
        let name = line.get(..colon).unwrap_or_default();
        let mut value = line.slice(colon..);
        if !value.is_empty() {
            value.advance(1);
        }
        if value.first() == Some(&b' ') {
            value.advance(1);
        }
        match name {
            b"data" => self.data(value)?,
            b"event" => self.fields.name = Some(text(&value)?.to_owned()).filter(|name| !name.is_empty()),
            b"id" => match text(&value)? {
                id if id.contains('\0') => return Ok(()),
                id => self.fields.id = Some(id.to_owned()),
            },
            b"retry" => match retry(&value) {
                None => return Ok(()),
                wait => self.fields.retry = wait,
            },
            _ => return Ok(()),
        }
        self.seen = true;
        Ok(())
    }

    /// Appends a data line, joined to earlier ones by LF.
    fn data(&mut self, value: Bytes) -> Result<(), SseError> {
        text(&value)?;
        if !self.has_data {
            self.has_data = true;
            self.fields.data = value;
            return Ok(());
        }
        if self.joined.is_empty() {
            self.joined.extend_from_slice(&std::mem::take(&mut self.fields.data));
        }
        self.joined.push(b'\n');
        self.joined.extend_from_slice(&value);
        Ok(())
    }

    /// Ends the event. `None` if no field came before the blank line.
    fn finish(&mut self) -> Option<SseEvent> {
        let Self { mut fields, joined, seen, .. } = std::mem::take(self);
        if !joined.is_empty() {
            fields.data = Bytes::from(joined);
        }
        seen.then_some(fields)
    }
}

fn text(value: &Bytes) -> Result<&str, SseError> {
    std::str::from_utf8(value).map_err(|_| SseError::Utf8 { line: value.clone() })
}

/// Reads a `retry` value of digits, clamped; `None` for any other value, which is ignored. Numbers
/// too large for a `u64` become the longest wait.
fn retry(value: &[u8]) -> Option<Duration> {
    if value.is_empty() || !value.iter().all(u8::is_ascii_digit) {
        return None;
    }
    let millis = value.iter().fold(0_u64, |sum, digit| sum.saturating_mul(10).saturating_add(u64::from(digit - b'0')));
    Some(Duration::from_millis(millis).clamp(RETRY_MIN, RETRY_MAX))
}

#[cfg(test)]
mod tests;
