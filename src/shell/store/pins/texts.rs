//! Judges texts that are no definitions by their pins.

use std::sync::Arc;

use super::judge::hidden_reason;
use super::{HiddenReason, PinRegistry};
use crate::policy::{ChangePolicy, Digest, UpstreamTrust};
use crate::store::pin_record::{ListedDefinition, PinKey, PinStep, PinText};
use crate::wire::json::raw::RawJson;

/// A text that an upstream has shown.
#[derive(Clone, Copy, Debug)]
pub(super) struct SeenText<'t> {
    pub(super) text: &'t RawJson,
    pub(super) trust: UpstreamTrust,
    pub(super) on_change: ChangePolicy,
    /// True if the text is that of an earlier run, and in its approved form does not replace a
    /// change that waits.
    pub(super) is_recalled: bool,
}

impl PinRegistry {
    /// Judges a text: clients may see it if this returns `Ok`. A new or changed one is stored
    /// first, after the pins in `forget` are removed, and the change is announced. `doubt` returns
    /// a reason against the text; it is called only if a decision is needed. Blocks.
    ///
    /// # Errors
    /// The reason why the text is withheld.
    pub(super) fn judge_text(
        &self,
        key: &PinKey,
        seen: SeenText<'_>,
        forget: &[PinKey],
        doubt: impl FnOnce() -> Option<String>,
    ) -> Result<(), HiddenReason> {
        let SeenText { text, trust, on_change, is_recalled } = seen;
        let digest = Digest::of_json(text);
        let is_settled = self.book().of(key).is_some_and(|record| {
            let is_stale = is_recalled && record.pin.approved() == Some(digest);
            let waits = record.pin.waiting() == Some(digest) && on_change == ChangePolicy::Quarantine;
            is_stale || record.pin.shows(digest) || waits
        });
        let trouble = if is_settled {
            None
        } else {
            let step = PinStep::Seen {
                text: PinText { digest, text: Arc::from(text.text()) },
                listed: ListedDefinition::plain(digest),
                trust,
                on_change,
                doubt: doubt(),
                reading: None,
                is_for_all: true,
            };
            let stored = self.store_now(vec![(key.clone(), step)], forget);
            stored.map(|(_, stored)| self.tell(&stored, None, None)).err()
        };
        let book = self.book();
        match book.of(key) {
            Some(record) if record.pin.shows(digest) => Ok(()),
            Some(record) => Err(hidden_reason(record, trouble.as_ref())),
            None => {
                let why = trouble.map(|error| format!("its pin cannot be kept: {error}")).unwrap_or_default();
                Err(HiddenReason { why, state: None, is_unkept: true })
            }
        }
    }
}
