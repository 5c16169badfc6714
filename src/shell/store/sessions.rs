//! Sessions of legacy HTTP clients that continue over restarts. The id of a session contains what
//! `initialize` agreed on ([`crate::engine::sealed::session_id`]), so a live session stores only
//! its log level and subscriptions. An ended session is noted in the store until its id would have
//! expired ([`crate::engine::sealed::ended`]).
//!
//! Two kinds of session are not revived after a restart: those opened while the store takes no
//! writes, which have an id that only this process knows; and those whose level or subscriptions
//! could not be stored or are too many, which are noted like ended ones. While the store takes no
//! writes, no session is revived. An end during that time is written as soon as the store takes
//! writes again; if the process ends before that, the id opens the session once more, for its own
//! caller.

use std::collections::HashMap;
use std::sync::Arc;

use parking_lot::Mutex;

use crate::base::clock;
use crate::engine::sealed::ended::{EndedSession, EndedSessions, SessionFloor};
use crate::engine::sealed::session_id::{SessionKey, SessionName, SessionOwner, SessionTerms};
use crate::mcp::log::LogLevel;
use crate::policy::Caller;
use crate::store::db::{Db, DbError, SessionRows};

/// Most ended sessions that wait to be written one by one.
const MAX_UNNOTED: usize = 4096;
/// Bytes of URIs that are stored for one session. A session that watches more is not revived.
const MAX_KEPT: usize = 64 * 1024;

/// The sessions of a store; clones share them.
#[derive(Clone, Debug)]
pub struct SessionStore(Arc<SessionStoreState>);

#[derive(Debug)]
struct SessionStoreState {
    db: Db,
    key: SessionKey,
    /// Ended sessions whose ids have not expired.
    ended: Mutex<EndedSessions>,
    unnoted: Mutex<UnwrittenEnds>,
}

/// Ended sessions that are not on disk yet.
#[derive(Debug, Default)]
struct UnwrittenEnds {
    ends: Vec<EndedSession>,
    /// Ends beyond [`MAX_UNNOTED`], as one floor for each caller.
    floors: HashMap<Caller, SessionFloor>,
}

impl UnwrittenEnds {
    /// Raises the caller's floor, so that no session which the caller opened up to then is revived.
    /// That ends live sessions too, but revives no ended one.
    fn add(&mut self, floor: &SessionFloor) {
        let of_caller = self.floors.entry(floor.caller.clone()).or_insert_with(|| floor.clone());
        of_caller.opened = of_caller.opened.max(floor.opened);
        of_caller.until = of_caller.until.max(floor.until);
    }

    fn is_empty(&self) -> bool {
        self.ends.is_empty() && self.floors.is_empty()
    }
}

/// A session that continues over a restart.
#[derive(Debug)]
pub struct KeptSession {
    store: SessionStore,
    /// The note that is written when the session ends.
    end: EndedSession,
    watched: Mutex<WatchedSlots>,
}

/// The numbers and total size of watched resources.
#[derive(Debug, Default)]
struct WatchedSlots {
    /// Last slot that was given to a resource.
    next: u64,
    /// Bytes of all watched URIs.
    bytes: usize,
}

impl SessionStore {
    /// Reads the sessions of a database; `None` if it has no key for ids. Blocks.
    ///
    /// # Errors
    /// When the database cannot be read.
    pub fn open(db: Db) -> Result<Option<Self>, DbError> {
        let Some(key) = db.secrets("session ids 1")?.and_then(|secrets| SessionKey::new(&secrets)) else {
            return Ok(None);
        };
        let ended = Mutex::new(db.ended_sessions(clock::since_1970().as_secs())?);
        Ok(Some(Self(Arc::new(SessionStoreState { db, key, ended, unnoted: Mutex::default() }))))
    }

    /// Reads the ends that another process has noted since the store was opened. Blocks.
    ///
    /// # Errors
    /// When the database cannot be read.
    pub fn read_ends(&self) -> Result<(), DbError> {
        let ended = self.0.db.ended_sessions(clock::since_1970().as_secs())?;
        self.0.ended.lock().join(ended);
        Ok(())
    }

    /// Creates the id of a new session; `None` if the session must end with the process, because
    /// the store takes no writes.
    pub fn begin(&self, owner: &SessionOwner<'_>, terms: &SessionTerms) -> Option<(String, KeptSession)> {
        if !self.is_writable() {
            return None;
        }
        let name = clock::random();
        let id = self.0.key.seal(owner, terms, name)?;
        Some((id, self.kept(owner, terms, name)))
    }

    /// Opens the session that an id of this owner names; `None` if the id is not valid or the store
    /// takes no writes. The caller must check [`KeptSession::has_ended`].
    pub fn find(&self, owner: &SessionOwner<'_>, id: &str) -> Option<(KeptSession, SessionTerms)> {
        let (name, terms) = self.read_id(owner, id)?;
        self.is_writable().then(|| (self.kept(owner, &terms, name), terms))
    }

    /// Returns the name and the terms of a session that an id of this owner names, without looking
    /// whether it has ended; `None` if the id is not valid.
    pub fn read_id(&self, owner: &SessionOwner<'_>, id: &str) -> Option<(SessionName, SessionTerms)> {
        self.0.key.open(owner, id, clock::since_1970())
    }

