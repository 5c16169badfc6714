//! Keys of what clients carry from one request to the next: cursors, states of calls, task ids. They live as long as the process.

use parking_lot::Mutex;

use crate::base::clock;
use crate::catalog::page::CursorKey;
use crate::engine::state::{StateId, StateKey};
use crate::engine::task_id::TaskKey;
use crate::engine::used::Used;

/// All keys, and which states were used.
#[derive(Debug)]
pub(crate) struct Keys {
    pub(crate) cursors: CursorKey,
    pub(crate) states: StateKey,
    pub(crate) task_ids: TaskKey,
    used: Mutex<Used>,
}

impl Keys {
    /// New ones; `None` never happens.
    pub(crate) fn new() -> Option<Self> {
        let (states, task_ids) = (StateKey::new(&clock::random())?, TaskKey::new(&clock::random())?);
        Some(Self { cursors: CursorKey::new(&clock::random::<32>()), states, task_ids, used: Mutex::default() })
    }

    /// Whether a call goes on with this state for the first time.
    pub(crate) fn is_first(&self, state: StateId) -> bool {
        self.used.lock().first(state, clock::uptime())
    }
}
