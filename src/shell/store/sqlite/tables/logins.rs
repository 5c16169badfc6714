//! Logins: the tables `logins`, `login_issuers` and `registrations`. This file decides which of
//! several processes renews a login, so looking at a row and claiming it must be one operation.

use rusqlite::{Connection, OptionalExtension as _, params};

use crate::store::port::{ClaimKey, DbOperation, KeptLogin, LoginKey, LoginOperations, LoginRowClaim, NewLogin};
use crate::store::seal::{Seals, UnsealedValue};
use crate::store::sqlite::{Sqlite, no_key, signed, unsigned};

impl LoginOperations for Sqlite {
    fn login(&self, key: LoginKey) -> DbOperation<'_, Option<KeptLogin>> {
        let seals = self.seals.clone();
        self.read(move |connection| {
            let sql = "SELECT version, state = 'expired', value FROM logins WHERE upstream = ?1 AND launch = ?2";
            let row = connection.prepare_cached(sql)?.query_row([&key.upstream, &key.launch], |row| {
                Ok((row.get(0)?, row.get(1)?, row.get::<_, String>(2)?))
            });
            let Some((version, is_expired, stored)) = row.optional()? else { return Ok(None) };
            let value = match seals.open(&login_place(&key), &stored) {
                UnsealedValue::Text { text, .. } => Some(text),
                // A login is never written in the clear.
                UnsealedValue::Clear | UnsealedValue::Lost => None,
            };
            Ok(Some(KeptLogin { version: unsigned(version), is_expired, value }))
        })
    }

    fn keep_login(&self, made: NewLogin) -> DbOperation<'_, Option<String>> {
        let seals = self.seals.clone();
        self.write(move |connection| {
            let NewLogin { key, issuer, issuer_before, version, value } = made;
            let kept = issuer_of(connection, &key)?;
            if kept != issuer_before
                && let Some(kept) = kept
                && kept != issuer
            {
                return Ok(Some(kept));
            }
            let value = seals.seal(&login_place(&key), &value).ok_or_else(no_key)?;
            let sql = "INSERT OR REPLACE INTO logins (upstream, launch, issuer, version, state, value, tried, claimed_by, claimed_until) \
                       VALUES (?1, ?2, ?3, ?4, 'live', ?5, 0, NULL, NULL)";
            let values = params![key.upstream, key.launch, issuer, signed(version), value];
            connection.prepare_cached(sql)?.execute(values)?;
            let sql = "INSERT OR REPLACE INTO login_issuers (upstream, launch, issuer) VALUES (?1, ?2, ?3)";
            connection.prepare_cached(sql)?.execute([key.upstream, key.launch, issuer])?;
            Ok(None)
        })
    }

    fn login_issuer(&self, key: LoginKey) -> DbOperation<'_, Option<String>> {
        self.read(move |connection| issuer_of(connection, &key))
    }

    fn has_unowned_logins(&self) -> DbOperation<'_, bool> {
        self.read(|connection| {
            let sql = "SELECT EXISTS (SELECT 1 FROM logins WHERE upstream = '') \
                       OR EXISTS (SELECT 1 FROM registrations WHERE upstream = '')";
            connection.query_row(sql, [], |row| row.get(0))
        })
    }

    fn adopt_logins(&self, keys: Vec<LoginKey>) -> DbOperation<'_, ()> {
        let seals = self.seals.clone();
        self.write(move |connection| {
            for launch in unowned(connection, "logins")? {
                match owner(&keys, &launch) {
                    AdoptingUpstream::Unknown => {}
                    AdoptingUpstream::One(key) => adopt_login(connection, &seals, key)?,
                    AdoptingUpstream::Several => remove_unowned(connection, "logins", &launch)?,
                }
            }
            // A login has its registration in it. Without an old one, the next login registers
            // headend again.
            for launch in unowned(connection, "registrations")? {
                if !matches!(owner(&keys, &launch), AdoptingUpstream::Unknown) {
                    remove_unowned(connection, "registrations", &launch)?;
                }
            }
            Ok(())
        })
    }

    fn claim_login(&self, who: ClaimKey, now: u64, until: u64) -> DbOperation<'_, LoginRowClaim> {
        self.write(move |connection| {
            let sql = "SELECT tried, claimed_by, claimed_until FROM logins \
                       WHERE upstream = ?1 AND launch = ?2 AND version = ?3 AND state = 'live'";
            let row: Option<(bool, Option<i64>, Option<i64>)> = connection
                .prepare_cached(sql)?
                .query_row(params![who.key.upstream, who.key.launch, signed(who.version)], |row| {
                    Ok((row.get(0)?, row.get(1)?, row.get(2)?))
                })
                .optional()?;
            let Some((was_tried, claimed_by, claimed_until)) = row else { return Ok(LoginRowClaim::Moved) };
            let is_claimed = claimed_until.is_some_and(|end| unsigned(end) > now);
            if is_claimed && claimed_by.is_some_and(|by| by != signed(who.by)) {
                return Ok(LoginRowClaim::Busy);
            }
            let sql = "UPDATE logins SET claimed_by = ?4, claimed_until = ?5, tried = 1 \
                       WHERE upstream = ?1 AND launch = ?2 AND version = ?3";
            let LoginKey { upstream, launch } = who.key;
            let values = params![upstream, launch, signed(who.version), signed(who.by), signed(until)];
            connection.prepare_cached(sql)?.execute(values)?;
            Ok(LoginRowClaim::Mine { was_tried })
        })
    }

    fn renew_login(&self, who: ClaimKey, version: u64, value: String) -> DbOperation<'_, bool> {
        let seals = self.seals.clone();
        self.write(move |connection| {
            let value = seals.seal(&login_place(&who.key), &value).ok_or_else(no_key)?;
            let sql = "UPDATE logins SET version = ?4, value = ?5, tried = 0, claimed_by = NULL, claimed_until = NULL \
                       WHERE upstream = ?1 AND launch = ?2 AND version = ?3 AND state = 'live'";
            let LoginKey { upstream, launch } = who.key;
            let values = params![upstream, launch, signed(who.version), signed(version), value];
            Ok(connection.prepare_cached(sql)?.execute(values)? == 1)
        })
    }

    fn release_login(&self, who: ClaimKey, tried: bool) -> DbOperation<'_, ()> {
        self.write(move |connection| {
            let sql = "UPDATE logins SET claimed_by = NULL, claimed_until = NULL, tried = ?5 \
                       WHERE upstream = ?1 AND launch = ?2 AND version = ?3 AND claimed_by = ?4";
            let LoginKey { upstream, launch } = who.key;
            let values = params![upstream, launch, signed(who.version), signed(who.by), tried];
            connection.prepare_cached(sql)?.execute(values).map(drop)
        })
    }

    fn expire_login(&self, key: LoginKey, version: u64) -> DbOperation<'_, bool> {
        self.write(move |connection| {
            let sql = "UPDATE logins SET state = 'expired', claimed_by = NULL, claimed_until = NULL \
                       WHERE upstream = ?1 AND launch = ?2 AND version = ?3";
            Ok(connection.prepare_cached(sql)?.execute(params![key.upstream, key.launch, signed(version)])? == 1)
        })
    }

    fn forget_login(&self, key: LoginKey) -> DbOperation<'_, bool> {
        self.write(move |connection| {
            let sql = "DELETE FROM logins WHERE upstream = ?1 AND launch = ?2";
            Ok(connection.prepare_cached(sql)?.execute([key.upstream, key.launch])? > 0)
        })
    }

    fn registrations(&self, key: LoginKey) -> DbOperation<'_, Vec<String>> {
        let seals = self.seals.clone();
        self.read(move |connection| {
            let sql = "SELECT issuer, value FROM registrations WHERE upstream = ?1 AND launch = ?2";
            let mut select = connection.prepare_cached(sql)?;
            let rows = select.query_map([&key.upstream, &key.launch], |row| {
                Ok((row.get::<_, String>(0)?, row.get::<_, String>(1)?))
            })?;
            let mut found = Vec::new();
            for row in rows {
                let (issuer, stored) = row?;
                if let UnsealedValue::Text { text, .. } = seals.open(&registration_place(&key, &issuer), &stored) {
                    found.push(text);
                }
            }
            Ok(found)
        })
    }

    fn keep_registration(&self, key: LoginKey, issuer: String, value: String) -> DbOperation<'_, ()> {
        let seals = self.seals.clone();
        self.write(move |connection| {
            let value = seals.seal(&registration_place(&key, &issuer), &value).ok_or_else(no_key)?;
            forget_registrations(connection, &key)?;
            let sql = "INSERT INTO registrations (upstream, launch, issuer, value) VALUES (?1, ?2, ?3, ?4)";
            connection.prepare_cached(sql)?.execute([key.upstream, key.launch, issuer, value]).map(drop)
        })
    }

    fn forget_registrations(&self, key: LoginKey) -> DbOperation<'_, ()> {
        self.write(move |connection| forget_registrations(connection, &key))
    }
}

