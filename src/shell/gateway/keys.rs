//! Keys that seal values which clients carry from one request to the next: cursors, states of
//! calls, task ids. The key of task ids lives as long as the process. The others are derived from
//! the store's secret, if there is a store, and survive a restart.

use std::sync::Arc;

use crate::base::clock;
use crate::base::current_run::CurrentRun;
use crate::catalog::page::CursorKey;
use crate::engine::sealed::state::{StateKey, StatePayload, StateScope};
use crate::engine::sealed::task_id::TaskKey;
use crate::store::db::{Db, DbError};
use crate::store::states::UsedStates;
use crate::wire::secrets::SealSecrets;

/// The sealing keys, and the record of used states.
#[derive(Debug)]
pub struct Keys {
    pub cursors: CursorKey,
    pub states: StateKey,
    pub task_ids: TaskKey,
    pub used: UsedStates,
    /// The run that marks states and tasks which are in the memory of this process.
    pub run: Arc<CurrentRun>,
}

impl Keys {
    /// Loads the keys of a store, or makes new ones without a store. Blocks. `None` if a key cannot
    /// be made, which does not happen.
    ///
    /// # Errors
    /// The store cannot be read.
    pub fn open(db: Option<&Db>) -> Result<Option<Self>, DbError> {
        let secrets = |purpose| {
            let kept = db.map(|db| db.secrets(purpose)).transpose()?.flatten();
            Ok::<SealSecrets, DbError>(kept.unwrap_or_else(|| SealSecrets::new(clock::random())))
        };
        let used = UsedStates::open(db.cloned())?;
        let cursors = CursorKey::new(&secrets("cursors 1")?);
        let keys = StateKey::new(&secrets("states 1")?).zip(TaskKey::new(&clock::random()));
        Ok(keys.map(|(states, task_ids)| Self { cursors, states, task_ids, used, run: Arc::default() }))
    }

    /// Seals the state with which a client continues a call in the round after `round`; `None`
    /// after too many rounds. A state that leads to the memory of this process is marked with its
    /// run.
    pub fn seal_state(&self, scope: &StateScope<'_>, round: u8, carried: StatePayload) -> Option<String> {
        let run = self.run.get().filter(|_| carried.is_local());
        let sealed = self.states.next(scope, round, carried, clock::since_1970(), clock::random())?;
        Some(run.map_or_else(|| sealed.clone(), |run| run.mark(&sealed)))
    }
}
