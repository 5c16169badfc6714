//! Logins at upstreams, kept over restarts and shared by processes. A login is stored sealed. It
//! belongs to one upstream with one launch, and to the issuer of its tokens. The issuer is kept
//! after the login has ended, since a login at another issuer needs the operator's approval.
//!
//! One process at a time renews a login: it claims the row, and the others wait for the new row.
//! Servers end a login when they see a refresh token twice, so the new one is on disk before
//! anything is done with the tokens that came with it. A claim expires, since its process may have
//! ended. The next claim then finds the mark that the refresh token may have been used, which
//! explains a refusal by the server.

use std::time::Duration;

use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::base::clock;
use crate::config::UpstreamSettings;
use crate::login::client::ClientRegistration;
use crate::login::token::UpstreamLogin;
pub use crate::store::db::LoginKey;
use crate::store::db::{ClaimKey, Db, DbError, LoginRowClaim, NewLogin};

/// Duration of a claim: longer than the request of a renewal may take.
const CLAIM: Duration = Duration::from_secs(20);

/// A login that was read from the store.
#[derive(Clone, Debug)]
pub struct StoredLogin {
    pub version: u64,
    pub login: UpstreamLogin,
    pub is_expired: bool,
}

/// The logins of a store; clones share them.
#[derive(Clone, Debug)]
pub struct Logins {
    db: Db,
    /// Id of this process in claims.
    by: u64,
}

/// A claim on a row for one renewal.
#[derive(Debug)]
pub struct LoginClaim<'l> {
    logins: &'l Logins,
    who: ClaimKey,
    /// Whether an earlier renewal may have used the refresh token.
    pub was_tried: bool,
}

/// The outcome of an attempt to claim a login.
#[derive(Debug)]
pub enum ClaimAttempt<'l> {
    /// The row is claimed.
    Mine(LoginClaim<'l>),
    /// Another process has claimed the row.
    Busy,
    /// The row is no longer the live login of that version.
    Moved,
}

/// The outcome of storing a new login.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum KeepOutcome {
    /// The login is on disk, with this version.
    Kept(u64),
    /// A login at this other issuer was stored meanwhile, and stays.
    OtherIssuer(String),
}

impl LoginKey {
    /// The key of an upstream's login: its name and launch.
    pub fn of(upstream: &UpstreamSettings) -> Self {
        Self { upstream: upstream.name.to_string(), launch: upstream.launch_identity() }
    }
}

impl Logins {
    pub fn new(db: Db) -> Self {
        Self { db, by: u64::from_be_bytes(clock::random()) >> 1 }
    }

    /// Reads the login of an upstream. A login that cannot be unsealed or parsed counts as missing.
    ///
    /// # Errors
    /// When the store cannot be read.
    pub async fn get(&self, key: &LoginKey) -> Result<Option<StoredLogin>, DbError> {
        let Some(kept) = self.db.login(key.clone()).run().await? else { return Ok(None) };
        let login = kept.value.as_deref().and_then(decode);
        Ok(login.map(|login| StoredLogin { version: kept.version, login, is_expired: kept.is_expired }))
    }

    /// Stores a new login, unless a login at another issuer was stored since this one began, when
    /// the issuer was `before`.
    ///
    /// # Errors
    /// When the login is not on disk.
    pub async fn keep(
        &self,
        key: &LoginKey,
        login: &UpstreamLogin,
        before: Option<&str>,
    ) -> Result<KeepOutcome, DbError> {
        let (version, issuer) = (new_version(), login.server.issuer.clone());
        let issuer_before = before.map(str::to_owned);
        let made = NewLogin { key: key.clone(), issuer, issuer_before, version, value: encode(login) };
        let other = self.db.keep_login(made).run().await?;
        Ok(other.map_or(KeepOutcome::Kept(version), KeepOutcome::OtherIssuer))
    }

    /// Reads the issuer of the last login of an upstream, even if the login has ended.
    ///
    /// # Errors
    /// When the store cannot be read.
    pub async fn issuer(&self, key: &LoginKey) -> Result<Option<String>, DbError> {
        self.db.login_issuer(key.clone()).run().await
    }

