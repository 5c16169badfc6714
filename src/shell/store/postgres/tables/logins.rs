//! Logins: the tables `logins`, `login_issuers` and `registrations`. This file decides which of
//! several processes renews a login, so looking at a row and claiming it are one transaction.

use crate::store::port::{
    ClaimKey, DbError, DbOperation, KeptLogin, LoginKey, LoginOperations, LoginRowClaim, NewLogin,
};
use crate::store::postgres::Postgres;
use crate::store::postgres::error::no_key;
use crate::store::postgres::session::{PostgresSession, column, signed, unsigned};
use crate::store::seal::UnsealedValue;

impl LoginOperations for Postgres {
    fn login(&self, key: LoginKey) -> DbOperation<'_, Option<KeptLogin>> {
        let seals = self.seals.clone();
        self.read(async move |session: &PostgresSession| {
            let sql = "SELECT version, state = 'expired' AS is_expired, value FROM logins WHERE upstream = $1 AND launch = $2";
            let Some(row) = session.row(sql, &[&key.upstream, &key.launch]).await? else { return Ok(None) };
            let value = match seals.open(&login_place(&key), column(&row, "value")?) {
                UnsealedValue::Text { text, .. } => Some(text),
                // A login is never written in the clear.
                UnsealedValue::Clear | UnsealedValue::Lost => None,
            };
            Ok(Some(KeptLogin { version: unsigned(&row, "version")?, is_expired: column(&row, "is_expired")?, value }))
        })
    }

    fn keep_login(&self, made: NewLogin) -> DbOperation<'_, Option<String>> {
        let seals = self.seals.clone();
        self.write(async move |session: &PostgresSession| {
            let NewLogin { key, issuer, issuer_before, version, value } = made;
            let kept = issuer_of(session, &key).await?;
            if kept != issuer_before
                && let Some(kept) = kept
                && kept != issuer
            {
                return Ok(Some(kept));
            }
            let value = seals.seal(&login_place(&key), &value).ok_or_else(no_key)?;
            let sql = "INSERT INTO logins (upstream, launch, issuer, version, state, value, tried) \
                       VALUES ($1, $2, $3, $4, 'live', $5, false) ON CONFLICT (upstream, launch) DO UPDATE \
                       SET issuer = excluded.issuer, version = excluded.version, state = 'live', value = excluded.value, \
                       tried = false, claimed_by = NULL, claimed_until = NULL";
            session.execute(sql, &[&key.upstream, &key.launch, &issuer, &signed(version), &value]).await?;
            let sql = "INSERT INTO login_issuers (upstream, launch, issuer) VALUES ($1, $2, $3) \
                       ON CONFLICT (upstream, launch) DO UPDATE SET issuer = excluded.issuer";
            session.execute(sql, &[&key.upstream, &key.launch, &issuer]).await?;
            Ok(None)
        })
    }

    fn login_issuer(&self, key: LoginKey) -> DbOperation<'_, Option<String>> {
        self.read(async move |session: &PostgresSession| issuer_of(session, &key).await)
    }

    /// Returns false: all logins of this engine have been given for an upstream.
    fn has_unowned_logins(&self) -> DbOperation<'_, bool> {
        self.read(async |_: &PostgresSession| Ok(false))
    }

    fn adopt_logins(&self, _: Vec<LoginKey>) -> DbOperation<'_, ()> {
        self.read(async |_: &PostgresSession| Ok(()))
    }

    fn claim_login(&self, who: ClaimKey, now: u64, until: u64) -> DbOperation<'_, LoginRowClaim> {
        self.write(async move |session: &PostgresSession| {
            let LoginKey { upstream, launch } = &who.key;
            let sql = "SELECT tried, coalesce(claimed_until > $4 AND claimed_by <> $5, false) AS is_busy FROM logins \
                       WHERE upstream = $1 AND launch = $2 AND version = $3 AND state = 'live'";
            let Some(row) =
                session.row(sql, &[upstream, launch, &signed(who.version), &signed(now), &signed(who.by)]).await?
            else {
                return Ok(LoginRowClaim::Moved);
            };
            if column(&row, "is_busy")? {
                return Ok(LoginRowClaim::Busy);
            }
            let sql = "UPDATE logins SET claimed_by = $4, claimed_until = $5, tried = true \
                       WHERE upstream = $1 AND launch = $2 AND version = $3";
            session.execute(sql, &[upstream, launch, &signed(who.version), &signed(who.by), &signed(until)]).await?;
            Ok(LoginRowClaim::Mine { was_tried: column(&row, "tried")? })
        })
    }

    fn renew_login(&self, who: ClaimKey, version: u64, value: String) -> DbOperation<'_, bool> {
        let seals = self.seals.clone();
        self.write(async move |session: &PostgresSession| {
            let value = seals.seal(&login_place(&who.key), &value).ok_or_else(no_key)?;
            let sql = "UPDATE logins SET version = $4, value = $5, tried = false, claimed_by = NULL, claimed_until = NULL \
                       WHERE upstream = $1 AND launch = $2 AND version = $3 AND state = 'live'";
            let LoginKey { upstream, launch } = &who.key;
            Ok(session.execute(sql, &[upstream, launch, &signed(who.version), &signed(version), &value]).await? == 1)
        })
    }

    fn release_login(&self, who: ClaimKey, tried: bool) -> DbOperation<'_, ()> {
        self.write(async move |session: &PostgresSession| {
            let sql = "UPDATE logins SET claimed_by = NULL, claimed_until = NULL, tried = $5 \
                       WHERE upstream = $1 AND launch = $2 AND version = $3 AND claimed_by = $4";
            let LoginKey { upstream, launch } = &who.key;
            session.execute(sql, &[upstream, launch, &signed(who.version), &signed(who.by), &tried]).await.map(drop)
        })
    }

    fn expire_login(&self, key: LoginKey, version: u64) -> DbOperation<'_, bool> {
        self.write(async move |session: &PostgresSession| {
            let sql = "UPDATE logins SET state = 'expired', claimed_by = NULL, claimed_until = NULL \
                       WHERE upstream = $1 AND launch = $2 AND version = $3";
            Ok(session.execute(sql, &[&key.upstream, &key.launch, &signed(version)]).await? == 1)
        })
    }

    fn forget_login(&self, key: LoginKey) -> DbOperation<'_, bool> {
        self.write(async move |session: &PostgresSession| {
            let sql = "DELETE FROM logins WHERE upstream = $1 AND launch = $2";
            Ok(session.execute(sql, &[&key.upstream, &key.launch]).await? > 0)
        })
    }

    fn registrations(&self, key: LoginKey) -> DbOperation<'_, Vec<String>> {
        let seals = self.seals.clone();
        self.read(async move |session: &PostgresSession| {
            let sql = "SELECT issuer, value FROM registrations WHERE upstream = $1 AND launch = $2";
            let mut found = Vec::new();
            for row in session.rows(sql, &[&key.upstream, &key.launch]).await? {
                let (issuer, stored) = (column(&row, "issuer")?, column(&row, "value")?);
                if let UnsealedValue::Text { text, .. } = seals.open(&registration_place(&key, issuer), stored) {
                    found.push(text);
                }
            }
            Ok(found)
        })
    }

    fn keep_registration(&self, key: LoginKey, issuer: String, value: String) -> DbOperation<'_, ()> {
        let seals = self.seals.clone();
        self.write(async move |session: &PostgresSession| {
            let value = seals.seal(&registration_place(&key, &issuer), &value).ok_or_else(no_key)?;
            forget_registrations(session, &key).await?;
            let sql = "INSERT INTO registrations (upstream, launch, issuer, value) VALUES ($1, $2, $3, $4)";
            session.execute(sql, &[&key.upstream, &key.launch, &issuer, &value]).await.map(drop)
        })
    }

    fn forget_registrations(&self, key: LoginKey) -> DbOperation<'_, ()> {
        self.write(async move |session: &PostgresSession| forget_registrations(session, &key).await)
    }
}

async fn issuer_of(session: &PostgresSession, key: &LoginKey) -> Result<Option<String>, DbError> {
    let sql = "SELECT issuer FROM login_issuers WHERE upstream = $1 AND launch = $2";
    let row = session.row(sql, &[&key.upstream, &key.launch]).await?;
    row.map(|row| column(&row, "issuer")).transpose()
}

async fn forget_registrations(session: &PostgresSession, key: &LoginKey) -> Result<(), DbError> {
    let sql = "DELETE FROM registrations WHERE upstream = $1 AND launch = $2";
    session.execute(sql, &[&key.upstream, &key.launch]).await.map(drop)
}

/// Returns the place that a login is sealed for.
fn login_place(key: &LoginKey) -> [&str; 4] {
    ["logins", "value", &key.upstream, &key.launch]
}

fn registration_place<'a>(key: &'a LoginKey, issuer: &'a str) -> [&'a str; 5] {
    ["registrations", "value", &key.upstream, &key.launch, issuer]
}
