//! A lasting grant closes other open approvals too: the calls that it covers need no answer of
//! their own.

use super::closed_by::ApprovalCloser;
use super::{ApprovalsState, OpenState};
use crate::base::clock;
use crate::policy::consent::{ApprovalEnd, ApprovalGrant};

impl ApprovalsState {
    /// Closes the approvals that a live grant covers. Their calls are decided again from the start,
    /// as after an answer of their own.
    pub(super) fn release(&self, open: &mut OpenState, grant: &ApprovalGrant) {
        let (now, unused) = (clock::since_1970().as_secs(), self.grants.load().unused());
        if grant.is_over(now, unused) {
            return;
        }
        for id in open.desk.release(grant, now) {
            self.close(open, &id, ApprovalEnd::Granted, Some(ApprovalCloser::of(grant)));
        }
    }
}
