//! Replicas: their rows, and which of them holds a session.

use std::time::Duration;

use super::*;
use crate::engine::sealed::run_id::RunId;
use crate::engine::sealed::session_id::SessionName;
use crate::store::port::{
    DEAD_AFTER, LeaseClaim, LeaseOutcome, MemoryReplicas, ReplicaOperations, ReplicaRow, SessionClaim, SessionGift,
};

fn run(n: u8) -> RunId {
    RunId::new([n; 8]).unwrap()
}

fn row(n: u8) -> ReplicaRow {
    ReplicaRow { run: run(n), sealed: format!("sealed {n}") }
}

/// Returns the claim of a session that replica 1 has begun, by another one.
fn claim(by: u8) -> SessionClaim {
    let name = SessionName::default();
    SessionClaim { name, named: run(1), by: run(by), refused: None, by_age: false, until: 100 }
}

fn give(directory: &dyn ReplicaOperations, from: u8, to: u8) {
    let SessionClaim { name, named, until, .. } = claim(from);
    directory.give_session(SessionGift { name, named, from: run(from), to: run(to), until }).run_now().unwrap();
}

fn beat(directory: &dyn ReplicaOperations, n: u8, begins: bool, now: u64) -> Option<Vec<ReplicaRow>> {
    let kept = directory.beat(row(n), begins, now).run_now().unwrap()?;
    assert!(kept.iter().all(|one| one.age < Duration::from_secs(600)));
    let mut rows: Vec<_> = kept.into_iter().map(|one| one.row).collect();
    rows.sort_by_key(|row| row.run);
    Some(rows)
}

fn check(directory: &dyn ReplicaOperations) {
    let ask = |claim: SessionClaim| directory.claim_session(claim).run_now().unwrap();
    assert_eq!(beat(directory, 1, false, 0), None, "it has no row");
    for n in [1, 2, 3] {
        beat(directory, n, true, 0);
    }
    assert_eq!(beat(directory, 1, false, 0), Some([1, 2, 3].map(row).to_vec()));

    assert_eq!(ask(claim(2)), run(1), "the run that the id names lives");
    assert_eq!(ask(SessionClaim { by_age: true, ..claim(2) }), run(1), "its heartbeat is young");
    assert_eq!(ask(SessionClaim { refused: Some(run(1)), ..claim(2) }), run(2), "it refused a connection");
    assert_eq!(beat(directory, 1, false, 0), None, "it counts as dead");
    assert_eq!(ask(claim(3)), run(2), "one replica has claimed the session");

    give(directory, 1, 3);
    assert_eq!(ask(claim(3)), run(2), "the session is not the giver's");
    give(directory, 2, 3);
    assert_eq!(ask(claim(2)), run(3));

    directory.leave(run(3)).run_now().unwrap();
    assert_eq!(ask(claim(2)), run(2), "the holder has left");
    assert_eq!(beat(directory, 2, false, 99), Some(vec![row(2)]));
    assert_eq!(ask(claim(4)), run(2));
    beat(directory, 1, true, 0);
    beat(directory, 2, false, 100);
    assert_eq!(ask(claim(4)), run(1), "the claim has expired with the id");
}

#[test]
fn a_session_has_one_holder_that_lives_and_claims_expire_with_ids() {
    check(&MemoryReplicas::default());
    let dir = tempfile::tempdir().unwrap();
    let db = Db::open(dir.path()).unwrap();
    // Files have no replicas.
    let Some(directory) = db.replicas() else { return };
    check(&*directory);
    db.damage("UPDATE replicas SET beat = beat - interval '20 seconds'");
    assert_eq!(directory.claim_session(claim(4)).run_now().unwrap(), run(1), "age alone is not asked for");
    let jumped = SessionClaim { by_age: true, ..claim(2) };
    assert_eq!(directory.claim_session(jumped).run_now().unwrap(), run(1), "the one that asks is as old");
    let before = directory.beat(row(2), false, 0).run_now().unwrap().unwrap();
    assert!(before.iter().all(|one| one.age > Duration::from_secs(15)), "its own heartbeat before: {before:?}");
    assert!(beat(&*directory, 4, true, 0).is_some());
    let kept = directory.beat(row(2), false, 0).run_now().unwrap().unwrap();
    let ages: BTreeMap<RunId, bool> = kept.iter().map(|one| (one.row.run, one.age < DEAD_AFTER)).collect();
    assert_eq!(ages, BTreeMap::from([(run(1), false), (run(2), true), (run(4), true)]), "{kept:?}");
    let old = SessionClaim { by_age: true, ..claim(4) };
    assert_eq!(directory.claim_session(old).run_now().unwrap(), run(4), "its heartbeat is old");
    db.damage("UPDATE replicas SET beat = beat - interval '2 hours'");
    assert_eq!(beat(&*directory, 5, true, 0), Some(vec![row(5)]), "rows of long ago are removed");
}

