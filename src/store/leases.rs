//! Limits on disk: leases are written before their calls are sent, so that a restart or a crash refills nothing.
//!
//! What a lease is stands in `policy::limit::lease`. Here it is read, extended and written in one transaction of the database's
//! thread, together with the leases of all other calls that wait. What comes of it is settled on that thread before the next
//! transaction begins, whether or not the call still waits.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use rusqlite::{Connection, OptionalExtension as _, params};
use tokio::sync::oneshot;

use crate::base::clock;
use crate::engine::call::{Executed, Failure, Reason};
use crate::policy::{Granted, Lease, Limiter, Overdrawn, Policy, RowId, Stored, day_of};
use crate::store::db::{Db, DbError};
use crate::telemetry::metrics::Metrics;

/// How many leases are taken until rows of full buckets are removed.
const SWEEP_EVERY: u64 = 1024;
/// When a call may come back whose lease could not be written.
const STORE_WAIT: Duration = Duration::from_secs(1);

/// Keeps limits on disk where there is one. Clones share it.
#[derive(Clone, Debug)]
pub(crate) struct Leases {
    db: Option<Db>,
    metrics: Metrics,
    taken: Arc<AtomicU64>,
}

/// Why a call got no lease.
enum Refused {
    Overdrawn(Overdrawn),
    NotKept(Option<DbError>),
}

impl Leases {
    /// Without a database limits hold for as long as the process lives.
    pub(crate) fn new(db: Option<Db>, metrics: Metrics) -> Self {
        Self { db, metrics, taken: Arc::default() }
    }

    /// The limiter of the first policy, with what earlier processes have used. Blocks.
    ///
    /// # Errors
    /// When the database cannot be read.
    pub(crate) fn limiter(&self, policy: &Policy) -> Result<Limiter, DbError> {
        let Some(db) = &self.db else { return Ok(Limiter::new(policy)) };
        let rows = db.run_now(|connection| {
            // A clock that was set back must not let days begin anew, nor make people wait for times that were close.
            clock::not_before(seen(connection)?);
            sweep(connection, clock::since_1970())?;
            all(connection)
        })?;
        Ok(Limiter::durable(policy, &rows))
    }

    /// Waits until what a call drew is on disk. To be done before the call is sent; doing it again does no harm.
    ///
    /// # Errors
    /// The call's refusal. What it drew has been given back.
    pub(crate) async fn settle(&self, lease: &Lease) -> Result<(), Failure> {
        if lease.is_given_back() {
            return Err(not_kept());
        }
        let Some(db) = self.db.as_ref().filter(|_| !lease.is_settled()) else { return Ok(()) };
        let (reply, answer) = oneshot::channel();
        let (job, settled) = (lease.clone(), lease.clone());
        let is_sweep = self.taken.fetch_add(1, Ordering::Relaxed) % SWEEP_EVERY == SWEEP_EVERY - 1;
        let work = move |connection: &Connection| {
            let now = clock::since_1970();
            if is_sweep {
                sweep(connection, now)?;
            }
            extend(connection, &job, now)
        };
        // Whoever waited may have gone.
        db.submit(work, move |outcome| drop(reply.send(conclude(&settled, outcome))));
        match answer.await.unwrap_or(Err(Refused::NotKept(None))) {
            Ok(()) => Ok(()),
            Err(Refused::Overdrawn(Overdrawn { limit, retry_after })) => {
                self.metrics.limit_hit(&limit);
                Err(limited(retry_after))
            }
            Err(Refused::NotKept(error)) => {
                let error = error.map_or_else(|| "its thread has ended".to_owned(), |error| error.to_string());
                tracing::error!(error = %error, "a call is refused, since what it uses of its limits cannot be kept");
                Err(not_kept())
            }
        }
    }

    /// Writes what is used to the call, at a clean stop.
    pub(crate) async fn keep(&self, limiter: &Limiter) {
        let Some(db) = &self.db else { return };
        let used = limiter.used();
        let written = db.run(move |connection| {
            // Where another process has drawn as well, its bound stays.
            let sql = "UPDATE limits SET day = ?3, state = ?4 \
                       WHERE limit_id = ?1 AND bucket = ?2 AND day = ?5 AND state = ?6";
            let mut update = connection.prepare(sql)?;
            for used in used {
                let (row, after, before) = (used.row, used.exactly, used.written);
                update.execute(params![row.limit, row.bucket, after.day, after.state, before.day, before.state])?;
            }
            let now = clock::since_1970();
            saw(connection, now)?;
            sweep(connection, now)
        });
        if let Err(error) = written.await {
            tracing::warn!(error = %error, "limits are kept with what was reserved, not with what was used");
        }
    }
}

