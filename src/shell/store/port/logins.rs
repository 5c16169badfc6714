//! Operations on logins at upstreams, their issuers, and the clients that were registered for them.
//! Every process writes them.
//!
//! A row's version is another one after each change of its tokens, so a verdict about tokens that
//! were exchanged meanwhile changes nothing. The mark `tried` says that a refresh token may have
//! been used without an answer.

use super::operation::DbOperation;

/// A stored login.
#[derive(Clone, Debug)]
pub struct KeptLogin {
    pub version: u64,
    /// True if the authorization server has ended the login.
    pub is_expired: bool,
    /// The login as JSON; `None` if the key that sealed it is gone.
    pub value: Option<String>,
}

/// The outcome of a claim of a login's renewal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LoginRowClaim {
    /// This process renews it. `was_tried`: an earlier attempt may have used the same refresh
    /// token.
    Mine { was_tried: bool },
    /// Another process renews it.
    Busy,
    /// The row has changed since the process read it.
    Moved,
}

/// The upstream of a login: its name, and its launch, which is one address with one set of headers.
/// Two upstreams with one launch have two logins, since rules open them apart.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LoginKey {
    /// Empty for a login of before version 9 of the store that no upstream has adopted.
    pub upstream: String,
    pub launch: String,
}

/// A login that a person has made, before it is kept.
#[derive(Clone, Debug)]
pub struct NewLogin {
    pub key: LoginKey,
    pub issuer: String,
    /// The issuer that was kept for the upstream when this login began.
    pub issuer_before: Option<String>,
    pub version: u64,
    /// The login as JSON.
    pub value: String,
}

/// A process that renews a login.
#[derive(Clone, Debug)]
pub struct ClaimKey {
    pub key: LoginKey,
    /// The version of the row that the process read.
    pub version: u64,
    /// The process's own name.
    pub by: u64,
}

/// Operations on logins and registrations.
pub trait LoginOperations {
    /// Returns the login of an upstream.
    fn login(&self, key: LoginKey) -> DbOperation<'_, Option<KeptLogin>>;

    /// Keeps a login that a person has made, in place of any other of that upstream, and its issuer
    /// beyond its end. If a login at another issuer was kept since this one began, it changes
    /// nothing and returns that issuer.
    fn keep_login(&self, made: NewLogin) -> DbOperation<'_, Option<String>>;

    /// Returns the issuer of the last login of an upstream, which its end leaves.
    fn login_issuer(&self, key: LoginKey) -> DbOperation<'_, Option<String>>;

    /// Returns whether there are logins or registrations that no upstream has adopted.
    fn has_unowned_logins(&self) -> DbOperation<'_, bool>;

    /// Gives each login of before version 9 to the upstream with its launch. If several of these
    /// have it, it is removed: nothing says for which of them it was given.
    fn adopt_logins(&self, keys: Vec<LoginKey>) -> DbOperation<'_, ()>;

    /// Claims the row for one renewal, until that time. The mark `tried` is set with it: if this
    /// process ends before it tells what came of it, the refresh token counts as used.
    fn claim_login(&self, who: ClaimKey, now: u64, until: u64) -> DbOperation<'_, LoginRowClaim>;

    /// Keeps the tokens of a renewal; false if the row has changed meanwhile.
    fn renew_login(&self, who: ClaimKey, version: u64, value: String) -> DbOperation<'_, bool>;

    /// Gives a claim back. `tried`: the refresh token may have been used.
    fn release_login(&self, who: ClaimKey, tried: bool) -> DbOperation<'_, ()>;

    /// Marks a login that the authorization server has ended; false if the row has changed
    /// meanwhile.
    fn expire_login(&self, key: LoginKey, version: u64) -> DbOperation<'_, bool>;

    /// Forgets the login of an upstream. Its issuer stays.
    fn forget_login(&self, key: LoginKey) -> DbOperation<'_, bool>;

    /// Returns the clients that were registered for an upstream, as JSON.
    fn registrations(&self, key: LoginKey) -> DbOperation<'_, Vec<String>>;

    /// Keeps a registration. Of one upstream only the last issuer's stays: a server that moves to
    /// another issuer leaves the one of before.
    fn keep_registration(&self, key: LoginKey, issuer: String, value: String) -> DbOperation<'_, ()>;

    /// Forgets the registrations of an upstream: their server does not know them any more.
    fn forget_registrations(&self, key: LoginKey) -> DbOperation<'_, ()>;
}
