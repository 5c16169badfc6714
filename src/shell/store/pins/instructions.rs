//! Judges the instructions of an upstream by their pin.

use std::sync::Arc;

use super::judge::hidden_reason;
use super::{HiddenReason, PinRegistry};
use crate::catalog::name::UpstreamName;
use crate::mcp::instructions::pin_text_of;
use crate::policy::{ChangePolicy, Digest, UpstreamTrust};
use crate::store::pin_record::{ListedDefinition, PinKey, PinStep, PinText};

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
        let key = PinKey::instructions(upstream);
        let text = pin_text_of(instructions);
        let digest = Digest::of_json(&text);
        let is_settled = self.book().of(&key).is_some_and(|record| {
            let is_stale = is_recalled && record.pin.approved() == Some(digest);
            is_stale || record.pin.shows(digest) || record.pin.waiting() == Some(digest)
        });
        let trouble = if is_settled {
            None
        } else {
            let step = PinStep::Seen {
                text: PinText { digest, text: Arc::from(text.text()) },
                listed: ListedDefinition::plain(digest),
                trust,
                on_change: ChangePolicy::Quarantine,
                doubt: doubt(),
                reading: None,
                is_for_all: true,
            };
            self.take_now(vec![(key.clone(), step)]).err()
        };
        let book = self.book();
        match book.of(&key) {
            Some(record) if record.pin.shows(digest) => Ok(()),
            Some(record) => Err(hidden_reason(record, trouble.as_ref())),
            None => {
                let why = trouble.map(|error| format!("its pin cannot be kept: {error}")).unwrap_or_default();
                Err(HiddenReason { why, state: None, is_unkept: true })
            }
        }
    }
}
