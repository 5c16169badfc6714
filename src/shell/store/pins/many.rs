//! Many pins at once: the views that an operator is shown, and one decision about all of them.

use std::collections::HashMap;
use std::sync::Arc;

use super::{PinError, PinRegistry, PinView};
use crate::base::clock;
use crate::catalog::glob::glob;
use crate::policy::Digest;
use crate::store::db::DbError;
use crate::store::pin_record::{PinKey, PinKind, PinStep};

/// A pin, and the digest of the text that the operator was shown of it.
#[derive(Clone, Debug, serde::Serialize, serde::Deserialize)]
pub struct PinDecision {
    pub name: String,
    pub kind: PinKind,
    #[serde(rename = "digest")]
    pub shown: Digest,
}

/// Compiles a pattern to a predicate over canonical names.
///
/// # Errors
/// A sentence about the mistake in the pattern.
pub fn compile_pattern(pattern: &str) -> Result<impl Fn(&str) -> bool + use<>, String> {
    let matcher = glob(pattern)?.compile_matcher();
    Ok(move |name: &str| matcher.is_match(name))
}

impl PinRegistry {
    /// Returns the pins with these names, in that order; names without a pin are left out.
    pub fn views(&self, wanted: &[(String, PinKind)]) -> Vec<PinView> {
        let keys = self.keys_of(wanted.iter().map(|(name, kind)| (name.as_str(), *kind)));
        let book = self.book();
        let found = wanted.iter().filter_map(|(name, kind)| keys.get(&(name.as_str(), *kind)));
        found.filter_map(|key| Some(PinView::new(key, book.of(key)?, book.launch_of_tool(key)))).collect()
    }

    /// Approves or rejects all of these pins in one write, and announces the changes. A pin whose
    /// text is no longer the shown one is not decided, the others are. The results are in the order
    /// of the decisions.
    ///
    /// # Errors
    /// When the store cannot be read or written; then nothing is decided.
    pub async fn decide_all(
        &self,
        decisions: &[PinDecision],
        approve: bool,
        by: &str,
    ) -> Result<Vec<Result<PinView, PinError>>, DbError> {
        self.refresh().await?;
        let by: Arc<str> = Arc::from(by);
        let keys = self.keys_of(decisions.iter().map(|decision| (decision.name.as_str(), decision.kind)));
        let key = |decision: &PinDecision| keys.get(&(decision.name.as_str(), decision.kind)).cloned();
        let step = |decision: &PinDecision| {
            let (shown, by) = (decision.shown, Arc::clone(&by));
            let step = if approve { PinStep::Approve { shown, by } } else { PinStep::Reject { shown, by } };
            Some((key(decision)?, step))
        };
        let steps: Vec<(PinKey, PinStep)> = decisions.iter().filter_map(step).collect();
        let now = clock::unix_seconds();
        let taken = match &self.0.db {
            Some(db) => db.take_steps(steps, Vec::new(), now).run().await?,
            None => self.take_in_memory(steps, now),
        };
        self.tell(&self.put(&taken, &[]), Some(&by), None);
        let mut stepped = taken.stepped.into_iter();
        let told = |decision: &PinDecision| {
            let unknown = || PinError::Unknown(decision.name.clone());
            key(decision).ok_or_else(unknown)?;
            let (key, after) = stepped.next().ok_or_else(unknown)?;
            Ok(PinView::new(&key, &after?, self.book().launch_of_tool(&key)))
        };
        Ok(decisions.iter().map(told).collect())
    }

    /// Finds the keys of pins by their canonical names.
    fn keys_of<'n>(&self, wanted: impl Iterator<Item = (&'n str, PinKind)>) -> HashMap<(&'n str, PinKind), PinKey> {
        let wanted: HashMap<(&str, PinKind), (&'n str, PinKind)> = wanted.map(|pair| (pair, pair)).collect();
        let book = self.book();
        let found = book.iter().filter_map(|(key, _)| {
            let name = key.canonical();
            let pair = wanted.get(&(name.as_str(), key.kind))?;
            Some((*pair, key))
        });
        found.collect()
    }
}
