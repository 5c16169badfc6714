//! Withholds completions of items whose calls need an approval: values reveal facts about the
//! server, so no client sees them before a person has approved such calls.

use std::sync::Arc;

use crate::config::CompletionScope;
use crate::gateway::decision::found::FoundItem;
use crate::gateway::service::Service;
use crate::policy::consent::ApprovalSubject;
use crate::policy::{ActionKind, Decision, PolicyAction, asking_rule, is_still_allowed};

impl Service {
    /// Returns the decision because of which completions of an item are answered empty: a rule asks
    /// about its calls, and the caller has no live grant that lasts longer than one call. `None` if
    /// they are passed on, or denied anyway. `action` is the completion.
    pub(super) fn keeps_completions(&self, found: &FoundItem<'_>, action: &PolicyAction) -> Option<Decision> {
        let policy = &found.snapshot.policy;
        let (rule, need) = asking_rule(policy, found.rules, action)?;
        let passes = found.handle.spec.load().completions == CompletionScope::Pass;
        let rules = policy.item_rules(action.kind, &action.upstream, &action.canonical);
        if passes || !is_still_allowed(policy, &rules, action, &|_, _| true) {
            return None;
        }
        let asked =
            ApprovalSubject { kind: ActionKind::from(found.entry.list), ..ApprovalSubject::new(action, rule, need) };
        let lasting = self.approvals.grants().lasting(&asked, self.approvals.wall());
        (!lasting).then(|| Decision::Ask { rule: Arc::clone(rule), need })
    }
}
