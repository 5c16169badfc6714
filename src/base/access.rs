//! A caller's access: for as long as its credential is valid. What the caller has open ends with it.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use tokio_util::sync::{CancellationToken, WaitForCancellationFuture};

/// One credential's access, shared by all that was opened with it.
#[derive(Debug)]
pub(crate) struct Access {
    /// A look at it takes no lock.
    withdrawn: AtomicBool,
    end: CancellationToken,
}

impl Access {
    /// Access until it is withdrawn, or `giving_up` fires.
    pub(crate) fn new(giving_up: &CancellationToken) -> Arc<Self> {
        Arc::new(Self { withdrawn: AtomicBool::new(false), end: giving_up.child_token() })
    }

    /// The credential is not valid any more.
    pub(crate) fn withdraw(&self) {
        self.withdrawn.store(true, Ordering::Release);
        self.end.cancel();
    }

    pub(crate) fn is_withdrawn(&self) -> bool {
        self.withdrawn.load(Ordering::Acquire)
    }

    /// Resolves when the access is withdrawn, or calls in flight are given up.
    pub(crate) fn ended(&self) -> WaitForCancellationFuture<'_> {
        self.end.cancelled()
    }
}
