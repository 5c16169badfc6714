//! Limits on disk: leases are written before their calls are sent, so that neither a restart nor a
//! crash refills a limit.
//!
//! `policy::limit::lease` describes leases. One database operation reads, extends and writes a
//! lease, together with those of all other waiting calls. Its outcome is applied on the database's
//! thread before the next operation begins, whether or not the call still waits.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use crate::base::clock;
use crate::base::tally::LogTally;
use crate::engine::failure::{CallFailure, ExecutionDoubt, FailureReason};
use crate::policy::{LeaseBound, LimitLease, Limiter, OverdrawnLimit, Policy};
use crate::store::db::{Db, DbError};
use crate::telemetry::metrics::Metrics;

/// Number of leases between two removals of full buckets' rows.
const SWEEP_EVERY: u64 = 1024;
/// Time after which a call may be retried if its lease could not be written.
const STORE_WAIT: Duration = Duration::from_secs(1);
/// Rate limit of log lines about calls that were refused because their lease could not be written.
static UNKEPT: LogTally = LogTally::of(1);

/// The durable side of limits; clones share it.
#[derive(Clone, Debug)]
pub struct Leases {
    db: Option<Db>,
    metrics: Metrics,
    /// Leases that were taken since the start.
    taken: Arc<AtomicU64>,
}

/// The reason why the amounts that a call draws from its limits could not be reserved on disk.
enum LeaseRefusal {
    /// A limit is used up.
    Overdrawn(OverdrawnLimit),
    /// The lease could not be written; `None` if it was given back meanwhile.
    NotKept(Option<DbError>),
}

impl Leases {
    /// Creates the durable side of limits. Without a database, limits last as long as the process.
    pub fn new(db: Option<Db>, metrics: Metrics) -> Self {
        Self { db, metrics, taken: Arc::default() }
    }

    /// Creates the limiter of the first policy, with the amounts that earlier processes have used.
    /// Raises the clock to the latest time in the store. Blocks.
    ///
    /// # Errors
    /// When the database cannot be read.
    pub fn limiter(&self, policy: &Policy) -> Result<Limiter, DbError> {
        let Some(db) = &self.db else { return Ok(Limiter::new(policy)) };
        // If the clock was set back, days must not begin anew, nor people wait for times that were
        // close.
        clock::advance_clock(db.latest_time().run_now()?);
        let now = clock::since_1970();
        Ok(Limiter::durable(policy, &db.limits(now)?, now))
    }

    /// Writes the lease of a call, and waits until the amounts that the call drew are on disk. Must
    /// be awaited before the call is sent. Does nothing for a lease that is on disk, or without a
    /// database.
    ///
    /// # Errors
    /// The refusal of the call, whose amounts have been given back: another process has used a
    /// limit up, which is counted, or the lease could not be written, which is logged.
    pub async fn settle(&self, lease: &LimitLease) -> Result<(), CallFailure> {
        if lease.is_given_back() {
            return Err(self.unrecorded_failure());
        }
        let Some(db) = self.db.as_ref().filter(|_| !lease.is_settled()) else { return Ok(()) };
        let settled = lease.clone();
        let is_sweep = self.taken.fetch_add(1, Ordering::Relaxed) % SWEEP_EVERY == SWEEP_EVERY - 1;
        let extend = db.extend_lease(lease.clone(), clock::since_1970(), is_sweep);
        let concluded = extend.run_with(move |outcome| apply_outcome(&settled, outcome)).await;
        match concluded.unwrap_or_else(|error| Err(LeaseRefusal::NotKept(Some(error)))) {
            Ok(()) => Ok(()),
            Err(LeaseRefusal::Overdrawn(OverdrawnLimit { limit, retry_after })) => {
                self.metrics.limit_hit(&limit);
                Err(limit_failure(retry_after))
            }
            // The store logs this itself.
            Err(LeaseRefusal::NotKept(Some(error))) if error.is_unwritable() => Err(self.unrecorded_failure()),
            Err(LeaseRefusal::NotKept(error)) => {
                if let Some(count) = UNKEPT.count(clock::uptime()) {
                    let error = error.map_or_else(|| "its thread has ended".to_owned(), |error| error.to_string());
                    tracing::error!(error = %error, count, "a call is refused, since its use of limits cannot be kept");
                }
                Err(self.unrecorded_failure())
            }
        }
    }

    /// Builds the refusal of a call whose use of limits cannot be stored.
    fn unrecorded_failure(&self) -> CallFailure {
        let text = "The use of this call's limits cannot be recorded at the moment, so it was not made.";
        let reason = self.db.as_ref().map_or(FailureReason::Unrecorded, |db| db.health().failure_reason());
        CallFailure::new(reason, ExecutionDoubt::No, text).retry_after(STORE_WAIT)
    }

    /// Writes the amounts that were used in place of the reserved ones, at a clean stop. A failure
    /// is logged.
    pub async fn keep(&self, limiter: &Limiter) {
        let Some(db) = &self.db else { return };
        if let Err(error) = db.keep_used(limiter.used(), clock::since_1970()).run().await {
            tracing::warn!(error = %error, "limits are kept with their reserved amounts, not with the used ones");
        }
    }
}

/// Builds the refusal of a call whose limit is used up.
pub fn limit_failure(retry_after: Duration) -> CallFailure {
    let failure = CallFailure::new(FailureReason::Limited, ExecutionDoubt::No, "The limit for this call is used up.");
    failure.retry_after(retry_after)
}

/// Applies the result of the transaction to a lease: settles it, or gives back what the call drew.
/// Runs on the database's thread.
fn apply_outcome(
    lease: &LimitLease,
    outcome: Result<Result<Vec<LeaseBound>, OverdrawnLimit>, DbError>,
) -> Result<(), LeaseRefusal> {
    match outcome {
        Ok(Ok(granted)) => {
            lease.settle(&granted);
            if lease.is_given_back() { Err(LeaseRefusal::NotKept(None)) } else { Ok(()) }
        }
        Ok(Err(overdrawn)) => {
            lease.give_back();
            Err(LeaseRefusal::Overdrawn(overdrawn))
        }
        Err(error) => {
            lease.fail();
            Err(LeaseRefusal::NotKept(Some(error)))
        }
    }
}

#[cfg(test)]
mod tests;
