//! Remembers ended sessions whose ids would still open, a bounded number for each caller.
//!
//! When a caller has too many, a floor replaces the notes of its oldest sessions: no session of
//! this caller that was opened then or before is revived, ended or not. That costs the caller's own
//! clients an `initialize`, and never frees an ended session.

use std::collections::{BTreeMap, HashMap};

use crate::engine::sealed::session_id::SessionName;
use crate::policy::Caller;

/// Most notes of one caller.
pub const MAX_NOTES: usize = 16_384;
/// Number of notes that one floor replaces, so that floors are written rarely.
const GIVE_WAY: usize = MAX_NOTES / 8;

/// An ended session. Times are in seconds since 1970.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EndedSession {
    pub caller: Caller,
    pub name: SessionName,
    pub opened: u64,
    /// Expiry of its id.
    pub until: u64,
}

/// A bound below which no session of a caller is revived.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SessionFloor {
    pub caller: Caller,
    /// Opening time of the newest session that is not revived, in seconds since 1970.
    pub opened: u64,
    /// Time by which the ids of all sessions below it have expired, in seconds since 1970.
    pub until: u64,
}

/// All ended sessions whose ids have not expired, by caller.
#[derive(Debug, Default)]
pub struct EndedSessions(HashMap<Caller, CallerEndedSessions>);

/// The ended sessions of one caller.
#[derive(Debug, Default)]
struct CallerEndedSessions {
    /// Expiry of each id, by the session's opening time and name.
    notes: BTreeMap<(u64, SessionName), u64>,
    /// Opening time and expiry of the floor.
    floor: Option<(u64, u64)>,
}

impl EndedSessions {
    /// Notes the end of a session. If its caller then has too many notes, replaces the oldest by a
    /// floor and returns it.
    pub fn note(&mut self, session: &EndedSession) -> Option<SessionFloor> {
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
        Some(SessionFloor { caller: session.caller.clone(), opened, until })
    }

    /// Adds a note that an earlier process has stored. Raises no floor, since that process had room
    /// for the note.
    pub fn restore(&mut self, session: &EndedSession) {
        let of_caller = self.0.entry(session.caller.clone()).or_default();
        of_caller.notes.insert((session.opened, session.name), session.until);
    }

    /// Raises the caller's floor to this one: of an earlier process, or for sessions that cannot be
    /// noted one by one.
    pub fn raise(&mut self, floor: SessionFloor) {
        let of_caller = self.0.entry(floor.caller).or_default();
        let (opened, until) = of_caller.floor.unwrap_or_default();
        of_caller.floor = Some((opened.max(floor.opened), until.max(floor.until)));
    }

    /// Adds all notes and floors of another reading of the same store.
    pub fn join(&mut self, other: Self) {
        for (caller, CallerEndedSessions { notes, floor }) in other.0 {
            if let Some((opened, until)) = floor {
                self.raise(SessionFloor { caller: caller.clone(), opened, until });
            }
            self.0.entry(caller).or_default().notes.extend(notes);
        }
    }

    /// Returns whether a session must not be revived: it has ended, or lies at or below the floor.
    pub fn has(&self, caller: &Caller, opened: u64, name: &SessionName) -> bool {
        self.0.get(caller).is_some_and(|of_caller| {
            of_caller.floor.is_some_and(|(floor, _)| opened <= floor) || of_caller.notes.contains_key(&(opened, *name))
        })
    }

    /// Forgets all notes and floors that have expired at `now`, in seconds since 1970.
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

    fn has(ended: &EndedSessions, of: &EndedSession) -> bool {
        ended.has(&of.caller, of.opened, &of.name)
    }

    #[test]
    fn an_ended_session_is_known_until_its_id_expires() {
        let mut ended = EndedSessions::default();
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
        let mut ended = EndedSessions::default();
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
