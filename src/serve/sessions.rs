//! Sessions of legacy HTTP clients. The lock guards the table, one operation at a time.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use bytes::Bytes;
use data_encoding::BASE64URL_NOPAD;
use parking_lot::Mutex;
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;

use crate::base::budget::Budget;
use crate::base::clock;
use crate::engine::client::{Client, Step};
use crate::gateway::client::ClientContext;
use crate::serve::open_request::Protocol;
use crate::serve::replay::{Kept, Streams};
use crate::store::approvals::Approvals;

/// One legacy client over HTTP.
#[derive(Debug)]
pub(crate) struct Session {
    pub(crate) id: String,
    pub(crate) client: ClientContext,
    opened: Duration,
    last_used: AtomicU64,
    /// One GET stream at a time, by its number, 0 for none: a second one neither replaces nor shares it, unless it resumes it.
    streaming: AtomicU64,
    places: AtomicU64,
    /// What can be resumed.
    pub(crate) streams: Streams,
    pub(crate) protocol: Protocol,
    /// The way in of a session over HTTP+SSE. Such a session is none of the endpoint's, nor the other way round.
    pub(crate) pipe: Option<mpsc::Sender<Bytes>>,
    /// Fires when the session ends.
    pub(crate) ended: CancellationToken,
}

impl Session {
    /// Does what follows from a message that has no answer.
    pub(crate) fn told(&self, step: Step<CancellationToken>) {
        match (step, &self.client.client_requests) {
            (Step::Cancel(ticket), _) => ticket.cancel(),
            (Step::Answered(response), Some(client_requests)) => client_requests.answered(response),
            _ => {}
        }
    }

    /// Takes the session's one stream; given back when the value is dropped.
    pub(crate) fn stream(self: &Arc<Self>) -> Option<StreamPlace> {
        let place = StreamPlace(Arc::clone(self), self.places.fetch_add(1, Ordering::Relaxed) + 1);
        let free = self.streaming.compare_exchange(0, place.1, Ordering::AcqRel, Ordering::Acquire).is_ok();
        free.then_some(place)
    }

    /// The same for a client that resumes it: whoever has it loses it.
    pub(crate) fn resumed_stream(self: &Arc<Self>) -> StreamPlace {
        let place = StreamPlace(Arc::clone(self), self.places.fetch_add(1, Ordering::Relaxed) + 1);
        self.streaming.store(place.1, Ordering::Release);
        place
    }

    fn touch(&self) {
        self.last_used.store(clock::uptime().as_secs(), Ordering::Relaxed);
    }

    fn is_idle(&self) -> bool {
        self.streaming.load(Ordering::Acquire) == 0 && self.protocol.lock().is_idle()
    }
}

/// The right to be a session's stream.
#[derive(Debug)]
pub(crate) struct StreamPlace(Arc<Session>, u64);

impl Drop for StreamPlace {
    fn drop(&mut self) {
        // Nothing to give back where another stream has taken it.
        let mine = self.0.streaming.compare_exchange(self.1, 0, Ordering::AcqRel, Ordering::Acquire).is_ok();
        if mine {
            self.0.touch();
        }
    }
}

/// Bounds of the session table.
#[derive(Clone, Copy, Debug)]
pub(crate) struct SessionLimits {
    pub(crate) sessions: usize,
    /// For callers other than the local one.
    pub(crate) per_caller: Option<usize>,
    pub(crate) idle: Duration,
    pub(crate) max: Duration,
}

/// All legacy HTTP sessions.
#[derive(Debug)]
pub(crate) struct Sessions {
    table: Mutex<HashMap<String, Arc<Session>>>,
    limits: Mutex<SessionLimits>,
    /// Bytes that are kept for clients that resume.
    kept: Arc<Kept>,
    /// Told of each end: what was granted for the session is over.
    approvals: Option<Arc<Approvals>>,
}

impl Sessions {
    pub(crate) fn new(limits: SessionLimits, budget: Arc<Budget>, approvals: Option<Arc<Approvals>>) -> Self {
        Self { table: Mutex::default(), limits: Mutex::new(limits), kept: Kept::new(budget), approvals }
    }

    pub(crate) fn len(&self) -> usize {
        self.lock().len()
    }

    /// Puts other bounds in force. Sessions beyond a smaller number stay.
    pub(crate) fn set_limits(&self, limits: SessionLimits) {
        *self.limits.lock() = limits;
    }

