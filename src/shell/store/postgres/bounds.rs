//! The bounds of limits that this process has written, for a database that may have lost them.
//!
//! After a fail-over each replica writes its bounds again before anything else, and extends no
//! lease until the others had the time to do so. What a replica held that has ended meanwhile is
//! lost with its bounds: no more than one lease for each limit.

use std::collections::HashMap;
use std::time::{Duration, Instant};

use parking_lot::Mutex;

use super::error::failed;
use super::session::PostgresSession;
use crate::base::clock;
use crate::policy::{BucketRow, StoredBucket, day_of};
use crate::store::port::DbError;

/// Time for which no lease is extended after a fail-over: longer than replicas take to connect
/// again.
const HOLD: Duration = Duration::from_secs(10);

/// The written bounds of this process.
#[derive(Debug, Default)]
pub(super) struct WrittenBounds {
    rows: Mutex<HashMap<BucketRow, StoredBucket>>,
    /// End of the time in which no lease is extended.
    held: Mutex<Option<Instant>>,
}

impl WrittenBounds {
    /// Keeps a bound that is being written. Bounds of buckets that are full again are dropped.
    pub(super) fn keep(&self, row: BucketRow, bound: StoredBucket) {
        self.rows.lock().insert(row, bound);
    }

    /// Drops the bounds of buckets that are full again.
    pub(super) fn sweep(&self, now: Duration) {
        let (nanos, today) = (i64::try_from(now.as_nanos()).unwrap_or(i64::MAX), day_of(now));
        let is_full =
            |bound: &StoredBucket| (bound.day == 0 && bound.state <= nanos) || (bound.day > 0 && bound.day < today);
        self.rows.lock().retain(|_, bound| !is_full(bound));
    }

    /// Fails while no lease may be extended.
    pub(super) fn check(&self) -> Result<(), DbError> {
        match *self.held.lock() {
            Some(until) if clock::now() < until => {
                Err(failed("is another one than before: limits wait for the other replicas"))
            }
            _ => Ok(()),
        }
    }

    /// Writes the bounds into a database that may lack them, and holds leases back for a while.
    /// Must be in a transaction.
    pub(super) async fn restore(&self, session: &PostgresSession) -> Result<(), DbError> {
        *self.held.lock() = Some(clock::now() + HOLD);
        let rows: Vec<(BucketRow, StoredBucket)> =
            self.rows.lock().iter().map(|(row, bound)| (row.clone(), *bound)).collect();
        let sql = "INSERT INTO limits (limit_id, bucket, day, state) VALUES ($1, $2, $3, $4) \
                   ON CONFLICT (limit_id, bucket) DO UPDATE SET day = excluded.day, state = excluded.state \
                   WHERE (limits.day, limits.state) < (excluded.day, excluded.state)";
        for (row, bound) in rows {
            session.execute(sql, &[&row.limit, &row.bucket, &bound.day, &bound.state]).await?;
        }
        Ok(())
    }
}
