//! Whether this process serves its clients or stands in for a daemon that does not answer.

use crate::engine::failure::{CallFailure, ExecutionDoubt, FailureReason};
use crate::mcp::method::Method;

/// The role of this process towards its clients.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum GatewayRole {
    /// Starts the upstreams and makes calls.
    Serve,
    /// Stands in for a daemon that does not answer: shows the lists kept on disk, starts no
    /// upstream, makes no call and records nothing.
    StandIn,
}

impl GatewayRole {
    /// Returns the refusal of a method that needs an upstream, in a process that stands in;
    /// otherwise `None`.
    pub(super) fn refusal(self, method: Method) -> Option<CallFailure> {
        let needs_upstream = match method {
            Method::ToolsCall
            | Method::PromptsGet
            | Method::ResourcesRead
            | Method::Complete
            | Method::ResourcesSubscribe
            | Method::TasksGet
            | Method::TasksCancel
            | Method::TasksUpdate
            | Method::TasksResult => true,
            Method::Initialize
            | Method::Ping
            | Method::Discover
            | Method::Listen
            | Method::ToolsList
            | Method::PromptsList
            | Method::ResourcesList
            | Method::TemplatesList
            | Method::ResourcesUnsubscribe
            | Method::SetLevel
            | Method::TasksList
            | Method::Unknown => false,
        };
        let text = "The daemon does not answer, so nothing was done. Try again in a minute.";
        (self == Self::StandIn && needs_upstream)
            .then(|| CallFailure::new(FailureReason::DaemonAway, ExecutionDoubt::No, text))
    }
}
