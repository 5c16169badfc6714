//! Sessions of legacy HTTP clients over restarts. The id of a session says what `initialize` agreed on
//! ([`crate::engine::session_id`]), so a session that lives needs nothing on disk but its log level and subscriptions; one that
//! has ended is noted there until its id would have expired ([`crate::engine::ended`]).
//!
//! Two kinds of session are not revived: one that is opened while the store takes no writes has an id that only this process
//! knows, and one whose level or subscriptions could not be kept, or are too many, is noted like an ended one. While the store
//! takes no writes no session is revived. An end that finds it so is written as soon as it takes writes again; if the process ends
//! before that, the id opens once more, for its own caller.

use std::collections::HashMap;
use std::sync::Arc;

use parking_lot::Mutex;

use crate::base::clock;
use crate::engine::ended::{Ended, EndedSession, Floor};
use crate::engine::session_id::{SessionKey, SessionName, SessionOwner, SessionTerms};
use crate::mcp::log::LogLevel;
use crate::policy::Caller;
use crate::store::db::{Db, DbError, SessionRows};

/// Ends that wait for a store that takes no writes.
const MAX_UNNOTED: usize = 4096;
/// Bytes of the URIs that are kept for one session. A session that watches more is not revived.
const MAX_KEPT: usize = 64 * 1024;

/// The sessions of a store. Clones are the same ones.
#[derive(Clone, Debug)]
pub struct SessionStore(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    db: Db,
    key: SessionKey,
    ended: Mutex<Ended>,
    unnoted: Mutex<Unnoted>,
}

/// Ends that are not on disk yet.
#[derive(Debug, Default)]
struct Unnoted {
    ends: Vec<EndedSession>,
    /// For those that found no room, the latest of each caller.
    floors: HashMap<Caller, Floor>,
}

impl Unnoted {
    /// No session of the caller that was opened then or before goes on after a restart: that frees none that has ended.
    fn add(&mut self, floor: &Floor) {
        let of_caller = self.floors.entry(floor.caller.clone()).or_insert_with(|| floor.clone());
        of_caller.opened = of_caller.opened.max(floor.opened);
        of_caller.until = of_caller.until.max(floor.until);
    }

    fn is_empty(&self) -> bool {
        self.ends.is_empty() && self.floors.is_empty()
    }
}

/// A session that a restart does not end.
#[derive(Debug)]
pub struct KeptSession {
    store: SessionStore,
    /// How its end will be noted.
    end: EndedSession,
    watched: Mutex<Watched>,
}

/// The places of watched resources.
#[derive(Debug, Default)]
struct Watched {
    next: u64,
    bytes: usize,
}

impl SessionStore {
    /// The sessions of a database; `None` where it has no key. Blocks.
    ///
    /// # Errors
    /// When it cannot be read.
    pub fn open(db: Db) -> Result<Option<Self>, DbError> {
        let Some(key) = db.secrets("session ids 1")?.and_then(|secrets| SessionKey::new(&secrets)) else {
            return Ok(None);
        };
        let ended = Mutex::new(db.ended_sessions(clock::since_1970().as_secs())?);
        Ok(Some(Self(Arc::new(Inner { db, key, ended, unnoted: Mutex::default() }))))
    }

    /// The id of a new session, and how it is kept; `None` for one that ends with the process.
    pub fn begin(&self, owner: &SessionOwner<'_>, terms: &SessionTerms) -> Option<(String, KeptSession)> {
        if !self.is_writable() {
            return None;
        }
        let name = clock::random();
        let id = self.0.key.seal(owner, terms, name)?;
        Some((id, self.kept(owner, terms, name)))
    }

    /// The session that an id of this owner names. It goes on only where it has not ended.
    pub fn find(&self, owner: &SessionOwner<'_>, id: &str) -> Option<(KeptSession, SessionTerms)> {
        let (name, terms) = self.0.key.open(owner, id, clock::since_1970())?;
        self.is_writable().then(|| (self.kept(owner, &terms, name), terms))
    }

    fn kept(&self, owner: &SessionOwner<'_>, terms: &SessionTerms, name: SessionName) -> KeptSession {
        let SessionTerms { opened, until, .. } = *terms;
        let end = EndedSession { caller: owner.caller.clone(), name, opened, until };
        KeptSession { store: self.clone(), end, watched: Mutex::default() }
    }

    fn is_writable(&self) -> bool {
        self.0.db.health().is_writable()
    }

    /// Notes an end, now in memory and soon on disk.
    fn note(&self, end: EndedSession) {
        let now = clock::since_1970().as_secs();
        if end.until <= now {
            // Its id stays expired, wherever the clock is set.
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

    /// Waits until all ends so far are on disk; `false` where some cannot be written.
    pub async fn settled(&self) -> bool {
        self.0.db.all_so_far().run().await.is_ok() && self.0.unnoted.lock().is_empty()
    }

    /// The work of each minute: forgets what has expired, and writes what the disk did not take.
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

impl Inner {
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
        let floor = Floor { caller, opened, until };
        unnoted.add(&floor);
        drop(unnoted);
        self.ended.lock().raise(floor);
    }
}

impl KeptSession {
    /// Whether it has ended, or must not be revived.
    pub fn has_ended(&self) -> bool {
        self.store.0.ended.lock().has(&self.end.caller, self.end.opened, &self.end.name)
    }

    /// The session has ended.
    pub fn end(&self) {
        self.store.note(self.end.clone());
    }

    /// The kept part of it; `None` where that cannot be read as a whole.
    ///
    /// # Errors
    /// When the database cannot be read.
    pub async fn look(&self) -> Result<Option<SessionRows>, DbError> {
        let Some(kept) = self.store.0.db.kept_session(self.end.name).run().await? else { return Ok(None) };
        let mut watched = self.watched.lock();
        watched.next = kept.resources.iter().map(|(slot, _)| slot + 1).max().unwrap_or_default();
        watched.bytes = kept.resources.iter().map(|(_, uri)| uri.len()).sum();
        Ok(Some(kept))
    }

    /// Keeps a resource that the session watches. Returns its place.
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

    /// Drops a resource that it watches no longer.
    pub async fn drop_resource(&self, slot: u64, uri: &str) {
        {
            let mut watched = self.watched.lock();
            watched.bytes = watched.bytes.saturating_sub(uri.len());
        }
        if self.store.0.db.drop_resource(self.end.name, slot).run().await.is_err() {
            self.end();
        }
    }

    /// Keeps its log level.
    pub async fn keep_level(&self, level: LogLevel) {
        if self.store.0.db.keep_level(self.end.clone(), level.into_str()).run().await.is_err() {
            self.end();
        }
    }
}

#[cfg(test)]
mod tests;