    /// Migrates logins of stores before version 9, which belong to a launch alone: gives each to
    /// the upstream with its launch, or removes it if several of these have the launch. Blocks.
    ///
    /// # Errors
    /// When the change is not on disk.
    pub fn adopt(&self, keys: Vec<LoginKey>) -> Result<(), DbError> {
        // A store without such logins needs no write, so that a read-only disk does not matter.
        if self.db.has_unowned_logins().run_now()? { self.db.adopt_logins(keys).run_now() } else { Ok(()) }
    }

    /// Claims the login of that version for a renewal.
    ///
    /// # Errors
    /// When the claim is not on disk.
    pub async fn claim(&self, key: &LoginKey, version: u64) -> Result<ClaimAttempt<'_>, DbError> {
        let who = ClaimKey { key: key.clone(), version, by: self.by };
        let now = clock::since_1970().as_secs();
        let claim = self.db.claim_login(who.clone(), now, now + CLAIM.as_secs()).run().await?;
        Ok(match claim {
            LoginRowClaim::Mine { was_tried } => ClaimAttempt::Mine(LoginClaim { logins: self, who, was_tried }),
            LoginRowClaim::Busy => ClaimAttempt::Busy,
            LoginRowClaim::Moved => ClaimAttempt::Moved,
        })
    }

    /// Marks the login of that version as ended by its server. Returns false if the row has another
    /// version by now.
    ///
    /// # Errors
    /// When the mark is not on disk.
    pub async fn expire(&self, key: &LoginKey, version: u64) -> Result<bool, DbError> {
        self.db.expire_login(key.clone(), version).run().await
    }

    /// Removes the login of an upstream, but keeps its issuer. Returns true if there was one.
    ///
    /// # Errors
    /// When the login is still on disk.
    pub async fn forget(&self, key: &LoginKey) -> Result<bool, DbError> {
        self.db.forget_login(key.clone()).run().await
    }

    /// Reads the clients that were registered for an upstream. Registrations that cannot be parsed
    /// are left out.
    ///
    /// # Errors
    /// When the store cannot be read.
    pub async fn registrations(&self, key: &LoginKey) -> Result<Vec<ClientRegistration>, DbError> {
        let found = self.db.registrations(key.clone()).run().await?;
        Ok(found.iter().filter_map(|value| decode(value)).collect())
    }

    /// Stores a client that was registered at an issuer for an upstream.
    ///
    /// # Errors
    /// When the registration is not on disk.
    pub async fn keep_registration(&self, key: &LoginKey, made: &ClientRegistration) -> Result<(), DbError> {
        self.db.keep_registration(key.clone(), made.issuer.clone(), encode(made)).run().await
    }

    /// Removes the clients that were registered for an upstream.
    ///
    /// # Errors
    /// When they are still on disk.
    pub async fn forget_registrations(&self, key: &LoginKey) -> Result<(), DbError> {
        self.db.forget_registrations(key.clone()).run().await
    }
}

impl LoginClaim<'_> {
    /// Stores the tokens of the renewal. Returns the new version, or `None` if the row has another
    /// version by now.
    ///
    /// # Errors
    /// When the tokens are not on disk; they must not be used then.
    pub async fn renewed(&self, login: &UpstreamLogin) -> Result<Option<u64>, DbError> {
        let version = new_version();
        let kept = self.logins.db.renew_login(self.who.clone(), version, encode(login)).run().await?;
        Ok(kept.then_some(version))
    }

    /// Releases the claim after a renewal that failed. `tried` says that the refresh token may have
    /// been used.
    pub async fn release(self, tried: bool) {
        // A claim that is not released expires.
        drop(self.logins.db.release_login(self.who, tried || self.was_tried).run().await);
    }
}

/// Generates a version number that no other row has or had.
fn new_version() -> u64 {
    u64::from_be_bytes(clock::random()) >> 1
}

fn encode(value: &impl Serialize) -> String {
    // The values are texts, numbers and lists of them, which always serialize.
    serde_json::to_string(value).unwrap_or_default()
}

fn decode<T: DeserializeOwned>(value: &str) -> Option<T> {
    serde_json::from_str(value).ok()
}

#[cfg(test)]
mod tests;
