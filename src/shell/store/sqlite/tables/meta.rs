//! Single numbers in the table `meta`, as eight bytes: the latest time that was seen, and the count
//! of changes of pins.

use rusqlite::{Connection, OptionalExtension as _};

/// Seconds since 1970.
pub(in crate::store::sqlite) const LATEST_TIME: &str = "max_wall";

/// Returns a number, 0 where it was never written.
pub(in crate::store::sqlite) fn number(connection: &Connection, key: &str) -> rusqlite::Result<u64> {
    let sql = "SELECT value FROM meta WHERE key = ?1";
    let value: Option<Vec<u8>> = connection.prepare_cached(sql)?.query_row([key], |row| row.get(0)).optional()?;
    Ok(value.and_then(|bytes| bytes.try_into().ok()).map_or(0, u64::from_be_bytes))
}

/// Writes a number that only grows; a lower one changes nothing.
pub(in crate::store::sqlite) fn raise(connection: &Connection, key: &str, number: u64) -> rusqlite::Result<()> {
    let sql = "INSERT INTO meta (key, value) VALUES (?1, ?2) \
               ON CONFLICT (key) DO UPDATE SET value = max(value, excluded.value)";
    connection.prepare_cached(sql)?.execute((key, &number.to_be_bytes()[..])).map(drop)
}

/// Writes a number in place of the one before.
pub(in crate::store::sqlite) fn put(connection: &Connection, key: &str, number: u64) -> rusqlite::Result<()> {
    let sql = "INSERT OR REPLACE INTO meta (key, value) VALUES (?1, ?2)";
    connection.prepare_cached(sql)?.execute((key, &number.to_be_bytes()[..])).map(drop)
}

/// Remembers the time, in seconds since 1970; it never goes back.
pub(in crate::store::sqlite) fn saw(connection: &Connection, now: u64) -> rusqlite::Result<()> {
    raise(connection, LATEST_TIME, now)
}

/// This time, or the latest that any process has seen.
pub(in crate::store::sqlite) fn not_before(connection: &Connection, now: u64) -> rusqlite::Result<u64> {
    Ok(number(connection, LATEST_TIME)?.max(now))
}
