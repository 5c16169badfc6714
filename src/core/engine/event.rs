//! Events of a call: progress and questions, then exactly one outcome.

use crate::engine::ask::ServerRequest;
use crate::engine::call::Outcome;
use crate::wire::message::Notification;
use crate::wire::raw::RawJson;

/// An event of a call.
#[derive(Debug)]
pub enum ExchangeEvent {
    /// `params` of a progress notification of the upstream.
    Progress(RawJson),
    /// `params` of a log message of the upstream.
    Log(RawJson),
    /// The upstream wants to know something of the client.
    Ask(ServerRequest),
    /// A notification of a stream that was asked for as a whole.
    Notice(Notification),
    /// The server withdraws this request; its id.
    Withdrawn(RawJson),
    /// The server still works on it, so it has not fallen silent.
    Alive,
    Done(Outcome),
}
