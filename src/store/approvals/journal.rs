//! Audit records of approvals and grants.

use std::sync::Arc;

use super::closed_by::By;
use super::{Approvals, Inner};
use crate::policy::consent::{Asked, Closed, Grant, PromptId};
use crate::policy::{Entry, Event};
use crate::store::audit::Audit;

impl Approvals {
    /// Has each prompt, answer and revocation from here on recorded.
    pub(crate) fn record_in(&self, audit: Audit) {
        // Told once, by the gateway that has both.
        drop(self.inner.audit.set(audit));
    }
}

impl Inner {
    /// `entry` is about the call that asks; the log has its arguments as it has those of decisions.
    pub(super) fn opened(&self, id: &PromptId, asked: &Asked, entry: Entry) {
        let Entry { call, client, profile, facts, arguments, .. } = entry;
        let evidence = Some(asked.need);
        self.record(Entry { call, client, profile, facts, arguments, evidence, ..about(Event::Prompt, id, asked) });
    }

    pub(super) fn ended(&self, id: &PromptId, asked: &Asked, how: Closed, by: Option<By>) {
        let entry = Entry { result: how.into_str(), ..about(Event::Answer, id, asked) };
        let Some(By { evidence, who, grant }) = by else { return self.record(entry) };
        self.record(Entry { evidence: Some(evidence), by: Some(who), grant, ..entry });
    }

    /// A grant is no more, for another reason than its use.
    pub(super) fn took_back(&self, grant: &Grant, why: &'static str) {
        self.record(ended(Some(grant.asked()), grant.id(), why));
    }

    /// A grant was revoked that this process could not read.
    pub(super) fn took_back_unread(&self, grant: &Arc<str>) {
        self.record(ended(None, grant, "revoked"));
    }

    fn record(&self, entry: Entry) {
        if let Some(audit) = self.audit.get() {
            // No call hangs on it: the first use of a grant waits for its own record, which comes after this one.
            drop(audit.record(entry, false));
        }
    }
}

/// The record of a grant that is no more; it was about nothing that is known where its row cannot be read.
pub(super) fn ended(asked: Option<&Asked>, grant: &Arc<str>, why: &'static str) -> Entry {
    Entry {
        caller: asked.map(|asked| Arc::clone(&asked.caller)),
        upstream: asked.map(|asked| Arc::clone(&asked.upstream)),
        kind: asked.map(|asked| asked.kind),
        item: asked.map(|asked| Arc::clone(&asked.item)),
        grant: Some(Arc::clone(grant)),
        result: why,
        ..Entry::new(Event::Revoke)
    }
}

fn about(event: Event, id: &PromptId, asked: &Asked) -> Entry {
    Entry {
        caller: Some(Arc::clone(&asked.caller)),
        session: asked.session,
        upstream: Some(Arc::clone(&asked.upstream)),
        kind: Some(asked.kind),
        item: Some(Arc::clone(&asked.item)),
        definition: Some(asked.definition),
        rule: Some(Arc::clone(&asked.rule)),
        prompt: Some(Arc::from(id.to_string())),
        ..Entry::new(event)
    }
}
