//! Events of a call at an upstream: progress, log messages and questions, then exactly one outcome.

use crate::engine::call::CallOutcome;
use crate::engine::connection::ask::ServerRequest;
use crate::wire::json::raw::RawJson;
use crate::wire::message::Notification;

/// An event of a call at an upstream.
#[derive(Debug)]
pub enum CallEvent {
    /// The `params` of a progress notification.
    Progress(RawJson),
    /// The `params` of a log message.
    Log(RawJson),
    /// A question of the upstream to the client of the call.
    Ask(ServerRequest),
    /// A notification on the stream of a `subscriptions/listen` request.
    Notice(Notification),
    /// The id of a question that the server no longer wants answered.
    Withdrawn(RawJson),
    /// A sign that the server still works on the call, without any content.
    Alive,
    /// The request has waited and is not written: the next poll writes it. Dropping it instead
    /// sends nothing.
    Unwritten,
    Done(CallOutcome),
}