    fn kept(&self, owner: &SessionOwner<'_>, terms: &SessionTerms, name: SessionName) -> KeptSession {
        let SessionTerms { opened, until, .. } = *terms;
        let end = EndedSession { caller: owner.caller.clone(), name, opened, until };
        KeptSession { store: self.clone(), end, watched: Mutex::default() }
    }

    fn is_writable(&self) -> bool {
        self.0.db.health().is_writable()
    }

    /// Notes an ended session, in memory at once and on disk soon.
    fn note(&self, end: EndedSession) {
        let now = clock::since_1970().as_secs();
        if end.until <= now {
            // The stored time keeps the id expired, even if the clock is set back.
            self.0.db.see(now).then(|outcome| {
                if let Err(error) = outcome {
                    tracing::debug!(error = %error, "the time is not in the store yet");
                }
            });
            return;
        }
        let floor = self.0.ended.lock().note(&end);
        let inner = Arc::clone(&self.0);
        self.0.db.end_session(end.clone(), floor).then(move |outcome| {
            if let Err(error) = outcome {
                inner.unnoted(end, &error);
            }
        });
    }

    /// Waits until all ends so far are on disk; returns false if some cannot be written.
    pub async fn settled(&self) -> bool {
        self.0.db.all_so_far().run().await.is_ok() && self.0.unnoted.lock().is_empty()
    }

    /// Forgets expired sessions, and writes the ends that the disk did not take. Called every
    /// minute.
    pub fn sweep(&self) {
        let now = clock::since_1970().as_secs();
        self.0.ended.lock().sweep(now);
        if !self.is_writable() {
            return;
        }
        let unnoted = std::mem::take(&mut *self.0.unnoted.lock());
        for floor in unnoted.floors.into_values() {
            let inner = Arc::clone(&self.0);
            self.0.db.end_sessions_below(floor.clone()).then(move |outcome| {
                if outcome.is_err() {
                    inner.unnoted.lock().add(&floor);
                }
            });
        }
        unnoted.ends.into_iter().for_each(|end| self.note(end));
        self.0.db.sweep_sessions(now).then(|outcome| {
            if let Err(error) = outcome {
                tracing::debug!(error = %error, "expired sessions are still in the store");
            }
        });
    }
}

impl SessionStoreState {
    /// Keeps an end that the disk did not take for [`SessionStore::sweep`], and logs the first one.
    /// Beyond [`MAX_UNNOTED`], raises the caller's floor instead.
    fn unnoted(&self, end: EndedSession, error: &DbError) {
        let mut unnoted = self.unnoted.lock();
        if unnoted.is_empty() {
            tracing::warn!(error = %error, "the end of a session is not in the store yet; after a restart its caller could go on with it");
        }
        if unnoted.ends.len() < MAX_UNNOTED {
            unnoted.ends.push(end);
            return;
        }
        let EndedSession { caller, opened, until, .. } = end;
        let floor = SessionFloor { caller, opened, until };
        unnoted.add(&floor);
        drop(unnoted);
        self.ended.lock().raise(floor);
    }
}

impl KeptSession {
    /// Returns true if the session has ended or must not be revived.
    pub fn has_ended(&self) -> bool {
        self.store.0.ended.lock().has(&self.end.caller, self.end.opened, &self.end.name)
    }

    /// Ends the session for all processes and restarts.
    pub fn end(&self) {
        self.store.note(self.end.clone());
    }

    /// Reads the stored level and subscriptions of the session; `None` if they cannot be read as a
    /// whole.
    ///
    /// # Errors
    /// When the database cannot be read.
    pub async fn look(&self) -> Result<Option<SessionRows>, DbError> {
        let Some(kept) = self.store.0.db.kept_session(self.end.clone()).run().await? else { return Ok(None) };
        let mut watched = self.watched.lock();
        watched.next = kept.resources.iter().map(|(slot, _)| slot + 1).max().unwrap_or_default();
        watched.bytes = kept.resources.iter().map(|(_, uri)| uri.len()).sum();
        Ok(Some(kept))
    }

    /// Stores a resource that the session watches, and returns its slot. If it cannot be stored,
    /// the session is noted as ended, so that a restart does not revive it without the resource.
    pub async fn keep_resource(&self, uri: &str) -> u64 {
        let (slot, has_room) = {
            let mut watched = self.watched.lock();
            watched.next += 1;
            watched.bytes += uri.len();
            (watched.next, watched.bytes <= MAX_KEPT)
        };
        let keep = self.store.0.db.keep_resource(self.end.clone(), slot, uri.to_owned());
        if !has_room || keep.run().await.is_err() {
            self.end();
        }
        slot
    }

    /// Removes a resource that the session no longer watches. If that fails, the session is noted
    /// as ended.
    pub async fn drop_resource(&self, slot: u64, uri: &str) {
        {
            let mut watched = self.watched.lock();
            watched.bytes = watched.bytes.saturating_sub(uri.len());
        }
        if self.store.0.db.drop_resource(self.end.name, slot).run().await.is_err() {
            self.end();
        }
    }

    /// Stores the log level of the session. If that fails, the session is noted as ended.
    pub async fn keep_level(&self, level: LogLevel) {
        if self.store.0.db.keep_level(self.end.clone(), level.into_str()).run().await.is_err() {
            self.end();
        }
    }
}

#[cfg(test)]
mod tests;
