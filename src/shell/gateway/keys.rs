//! Keys of what clients carry from one request to the next: cursors, states of calls, task ids. The keys of task ids live as long
//! as the process; the others are made of the store's key, where there is one, and outlive it.

use crate::base::clock;
use crate::catalog::page::CursorKey;
use crate::engine::state::StateKey;
use crate::engine::task_id::TaskKey;
use crate::store::db::{Db, DbError};
use crate::store::states::UsedStates;
use crate::wire::secrets::Secrets;

/// All keys, and which states were used.
#[derive(Debug)]
pub struct Keys {
    pub cursors: CursorKey,
    pub states: StateKey,
    pub task_ids: TaskKey,
    pub used: UsedStates,
}

impl Keys {
    /// Those of a store, or new ones; `None` never happens. Blocks.
    ///
    /// # Errors
    /// When the store cannot be read.
    pub fn open(db: Option<&Db>) -> Result<Option<Self>, DbError> {
        let secrets = |purpose| {
            let kept = db.map(|db| db.secrets(purpose)).transpose()?.flatten();
            Ok::<Secrets, DbError>(kept.unwrap_or_else(|| Secrets::new(clock::random())))
        };
        let used = UsedStates::open(db.cloned())?;
        let cursors = CursorKey::new(&secrets("cursors 1")?);
        let keys = StateKey::new(&secrets("states 1")?).zip(TaskKey::new(&clock::random()));
        Ok(keys.map(|(states, task_ids)| Self { cursors, states, task_ids, used }))
    }
}