fn issuer_of(connection: &Connection, key: &LoginKey) -> rusqlite::Result<Option<String>> {
    let sql = "SELECT issuer FROM login_issuers WHERE upstream = ?1 AND launch = ?2";
    connection.prepare_cached(sql)?.query_row([&key.upstream, &key.launch], |row| row.get(0)).optional()
}

fn forget_registrations(connection: &Connection, key: &LoginKey) -> rusqlite::Result<()> {
    let sql = "DELETE FROM registrations WHERE upstream = ?1 AND launch = ?2";
    connection.prepare_cached(sql)?.execute([&key.upstream, &key.launch]).map(drop)
}

/// The upstream that adopts what was kept for a launch.
enum AdoptingUpstream<'k> {
    /// No upstream of now has that launch.
    Unknown,
    One(&'k LoginKey),
    Several,
}

fn owner<'k>(keys: &'k [LoginKey], launch: &str) -> AdoptingUpstream<'k> {
    let mut owners = keys.iter().filter(|key| key.launch == launch);
    match (owners.next(), owners.next()) {
        (None, _) => AdoptingUpstream::Unknown,
        (Some(key), None) => AdoptingUpstream::One(key),
        (Some(_), Some(_)) => AdoptingUpstream::Several,
    }
}

/// Returns the launches of the rows of a table that belong to no upstream.
fn unowned(connection: &Connection, table: &str) -> rusqlite::Result<Vec<String>> {
    let mut select = connection.prepare(&format!("SELECT DISTINCT launch FROM {table} WHERE upstream = ''"))?;
    select.query_map([], |row| row.get(0))?.collect()
}

