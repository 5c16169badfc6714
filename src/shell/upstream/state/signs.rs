//! Signs of life of an upstream behind a URL, as its calls see them.

use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::time::Instant;

use tokio::sync::Notify;

use crate::base::clock;

/// Answers with HTTP status 5xx in a row that are a doubt.
const FAILING: u32 = 3;

/// Signs of life, or none.
#[derive(Debug, Default)]
pub(super) struct Signs {
    /// There was no connection to it, and no answer since.
    unreachable: AtomicBool,
    /// Calls in a row that were answered with HTTP status 5xx.
    failing: AtomicU32,
    /// A sign of life is wanted.
    in_doubt: AtomicBool,
    doubts: Notify,
}

impl Signs {
    pub(super) fn is_unreachable(&self) -> bool {
        self.unreachable.load(Ordering::Relaxed)
    }

    /// Whether that is news.
    pub(super) fn unreached(&self) -> bool {
        !self.unreachable.swap(true, Ordering::Relaxed)
    }

    /// It has answered. Whether it could not be reached before.
    pub(super) fn answered(&self) -> bool {
        if self.failing.load(Ordering::Relaxed) != 0 {
            self.failing.store(0, Ordering::Relaxed);
        }
        self.is_unreachable() && self.unreachable.swap(false, Ordering::Relaxed)
    }

    /// It has answered with HTTP status 5xx. Whether it has done nothing else for some calls.
    pub(super) fn fails(&self) -> bool {
        (self.failing.fetch_add(1, Ordering::Relaxed) + 1).is_multiple_of(FAILING)
    }

    /// Wants a sign of life.
    pub(super) fn doubt(&self) {
        self.in_doubt.store(true, Ordering::Relaxed);
        self.doubts.notify_one();
    }

    /// Waits until there is a doubt, and then until that time. Cancel-safe.
    pub(super) async fn doubted(&self, not_before: Instant) {
        while !self.is_in_doubt() {
            self.doubts.notified().await;
        }
        clock::sleep_until(Some(not_before)).await;
    }

    pub(super) fn is_in_doubt(&self) -> bool {
        self.in_doubt.load(Ordering::Relaxed)
    }

    /// It is asked: what calls see from here on is another doubt.
    pub(super) fn settle(&self) {
        self.in_doubt.store(false, Ordering::Relaxed);
    }
}
