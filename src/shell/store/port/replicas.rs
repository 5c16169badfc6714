//! Operations on the replicas of a cluster: their heartbeats, and which replica holds a session
//! whose first owner is dead. Every replica writes its own row.
//!
//! Ages are measured on the clock of the store, so that the clocks of the machines need not agree.

use std::time::Duration;

use super::operation::DbOperation;
use crate::engine::sealed::run_id::RunId;
use crate::engine::sealed::session_id::SessionName;

#[cfg(any(test, feature = "testing"))]
mod memory;

#[cfg(any(test, feature = "testing"))]
pub use self::memory::MemoryReplicas;

/// Time after its last heartbeat from which a replica is dead.
pub const DEAD_AFTER: Duration = Duration::from_secs(15);

/// Time since the last heartbeat of a replica from which it does not say of others that they are
/// dead by their age: it was held up, or the clock of the store has jumped.
pub const DOUBTFUL_AFTER: Duration = Duration::from_secs(8);

/// The row of one run of a replica. Its content is sealed: a process that can write rows cannot
/// make one without the key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ReplicaRow {
    pub run: RunId,
    pub sealed: String,
}

/// The row of a replica as the store has it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KeptReplica {
    pub row: ReplicaRow,
    /// Time since its last heartbeat; for the replica that writes one, since the one before.
    pub age: Duration,
}

/// The wish of a replica to hold a session whose owner may be dead.
#[derive(Clone, Copy, Debug)]
pub struct SessionClaim {
    pub name: SessionName,
    /// The run that the id of the session names.
    pub named: RunId,
    /// The run that wishes to hold the session.
    pub by: RunId,
    /// A run that refused a connection: it is dead at once.
    pub refused: Option<RunId>,
    /// Whether a run is dead by its age. A replica that could not reach the store for a while does
    /// not say so of others, whose heartbeats may be as old for the same reason.
    pub by_age: bool,
    /// Expiry of the id, in seconds since 1970.
    pub until: u64,
}

/// A session that its holder hands over before it ends.
#[derive(Clone, Copy, Debug)]
pub struct SessionGift {
    pub name: SessionName,
    /// The run that the id of the session names.
    pub named: RunId,
    pub from: RunId,
    pub to: RunId,
    /// Expiry of the id, in seconds since 1970.
    pub until: u64,
}

/// Time for which the lease of an upstream lasts after it was taken or renewed.
pub const LEASE: Duration = Duration::from_secs(15);
/// Time between the end of a lease and the next owner, and between the end of a program and the end
/// of its lease.
pub const LEASE_MARGIN: Duration = Duration::from_secs(2);

/// The id of one lease, from the moment at which it was taken to its end.
pub type LeaseId = [u8; 16];

/// The wish of a replica to run the program of an upstream that one replica runs at a time, or to
/// go on running it.
#[derive(Clone, Debug)]
pub struct LeaseClaim {
    /// Name of the upstream.
    pub upstream: String,
    pub lease: LeaseId,
    pub by: RunId,
}

/// The answer to a [`LeaseClaim`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LeaseOutcome {
    /// The lease lasts for [`LEASE`] from the moment at which it was asked for.
    Taken,
    /// Another lease of this run lasts.
    HeldBy(RunId),
    /// The store is another one than before, so a lease of before may be missing in it.
    Unknown,
}

/// Operations on replicas, each of them one transaction.
pub trait ReplicaOperations: std::fmt::Debug + Send + Sync {
    /// Writes the row of a run with its heartbeat, and returns all rows. `None` if the row was
    /// removed since the last heartbeat, because the run counts as dead; a run that `begins` has
    /// none yet. Also removes rows without a heartbeat for an hour, and claims of ids that have
    /// expired at `now`, in seconds since 1970.
    fn beat(&self, row: ReplicaRow, begins: bool, now: u64) -> DbOperation<'_, Option<Vec<KeptReplica>>>;

    /// Removes the row of a run that ends.
    fn leave(&self, run: RunId) -> DbOperation<'_, ()>;

    /// Returns the run that holds a session. That is the run that claimed it last, or the named
    /// one, as long as it has a row and is not dead; else its row is removed, and the session is
    /// claimed. No run is dead by its age if the last heartbeat of the one that claims is as old as
    /// [`DOUBTFUL_AFTER`].
    fn claim_session(&self, claim: SessionClaim) -> DbOperation<'_, RunId>;

    /// Gives a session to another run, as if that had claimed it, unless it is not the giver's.
    fn give_session(&self, gift: SessionGift) -> DbOperation<'_, ()>;

    /// Takes the lease of an upstream, or renews it. Another lease stands in the way until
    /// [`LEASE_MARGIN`] after its end.
    fn claim_lease(&self, claim: LeaseClaim) -> DbOperation<'_, LeaseOutcome>;

    /// Ends a lease whose program has ended. Any other lease of the upstream stays.
    fn release_lease(&self, upstream: String, lease: LeaseId) -> DbOperation<'_, ()>;
}
