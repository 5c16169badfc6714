//! Seals the values of the store anew after a change of the key, in a running gateway and in a
//! store without a daemon.

use serde::{Deserialize, Serialize};

use super::OperatorRefusal;
use crate::store::db::{Db, ResealPosition};

/// Most values that one transaction seals.
const STEP: usize = 100;
/// Most runs over all values. A run skips rows by their number, so one that moves meanwhile is
/// found by the next run.
const RUNS: usize = 8;
/// Most names of lost values in the answer.
const MAX_NAMES: usize = 50;

#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(default)]
pub(crate) struct RekeyParams {
    /// Id of the key in the command's configuration; `None` if the command knows none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) key: Option<String>,
}

/// Result of sealing the store anew.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct RekeyView {
    /// Id of the key that seals, as it stands in sealed values.
    pub(crate) key: String,
    /// Number of values that were sealed anew.
    pub(crate) sealed: usize,
    /// Number of values that no key opens; they stay as they are.
    pub(crate) lost_count: usize,
    /// The names of the first of them.
    pub(crate) lost: Vec<String>,
    /// Where the keys are that only open.
    pub(crate) earlier: Vec<String>,
}

/// Seals every value of an earlier key with the present one, in transactions of bounded size. An
/// interrupted run loses nothing; the next one seals what is left.
///
/// # Errors
/// If there is no key, the command expects another one, or the store cannot be written.
pub(crate) async fn rekey(db: &Db, params: &RekeyParams) -> Result<RekeyView, OperatorRefusal> {
    let no_key = || OperatorRefusal::refused("there is no key: nothing is sealed, and [secrets] has none");
    let key = db.current_key().ok_or_else(no_key)?;
    if params.key.as_ref().is_some_and(|expected| *expected != key) {
        return Err(OperatorRefusal::refused(
            "the running daemon seals with another key than `key` in [secrets] of this command's configuration; restart the \
             daemon, or name its configuration by --config",
        ));
    }
    let mut view = RekeyView {
        key,
        sealed: 0,
        lost_count: 0,
        lost: Vec::new(),
        earlier: db.earlier_keys().into_iter().map(str::to_owned).collect(),
    };
    for _ in 0..RUNS {
        let before = view.sealed;
        (view.lost_count, view.lost) = (0, Vec::new());
        let mut next = Some(ResealPosition::default());
        while let Some(from) = next {
            let part = db.reseal(from, STEP).run().await.map_err(OperatorRefusal::unusable)?;
            view.sealed += part.sealed;
            view.lost_count += part.lost.len();
            let room = MAX_NAMES.saturating_sub(view.lost.len());
            view.lost.extend(part.lost.into_iter().take(room));
            next = part.next;
        }
        if view.sealed == before {
            break;
        }
    }
    // A reader in another process keeps the journal; the next checkpoint empties it.
    if let Err(error) = db.forget_resealed().run().await {
        tracing::debug!(error = %error, "the journal of the store is not emptied yet");
    }
    Ok(view)
}
