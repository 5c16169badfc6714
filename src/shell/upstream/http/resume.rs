//! Resumes a legacy server's event stream that ended before the answer: keeps the position in the
//! stream, and bounds the attempts.
//!
//! After the wait that the server asked for, the gateway requests the rest of the stream with the
//! last event id, within the call's deadline; it never sends the call again. Without an id, or with
//! one that the server no longer knows, the outcome of the call is unknown. A client's own session
//! with a server opens its GET stream before its first call, and an answer on that stream reaches
//! the call that it names.
//!
//! Source: MCP 2025-11-25, basic/transports, "Resumability and Redelivery" and the polling of
//! SEP-1699.

use std::time::Duration;

use http::HeaderValue;

use crate::wire::sse::SseEvent;

/// Wait before resuming if the stream named none.
const RETRY: Duration = Duration::from_secs(1);
/// Most resumptions in a row that bring no event.
const IN_VAIN: u8 = 4;
/// Most resumptions of one call. A server may close its stream on purpose and let the client poll.
const MOST: u16 = 256;
/// Longer ids, in bytes, are not sent in a header.
const MAX_ID_BYTES: usize = 1024;

/// The position up to which a stream was read.
#[derive(Clone, Debug, Default)]
pub(crate) struct StreamPosition {
    last: Option<HeaderValue>,
    retry: Option<Duration>,
    moved: bool,
}

impl StreamPosition {
    /// Returns the wait that the server asked for, if it did.
    pub(crate) fn retry(&self) -> Option<Duration> {
        self.retry
    }

    /// Records an event, also one without data.
    pub(crate) fn read(&mut self, event: &SseEvent) {
        self.retry = event.retry.or(self.retry);
        if let Some(id) = &event.id {
            self.moved = true;
            // An empty id resets the position.
            let usable = !id.is_empty() && id.len() <= MAX_ID_BYTES;
            self.last = usable.then(|| HeaderValue::from_bytes(id.as_bytes()).ok()).flatten();
        }
    }
}

/// The resumptions of one call.
#[derive(Debug, Default)]
pub(crate) struct StreamResumption {
    position: StreamPosition,
    in_vain: u8,
    all: u16,
}

impl StreamResumption {
    /// Records that the stream has ended at this position, which counts from where it was resumed.
    pub(crate) fn ended(&mut self, position: StreamPosition) {
        if position.moved {
            self.in_vain = 0;
        }
        let last = if position.moved { position.last } else { self.position.last.take() };
        self.position = StreamPosition { last, retry: position.retry.or(self.position.retry), moved: false };
    }

    /// Counts an attempt and returns how long to wait before it; `None` if the stream cannot be
    /// resumed, or was too often.
    pub(crate) fn wait(&mut self) -> Option<Duration> {
        self.position.last.as_ref()?;
        if self.in_vain >= IN_VAIN || self.all >= MOST {
            return None;
        }
        self.in_vain += 1;
        self.all += 1;
        Some(self.position.retry.unwrap_or(RETRY))
    }

    /// Returns the event id to resume after.
    pub(crate) fn last_event_id(&self) -> Option<HeaderValue> {
        self.position.last.clone()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn position(events: &[(Option<&str>, Option<u64>)]) -> StreamPosition {
        let mut position = StreamPosition::default();
        for (id, retry) in events {
            let (id, retry) = (id.map(str::to_owned), retry.map(Duration::from_millis));
            position.read(&SseEvent { id, retry, ..SseEvent::default() });
        }
        position
    }

    #[test]
    fn a_stream_is_asked_for_from_its_last_id_after_the_wait_that_it_named() {
        for (label, events, last, wait) in [
            ("no event", &[][..], None, None),
            ("no id", &[(None, Some(500))][..], None, None),
            ("a priming event", &[(Some("a"), Some(500))][..], Some("a"), Some(500)),
            ("no wait", &[(Some("a"), None)][..], Some("a"), Some(1000)),
            (
                "the last of several",
                &[(Some("a"), Some(200)), (None, None), (Some("b"), None)][..],
                Some("b"),
                Some(200),
            ),
            ("taken back", &[(Some("a"), None), (Some(""), None)][..], None, None),
            ("no header", &[(Some("a\u{1}b"), None)][..], None, None),
        ] {
            let mut resumption = StreamResumption::default();
            resumption.ended(position(events));
            assert_eq!(resumption.wait(), wait.map(Duration::from_millis), "{label}");
            assert_eq!(resumption.last_event_id(), last.map(HeaderValue::from_static), "{label}");
        }
    }

    #[test]
    fn resumptions_that_bring_nothing_come_to_an_end() {
        let mut resumption = StreamResumption::default();
        resumption.ended(position(&[(Some("a"), Some(300))]));
        for n in 0..IN_VAIN {
            assert_eq!(resumption.wait(), Some(Duration::from_millis(300)), "{n}");
            resumption.ended(position(&[]));
        }
        assert_eq!(resumption.wait(), None);
        resumption.ended(position(&[(Some("b"), None)]));
        assert!(resumption.wait().is_some(), "an event gives new hope");
        assert_eq!(resumption.last_event_id(), Some(HeaderValue::from_static("b")));
    }

    #[test]
    fn a_server_cannot_have_itself_polled_for_ever() {
        let mut resumption = StreamResumption::default();
        let mut waits = 0;
        loop {
            resumption.ended(position(&[(Some("a"), None)]));
            if resumption.wait().is_none() {
                break;
            }
            waits += 1;
        }
        assert_eq!(waits, MOST);
    }
}
