//! Signs of life of an upstream behind a URL, as the results of its calls show them.

use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::time::Instant;

use tokio::sync::Notify;

use crate::base::clock;

/// Number of answers with HTTP status 5xx in a row that raise a doubt.
const FAILING: u32 = 3;

/// The latest signs of life, and whether one is wanted.
#[derive(Debug, Default)]
pub(super) struct LifeSigns {
    /// True if the last attempt to connect failed.
    unreachable: AtomicBool,
    /// Calls in a row that were answered with HTTP status 5xx.
    failing: AtomicU32,
    /// True while a sign of life is wanted.
    in_doubt: AtomicBool,
    doubts: Notify,
}

impl LifeSigns {
    pub(super) fn is_unreachable(&self) -> bool {
        self.unreachable.load(Ordering::Relaxed)
    }

    /// Records that no connection could be made. Returns whether that is new.
    pub(super) fn unreached(&self) -> bool {
        !self.unreachable.swap(true, Ordering::Relaxed)
    }

    /// Records an answer. Returns whether the server could not be reached before.
    pub(super) fn answered(&self) -> bool {
        if self.failing.load(Ordering::Relaxed) != 0 {
            self.failing.store(0, Ordering::Relaxed);
        }
        self.is_unreachable() && self.unreachable.swap(false, Ordering::Relaxed)
    }

    /// Records an answer with HTTP status 5xx. Returns whether it is the third in a row, or the
    /// sixth and so on.
    pub(super) fn fails(&self) -> bool {
        (self.failing.fetch_add(1, Ordering::Relaxed) + 1).is_multiple_of(FAILING)
    }

    /// Asks for a sign of life.
    pub(super) fn doubt(&self) {
        self.in_doubt.store(true, Ordering::Relaxed);
        self.doubts.notify_one();
    }

    /// Waits until there is a doubt, and then until `not_before`. Cancel-safe.
    pub(super) async fn doubted(&self, not_before: Instant) {
        while !self.is_in_doubt() {
            self.doubts.notified().await;
        }
        clock::sleep_until(Some(not_before)).await;
    }

    pub(super) fn is_in_doubt(&self) -> bool {
        self.in_doubt.load(Ordering::Relaxed)
    }

    /// Clears the doubt, because the server is being asked: later errors raise a new one.
    pub(super) fn settle(&self) {
        self.in_doubt.store(false, Ordering::Relaxed);
    }
}
