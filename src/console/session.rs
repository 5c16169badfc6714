//! Sign-in: sessions, one-time links, and a bound on wrong guesses.
//!
//! No secret is kept in the clear: cookies and links are stored as SHA-256 digests. Browsers do not bind a cookie to a
//! port, so any other server on the same loopback address gets it too when the same browser visits it. Such a program
//! already runs on this machine; sign-out or 12 idle hours end its access.

use std::collections::HashMap;
use std::time::Duration;

use aws_lc_rs::constant_time::verify_slices_are_equal;
use aws_lc_rs::digest::{SHA256, digest};
use data_encoding::BASE64URL_NOPAD;
use parking_lot::{Mutex, MutexGuard};

use crate::base::clock;

/// How long a link from `headend console` is valid.
pub(crate) const LINK_LIFE: Duration = Duration::from_secs(15 * 60);
/// Unused links; the oldest gives way.
const MAX_LINKS: usize = 16;
/// How long a session may be idle.
const IDLE: Duration = Duration::from_secs(12 * 3600);
/// Most sessions; the oldest gives way.
const MAX_SESSIONS: usize = 64;
/// Wrong sign-ins of all browsers within [`WINDOW`], before headend asks the next to wait.
const MAX_WRONG: usize = 5;
const WINDOW: Duration = Duration::from_secs(60);

type Key = [u8; 32];

/// All sessions and unused links.
pub(crate) struct Doors {
    token: Key,
    inner: Mutex<Inner>,
}

impl std::fmt::Debug for Doors {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Doors")
    }
}

#[derive(Default)]
struct Inner {
    sessions: HashMap<Key, Session>,
    links: HashMap<Key, Duration>,
    wrong: Vec<Duration>,
}

struct Session {
    csrf: String,
    seen: Duration,
    notice: Option<Notice>,
}

/// Result of an action, shown on the next page.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Notice {
    pub(crate) good: bool,
    pub(crate) text: String,
}

/// A request with a valid session.
#[derive(Clone, Debug)]
pub(crate) struct Visitor {
    key: Key,
    pub(crate) csrf: String,
}

impl Visitor {
    /// Whether a form was made for this session.
    pub(crate) fn sent(&self, csrf: &str) -> bool {
        verify_slices_are_equal(self.csrf.as_bytes(), csrf.as_bytes()).is_ok()
    }
}

/// Why a sign-in failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum NoEntry {
    Wrong,
    /// Wrong, after too many others.
    TooMany(Duration),
}

impl Doors {
    /// `token` is the operator's.
    pub(crate) fn new(token: &str) -> Self {
        Self { token: key(token), inner: Mutex::default() }
    }

    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock()
    }

    /// Signs in with the operator's token. Returns the cookie's value.
    ///
    /// The right token works after any number of wrong ones, so no program on this machine can lock the operator out.
    /// It has 256 bits: the bound limits log lines, not guesses.
    ///
    /// # Errors
    /// [`NoEntry`].
    pub(crate) fn enter(&self, token: &str, now: Duration) -> Result<String, NoEntry> {
        let mut inner = self.lock();
        if verify_slices_are_equal(&key(token.trim()), &self.token).is_ok() {
            return Ok(inner.begin(now));
        }
        Err(inner.wrong(now))
    }

    /// Makes a link that signs in once.
    pub(crate) fn make_link(&self, now: Duration) -> String {
        let link = secret();
        let mut inner = self.lock();
        inner.links.retain(|_, until| *until > now);
        if inner.links.len() >= MAX_LINKS
            && let Some(oldest) = inner.links.iter().min_by_key(|(_, until)| **until).map(|(key, _)| *key)
        {
            inner.links.remove(&oldest);
        }
        inner.links.insert(key(&link), now + LINK_LIFE);
        link
    }

    /// Signs in with a link and uses it up.
    ///
    /// A valid link works after any number of wrong sign-ins.
    ///
    /// # Errors
    /// [`NoEntry`].
    pub(crate) fn use_link(&self, link: &str, now: Duration) -> Result<String, NoEntry> {
        let mut inner = self.lock();
        match inner.links.remove(&key(link)) {
            Some(until) if until > now => Ok(inner.begin(now)),
            _ => Err(inner.wrong(now)),
        }
    }

    /// The session of a cookie; counts as activity.
    pub(crate) fn visitor(&self, cookie: &str, now: Duration) -> Option<Visitor> {
        let key = key(cookie);
        let mut inner = self.lock();
        let session = inner.sessions.get_mut(&key)?;
        if session.seen + IDLE <= now {
            inner.sessions.remove(&key);
            return None;
        }
        session.seen = now;
        Some(Visitor { key, csrf: session.csrf.clone() })
    }

    /// Whether the session is still open; does not count as activity.
    pub(crate) fn is_open(&self, visitor: &Visitor, now: Duration) -> bool {
        self.lock().sessions.get(&visitor.key).is_some_and(|session| session.seen + IDLE > now)
    }

    pub(crate) fn leave(&self, visitor: &Visitor) {
        self.lock().sessions.remove(&visitor.key);
    }

    /// Leaves a notice for the session's next page.
    pub(crate) fn tell(&self, visitor: &Visitor, notice: Notice) {
        if let Some(session) = self.lock().sessions.get_mut(&visitor.key) {
            session.notice = Some(notice);
        }
    }

    pub(crate) fn told(&self, visitor: &Visitor) -> Option<Notice> {
        self.lock().sessions.get_mut(&visitor.key)?.notice.take()
    }
}

