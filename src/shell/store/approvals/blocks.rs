//! Refusals of calls for a while, as an operator lists and ends them. They are in the memory of the
//! process that refuses.

use std::sync::Arc;

use super::Approvals;
use crate::policy::consent::{ApprovalId, CallBlock};

impl Approvals {
    /// Returns true if a person denied that approval of this process and the denial still blocks
    /// its action.
    pub(super) fn is_denied(&self, id: &ApprovalId) -> bool {
        let now = self.wall();
        self.inner.lock().desk.denial(id, now).is_some()
    }

    /// Lists the blocks of this process that are in force, ordered by their end.
    pub fn blocks(&self) -> Vec<CallBlock> {
        let now = self.wall();
        self.inner.lock().desk.blocks(now)
    }

    /// Ends a block of this process for the person `by`, and records that. Returns the block, or
    /// `None` if there is none.
    pub fn unblock(&self, id: &str, by: &str) -> Option<CallBlock> {
        let id = ApprovalId::parse(id)?;
        let now = self.wall();
        let ended = self.inner.lock().desk.end_block(&id, now)?;
        self.inner.unblocked(&ended, &Arc::from(by));
        self.inner.tell();
        Some(ended)
    }
}
