//! Limits on disk: leases are written before their calls are sent, so that a restart or a crash refills nothing.
//!
//! `policy::limit::lease` describes leases. One operation of the database reads, extends and writes a lease, together
//! with those of all other waiting calls. Its outcome is settled on the database's thread before the next operation
//! begins, whether or not the call still waits.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use crate::base::clock;
use crate::base::tally::Tally;
use crate::engine::failure::{Executed, Failure, Reason};
use crate::policy::{Granted, Lease, Limiter, Overdrawn, Policy};
use crate::store::db::{Db, DbError};
use crate::telemetry::metrics::Metrics;

/// How many leases are taken until rows of full buckets are removed.
const SWEEP_EVERY: u64 = 1024;
/// When a call may come back whose lease could not be written.
const STORE_WAIT: Duration = Duration::from_secs(1);
/// Lines about that.
static UNKEPT: Tally = Tally::of(1);

/// Keeps limits on disk where there is one. Clones share it.
#[derive(Clone, Debug)]
pub struct Leases {
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
    pub fn new(db: Option<Db>, metrics: Metrics) -> Self {
        Self { db, metrics, taken: Arc::default() }
    }

    /// The limiter of the first policy, with what earlier processes have used. Blocks.
    ///
    /// # Errors
    /// When the database cannot be read.
    pub fn limiter(&self, policy: &Policy) -> Result<Limiter, DbError> {
        let Some(db) = &self.db else { return Ok(Limiter::new(policy)) };
        // A clock that was set back must not let days begin anew, nor make people wait for times that were close.
        clock::not_before(db.latest_time().run_now()?);
        let now = clock::since_1970();
        Ok(Limiter::durable(policy, &db.limits(now)?, now))
    }

    /// Waits until what a call drew is on disk. To be done before the call is sent; doing it again does no harm.
    ///
    /// # Errors
    /// The call's refusal. What it drew has been given back.
    pub async fn settle(&self, lease: &Lease) -> Result<(), Failure> {
        if lease.is_given_back() {
            return Err(not_kept());
        }
        let Some(db) = self.db.as_ref().filter(|_| !lease.is_settled()) else { return Ok(()) };
        let settled = lease.clone();
        let is_sweep = self.taken.fetch_add(1, Ordering::Relaxed) % SWEEP_EVERY == SWEEP_EVERY - 1;
        let extend = db.extend_lease(lease.clone(), clock::since_1970(), is_sweep);
        let concluded = extend.run_with(move |outcome| conclude(&settled, outcome)).await;
        match concluded.unwrap_or_else(|error| Err(Refused::NotKept(Some(error)))) {
            Ok(()) => Ok(()),
            Err(Refused::Overdrawn(Overdrawn { limit, retry_after })) => {
                self.metrics.limit_hit(&limit);
                Err(limited(retry_after))
            }
            // The store has said so.
            Err(Refused::NotKept(Some(error))) if error.is_unwritable() => Err(not_kept()),
            Err(Refused::NotKept(error)) => {
                if let Some(count) = UNKEPT.count(clock::uptime()) {
                    let error = error.map_or_else(|| "its thread has ended".to_owned(), |error| error.to_string());
                    tracing::error!(error = %error, count, "a call is refused, since its use of limits cannot be kept");
                }
                Err(not_kept())
            }
        }
    }

    /// Writes the exact use at a clean stop.
    pub async fn keep(&self, limiter: &Limiter) {
        let Some(db) = &self.db else { return };
        if let Err(error) = db.keep_used(limiter.used(), clock::since_1970()).run().await {
            tracing::warn!(error = %error, "limits are kept with their reserved amounts, not with the used ones");
        }
    }
}

/// The refusal of a call whose limits are used up.
pub fn limited(retry_after: Duration) -> Failure {
    let failure = Failure::new(Reason::Limited, Executed::No, "The limit for this call is used up.");
    failure.retry_after(retry_after)
}

fn not_kept() -> Failure {
    let text = "The use of this call's limits cannot be recorded at the moment, so it was not made.";
    Failure::new(Reason::Unrecorded, Executed::No, text).retry_after(STORE_WAIT)
}

/// The transaction's result for a lease. On the database's thread.
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

#[cfg(test)]
mod tests;
