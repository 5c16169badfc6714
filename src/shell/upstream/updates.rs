//! The resource subscriptions of one session, and their clients. The lock guards the table, for one
//! operation at a time.

use std::collections::{BTreeSet, HashMap};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Weak};

use parking_lot::Mutex;
use tokio::sync::Notify;
use tokio_util::sync::CancellationToken;

use crate::policy::Permit;

/// Most URIs that wait for one client; further updates are dropped until it has taken them.
const MAX_DIRTY: usize = 4096;

/// The recipient of updates: one client's stream.
#[derive(Debug, Default)]
pub struct UpdateStream {
    dirty: Mutex<BTreeSet<String>>,
    changed: Notify,
}

impl UpdateStream {
    /// Records an update for the client.
    pub fn mark(&self, uri: String) {
        let mut dirty = self.dirty.lock();
        if dirty.len() < MAX_DIRTY {
            dirty.insert(uri);
        }
        self.changed.notify_one();
    }

    /// Waits for updates, and returns the URIs as the client knows them. Cancel-safe.
    pub async fn updated(&self) -> Vec<String> {
        loop {
            let dirty = std::mem::take(&mut *self.dirty.lock());
            if !dirty.is_empty() {
                return dirty.into_iter().collect();
            }
            self.changed.notified().await;
        }
    }
}

/// One client's subscription to one resource.
#[derive(Debug)]
pub(super) struct WatchEntry {
    pub(super) id: u64,
    pub(super) exposed: String,
    pub(super) watcher: Weak<UpdateStream>,
    pub(super) permit: Arc<Permit>,
}

/// The subscriptions of one session.
#[derive(Debug, Default)]
pub struct ResourceSubscriptions {
    /// Subscriptions by URI, as the server knows it.
    pub(super) watched: Mutex<HashMap<String, Vec<WatchEntry>>>,
    /// Number of subscriptions so far, from which they get their ids.
    entered: AtomicU64,
    /// Serializes changes at the server. Holds the stream of a modern server.
    pub(super) upstream: tokio::sync::Mutex<Option<CancellationToken>>,
}

impl ResourceSubscriptions {
    /// Returns the subscribed URIs, as the server knows them.
    pub fn uris(&self) -> Vec<String> {
        let mut uris: Vec<String> = self.watched.lock().keys().cloned().collect();
        uris.sort_unstable();
        uris
    }

    /// Passes on an update of a resource: a watched one, or a part of one.
    pub fn updated(&self, uri: &str) {
        let watched = self.watched.lock();
        for (original, watches) in watched.iter().filter(|(original, _)| is_part_of(uri, original)) {
            for watch in watches {
                if let Some(watcher) = watch.watcher.upgrade() {
                    // The prefix that the client sees before the server's URI applies to its parts
                    // too.
                    let before = watch.exposed.strip_suffix(original.as_str()).unwrap_or_default();
                    watcher.mark(format!("{before}{uri}"));
                }
            }
        }
    }

    pub(super) fn all_updated(&self) {
        for uri in self.uris() {
            self.updated(&uri);
        }
    }

    /// Adds a client's subscription. Returns its id, and whether it is the only one for this
    /// resource.
    pub(super) fn enter(
        &self,
        original: &str,
        exposed: String,
        watcher: &Arc<UpdateStream>,
        permit: Arc<Permit>,
    ) -> (u64, bool) {
        let id = self.entered.fetch_add(1, Ordering::Relaxed);
        let mut watched = self.watched.lock();
        let watches = watched.entry(original.to_owned()).or_default();
        watches.push(WatchEntry { id, exposed, watcher: Arc::downgrade(watcher), permit });
        (id, watches.len() == 1)
    }

    /// Removes a subscription. Returns its permit if it was the last one for the resource.
    pub(super) fn forget(&self, original: &str, id: u64) -> Option<Arc<Permit>> {
        let mut watched = self.watched.lock();
        let watches = watched.get_mut(original)?;
        let at = watches.iter().position(|watch| watch.id == id)?;
        let permit = watches.swap_remove(at).permit;
        let last = watches.is_empty();
        if last {
            watched.remove(original);
        }
        last.then_some(permit)
    }
}

/// Returns whether one URI equals the other or is below it.
fn is_part_of(uri: &str, whole: &str) -> bool {
    uri.strip_prefix(whole)
        .is_some_and(|rest| rest.is_empty() || whole.ends_with('/') || rest.starts_with(['/', '?', '#']))
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn parts_of_a_resource_lie_below_it() {
        for (uri, whole, want) in [
            ("file:///a", "file:///a", true),
            ("file:///a/b", "file:///a", true),
            ("file:///a/b", "file:///a/", true),
            ("file:///ab", "file:///a", false),
            ("file:///", "file:///a", false),
            ("x://r?v=2", "x://r", true),
        ] {
            assert_eq!(is_part_of(uri, whole), want, "{uri} of {whole}");
        }
    }

    #[tokio::test]
    async fn a_watcher_is_told_of_each_resource_once() {
        let watcher = UpdateStream::default();
        for uri in ["b", "a", "b"] {
            watcher.mark(uri.to_owned());
        }
        assert_eq!(watcher.updated().await, ["a", "b"]);
        let none = tokio::time::timeout(Duration::from_millis(10), watcher.updated()).await;
        assert!(none.is_err(), "nothing is told twice");
    }
}
