//! The mark of a store that was restored from a backup, and the identity of a store: rows of the
//! table `meta`. A backup has the mark from the beginning; the first start of a daemon on it and
//! the operator's review change it.

use rusqlite::{Connection, OptionalExtension as _};

use super::{Db, Operation, Work, number};
use crate::base::clock;

/// Time of the backup, in seconds since 1970; there until a person has reviewed the store.
const BACKUP_TIME: &str = "backup_time";
/// 1 once the restore is in the audit log.
const RECORDED: &str = "restore_recorded";
/// 32 random bytes that replace the installation's key in everything but the audit log.
const IDENTITY: &str = "identity";

/// A restore that no person has reviewed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RestoreMark {
    /// Time of the backup, in seconds since 1970.
    pub backup_time: u64,
    /// Whether the restore is in the audit log.
    pub is_recorded: bool,
}

impl Db {
    /// The restore that waits for a review.
    pub fn restore_mark(&self) -> Operation<'_, impl Work<Out = Option<RestoreMark>>> {
        self.read(|connection| {
            let backup_time = number::number(connection, BACKUP_TIME)?;
            let is_recorded = number::number(connection, RECORDED)? != 0;
            Ok((backup_time != 0).then_some(RestoreMark { backup_time, is_recorded }))
        })
    }

    /// Gives the store a new identity, so that two restores of one backup have nothing in common.
    pub fn renew_identity(&self) -> Operation<'_, impl Work<Out = ()>> {
        self.write(set_identity)
    }

    /// Notes that the restore is in the audit log.
    pub fn note_restore_recorded(&self) -> Operation<'_, impl Work<Out = ()>> {
        self.write(|connection| number::put(connection, RECORDED, 1))
    }

    /// Removes the mark, and gives the store a new identity if no daemon has. Returns the time of
    /// the backup, or `None` if there was no mark.
    pub fn end_restore_review(&self) -> Operation<'_, impl Work<Out = Option<u64>>> {
        self.write(|connection| {
            let backup_time = number::number(connection, BACKUP_TIME)?;
            if backup_time != 0 && number::number(connection, RECORDED)? == 0 {
                set_identity(connection)?;
            }
            connection.execute("DELETE FROM meta WHERE key IN (?1, ?2)", [BACKUP_TIME, RECORDED])?;
            Ok((backup_time != 0).then_some(backup_time))
        })
    }

    /// The secret of this store beside its key: that of the installation, or of the restored
    /// backup.
    pub fn identity(&self) -> Operation<'_, impl Work<Out = [u8; 32]>> {
        self.read(|connection| {
            let read = |key: &str| {
                let sql = "SELECT value FROM meta WHERE key = ?1";
                connection.query_row(sql, [key], |row| row.get::<_, [u8; 32]>(0))
            };
            read(IDENTITY).optional()?.map_or_else(|| read("key"), Ok)
        })
    }
}

/// Makes a database the copy of a backup of that time, with an identity of its own.
pub(super) fn mark(connection: &Connection, backup_time: u64) -> rusqlite::Result<()> {
    connection.execute("DELETE FROM meta WHERE key = ?1", [RECORDED])?;
    number::put(connection, BACKUP_TIME, backup_time.max(1))?;
    set_identity(connection)
}

fn set_identity(connection: &Connection) -> rusqlite::Result<()> {
    let sql = "INSERT OR REPLACE INTO meta (key, value) VALUES (?1, ?2)";
    let identity: [u8; 32] = clock::random();
    connection.execute(sql, (IDENTITY, &identity[..])).map(drop)
}
