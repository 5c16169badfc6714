//! The notifications of servers: one table of what each is about, for every transport on which it can come.

use crate::mcp::method::List;

/// What a notification of a server is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum NoticeKind {
    /// How far a request has come.
    Progress,
    /// A request of the server is withdrawn.
    Cancelled,
    Log,
    /// A page that a client was asked to open needs it no more. Only the client that was asked may be told.
    ///
    /// Source: MCP 2025-11-25, client/elicitation, "Completion Notifications for URL Mode Elicitation".
    PageDone,
    /// A resource has changed.
    Updated,
    /// These lists have changed.
    Changed(&'static [List]),
    Other,
}

impl NoticeKind {
    pub(crate) fn of(method: &str) -> Self {
        match method {
            "notifications/progress" => Self::Progress,
            "notifications/cancelled" => Self::Cancelled,
            "notifications/message" => Self::Log,
            "notifications/elicitation/complete" => Self::PageDone,
            "notifications/resources/updated" => Self::Updated,
            method => match List::of_notification(method) {
                [] => Self::Other,
                lists => Self::Changed(lists),
            },
        }
    }
}
