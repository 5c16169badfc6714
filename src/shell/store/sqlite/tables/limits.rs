//! Limits: the table `limits`, a bound for each bucket. Each written bound includes the draws of
//! other processes, so reading and writing one must be one operation.

use std::collections::HashMap;
use std::time::Duration;

use rusqlite::{Connection, OptionalExtension as _, params};

use super::meta;
use crate::policy::{BucketRow, LeaseBound, LimitLease, OverdrawnLimit, StoredBucket, UsedBucket, day_of};
use crate::store::port::{DbError, DbOperation, LimitOperations};
use crate::store::sqlite::Sqlite;

impl LimitOperations for Sqlite {
    fn limits(&self, now: Duration) -> Result<HashMap<BucketRow, StoredBucket>, DbError> {
        let swept = self.write(move |connection| sweep(connection, now)).run_now();
        swept.or_else(|error| if error.is_unwritable() { Ok(()) } else { Err(error) })?;
        let all = self.read(|connection| {
            let mut select = connection.prepare("SELECT limit_id, bucket, day, state FROM limits")?;
            let rows = select.query_map([], |row| {
                let id = BucketRow { limit: row.get(0)?, bucket: row.get(1)? };
                Ok((id, StoredBucket { day: row.get(2)?, state: row.get(3)? }))
            })?;
            rows.collect()
        });
        all.run_now()
    }

    fn extend_lease(
        &self,
        lease: LimitLease,
        now: Duration,
        sweeps: bool,
    ) -> DbOperation<'_, Result<Vec<LeaseBound>, OverdrawnLimit>> {
        self.write(move |connection| {
            if sweeps {
                sweep(connection, now)?;
            }
            extend(connection, &lease, now)
        })
    }

    fn keep_used(&self, used: Vec<UsedBucket>, now: Duration) -> DbOperation<'_, ()> {
        self.write(move |connection| {
            let sql = "UPDATE limits SET day = ?3, state = ?4 \
                       WHERE limit_id = ?1 AND bucket = ?2 AND day = ?5 AND state = ?6";
            let mut update = connection.prepare(sql)?;
            for used in used {
                let (row, after, before) = (used.row, used.exactly, used.written);
                update.execute(params![row.limit, row.bucket, after.day, after.state, before.day, before.state])?;
            }
            meta::saw(connection, now.as_secs())?;
            sweep(connection, now)
        })
    }
}

fn extend(
    connection: &Connection,
    lease: &LimitLease,
    now: Duration,
) -> rusqlite::Result<Result<Vec<LeaseBound>, OverdrawnLimit>> {
    let mut all = Vec::new();
    let mut wrote = false;
    for claim in lease.claims() {
        let row = claim.row();
        let granted = match claim.extend(stored(connection, &row)?) {
            Ok(granted) => granted,
            Err(overdrawn) => return Ok(Err(overdrawn)),
        };
        if let Some(StoredBucket { day, state }) = granted.write {
            let sql = "INSERT INTO limits (limit_id, bucket, day, state) VALUES (?1, ?2, ?3, ?4) \
                       ON CONFLICT (limit_id, bucket) DO UPDATE SET day = excluded.day, state = excluded.state";
            connection.prepare_cached(sql)?.execute(params![row.limit, row.bucket, day, state])?;
            wrote = true;
        }
        all.push(granted);
    }
    if wrote {
        meta::saw(connection, now.as_secs())?;
    }
    Ok(Ok(all))
}

fn stored(connection: &Connection, row: &BucketRow) -> rusqlite::Result<Option<StoredBucket>> {
    let sql = "SELECT day, state FROM limits WHERE limit_id = ?1 AND bucket = ?2";
    let mut select = connection.prepare_cached(sql)?;
    let read = |row: &rusqlite::Row<'_>| Ok(StoredBucket { day: row.get(0)?, state: row.get(1)? });
    select.query_row([&row.limit, &row.bucket], read).optional()
}

/// Removes the rows of buckets that are full again.
fn sweep(connection: &Connection, now: Duration) -> rusqlite::Result<()> {
    let sql = "DELETE FROM limits WHERE (day = 0 AND state BETWEEN 0 AND ?1) OR (day > 0 AND day < ?2)";
    let nanos = i64::try_from(now.as_nanos()).unwrap_or(i64::MAX);
    connection.execute(sql, [nanos, day_of(now)]).map(drop)
}