/// Claims `fx` for a run with the lease of this number.
fn claim_lease(directory: &dyn ReplicaOperations, by: u8, lease: u8) -> LeaseOutcome {
    let claim = LeaseClaim { upstream: "fx".to_owned(), lease: [lease; 16], by: run(by) };
    directory.claim_lease(claim).run_now().unwrap()
}

fn check_leases(directory: &dyn ReplicaOperations) {
    let ask = |by, lease| claim_lease(directory, by, lease);
    assert_eq!(ask(1, 1), LeaseOutcome::Taken);
    assert_eq!(ask(2, 2), LeaseOutcome::HeldBy(run(1)));
    assert_eq!(ask(1, 3), LeaseOutcome::HeldBy(run(1)), "another life in the same process");
    assert_eq!(ask(4, 1), LeaseOutcome::Taken, "a renewal after the owner began another run");
    assert_eq!(ask(2, 2), LeaseOutcome::HeldBy(run(4)));
    let other = LeaseClaim { upstream: "fy".to_owned(), lease: [2; 16], by: run(2) };
    assert_eq!(directory.claim_lease(other).run_now().unwrap(), LeaseOutcome::Taken, "of another upstream");
    let release = |lease| directory.release_lease("fx".to_owned(), [lease; 16]).run_now().unwrap();
    release(2);
    assert_eq!(ask(2, 2), LeaseOutcome::HeldBy(run(4)), "only its holder ends it");
    release(1);
    assert_eq!(ask(2, 2), LeaseOutcome::Taken);
}

#[test]
fn a_lease_has_one_holder_until_it_is_released_or_over() {
    check_leases(&MemoryReplicas::default());
    let dir = tempfile::tempdir().unwrap();
    let db = Db::open(dir.path()).unwrap();
    let Some(directory) = db.replicas() else { return };
    check_leases(&*directory);
    // The lease has ended, and the time after it has not.
    db.damage("UPDATE leases SET until = (extract(epoch FROM clock_timestamp()) * 1000)::bigint - 1");
    assert_eq!(claim_lease(&*directory, 1, 3), LeaseOutcome::HeldBy(run(2)));
    db.damage("UPDATE leases SET until = until - 2000");
    assert_eq!(claim_lease(&*directory, 1, 3), LeaseOutcome::Taken);
    assert_eq!(claim_lease(&*directory, 2, 2), LeaseOutcome::HeldBy(run(1)), "the former holder comes too late");
    // A database that may have lost a lease gives none for a while, and renews those that it has.
    db.damage("INSERT INTO meta (key, value) VALUES ('system', 'another') ON CONFLICT (key) DO UPDATE SET value = excluded.value");
    drop(directory);
    drop(db);
    let db = Db::open(dir.path()).unwrap();
    let Some(directory) = db.replicas() else { return };
    assert_eq!(claim_lease(&*directory, 1, 3), LeaseOutcome::Taken, "a renewal");
    directory.release_lease("fx".to_owned(), [3; 16]).run_now().unwrap();
    assert_eq!(claim_lease(&*directory, 2, 4), LeaseOutcome::Unknown);
}

#[tokio::test(start_paused = true)]
async fn a_lease_in_memory_ends_after_its_time_and_the_margin() {
    let directory = MemoryReplicas::default();
    let ask = |by, lease| claim_lease(&directory, by, lease);
    assert_eq!(ask(1, 1), LeaseOutcome::Taken);
    tokio::time::advance(Duration::from_secs(10)).await;
    assert_eq!(ask(1, 1), LeaseOutcome::Taken, "renewed");
    tokio::time::advance(Duration::from_secs(17)).await;
    assert_eq!(ask(2, 2), LeaseOutcome::HeldBy(run(1)), "the margin is not over");
    tokio::time::advance(Duration::from_millis(1)).await;
    assert_eq!(ask(2, 2), LeaseOutcome::Taken);
}

#[test]
fn what_only_one_replica_needs_is_no_change_for_the_others() {
    let dir = tempfile::tempdir().unwrap();
    let [db, other] = [(); 2].map(|()| Db::open(dir.path()).unwrap());
    let Some(directory) = db.replicas() else { return };
    let changes = |version| other.approvals_changed("other".to_owned(), version).run_now().unwrap();
    let version = changes(-1).unwrap().version;
    beat(&*directory, 1, true, 0);
    for _ in 0..2 {
        assert_eq!(claim_lease(&*directory, 1, 1), LeaseOutcome::Taken);
    }
    directory.release_lease("fx".to_owned(), [1; 16]).run_now().unwrap();
    db.see(7).run_now().unwrap();
    assert!(db.use_state(StateUse { id: StateId::default(), until: 100 }, 8).run_now().unwrap());
    assert!(changes(version).is_none(), "nobody looks because of these");
    db.invalidate_grants(Vec::new(), 9).run_now().unwrap();
    assert!(changes(version).is_some());
}
