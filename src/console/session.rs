//! Signs browsers in: sessions, one-time links, and a limit on wrong attempts.
//!
//! No secret is kept in the clear: cookies and links are stored as SHA-256 digests, and a session's
//! CSRF token is derived from its cookie. The digests of cookies are in the store, so a sign-in
//! outlives the daemon. It ends with sign-out, after 12 idle hours, after 30 days, or when
//! `console-token` changes. A page that stays open and updates itself counts as idle.
//!
//! Browsers do not bind a cookie to a port, so any other server on the same loopback address
//! receives it too when the same browser visits it. Such a program already runs on this machine;
//! the end of the sign-in ends its access.

use std::collections::HashMap;
use std::time::Duration;

use data_encoding::{BASE64URL_NOPAD, HEXLOWER};
use parking_lot::Mutex;
use subtle::ConstantTimeEq as _;

use crate::base::clock;
use crate::store::sign_ins::{ConsoleSignIn, SecretDigest, SignIns};
use crate::wire::digest::Digest;

/// Lifetime of a link from `headend console`.
pub(crate) const LINK_LIFE: Duration = Duration::from_secs(15 * 60);
/// Most unused links; one more replaces the oldest.
const MAX_LINKS: usize = 16;
/// Idle time after which a session ends.
const IDLE: Duration = Duration::from_secs(12 * 3600);
/// Longest life of a session, however busy it is.
const LONGEST: Duration = Duration::from_secs(30 * 24 * 3600);
/// Least extension of a session that is written to the store.
const STRIDE: Duration = Duration::from_secs(10 * 60);
/// Most sessions; one more replaces the session that ends first.
pub(crate) const MAX_SESSIONS: usize = 64;
/// Wrong sign-ins of all browsers within [`WINDOW`] after which the next must wait.
const MAX_WRONG: usize = 5;
const WINDOW: Duration = Duration::from_secs(60);

/// All sessions of the console, its unused links, and the operator's token.
pub(crate) struct ConsoleSessions {
    /// The store that keeps sessions; `None` if the gateway keeps no state.
    store: Option<SignIns>,
    inner: Mutex<ConsoleSessionsState>,
}

/// The state behind the lock of [`ConsoleSessions`].
struct ConsoleSessionsState {
    /// Digest of the operator's token.
    token: SecretDigest,
    sessions: HashMap<SecretDigest, ConsoleSession>,
    /// Digests of the unused links, each with its end on the uptime clock.
    links: HashMap<SecretDigest, Duration>,
    /// Times of the recent wrong sign-ins, oldest first.
    wrong: Vec<Duration>,
}

/// A signed-in browser. All times are on the uptime clock.
struct ConsoleSession {
    /// End of the session; each use postpones it, up to `last`.
    until: Duration,
    /// Latest possible end of the session.
    last: Duration,
    /// The value of `until` that the store has.
    kept: Duration,
    /// Notice for the next page.
    notice: Option<ActionNotice>,
}

/// The result of an action, shown on the next page.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ActionNotice {
    pub(crate) good: bool,
    pub(crate) text: String,
}

/// The session of a request, which was open when the request arrived.
#[derive(Clone, Debug)]
pub(crate) struct SignedInVisitor {
    key: SecretDigest,
    pub(crate) csrf: String,
}

impl SignedInVisitor {
    /// Returns the name of the session in the audit log.
    pub(crate) fn name(&self) -> String {
        name_of(&self.key)
    }

    /// Returns true if `csrf` is the CSRF token of this session. Compares in constant time.
    pub(crate) fn sent(&self, csrf: &str) -> bool {
        self.csrf.as_bytes().ct_eq(csrf.as_bytes()).into()
    }
}

/// The reason why a sign-in failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum SignInError {
    /// The token or link is wrong.
    Wrong,
    /// The token or link is wrong, after too many others; with the time to wait.
    TooMany(Duration),
}

