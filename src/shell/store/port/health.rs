//! The health of the store: tells callers whether it takes writes, before they begin work that must
//! be written.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use parking_lot::Mutex;

use super::error::DbError;
use crate::base::clock;

/// Whether the store takes writes. Shared by the engine, which alone changes it, and its readers.
#[derive(Debug, Default)]
pub struct StoreHealth {
    unwritable: AtomicBool,
    /// Number of connections that the engine has opened so far. Values that belong to one
    /// connection are told apart by it.
    connections: AtomicU64,
    trouble: Mutex<Option<StoreTrouble>>,
}

/// The reason why the store takes no writes.
#[derive(Clone, Debug)]
pub struct StoreTrouble {
    pub why: String,
    /// Time of the first failed write, in seconds since 1970.
    pub since: u64,
}

impl StoreHealth {
    /// Returns whether the last attempt to write succeeded.
    pub fn is_writable(&self) -> bool {
        !self.unwritable.load(Ordering::Acquire)
    }

    /// Returns the reason why the store takes no writes, while that is so.
    pub fn trouble(&self) -> Option<StoreTrouble> {
        self.trouble.lock().clone()
    }

    pub(in crate::store) fn connections(&self) -> u64 {
        self.connections.load(Ordering::Relaxed)
    }

    pub(in crate::store) fn connected(&self) {
        self.connections.fetch_add(1, Ordering::Relaxed);
    }

    /// Notes that a write failed, and logs that if the last write did not fail.
    pub(in crate::store) fn failed(&self, error: &DbError) {
        if !self.unwritable.swap(true, Ordering::AcqRel) {
            *self.trouble.lock() = Some(StoreTrouble { why: error.to_string(), since: clock::unix_seconds() });
            tracing::error!(
                error = %error,
                "the store takes no writes: what it holds stays in force, and what would have to be written is refused until it does"
            );
        }
    }

    /// Notes that a write is on the disk, and logs that if the last write failed.
    pub(in crate::store) fn wrote(&self) {
        if self.unwritable.swap(false, Ordering::AcqRel) {
            *self.trouble.lock() = None;
            tracing::info!("the store takes writes again");
        }
    }
}