fn remove_unowned(connection: &Connection, table: &str, launch: &str) -> rusqlite::Result<()> {
    connection.execute(&format!("DELETE FROM {table} WHERE upstream = '' AND launch = ?1"), [launch]).map(drop)
}

/// Seals the old login with this launch for its upstream, and keeps its issuer. A login that was
/// given since then stays.
fn adopt_login(connection: &Connection, seals: &Seals, key: &LoginKey) -> rusqlite::Result<()> {
    let sql = "SELECT issuer, value FROM logins WHERE upstream = '' AND launch = ?1";
    let (issuer, stored): (String, String) =
        connection.query_row(sql, [&key.launch], |row| Ok((row.get(0)?, row.get(1)?)))?;
    let old = LoginKey { upstream: String::new(), launch: key.launch.clone() };
    // Without its key the login cannot be read, now or later.
    if let UnsealedValue::Text { text, .. } = seals.open(&login_place(&old), &stored) {
        let value = seals.seal(&login_place(key), &text).ok_or_else(no_key)?;
        let sql = "UPDATE OR IGNORE logins SET upstream = ?1, value = ?2 WHERE upstream = '' AND launch = ?3";
        connection.execute(sql, [&key.upstream, &value, &key.launch])?;
    }
    remove_unowned(connection, "logins", &key.launch)?;
    let sql = "INSERT OR IGNORE INTO login_issuers (upstream, launch, issuer) VALUES (?1, ?2, ?3)";
    connection.execute(sql, [&key.upstream, &key.launch, &issuer]).map(drop)
}

/// Returns the place that a login is sealed for. Without an upstream it is the place of before
/// version 9.
pub(super) fn login_place(key: &LoginKey) -> Vec<&str> {
    let names = [&*key.upstream, &*key.launch].into_iter().filter(|name| !name.is_empty());
    ["logins", "value"].into_iter().chain(names).collect()
}

pub(super) fn registration_place<'a>(key: &'a LoginKey, issuer: &'a str) -> [&'a str; 5] {
    ["registrations", "value", &key.upstream, &key.launch, issuer]
}
