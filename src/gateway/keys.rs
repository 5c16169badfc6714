//! Keys of what clients carry from one request to the next: cursors, states of calls, task ids. That of cursors is made of the
//! store's key, where there is one, and outlives the process; the others live as long as it does.

use parking_lot::Mutex;

use crate::base::clock;
use crate::catalog::page::CursorKey;
use crate::engine::state::{StateId, StateKey};
use crate::engine::task_id::TaskKey;
use crate::engine::used::Used;
use crate::store::db::Db;
use crate::wire::secrets::Secrets;

/// All keys, and which states were used.
#[derive(Debug)]
pub(crate) struct Keys {
    pub(crate) cursors: CursorKey,
    pub(crate) states: StateKey,
    pub(crate) task_ids: TaskKey,
    used: Mutex<Used>,
}

impl Keys {
    /// Those of a store, or new ones; `None` never happens.
    pub(crate) fn open(db: Option<&Db>) -> Option<Self> {
        let (states, task_ids) = (StateKey::new(&clock::random())?, TaskKey::new(&clock::random())?);
        let secrets = db.and_then(|db| db.secrets("cursors 1")).unwrap_or_else(|| Secrets::new(clock::random()));
        Some(Self { cursors: CursorKey::new(&secrets), states, task_ids, used: Mutex::default() })
    }

    /// Whether a call goes on with this state for the first time.
    pub(crate) fn is_first(&self, state: StateId) -> bool {
        self.used.lock().first(state, clock::uptime())
    }
}