    /// Opens a session under an id of 192 random bits; `None` when there is no room. A full table first ends the session
    /// that has been idle longest.
    pub(crate) fn open(&self, client: ClientContext, pipe: Option<mpsc::Sender<Bytes>>) -> Option<Arc<Session>> {
        let mut table = self.lock();
        // Under the lock: `end_withdrawn` comes before or after this.
        if client.access.is_withdrawn() {
            return None;
        }
        let limits = *self.limits.lock();
        let mine = table.values().filter(|s| s.client.caller == client.caller).count();
        if limits.per_caller.is_some_and(|limit| mine >= limit) {
            return None;
        }
        if table.len() >= limits.sessions {
            let idle = table.values().filter(|s| s.is_idle());
            let oldest = idle.min_by_key(|s| s.last_used.load(Ordering::Relaxed)).map(|s| s.id.clone())?;
            self.end(table.remove(&oldest).as_deref());
        }
        let now = clock::uptime();
        let streams = Streams::new(client.revision, Arc::clone(&self.kept));
        let protocol = Client::agreed(client.revision);
        let session = Arc::new(Session {
            id: BASE64URL_NOPAD.encode(&clock::random::<24>()),
            client,
            opened: now,
            last_used: AtomicU64::new(now.as_secs()),
            streaming: AtomicU64::new(0),
            places: AtomicU64::new(0),
            streams,
            protocol: Arc::new(Mutex::new(protocol)),
            pipe,
            ended: CancellationToken::new(),
        });
        table.insert(session.id.clone(), Arc::clone(&session));
        Some(session)
    }

    /// The session of that id, if it is this caller's: another's is as unknown as none.
    pub(crate) fn find(&self, id: &str, caller: &str) -> Option<Arc<Session>> {
        let session = self.lock().get(id).filter(|s| *s.client.caller == *caller).cloned()?;
        session.touch();
        Some(session)
    }

    /// Ends a session of this caller.
    pub(crate) fn close(&self, id: &str, caller: &str) -> bool {
        let mut table = self.lock();
        if table.get(id).is_none_or(|s| *s.client.caller != *caller) {
            return false;
        }
        self.end(table.remove(id).as_deref());
        true
    }

    /// Ends what has been idle or open for too long.
    pub(crate) fn sweep(&self) {
        let now = clock::uptime();
        let limits = *self.limits.lock();
        self.lock().retain(|_, session| {
            session.streams.sweep(now);
            let last = Duration::from_secs(session.last_used.load(Ordering::Relaxed));
            let idle = session.is_idle() && now.saturating_sub(last) > limits.idle;
            let old = now.saturating_sub(session.opened) > limits.max;
            if idle || old {
                self.end(Some(session));
            }
            !(idle || old)
        });
    }

    /// Ends the sessions of callers whose access was withdrawn.
    pub(crate) fn end_withdrawn(&self) {
        self.lock().retain(|_, session| {
            let over = session.client.access.is_withdrawn();
            if over {
                self.end(Some(session));
            }
            !over
        });
    }

    fn lock(&self) -> parking_lot::MutexGuard<'_, HashMap<String, Arc<Session>>> {
        self.table.lock()
    }

    fn end(&self, session: Option<&Session>) {
        let Some(session) = session else { return };
        session.ended.cancel();
        if let (Some(approvals), Some(tag)) = (&self.approvals, &session.client.tag) {
            approvals.session_ended(tag.number());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::access::Access;
    use crate::mcp::version::{Era, Revision};

    fn client(caller: &str) -> ClientContext {
        let access = Access::new(&CancellationToken::new());
        ClientContext::new(Arc::from(caller), access, None, Revision::preferred(Era::Legacy))
    }

    fn sessions(limit: usize) -> Sessions {
        let hour = Duration::from_secs(3600);
        let limits = SessionLimits { sessions: limit, per_caller: Some(2), idle: hour, max: hour };
        Sessions::new(limits, Budget::new(1 << 20), None)
    }

    #[test]
    fn a_session_belongs_to_its_caller() {
        let sessions = sessions(8);
        let id = sessions.open(client("a"), None).unwrap().id.clone();
        assert!(sessions.find(&id, "a").is_some());
        assert!(sessions.find(&id, "b").is_none());
        assert!(!sessions.close(&id, "b"));
        assert!(sessions.close(&id, "a"));
        assert!(sessions.find(&id, "a").is_none());
    }

    #[test]
    fn a_full_table_ends_an_idle_session_and_never_a_busy_one() {
        let sessions = sessions(1);
        let first = sessions.open(client("a"), None).unwrap();
        let stream = first.stream().unwrap();
        assert!(first.stream().is_none(), "one stream at a time");
        assert!(sessions.open(client("b"), None).is_none());
        drop(stream);
        assert!(sessions.open(client("b"), None).is_some());
        assert!(first.ended.is_cancelled());
    }

    #[test]
    fn withdrawn_access_ends_its_sessions_and_opens_none() {
        let sessions = sessions(8);
        let (ours, theirs) = (client("a"), client("b"));
        let (first, other) = (sessions.open(ours.clone(), None).unwrap(), sessions.open(theirs, None).unwrap());
        ours.access.withdraw();
        assert!(sessions.open(ours, None).is_none());
        sessions.end_withdrawn();
        assert!(first.ended.is_cancelled() && sessions.find(&first.id, "a").is_none());
        assert!(!other.ended.is_cancelled() && sessions.find(&other.id, "b").is_some());
    }

    #[test]
    fn a_caller_has_a_share_of_the_table() {
        let sessions = sessions(8);
        assert!(sessions.open(client("a"), None).is_some());
        assert!(sessions.open(client("a"), None).is_some());
        assert!(sessions.open(client("a"), None).is_none());
        assert!(sessions.open(client("b"), None).is_some());
    }
}
