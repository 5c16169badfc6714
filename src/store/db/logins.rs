//! Logins at upstreams, and the clients that were registered for them: the tables `logins` and `registrations`. Every process writes
//! them. This file decides which of several processes renews a login, so looking at a row and claiming it must be one operation.
//!
//! A row's version is another one after each change of its tokens, so a verdict about tokens that were exchanged meanwhile changes
//! nothing. The mark `tried` says that a refresh token may have been used without an answer.

use rusqlite::{Connection, OptionalExtension as _, params};

use super::{Db, Operation, Work, no_key, signed, unsigned};
use crate::store::seal::Opened;

/// A login as it is kept.
#[derive(Clone, Debug)]
pub(crate) struct KeptLogin {
    pub(crate) version: u64,
    /// The authorization server has ended it.
    pub(crate) is_expired: bool,
    /// The login as JSON; `None` where the key that sealed it is gone.
    pub(crate) value: Option<String>,
}

/// The outcome of a claim.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Claim {
    /// This process renews it. `was_tried`: an earlier attempt may have used the same refresh token.
    Mine { was_tried: bool },
    /// Another one is at it.
    Busy,
    /// The row is another one by now.
    Moved,
}

/// One process, at one renewal.
#[derive(Clone, Debug)]
pub(crate) struct Claimant {
    pub(crate) launch: String,
    /// The row that it means.
    pub(crate) version: u64,
    /// Its own name.
    pub(crate) by: u64,
}

