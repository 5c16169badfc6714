//! Properties of every engine, written against the port: random histories of two processes with one
//! store, beside a model in memory.

use std::collections::BTreeMap;
use std::fmt::Debug;

use parking_lot::Mutex;
use proptest::collection::vec;
use proptest::strategy::Strategy;
use proptest::test_runner::{Config, TestRunner};

use super::*;
use crate::engine::sealed::state::{StateId, StateUse};
use crate::policy::Digest;
use crate::policy::records::chain::ChainHead;
use crate::store::port::AuditHead;

mod approvals;
mod client_tokens;
mod limits;
mod logins;
mod pins;
mod replaced;
mod replicas;
mod sealed;
mod sessions;

/// Opens a store for two processes.
type Open = fn(&Path) -> [Db; 2];

/// The engines. Each has all properties.
const ENGINES: &[(&str, Open)] = &[
    ("SQLite on disk, or PostgreSQL", |dir| [(); 2].map(|()| Db::open(dir).unwrap())),
    ("SQLite in memory", |dir| {
        let db = Db::in_memory(dir);
        [db.clone(), db]
    }),
];

/// Plays random histories on each engine, each history on a fresh store.
fn play<E: Strategy<Value: Clone + Debug>>(event: E, history: impl Fn(&[Db; 2], &[E::Value])) {
    for (engine, open) in ENGINES {
        let config = Config { cases: 12, failure_persistence: None, ..Config::default() };
        let outcome = TestRunner::new(config).run(&vec(&event, 1..50), |events| {
            let dir = tempfile::tempdir().unwrap();
            history(&open(dir.path()), &events);
            Ok(())
        });
        outcome.unwrap_or_else(|error| panic!("{engine}: {error}"));
    }
}

#[test]
fn requests_of_one_process_are_done_and_answered_in_the_order_in_which_they_were_begun() {
    play((0..3_u8, 0..9_u64), |[db, _], events| {
        let (mut model, mut expected) = (BTreeMap::new(), Vec::new());
        let answers = Arc::new(Mutex::new(Vec::new()));
        for (chain, seq) in events {
            let chain = chain.to_string();
            if *seq == 0 {
                db.forget_audit_head(chain.clone()).then(|outcome| outcome.unwrap());
                model.remove(&chain);
            } else {
                let head = ChainHead { seq: *seq, hash: Digest::of(b"x") };
                let kept = AuditHead { chain: chain.clone(), head, segment: "s".to_owned() };
                db.keep_audit_head(kept.clone()).then(|outcome| outcome.unwrap());
                model.insert(chain, kept);
            }
            expected.push(model.values().cloned().collect::<Vec<_>>());
            let answers = Arc::clone(&answers);
            db.audit_heads().then(move |heads| answers.lock().push(heads.unwrap()));
        }
        db.all_so_far().run_now().unwrap();
        assert_eq!(*answers.lock(), expected);
    });
}

#[test]
fn a_state_is_used_once_and_never_after_its_end_by_the_clock_of_any_process() {
    play((0..2_usize, 0..5_u8, 1..40_u64, 0..30_u64), |dbs, events| {
        let (mut used, mut latest) = (BTreeMap::new(), 0);
        for (process, name, until, now) in events {
            let db = &dbs[*process];
            if *name == 0 {
                db.see(*now).run_now().unwrap();
                latest = latest.max(*now);
            } else {
                let mut id = StateId::default();
                id[0] = *name;
                let (state, time) = (StateUse { id, until: *until }, latest.max(*now));
                let mut is_first = *until > time;
                if is_first {
                    let before = used.len();
                    used.retain(|_, until| *until > time);
                    latest = if used.len() < before { time } else { latest };
                    is_first = !used.contains_key(&id);
                    used.entry(id).or_insert(*until);
                }
                assert_eq!(db.use_state(state, *now).run_now().unwrap(), is_first, "{state:?} at {now}");
            }
            let mut kept = db.used_states(0, 100).run_now().unwrap();
            kept.sort_by_key(|state| state.id);
            let expected: Vec<_> = used.iter().map(|(id, until)| StateUse { id: *id, until: *until }).collect();
            assert_eq!((kept, db.latest_time().run_now().unwrap().as_secs()), (expected, latest));
        }
    });
}

#[test]
fn sign_ins_are_those_by_one_token_and_the_latest_of_them() {
    const MOST: usize = 3;
    let key = |n: u8| [n; 32];
    play((0..4_u8, 0..6_u8, 0..2_u8), |[db, _], events| {
        let mut model = BTreeMap::new();
        for (what, id, token) in events {
            let sign_in = ConsoleSignIn { id: key(*id), until: 100 + u64::from(*id), last: 200 };
            match what {
                0 => {
                    db.end_sign_in(key(*id)).run_now().unwrap();
                    model.remove(id);
                }
                1 => {
                    db.end_other_sign_ins(key(*token)).run_now().unwrap();
                    model.retain(|_, by| by == token);
                }
                _ => {
                    db.keep_sign_in(sign_in, key(*token), MOST).run_now().unwrap();
                    model.insert(*id, *token);
                    while model.len() > MOST {
                        model.pop_first();
                    }
                }
            }
        }
        let mut kept: Vec<u8> = db.sign_ins(key(0), 1).run_now().unwrap().iter().map(|one| one.id[0]).collect();
        kept.sort_unstable();
        model.retain(|_, by| *by == 0);
        assert_eq!(kept, model.into_keys().collect::<Vec<_>>());
        assert_eq!(db.sign_ins(key(1), 1).run_now().unwrap(), [], "the others were removed");
    });
}

#[test]
fn a_store_that_takes_no_writes_is_read_and_loses_nothing() {
    play((0..6_u64, 0..2_u8), |[db, _], events| {
        let mut latest = 0;
        for (now, refuses) in events {
            db.refuse_writes(*refuses == 1);
            let seen = db.see(latest + now).run_now();
            if *refuses == 0 {
                latest += now;
            }
            // A time that is there already may need no write.
            assert!(seen.is_ok() || *refuses == 1 && seen.unwrap_err().is_unwritable());
            assert_eq!(db.latest_time().run_now().unwrap().as_secs(), latest);
        }
    });
}
