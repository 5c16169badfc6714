//! Ended sessions: ids that would still open and must not. A bounded number for each caller.
//!
//! When a caller has too many, the notes of its oldest sessions give way to a floor: no session of this caller that was opened
//! before it is revived, ended or not. That costs the caller's own clients an `initialize` and frees no ended session.

use std::collections::{BTreeMap, HashMap};

use crate::engine::session_id::SessionName;
use crate::policy::Caller;

/// Notes of one caller.
pub const MAX_NOTES: usize = 16_384;
/// So many give way together, so that floors are written seldom.
const GIVE_WAY: usize = MAX_NOTES / 8;

/// A session that has ended. Times are seconds since 1970.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EndedSession {
    pub caller: Caller,
    pub name: SessionName,
    pub opened: u64,
    /// When its id would have expired.
    pub until: u64,
}

/// No session of the caller that was opened then or before is revived.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Floor {
    pub caller: Caller,
    pub opened: u64,
    /// All that gave way to it have expired by then.
    pub until: u64,
}

/// All ended sessions whose ids have not expired.
#[derive(Debug, Default)]
pub struct Ended(HashMap<Caller, OfCaller>);

#[derive(Debug, Default)]
struct OfCaller {
    /// By the time of opening and the name, with the end of the id.
    notes: BTreeMap<(u64, SessionName), u64>,
    floor: Option<(u64, u64)>,
}

impl Ended {
    /// Notes an end. Returns a floor where one was raised, which then replaces the notes below it.
    pub fn note(&mut self, session: &EndedSession) -> Option<Floor> {
        let of_caller = self.0.entry(session.caller.clone()).or_default();
        of_caller.notes.insert((session.opened, session.name), session.until);
        if of_caller.notes.len() <= MAX_NOTES {
            return None;
        }
        let opened = of_caller.notes.keys().nth(GIVE_WAY)?.0;
        let kept = of_caller.notes.split_off(&(opened.saturating_add(1), SessionName::default()));
        let gone = std::mem::replace(&mut of_caller.notes, kept);
        let until = gone.into_values().chain(of_caller.floor.map(|(_, until)| until)).max()?;
        of_caller.floor = Some((opened, until));
        Some(Floor { caller: session.caller.clone(), opened, until })
    }

    /// Takes over a note of an earlier process, which had room for it.
    pub fn restore(&mut self, session: &EndedSession) {
        let of_caller = self.0.entry(session.caller.clone()).or_default();
        of_caller.notes.insert((session.opened, session.name), session.until);
    }

    /// Takes over a floor: of an earlier process, or for sessions that cannot be noted one by one.
    pub fn raise(&mut self, floor: Floor) {
        let of_caller = self.0.entry(floor.caller).or_default();
        let (opened, until) = of_caller.floor.unwrap_or_default();
        of_caller.floor = Some((opened.max(floor.opened), until.max(floor.until)));
    }

    pub fn has(&self, caller: &Caller, opened: u64, name: &SessionName) -> bool {
        self.0.get(caller).is_some_and(|of_caller| {
            of_caller.floor.is_some_and(|(floor, _)| opened <= floor) || of_caller.notes.contains_key(&(opened, *name))
        })
    }

    /// Forgets what has expired. `now` is in seconds since 1970.
    pub fn sweep(&mut self, now: u64) {
        self.0.retain(|_, of_caller| {
            of_caller.notes.retain(|_, until| now < *until);
            of_caller.floor = of_caller.floor.filter(|(_, until)| now < *until);
            !of_caller.notes.is_empty() || of_caller.floor.is_some()
        });
    }

    pub fn len(&self) -> usize {
        self.0.values().map(|of_caller| of_caller.notes.len()).sum()
    }

    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn session(caller: &str, n: u64, opened: u64, until: u64) -> EndedSession {
        let mut name = SessionName::default();
        name[..8].copy_from_slice(&n.to_be_bytes());
        EndedSession { caller: Caller::named(caller), name, opened, until }
    }

    fn has(ended: &Ended, of: &EndedSession) -> bool {
        ended.has(&of.caller, of.opened, &of.name)
    }

    #[test]
    fn an_ended_session_is_known_until_its_id_expires() {
        let mut ended = Ended::default();
        let (one, other) = (session("a", 1, 100, 200), session("a", 2, 100, 300));
        assert_eq!(ended.note(&one), None);
        assert!(has(&ended, &one) && !has(&ended, &other) && !has(&ended, &session("b", 1, 100, 200)));
        ended.note(&other);
        ended.sweep(199);
        assert!(has(&ended, &one));
        ended.sweep(200);
        assert!(!has(&ended, &one) && has(&ended, &other) && ended.len() == 1);
        ended.sweep(300);
        assert!(ended.is_empty() && ended.0.is_empty());
    }

    #[test]
    fn with_too_many_the_oldest_give_way_to_a_floor_that_frees_none_of_them() {
        let mut ended = Ended::default();
        let others = session("b", 1, 5, 10_000_000);
        let all: Vec<EndedSession> =
            (0..3 * MAX_NOTES as u64).map(|n| session("a", n, 1000 + n / 3, 500_000 + n % 7)).collect();
        let mut floors = Vec::new();
        for (n, one) in all.iter().enumerate() {
            floors.extend(ended.note(one));
            assert!(ended.len() <= MAX_NOTES);
            assert!(has(&ended, one), "{n}");
        }
        assert!(floors.len() > 8 && floors.len() < 32, "{}", floors.len());
        assert!(floors.is_sorted_by_key(|floor| floor.opened));
        assert!(all.iter().all(|one| has(&ended, one)), "no ended session comes back");
        let floor = floors.pop().unwrap();
        assert!(has(&ended, &session("a", u64::MAX, floor.opened, 600_000)), "nor one that lives and is as old");
        assert!(!has(&ended, &session("a", u64::MAX, floor.opened + 1, 600_000)));
        assert!(!has(&ended, &others), "nor does another caller lose one");
        ended.sweep(floor.until - 1);
        let live = |one: &&EndedSession| one.until > floor.until - 1;
        assert!(all.iter().filter(live).all(|one| has(&ended, one)));
        ended.sweep(floor.until);
        assert!(ended.is_empty() && !has(&ended, &all[0]));
        ended.raise(floor.clone());
        assert!(has(&ended, &all[0]) && !has(&ended, &session("a", 0, floor.opened + 1, 0)));
    }
}
