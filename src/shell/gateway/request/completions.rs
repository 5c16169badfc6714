//! Completions of items whose calls need a consent: what they complete to tells of the server, so nobody learns it before a person
//! has agreed to calls.

use std::sync::Arc;

use crate::config::Completions;
use crate::gateway::decision::found::Found;
use crate::gateway::service::Service;
use crate::policy::consent::Asked;
use crate::policy::{Action, Decision, Kind, may_ask, still_allowed};

impl Service {
    /// Why the completions of an item are answered empty: a rule asks about its calls, and the caller has no live grant for longer
    /// than once. Completions that are denied are not this function's.
    ///
    /// `action` is the completion.
    pub(super) fn keeps_completions(&self, found: &Found<'_>, action: &Action) -> Option<Decision> {
        let policy = &found.snapshot.policy;
        let (rule, need) = may_ask(policy, found.rules, action)?;
        let passes = found.handle.spec.load().completions == Completions::Pass;
        let rules = policy.item_rules(action.kind, &action.upstream, &action.canonical);
        if passes || !still_allowed(policy, &rules, action, &|_, _| true) {
            return None;
        }
        let asked = Asked { kind: Kind::from(found.entry.list), ..Asked::new(action, rule, need) };
        let lasting = self.approvals.grants().lasting(&asked, self.approvals.wall());
        (!lasting).then(|| Decision::Ask { rule: Arc::clone(rule), need })
    }
}
