//! Messages of clients about calls and questions that the daemon before still has.

use bytes::Bytes;
use parking_lot::Mutex;
use serde::{Deserialize, Serialize};
use tokio::sync::mpsc;

use crate::wire::frame::{Frame, JsonBounds};
use crate::wire::message::{Message, Response, encode_answer, encode_notification};

/// Longest message for the daemon before, in bytes.
const MAX_BYTES: usize = 64 << 10;

/// A message of a session's client: an answer to a question, or a notification.
#[derive(Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PriorMessage {
    session: String,
    /// The message as JSON, at most [`MAX_BYTES`] long.
    text: String,
}

impl PriorMessage {
    pub(super) fn session(&self) -> &str {
        &self.session
    }

    /// Reads the message; `None` if it is of another kind.
    pub(super) fn read(self) -> Option<Message> {
        let frame = Frame::from_client(self.text.into(), JsonBounds::CLIENT).ok()?;
        let message = Message::parse(&frame).ok()?;
        matches!(message, Message::Response(_) | Message::Notification(_)).then_some(message)
    }
}

/// The queue of messages to the daemon before, while there is one.
#[derive(Debug, Default)]
pub(super) struct PriorQueue(Mutex<Option<mpsc::Sender<PriorMessage>>>);

impl PriorQueue {
    pub(super) fn set(&self, queue: Option<mpsc::Sender<PriorMessage>>) {
        *self.0.lock() = queue;
    }

    /// Copies a message of that session for the daemon before; `None` without one.
    pub(super) fn copy_message(&self, session: &str, message: &Message) -> Option<PriorMessage> {
        self.0.lock().as_ref()?;
        let text = encode(message).filter(|text| text.len() <= MAX_BYTES)?;
        Some(PriorMessage { session: session.to_owned(), text: String::from_utf8(text.into()).ok()? })
    }

    /// Queues a copy. Beyond the queue's room it is lost, and the call or question ends by its own
    /// time.
    pub(super) fn queue_message(&self, kept: Option<PriorMessage>) {
        if let (Some(queue), Some(kept)) = (&*self.0.lock(), kept) {
            drop(queue.try_send(kept));
        }
    }
}

/// Encodes a response or notification; `None` for another message.
fn encode(message: &Message) -> Option<Bytes> {
    match message {
        Message::Response(Response { id: Some(id), outcome, .. }) => Some(encode_answer(id, outcome)),
        Message::Notification(notice) => Some(encode_notification(&notice.method, notice.params.as_ref())),
        Message::Response(_) | Message::Request(_) => None,
    }
}
