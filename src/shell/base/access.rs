//! Access of a caller by one credential. Everything that was opened with the credential ends when
//! it becomes invalid.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use tokio_util::sync::{CancellationToken, WaitForCancellationFuture};

use crate::base::callers::CallerNumber;
use crate::policy::{Caller, CallerRights};

/// The credential by which a caller was identified.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Credential {
    /// The user of a pipe or of the admin socket.
    User,
    /// No credential, because none is required.
    Anyone,
    /// A token with this digest.
    Token([u8; 32]),
    /// A JWT. Refreshed tokens of one caller are the same credential.
    Jwt,
}

impl Credential {
    /// Returns the kind of credential in one word. One caller can have several kinds: our own user
    /// has pipes and tokens.
    pub const fn kind(&self) -> &'static str {
        match self {
            Self::User => "user",
            Self::Anyone => "anyone",
            Self::Token(_) => "token",
            Self::Jwt => "jwt",
        }
    }

    /// Returns the digest of a token, and an empty slice for other credentials.
    pub const fn token(&self) -> &[u8] {
        match self {
            Self::User | Self::Anyone | Self::Jwt => &[],
            Self::Token(digest) => digest,
        }
    }
}

impl std::fmt::Debug for Credential {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.kind())
    }
}

/// The access that one credential gives, shared by everything that was opened with it.
#[derive(Debug)]
pub struct Access {
    caller: CallerNumber,
    credential: Credential,
    rights: Arc<CallerRights>,
    /// Repeats the state of `end`, because reading a flag takes no lock.
    withdrawn: AtomicBool,
    end: CancellationToken,
}

impl Access {
    /// Creates access of our own user. It ends when it is withdrawn or `giving_up` fires.
    pub fn new(giving_up: &CancellationToken) -> Arc<Self> {
        Self::with(CallerNumber::LOCAL, Credential::User, CallerRights::all(), giving_up)
    }

    /// Creates access of this caller by this credential. It ends when it is withdrawn or
    /// `giving_up` fires.
    pub fn by(
        caller: &Caller,
        credential: Credential,
        rights: Arc<CallerRights>,
        giving_up: &CancellationToken,
    ) -> Arc<Self> {
        Self::with(CallerNumber::of(caller), credential, rights, giving_up)
    }

    fn with(
        caller: CallerNumber,
        credential: Credential,
        rights: Arc<CallerRights>,
        giving_up: &CancellationToken,
    ) -> Arc<Self> {
        let (withdrawn, end) = (AtomicBool::new(false), giving_up.child_token());
        Arc::new(Self { caller, credential, rights, withdrawn, end })
    }

    pub const fn caller(&self) -> &CallerNumber {
        &self.caller
    }

    pub const fn credential(&self) -> &Credential {
        &self.credential
    }

    /// Returns the scopes and groups that the credential gives.
    pub const fn rights(&self) -> &Arc<CallerRights> {
        &self.rights
    }

    /// Ends the access, because the credential is no longer valid.
    pub fn withdraw(&self) {
        self.withdrawn.store(true, Ordering::Release);
        self.end.cancel();
    }

    pub fn is_withdrawn(&self) -> bool {
        self.withdrawn.load(Ordering::Acquire)
    }

    /// Resolves when the access is withdrawn, or when calls in flight are given up.
    pub fn ended(&self) -> WaitForCancellationFuture<'_> {
        self.end.cancelled()
    }
}
