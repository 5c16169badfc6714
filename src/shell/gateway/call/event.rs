//! The events of a call that its client is sent.

use bytes::Bytes;

use crate::gateway::answer::RequestAnswer;

/// An event of a call for its client.
#[derive(Debug)]
pub enum ClientEvent {
    /// An encoded notification.
    Notice(Bytes),
    /// An encoded request, which must reach the client: the call waits for the answer.
    Question(Bytes),
    Done(RequestAnswer),
}
