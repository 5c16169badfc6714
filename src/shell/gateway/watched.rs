//! Resource subscriptions of one legacy client.

use std::collections::HashMap;
use std::sync::Arc;

use parking_lot::Mutex;

pub(crate) use crate::upstream::subscriptions::Watching;
pub(crate) use crate::upstream::updates::Watcher;

/// Resources that one legacy session may watch.
pub(super) const MAX_WATCHED: usize = 1024;

/// One session's watched resources.
#[derive(Debug, Default)]
pub struct Subscriptions {
    pub watcher: Arc<Watcher>,
    /// By the URI as the client knows it.
    pub(super) held: Mutex<HashMap<String, Held>>,
}

/// A watched resource.
#[derive(Debug)]
pub(super) struct Held {
    /// Its place in the store, where the session has one.
    pub(super) slot: Option<u64>,
    /// None until the resource of a revived session is watched again.
    pub(super) watching: Option<Watching>,
}

impl Subscriptions {
    /// Those of a session before a restart. None is watched yet.
    pub fn restore(&self, resources: Vec<(u64, String)>) {
        let held = |(slot, uri)| (uri, Held { slot: Some(slot), watching: None });
        self.held.lock().extend(resources.into_iter().map(held));
    }

    /// The resources that are to be watched again.
    pub(super) fn missing(&self) -> Vec<String> {
        let held = self.held.lock();
        held.iter().filter(|(_, held)| held.watching.is_none()).map(|(uri, _)| uri.clone()).collect()
    }

    /// A resource is watched again, unless the client has ended its subscription meanwhile. What happened before is not known, so it
    /// counts as updated.
    pub(super) fn found(&self, uri: &str, watching: Watching) {
        // A watch that is not needed ends outside of the lock.
        let mut watching = Some(watching);
        if let Some(held) = self.held.lock().get_mut(uri).filter(|held| held.watching.is_none()) {
            held.watching = watching.take();
        }
        if watching.is_none() {
            self.watcher.mark(uri.to_owned());
        }
    }
}
