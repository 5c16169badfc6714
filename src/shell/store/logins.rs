//! Logins at upstreams over restarts and processes. A login lies in the store sealed; it belongs to
//! one upstream with one launch, and to the issuer whose tokens it holds. Its issuer is kept beyond
//! its end: another one needs the operator's word.
//!
//! One process at a time renews a login: it claims the row, and every other one waits for the new row. Servers end a login when they
//! see a refresh token twice, so the new one is on disk before anything is done with the tokens that came with it. A claim ends by
//! itself, since its process may have ended; the next one finds the mark that the refresh token may have been used, and if the server
//! then refuses it, knows why.

use std::time::Duration;

use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::base::clock;
use crate::config::Upstream;
use crate::login::client::Registration;
use crate::login::token::Login;
pub use crate::store::db::LoginKey;
use crate::store::db::{Claim, Claimant, Db, DbError, MadeLogin};

/// How long a renewal may take: longer than its request.
const CLAIM: Duration = Duration::from_secs(20);

/// A login that was read.
#[derive(Clone, Debug)]
pub struct Held {
    pub version: u64,
    pub login: Login,
    pub is_expired: bool,
}

/// The logins of a store. Clones are the same ones.
#[derive(Clone, Debug)]
pub struct Logins {
    db: Db,
    /// This process among those that claim rows.
    by: u64,
}

/// A claim on a row, and the way to give it back.
#[derive(Debug)]
pub struct Claimed<'l> {
    logins: &'l Logins,
    who: Claimant,
    pub was_tried: bool,
}

/// The outcome of an attempt to claim.
#[derive(Debug)]
pub enum Claiming<'l> {
    Mine(Claimed<'l>),
    Busy,
    Moved,
}

/// The outcome of keeping a new login.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Keeping {
    /// It is on disk, as this version.
    Kept(u64),
    /// A login at this issuer was kept meanwhile, and stays.
    OtherIssuer(String),
}

impl LoginKey {
    /// The key of an upstream's login.
    pub fn of(upstream: &Upstream) -> Self {
        Self { upstream: upstream.name.to_string(), launch: upstream.launch_identity() }
    }
}

impl Logins {
    pub fn new(db: Db) -> Self {
        Self { db, by: u64::from_be_bytes(clock::random()) >> 1 }
    }

    /// The login of an upstream. One that cannot be opened or read is none.
    ///
    /// # Errors
    /// When the store cannot be read.
    pub async fn get(&self, key: &LoginKey) -> Result<Option<Held>, DbError> {
        let Some(kept) = self.db.login(key.clone()).run().await? else { return Ok(None) };
        let login = kept.value.as_deref().and_then(read);
        Ok(login.map(|login| Held { version: kept.version, login, is_expired: kept.is_expired }))
    }

    /// Keeps a new login, unless a login at another issuer was kept since this one began, when the
    /// issuer was `before`.
    ///
    /// # Errors
    /// When it is not on disk.
    pub async fn keep(&self, key: &LoginKey, login: &Login, before: Option<&str>) -> Result<Keeping, DbError> {
        let (version, issuer) = (version(), login.server.issuer.clone());
        let issuer_before = before.map(str::to_owned);
        let made = MadeLogin { key: key.clone(), issuer, issuer_before, version, value: write(login) };
        let other = self.db.keep_login(made).run().await?;
        Ok(other.map_or(Keeping::Kept(version), Keeping::OtherIssuer))
    }

    /// The issuer of the last login of an upstream, whether or not that login has ended.
    ///
    /// # Errors
    /// When the store cannot be read.
    pub async fn issuer(&self, key: &LoginKey) -> Result<Option<String>, DbError> {
        self.db.login_issuer(key.clone()).run().await
    }

    /// Gives logins of before version 9 of the store to the upstreams with their launch; removes
    /// one that several of these have. Blocks.
    ///
    /// # Errors
    /// When that is not on disk.
    pub fn adopt(&self, keys: Vec<LoginKey>) -> Result<(), DbError> {
        // A disk that takes no writes must not matter to a store without such logins.
        if self.db.has_unowned_logins().run_now()? { self.db.adopt_logins(keys).run_now() } else { Ok(()) }
    }

    /// Claims the row of that version for a renewal.
    ///
    /// # Errors
    /// When the claim is not on disk.
    pub async fn claim(&self, key: &LoginKey, version: u64) -> Result<Claiming<'_>, DbError> {
        let who = Claimant { key: key.clone(), version, by: self.by };
        let now = clock::since_1970().as_secs();
        let claim = self.db.claim_login(who.clone(), now, now + CLAIM.as_secs()).run().await?;
        Ok(match claim {
            Claim::Mine { was_tried } => Claiming::Mine(Claimed { logins: self, who, was_tried }),
            Claim::Busy => Claiming::Busy,
            Claim::Moved => Claiming::Moved,
        })
    }

    /// Marks the login of that version as ended by its server; false where it is another one by now.
    ///
    /// # Errors
    /// When that is not on disk.
    pub async fn expire(&self, key: &LoginKey, version: u64) -> Result<bool, DbError> {
        self.db.expire_login(key.clone(), version).run().await
    }

    /// Forgets the login of an upstream, but not its issuer; whether there was one.
    ///
    /// # Errors
    /// When it is still on disk.
    pub async fn forget(&self, key: &LoginKey) -> Result<bool, DbError> {
        self.db.forget_login(key.clone()).run().await
    }

    /// The clients that were registered for an upstream.
    ///
    /// # Errors
    /// When the store cannot be read.
    pub async fn registrations(&self, key: &LoginKey) -> Result<Vec<Registration>, DbError> {
        let found = self.db.registrations(key.clone()).run().await?;
        Ok(found.iter().filter_map(|value| read(value)).collect())
    }

    /// Keeps the client that was registered.
    ///
    /// # Errors
    /// When it is not on disk.
    pub async fn keep_registration(&self, key: &LoginKey, made: &Registration) -> Result<(), DbError> {
        self.db.keep_registration(key.clone(), made.issuer.clone(), write(made)).run().await
    }

    /// Forgets the clients that were registered for an upstream.
    ///
    /// # Errors
    /// When they are still on disk.
    pub async fn forget_registrations(&self, key: &LoginKey) -> Result<(), DbError> {
        self.db.forget_registrations(key.clone()).run().await
    }
}

impl Claimed<'_> {
    /// Keeps the tokens of the renewal; the new version, or `None` where the row is another one by now.
    ///
    /// # Errors
    /// When they are not on disk: they must not be used.
    pub async fn renewed(&self, login: &Login) -> Result<Option<u64>, DbError> {
        let version = version();
        let kept = self.logins.db.renew_login(self.who.clone(), version, write(login)).run().await?;
        Ok(kept.then_some(version))
    }

    /// The renewal came to nothing. `tried`: the refresh token may have been used.
    pub async fn release(self, tried: bool) {
        // A claim that stays ends by itself.
        drop(self.logins.db.release_login(self.who, tried || self.was_tried).run().await);
    }
}

/// A number that no other row has or had.
fn version() -> u64 {
    u64::from_be_bytes(clock::random()) >> 1
}

fn write(value: &impl Serialize) -> String {
    // Texts, numbers and lists of them: nothing in it can fail.
    serde_json::to_string(value).unwrap_or_default()
}

fn read<T: DeserializeOwned>(value: &str) -> Option<T> {
    serde_json::from_str(value).ok()
}

#[cfg(test)]
mod tests;
