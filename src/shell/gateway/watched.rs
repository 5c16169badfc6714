//! Resource subscriptions of one legacy session.

use std::collections::HashMap;
use std::sync::Arc;

use parking_lot::Mutex;

pub(crate) use crate::upstream::subscriptions::ResourceWatch;
pub(crate) use crate::upstream::updates::UpdateStream;

/// Most resources that one legacy session may watch.
pub(super) const MAX_WATCHED: usize = 1024;

/// The watched resources of one legacy session.
#[derive(Debug, Default)]
pub struct SessionSubscriptions {
    pub watcher: Arc<UpdateStream>,
    /// Watched resources by the URI that the client knows.
    pub(super) held: Mutex<HashMap<String, WatchedResource>>,
}

/// A watched resource.
#[derive(Debug)]
pub(super) struct WatchedResource {
    /// Number of its row in the store, if the session is stored.
    pub(super) slot: Option<u64>,
    /// The watch at the upstream; `None` until the resource of a revived session is watched again.
    pub(super) watching: Option<ResourceWatch>,
}

impl SessionSubscriptions {
    /// Adds the resources of a session from before a restart, not watched yet.
    pub fn restore(&self, resources: Vec<(u64, String)>) {
        let held = |(slot, uri)| (uri, WatchedResource { slot: Some(slot), watching: None });
        self.held.lock().extend(resources.into_iter().map(held));
    }

    /// Returns the URIs of resources that have to be watched again.
    pub(super) fn missing(&self) -> Vec<String> {
        let held = self.held.lock();
        held.iter().filter(|(_, held)| held.watching.is_none()).map(|(uri, _)| uri.clone()).collect()
    }

    /// Stores the watch of a revived session's resource, unless the client has ended its
    /// subscription meanwhile. Marks the resource as updated, since earlier updates are unknown.
    pub(super) fn found(&self, uri: &str, watching: ResourceWatch) {
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
