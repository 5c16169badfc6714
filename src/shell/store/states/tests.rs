//! Uses of states: each state is used once over processes and restarts, whether the disk takes
//! writes or not.

use super::*;
use crate::engine::sealed::state::{LIFE, StateId};

mod killed;

fn state(n: u64) -> StateUse {
    let mut id = StateId::default();
    id[..8].copy_from_slice(&n.to_be_bytes());
    StateUse { id, until: (clock::since_1970() + LIFE).as_secs() }
}

#[tokio::test]
async fn a_state_is_used_once_over_processes_and_restarts() {
    let dir = tempfile::tempdir().unwrap();
    let open = || UsedStates::open(Some(Db::open(dir.path()).unwrap())).unwrap();
    let (one, beside) = (open(), open());
    assert!(one.is_first(state(1)) && !one.is_first(state(1)));
    assert_eq!(one.keep(state(1)).await, Ok(()));
    // Another process does not know the use from memory, and learns it from the store.
    assert!(beside.is_first(state(1)));
    assert_eq!(beside.keep(state(1)).await.unwrap_err().reason, FailureReason::Denied);
    assert!(!beside.is_first(state(1)), "nor does it go on with it later");
    drop((one, beside));
    let later = open();
    assert!(!later.is_first(state(1)) && later.is_first(state(2)));
    assert_eq!(later.keep(state(2)).await, Ok(()));
}

#[tokio::test]
async fn a_use_that_cannot_be_written_refuses_the_call_and_can_be_made_again() {
    let dir = tempfile::tempdir().unwrap();
    let db = Db::open(dir.path()).unwrap();
    let used = UsedStates::open(Some(db.clone())).unwrap();
    db.refuse_writes(true);
    assert!(used.is_first(state(1)));
    let refused = used.keep(state(1)).await.unwrap_err();
    assert_eq!((refused.reason, refused.executed), (db.health().failure_reason(), ExecutionDoubt::No));
    assert!(matches!(refused.reason, FailureReason::Unrecorded | FailureReason::StoreUnavailable), "{refused:?}");
    db.refuse_writes(false);
    assert!(used.is_first(state(1)));
    assert_eq!(used.keep(state(1)).await, Ok(()));
    assert!(!used.is_first(state(1)));
}

#[tokio::test]
async fn an_expired_state_is_not_used_even_where_its_row_is_gone() {
    let dir = tempfile::tempdir().unwrap();
    let db = Db::open(dir.path()).unwrap();
    let used = UsedStates::open(Some(db.clone())).unwrap();
    let one = state(1);
    assert!(used.is_first(one));
    assert_eq!(used.keep(one).await, Ok(()));
    // Another process, whose clock is ahead, removes the row.
    let ahead = StateUse { until: one.until + 100, ..state(2) };
    assert!(db.use_state(ahead, one.until + 1).run_now().unwrap());
    assert!(db.used_states(0, 10).run_now().unwrap().iter().all(|left| left.id == ahead.id));
    assert!(!db.use_state(one, clock::since_1970().as_secs()).run_now().unwrap());
}
