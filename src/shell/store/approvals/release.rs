//! A lasting grant closes other open approvals too: the calls that it covers need no answer of
//! their own.

use super::closed_by::By;
use super::{Inner, Open};
use crate::base::clock;
use crate::policy::consent::{Closed, Grant};

impl Inner {
    /// Closes the approvals that a live grant covers. Their calls are decided again from the start,
    /// as after an answer of their own.
    pub(super) fn release(&self, open: &mut Open, grant: &Grant) {
        let (now, unused) = (clock::since_1970().as_secs(), self.grants.load().unused());
        if grant.is_over(now, unused) {
            return;
        }
        for id in open.desk.release(grant, now) {
            self.close(open, &id, Closed::Granted, Some(By::of(grant)));
        }
    }
}
