//! Sessions of legacy HTTP clients. The lock guards the table, for one operation at a time.
//!
//! The table holds the sessions that are live in this process. A session from before a restart is
//! not in it until its client's next request revives it ([`crate::store::sessions`]): with the
//! terms agreed by `initialize`, its log level and its subscriptions, but with a new tag, so that
//! no grant and no open question of the session comes back. Like a new session it needs room in the
//! table. So is a session of a replica of the cluster that is gone, once this one has claimed it
//! ([`crate::cluster::membership`]).

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use data_encoding::BASE64URL_NOPAD;
use foldhash::fast::RandomState;
use parking_lot::Mutex;
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;

use crate::base::budget::ByteBudget;
use crate::base::clock;
use crate::base::current_run::CurrentRun;
use crate::cluster::membership::NamedSession;
use crate::engine::client::asked::RequestHead;
use crate::engine::client::{ClientAction, ClientProtocol};
use crate::engine::sealed::run_id::RunId;
use crate::engine::sealed::session_id::{SessionOwner, SessionTerms};
use crate::gateway::client::connected::NamedClient;
use crate::gateway::client::{ClientContext, ClientTag};
use crate::mcp::log::LogLevel;
use crate::mcp::version::Revision;
use crate::policy::Caller;
use crate::serve::lines::posts::PostedMessage;
use crate::serve::open_request::SharedProtocol;
use crate::serve::replay::{self, SessionStreams};
use crate::store::approvals::Approvals;
use crate::store::db::SessionRows;
use crate::store::sessions::SessionStore;
use crate::wire::message::Message;

mod prior;

pub use self::prior::PriorMessage;
use self::prior::PriorQueue;

/// A session of a legacy client over HTTP.
#[derive(Debug)]
pub struct ClientSession {
    pub id: String,
    pub client: ClientContext,
    /// Time since 1970 when the session was opened; a restart does not change it.
    opened: Duration,
    /// The run of this process that holds the session; `None` without a cluster. If the process
    /// runs as another one, a replica may hold the session meanwhile.
    held_by: Mutex<Option<RunId>>,
    last_used: AtomicU64,
    /// Number of the GET stream that is open, or 0. A second stream neither replaces nor shares it,
    /// unless it resumes it.
    streaming: AtomicU64,
    /// Number of the last GET stream.
    places: AtomicU64,
    /// The streams that can be resumed.
    pub streams: SessionStreams,
    pub protocol: SharedProtocol,
    /// The queue of posted messages of a session over HTTP+SSE. Such a session cannot be used at
    /// the endpoint, nor the other way round.
    pub pipe: Option<mpsc::Sender<PostedMessage>>,
    /// True if the client may have missed list changes during a restart. Cleared when it is told.
    missed: AtomicBool,
    /// Fires when the session ends.
    pub ended: CancellationToken,
}

/// The reason why a request gets no session.
#[derive(Debug)]
pub enum MissingSession {
    /// The session has ended, never existed, or belongs to another caller.
    Unknown,
    /// There is no room for the session, its caller's access was withdrawn, or the store cannot be
    /// read. The request may succeed later.
    NoRoom,
}

impl ClientSession {
    /// Carries out a client's message that gets no answer: cancels a call, or passes on the answer
    /// to a question. Returns `false` for any other message, which is ignored.
    pub fn told(&self, step: ClientAction<CancellationToken>) -> bool {
        match (step, &self.client.client_requests) {
            (ClientAction::Cancel(ticket), _) => {
                ticket.cancel();
                true
            }
            (ClientAction::Answered(response), Some(client_requests)) => client_requests.answered(response),
            _ => false,
        }
    }

    /// Takes the right to be the session's only GET stream; `None` if another stream has it.
    pub fn stream(self: &Arc<Self>) -> Option<StreamRight> {
        let place = StreamRight(Arc::clone(self), self.places.fetch_add(1, Ordering::Relaxed) + 1);
        let free = self.streaming.compare_exchange(0, place.1, Ordering::AcqRel, Ordering::Acquire).is_ok();
        free.then_some(place)
    }

    /// Takes the right to be the session's only GET stream for a client that resumes it, even if
    /// another stream has it.
    pub fn resumed_stream(self: &Arc<Self>) -> StreamRight {
        let place = StreamRight(Arc::clone(self), self.places.fetch_add(1, Ordering::Relaxed) + 1);
        self.streaming.store(place.1, Ordering::Release);
        place
    }

    /// Returns whether the client has to be told that its lists may have changed, and clears that
    /// state.
    pub fn has_missed_changes(&self) -> bool {
        self.missed.swap(false, Ordering::Relaxed)
    }

    fn touch(&self) {
        self.last_used.store(clock::uptime().as_secs(), Ordering::Relaxed);
    }

