//! A caller's access: for as long as its credential is valid. What the caller has open ends with it.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use tokio_util::sync::{CancellationToken, WaitForCancellationFuture};

/// How a caller showed who it is.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Credential {
    /// By the user of a pipe or of the admin socket.
    User,
    /// By nothing: none is required.
    Anyone,
    /// By a token with this digest.
    Token([u8; 32]),
}

impl Credential {
    /// In one word. Callers of two kinds may have one name.
    pub(crate) const fn kind(&self) -> &'static str {
        match self {
            Self::User => "user",
            Self::Anyone => "anyone",
            Self::Token(_) => "token",
        }
    }

    /// Tells tokens apart too. Empty for those that are none.
    pub(crate) const fn token(&self) -> &[u8] {
        match self {
            Self::User | Self::Anyone => &[],
            Self::Token(digest) => digest,
        }
    }
}

impl std::fmt::Debug for Credential {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.kind())
    }
}

/// One credential's access, shared by all that was opened with it.
#[derive(Debug)]
pub(crate) struct Access {
    credential: Credential,
    /// A look at it takes no lock.
    withdrawn: AtomicBool,
    end: CancellationToken,
}

impl Access {
    /// Access of a user until it is withdrawn, or `giving_up` fires.
    pub(crate) fn new(giving_up: &CancellationToken) -> Arc<Self> {
        Self::by(Credential::User, giving_up)
    }

    /// The same by another credential.
    pub(crate) fn by(credential: Credential, giving_up: &CancellationToken) -> Arc<Self> {
        Arc::new(Self { credential, withdrawn: AtomicBool::new(false), end: giving_up.child_token() })
    }

    pub(crate) const fn credential(&self) -> &Credential {
        &self.credential
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
