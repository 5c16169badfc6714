//! Refusals of calls for a while, as an operator sees and ends them. They are in the memory of the
//! process that refuses.

use std::sync::Arc;

use super::Approvals;
use crate::policy::consent::{CallBlock, PromptId};

impl Approvals {
    /// Whether a person denied that prompt of this process, and the denial lasts.
    pub(super) fn is_denied(&self, id: &PromptId) -> bool {
        let now = self.wall();
        self.inner.lock().desk.denial(id, now).is_some()
    }

    /// The blocks of this process that last, the first to end first.
    pub fn blocks(&self) -> Vec<CallBlock> {
        let now = self.wall();
        self.inner.lock().desk.blocks(now)
    }

    /// Ends a block of this process for the person `by`, who is recorded. Returns what it was;
    /// `None` where there is none.
    pub fn unblock(&self, id: &str, by: &str) -> Option<CallBlock> {
        let id = PromptId::parse(id)?;
        let now = self.wall();
        let ended = self.inner.lock().desk.end_block(&id, now)?;
        self.inner.unblocked(&ended, &Arc::from(by));
        self.inner.tell();
        Some(ended)
    }
}
