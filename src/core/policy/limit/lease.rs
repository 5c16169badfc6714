//! Leases: limits hold over a crash, since the disk is always ahead.
//!
//! For each bucket that is in use the disk holds an upper bound of what is used, as if a few further calls had been made. A
//! call within the bound is free; one beyond it waits until a higher bound is durable, and only then goes upstream. So after a
//! crash a bucket is at most those few calls emptier than it was, and never fuller. A clean stop leaves the exact number.
//!
//! The disk may be shared by several processes. Whoever extends a bound first reads it: what is there beyond the own last bound
//! is what others drew, and the own draws come on top. So each process can be ahead by one lease, and all of them together by
//! no more than one lease each.
//!
//! A lease is a sixteenth of the bucket, at most 64 calls: that is the most a crash costs. If the store fails, calls
//! that need a higher bound are refused.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use super::buckets::RowId;
use super::meter::Stored;
use super::withdrawal::{Granted, Overdrawn, Withdrawal};

/// The bounds that have to be on disk before an allowed call is sent. Clones are the same lease.
#[derive(Clone, Debug)]
#[must_use = "a call that needs a lease must wait for it"]
pub struct Lease(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    claims: Vec<Claim>,
    settled: AtomicBool,
    given_back: AtomicBool,
}

/// One bucket of a lease.
#[derive(Debug)]
pub struct Claim {
    drawn: Withdrawal,
    extended: AtomicBool,
}

impl Lease {
    pub(in crate::policy) fn new(drawn: impl Iterator<Item = Withdrawal>) -> Self {
        let claims = drawn.map(|drawn| Claim { drawn, extended: AtomicBool::new(false) }).collect();
        Self(Arc::new(Inner { claims, settled: AtomicBool::new(false), given_back: AtomicBool::new(false) }))
    }

    /// The buckets that the call drew from.
    pub fn claims(&self) -> &[Claim] {
        &self.0.claims
    }

    /// Whether nothing has to be written any more for the call: it has been, or other calls have done it meanwhile.
    pub fn is_settled(&self) -> bool {
        self.0.settled.load(Ordering::Acquire) || self.0.claims.iter().all(|claim| claim.drawn.is_leased())
    }

    /// What [`Claim::extend`] gave for each claim, in their order, is durable.
    pub fn settle(&self, granted: &[Granted]) {
        for (claim, granted) in self.0.claims.iter().zip(granted) {
            claim.drawn.leased(granted.up_to);
        }
        self.0.settled.store(true, Ordering::Release);
    }

    /// The transaction did not take place; before another one is begun, this is to be said. The call is refused.
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

    /// The call is refused after all: all that it drew goes back, once.
    pub fn give_back(&self) {
        if !self.0.given_back.swap(true, Ordering::AcqRel) {
            self.0.claims.iter().for_each(|claim| claim.drawn.give_back());
        }
    }
}

impl Claim {
    /// Where the bucket is on disk.
    pub fn row(&self) -> RowId {
        self.drawn.row()
    }

    /// Finds the bound to write, given what the disk holds. Reading, this and writing are one transaction.
    ///
    /// # Errors
    /// [`Overdrawn`]; the whole lease is to be given back then.
    pub fn extend(&self, on_disk: Option<Stored>) -> Result<Granted, Overdrawn> {
        self.extended.store(true, Ordering::Release);
        self.drawn.extend(on_disk)
    }
}
