//! The way to the approvals of one caller about one item.

use url::form_urlencoded;

use super::text::visible;
use crate::policy::consent::ApprovalView;

/// A link to the approvals of one caller about one item, where there are several.
#[derive(Debug)]
pub(crate) struct GroupLink {
    pub(crate) href: String,
    pub(crate) caller: String,
    pub(crate) name: String,
    pub(crate) count: usize,
}

impl GroupLink {
    /// To the group of this approval, of which so many are open.
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
