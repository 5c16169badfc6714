//! The place of a call at its open prompt.

use std::sync::Arc;
use std::time::Instant;

use super::{Approvals, Open, Span};
use crate::base::clock;
use crate::policy::Entry;
use crate::policy::consent::{Asked, Grant, PromptId, Refused, Shown};

/// A call waits for the prompt as long as this lives: no equal call joins it, and a once-grant that comes of it is for this
/// call alone.
#[derive(Debug)]
pub struct Seat {
    approvals: Approvals,
    prompt: PromptId,
    is_carried: bool,
}

impl Approvals {
    /// Opens a prompt for a call that does not wait, or joins the open one about the very same action.
    ///
    /// # Errors
    /// Why the call is refused without a prompt.
    #[cfg(any(test, feature = "testing"))]
    pub fn ask(&self, asked: Asked, shown: Shown) -> Result<PromptId, Refused> {
        let seat = self.ask_for(
            asked,
            shown,
            Span::Person(std::time::Duration::from_secs(900)),
            None,
            Entry::new(crate::policy::Event::Prompt),
        )?;
        Ok(seat.prompt())
    }

    /// Opens a prompt for that time, or joins one about the very same action: the call's `own`, else one that no call waits for.
    /// The call waits for it as long as the seat lives. `entry` is what the audit log keeps of the call that asks.
    ///
    /// # Errors
    /// Why the call is refused without a prompt.
    pub fn ask_for(
        &self,
        asked: Asked,
        shown: Shown,
        span: Span,
        own: Option<&PromptId>,
        entry: Entry,
    ) -> Result<Seat, Refused> {
        let prompt = self.open_prompt(asked, shown, span, own, entry)?;
        Ok(Seat { approvals: self.clone(), prompt, is_carried: false })
    }
}

impl Seat {
    pub const fn prompt(&self) -> PromptId {
        self.prompt
    }

    /// Notes when the call gives up waiting.
    pub fn waits_until(&self, until: Instant) {
        let left = until.saturating_duration_since(clock::now()).as_secs();
        let until = self.approvals.wall() + left;
        self.approvals.inner.lock().desk.waits_until(&self.prompt, until);
    }

    /// Leaves the prompt to the console and the terminal: it is open as long as they may take.
    pub fn hand_over(&self) {
        self.approvals.hand_over(&self.prompt);
    }

    /// The call is answered with the question, and its client comes back with the answer.
    pub fn carry(mut self) {
        self.is_carried = true;
    }
}

impl Drop for Seat {
    fn drop(&mut self) {
        let now = clock::since_1970();
        let mut open = self.approvals.inner.lock();
        if self.is_carried {
            open.desk.carry(&self.prompt, now);
        } else {
            open.desk.leave(&self.prompt);
        }
        if let Some(grant) = open.reserved.remove(&self.prompt) {
            grant.release();
        }
        if open.desk.get(&self.prompt).is_some() {
            // Open pages show whether the agent still waits.
            self.approvals.inner.tell();
        }
    }
}

impl Open {
    /// Remembers the grant of a call that still waits, for the moment when it does no longer.
    pub(super) fn reserve(&mut self, id: &PromptId, grant: &Arc<Grant>) {
        if grant.is_reserved() {
            self.reserved.insert(*id, Arc::clone(grant));
        }
    }
}
