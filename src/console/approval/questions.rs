//! The open approvals on the overview, one line each until they are opened. Approvals of one caller
//! about one item stand together.

use super::card::ApprovalCard;
use super::group_link::GroupLink;
use crate::policy::consent::{ApprovalView, SteadySeconds};

/// Most approvals that are opened from the start.
const FEW: usize = 3;
/// Most approvals that are listed. The others appear as these are answered.
const MAX_LISTED: usize = 200;

/// The open approvals on the overview, in groups.
#[derive(Debug)]
pub(crate) struct ListedApprovals {
    pub(crate) groups: Vec<ListedApprovalGroup>,
    /// Number of open approvals.
    pub(crate) count: usize,
    /// Number of approvals in `groups`.
    pub(crate) listed: usize,
    /// True if so few approvals wait that each is opened from the start.
    pub(crate) are_few: bool,
}

/// Open approvals of one caller about one item.
#[derive(Debug)]
pub(crate) struct ListedApprovalGroup {
    /// Link to the group's own page; `None` for a single approval.
    pub(crate) link: Option<GroupLink>,
    pub(crate) cards: Vec<ApprovalCard>,
}

impl ListedApprovals {
    /// Groups open approvals, which are given oldest first. Groups keep the order of their oldest
    /// approval.
    pub(crate) fn new(approvals: &[ApprovalView], now: SteadySeconds) -> Self {
        let mut groups: Vec<Vec<&ApprovalView>> = Vec::new();
        for approval in approvals.iter().take(MAX_LISTED) {
            match groups.iter_mut().find(|group| group.first().is_some_and(|first| first.is_beside(approval))) {
                Some(group) => group.push(approval),
                None => groups.push(vec![approval]),
            }
        }
        let group = |group: Vec<&ApprovalView>| ListedApprovalGroup {
            link: group.first().filter(|_| group.len() > 1).map(|first| GroupLink::to(first, group.len())),
            cards: group.into_iter().map(|approval| ApprovalCard::new(approval, now)).collect(),
        };
        Self {
            groups: groups.into_iter().map(group).collect(),
            count: approvals.len(),
            listed: approvals.len().min(MAX_LISTED),
            are_few: approvals.len() <= FEW,
        }
    }
}