/// The refusal of a call whose limits are used up.
pub(crate) fn limited(retry_after: Duration) -> Failure {
    let failure = Failure::new(Reason::Limited, Executed::No, "The limit for this call is used up.");
    failure.retry_after(retry_after)
}

fn not_kept() -> Failure {
    let text = "What this call uses of its limits cannot be recorded at the moment, so it was not made.";
    Failure::new(Reason::Unrecorded, Executed::No, text).retry_after(STORE_WAIT)
}

/// What the transaction has made of a lease. On the database's thread.
fn conclude(lease: &Lease, outcome: Result<Result<Vec<Granted>, Overdrawn>, DbError>) -> Result<(), Refused> {
    match outcome {
        Ok(Ok(granted)) => {
            lease.settle(&granted);
            if lease.is_given_back() { Err(Refused::NotKept(None)) } else { Ok(()) }
        }
        Ok(Err(overdrawn)) => {
            lease.give_back();
            Err(Refused::Overdrawn(overdrawn))
        }
        Err(error) => {
            lease.fail();
            Err(Refused::NotKept(Some(error)))
        }
    }
}

/// Reads, extends and writes the bounds of all buckets that a call drew from.
fn extend(connection: &Connection, lease: &Lease, now: Duration) -> rusqlite::Result<Result<Vec<Granted>, Overdrawn>> {
    let mut all = Vec::new();
    let mut wrote = false;
    for claim in lease.claims() {
        let row = claim.row();
        let granted = match claim.extend(stored(connection, &row)?) {
            Ok(granted) => granted,
            Err(overdrawn) => return Ok(Err(overdrawn)),
        };
        if let Some(Stored { day, state }) = granted.write {
            let sql = "INSERT INTO limits (limit_id, bucket, day, state) VALUES (?1, ?2, ?3, ?4) \
                       ON CONFLICT (limit_id, bucket) DO UPDATE SET day = excluded.day, state = excluded.state";
            connection.prepare_cached(sql)?.execute(params![row.limit, row.bucket, day, state])?;
            wrote = true;
        }
        all.push(granted);
    }
    if wrote {
        saw(connection, now)?;
    }
    Ok(Ok(all))
}

fn stored(connection: &Connection, row: &RowId) -> rusqlite::Result<Option<Stored>> {
    let sql = "SELECT day, state FROM limits WHERE limit_id = ?1 AND bucket = ?2";
    let mut select = connection.prepare_cached(sql)?;
    let read = |row: &rusqlite::Row<'_>| Ok(Stored { day: row.get(0)?, state: row.get(1)? });
    select.query_row([&row.limit, &row.bucket], read).optional()
}

fn all(connection: &Connection) -> rusqlite::Result<HashMap<RowId, Stored>> {
    let mut select = connection.prepare("SELECT limit_id, bucket, day, state FROM limits")?;
    let rows = select.query_map([], |row| {
        let id = RowId { limit: row.get(0)?, bucket: row.get(1)? };
        Ok((id, Stored { day: row.get(2)?, state: row.get(3)? }))
    })?;
    rows.collect()
}

/// Removes the rows of buckets that are full again.
fn sweep(connection: &Connection, now: Duration) -> rusqlite::Result<()> {
    let sql = "DELETE FROM limits WHERE (day = 0 AND state BETWEEN 0 AND ?1) OR (day > 0 AND day < ?2)";
    let nanos = i64::try_from(now.as_nanos()).unwrap_or(i64::MAX);
    connection.execute(sql, [nanos, day_of(now)]).map(drop)
}

/// The latest time that any process has seen.
fn seen(connection: &Connection) -> rusqlite::Result<Duration> {
    let sql = "SELECT value FROM meta WHERE key = 'max_wall'";
    let value: Option<Vec<u8>> = connection.query_row(sql, [], |row| row.get(0)).optional()?;
    Ok(value
        .and_then(|bytes| bytes.try_into().ok())
        .map_or(Duration::ZERO, |b| Duration::from_secs(u64::from_be_bytes(b))))
}

/// Remembers the time, by whole seconds; it never goes back.
fn saw(connection: &Connection, now: Duration) -> rusqlite::Result<()> {
    let sql = "INSERT INTO meta (key, value) VALUES ('max_wall', ?1) \
               ON CONFLICT (key) DO UPDATE SET value = max(value, excluded.value)";
    connection.prepare_cached(sql)?.execute([&now.as_secs().to_be_bytes()[..]]).map(drop)
}

#[cfg(test)]
mod tests;
