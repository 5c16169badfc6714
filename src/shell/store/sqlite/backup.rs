//! The copy of the database in a backup: a snapshot in memory, without what must not come back,
//! then a fresh file with nothing else in it.
//!
//! Rows that are left out never reach the backup's disk: they are deleted in memory, and the file
//! is written by `VACUUM INTO`, which copies no free page. The copy has an identity of its own, so
//! that no session id, state or cursor of the original counts in it, and the mark of a backup
//! (`db/restored`). The secret of the audit log stays, since it proves what retention removed.

use std::fs;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::Path;

use rusqlite::Connection;

use super::error::describe_error;
use super::{FILE, open};
use crate::store::port::{BackupRows, DbError};
use crate::store::sqlite::tables::restored;

/// SQL that deletes the rows that ended with the process or must not be used twice, and releases
/// the claims of renewals.
const STRIP: &str = "
DELETE FROM grants WHERE lifetime = 'once';
DELETE FROM approvals;
DELETE FROM answers;
DELETE FROM used_states;
DELETE FROM ended_sessions;
DELETE FROM ended_floors;
DELETE FROM session_levels;
DELETE FROM session_resources;
DELETE FROM sign_ins;
DELETE FROM audit_heads;
UPDATE logins SET claimed_by = NULL, claimed_until = NULL;
";

/// Writes a copy of the database of the directory `state` into the directory `to`, which belongs to
/// this process alone. Other processes may use the original meanwhile. Blocks.
///
/// # Errors
/// A sentence with the file: the original cannot be read, or the copy not be written whole.
pub fn back_up(state: &Path, to: &Path, now: u64) -> Result<BackupRows, DbError> {
    let (from, to) = (state.join(FILE), to.join(FILE));
    let snapshot = open::snapshot(&from)?;
    let rows = strip(&snapshot, now).map_err(|error| describe_error(&from, &error))?;
    write(&snapshot, &to)?;
    open::check_copy(&to)?;
    Ok(rows)
}

/// Deletes the rows that a backup must not have from the copy, and marks it as a backup. Returns
/// how many live grants, pins and logins are left in it.
fn strip(copy: &Connection, now: u64) -> rusqlite::Result<BackupRows> {
    copy.execute_batch(STRIP)?;
    restored::mark(copy, now)?;
    // The number that the thread writes to try the disk.
    copy.execute("DELETE FROM meta WHERE key = 'tried'", [])?;
    let count = |sql: &str| {
        let rows = copy.query_row(sql, [], |row| row.get::<_, i64>(0))?;
        Ok::<usize, rusqlite::Error>(usize::try_from(rows).unwrap_or(0))
    };
    Ok(BackupRows {
        grants: count("SELECT count(*) FROM grants WHERE state = 'live'")?,
        pins: count("SELECT count(*) FROM pins")?,
        logins: count("SELECT count(*) FROM logins")?,
    })
}

/// Writes the copy to a new file with mode 0600, and waits until it is on disk.
fn write(copy: &Connection, to: &Path) -> Result<(), DbError> {
    let failed = |why: String| DbError::NotWritable { path: to.to_owned(), why };
    let name = to.to_str().ok_or_else(|| failed("its path is not UTF-8".to_owned()))?;
    // `VACUUM INTO` takes an empty file, and keeps its mode.
    let file = fs::OpenOptions::new().write(true).create_new(true).mode(0o600).open(to);
    let file = file.map_err(|error| failed(error.to_string()))?;
    copy.execute("VACUUM INTO ?1", [name]).map_err(|error| describe_error(to, &error))?;
    file.sync_all().map_err(|error| failed(error.to_string()))
}
