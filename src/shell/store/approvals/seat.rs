//! The tie between a waiting call and its open approval.

use std::sync::Arc;
use std::time::Instant;

use super::unlisted::ListedId;
use super::{ApprovalLife, Approvals, OpenState};
use crate::base::clock;
use crate::policy::AuditEntry;
use crate::policy::consent::{ApprovalGrant, ApprovalId, ApprovalRefusal, ApprovalSubject, CallDetails};

/// A call's hold on its open approval while the call waits. No equal call joins the approval
/// meanwhile, and a once-grant from it is for this call alone. Dropping it leaves the approval open
/// without a waiting call.
#[derive(Debug)]
pub struct ApprovalWait {
    approvals: Approvals,
    approval: ApprovalId,
    /// Whether the client comes back with the answer.
    is_carried: bool,
    /// The approval's id in the store of a cluster, until it is known.
    listed: Option<ListedId>,
}

impl Approvals {
    /// Opens an approval for a call that does not wait, or joins the open one about the same
    /// action.
    ///
    /// # Errors
    /// [`ApprovalRefusal`], if the call is refused without an approval.
    #[cfg(any(test, feature = "testing"))]
    pub fn ask(&self, asked: ApprovalSubject, shown: CallDetails) -> Result<ApprovalId, ApprovalRefusal> {
        let mut seat = self.ask_for(
            asked,
            shown,
            ApprovalLife::Person(std::time::Duration::from_secs(900)),
            None,
            AuditEntry::new(crate::policy::AuditEvent::Prompt),
        )?;
        if let (false, Some(db)) = (seat.is_listed(), self.db()) {
            // Blocks: the id is known once the store has answered. A failure closes the approval.
            drop(db.all_so_far().run_now());
            let listed = seat.listed.take().and_then(|mut listed| listed.try_recv().ok()).flatten();
            seat.approval = listed.unwrap_or(seat.approval);
        }
        Ok(seat.approval())
    }

    /// Opens an approval with that life, or joins one about the same action: the call's `own`, else
    /// one that no call waits for. The call waits for it while the returned value lives. `entry`
    /// describes the call in the audit log.
    ///
    /// # Errors
    /// [`ApprovalRefusal`], if the call is refused without an approval.
    pub fn ask_for(
        &self,
        asked: ApprovalSubject,
        shown: CallDetails,
        span: ApprovalLife,
        own: Option<&ApprovalId>,
        entry: AuditEntry,
    ) -> Result<ApprovalWait, ApprovalRefusal> {
        let (approval, listed) = self.open_approval(asked, shown, span, own, entry)?;
        Ok(ApprovalWait { approvals: self.clone(), approval, is_carried: false, listed })
    }
}

impl ApprovalWait {
    pub const fn approval(&self) -> ApprovalId {
        self.approval
    }

    /// Returns whether the approval has its final id. Nobody may be told of another one.
    pub const fn is_listed(&self) -> bool {
        self.listed.is_none()
    }

    /// Waits until the approval is in the store of the cluster, and returns its final id; `None` if
    /// it cannot be kept, and is closed. Cancel-safe.
    pub async fn wait_until_listed(&mut self) -> Option<ApprovalId> {
        if let Some(listed) = &mut self.listed {
            let id = listed.await.ok().flatten();
            self.listed = None;
            self.approval = id?;
        }
        Some(self.approval)
    }

    /// Notes the time at which the call stops waiting.
    pub fn waits_until(&self, until: Instant) {
        let left = until.saturating_duration_since(clock::now()).as_secs();
        let until = self.approvals.wall() + left;
        self.approvals.inner.lock().desk.waits_until(&self.approval, until);
    }

    /// Leaves the approval to the console and the terminal: it stays open as long as they may take.
    pub fn hand_over(&self) {
        self.approvals.hand_over(&self.approval);
    }

    /// Ends the wait because the call is answered with the question; its client comes back with the
    /// person's answer.
    pub fn carry(mut self) {
        self.is_carried = true;
    }
}

impl Drop for ApprovalWait {
    fn drop(&mut self) {
        let now = clock::since_1970();
        let mut open = self.approvals.inner.lock();
        if let Some(mut listed) = self.listed.take() {
            listed.close();
            self.approval = listed.try_recv().ok().flatten().unwrap_or(self.approval);
        }
        if self.is_carried {
            open.desk.carry(&self.approval, now);
        } else {
            open.desk.leave(&self.approval);
        }
        if let Some(grant) = open.reserved.remove(&self.approval) {
            grant.release();
        }
        open.pass_later(&self.approval);
        if open.desk.get(&self.approval).is_some() {
            // Open pages show whether the agent still waits.
            self.approvals.inner.tell();
        }
    }
}

impl OpenState {
    /// Remembers the once-grant of a call that still waits, to be released for equal calls when it
    /// no longer does.
    pub(super) fn reserve(&mut self, id: &ApprovalId, grant: &Arc<ApprovalGrant>) {
        if grant.is_reserved() {
            self.reserved.insert(*id, Arc::clone(grant));
        }
    }
}
