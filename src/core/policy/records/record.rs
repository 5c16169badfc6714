//! Records of decisions, and the entries of the audit log that are made from them.

use std::borrow::Cow;
use std::sync::Arc;
use std::time::Duration;

use crate::policy::action::PolicyAction;
use crate::policy::decide::Decision;
use crate::policy::effect::{DEFAULT_RULE, DOUBT_RULE};
use crate::policy::kind::ActionKind;

mod entry;
mod list_changes;
mod operator_action;
mod removal;

pub use self::entry::{AuditEntry, AuditEvent};
pub use self::list_changes::{ListChange, ListChanges, MAX_SINGLE_CHANGES};
pub use self::operator_action::OperatorAction;
pub use self::removal::RecordRemoval;

/// The reason in records of calls by apps.
const BARE: &str = "called by its bare name";

/// A decision with its action and reason, to be recorded.
///
/// The arguments are the only text of the client in the entry, and the log digests them.
#[derive(Clone, Copy, Debug)]
pub struct DecisionRecord<'a> {
    pub action: &'a PolicyAction,
    pub decision: &'a Decision,
    /// The reason, for the operator.
    pub why: &'static str,
}

impl<'a> DecisionRecord<'a> {
    /// Makes the record of a decision.
    pub fn new(action: &'a PolicyAction, decision: &'a Decision) -> Self {
        let why = match (decision, &**decision.rule()) {
            (Decision::Limit { .. }, _) => "limit used up",
            (Decision::Scope { .. }, _) => "the credential lacks a scope",
            (_, DOUBT_RULE) => "facts do not fit together",
            (_, DEFAULT_RULE) => "no rule matches",
            (Decision::Allow(_) | Decision::Ask { .. } | Decision::Deny { .. }, _) => "rule matches",
        };
        Self { action, decision, why }
    }

    /// Returns the reason, and that the tool was called by its bare name.
    pub fn why(&self) -> Cow<'static, str> {
        if self.action.is_bare { format!("{}; {BARE}", self.why).into() } else { self.why.into() }
    }

    /// Returns the time that a limited call has to wait.
    pub const fn retry_after(&self) -> Option<Duration> {
        match self.decision {
            Decision::Limit { retry_after, .. } => Some(*retry_after),
            Decision::Allow(_) | Decision::Ask { .. } | Decision::Deny { .. } | Decision::Scope { .. } => None,
        }
    }

    /// Whether the record must be on disk before its call is sent.
    pub fn is_grave(&self) -> bool {
        matches!(self.decision, Decision::Allow(permit) if permit.is_grave(self.action.annotations))
    }

    /// Returns the entry for the audit log. `call` is the number of the call.
    pub fn entry(&self, call: Option<u64>) -> AuditEntry {
        let (grant, need) = match self.decision {
            Decision::Allow(permit) => (permit.grant(), None),
            Decision::Ask { need, .. } => (None, Some(*need)),
            Decision::Deny { .. } | Decision::Scope { .. } | Decision::Limit { .. } => (None, None),
        };
        AuditEntry {
            result: self.decision.into_str(),
            rule: Some(Arc::clone(self.decision.rule())),
            grant: grant.map(|grant| Arc::clone(grant.id())),
            evidence: grant.map(|grant| grant.evidence()).or(need),
            by: grant.map(|grant| Arc::clone(grant.by())),
            why: self.why(),
            ..self.action.entry(AuditEvent::Decision, call)
        }
    }
}

impl PolicyAction {
    /// Returns an entry of the audit log about the action. `call` is the number of the call.
    pub fn entry(&self, event: AuditEvent, call: Option<u64>) -> AuditEntry {
        AuditEntry {
            call,
            caller: Some(self.caller.clone()),
            client: self.client.clone(),
            session: Some(self.session),
            profile: self.profile.clone(),
            upstream: Some(Arc::clone(&self.upstream)),
            kind: Some(self.kind),
            item: Some(Arc::clone(&self.listed)),
            facts: (self.kind == ActionKind::Tool).then(|| self.facts()),
            definition: Some(self.definition),
            arguments: self.arguments.clone(),
            why: if self.is_bare { BARE.into() } else { "".into() },
            ..AuditEntry::new(event)
        }
    }
}

#[cfg(test)]
mod tests;