impl Db {
    /// The login of a launch.
    pub(crate) fn login(&self, launch: String) -> Operation<'_, impl Work<Out = Option<KeptLogin>>> {
        let seals = self.seals.clone();
        self.read(move |connection| {
            let sql = "SELECT version, state = 'expired', value FROM logins WHERE launch = ?1";
            let row = connection
                .prepare_cached(sql)?
                .query_row([&launch], |row| Ok((row.get(0)?, row.get(1)?, row.get::<_, String>(2)?)));
            let Some((version, is_expired, stored)) = row.optional()? else { return Ok(None) };
            let value = match seals.open(&login_place(&launch), &stored) {
                Opened::Text { text, .. } => Some(text),
                // A login is never written in the clear.
                Opened::Clear | Opened::Lost => None,
            };
            Ok(Some(KeptLogin { version: unsigned(version), is_expired, value }))
        })
    }

    /// Keeps a login that a person or the gateway has made, in place of any other of that launch.
    pub(crate) fn keep_login(
        &self,
        launch: String,
        issuer: String,
        version: u64,
        value: String,
    ) -> Operation<'_, impl Work<Out = ()>> {
        let seals = self.seals.clone();
        self.write(move |connection| {
            let value = seals.seal(&login_place(&launch), &value).ok_or_else(no_key)?;
            let sql = "INSERT OR REPLACE INTO logins (launch, issuer, version, state, value, tried, claimed_by, claimed_until) \
                       VALUES (?1, ?2, ?3, 'live', ?4, 0, NULL, NULL)";
            connection.prepare_cached(sql)?.execute(params![launch, issuer, signed(version), value]).map(drop)
        })
    }

    /// Claims the row for one renewal, until that time. The mark `tried` is set with it: if this process ends before it tells what came
    /// of it, the refresh token counts as used.
    pub(crate) fn claim_login(&self, who: Claimant, now: u64, until: u64) -> Operation<'_, impl Work<Out = Claim>> {
        self.write(move |connection| {
            let sql = "SELECT tried, claimed_by, claimed_until FROM logins WHERE launch = ?1 AND version = ?2 AND state = 'live'";
            let row: Option<(bool, Option<i64>, Option<i64>)> = connection
                .prepare_cached(sql)?
                .query_row(params![who.launch, signed(who.version)], |row| Ok((row.get(0)?, row.get(1)?, row.get(2)?)))
                .optional()?;
            let Some((was_tried, claimed_by, claimed_until)) = row else { return Ok(Claim::Moved) };
            let is_claimed = claimed_until.is_some_and(|end| unsigned(end) > now);
            if is_claimed && claimed_by.is_some_and(|by| by != signed(who.by)) {
                return Ok(Claim::Busy);
            }
            let sql = "UPDATE logins SET claimed_by = ?3, claimed_until = ?4, tried = 1 WHERE launch = ?1 AND version = ?2";
            let values = params![who.launch, signed(who.version), signed(who.by), signed(until)];
            connection.prepare_cached(sql)?.execute(values)?;
            Ok(Claim::Mine { was_tried })
        })
    }

    /// Keeps the tokens of a renewal; false where the row is another one by now.
    pub(crate) fn renew_login(
        &self,
        who: Claimant,
        version: u64,
        value: String,
    ) -> Operation<'_, impl Work<Out = bool>> {
        let seals = self.seals.clone();
        self.write(move |connection| {
            let value = seals.seal(&login_place(&who.launch), &value).ok_or_else(no_key)?;
            let sql = "UPDATE logins SET version = ?3, value = ?4, tried = 0, claimed_by = NULL, claimed_until = NULL \
                       WHERE launch = ?1 AND version = ?2 AND state = 'live'";
            let values = params![who.launch, signed(who.version), signed(version), value];
            Ok(connection.prepare_cached(sql)?.execute(values)? == 1)
        })
    }

    /// Gives a claim back. `tried`: the refresh token may have been used.
    pub(crate) fn release_login(&self, who: Claimant, tried: bool) -> Operation<'_, impl Work<Out = ()>> {
        self.write(move |connection| {
            let sql = "UPDATE logins SET claimed_by = NULL, claimed_until = NULL, tried = ?4 \
                       WHERE launch = ?1 AND version = ?2 AND claimed_by = ?3";
            let values = params![who.launch, signed(who.version), signed(who.by), tried];
            connection.prepare_cached(sql)?.execute(values).map(drop)
        })
    }

    /// The authorization server has ended the login; false where the row is another one by now.
    pub(crate) fn expire_login(&self, launch: String, version: u64) -> Operation<'_, impl Work<Out = bool>> {
        self.write(move |connection| {
            let sql = "UPDATE logins SET state = 'expired', claimed_by = NULL, claimed_until = NULL \
                       WHERE launch = ?1 AND version = ?2";
            Ok(connection.prepare_cached(sql)?.execute(params![launch, signed(version)])? == 1)
        })
    }

    /// Forgets the login of a launch.
    pub(crate) fn forget_login(&self, launch: String) -> Operation<'_, impl Work<Out = bool>> {
        self.write(move |connection| {
            Ok(connection.prepare_cached("DELETE FROM logins WHERE launch = ?1")?.execute([launch])? > 0)
        })
    }

    /// The clients that were registered for a launch, as JSON.
    pub(crate) fn registrations(&self, launch: String) -> Operation<'_, impl Work<Out = Vec<String>>> {
        let seals = self.seals.clone();
        self.read(move |connection| {
            let sql = "SELECT issuer, value FROM registrations WHERE launch = ?1";
            let mut select = connection.prepare_cached(sql)?;
            let rows = select.query_map([&launch], |row| Ok((row.get::<_, String>(0)?, row.get::<_, String>(1)?)))?;
            let mut found = Vec::new();
            for row in rows {
                let (issuer, stored) = row?;
                if let Opened::Text { text, .. } = seals.open(&registration_place(&launch, &issuer), &stored) {
                    found.push(text);
                }
            }
            Ok(found)
        })
    }

    /// Keeps a registration. Of one launch only the last issuer's stays: a server that moves to another issuer leaves the one of
    /// before.
    pub(crate) fn keep_registration(
        &self,
        launch: String,
        issuer: String,
        value: String,
    ) -> Operation<'_, impl Work<Out = ()>> {
        let seals = self.seals.clone();
        self.write(move |connection| {
            let value = seals.seal(&registration_place(&launch, &issuer), &value).ok_or_else(no_key)?;
            forget_registrations(connection, &launch)?;
            let sql = "INSERT INTO registrations (launch, issuer, value) VALUES (?1, ?2, ?3)";
            connection.prepare_cached(sql)?.execute(params![launch, issuer, value]).map(drop)
        })
    }

    /// Forgets the registrations of a launch: their server does not know them any more.
    pub(crate) fn forget_registrations(&self, launch: String) -> Operation<'_, impl Work<Out = ()>> {
        self.write(move |connection| forget_registrations(connection, &launch))
    }
}

fn forget_registrations(connection: &Connection, launch: &str) -> rusqlite::Result<()> {
    connection.prepare_cached("DELETE FROM registrations WHERE launch = ?1")?.execute([launch]).map(drop)
}

fn login_place(launch: &str) -> [&str; 3] {
    ["logins", "value", launch]
}

fn registration_place<'a>(launch: &'a str, issuer: &'a str) -> [&'a str; 4] {
    ["registrations", "value", launch, issuer]
}
