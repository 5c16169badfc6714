//! What the audit log says about a decision.

use std::sync::Arc;
use std::time::Duration;

use super::decide::{Decision, Facts};
use super::{DEFAULT_RULE, DOUBT_RULE, Kind};

mod entry;

pub(crate) use self::entry::{Entry, Event};

/// One decision as a value: who, what, decision, rule, why.
///
/// Holds no arguments, and of the client's text nothing at all.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Record {
    caller: Arc<str>,
    upstream: Arc<str>,
    kind: Kind,
    item: Arc<str>,
    outcome: Outcome,
    rule: Arc<str>,
    retry_after: Option<Duration>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Outcome {
    Allow,
    Ask,
    Deny,
    Limit,
}

impl Record {
    /// Records a decision.
    ///
    /// `item` is the canonical name of what the catalog has. For a URI that is not listed that is
    /// the template which it matched, or for a link the upstream's name: the URI itself is text of
    /// the client.
    pub(crate) fn new(facts: &Facts<'_>, item: &str, decision: &Decision) -> Self {
        let (outcome, rule, retry_after) = match decision {
            Decision::Allow(permit) => (Outcome::Allow, permit.rule(), None),
            Decision::Ask { rule, .. } => (Outcome::Ask, rule, None),
            Decision::Deny { rule, .. } => (Outcome::Deny, rule, None),
            Decision::Limit { limit, retry_after } => (Outcome::Limit, limit, Some(*retry_after)),
        };
        Self {
            caller: Arc::from(facts.caller),
            upstream: Arc::from(facts.upstream),
            kind: facts.kind,
            item: Arc::from(item),
            outcome,
            rule: Arc::clone(rule),
            retry_after,
        }
    }

    /// The decision in one word, also for metric labels.
    pub(crate) const fn decision(&self) -> &'static str {
        match self.outcome {
            Outcome::Allow => "allow",
            Outcome::Ask => "ask",
            Outcome::Deny => "deny",
            Outcome::Limit => "limit",
        }
    }

    /// Why it was decided so, for the operator.
    pub(crate) fn why(&self) -> &'static str {
        match (self.outcome, &*self.rule) {
            (Outcome::Limit, _) => "limit used up",
            (_, DOUBT_RULE) => "facts do not fit together",
            (_, DEFAULT_RULE) => "no rule matches",
            (Outcome::Allow | Outcome::Ask | Outcome::Deny, _) => "rule matches",
        }
    }

    /// The rule or limit that decided.
    pub(crate) fn rule(&self) -> &str {
        &self.rule
    }

    /// The catalog's name of what was asked for.
    pub(crate) fn item(&self) -> &str {
        &self.item
    }

    pub(crate) fn caller(&self) -> &str {
        &self.caller
    }

    pub(crate) fn upstream(&self) -> &str {
        &self.upstream
    }

    pub(crate) const fn kind(&self) -> Kind {
        self.kind
    }

    /// The decision as an event of the audit log.
    pub(crate) fn entry(&self, call: u64) -> Entry {
        Entry {
            call: Some(call),
            caller: Some(Arc::clone(&self.caller)),
            upstream: Some(Arc::clone(&self.upstream)),
            kind: Some(self.kind),
            item: Some(Arc::clone(&self.item)),
            result: self.decision(),
            rule: Some(Arc::clone(&self.rule)),
            why: self.why().into(),
            ..Entry::new(Event::Decision)
        }
    }

    /// How long a limited call has to wait.
    pub(crate) const fn retry_after(&self) -> Option<Duration> {
        self.retry_after
    }
}

#[cfg(test)]
mod tests;
