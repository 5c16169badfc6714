//! Limits: the table `limits`, one bound for each bucket.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use super::meta;
use crate::policy::{BucketRow, LeaseBound, LimitLease, OverdrawnLimit, StoredBucket, UsedBucket, day_of};
use crate::store::port::{DbError, DbOperation, LimitOperations};
use crate::store::postgres::Postgres;
use crate::store::postgres::bounds::WrittenBounds;
use crate::store::postgres::session::{PostgresSession, column};

impl LimitOperations for Postgres {
    fn limits(&self, now: Duration) -> Result<HashMap<BucketRow, StoredBucket>, DbError> {
        let swept = self.write(async move |session: &PostgresSession| sweep(session, now).await).run_now();
        swept.or_else(|error| if error.is_unwritable() { Ok(()) } else { Err(error) })?;
        let all = self.read(async |session: &PostgresSession| {
            let rows = session.rows("SELECT limit_id, bucket, day, state FROM limits", &[]).await?;
            let read = |row| {
                let id = BucketRow { limit: column(row, "limit_id")?, bucket: column(row, "bucket")? };
                Ok((id, StoredBucket { day: column(row, "day")?, state: column(row, "state")? }))
            };
            rows.iter().map(read).collect()
        });
        all.run_now()
    }

    fn extend_lease(
        &self,
        lease: LimitLease,
        now: Duration,
        sweeps: bool,
    ) -> DbOperation<'_, Result<Vec<LeaseBound>, OverdrawnLimit>> {
        let bounds = Arc::clone(&self.bounds);
        self.write(async move |session: &PostgresSession| {
            bounds.check()?;
            if sweeps {
                bounds.sweep(now);
                sweep(session, now).await?;
            }
            extend(session, &lease, now, &bounds).await
        })
    }

    fn keep_used(&self, used: Vec<UsedBucket>, now: Duration) -> DbOperation<'_, ()> {
        self.write(async move |session: &PostgresSession| {
            let sql = "UPDATE limits SET day = $3, state = $4 \
                       WHERE limit_id = $1 AND bucket = $2 AND day = $5 AND state = $6";
            for used in used {
                let (row, after, before) = (used.row, used.exactly, used.written);
                session
                    .execute(sql, &[&row.limit, &row.bucket, &after.day, &after.state, &before.day, &before.state])
                    .await?;
            }
            meta::saw(session, now.as_secs()).await?;
            sweep(session, now).await
        })
    }
}

async fn extend(
    session: &PostgresSession,
    lease: &LimitLease,
    now: Duration,
    bounds: &WrittenBounds,
) -> Result<Result<Vec<LeaseBound>, OverdrawnLimit>, DbError> {
    let mut all = Vec::new();
    let mut wrote = false;
    for claim in lease.claims() {
        let row = claim.row();
        let granted = match claim.extend(stored(session, &row).await?) {
            Ok(granted) => granted,
            Err(overdrawn) => return Ok(Err(overdrawn)),
        };
        if let Some(StoredBucket { day, state }) = granted.write {
            let sql = "INSERT INTO limits (limit_id, bucket, day, state) VALUES ($1, $2, $3, $4) \
                       ON CONFLICT (limit_id, bucket) DO UPDATE SET day = excluded.day, state = excluded.state";
            session.execute(sql, &[&row.limit, &row.bucket, &day, &state]).await?;
            // Also if the commit fails: its answer may be all that is lost.
            bounds.keep(row, StoredBucket { day, state });
            wrote = true;
        }
        all.push(granted);
    }
    if wrote {
        meta::saw(session, now.as_secs()).await?;
    }
    Ok(Ok(all))
}

async fn stored(session: &PostgresSession, row: &BucketRow) -> Result<Option<StoredBucket>, DbError> {
    let sql = "SELECT day, state FROM limits WHERE limit_id = $1 AND bucket = $2";
    let found = session.row(sql, &[&row.limit, &row.bucket]).await?;
    found.map(|row| Ok(StoredBucket { day: column(&row, "day")?, state: column(&row, "state")? })).transpose()
}

/// Removes the rows of buckets that are full again.
async fn sweep(session: &PostgresSession, now: Duration) -> Result<(), DbError> {
    let sql = "DELETE FROM limits WHERE (day = 0 AND state BETWEEN 0 AND $1) OR (day > 0 AND day < $2)";
    let nanos = i64::try_from(now.as_nanos()).unwrap_or(i64::MAX);
    session.execute(sql, &[&nanos, &day_of(now)]).await.map(drop)
}