impl Inner {
    /// Counts a wrong sign-in, unless there were too many.
    fn wrong(&mut self, now: Duration) -> NoEntry {
        self.wrong.retain(|at| *at + WINDOW > now);
        match self.wrong.first() {
            Some(first) if self.wrong.len() >= MAX_WRONG => NoEntry::TooMany((*first + WINDOW).saturating_sub(now)),
            _ => {
                self.wrong.push(now);
                NoEntry::Wrong
            }
        }
    }

    fn begin(&mut self, now: Duration) -> String {
        self.sessions.retain(|_, session| session.seen + IDLE > now);
        if self.sessions.len() >= MAX_SESSIONS
            && let Some(oldest) = self.sessions.iter().min_by_key(|(_, session)| session.seen).map(|(key, _)| *key)
        {
            self.sessions.remove(&oldest);
        }
        let cookie = secret();
        self.sessions.insert(key(&cookie), Session { csrf: secret(), seen: now, notice: None });
        cookie
    }
}

/// 256 random bits as text.
fn secret() -> String {
    BASE64URL_NOPAD.encode(&clock::random::<32>())
}

fn key(text: &str) -> Key {
    let mut out = [0; 32];
    for (to, from) in out.iter_mut().zip(digest(&SHA256, text.as_bytes()).as_ref()) {
        *to = *from;
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(seconds: u64) -> Duration {
        Duration::from_secs(seconds)
    }

    #[test]
    fn a_link_is_good_once_and_for_a_quarter_of_an_hour() {
        let doors = Doors::new("token");
        let link = doors.make_link(at(0));
        let cookie = doors.use_link(&link, at(1)).unwrap();
        assert!(doors.visitor(&cookie, at(2)).is_some());
        assert_eq!(doors.use_link(&link, at(2)), Err(NoEntry::Wrong));
        let late = doors.make_link(at(0));
        assert_eq!(doors.use_link(&late, LINK_LIFE), Err(NoEntry::Wrong));
        let links: Vec<String> = (0..=MAX_LINKS).map(|n| doors.make_link(at(100 + n as u64))).collect();
        assert!(doors.use_link(&links[0], at(200)).is_err(), "the oldest gave way");
        assert!(doors.use_link(&links[1], at(200)).is_ok());
    }

    #[test]
    fn a_session_ends_when_idle_when_left_and_when_there_are_too_many() {
        let doors = Doors::new("token");
        let idle = doors.enter("token", at(0)).unwrap();
        assert!(doors.visitor(&idle, IDLE - at(1)).is_some());
        assert!(doors.visitor(&idle, IDLE + IDLE).is_none());
        let left = doors.enter(" token\n", at(0)).unwrap();
        let visitor = doors.visitor(&left, at(1)).unwrap();
        assert!(visitor.sent(&visitor.csrf.clone()) && !visitor.sent("") && !visitor.sent("x"));
        doors.leave(&visitor);
        assert!(!doors.is_open(&visitor, at(1)) && doors.visitor(&left, at(1)).is_none());
        let first = doors.enter("token", at(1)).unwrap();
        for n in 0..MAX_SESSIONS as u64 {
            doors.enter("token", at(2 + n)).unwrap();
        }
        assert!(doors.visitor(&first, at(100)).is_none());
    }

    #[test]
    fn wrong_guesses_are_paced_and_lock_nobody_out() {
        let doors = Doors::new("token");
        for _ in 0..MAX_WRONG {
            assert_eq!(doors.enter("guess", at(0)), Err(NoEntry::Wrong));
        }
        assert_eq!(doors.enter("guess", at(1)), Err(NoEntry::TooMany(at(59))));
        assert!(doors.enter("token", at(1)).is_ok(), "the right one works");
        assert_eq!(doors.use_link("guess", at(1)), Err(NoEntry::TooMany(at(59))));
        assert!(doors.use_link(&doors.make_link(at(1)), at(1)).is_ok());
        assert_eq!(doors.enter("guess", at(61)), Err(NoEntry::Wrong));
    }

    #[test]
    fn a_notice_is_told_once() {
        let doors = Doors::new("token");
        let visitor = doors.visitor(&doors.enter("token", at(0)).unwrap(), at(0)).unwrap();
        doors.tell(&visitor, Notice { good: true, text: "done".to_owned() });
        assert_eq!(doors.told(&visitor).unwrap().text, "done");
        assert_eq!(doors.told(&visitor), None);
    }
}