/// Loads the open sessions of a token from the store, which drops all others. Blocks.
fn revive(store: Option<&SignIns>, token: SecretDigest, now: Duration) -> HashMap<SecretDigest, ConsoleSession> {
    let wall = clock::since_1970().as_secs();
    let session = |one: ConsoleSignIn| {
        let at = |then: u64| now + Duration::from_secs(then.saturating_sub(wall));
        (one.id, ConsoleSession { until: at(one.until), last: at(one.last), kept: at(one.until), notice: None })
    };
    store.map(|store| store.revive(token)).unwrap_or_default().into_iter().map(session).collect()
}

impl ConsoleSessions {
    /// Loads the open sessions of this token from the store, which drops all others. `token` is the
    /// operator's. Blocks if there is a store.
    pub(crate) fn new(token: &str, store: Option<SignIns>, now: Duration) -> Self {
        let token = key(token);
        let sessions = revive(store.as_ref(), token, now);
        Self {
            store,
            inner: Mutex::new(ConsoleSessionsState { token, sessions, links: HashMap::new(), wrong: Vec::new() }),
        }
    }

    /// Loads the open sessions of the token from the store again, in place of all that are known.
    /// Blocks.
    pub(crate) fn read_again(&self, now: Duration) {
        let mut inner = self.inner.lock();
        inner.sessions = revive(self.store.as_ref(), inner.token, now);
    }

    /// Takes the operator's token after it was read again. A different token ends every session and
    /// link.
    pub(crate) fn renew(&self, token: &str) {
        let token = key(token);
        let mut inner = self.inner.lock();
        if inner.token == token {
            return;
        }
        inner.token = token;
        inner.sessions.clear();
        inner.links.clear();
        if let Some(store) = &self.store {
            store.end_others(token);
        }
        drop(inner);
        tracing::warn!("the console has another token: all browsers are signed out");
    }

    /// Begins a session with the operator's token and returns the cookie's value.
    ///
    /// The right token works after any number of wrong ones, so that no program on this machine can
    /// lock the operator out. The token has 256 bits: the limit on wrong attempts bounds log lines,
    /// not guesses.
    ///
    /// # Errors
    /// [`SignInError`], if the token is wrong.
    pub(crate) fn enter(&self, token: &str, now: Duration) -> Result<String, SignInError> {
        let mut inner = self.inner.lock();
        if key(token.trim())[..].ct_eq(&inner.token[..]).into() {
            return Ok(self.begin(&mut inner, now));
        }
        Err(inner.wrong(now))
    }

    /// Makes the secret of a link that signs in once.
    pub(crate) fn make_link(&self, now: Duration) -> String {
        let link = secret();
        let mut inner = self.inner.lock();
        inner.links.retain(|_, until| *until > now);
        if inner.links.len() >= MAX_LINKS
            && let Some(oldest) = inner.links.iter().min_by_key(|(_, until)| **until).map(|(key, _)| *key)
        {
            inner.links.remove(&oldest);
        }
        inner.links.insert(key(&link), now + LINK_LIFE);
        link
    }

    /// Begins a session with a link, uses the link up, and returns the cookie's value. A valid link
    /// works after any number of wrong sign-ins.
    ///
    /// # Errors
    /// [`SignInError`], if the link is unknown, used or too old.
    pub(crate) fn use_link(&self, link: &str, now: Duration) -> Result<String, SignInError> {
        let mut inner = self.inner.lock();
        match inner.links.remove(&key(link)) {
            Some(until) if until > now => Ok(self.begin(&mut inner, now)),
            _ => Err(inner.wrong(now)),
        }
    }

    /// Finds the open session of a cookie. An `active` request postpones the session's end; a
    /// session that is past its end is removed.
    pub(crate) fn visitor(&self, cookie: &str, active: bool, now: Duration) -> Option<SignedInVisitor> {
        let id = key(cookie);
        let mut inner = self.inner.lock();
        let token = inner.token;
        let session = inner.sessions.get_mut(&id)?;
        if session.until <= now {
            inner.sessions.remove(&id);
            self.ended(id);
            return None;
        }
        if active {
            session.until = (now + IDLE).min(session.last);
        }
        if session.until >= session.kept + STRIDE {
            self.keep(id, session, token, now);
        }
        Some(SignedInVisitor { key: id, csrf: csrf(cookie) })
    }

