//! Withholds completions of items whose calls need an approval: values reveal facts about the
//! server, so no client sees them before a person has approved such calls.

use std::sync::Arc;

use crate::config::Completions;
use crate::gateway::decision::found::Found;
use crate::gateway::service::Service;
use crate::policy::consent::Asked;
use crate::policy::{Action, Decision, Kind, may_ask, still_allowed};

impl Service {
    /// Returns the decision because of which completions of an item are answered empty: a rule asks
    /// about its calls, and the caller has no live grant that lasts longer than one call. `None` if
    /// they are passed on, or denied anyway. `action` is the completion.
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
