//! The directory of replicas in memory, for tests with several gateways in one process.

use std::collections::{BTreeMap, HashMap};
use std::path::PathBuf;
use std::time::{Duration, Instant};

use parking_lot::Mutex;

use super::{
    DEAD_AFTER, DOUBTFUL_AFTER, KeptReplica, LEASE, LEASE_MARGIN, LeaseClaim, LeaseId, LeaseOutcome, ReplicaOperations,
    ReplicaRow, SessionClaim, SessionGift,
};
use crate::base::clock;
use crate::engine::sealed::run_id::RunId;
use crate::engine::sealed::session_id::SessionName;
use crate::store::port::error::DbError;
use crate::store::port::operation::DbOperation;

/// Time without a heartbeat after which a row is removed.
const FORGOTTEN: Duration = Duration::from_secs(3600);

/// The rows of all replicas of a test.
#[derive(Debug, Default)]
pub struct MemoryReplicas(Mutex<MemoryTables>);

#[derive(Debug, Default)]
struct MemoryTables {
    rows: BTreeMap<RunId, (String, Instant)>,
    /// The holder of each claimed session, and the expiry of its id.
    claims: HashMap<SessionName, (RunId, u64)>,
    /// The lease of each upstream: its id, its owner and its end.
    leases: HashMap<String, (LeaseId, RunId, Instant)>,
    is_away: bool,
    keeps_leases: bool,
    claimed: usize,
    /// Time that was added to the clock of the directory.
    jumped: Duration,
}

impl MemoryTables {
    fn now(&self) -> Instant {
        clock::now() + self.jumped
    }

    /// Returns the time since the last heartbeat of a run.
    fn age(&self, run: &RunId) -> Option<Duration> {
        self.rows.get(run).map(|(_, beat)| self.now().saturating_duration_since(*beat))
    }
}

impl MemoryReplicas {
    /// Makes every operation fail, as a store that cannot be reached does, or succeed again.
    pub fn set_away(&self, is_away: bool) {
        self.0.lock().is_away = is_away;
    }

    /// Takes no end of a lease, as if its owner were killed before it could tell, or takes them
    /// again.
    pub fn keep_leases(&self, keeps: bool) {
        self.0.lock().keeps_leases = keeps;
    }

    /// Sets the clock of the directory forward by that time, or back to the one of the machine.
    pub fn set_jump(&self, by: Duration) {
        self.0.lock().jumped = by;
    }

    /// Adds a row, or replaces it.
    pub fn put(&self, row: ReplicaRow) {
        self.0.lock().rows.insert(row.run, (row.sealed, clock::now()));
    }

    /// Returns all rows.
    pub fn rows(&self) -> Vec<ReplicaRow> {
        let tables = self.0.lock();
        tables.rows.iter().map(|(run, (sealed, _))| ReplicaRow { run: *run, sealed: sealed.clone() }).collect()
    }

    /// Returns the number of claims so far.
    pub fn claims(&self) -> usize {
        self.0.lock().claimed
    }

    fn operation<T: Send + 'static>(
        &self,
        run: impl FnOnce(&mut MemoryTables) -> T + Send + 'static,
    ) -> DbOperation<'_, T> {
        DbOperation::new(move |reply| {
            let mut tables = self.0.lock();
            let outcome = if tables.is_away {
                Err(DbError::Failed { path: PathBuf::from("replicas"), why: "the store is away".to_owned() })
            } else {
                Ok(run(&mut tables))
            };
            drop(tables);
            reply(outcome);
        })
    }
}

impl ReplicaOperations for MemoryReplicas {
    fn beat(&self, row: ReplicaRow, begins: bool, now: u64) -> DbOperation<'_, Option<Vec<KeptReplica>>> {
        self.operation(move |tables| {
            if !begins && !tables.rows.contains_key(&row.run) {
                return None;
            }
            let (own, before, time) = (row.run, tables.age(&row.run), tables.now());
            tables.rows.insert(row.run, (row.sealed, time));
            tables.rows.retain(|_, (_, beat)| time.saturating_duration_since(*beat) < FORGOTTEN);
            tables.claims.retain(|_, (_, until)| *until > now);
            let kept = tables.rows.iter().map(|(run, (sealed, beat))| KeptReplica {
                row: ReplicaRow { run: *run, sealed: sealed.clone() },
                age: before.filter(|_| *run == own).unwrap_or_else(|| time.saturating_duration_since(*beat)),
            });
            Some(kept.collect())
        })
    }

    fn leave(&self, run: RunId) -> DbOperation<'_, ()> {
        self.operation(move |tables| drop(tables.rows.remove(&run)))
    }

    fn claim_session(&self, claim: SessionClaim) -> DbOperation<'_, RunId> {
        self.operation(move |tables| {
            if let Some(refused) = claim.refused {
                tables.rows.remove(&refused);
            }
            let holder = tables.claims.get(&claim.name).map_or(claim.named, |(run, _)| *run);
            let by_age = claim.by_age && tables.age(&claim.by).is_some_and(|own| own < DOUBTFUL_AFTER);
            if tables.age(&holder).is_some_and(|age| !by_age || age < DEAD_AFTER) {
                return holder;
            }
            tables.rows.remove(&holder);
            tables.claims.insert(claim.name, (claim.by, claim.until));
            tables.claimed += 1;
            claim.by
        })
    }

    fn give_session(&self, gift: SessionGift) -> DbOperation<'_, ()> {
        self.operation(move |tables| {
            if tables.claims.get(&gift.name).map_or(gift.named, |(run, _)| *run) == gift.from {
                tables.claims.insert(gift.name, (gift.to, gift.until));
            }
        })
    }

    fn claim_lease(&self, claim: LeaseClaim) -> DbOperation<'_, LeaseOutcome> {
        self.operation(move |tables| match tables.leases.get(&claim.upstream) {
            Some((lease, run, until)) if *lease != claim.lease && clock::now() <= *until + LEASE_MARGIN => {
                LeaseOutcome::HeldBy(*run)
            }
            Some(_) | None => {
                tables.leases.insert(claim.upstream, (claim.lease, claim.by, clock::now() + LEASE));
                LeaseOutcome::Taken
            }
        })
    }

    fn release_lease(&self, upstream: String, lease: LeaseId) -> DbOperation<'_, ()> {
        self.operation(move |tables| {
            if !tables.keeps_leases && tables.leases.get(&upstream).is_some_and(|(held, ..)| *held == lease) {
                tables.leases.remove(&upstream);
            }
        })
    }
}