    fn is_idle(&self) -> bool {
        self.streaming.load(Ordering::Acquire) == 0 && self.protocol.lock().is_idle()
    }
}

/// The right to be a session's only GET stream; given up on drop, unless another stream has taken
/// it.
#[derive(Debug)]
pub struct StreamRight(Arc<ClientSession>, u64);

impl Drop for StreamRight {
    fn drop(&mut self) {
        // Nothing to give up if another stream has taken the right.
        let mine = self.0.streaming.compare_exchange(self.1, 0, Ordering::AcqRel, Ordering::Acquire).is_ok();
        if mine {
            self.0.touch();
        }
    }
}

/// Limits of the session table.
#[derive(Clone, Copy, Debug)]
pub struct SessionLimits {
    pub sessions: usize,
    /// Most sessions of one caller other than the local one; `None` without such a limit.
    pub per_caller: Option<usize>,
    pub idle: Duration,
    pub max: Duration,
}

/// The table of all legacy HTTP sessions.
#[derive(Debug)]
pub struct ClientSessions {
    table: Mutex<HashMap<String, Arc<ClientSession>, RandomState>>,
    limits: Mutex<SessionLimits>,
    /// Uptime when this process began; no session from before a restart has been used since.
    began: Duration,
    /// The count of bytes recorded for clients that may resume.
    kept: Arc<replay::RecordedBytes>,
    /// Notified of each session's end, which ends the grants for it.
    approvals: Option<Arc<Approvals>>,
    /// The store in which sessions outlive the process, if there is one.
    store: Option<SessionStore>,
    /// The run of this process as a replica.
    run: Arc<CurrentRun>,
    /// Takes messages for the daemon before, while that one ends.
    prior: PriorQueue,
}

impl ClientSessions {
    pub fn new(
        limits: SessionLimits,
        budget: Arc<ByteBudget>,
        approvals: Option<Arc<Approvals>>,
        store: Option<SessionStore>,
        run: Arc<CurrentRun>,
    ) -> Self {
        let (table, limits, began) = (Mutex::default(), Mutex::new(limits), clock::uptime());
        let kept = replay::RecordedBytes::new(budget);
        Self { table, limits, began, kept, approvals, store, run, prior: PriorQueue::default() }
    }

    /// Handles a message of a session's client that gets no answer. One that is about nothing of
    /// this process goes to the daemon before, while that one ends.
    pub fn handle_message(&self, session: &ClientSession, message: Message, headers: &dyn RequestHead) {
        let kept = self.prior.copy_message(&session.id, &message);
        let step = session.protocol.lock().heard(Ok(message), Some(headers));
        if !session.told(step) {
            self.prior.queue_message(kept);
        }
    }

    /// Sets the queue to the daemon before; `None` once that one is gone.
    pub fn set_prior(&self, queue: Option<mpsc::Sender<PriorMessage>>) {
        self.prior.set(queue);
    }

    /// Handles a message that came to the process after this one.
    pub fn handle_late_message(&self, late: PriorMessage) {
        let session = self.table.lock().get(late.session()).cloned();
        if let Some((session, message)) = session.zip(late.read()) {
            let step = session.protocol.lock().heard(Ok(message), None);
            session.told(step);
        }
    }

    /// Returns whether this process holds the session of an id, so that no other replica needs to
    /// be asked.
    pub fn is_held(&self, id: &str) -> bool {
        self.table.lock().get(id).is_some_and(|session| *session.held_by.lock() == self.run.get())
    }

    /// Marks the session of an id, if it is in the table, as held by the current run.
    pub fn hold(&self, id: &str) {
        if let Some(session) = self.table.lock().get(id) {
            *session.held_by.lock() = self.run.get();
        }
    }

    /// Takes an idle session of this run out of the table without ending it for other replicas.
    /// Returns `false` if it is in use or not there.
    pub fn release_idle(&self, id: &str) -> bool {
        let mut table = self.table.lock();
        if !table.get(id).is_some_and(|session| session.is_idle() && *session.held_by.lock() == self.run.get()) {
            return false;
        }
        let session = table.remove(id);
        session.iter().for_each(|session| *session.held_by.lock() = None);
        self.end(session.as_deref());
        true
    }

    /// Reads the session that the id of a client names, and the revision that it speaks; `None` if
    /// the id names no replica.
    pub fn read_id(&self, id: &str, client: &ClientContext) -> Option<(NamedSession, Revision)> {
        let (name, terms) = self.store.as_ref()?.read_id(&owner(client), id)?;
        Some((NamedSession { name, run: terms.run?, until: terms.until }, terms.revision))
    }

    pub fn len(&self) -> usize {
        self.table.lock().len()
    }

    /// Lists the clients of sessions at the endpoint. Clients over HTTP+SSE are listed with those
    /// on lines.
    pub fn clients(&self) -> Vec<NamedClient> {
        let table = self.table.lock();
        let sessions = table.values().filter(|session| session.pipe.is_none());
        sessions.map(|session| (session.client.caller.clone(), session.client.name.clone())).collect()
    }

