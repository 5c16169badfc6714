//! Sign-ins to the console that outlive the process: each is stored as the digest of its cookie
//! with its expiry, bound to the digest of the operator's token.
//!
//! While the store takes no writes, no sign-in is revived at a start, and a new one ends with the
//! process. A sign-out during that time is written as soon as the store takes writes again; if the
//! process ends before that, the same cookie opens the console until its expiry.

use std::sync::Arc;

use parking_lot::Mutex;

use crate::base::clock;
use crate::store::db::Db;
pub use crate::store::db::{ConsoleSignIn, SecretDigest};

/// The stored sign-ins of a store.
#[derive(Clone, Debug)]
pub struct SignIns {
    db: Db,
    /// Most sign-ins that are kept.
    most: usize,
    /// Sign-outs that the disk has not taken yet.
    unwritten: Arc<Mutex<Vec<SecretDigest>>>,
}

impl SignIns {
    /// Creates the handle; at most `most` sign-ins are kept.
    pub fn new(db: Db, most: usize) -> Self {
        Self { db, most, unwritten: Arc::default() }
    }

    /// Loads the sign-ins of this token that have not expired, and removes all others. Blocks.
    pub fn revive(&self, token: SecretDigest) -> Vec<ConsoleSignIn> {
        self.db.sign_ins(token, clock::since_1970().as_secs()).run_now().unwrap_or_else(|error| {
            tracing::warn!(error = %error, "browsers have to sign in to the console again");
            Vec::new()
        })
    }

    /// Stores a sign-in, or its later expiry, in the background. A failure is logged.
    pub fn keep(&self, one: ConsoleSignIn, token: SecretDigest) {
        self.db.keep_sign_in(one, token, self.most).then(|outcome| {
            if let Err(error) = outcome {
                tracing::debug!(error = %error, "a sign-in to the console will not survive a restart");
            }
        });
    }

    /// Removes a sign-in after a sign-out, or when its place is needed. The removal is on disk when
    /// the future is ready, or is remembered for [`Self::catch_up`]; dropping the future does not
    /// stop it.
    pub fn end(&self, id: SecretDigest) -> impl Future<Output = ()> {
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

    /// Removes all sign-ins by other tokens than this one, in the background.
    pub fn end_others(&self, token: SecretDigest) {
        self.db.end_other_sign_ins(token).then(|outcome| {
            if let Err(error) = outcome {
                // The next start with the new token removes them too.
                tracing::debug!(error = %error, "sign-ins by the former token are still in the store");
            }
        });
    }

    /// Retries the sign-outs that the disk has not taken, if it takes writes again.
    pub fn catch_up(&self) {
        if self.unwritten.lock().is_empty() || !self.db.health().is_writable() {
            return;
        }
        let unwritten = std::mem::take(&mut *self.unwritten.lock());
        unwritten.into_iter().for_each(|id| drop(self.end(id)));
    }
}
