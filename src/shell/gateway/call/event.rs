//! The events of a call for its client.

use bytes::Bytes;

use crate::gateway::answer::Answer;

/// The events of a call for its client.
#[derive(Debug)]
pub enum ClientEvent {
    /// A whole notification for the client.
    Notice(Bytes),
    /// A whole request to the client, which must reach it: the call waits for the answer.
    Question(Bytes),
    Done(Answer),
}
