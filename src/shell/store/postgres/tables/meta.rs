//! Single values in the table `meta`: numbers as eight bytes, secrets, and names.

use crate::store::port::DbError;
use crate::store::postgres::session::{PostgresSession, column};

/// Seconds since 1970.
pub(in crate::store::postgres) const LATEST_TIME: &str = "max_wall";

/// Returns a value.
pub(in crate::store::postgres) async fn value(
    session: &PostgresSession,
    key: &str,
) -> Result<Option<Vec<u8>>, DbError> {
    let row = session.row("SELECT value FROM meta WHERE key = $1", &[&key]).await?;
    row.map(|row| column(&row, "value")).transpose()
}

/// Writes a value in place of the one before.
pub(in crate::store::postgres) async fn put(session: &PostgresSession, key: &str, value: &[u8]) -> Result<(), DbError> {
    let sql = "INSERT INTO meta (key, value) VALUES ($1, $2) ON CONFLICT (key) DO UPDATE SET value = excluded.value";
    session.execute(sql, &[&key, &value]).await.map(drop)
}

/// Removes a value.
pub(in crate::store::postgres) async fn remove(session: &PostgresSession, key: &str) -> Result<(), DbError> {
    session.execute("DELETE FROM meta WHERE key = $1", &[&key]).await.map(drop)
}

/// Returns a number, 0 where it was never written.
pub(in crate::store::postgres) async fn number(session: &PostgresSession, key: &str) -> Result<u64, DbError> {
    let bytes = value(session, key).await?.and_then(|bytes| bytes.try_into().ok());
    Ok(bytes.map_or(0, u64::from_be_bytes))
}

/// Writes a number that only grows; a lower one changes nothing.
pub(in crate::store::postgres) async fn raise(
    session: &PostgresSession,
    key: &str,
    number: u64,
) -> Result<(), DbError> {
    let sql = "INSERT INTO meta (key, value) VALUES ($1, $2) ON CONFLICT (key) DO UPDATE SET value = excluded.value \
               WHERE meta.value < excluded.value";
    session.execute(sql, &[&key, &&number.to_be_bytes()[..]]).await.map(drop)
}

/// Remembers the time, in seconds since 1970; it never goes back.
pub(in crate::store::postgres) async fn saw(session: &PostgresSession, now: u64) -> Result<(), DbError> {
    raise(session, LATEST_TIME, now).await
}

/// This time, or the latest that any process has seen.
pub(in crate::store::postgres) async fn not_before(session: &PostgresSession, now: u64) -> Result<u64, DbError> {
    Ok(number(session, LATEST_TIME).await?.max(now))
}
