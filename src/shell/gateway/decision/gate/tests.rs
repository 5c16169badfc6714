//! Tests that a process killed at any moment continues no call twice with one state, and makes none
//! twice with the once-grant behind it.
//!
//! Each state is sent twice, as by a client that got no answer. The first use continues the call;
//! the second time the request is a call of its own, which needs a grant. Both pass the gate.

use std::collections::HashSet;
use std::fs;
use std::path::Path;

use super::*;
use crate::base::clock;
use crate::config::ApprovalSettings;
use crate::engine::sealed::state::{StateCarrier, StateContent, StateId, StateKey, StatePayload, StateScope};
use crate::mcp::method::Method;
use crate::mcp::version::{Era, Revision};
use crate::policy::consent::{ApprovalSubject, GrantArguments, GrantLifetime, GrantRow};
use crate::policy::{ApprovalEvidence, PolicyAction};
use crate::store::db::Db;
use crate::store::killed::{AT_HAND, UseLog, kill_1000, read_uses, run_until_killed};

mod record;

/// File of all states ever sealed, one a line: the number of the call, and the state.
const SEALED: &str = "sealed";

fn action(n: usize) -> PolicyAction {
    PolicyAction::stand_in("ci", "fx", &format!("fx__{n:08}"))
}

fn scope(action: &PolicyAction) -> StateScope<'_> {
    let carrier = StateCarrier { kind: "token", revision: Revision::preferred(Era::Modern), capabilities: 1 };
    StateScope { method: Method::ToolsCall, action, carrier }
}

fn asked(action: &PolicyAction) -> ApprovalSubject {
    ApprovalSubject::new(action, &Arc::from("ask-all"), ApprovalEvidence::Client)
}

fn key(db: &Db) -> StateKey {
    StateKey::new(&db.secrets("states 1").unwrap().unwrap()).unwrap()
}

/// Runs in the processes that are killed.
#[test]
fn goes_on_with_states_and_grants_until_it_is_killed() {
    run_until_killed(async |dir| {
        let db = Db::open(&dir).unwrap();
        let (key, used) = (key(&db), UsedStates::open(Some(db.clone())).unwrap());
        let approvals = Arc::new(Approvals::open(db, &ApprovalSettings::default()).unwrap());
        let sealed = fs::read_to_string(dir.join(SEALED)).unwrap();
        let mut upstream = UseLog::begin(&dir);
        for (n, sealed) in sealed.lines().map(|line| line.split_once(' ').unwrap()) {
            let action = action(n.parse().unwrap());
            for _ in 0..2 {
                let Some((_, state)) = key.open(&scope(&action), sealed, clock::since_1970()) else { continue };
                let (gate, use_) = if used.is_first(state) {
                    let state = Some((used.clone(), state));
                    (DiskGate::new(&approvals, RecordState::Accepted, None, None, state, false), format!("state {n}"))
                } else {
                    let claimed = approvals.grants().claim(&asked(&action), approvals.wall(), None);
                    let Some(grant) = claimed.map(|consented| consented.spend()) else { continue };
                    let use_ = format!("grant {n}");
                    (DiskGate::new(&approvals, RecordState::Accepted, Some(&grant), None, None, false), use_)
                };
                if gate.unwrap().pass().await.is_ok() {
                    upstream.note(&use_);
                }
            }
        }
    });
}

#[test]
fn no_state_and_no_once_grant_behind_it_is_used_twice_also_after_kill_9_at_any_of_1000_points() {
    kill_1000(concat!(module_path!(), "::goes_on_with_states_and_grants_until_it_is_killed"), make_more);
}

/// Checks what the killed process left, and replaces what it used: a state and a grant for each
/// call.
fn make_more(dir: &Path, made: usize) -> usize {
    let db = Db::open(dir).unwrap();
    let live: HashSet<String> = db.grants().run_now().unwrap().iter().map(|row| row.id.to_string()).collect();
    let kept: HashSet<StateId> =
        db.used_states(0, usize::MAX).run_now().unwrap().iter().map(|state| state.id).collect();
    let mut used = HashSet::new();
    for line in read_uses(dir) {
        assert!(used.insert(line.clone()), "{line} was used twice");
        let (kind, n) = line.split_once(' ').unwrap();
        let n: usize = n.parse().unwrap();
        assert!(kind != "grant" || !live.contains(&grant_id(n)), "the grant of {n} was used and is live");
        assert!(kept.contains(&state_id(n)), "the state of {n} was used and is not on disk as used");
    }
    let (key, now) = (key(&db), clock::since_1970());
    let more = AT_HAND - live.len().min(AT_HAND);
    let mut sealed = String::new();
    for n in made..made + more {
        let action = action(n);
        let state = StateContent { round: 1, carried: StatePayload::Upstream("theirs".to_owned()) };
        let text = key.seal(&scope(&action), &state, now, state_id(n)).unwrap();
        sealed.push_str(&format!("{n} {text}\n"));
        db.keep_grant(once(n, &action), None).then(|outcome| assert!(outcome.unwrap()));
    }
    db.all_so_far().run_now().unwrap();
    // The new states first: no process lives long enough for all states ever made.
    sealed.push_str(&fs::read_to_string(dir.join(SEALED)).unwrap_or_default());
    fs::write(dir.join(SEALED), sealed).unwrap();
    made + more
}

fn state_id(n: usize) -> StateId {
    let mut id = StateId::default();
    id[..8].copy_from_slice(&n.to_be_bytes());
    id
}

fn grant_id(n: usize) -> String {
    format!("{n:016x}")
}

fn once(n: usize, action: &PolicyAction) -> GrantRow {
    GrantRow {
        id: Arc::from(grant_id(n)),
        asked: asked(action),
        arguments: GrantArguments::Exact,
        lifetime: GrantLifetime::Once,
        evidence: ApprovalEvidence::Operator,
        by: Arc::from("uid:1"),
        granted_at: clock::unix_seconds(),
        last_used: 0,
        uses: 0,
    }
}
