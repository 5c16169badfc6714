//! Approvals that several replicas of a cluster have open together.

use super::ApprovalDesk;
use crate::policy::consent::{ApprovalId, OpenApproval, SteadySeconds};
use crate::policy::evidence::ApprovalEvidence;
use crate::wire::digest::Digest;

/// The answer that ended an approval for all processes that have it open.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SharedAnswer {
    /// Whether the call was denied; else it was granted.
    pub is_denial: bool,
    pub evidence: ApprovalEvidence,
    /// The person or client that answered.
    pub by: String,
}

impl OpenApproval {
    /// Returns the digest by which replicas find an open approval about the same action. It covers
    /// all that a person is shown, so that an answer means the same on each of them.
    pub fn shared_digest(&self) -> Digest {
        let asked = &self.asked;
        let rest = format!("{}{}", asked.need.into_str(), asked.destructive);
        Digest::of(&[asked.action().bytes(), self.digest().bytes(), rest.as_bytes()].concat())
    }
}

impl ApprovalDesk {
    /// Gives an open approval another id: that of the same approval on another replica.
    pub fn rename(&mut self, id: &ApprovalId, to: ApprovalId) {
        if self.approvals.contains_key(&to) {
            return;
        }
        if let Some(mut entry) = self.approvals.remove(id) {
            entry.approval.id = to;
            self.approvals.insert(to, entry);
        }
    }

    /// Closes an approval that was answered on another replica, with the effects of that answer.
    pub fn close_answered(&mut self, id: &ApprovalId, answer: &SharedAnswer, now: SteadySeconds) {
        let Some(entry) = self.approvals.remove(id) else { return };
        self.fatigue.answered(&entry.approval.asked, &entry.approval.shown.client_name(), now);
        if answer.is_denial {
            self.fatigue.denied(&entry.approval, &answer.by, answer.evidence, now);
        }
    }
}
