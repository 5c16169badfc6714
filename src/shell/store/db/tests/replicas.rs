//! Replicas: their rows, and which of them holds a session.

use std::time::Duration;

use super::*;
use crate::engine::sealed::run_id::RunId;
use crate::engine::sealed::session_id::SessionName;
use crate::store::port::{DEAD_AFTER, MemoryReplicas, ReplicaOperations, ReplicaRow, SessionClaim, SessionGift};

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

#[test]
fn what_only_one_replica_needs_is_no_change_for_the_others() {
    let dir = tempfile::tempdir().unwrap();
    let [db, other] = [(); 2].map(|()| Db::open(dir.path()).unwrap());
    let Some(directory) = db.replicas() else { return };
    let changes = |version| other.approvals_changed("other".to_owned(), version).run_now().unwrap();
    let version = changes(-1).unwrap().version;
    beat(&*directory, 1, true, 0);
    db.see(7).run_now().unwrap();
    assert!(db.use_state(StateUse { id: StateId::default(), until: 100 }, 8).run_now().unwrap());
    assert!(changes(version).is_none(), "nobody looks because of these");
    db.invalidate_grants(Vec::new(), 9).run_now().unwrap();
    assert!(changes(version).is_some());
}
