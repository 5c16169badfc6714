//! The mark of a restored store and the identity of a store: rows of the table `meta`.

use rusqlite::{Connection, OptionalExtension as _};

use super::meta;
use crate::base::clock;
use crate::store::port::{DbOperation, ReplacementOperations, RestoreMark, RestoreOperations};
use crate::store::sqlite::Sqlite;

/// Time of the backup, in seconds since 1970; there until a person has reviewed the store.
const BACKUP_TIME: &str = "backup_time";
/// 1 once the restore is in the audit log.
const RECORDED: &str = "restore_recorded";
/// 32 random bytes that replace the installation's key in everything but the audit log.
const IDENTITY: &str = "identity";

impl RestoreOperations for Sqlite {
    fn restore_mark(&self) -> DbOperation<'_, Option<RestoreMark>> {
        self.read(|connection| {
            let backup_time = meta::number(connection, BACKUP_TIME)?;
            let is_recorded = meta::number(connection, RECORDED)? != 0;
            Ok((backup_time != 0).then_some(RestoreMark { backup_time, is_recorded }))
        })
    }

    fn renew_identity(&self) -> DbOperation<'_, ()> {
        self.write(set_identity)
    }

    fn note_restore_recorded(&self) -> DbOperation<'_, ()> {
        self.write(|connection| meta::put(connection, RECORDED, 1))
    }

    fn end_restore_review(&self) -> DbOperation<'_, Option<u64>> {
        self.write(|connection| {
            let backup_time = meta::number(connection, BACKUP_TIME)?;
            if backup_time != 0 && meta::number(connection, RECORDED)? == 0 {
                set_identity(connection)?;
            }
            connection.execute("DELETE FROM meta WHERE key IN (?1, ?2)", [BACKUP_TIME, RECORDED])?;
            Ok((backup_time != 0).then_some(backup_time))
        })
    }

    fn identity(&self) -> DbOperation<'_, [u8; 32]> {
        self.read(|connection| {
            let read = |key: &str| {
                let sql = "SELECT value FROM meta WHERE key = ?1";
                connection.query_row(sql, [key], |row| row.get::<_, [u8; 32]>(0))
            };
            read(IDENTITY).optional()?.map_or_else(|| read("key"), Ok)
        })
    }
}

/// A file is never another one than before: a restored one has a mark of its own.
impl ReplacementOperations for Sqlite {
    fn replacement(&self) -> DbOperation<'_, Option<u64>> {
        self.read(|_| Ok(None))
    }

    fn note_replacement_recorded(&self) -> DbOperation<'_, ()> {
        self.read(|_| Ok(()))
    }
}

/// Makes a database the copy of a backup of that time, with an identity of its own.
pub(in crate::store::sqlite) fn mark(connection: &Connection, backup_time: u64) -> rusqlite::Result<()> {
    connection.execute("DELETE FROM meta WHERE key = ?1", [RECORDED])?;
    meta::put(connection, BACKUP_TIME, backup_time.max(1))?;
    set_identity(connection)
}

fn set_identity(connection: &Connection) -> rusqlite::Result<()> {
    let sql = "INSERT OR REPLACE INTO meta (key, value) VALUES (?1, ?2)";
    let identity: [u8; 32] = clock::random();
    connection.execute(sql, (IDENTITY, &identity[..])).map(drop)
}
