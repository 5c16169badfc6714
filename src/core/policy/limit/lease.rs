//! Leases: limits hold over a crash, because the bound on disk is always ahead of the use.
//!
//! For each bucket in use the disk holds an upper bound of its use, as if a few further calls had
//! been made. A call within the bound needs no write; a call beyond it waits until a higher bound
//! is durable, and only then goes upstream. After a crash a bucket therefore counts at most those
//! few calls too many, and never too few. A clean stop stores the exact number.
//!
//! Several processes may share the disk. A process that extends a bound first reads it: the
//! difference to its own last bound is what others drew, and its own draws are added to that. Each
//! process can be ahead by one lease, so all of them together are ahead by no more than one lease
//! each.
//!
//! A lease is a sixteenth of the bucket, at most 64 calls: this is the most that a crash costs. If
//! the store fails, calls that need a higher bound are refused.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use super::buckets::BucketRow;
use super::meter::StoredBucket;
use super::withdrawal::{LeaseBound, OverdrawnLimit, Withdrawal};

/// The bounds that must be on disk before an allowed call is sent. Clones share one lease.
#[derive(Clone, Debug)]
#[must_use = "a call that needs a lease must wait for it"]
pub struct LimitLease(Arc<LeaseState>);

/// The shared state of a lease.
#[derive(Debug)]
struct LeaseState {
    claims: Vec<LeaseClaim>,
    settled: AtomicBool,
    given_back: AtomicBool,
}

/// The draw from one bucket of a lease.
#[derive(Debug)]
pub struct LeaseClaim {
    drawn: Withdrawal,
    extended: AtomicBool,
}

impl LimitLease {
    pub(in crate::policy) fn new(drawn: impl Iterator<Item = Withdrawal>) -> Self {
        let claims = drawn.map(|drawn| LeaseClaim { drawn, extended: AtomicBool::new(false) }).collect();
        Self(Arc::new(LeaseState { claims, settled: AtomicBool::new(false), given_back: AtomicBool::new(false) }))
    }

    /// Returns the draws of the call, one for each bucket.
    pub fn claims(&self) -> &[LeaseClaim] {
        &self.0.claims
    }

    /// Whether nothing has to be written for the call any more: it has been written, or other calls
    /// have extended the bounds meanwhile.
    pub fn is_settled(&self) -> bool {
        self.0.settled.load(Ordering::Acquire) || self.0.claims.iter().all(|claim| claim.drawn.is_leased())
    }

    /// Notes that the bounds which [`LeaseClaim::extend`] returned, one for each claim in order,
    /// are durable.
    pub fn settle(&self, granted: &[LeaseBound]) {
        for (claim, granted) in self.0.claims.iter().zip(granted) {
            claim.drawn.leased(granted.up_to);
        }
        self.0.settled.store(true, Ordering::Release);
    }

    /// Undoes the lease after its transaction failed: forgets the bounds that were not written and
    /// gives back what the call drew. Must be called before the next transaction begins.
    pub fn fail(&self) {
        for claim in self.0.claims.iter().filter(|claim| claim.extended.load(Ordering::Acquire)) {
            claim.drawn.unwritten();
        }
        self.give_back();
    }

    /// Whether the call was refused after all.
    pub fn is_given_back(&self) -> bool {
        self.0.given_back.load(Ordering::Acquire)
    }

    /// Gives back all that the call drew, once, because the call is refused after all.
    pub fn give_back(&self) {
        if !self.0.given_back.swap(true, Ordering::AcqRel) {
            self.0.claims.iter().for_each(|claim| claim.drawn.give_back());
        }
    }
}

impl LeaseClaim {
    /// Returns the key of the bucket's row on disk.
    pub fn row(&self) -> BucketRow {
        self.drawn.row()
    }

    /// Finds the bound to write for the bucket, given the row on disk. Reading the row, this and
    /// writing the bound must be one transaction.
    ///
    /// # Errors
    /// [`OverdrawnLimit`] if other processes have used the limit up; the whole lease must then be
    /// given back.
    pub fn extend(&self, on_disk: Option<StoredBucket>) -> Result<LeaseBound, OverdrawnLimit> {
        self.extended.store(true, Ordering::Release);
        self.drawn.extend(on_disk)
    }
}
