//! Batches of JSON-RPC messages, which clients of 2025-03-26 may send and no others, on every transport.
//!
//! Source: MCP 2025-03-26, basic, "Batching".

use crate::engine::batch::parts;
use crate::mcp::version::Revision;
use crate::wire::frame::{Bounds, Frame};
use crate::wire::message::{Message, MessageError};
use crate::wire::raw::RawJson;

const MAX_MESSAGES: usize = 50;

/// A batch, whoever sent it.
pub(crate) struct Batch {
    /// In their order; none where they are too few or too many.
    messages: Vec<Result<Message, MessageError>>,
}

impl Batch {
    /// The batch that a frame holds; `None` for a single message.
    pub(crate) fn of(frame: &Frame, bounds: Bounds) -> Option<Self> {
        let mut parts = parts(frame)?;
        if parts.len() > MAX_MESSAGES {
            parts.clear();
        }
        let read = |part: RawJson| {
            let frame = Frame::from_client(part.into_bytes(), bounds).map_err(|_| MessageError::Syntax)?;
            Message::parse(&frame)
        };
        Some(Self { messages: parts.into_iter().map(read).collect() })
    }

    /// The requests in it, each of which counts for the rate of its caller.
    pub(crate) fn requests(&self) -> usize {
        self.messages.iter().filter(|message| matches!(message, Ok(Message::Request(_)))).count()
    }

    /// Why a client that speaks this revision may not send it.
    pub(crate) fn refusal(&self, revision: Option<Revision>) -> Option<&'static str> {
        if !revision.is_some_and(|revision| revision.features().batch) {
            Some("batches are not accepted in this protocol version")
        } else if self.messages.is_empty() {
            Some("a batch holds between 1 and 50 messages")
        } else {
            None
        }
    }

    pub(crate) fn into_messages(self) -> Vec<Result<Message, MessageError>> {
        self.messages
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn batch(text: &str) -> Option<Batch> {
        let frame = Frame::from_client(text.to_owned().into(), Bounds::CLIENT).unwrap();
        Batch::of(&frame, Bounds::CLIENT)
    }

    #[test]
    fn a_batch_is_told_from_a_message_and_its_requests_are_counted() {
        let request = r#"{"jsonrpc":"2.0","id":1,"method":"ping"}"#;
        let notice = r#"{"jsonrpc":"2.0","method":"notifications/initialized"}"#;
        let response = r#"{"jsonrpc":"2.0","id":"ask-1","result":{}}"#;
        assert!(batch(request).is_none());
        let (many, most) = (vec![request; 51].join(","), vec![request; 50].join(","));
        for (label, text, requests, messages) in [
            ("of each kind", format!(" [{request},{notice},{response},{request},7]"), 2, 5),
            ("no requests", format!("[{response},{notice}]"), 0, 2),
            ("the most", format!("[{most}]"), 50, 50),
            ("too many", format!("[{many}]"), 0, 0),
            ("none", "[]".to_owned(), 0, 0),
        ] {
            let batch = batch(&text).unwrap();
            assert_eq!(batch.requests(), requests, "{label}");
            for revision in [None, Some(Revision::V2024_11_05), Some(Revision::V2025_06_18)] {
                assert!(batch.refusal(revision).is_some(), "{label}");
            }
            assert_eq!(batch.refusal(Some(Revision::V2025_03_26)).is_some(), messages == 0, "{label}");
            assert_eq!(batch.into_messages().len(), messages, "{label}");
        }
    }
}
