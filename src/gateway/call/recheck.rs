//! A last look before a call is sent: whether what was decided about still is what it was.

use crate::engine::call::{Executed, Failure, Reason};
use crate::gateway::call::{Action, Call};
use crate::policy::{AGAIN_RULE, Decision, Facts, decide_again, still_allowed};

impl Call {
    /// Refuses a call that waited while its item was withdrawn or changed, or while a rule came that denies it.
    pub(super) fn recheck(&self) -> Result<(), Failure> {
        let Action { kind, canonical, definition, arguments, generation } = &self.action;
        let refused = |text: &str| Err(Failure::new(Reason::Denied, Executed::No, text));
        // One for a single call is looked at where it is used up.
        let lasting = self.permit.grant().filter(|grant| !grant.is_once());
        if lasting.is_some_and(|grant| !self.service.approvals.grants().has(grant)) {
            return refused("The approval of this call was taken back.");
        }
        if *self.service.generation.borrow() == *generation {
            return Ok(());
        }
        let snapshot = self.service.snapshots.load_full();
        let profile = Some(self.view.name.as_str()).filter(|name| !name.is_empty());
        let same = self.view.item(self.entry).zip(snapshot.view(profile)).and_then(|((then, _), view)| {
            let is_same = |entry: &&crate::catalog::merge::Entry| {
                entry.list == then.list && entry.canonical == then.canonical && entry.definition_digest == *definition
            };
            view.catalog.entries().iter().find(is_same)
        });
        let Some(entry) = same else { return refused("What this call is about has changed meanwhile.") };
        let upstream = self.handle.name.as_str();
        let rules = snapshot.policy.item_rules(*kind, upstream, canonical);
        let facts = Facts {
            caller: &self.wants.caller,
            profile: &self.view.name,
            upstream,
            canonical,
            kind: *kind,
            annotations: entry.annotations,
            arguments: arguments.as_ref(),
        };
        // What goes on with a call that was sent has its permit already; only a deny takes it back.
        let goes_on =
            **self.permit.rule() == *AGAIN_RULE || self.waiting.as_ref().is_some_and(|outgoing| outgoing.resumed);
        let allowed = if goes_on {
            matches!(decide_again(&snapshot.policy, &rules, &facts), Decision::Allow(_))
        } else {
            still_allowed(&snapshot.policy, &rules, &facts, self.permit.grant().is_some())
        };
        if allowed { Ok(()) } else { refused("The policy does not allow this call any more.") }
    }
}