    /// Returns true if the session is still open. Does not count as activity.
    pub(crate) fn is_open(&self, visitor: &SignedInVisitor, now: Duration) -> bool {
        self.inner.lock().sessions.get(&visitor.key).is_some_and(|session| session.until > now)
    }

    /// Ends a session. Returns once its removal is on disk, or is remembered to be retried after a
    /// failed write.
    pub(crate) async fn leave(&self, visitor: &SignedInVisitor) {
        self.inner.lock().sessions.remove(&visitor.key);
        if let Some(store) = &self.store {
            store.catch_up();
            store.end(visitor.key).await;
        }
    }

    /// Begins a session, in place of the one that ends first if there are too many, and returns the
    /// cookie's value.
    fn begin(&self, inner: &mut ConsoleSessionsState, now: Duration) -> String {
        inner.sessions.retain(|_, session| session.until > now);
        if inner.sessions.len() >= MAX_SESSIONS
            && let Some(oldest) = inner.sessions.iter().min_by_key(|(_, session)| session.until).map(|(key, _)| *key)
        {
            inner.sessions.remove(&oldest);
            self.ended(oldest);
        }
        let cookie = secret();
        let mut session = ConsoleSession { until: now + IDLE, last: now + LONGEST, kept: now, notice: None };
        self.keep(key(&cookie), &mut session, inner.token, now);
        inner.sessions.insert(key(&cookie), session);
        cookie
    }

    /// Writes a session to the store in the background. The caller holds the lock, so that the
    /// store gets the states of one session in order.
    fn keep(&self, id: SecretDigest, session: &mut ConsoleSession, token: SecretDigest, now: Duration) {
        session.kept = session.until;
        let Some(store) = &self.store else { return };
        let wall = clock::since_1970();
        let at = |then: Duration| (wall + then.saturating_sub(now)).as_secs();
        store.catch_up();
        store.keep(ConsoleSignIn { id, until: at(session.until), last: at(session.last) }, token);
    }

    /// Removes a session from the store in the background, and retries earlier removals that
    /// failed.
    fn ended(&self, id: SecretDigest) {
        if let Some(store) = &self.store {
            store.catch_up();
            drop(store.end(id));
        }
    }

    /// Leaves a notice for the session's next page.
    pub(crate) fn tell(&self, visitor: &SignedInVisitor, notice: ActionNotice) {
        if let Some(session) = self.inner.lock().sessions.get_mut(&visitor.key) {
            session.notice = Some(notice);
        }
    }

    /// Takes the notice that waits for the session's next page.
    pub(crate) fn told(&self, visitor: &SignedInVisitor) -> Option<ActionNotice> {
        self.inner.lock().sessions.get_mut(&visitor.key)?.notice.take()
    }
}

impl ConsoleSessionsState {
    /// Counts a wrong sign-in, unless there were too many already, and returns the error.
    fn wrong(&mut self, now: Duration) -> SignInError {
        self.wrong.retain(|at| *at + WINDOW > now);
        match self.wrong.first() {
            Some(first) if self.wrong.len() >= MAX_WRONG => SignInError::TooMany((*first + WINDOW).saturating_sub(now)),
            _ => {
                self.wrong.push(now);
                SignInError::Wrong
            }
        }
    }
}

/// Returns 256 random bits as base64url.
fn secret() -> String {
    BASE64URL_NOPAD.encode(&clock::random::<32>())
}

/// Returns the name that the audit log uses for the session of a cookie.
pub(crate) fn session_name(cookie: &str) -> String {
    name_of(&key(cookie))
}

/// Returns the name of a session. Four bytes of its digest distinguish sessions, and reveal nothing
/// of the cookie.
fn name_of(id: &SecretDigest) -> String {
    format!("console:{}", HEXLOWER.encode(id.first_chunk::<4>().unwrap_or(&[0; 4])))
}

/// Derives the CSRF token of a session from its cookie. The token reveals nothing of the cookie,
/// and the store has neither of them.
fn csrf(cookie: &str) -> String {
    BASE64URL_NOPAD.encode(&key(&format!("form of {cookie}")))
}

