//! A process that is killed at any moment continues no call twice with one state, and uses no
//! once-grant behind it twice. The same states are sent again and again, and the processes are
//! killed between the use and the answer.

use std::collections::HashSet;
use std::fs;
use std::path::Path;

use super::*;
use crate::store::killed::{AT_HAND, UseLog, kill_1000, read_uses, run_until_killed};

/// The work of the killed processes.
#[test]
fn goes_on_with_states_until_it_is_killed() {
    run_until_killed(async |dir| {
        let used = UsedStates::open(Some(Db::open(&dir).unwrap())).unwrap();
        let sealed = fs::read_to_string(dir.join("sealed")).unwrap();
        let mut upstream = UseLog::begin(&dir);
        for n in sealed.lines().map(|line| line.parse::<u64>().unwrap()) {
            // All states that were ever sealed are sent again, the used ones too.
            if used.is_first(state(n)) && used.keep(state(n)).await.is_ok() {
                upstream.note(&n.to_string());
            }
        }
    });
}

#[test]
fn a_used_state_is_never_used_again_also_after_kill_9_at_any_of_1000_points() {
    kill_1000(concat!(module_path!(), "::goes_on_with_states_until_it_is_killed"), seal_more);
}

/// Checks the store after a life, and seals a state for each one that was used.
fn seal_more(dir: &Path, made: usize) -> usize {
    let db = Db::open(dir).unwrap();
    let mut used = HashSet::new();
    for n in read_uses(dir) {
        assert!(used.insert(n.parse::<u64>().unwrap()), "{n} was used twice");
    }
    let kept: HashSet<StateId> =
        db.used_states(0, usize::MAX).run_now().unwrap().iter().map(|state| state.id).collect();
    assert!(used.iter().all(|n| kept.contains(&state(*n).id)), "a state was used that is not on disk as used");
    // A state whose use is on disk was used, or its process was killed before the call went on.
    let unused = made - kept.len();
    let made = made + AT_HAND - unused.min(AT_HAND);
    let sealed: String = (0..made).map(|n| format!("{n}\n")).collect();
    fs::write(dir.join("sealed"), sealed).unwrap();
    made
}
