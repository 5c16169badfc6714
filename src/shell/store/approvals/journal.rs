//! Audit records of approvals and grants.

use std::sync::Arc;

use super::closed_by::ApprovalCloser;
use super::{Approvals, ApprovalsState};
use crate::policy::consent::{
    AnswerError, ApprovalEnd, ApprovalGrant, ApprovalId, ApprovalSubject, ApprovalView, CallBlock,
};
use crate::policy::{ActionKind, AuditEntry, AuditEvent};
use crate::store::audit::{AuditLog, RecordSlot};

impl Approvals {
    /// Sets the audit log in which approvals, answers and revocations are recorded from here on.
    /// Only the first call has an effect.
    pub fn record_in(&self, audit: AuditLog) {
        // The gateway calls this once at its start.
        drop(self.inner.audit.set(audit));
    }
}

impl ApprovalsState {
    /// Records an approval that was opened. `entry` describes the call that needs it, with its
    /// arguments as the log keeps those of decisions.
    pub(super) fn opened(&self, id: &ApprovalId, asked: &ApprovalSubject, entry: AuditEntry) {
        let AuditEntry { call, client, profile, facts, arguments, .. } = entry;
        let evidence = Some(asked.need);
        let entry = AuditEntry {
            call,
            client,
            profile,
            facts,
            arguments,
            evidence,
            ..approval_entry(AuditEvent::Prompt, id, asked)
        };
        if let Some(audit) = self.audit.get() {
            // No task waits for this record: the first use of a grant waits for its own record,
            // which comes later.
            drop(audit.record(entry, false));
        }
    }

    /// Records the end of an approval, unless the log has the record.
    pub(super) fn ended(&self, id: &ApprovalId, asked: &ApprovalSubject, how: ApprovalEnd, by: Option<ApprovalCloser>) {
        if !by.as_ref().is_some_and(|by| by.is_recorded) {
            self.record(end_entry(id, asked, how, by));
        }
    }

    /// Records that an approval ended with the daemon that opened it, which could not record that.
    pub(super) fn superseded(&self, row: &ApprovalView) {
        self.record(AuditEntry {
            caller: Some(row.caller.clone()),
            upstream: Some(Arc::from(row.upstream.as_str())),
            kind: row.kind.parse::<ActionKind>().ok(),
            item: Some(Arc::from(row.item.as_str())),
            rule: Some(Arc::from(row.rule.as_str())),
            approval: Some(Arc::from(row.id.as_str())),
            result: ApprovalEnd::Superseded.into_str(),
            ..AuditEntry::new(AuditEvent::Answer)
        });
    }

    /// Records that the person `by` revoked a grant.
    pub(super) fn revoked(&self, grant: &ApprovalGrant, by: &Arc<str>) {
        self.record(revocation_entry(Some(grant.asked()), grant.id(), by));
    }

    /// Records that the person `by` revoked a grant whose row could not be read.
    pub(super) fn revoked_unread(&self, grant: &Arc<str>, by: &Arc<str>) {
        self.record(revocation_entry(None, grant, by));
    }

    /// Records that the person `by` ended a block before its time.
    pub(super) fn unblocked(&self, block: &CallBlock, by: &Arc<str>) {
        let about_it = match &block.denial {
            Some(denial) => approval_entry(AuditEvent::Revoke, &block.id, &denial.asked),
            None => AuditEntry {
                caller: Some(block.caller.clone()),
                item: Some(Arc::clone(&block.item)),
                ..AuditEntry::new(AuditEvent::Revoke)
            },
        };
        self.record(AuditEntry { by: Some(Arc::clone(by)), result: "unblocked", ..about_it });
    }

    /// Records that a grant ended because its item or its session did.
    pub(super) fn invalidated(&self, grant: &ApprovalGrant) {
        self.record(record_ended(Some(grant.asked()), grant.id(), "invalidated"));
    }

    /// Waits for a place for the record of a grant.
    ///
    /// # Errors
    /// [`AnswerError::NotKept`], if the audit log takes no records any more.
    pub(super) async fn reserve(&self) -> Result<RecordSlot, AnswerError> {
        match self.audit.get() {
            Some(audit) => audit.reserve().await.map_err(|error| AnswerError::NotKept(error.to_string())),
            None => Ok(RecordSlot::default()),
        }
    }

    /// Records an event that has taken effect, if there is an audit log.
    fn record(&self, entry: AuditEntry) {
        if let Some(audit) = self.audit.get() {
            audit.record_done(entry);
        }
    }
}

/// Builds the record of the end of an approval, which `by` closed if a person or client did.
pub(super) fn end_entry(
    id: &ApprovalId,
    asked: &ApprovalSubject,
    how: ApprovalEnd,
    by: Option<ApprovalCloser>,
) -> AuditEntry {
    let entry = AuditEntry { result: how.into_str(), ..approval_entry(AuditEvent::Answer, id, asked) };
    let Some(ApprovalCloser { evidence, who, grant, scope, .. }) = by else { return entry };
    let why = scope.map_or(entry.why, Into::into);
    AuditEntry { evidence: Some(evidence), by: Some(who), grant, why, ..entry }
}

/// Builds the record of a grant that has ended. `asked` is its subject; `None` if its row could not
/// be read.
fn record_ended(asked: Option<&ApprovalSubject>, grant: &Arc<str>, why: &'static str) -> AuditEntry {
    AuditEntry {
        caller: asked.map(|asked| asked.caller.clone()),
        upstream: asked.map(|asked| Arc::clone(&asked.upstream)),
        kind: asked.map(|asked| asked.kind),
        item: asked.map(|asked| Arc::clone(&asked.item)),
        grant: Some(Arc::clone(grant)),
        result: why,
        ..AuditEntry::new(AuditEvent::Revoke)
    }
}

/// Builds the record of a grant that the person `by` revoked.
pub(super) fn revocation_entry(asked: Option<&ApprovalSubject>, grant: &Arc<str>, by: &Arc<str>) -> AuditEntry {
    AuditEntry { by: Some(Arc::clone(by)), ..record_ended(asked, grant, "revoked") }
}

/// Builds a record of that event about an approval and its subject.
fn approval_entry(event: AuditEvent, id: &ApprovalId, asked: &ApprovalSubject) -> AuditEntry {
    AuditEntry {
        caller: Some(asked.caller.clone()),
        session: asked.session,
        upstream: Some(Arc::clone(&asked.upstream)),
        kind: Some(asked.kind),
        item: Some(Arc::clone(&asked.item)),
        definition: Some(asked.definition),
        rule: Some(Arc::clone(&asked.rule)),
        approval: Some(Arc::from(id.to_string())),
        ..AuditEntry::new(event)
    }
}
