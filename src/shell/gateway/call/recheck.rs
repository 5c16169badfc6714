//! The last check before a call is sent: its item and the deny rules in the newest snapshot.

use std::sync::Arc;

use crate::catalog::merge::CatalogEntry;
use crate::engine::failure::{CallFailure, ExecutionDoubt, FailureReason};
use crate::gateway::call::context::CallContext;
use crate::gateway::decision::gate::DiskGate;
use crate::policy::consent::below::OutlinedArguments;
use crate::policy::consent::{ApprovalGrant, ApprovalSubject};
use crate::policy::{AGAIN_RULE, Decision, PolicyAction, decide_again, is_still_allowed};
use crate::wire::json::raw::RawJson;

impl CallContext {
    /// Gives back what the permit took from limits, since the call was refused before it was sent.
    pub(super) fn give_back(&mut self) {
        let snapshot = self.service.snapshots.load_full();
        let PolicyAction { kind, upstream, canonical, .. } = &self.action;
        let rules = snapshot.policy.item_rules(*kind, upstream, canonical);
        self.permit.give_back(&snapshot.limiter, &snapshot.policy, &rules, &self.action);
    }

    /// Waits for the writes that have to be on disk before the call, then checks it a last time.
    ///
    /// # Errors
    /// The call must not be made.
    pub(super) async fn pass(&self, gate: &mut Option<DiskGate>, is_resumed: bool) -> Result<(), CallFailure> {
        if let Some(waiting) = gate {
            waiting.pass().await?;
            *gate = None;
        }
        self.recheck(is_resumed)
    }

    /// Refuses a call whose item was withdrawn or changed while it waited, whose access or approval
    /// was taken back, or that a rule now denies. Looks at the snapshot only if it is a new one.
    pub(super) fn recheck(&self, is_resumed: bool) -> Result<(), CallFailure> {
        let PolicyAction { kind, upstream, canonical, definition, .. } = &self.action;
        let refused = |text: &str| Err(CallFailure::new(FailureReason::Denied, ExecutionDoubt::No, text));
        if self.access.is_withdrawn() {
            return Err(self.given_up(ExecutionDoubt::No));
        }
        // A once-grant is checked when it is used up.
        let lasting = self.permit.grant().filter(|grant| !grant.is_once());
        if lasting.is_some_and(|grant| !self.service.approvals.grants().has(grant)) {
            return refused("The approval of this call was taken back.");
        }
        if *self.service.generation.borrow() == self.generation {
            return Ok(());
        }
        let snapshot = self.service.snapshots.load_full();
        let view = snapshot.view(self.action.profile.as_deref());
        let view = view.filter(|view| view.admits(&self.action.caller, &self.access));
        let same = self.view.item(self.entry).zip(view).and_then(|((then, _), view)| {
            let is_same = |entry: &&CatalogEntry| {
                entry.list == then.list && entry.canonical == then.canonical && entry.definition_digest == *definition
            };
            view.catalog.all_entries().iter().find(is_same)
        });
        let Some(entry) = same else {
            return refused("The item of this call has changed meanwhile; make the call again.");
        };
        let rules = snapshot.policy.item_rules(*kind, upstream, canonical);
        let (annotations, said, claims) = (entry.annotations, entry.said, entry.claims);
        let action = PolicyAction { annotations, said, claims, ..self.action.clone() };
        // A continuation keeps its permit unless a deny rule was added since.
        let allowed = if is_resumed || **self.permit.rule() == *AGAIN_RULE {
            matches!(decide_again(&snapshot.policy, &rules, &action), Decision::Allow(_))
        } else {
            // The rules may by now ask for more than the approval gave: another rule, or more
            // evidence.
            let (grants, text) = (self.service.approvals.grants(), action.arguments.as_ref().map(RawJson::text));
            let given = text.as_deref().map(OutlinedArguments::new);
            let consented = |rule: &Arc<str>, need| {
                let asked = ApprovalSubject::new(&action, rule, need);
                let covers = |grant: &ApprovalGrant| grant.covers_call(&asked, given.as_ref(), grants.places());
                self.permit.grant().is_some_and(|grant| covers(grant))
            };
            is_still_allowed(&snapshot.policy, &rules, &action, &consented)
        };
        if allowed { Ok(()) } else { refused("The policy does not allow this call any more.") }
    }
}
