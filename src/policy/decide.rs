//! The decision about one call.

use std::sync::Arc;
use std::time::Duration;

use super::limit::{Limited, Limiter};
use super::permit::Permit;
use super::rule::Rule;
use super::{Effect, ItemRules, Kind, Policy};

/// What is known about a call when it is decided.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Facts<'a> {
    /// Who the client is, after authentication. Never empty.
    pub(crate) caller: &'a str,
    pub(crate) upstream: &'a str,
    /// Canonical name of the item, see [`Policy::item_rules`].
    pub(crate) canonical: &'a str,
    pub(crate) kind: Kind,
}

/// What becomes of a call.
#[derive(Debug)]
pub(crate) enum Decision {
    Allow(Permit),
    /// `rule` is a rule's id, [`DEFAULT_RULE`](super::DEFAULT_RULE) or
    /// [`DOUBT_RULE`](super::DOUBT_RULE). When `hidden`, the answer is that of an unknown item.
    Deny {
        rule: Arc<str>,
        hidden: bool,
    },
    /// Someone has to consent first.
    Ask {
        rule: Arc<str>,
    },
    /// Allowed by the rules, but not before `retry_after` has passed.
    Limit {
        limit: Arc<str>,
        retry_after: Duration,
    },
}

/// Decides one call; draws from the limits if, and only if, it is allowed.
///
/// `item` must be of this policy and of the item that `facts` name, and `limiter` of this policy,
/// else the call is denied: a mixture of snapshots is not decided on. `now` is the time since 1970
/// on a clock that never goes back.
pub(crate) fn decide(
    policy: &Policy,
    item: &ItemRules,
    facts: &Facts<'_>,
    limiter: &Limiter,
    now: Duration,
) -> Decision {
    let rule = match ruled(policy, item, facts) {
        Ok(rule) => rule,
        Err(refusal) => return refusal,
    };
    match limiter.take(policy, item, facts, now) {
        Ok(taken) => Decision::Allow(Permit::mint(Arc::clone(rule)).with(taken)),
        Err(Limited::Until { limit, retry_after }) => Decision::Limit { limit, retry_after },
        Err(Limited::Foreign) => Decision::Deny { rule: Arc::clone(&policy.doubt_id), hidden: true },
    }
}

/// Decides a request about a call that was decided before and goes on as a task. The rules of now hold; limits count calls, and
/// this is none.
pub(crate) fn decide_again(policy: &Policy, item: &ItemRules, facts: &Facts<'_>) -> Decision {
    match ruled(policy, item, facts) {
        Ok(rule) => Decision::Allow(Permit::mint(Arc::clone(rule))),
        Err(refusal) => refusal,
    }
}

/// The rule that allows, or what is decided instead.
fn ruled<'p>(policy: &'p Policy, item: &'p ItemRules, facts: &Facts<'_>) -> Result<&'p Arc<str>, Decision> {
    let fits = item.kind == facts.kind && *item.upstream == *facts.upstream && *item.canonical == *facts.canonical;
    if !fits {
        return Err(Decision::Deny { rule: Arc::clone(&policy.doubt_id), hidden: true });
    }
    match judge(policy, item, facts.caller) {
        Verdict::Deny(rule) => Err(Decision::Deny { rule: Arc::clone(rule), hidden: true }),
        Verdict::Ask(rule) => Err(Decision::Ask { rule: Arc::clone(rule) }),
        Verdict::Allow(rule) => Ok(rule),
    }
}

/// What the rules say, with the id of the first that says so.
#[derive(Debug)]
pub(super) enum Verdict<'p> {
    Deny(&'p Arc<str>),
    Ask(&'p Arc<str>),
    Allow(&'p Arc<str>),
}

/// Asks the rules; limits play no part.
pub(super) fn judge<'p>(policy: &'p Policy, item: &'p ItemRules, caller: &str) -> Verdict<'p> {
    if !item.sound || !policy.stamp.is(&item.stamp) || caller.is_empty() {
        return Verdict::Deny(&policy.doubt_id);
    }
    if let Some(rule) = first(&item.deny, caller) {
        return Verdict::Deny(&rule.id);
    }
    if let Some(rule) = first(&item.ask, caller) {
        return Verdict::Ask(&rule.id);
    }
    if let Some(rule) = first(&item.allow, caller) {
        return Verdict::Allow(&rule.id);
    }
    match policy.default {
        Effect::Deny => Verdict::Deny(&policy.default_id),
        Effect::Ask => Verdict::Ask(&policy.default_id),
        Effect::Allow => Verdict::Allow(&policy.default_id),
    }
}

fn first<'r>(rules: &'r [Arc<Rule>], caller: &str) -> Option<&'r Rule> {
    rules.iter().find(|rule| rule.target.covers(caller)).map(|rule| &**rule)
}

#[cfg(test)]
mod tests;
