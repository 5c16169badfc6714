//! Reads what a client sends: one message, or a batch, which only clients of 2025-03-26 may send.
//! Every transport reads alike.
//!
//! Source: MCP 2025-03-26, basic, "Batching".

use bytes::Bytes;

use crate::engine::connection::batch::split_array;
use crate::engine::route::RequestParams;
use crate::mcp::version::Revision;
use crate::wire::code;
use crate::wire::frame::{Frame, FrameError, JsonBounds};
use crate::wire::id::ClientId;
use crate::wire::json::raw::RawJson;
use crate::wire::message::{Message, MessageError, Notification, Request, error_object};

/// Most messages in a batch.
const MAX_MESSAGES: usize = 50;

/// A message, or the error for bytes that are no message.
pub type ClientMessage = Result<Message, MessageRefusal>;

/// The content of one line or body.
#[derive(Debug)]
pub enum ClientInput {
    Message(ClientMessage),
    Batch(ClientBatch),
}

/// The error for bytes that are no message.
#[derive(Debug)]
pub struct MessageRefusal {
    /// Id of the request, if it could be read.
    pub id: Option<ClientId>,
    pub error: RawJson,
}

impl From<FrameError> for MessageRefusal {
    fn from(error: FrameError) -> Self {
        let code = match error {
            FrameError::NotUtf8 | FrameError::Syntax => code::PARSE_ERROR,
            FrameError::TooDeep | FrameError::TooManyNodes | FrameError::DuplicateKey => code::INVALID_REQUEST,
        };
        Self { id: None, error: error_object(code, &error.to_string(), None) }
    }
}

impl From<MessageError> for MessageRefusal {
    fn from(error: MessageError) -> Self {
        let text = error.to_string();
        match error {
            MessageError::Syntax => FrameError::Syntax.into(),
            MessageError::Shape { id, .. } => Self { id, error: error_object(code::INVALID_REQUEST, &text, None) },
        }
    }
}

impl ClientInput {
    /// Reads the bytes of a line or body.
    pub fn read(bytes: Bytes, bounds: JsonBounds) -> Self {
        match Frame::from_client(bytes, bounds) {
            Ok(frame) => Self::of(&frame, bounds),
            Err(error) => Self::Message(Err(error.into())),
        }
    }

    /// Reads a frame that was admitted.
    pub fn of(frame: &Frame, bounds: JsonBounds) -> Self {
        match split_array(frame) {
            Some(parts) => Self::Batch(ClientBatch::of(parts, bounds)),
            None => Self::Message(Message::parse(frame).map_err(MessageRefusal::from)),
        }
    }

    /// Returns the number of requests, each of which counts for the rate of its caller.
    pub fn requests(&self) -> usize {
        let messages = match self {
            Self::Message(said) => std::slice::from_ref(said),
            Self::Batch(ClientBatch(messages)) => messages,
        };
        messages.iter().filter(|said| matches!(said, Ok(Message::Request(_)))).count()
    }
}

/// The messages of a batch in their order. Empty if there were none, or more than [`MAX_MESSAGES`].
#[derive(Debug)]
pub struct ClientBatch(Vec<ClientMessage>);

impl ClientBatch {
    /// Reads the messages of a batch; none if there are more than [`MAX_MESSAGES`].
    fn of(mut parts: Vec<RawJson>, bounds: JsonBounds) -> Self {
        if parts.len() > MAX_MESSAGES {
            parts.clear();
        }
        let read =
            |part: RawJson| -> ClientMessage { Ok(Message::parse(&Frame::from_client(part.into_bytes(), bounds)?)?) };
        Self(parts.into_iter().map(read).collect())
    }

    /// Returns why a client that speaks this revision may not send the batch; `None` if it may.
    pub fn refusal(&self, revision: Option<Revision>) -> Option<&'static str> {
        if !revision.is_some_and(|revision| revision.features().batch) {
            Some("batches are not accepted in this protocol version")
        } else if self.0.is_empty() {
            Some("a batch holds between 1 and 50 messages")
        } else if self.0.iter().flatten().any(claims_revision) {
            Some("a message in a batch claims a protocol version of its own; send it alone")
        } else {
            None
        }
    }

    pub fn into_messages(self) -> Vec<ClientMessage> {
        self.0
    }
}

