//! Approvals in the store of a cluster: replicas that are asked about the same action have one open
//! approval, and an answer on one of them ends it on all.
//!
//! Each replica has the approval in its own memory, with its own calls and channels. The store
//! decides its id, before anybody is told of it, and which answer counts. A once-grant is used by
//! one of the calls; each other one is decided again and asked about anew.

use std::sync::Arc;

use tokio::sync::oneshot;

use super::closed_by::ApprovalCloser;
use super::unlisted::{ListedId, log_unlisted};
use super::{Approvals, ApprovalsState, OpenState};
use crate::base::clock;
use crate::policy::AuditEntry;
use crate::policy::consent::{ApprovalEnd, ApprovalId, ApprovalView};
use crate::store::port::{AnsweredElsewhere, DbError, OwnedApproval};

impl Approvals {
    /// Records an approval that was opened and lists it in the store. In a cluster it is recorded
    /// once the store has decided its id, which the returned receiver gets.
    pub(super) fn list(&self, open: &OpenState, id: &ApprovalId, entry: AuditEntry) -> Option<ListedId> {
        let inner = &self.inner;
        let approval = open.desk.get(id)?;
        let entered = inner.db.as_ref().map(|db| {
            let view = ApprovalView::new(approval, inner.grants.load().places());
            (db.replicas().is_some(), db.enter_approval(inner.owner(), view, approval.shared_digest()))
        });
        match entered {
            Some((true, entered)) => {
                let (done, listed) = oneshot::channel();
                let (inner, id) = (Arc::clone(inner), *id);
                entered.then(move |outcome| inner.listed(&id, entry, outcome, done));
                Some(listed)
            }
            Some((false, entered)) => {
                inner.opened(id, &approval.asked, entry);
                entered.then(|outcome| log_unlisted(outcome.map(drop)));
                None
            }
            None => {
                inner.opened(id, &approval.asked, entry);
                None
            }
        }
    }
}

impl ApprovalsState {
    /// Returns an approval of this process, as the store knows it.
    pub(super) fn owned(&self, id: &ApprovalId) -> OwnedApproval {
        OwnedApproval { id: id.to_string(), owner: self.owner() }
    }

    /// Gives a new approval the id that the store has decided, or closes it if it cannot be kept.
    fn listed(
        &self,
        id: &ApprovalId,
        entry: AuditEntry,
        outcome: Result<String, DbError>,
        done: oneshot::Sender<Option<ApprovalId>>,
    ) {
        let listed = outcome.as_ref().ok().and_then(|listed| ApprovalId::parse(listed));
        log_unlisted(outcome.map(drop));
        let mut open = self.lock();
        let waiting = open.waiting.remove(id);
        match (listed, waiting) {
            (Some(listed), Some(waiting)) => {
                open.desk.rename(id, listed);
                self.opened(&listed, &waiting.asked, entry);
                open.waiting.insert(listed, waiting);
                if done.send(Some(listed)).is_err() {
                    open.desk.leave(&listed);
                }
            }
            (None, Some(waiting)) => {
                open.desk.supersede(|approval| approval.id == *id);
                waiting.end.send_replace(Some(ApprovalEnd::Superseded));
                // The call of the approval may have ended.
                let _is_told = done.send(None).is_ok();
            }
            // Closed meanwhile under its own id.
            (Some(listed), None) if listed != *id => {
                if let Some(db) = &self.db {
                    db.remove_approval(self.owned(&listed), None).then(log_unlisted);
                }
            }
            (_, None) => {}
        }
        drop(open);
        self.tell();
    }

    /// Closes approvals that were answered on other replicas. Their calls are decided again or
    /// refused, as after an answer here.
    pub(super) fn close_answered(&self, ended: Vec<AnsweredElsewhere>) {
        let now = clock::since_1970().as_secs();
        for AnsweredElsewhere { approval, answer } in ended {
            let Some(id) = ApprovalId::parse(&approval) else { continue };
            let mut open = self.lock();
            open.desk.close_answered(&id, &answer, now);
            let how = if answer.is_denial { ApprovalEnd::Denied } else { ApprovalEnd::Granted };
            let by = ApprovalCloser {
                evidence: answer.evidence,
                who: Arc::from(answer.by),
                grant: None,
                scope: None,
                is_recorded: false,
            };
            self.close(&mut open, &id, how, Some(by));
        }
    }
}
