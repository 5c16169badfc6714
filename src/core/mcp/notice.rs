//! The notifications of servers: one table of their subjects, for every transport.

use crate::mcp::method::List;

/// Subject of a server's notification.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NoticeKind {
    /// Progress of a request.
    Progress,
    /// The server withdraws a request.
    Cancelled,
    Log,
    /// A page that a client was asked to open is done. Only the client that was asked may learn it.
    ///
    /// Source: MCP 2025-11-25, client/elicitation, "Completion Notifications for URL Mode Elicitation".
    PageDone,
    /// A resource changed.
    Updated,
    /// These lists changed.
    Changed(&'static [List]),
    Other,
}

impl NoticeKind {
    pub fn of(method: &str) -> Self {
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
