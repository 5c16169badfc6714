//! The health of the store: tells callers whether it takes writes, before they begin work that must
//! be written.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use parking_lot::Mutex;
use tokio::sync::watch;

use super::error::DbError;
use crate::base::clock;
use crate::engine::failure::FailureReason;

/// Whether the store takes writes. Shared by the engine, which alone changes it, and its readers.
#[derive(Debug, Default)]
pub struct StoreHealth {
    unwritable: AtomicBool,
    /// Number of connections that the engine has opened so far. Values that belong to one
    /// connection are told apart by it.
    connections: AtomicU64,
    trouble: Mutex<Option<StoreTrouble>>,
    /// Number of times that another process may have changed the store. An engine that is not told
    /// of changes counts none.
    changes: watch::Sender<u64>,
    /// Uptime at the last answer of the store's server, in milliseconds; 0 for a store without one.
    confirmed: AtomicU64,
}

/// Longest time since the last answer of the store's server for which its grants count as
/// confirmed, in milliseconds.
const CONFIRMED: u64 = 5000;

/// The reason why the store takes no writes.
#[derive(Clone, Debug)]
pub struct StoreTrouble {
    pub why: String,
    /// Time of the first failed write, in seconds since 1970.
    pub since: u64,
    /// Whether the store's server does not answer.
    pub is_away: bool,
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

    /// Returns the reason of a refusal because the store takes no writes.
    pub fn failure_reason(&self) -> FailureReason {
        let is_away = self.trouble.lock().as_ref().is_some_and(|trouble| trouble.is_away);
        if is_away { FailureReason::StoreUnavailable } else { FailureReason::Unrecorded }
    }

    /// Returns whether what the store holds may be relied on: another process may have changed it
    /// since the last answer of its server.
    pub fn is_confirmed(&self) -> bool {
        let at = self.confirmed.load(Ordering::Relaxed);
        at == 0 || clock::millis(clock::uptime()).saturating_sub(at) <= CONFIRMED
    }

    /// Returns whether the store's server does not answer.
    pub fn is_away(&self) -> bool {
        !self.is_confirmed() || self.trouble.lock().as_ref().is_some_and(|trouble| trouble.is_away)
    }

    /// Notes an answer of the store's server.
    pub(in crate::store) fn confirm(&self) {
        self.confirmed.store(clock::millis(clock::uptime()).max(1), Ordering::Relaxed);
    }

    /// Returns a receiver of changes by other processes, for engines that are told of them.
    pub fn changes(&self) -> watch::Receiver<u64> {
        self.changes.subscribe()
    }

    /// Notes that another process may have changed the store.
    pub(in crate::store) fn changed(&self) {
        self.changes.send_modify(|count| *count = count.wrapping_add(1));
    }

    /// Notes that a write failed, and logs that if the last write did not fail.
    pub(in crate::store) fn failed(&self, error: &DbError) {
        if !self.unwritable.swap(true, Ordering::AcqRel) {
            *self.trouble.lock() =
                Some(StoreTrouble { why: error.to_string(), since: clock::unix_seconds(), is_away: error.is_away() });
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

/// Waits until another process may have changed the store; for ever without a store.
pub async fn wait_for_change(changes: &mut Option<watch::Receiver<u64>>) {
    let is_over = match changes {
        Some(changes) => changes.changed().await.is_err(),
        None => true,
    };
    if is_over {
        std::future::pending::<()>().await;
    }
}
