//! Uses of sealed states: each state continues a call once, over all processes and restarts.
//!
//! A use has two halves. [`UsedStates::is_first`] decides at once, from memory, whether the call is
//! a continuation; the uses of earlier processes are read at the start. [`UsedStates::keep`] is
//! awaited before the call goes on: the use is on disk then, and no other process has made it.

use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;

use crate::base::clock;
use crate::engine::failure::{CallFailure, ExecutionDoubt, FailureReason};
use crate::engine::sealed::state::StateUse;
use crate::engine::sealed::used::{CAPACITY, UsedStateTable};
use crate::store::db::{Db, DbError};

/// Time after which a call may be retried if the use of its state could not be written.
const STORE_WAIT: Duration = Duration::from_secs(1);

/// The used states of this process and those before it; clones share them.
#[derive(Clone, Debug)]
pub struct UsedStates {
    db: Option<Db>,
    used: Arc<Mutex<UsedStateTable>>,
}

impl UsedStates {
    /// Reads the used states of a database. Without one they are forgotten with the process, and so
    /// is the key that seals states. Blocks.
    ///
    /// # Errors
    /// When the database cannot be read.
    pub fn open(db: Option<Db>) -> Result<Self, DbError> {
        let mut used = UsedStateTable::default();
        if let Some(db) = &db {
            let now = clock::since_1970();
            // The store refuses those that found no room.
            for state in db.used_states(now.as_secs(), CAPACITY).run_now()? {
                used.first(state, now);
            }
        }
        Ok(Self { db, used: Arc::new(Mutex::new(used)) })
    }

    /// Marks a state as used in memory; returns true if it was not used before.
    pub fn is_first(&self, state: StateUse) -> bool {
        self.used.lock().first(state, clock::since_1970())
    }

    /// Waits until the use of a state is on disk. Must be awaited before the call goes on.
    ///
    /// # Errors
    /// The refusal of the call, if the state was used already or its use cannot be written.
    pub async fn keep(&self, state: StateUse) -> Result<(), CallFailure> {
        let Some(db) = &self.db else { return Ok(()) };
        match db.use_state(state, clock::since_1970().as_secs()).run().await {
            Ok(true) => Ok(()),
            Ok(false) => {
                let text = "The answers to this call's questions were used already; make the call again.";
                Err(CallFailure::new(FailureReason::Denied, ExecutionDoubt::No, text))
            }
            Err(_) => {
                // Nothing was written, so the state may be used again. If the write did happen, the
                // store refuses the next use.
                self.used.lock().give_back(&state.id);
                let text = "The use of the answers to this call's questions cannot be recorded at the moment, so it did not go on.";
                Err(CallFailure::new(db.health().failure_reason(), ExecutionDoubt::No, text).retry_after(STORE_WAIT))
            }
        }
    }
}

#[cfg(test)]
mod tests;
