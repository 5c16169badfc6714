//! Sign-ins to the console over restarts: each as the digest of its cookie with the end of its time, bound to the digest of the
//! operator's token.
//!
//! While the store takes no writes none is revived at a start, and a new one ends with the process. A sign-out that finds it so is
//! written as soon as it takes writes again; if the process ends before that, the same cookie opens the console once more until its
//! time is over.

use std::sync::Arc;

use parking_lot::Mutex;

use crate::base::clock;
use crate::store::db::Db;
pub use crate::store::db::{Key, SignIn};

/// The sign-ins of a store, by one token of the operator.
#[derive(Clone, Debug)]
pub struct SignIns {
    db: Db,
    most: usize,
    /// Ends that are not on disk yet.
    unwritten: Arc<Mutex<Vec<Key>>>,
}

impl SignIns {
    /// At most so many are kept.
    pub fn new(db: Db, most: usize) -> Self {
        Self { db, most, unwritten: Arc::default() }
    }

    /// The sign-ins that go on; those by another token end. Blocks.
    pub fn revive(&self, token: Key) -> Vec<SignIn> {
        self.db.sign_ins(token, clock::since_1970().as_secs()).run_now().unwrap_or_else(|error| {
            tracing::warn!(error = %error, "browsers have to sign in to the console again");
            Vec::new()
        })
    }

    /// Keeps a sign-in, or its later end.
    pub fn keep(&self, one: SignIn, token: Key) {
        self.db.keep_sign_in(one, token, self.most).then(|outcome| {
            if let Err(error) = outcome {
                tracing::debug!(error = %error, "a sign-in to the console will not survive a restart");
            }
        });
    }

    /// A browser has signed out, or its place was needed. It is on disk when the future is ready; dropping that stops nothing.
    pub fn end(&self, id: Key) -> impl Future<Output = ()> {
        let unwritten = Arc::clone(&self.unwritten);
        let most = self.most;
        let ended = self.db.end_sign_in(id).run_with(move |outcome| {
            let Err(error) = outcome else { return };
            tracing::warn!(error = %error, "a sign-out from the console is not in the store yet");
            let mut unwritten = unwritten.lock();
            if unwritten.len() < most && !unwritten.contains(&id) {
                unwritten.push(id);
            }
        });
        async move { drop(ended.await) }
    }

    /// The token is another one: all sign-ins by others end.
    pub fn end_others(&self, token: Key) {
        self.db.end_other_sign_ins(token).then(|outcome| {
            if let Err(error) = outcome {
                // A start with the new token removes them too.
                tracing::debug!(error = %error, "sign-ins by the former token are still in the store");
            }
        });
    }

    /// Writes the ends that the disk did not take.
    pub fn catch_up(&self) {
        if self.unwritten.lock().is_empty() || !self.db.health().is_writable() {
            return;
        }
        let unwritten = std::mem::take(&mut *self.unwritten.lock());
        unwritten.into_iter().for_each(|id| drop(self.end(id)));
    }
}