/// Returns whether a message claims to be of the modern era, rightly or not.
pub fn claims_revision(message: &Message) -> bool {
    match message {
        Message::Request(Request { params, .. }) | Message::Notification(Notification { params, .. }) => {
            RequestParams::read(params.as_ref()).is_ok_and(|params| params.meta.has_claim())
        }
        Message::Response(_) => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn heard(text: &str) -> ClientInput {
        ClientInput::read(text.to_owned().into(), JsonBounds::CLIENT)
    }

    #[test]
    fn a_batch_is_told_from_a_message_and_its_requests_are_counted() {
        let request = r#"{"jsonrpc":"2.0","id":1,"method":"ping"}"#;
        let notice = r#"{"jsonrpc":"2.0","method":"notifications/initialized"}"#;
        let response = r#"{"jsonrpc":"2.0","id":"ask-1","result":{}}"#;
        for (text, requests) in [(request, 1), (notice, 0), (response, 0), ("7", 0), ("{", 0)] {
            let heard = heard(text);
            assert!(matches!(heard, ClientInput::Message(_)) && heard.requests() == requests, "{text}");
        }
        let (many, most) = (vec![request; 51].join(","), vec![request; 50].join(","));
        for (label, text, requests, messages) in [
            ("of each kind", format!(" [{request},{notice},{response},{request},7]"), 2, 5),
            ("no requests", format!("[{response},{notice}]"), 0, 2),
            ("the most", format!("[{most}]"), 50, 50),
            ("too many", format!("[{many}]"), 0, 0),
            ("none", "[]".to_owned(), 0, 0),
        ] {
            let heard = heard(&text);
            assert_eq!(heard.requests(), requests, "{label}");
            let ClientInput::Batch(batch) = heard else { panic!("{label}: no batch") };
            for revision in [None, Some(Revision::V2024_11_05), Some(Revision::V2025_06_18)] {
                assert!(batch.refusal(revision).is_some(), "{label}");
            }
            assert_eq!(batch.refusal(Some(Revision::V2025_03_26)).is_some(), messages == 0, "{label}");
            assert_eq!(batch.into_messages().len(), messages, "{label}");
        }
    }

    #[test]
    fn nothing_in_a_batch_claims_a_revision_of_its_own() {
        for (params, refused) in [
            (r#"{"_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28"}}"#, true),
            (r#"{"_meta":{"io.modelcontextprotocol/protocolVersion":7}}"#, true),
            (r#"{"_meta":{"progressToken":1}}"#, false),
            (r#"{"_meta":7}"#, false),
            ("[]", false),
        ] {
            for id in [r#""id":1,"#, ""] {
                let text = format!(
                    r#"[{{"jsonrpc":"2.0","id":2,"method":"ping"}},{{"jsonrpc":"2.0",{id}"method":"x","params":{params}}}]"#
                );
                let ClientInput::Batch(batch) = heard(&text) else { panic!("no batch") };
                assert_eq!(batch.refusal(Some(Revision::V2025_03_26)).is_some(), refused, "{text}");
            }
        }
    }

    #[test]
    fn what_is_no_message_is_refused_under_its_id_where_it_has_one() {
        for (text, id, start) in [
            ("{", None, r#"{"code":-32700,"#),
            ("\u{feff}[1", None, r#"{"code":-32700,"#),
            (r#"{"a":1,"a":2}"#, None, r#"{"code":-32600,"#),
            (r#"{"jsonrpc":"1.0","id":7,"method":"ping"}"#, Some("7"), r#"{"code":-32600,"#),
            ("7", None, r#"{"code":-32600,"#),
        ] {
            let ClientInput::Message(Err(unreadable)) = heard(text) else { panic!("{text}: a message") };
            assert_eq!(unreadable.id.as_ref().map(|id| id.raw().text().into_owned()).as_deref(), id, "{text}");
            assert!(unreadable.error.text().starts_with(start), "{text}: {}", unreadable.error.text());
        }
    }
}
