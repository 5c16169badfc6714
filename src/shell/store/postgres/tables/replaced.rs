//! The mark of the database that the store was last used in: the row `system` of the table `meta`.
//!
//! After a fail-over or a restore the last transactions may be missing. What was used up in them
//! would count as unused, so everything that may be used once ends.

use super::meta;
use crate::base::clock::millis;
use crate::store::port::{DbError, LEASE, LEASE_MARGIN};
use crate::store::postgres::error::failed;
use crate::store::postgres::session::{PostgresSession, column, signed, unsigned};

/// The identifier of the database's files and their timeline, which a fail-over and a restore
/// change.
const SYSTEM: &str = "system";
/// One more than the number of once-grants that ended because the database was another one; there
/// until that is in an audit log.
pub(super) const UNRECORDED: &str = "replaced";

/// The time of the database, in milliseconds since 1970.
const NOW: &str = "(extract(epoch FROM clock_timestamp()) * 1000)::bigint";
/// Time before which no lease is taken, as [`NOW`]; in the table `meta`.
pub(super) const LEASES_FROM: &str = "leases_from";

/// Compares the database with the one that the store was last used in, and ends all once-grants if
/// it is another. Returns their number then. Must be a transaction.
pub(in crate::store::postgres) async fn end_lost_uses(
    session: &PostgresSession,
    system: &str,
    now: u64,
) -> Result<Option<u64>, DbError> {
    let known = meta::value(session, SYSTEM).await?;
    if known.as_deref() == Some(system.as_bytes()) {
        return Ok(None);
    }
    meta::put(session, SYSTEM, system.as_bytes()).await?;
    if known.is_none() {
        return Ok(None);
    }
    end_lost_leases(session).await?;
    let now = signed(meta::not_before(session, now).await?);
    let sql = "UPDATE grants SET state = 'invalidated', ended_at = $1 WHERE state = 'live' AND lifetime = 'once'";
    let ended = session.execute(sql, &[&now]).await?;
    let unrecorded = meta::number(session, UNRECORDED).await?.max(1).saturating_add(ended);
    meta::put(session, UNRECORDED, &unrecorded.to_be_bytes()).await?;
    Ok(Some(ended))
}

/// Returns the identifier of the database that a session is with.
pub(in crate::store::postgres) async fn system(session: &PostgresSession) -> Result<String, DbError> {
    // The name of the present log file begins with the timeline, also before the first checkpoint
    // of a promoted server.
    let sql = "SELECT system_identifier::text || '/' || substr(pg_walfile_name(pg_current_wal_lsn()), 1, 8) AS system \
               FROM pg_control_system()";
    session.row(sql, &[]).await?.map_or(Ok(String::new()), |row| column(&row, "system"))
}

/// Lets no replica take a lease until those that this database may have lost have ended. Must be a
/// transaction.
async fn end_lost_leases(session: &PostgresSession) -> Result<(), DbError> {
    let from = time(session).await?.saturating_add(millis(LEASE + LEASE_MARGIN));
    meta::put(session, LEASES_FROM, &from.to_be_bytes()).await
}

/// Returns the time of the database.
pub(super) async fn time(session: &PostgresSession) -> Result<u64, DbError> {
    let row = session.row(&format!("SELECT {NOW} AS now"), &[]).await?;
    row.map_or_else(|| Err(failed("the database has no time")), |row| unsigned(&row, "now"))
}