/// Returns the SHA-256 digest of a secret, by which it is known.
fn key(text: &str) -> SecretDigest {
    *Digest::of(text.as_bytes()).bytes()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::db::Db;

    fn at(seconds: u64) -> Duration {
        Duration::from_secs(seconds)
    }

    #[test]
    fn a_link_is_good_once_and_for_a_quarter_of_an_hour() {
        let doors = ConsoleSessions::new("token", None, at(0));
        let link = doors.make_link(at(0));
        let cookie = doors.use_link(&link, at(1)).unwrap();
        assert!(doors.visitor(&cookie, true, at(2)).is_some());
        assert_eq!(doors.use_link(&link, at(2)), Err(SignInError::Wrong));
        let late = doors.make_link(at(0));
        assert_eq!(doors.use_link(&late, LINK_LIFE), Err(SignInError::Wrong));
        let links: Vec<String> = (0..=MAX_LINKS).map(|n| doors.make_link(at(100 + n as u64))).collect();
        assert!(doors.use_link(&links[0], at(200)).is_err(), "the oldest gave way");
        assert!(doors.use_link(&links[1], at(200)).is_ok());
    }

    #[tokio::test]
    async fn a_session_ends_when_idle_when_left_and_when_there_are_too_many() {
        let doors = ConsoleSessions::new("token", None, at(0));
        let idle = doors.enter("token", at(0)).unwrap();
        assert!(doors.visitor(&idle, true, IDLE - at(1)).is_some());
        assert!(doors.visitor(&idle, true, IDLE + IDLE).is_none());
        let left = doors.enter(" token\n", at(0)).unwrap();
        let visitor = doors.visitor(&left, true, at(1)).unwrap();
        assert!(visitor.sent(&visitor.csrf.clone()) && !visitor.sent("") && !visitor.sent("x"));
        doors.leave(&visitor).await;
        assert!(!doors.is_open(&visitor, at(1)) && doors.visitor(&left, true, at(1)).is_none());
        let first = doors.enter("token", at(1)).unwrap();
        for n in 0..MAX_SESSIONS as u64 {
            doors.enter("token", at(2 + n)).unwrap();
        }
        assert!(doors.visitor(&first, true, at(100)).is_none());
    }

    #[test]
    fn an_open_page_is_idle_and_no_session_lasts_longer_than_its_longest() {
        let doors = ConsoleSessions::new("token", None, at(0));
        let page = doors.enter("token", at(0)).unwrap();
        assert!(doors.visitor(&page, false, IDLE - at(1)).is_some());
        assert!(doors.visitor(&page, false, IDLE).is_none());
        let busy = doors.enter("token", at(0)).unwrap();
        let mut now = at(0);
        while doors.visitor(&busy, true, now).is_some() {
            now += IDLE / 2;
        }
        assert!(now >= LONGEST && now < LONGEST + IDLE, "{now:?}");
    }

    #[tokio::test]
    async fn sessions_survive_a_restart_until_sign_out_their_end_or_another_token() {
        const TOKEN: &str = "the-operators-token-of-this-test";
        let dir = tempfile::tempdir().unwrap();
        let open = |token: &str, now: Duration| {
            let db = Db::open(dir.path()).unwrap();
            (ConsoleSessions::new(token, Some(SignIns::new(db.clone(), MAX_SESSIONS)), now), db)
        };
        let (doors, db) = open(TOKEN, at(0));
        let [stays, left] = [(); 2].map(|()| doors.enter(TOKEN, at(0)).unwrap());
        let before = doors.visitor(&stays, true, at(1)).unwrap();
        doors.leave(&doors.visitor(&left, true, at(1)).unwrap()).await;
        let used: Vec<String> = (0..MAX_SESSIONS).map(|_| doors.enter(TOKEN, at(2)).unwrap()).collect();
        db.all_so_far().run_now().unwrap();
        drop((doors, db));
        let bytes =
            ["headend.db", "headend.db-wal"].map(|name| std::fs::read(dir.path().join(name)).unwrap_or_default());
        for secret in [&stays, &used[0], &before.csrf, TOKEN] {
            assert!(
                !bytes.concat().windows(secret.len()).any(|window| window == secret.as_bytes()),
                "kept in the clear"
            );
        }

        // The uptime clock starts at another time in each process; the ends of sessions stay.
        let (doors, db) = open(TOKEN, at(500));
        assert!(doors.visitor(&stays, true, at(500)).is_none(), "its place was needed");
        assert!(doors.visitor(&left, true, at(500)).is_none(), "signed out is signed out");
        let visitor = doors.visitor(&used[0], false, at(500)).unwrap();
        assert!(visitor.sent(&csrf(&used[0])), "open pages go on with their forms");
        assert!(doors.visitor(&used[1], false, at(500) + IDLE - at(60)).is_some());
        assert!(doors.visitor(&used[1], false, at(500) + IDLE).is_none());
        db.all_so_far().run_now().unwrap();
        drop((doors, db));

        let (doors, db) = open("another", at(0));
        assert!(used.iter().all(|cookie| doors.visitor(cookie, true, at(0)).is_none()));
        let live = doors.enter("another", at(0)).unwrap();
        doors.renew("another");
        assert!(doors.visitor(&live, true, at(1)).is_some(), "the same token changes nothing");
        let link = doors.make_link(at(1));
        doors.renew(TOKEN);
        assert!(doors.visitor(&live, true, at(1)).is_none() && doors.use_link(&link, at(1)).is_err());
        assert!(doors.enter("another", at(1)).is_err() && doors.enter(TOKEN, at(1)).is_ok());
        db.all_so_far().run_now().unwrap();
        drop((doors, db));
        let (doors, _db) = open("another", at(0));
        assert!(used.iter().chain([&live]).all(|cookie| doors.visitor(cookie, true, at(0)).is_none()));
    }

    #[tokio::test]
    async fn a_sign_out_that_the_disk_does_not_take_is_written_later() {
        let dir = tempfile::tempdir().unwrap();
        let db = Db::open(dir.path()).unwrap();
        let doors = ConsoleSessions::new("token", Some(SignIns::new(db.clone(), MAX_SESSIONS)), at(0));
        let (left, other) = (doors.enter("token", at(0)).unwrap(), doors.enter("token", at(0)).unwrap());
        db.all_so_far().run_now().unwrap();
        db.refuse_writes(true);
        doors.leave(&doors.visitor(&left, true, at(1)).unwrap()).await;
        assert!(doors.visitor(&left, true, at(1)).is_none(), "here at once");
        db.all_so_far().run_now().unwrap();
        db.refuse_writes(false);
        // The store checks by itself after a moment whether the disk is writable.
        let writable = || db.health().is_writable();
        (0..500).find(|_| {
            writable() || {
                std::thread::sleep(Duration::from_millis(10));
                false
            }
        });
        assert!(doors.visitor(&other, true, at(2) + STRIDE).is_some());
        db.all_so_far().run_now().unwrap();
        let again = ConsoleSessions::new("token", Some(SignIns::new(db, MAX_SESSIONS)), at(0));
        assert!(again.visitor(&other, true, at(0)).is_some() && again.visitor(&left, true, at(0)).is_none());
    }

    #[test]
    fn wrong_guesses_are_paced_and_lock_nobody_out() {
        let doors = ConsoleSessions::new("token", None, at(0));
        for _ in 0..MAX_WRONG {
            assert_eq!(doors.enter("guess", at(0)), Err(SignInError::Wrong));
        }
        assert_eq!(doors.enter("guess", at(1)), Err(SignInError::TooMany(at(59))));
        assert!(doors.enter("token", at(1)).is_ok(), "the right one works");
        assert_eq!(doors.use_link("guess", at(1)), Err(SignInError::TooMany(at(59))));
        assert!(doors.use_link(&doors.make_link(at(1)), at(1)).is_ok());
        assert_eq!(doors.enter("guess", at(61)), Err(SignInError::Wrong));
    }

    #[test]
    fn a_notice_is_told_once() {
        let doors = ConsoleSessions::new("token", None, at(0));
        let visitor = doors.visitor(&doors.enter("token", at(0)).unwrap(), true, at(0)).unwrap();
        doors.tell(&visitor, ActionNotice { good: true, text: "done".to_owned() });
        assert_eq!(doors.told(&visitor).unwrap().text, "done");
        assert_eq!(doors.told(&visitor), None);
    }
}
