//! A process that is killed at any moment uses no grant twice.

use std::collections::HashSet;
use std::path::Path;

use super::*;
use crate::policy::consent::GrantArguments;
use crate::store::killed::{AT_HAND, UseLog, kill_1000, read_uses, run_until_killed};

/// The work of the killed processes.
#[test]
fn uses_once_grants_until_it_is_killed() {
    run_until_killed(async |dir| {
        let approvals = Approvals::open(Db::open(&dir).unwrap(), &limits()).unwrap();
        let mut upstream = UseLog::begin(&dir);
        let mut actions: Vec<ApprovalSubject> = approvals.grants().iter().map(|grant| grant.asked().clone()).collect();
        actions.sort_by(|a, b| a.item.cmp(&b.item));
        for action in actions {
            let Some(consented) = approvals.grants().claim(&action, approvals.wall(), None) else { continue };
            let grant = consented.spend();
            if approvals.consume(&grant).await.is_ok() {
                upstream.note(grant.id());
            }
        }
    });
}

#[test]
fn a_used_once_grant_is_never_used_again_also_after_kill_9_at_any_of_1000_points() {
    kill_1000(concat!(module_path!(), "::uses_once_grants_until_it_is_killed"), grant_more);
}

/// Checks the store after a life, and adds a grant for each one that was used.
fn grant_more(dir: &Path, made: usize) -> usize {
    let db = Db::open(dir).unwrap();
    check(dir, &db);
    let live = db.grants().run_now().unwrap().len();
    let more = AT_HAND - live.min(AT_HAND);
    for row in (made..made + more).map(once) {
        db.keep_grant(row, None).then(|outcome| assert!(outcome.unwrap()));
    }
    db.all_so_far().run_now().unwrap();
    made + more
}

fn once(n: usize) -> GrantRow {
    GrantRow {
        id: Arc::from(format!("{n:016x}")),
        asked: asked("ci", &format!("fx__{n:08}"), "{}"),
        arguments: GrantArguments::Exact,
        lifetime: GrantLifetime::Once,
        evidence: ApprovalEvidence::Operator,
        by: Arc::from("uid:1"),
        granted_at: clock::unix_seconds(),
        last_used: 0,
        uses: 0,
    }
}

/// Checks that nothing was used twice, and that no used grant is live.
fn check(dir: &Path, db: &Db) {
    let live: HashSet<String> = db.grants().run_now().unwrap().iter().map(|row| row.id.to_string()).collect();
    let mut used = HashSet::new();
    for id in read_uses(dir) {
        assert!(!live.contains(&id), "{id} was used and is live");
        assert!(used.insert(id.clone()), "{id} was used twice");
    }
}
