//! Judges the instructions of an upstream by their pin.

use super::texts::SeenText;
use super::{HiddenReason, PinRegistry};
use crate::catalog::name::UpstreamName;
use crate::mcp::instructions::pin_text_of;
use crate::policy::{ChangePolicy, UpstreamTrust};
use crate::store::pin_record::PinKey;

impl PinRegistry {
    /// Judges an upstream's instructions: clients may see them if this returns `Ok`. New and
    /// changed ones are stored first, and the change is announced. A changed text waits whatever
    /// `on-change` says. `is_recalled`: the text is that of an earlier run, and in its approved
    /// form does not replace a change that waits. `doubt` returns a reason against the text; it is
    /// called only if a decision is needed. Blocks.
    ///
    /// # Errors
    /// The reason why the instructions are withheld.
    pub fn judge_instructions(
        &self,
        upstream: &UpstreamName,
        trust: UpstreamTrust,
        instructions: &str,
        is_recalled: bool,
        doubt: impl FnOnce() -> Option<String>,
    ) -> Result<(), HiddenReason> {
        let text = pin_text_of(instructions);
        let seen = SeenText { text: &text, trust, on_change: ChangePolicy::Quarantine, is_recalled };
        self.judge_text(&PinKey::instructions(upstream), seen, &[], doubt)
    }
}