    /// Changes the limits. Sessions beyond a smaller number stay.
    pub fn set_limits(&self, limits: SessionLimits) {
        *self.limits.lock() = limits;
    }

    /// Opens a session; `None` if there is no room. If the table is full, the session that has been
    /// idle longest ends first. A session with a pipe, and one that cannot be stored, has an id of
    /// 192 random bits.
    pub fn open(&self, client: ClientContext, pipe: Option<mpsc::Sender<PostedMessage>>) -> Option<Arc<ClientSession>> {
        let opened = clock::since_1970();
        let store = self.store.as_ref().filter(|_| pipe.is_none());
        let begun = store.and_then(|store| {
            let life = self.limits.lock().max;
            let terms = SessionTerms {
                opened: opened.as_secs(),
                until: opened.saturating_add(life).as_secs(),
                revision: client.revision,
                is_here: client.is_here,
                capabilities: client.kept_capabilities(),
                run: self.run.get(),
            };
            store.begin(&owner(&client), &terms)
        });
        let (id, kept) = match begun {
            Some((id, kept)) => (id, Some(Arc::new(kept))),
            None => (BASE64URL_NOPAD.encode(&clock::random::<24>()), None),
        };
        // Without terms in it the id does not name its replica by itself.
        let id = self.run.get().filter(|_| kept.is_none()).map_or_else(|| id.clone(), |run| run.mark(&id));
        let mut table = self.table.lock();
        self.enter(&mut table, id, ClientContext { kept, ..client }, opened, pipe, false).ok()
    }

    /// Creates a session and adds it to the table. If the table is full, ends the session that has
    /// been idle longest.
    ///
    /// # Errors
    /// [`MissingSession::NoRoom`] if the caller has too many sessions or its access was withdrawn,
    /// or if no session is idle in a full table.
    fn enter(
        &self,
        table: &mut HashMap<String, Arc<ClientSession>, RandomState>,
        id: String,
        client: ClientContext,
        opened: Duration,
        pipe: Option<mpsc::Sender<PostedMessage>>,
        is_revived: bool,
    ) -> Result<Arc<ClientSession>, MissingSession> {
        // Checked under the lock, so that [`Self::end_withdrawn`] runs either before or after this.
        if client.access.is_withdrawn() {
            return Err(MissingSession::NoRoom);
        }
        let limits = *self.limits.lock();
        let mine = table.values().filter(|s| s.client.caller == client.caller).count();
        if limits.per_caller.is_some_and(|limit| mine >= limit) {
            return Err(MissingSession::NoRoom);
        }
        if table.len() >= limits.sessions {
            let idle = table.values().filter(|s| s.is_idle());
            let oldest = idle.min_by_key(|s| s.last_used.load(Ordering::Relaxed)).map(|s| s.id.clone());
            self.end(table.remove(&oldest.ok_or(MissingSession::NoRoom)?).as_deref());
        }
        let streams = SessionStreams::new(client.revision, Arc::clone(&self.kept));
        let protocol = ClientProtocol::agreed(client.revision);
        let session = Arc::new(ClientSession {
            id,
            client,
            opened,
            held_by: Mutex::new(self.run.get()),
            last_used: AtomicU64::new(clock::uptime().as_secs()),
            streaming: AtomicU64::new(0),
            places: AtomicU64::new(0),
            streams,
            protocol: Arc::new(Mutex::new(protocol)),
            pipe,
            missed: AtomicBool::new(is_revived),
            ended: CancellationToken::new(),
        });
        table.insert(session.id.clone(), Arc::clone(&session));
        Ok(session)
    }

