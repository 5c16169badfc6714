//! Sessions: nothing is kept of one that has ended.

use super::*;
use crate::engine::sealed::ended::{EndedSession, SessionFloor};
use crate::engine::sealed::session_id::SessionName;
use crate::policy::Caller;

fn session(n: u8) -> EndedSession {
    let mut name = SessionName::default();
    name[0] = n;
    EndedSession { caller: Caller::named("ci"), name, opened: u64::from(n), until: 10 + u64::from(n) }
}

#[test]
fn an_ended_session_is_known_until_its_id_expires_and_nothing_of_it_is_kept() {
    play((0..2_usize, 0..7_u8, 0..5_u8, 0..3_u64), |dbs, events| {
        let (mut ended, mut floor) = (BTreeMap::new(), None::<u64>);
        let mut kept = BTreeMap::<u8, SessionRows>::new();
        for (process, what, n, slot) in events {
            let (db, one) = (&dbs[*process], session(*n));
            let is_over = ended.contains_key(n) || floor.is_some_and(|floor| floor >= one.opened);
            match what {
                0 | 1 => {
                    db.end_session(one.clone(), None).run_now().unwrap();
                    ended.insert(*n, ());
                    kept.remove(n);
                }
                2 if *n == 0 => {
                    let caller = one.caller.clone();
                    db.end_sessions_below(SessionFloor { caller, opened: *slot, until: 100 }).run_now().unwrap();
                    floor = floor.max(Some(*slot));
                }
                3 => {
                    db.keep_level(one.clone(), "info").run_now().unwrap();
                    if !is_over {
                        kept.entry(*n).or_default().level = Some("info".to_owned());
                    }
                }
                4 => {
                    db.drop_resource(one.name, *slot).run_now().unwrap();
                    kept.entry(*n).and_modify(|rows| rows.resources.retain(|(at, _)| at != slot));
                }
                _ => {
                    let uri = format!("fx://{n}/{slot}");
                    db.keep_resource(one.clone(), *slot, uri.clone()).run_now().unwrap();
                    if !is_over {
                        let rows = kept.entry(*n).or_default();
                        rows.resources.retain(|(at, _)| at != slot);
                        rows.resources.push((*slot, uri));
                        rows.resources.sort();
                    }
                }
            }
            let other = &dbs[1 - *process];
            let rows = kept.get(n).cloned().unwrap_or_default();
            let noted = other.ended_sessions(1).unwrap();
            let is_over = ended.contains_key(n) || floor.is_some_and(|floor| floor >= one.opened);
            assert_eq!(other.kept_session(one.clone()).run_now().unwrap(), (!is_over).then_some(rows));
            assert_eq!(noted.has(&one.caller, one.opened, &one.name), is_over);
        }
        dbs[0].sweep_sessions(1000).run_now().unwrap();
        assert!(dbs[1].ended_sessions(0).unwrap().is_empty(), "all ids have expired");
    });
}
