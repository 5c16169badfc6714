//! A caller's access: for as long as its credential is valid. What the caller has open ends with it.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use tokio_util::sync::{CancellationToken, WaitForCancellationFuture};

use crate::base::callers::CallerNumber;
use crate::policy::Caller;

/// How a caller showed who it is.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Credential {
    /// By the user of a pipe or of the admin socket.
    User,
    /// By nothing: none is required.
    Anyone,
    /// By a token with this digest.
    Token([u8; 32]),
}

impl Credential {
    /// In one word. A caller can have two kinds: our own user has a pipe and a token.
    pub const fn kind(&self) -> &'static str {
        match self {
            Self::User => "user",
            Self::Anyone => "anyone",
            Self::Token(_) => "token",
        }
    }

    /// Tells tokens apart too. Empty for those that are none.
    pub const fn token(&self) -> &[u8] {
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
pub struct Access {
    caller: CallerNumber,
    credential: Credential,
    /// A look at it takes no lock.
    withdrawn: AtomicBool,
    end: CancellationToken,
}

impl Access {
    /// Access of our own user until it is withdrawn, or `giving_up` fires.
    pub fn new(giving_up: &CancellationToken) -> Arc<Self> {
        Self::with(CallerNumber::LOCAL, Credential::User, giving_up)
    }

    /// Access of this caller by this credential, until it is withdrawn or `giving_up` fires.
    pub fn by(caller: &Caller, credential: Credential, giving_up: &CancellationToken) -> Arc<Self> {
        Self::with(CallerNumber::of(caller), credential, giving_up)
    }

    fn with(caller: CallerNumber, credential: Credential, giving_up: &CancellationToken) -> Arc<Self> {
        Arc::new(Self { caller, credential, withdrawn: AtomicBool::new(false), end: giving_up.child_token() })
    }

    pub const fn caller(&self) -> &CallerNumber {
        &self.caller
    }

    pub const fn credential(&self) -> &Credential {
        &self.credential
    }

    /// The credential is not valid any more.
    pub fn withdraw(&self) {
        self.withdrawn.store(true, Ordering::Release);
        self.end.cancel();
    }

    pub fn is_withdrawn(&self) -> bool {
        self.withdrawn.load(Ordering::Acquire)
    }

    /// Resolves when the access is withdrawn, or calls in flight are given up.
    pub fn ended(&self) -> WaitForCancellationFuture<'_> {
        self.end.cancelled()
    }
}
