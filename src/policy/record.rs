//! What the audit log says about a decision.

use std::sync::Arc;
use std::time::Duration;

use super::decide::Decision;
use super::effect::{DEFAULT_RULE, DOUBT_RULE};
use super::facts::Facts;
use super::kind::Kind;

mod entry;

pub(crate) use self::entry::{Entry, Event};

/// What there is to say about one decision: who, what, decision, rule, why.
///
/// Gives no arguments, and of the client's text nothing at all.
#[derive(Clone, Copy)]
pub(crate) struct Record<'a> {
    facts: &'a Facts<'a>,
    item: &'a str,
    outcome: Outcome,
    rule: &'a Arc<str>,
    retry_after: Option<Duration>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Outcome {
    Allow,
    Ask,
    Deny,
    Limit,
}

impl<'a> Record<'a> {
    /// Records a decision.
    ///
    /// `item` is the canonical name of what the catalog has. For a URI that is not listed that is
    /// the template which it matched, or for a link the upstream's name: the URI itself is text of
    /// the client.
    pub(crate) fn new(facts: &'a Facts<'a>, item: &'a str, decision: &'a Decision) -> Self {
        let (outcome, rule, retry_after) = match decision {
            Decision::Allow(permit) => (Outcome::Allow, permit.rule(), None),
            Decision::Ask { rule, .. } => (Outcome::Ask, rule, None),
            Decision::Deny { rule, .. } => (Outcome::Deny, rule, None),
            Decision::Limit { limit, retry_after } => (Outcome::Limit, limit, Some(*retry_after)),
        };
        Self { facts, item, outcome, rule, retry_after }
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
        match (self.outcome, &**self.rule) {
            (Outcome::Limit, _) => "limit used up",
            (_, DOUBT_RULE) => "facts do not fit together",
            (_, DEFAULT_RULE) => "no rule matches",
            (Outcome::Allow | Outcome::Ask | Outcome::Deny, _) => "rule matches",
        }
    }

    /// The rule or limit that decided.
    pub(crate) const fn rule(&self) -> &'a Arc<str> {
        self.rule
    }

    /// The catalog's name of what was asked for.
    pub(crate) const fn item(&self) -> &'a str {
        self.item
    }

    pub(crate) const fn caller(&self) -> &'a str {
        self.facts.caller
    }

    pub(crate) const fn upstream(&self) -> &'a str {
        self.facts.upstream
    }

    pub(crate) const fn kind(&self) -> Kind {
        self.facts.kind
    }

    /// How long a limited call has to wait.
    pub(crate) const fn retry_after(&self) -> Option<Duration> {
        self.retry_after
    }
}

#[cfg(test)]
mod tests;
