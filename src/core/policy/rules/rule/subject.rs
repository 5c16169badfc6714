//! The subject of a decision, against which rules are matched.

use crate::policy::action::{PolicyAction, ToolFacts};
use crate::policy::caller::{Caller, CallerRights, Groups};

/// The caller, its groups and profile, and the facts of the item, against which rules are matched.
#[derive(Clone, Copy, Debug)]
pub struct RuleSubject<'a> {
    pub caller: &'a Caller,
    pub groups: &'a Groups,
    /// The client's profile, empty for none.
    pub profile: &'a str,
    pub facts: ToolFacts,
}

impl<'a> RuleSubject<'a> {
    /// Makes the subject for a caller with the groups of its credential.
    pub fn new(caller: &'a Caller, rights: &'a CallerRights, profile: &'a str, facts: impl Into<ToolFacts>) -> Self {
        Self { caller, groups: &rights.groups, profile, facts: facts.into() }
    }

    /// Makes the subject for a caller that is in no group.
    pub fn ungrouped(caller: &'a Caller, profile: &'a str, facts: impl Into<ToolFacts>) -> Self {
        Self { caller, groups: Groups::empty(), profile, facts: facts.into() }
    }

    /// Makes the subject for the caller and item of an action.
    pub(in crate::policy) fn of(action: &'a PolicyAction) -> Self {
        Self::new(&action.caller, &action.rights, action.profile(), action.facts())
    }
}
