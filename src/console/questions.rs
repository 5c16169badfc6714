//! The open approvals on the overview: one line each until they are opened, those of one caller about one item together.

use super::card::Card;
use super::group_link::GroupLink;
use crate::policy::consent::{ApprovalView, Wall};

/// So many are open from the start.
const FEW: usize = 3;
/// Most that are listed; the others come when these are answered.
const MAX_LISTED: usize = 200;

/// All that are listed.
#[derive(Debug)]
pub(crate) struct Questions {
    pub(crate) groups: Vec<QuestionGroup>,
    /// How many wait, and how many of them are listed.
    pub(crate) count: usize,
    pub(crate) listed: usize,
    /// Whether each is open from the start.
    pub(crate) are_few: bool,
}

/// Those of one caller about one item.
#[derive(Debug)]
pub(crate) struct QuestionGroup {
    /// Where there are several.
    pub(crate) link: Option<GroupLink>,
    pub(crate) cards: Vec<Card>,
}

impl Questions {
    /// In the order of the oldest of each group.
    pub(crate) fn new(approvals: &[ApprovalView], now: Wall) -> Self {
        let mut groups: Vec<Vec<&ApprovalView>> = Vec::new();
        for approval in approvals.iter().take(MAX_LISTED) {
            match groups.iter_mut().find(|group| group.first().is_some_and(|first| first.is_beside(approval))) {
                Some(group) => group.push(approval),
                None => groups.push(vec![approval]),
            }
        }
        let group = |group: Vec<&ApprovalView>| QuestionGroup {
            link: group.first().filter(|_| group.len() > 1).map(|first| GroupLink::to(first, group.len())),
            cards: group.into_iter().map(|approval| Card::new(approval, now)).collect(),
        };
        Self {
            groups: groups.into_iter().map(group).collect(),
            count: approvals.len(),
            listed: approvals.len().min(MAX_LISTED),
            are_few: approvals.len() <= FEW,
        }
    }
}