    /// Revives a session from before a restart for the client whose request names it. Returns
    /// whether this request was the first to do so.
    ///
    /// # Errors
    /// [`MissingSession`], also if the session would have ended without the restart.
    pub async fn revive(&self, id: &str, client: ClientContext) -> Result<(Arc<ClientSession>, bool), MissingSession> {
        let store = self.store.as_ref().ok_or(MissingSession::Unknown)?;
        let (session, terms) = store.find(&owner(&client), id).ok_or(MissingSession::Unknown)?;
        let opened = Duration::from_secs(terms.opened);
        let limits = *self.limits.lock();
        // The session would have ended without the restart too. In a cluster its use is not known.
        let was_idle = terms.run.is_none() && clock::uptime().saturating_sub(self.began) > limits.idle;
        if clock::since_1970().saturating_sub(opened) > limits.max || was_idle {
            session.end();
        }
        if session.has_ended() {
            // Stored before the client learns it, so that the session cannot be revived later,
            // however this process ends.
            store.settled().await;
            return Err(MissingSession::Unknown);
        }
        let kept = session.look().await.map_err(|error| {
            tracing::warn!(error = %error, "a session of before the restart cannot be read");
            MissingSession::NoRoom
        })?;
        let SessionRows { level, resources } = kept.ok_or(MissingSession::Unknown)?;
        let client = ClientContext {
            revision: terms.revision,
            is_here: client.is_here && terms.is_here,
            tag: Some(ClientTag::new()),
            ..client
        };
        let client = client.revived(terms.capabilities.as_ref());
        if let (Some(log), Some(level)) = (&client.log, level.and_then(|level| level.parse::<LogLevel>().ok())) {
            log.set(level);
        }
        if let Some(watched) = &client.watched {
            watched.restore(resources);
        }
        let mut table = self.table.lock();
        if let Some(session) = table.get(id) {
            // Another request was first.
            return Ok((Arc::clone(session), false));
        }
        // Another request may have revived and ended the session in the meantime.
        if session.has_ended() {
            return Err(MissingSession::Unknown);
        }
        let client = ClientContext { kept: Some(Arc::new(session)), ..client };
        let session = self.enter(&mut table, id.to_owned(), client, opened, None, true)?;
        tracing::debug!(caller = %session.client.caller, "a session goes on after a restart");
        Ok((session, true))
    }

    /// Finds the session of this id, if it belongs to this caller, and marks it as used.
    pub fn find(&self, id: &str, caller: &Caller) -> Option<Arc<ClientSession>> {
        let session = self.table.lock().get(id).filter(|s| s.client.caller == *caller).cloned()?;
        session.touch();
        Some(session)
    }

    /// Ends a session of this caller, and waits until no restart can undo that. Returns `false` if
    /// the end cannot be stored.
    pub async fn close_for_good(&self, id: &str, caller: &Caller) -> bool {
        let is_kept = self.table.lock().get(id).is_some_and(|session| session.client.kept.is_some());
        if !self.close(id, caller) || !is_kept {
            return true;
        }
        match &self.store {
            Some(store) => store.settled().await,
            None => true,
        }
    }

    /// Reads the ends of sessions that the daemon before has noted. Logs a failure. Blocks.
    pub fn read_ends(&self) {
        if let Some(Err(error)) = self.store.as_ref().map(SessionStore::read_ends) {
            tracing::warn!(error = %error, "the last ends of sessions in the daemon before are not known");
        }
    }

    /// Waits until the ends of all sessions so far are stored.
    pub async fn settled(&self) {
        if let Some(store) = &self.store {
            store.sweep();
            // A store that takes no writes has logged that.
            store.settled().await;
        }
    }

    /// Ends a session of this caller. Returns `false` if there is none.
    pub fn close(&self, id: &str, caller: &Caller) -> bool {
        let mut table = self.table.lock();
        if table.get(id).is_none_or(|s| s.client.caller != *caller) {
            return false;
        }
        self.end(table.remove(id).as_deref());
        true
    }

    /// Ends sessions that have been idle or open for too long.
    pub fn sweep(&self) {
        let (now, since_1970) = (clock::uptime(), clock::since_1970());
        let limits = *self.limits.lock();
        let mut table = self.table.lock();
        let over = table.extract_if(|_, session| {
            session.streams.sweep(now);
            let last = Duration::from_secs(session.last_used.load(Ordering::Relaxed));
            let idle = session.is_idle() && now.saturating_sub(last) > limits.idle;
            let old = since_1970.saturating_sub(session.opened) > limits.max;
            idle || old
        });
        over.for_each(|(_, session)| self.end(Some(&session)));
        drop(table);
        self.store.iter().for_each(SessionStore::sweep);
    }

    /// Ends the sessions of callers whose access was withdrawn.
    pub fn end_withdrawn(&self) {
        let mut table = self.table.lock();
        let over = table.extract_if(|_, session| session.client.access.is_withdrawn());
        over.for_each(|(_, session)| self.end(Some(&session)));
    }

    /// Ends a session that has left the table: its streams, its stored state, and the grants for
    /// it.
    fn end(&self, session: Option<&ClientSession>) {
        let Some(session) = session else { return };
        session.ended.cancel();
        // Another replica may hold the session of an earlier run.
        if let Some(kept) = session.client.kept.as_ref().filter(|_| *session.held_by.lock() == self.run.get()) {
            kept.end();
        }
        if let (Some(approvals), Some(tag)) = (&self.approvals, &session.client.tag) {
            approvals.session_ended(tag.number());
        }
    }
}

/// Returns the owner to which a session id is bound.
fn owner(client: &ClientContext) -> SessionOwner<'_> {
    let credential = client.access.credential();
    SessionOwner {
        caller: &client.caller,
        kind: credential.kind(),
        token: credential.token(),
        profile: client.profile.as_deref(),
    }
}

#[cfg(test)]
mod tests;
