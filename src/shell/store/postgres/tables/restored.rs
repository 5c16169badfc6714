//! The identity of a store, a row of the table `meta`. Backups are made by the database's own
//! tools, so there is no mark of a restore; see `replaced`.

use super::audit_rows::KEY;
use super::meta;
use super::replaced::UNRECORDED;
use crate::base::clock;
use crate::store::port::{DbOperation, ReplacementOperations, RestoreMark, RestoreOperations};
use crate::store::postgres::Postgres;
use crate::store::postgres::error::failed;
use crate::store::postgres::session::{PostgresSession, column};

/// 32 random bytes that replace the installation's key in everything but the audit log.
const IDENTITY: &str = "identity";

impl RestoreOperations for Postgres {
    fn restore_mark(&self) -> DbOperation<'_, Option<RestoreMark>> {
        self.read(async |_: &PostgresSession| Ok(None))
    }

    fn renew_identity(&self) -> DbOperation<'_, ()> {
        self.write(async |session: &PostgresSession| meta::put(session, IDENTITY, &clock::random::<32>()).await)
    }

    fn note_restore_recorded(&self) -> DbOperation<'_, ()> {
        self.read(async |_: &PostgresSession| Ok(()))
    }

    fn end_restore_review(&self) -> DbOperation<'_, Option<u64>> {
        self.read(async |_: &PostgresSession| Ok(None))
    }

    fn identity(&self) -> DbOperation<'_, [u8; 32]> {
        self.read(async |session: &PostgresSession| {
            let sql = "SELECT value FROM meta WHERE key IN ($1, $2) ORDER BY key = $1 DESC LIMIT 1";
            let row = session.row(sql, &[&IDENTITY, &KEY]).await?;
            let secret = row.map(|row| column::<Vec<u8>>(&row, "value")).transpose()?;
            secret.and_then(|secret| secret.try_into().ok()).ok_or_else(|| failed("has no identity"))
        })
    }
}

impl ReplacementOperations for Postgres {
    fn replacement(&self) -> DbOperation<'_, Option<u64>> {
        self.read(async |session: &PostgresSession| Ok(meta::number(session, UNRECORDED).await?.checked_sub(1)))
    }

    fn note_replacement_recorded(&self) -> DbOperation<'_, ()> {
        self.write(async |session: &PostgresSession| meta::remove(session, UNRECORDED).await)
    }
}
