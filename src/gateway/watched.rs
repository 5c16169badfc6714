//! Resource subscriptions of one legacy client.

use std::collections::HashMap;
use std::sync::Arc;

use parking_lot::{Mutex, MutexGuard};

use crate::upstream::subscriptions::Watching;
use crate::upstream::updates::Watcher;

/// Resources that one legacy session may watch.
pub(super) const MAX_WATCHED: usize = 1024;

/// One session's watched resources.
#[derive(Debug, Default)]
pub(crate) struct Subscriptions {
    pub(crate) watcher: Arc<Watcher>,
    /// By the URI as the client knows it.
    held: Mutex<HashMap<String, Watching>>,
}

impl Subscriptions {
    pub(super) fn lock(&self) -> MutexGuard<'_, HashMap<String, Watching>> {
        self.held.lock()
    }
}
