//! Access of a caller by one credential. Everything that was opened with the credential ends when
//! it becomes invalid.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use tokio_util::sync::{CancellationToken, WaitForCancellationFuture};

use crate::base::callers::CallerNumber;
use crate::base::clock;
use crate::policy::{Caller, CallerRights};

/// Longest time for which an expiry is not compared with the clock.
const EXPIRY_CHECK: Duration = Duration::from_secs(60);

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
    /// The caller as metrics count it: the number of all subjects of an issuer, for a JWT.
    counted: CallerNumber,
    credential: Credential,
    rights: Arc<CallerRights>,
    /// Repeats the state of `end`, because reading a flag takes no lock. Callers of one issuer
    /// share the flag.
    withdrawn: Arc<AtomicBool>,
    end: CancellationToken,
    /// Time since 1970 when the credential expires; `None` for credentials that do not.
    expires: Option<Duration>,
}

/// The access of all callers of one issuer. It ends for all of them at once.
#[derive(Debug)]
pub struct IssuerAccess {
    /// The number under which metrics count all callers of the issuer.
    counted: CallerNumber,
    withdrawn: Arc<AtomicBool>,
    end: CancellationToken,
}

impl IssuerAccess {
    /// Creates access that ends when it is withdrawn or `giving_up` fires. `issuer` is the issuer's
    /// name in the configuration.
    pub fn new(issuer: &str, giving_up: &CancellationToken) -> Self {
        let counted = CallerNumber::of(&Caller::all_of_issuer(issuer));
        Self { counted, withdrawn: Arc::default(), end: giving_up.child_token() }
    }

    /// Creates the access of one caller by a token with these rights. `expires` is the time since
    /// 1970 when the token expires.
    pub fn of_caller(&self, caller: &Caller, rights: Arc<CallerRights>, expires: Duration) -> Arc<Access> {
        Arc::new(Access {
            caller: CallerNumber::of(caller),
            counted: self.counted.clone(),
            credential: Credential::Jwt,
            rights,
            withdrawn: Arc::clone(&self.withdrawn),
            end: self.end.child_token(),
            expires: Some(expires),
        })
    }

    /// Ends the access of all callers, because the issuer is no longer accepted.
    pub fn withdraw(&self) {
        self.withdrawn.store(true, Ordering::Release);
        self.end.cancel();
    }
}

impl Access {
    /// Creates access of our own user. It ends when it is withdrawn or `giving_up` fires.
    pub fn new(giving_up: &CancellationToken) -> Arc<Self> {
        Self::with(CallerNumber::LOCAL, Credential::User, CallerRights::all(), None, giving_up)
    }

    /// Creates access of this caller by this credential. It ends when it is withdrawn or
    /// `giving_up` fires.
    pub fn by(
        caller: &Caller,
        credential: Credential,
        rights: Arc<CallerRights>,
        giving_up: &CancellationToken,
    ) -> Arc<Self> {
        Self::with(CallerNumber::of(caller), credential, rights, None, giving_up)
    }

    /// Creates access as [`Self::by`] does, by a token that expires at this time since 1970.
    pub fn until(
        caller: &Caller,
        credential: Credential,
        rights: Arc<CallerRights>,
        expires: Option<Duration>,
        giving_up: &CancellationToken,
    ) -> Arc<Self> {
        Self::with(CallerNumber::of(caller), credential, rights, expires, giving_up)
    }

    fn with(
        caller: CallerNumber,
        credential: Credential,
        rights: Arc<CallerRights>,
        expires: Option<Duration>,
        giving_up: &CancellationToken,
    ) -> Arc<Self> {
        let (withdrawn, end, counted) = (Arc::default(), giving_up.child_token(), caller.clone());
        Arc::new(Self { caller, counted, credential, rights, withdrawn, end, expires })
    }

    pub const fn caller(&self) -> &CallerNumber {
        &self.caller
    }

    /// Returns the number under which metrics count calls of the caller.
    pub const fn counted(&self) -> &CallerNumber {
        &self.counted
    }

    pub const fn credential(&self) -> &Credential {
        &self.credential
    }

    /// Returns the scopes and groups that the credential gives.
    pub const fn rights(&self) -> &Arc<CallerRights> {
        &self.rights
    }

    /// Returns the time since 1970 when the credential expires; `None` for credentials that do not.
    pub const fn expires(&self) -> Option<Duration> {
        self.expires
    }

    /// Ends the access, because the credential is no longer valid.
    pub fn withdraw(&self) {
        self.withdrawn.store(true, Ordering::Release);
        self.end.cancel();
    }

    pub fn is_withdrawn(&self) -> bool {
        self.withdrawn.load(Ordering::Acquire)
    }

    /// Returns whether the credential has expired.
    pub fn has_expired(&self) -> bool {
        self.expires.is_some_and(|expires| expires <= clock::since_1970())
    }

    /// Resolves when the credential has expired. Streams end then; calls in flight go on.
    pub async fn expired(&self) {
        let Some(expires) = self.expires else { return std::future::pending().await };
        loop {
            let left = expires.saturating_sub(clock::since_1970());
            if left.is_zero() {
                return;
            }
            // The clock may be set forward while this waits.
            tokio::time::sleep(left.min(EXPIRY_CHECK)).await;
        }
    }

    /// Resolves when the access is withdrawn, or when calls in flight are given up.
    pub fn ended(&self) -> WaitForCancellationFuture<'_> {
        self.end.cancelled()
    }
}
