//! The table of the notifications of servers and their subjects, for every transport.

use crate::mcp::method::ItemList;

/// The subject of a server's notification.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NoticeKind {
    /// Progress of a request.
    Progress,
    /// The server withdraws one of its requests.
    Cancelled,
    /// A log message.
    Log,
    /// The page that a client was asked to open is done. Only that client may learn it.
    ///
    /// Source: MCP 2025-11-25, client/elicitation, "Completion Notifications for URL Mode
    /// Elicitation".
    PageDone,
    /// A resource changed.
    Updated,
    /// These lists changed.
    Changed(&'static [ItemList]),
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
            method => match ItemList::of_notification(method) {
                [] => Self::Other,
                lists => Self::Changed(lists),
            },
        }
    }
}
