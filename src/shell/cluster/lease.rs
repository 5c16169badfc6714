//! The lease of an upstream whose program one replica runs at a time (`placement = "one"`).
//!
//! - The store decides by its own clock: a lease lasts for 15 s after it was taken or renewed, and
//!   the next one begins 2 s after its end at the earliest. The owner renews every 5 s, and
//!   releases the lease once its program has ended in order.
//! - A life of an upstream has a lease of its own, so two lives in one process never overlap
//!   either.
//! - The owner counts the time from before it asked, on the clock that goes on while the machine
//!   sleeps, and less 2 s. At that end the guard kills the program by itself, whatever has become
//!   of headend, and from then on headend writes nothing to the program, which is checked at each
//!   write. A machine that was frozen therefore wakes with a program that gets no call and ends at
//!   once.
//! - The other replicas reach the program over their link to the owner ([`super::lines`]). They
//!   only act on what the store says when they start: their connection to a former owner ends with
//!   its program, or with the owner's heartbeat.
//! - While the store is away no lease is taken or renewed, so the program ends within 15 s. A store
//!   that comes back as another one gives no lease for 17 s, since it may have lost one.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::watch;
use tokio::time::timeout;

use super::membership::Cluster;
use crate::base::clock;
use crate::engine::sealed::run_id::RunId;
use crate::store::port::{DbError, LEASE, LEASE_MARGIN, LeaseClaim, LeaseId, LeaseOutcome};

/// Time between two renewals.
const RENEWAL: Duration = Duration::from_secs(5);
/// Time between two attempts to renew a lease while the store fails.
const RETRY: Duration = Duration::from_secs(1);
/// Longest wait for the store to take or renew a lease.
const STORE_TIME: Duration = Duration::from_secs(3);
/// Longest wait for the store to end one.
const RELEASE_TIME: Duration = Duration::from_secs(1);

/// A lease that this replica holds, until its end.
#[derive(Debug)]
pub struct ProgramLease {
    upstream: String,
    id: LeaseId,
    /// Time at which the program ends, since the start of the machine.
    until: watch::Sender<Duration>,
}

impl ProgramLease {
    /// Creates a lease that ends at `until`, a time since the start of the machine.
    pub fn new(upstream: &str, id: LeaseId, until: Duration) -> Self {
        Self { upstream: upstream.to_owned(), id, until: watch::Sender::new(until) }
    }

    /// Returns a receiver of the time at which the program ends, since the start of the machine.
    pub fn until(&self) -> watch::Receiver<Duration> {
        self.until.subscribe()
    }

    /// Returns whether the lease has run out, so that nothing may reach the program.
    pub fn is_over(&self) -> bool {
        clock::since_boot() >= *self.until.borrow()
    }

    /// Moves the end to a later time. A lease that has run out stays so.
    fn extend(&self, to: Duration) {
        self.until.send_if_modified(|until| {
            let is_longer = clock::since_boot() < *until && *until < to;
            if is_longer {
                *until = to;
            }
            is_longer
        });
    }
}

/// The place of an upstream's program.
#[derive(Debug)]
pub enum ProgramPlace {
    /// This replica may run it.
    Here(Arc<ProgramLease>),
    /// This run holds the lease.
    At(RunId),
    /// No replica can say: the store may have lost the lease.
    Unknown,
}

impl Cluster {
    /// Takes the lease of an upstream for one life of its program, or returns its owner.
    ///
    /// # Errors
    /// The store does not answer, or this replica has not joined the cluster yet.
    pub async fn place_program(&self, upstream: &str) -> Result<ProgramPlace, DbError> {
        let (id, asked) = (clock::random(), clock::since_boot());
        Ok(match self.claim(upstream, id).await? {
            LeaseOutcome::Taken => {
                ProgramPlace::Here(Arc::new(ProgramLease::new(upstream, id, asked + LEASE - LEASE_MARGIN)))
            }
            LeaseOutcome::HeldBy(run) => ProgramPlace::At(run),
            LeaseOutcome::Unknown => ProgramPlace::Unknown,
        })
    }

    /// Renews a lease, and returns once it has run out.
    pub async fn keep_lease(&self, lease: &ProgramLease) {
        let mut wait = RENEWAL;
        loop {
            let left = lease.until.borrow().saturating_sub(clock::since_boot());
            if left.is_zero() {
                return;
            }
            tokio::time::sleep(wait.min(left)).await;
            let asked = clock::since_boot();
            wait = match self.claim(&lease.upstream, lease.id).await {
                Ok(LeaseOutcome::Taken) => {
                    lease.extend(asked + LEASE - LEASE_MARGIN);
                    RENEWAL
                }
                // The store gives it to no other before it has run out here.
                Ok(LeaseOutcome::HeldBy(_) | LeaseOutcome::Unknown) | Err(_) => RETRY,
            };
        }
    }

    /// Releases a lease whose program has ended. If the store does not answer, the lease ends by
    /// itself.
    pub async fn release_lease(&self, lease: &ProgramLease) {
        let released = self.store.release_lease(lease.upstream.clone(), lease.id);
        drop(timeout(RELEASE_TIME, released.run()).await);
    }

    async fn claim(&self, upstream: &str, lease: LeaseId) -> Result<LeaseOutcome, DbError> {
        let by = self.run().ok_or(DbError::Closed)?;
        let claim = self.store.claim_lease(LeaseClaim { upstream: upstream.to_owned(), lease, by });
        timeout(STORE_TIME, claim.run()).await.unwrap_or(Err(DbError::Closed))
    }
}
