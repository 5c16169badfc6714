//! Links to the page of all open approvals of one caller about one item.

use url::form_urlencoded;

use crate::console::text::visible;
use crate::policy::consent::ApprovalView;

/// A link to the open approvals of one caller about one item.
#[derive(Debug)]
pub(crate) struct GroupLink {
    pub(crate) href: String,
    pub(crate) caller: String,
    pub(crate) name: String,
    /// Number of approvals in the group.
    pub(crate) count: usize,
}

impl GroupLink {
    /// Makes the link to the group of this approval, of which `count` are open.
    pub(crate) fn to(approval: &ApprovalView, count: usize) -> Self {
        let mut query = form_urlencoded::Serializer::new(String::new());
        query.append_pair("caller", approval.caller.key()).append_pair("kind", &approval.kind);
        query.append_pair("item", &approval.item);
        Self {
            href: format!("/group?{}", query.finish()),
            caller: visible(approval.caller.name()),
            name: visible(&approval.exposed),
            count,
        }
    }
}
