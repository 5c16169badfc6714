//! Event streams that a legacy client can resume: the recordings ([`crate::engine::replay`]) of a session, under its ids.
//!
//! No message is on two streams. Ids are looked up in their own session only; one that is unknown, another session's or too old
//! is no id at all. The lock of the table is taken before the lock of a recording.
//!
//! Streams of legacy HTTP clients have ids from 2025-03-26 on, and a priming event from 2025-11-25 on. Once such a call
//! is answered by a stream, a task of its own runs it and writes the recording. An id that does not resolve opens the
//! session's own stream, or gets 409 if that is open. A recording holds 256 events or 1 MiB and is kept for 5 minutes
//! after its end; a session holds 4 MiB, all sessions 64 MiB or a quarter of `max-buffered`.
//!
//! Each hop resumes for itself: event ids of upstreams and clients never mix. Modern streams are not resumed on either
//! side.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use bytes::Bytes;
use data_encoding::HEXLOWER;
use parking_lot::Mutex;
use tokio::sync::Notify;
use tokio_util::sync::CancellationToken;

use crate::base::budget::Budget;
use crate::base::clock;
use crate::engine::replay::{self, Found};
use crate::listener::pieces::{Pieces, Queued};
use crate::mcp::version::{EventIds, Revision};
use crate::wire::sse;

/// Of one session: recordings, and bytes of their messages.
const SESSION_STREAMS: usize = 64;
const SESSION_BYTES: usize = 4 * 1024 * 1024;
/// Of all sessions together.
const ALL_BYTES: usize = 64 * 1024 * 1024;
/// When a client should come back.
const RETRY: Duration = Duration::from_secs(1);

/// Bytes of messages that are kept for all sessions.
#[derive(Debug)]
pub struct Kept {
    bytes: AtomicUsize,
    budget: Arc<Budget>,
}

impl Kept {
    /// They are part of that budget, of which they take a quarter at most.
    pub fn new(budget: Arc<Budget>) -> Arc<Self> {
        Arc::new(Self { bytes: AtomicUsize::new(0), budget })
    }
}

/// Bytes of messages that are kept: for one session, and for all.
#[derive(Debug)]
struct Account {
    session: AtomicUsize,
    all: Arc<Kept>,
}

impl Account {
    fn add(&self, bytes: usize) {
        self.session.fetch_add(bytes, Ordering::Relaxed);
        self.all.bytes.fetch_add(bytes, Ordering::Relaxed);
    }

    fn remove(&self, bytes: usize) {
        self.session.fetch_sub(bytes, Ordering::Relaxed);
        self.all.bytes.fetch_sub(bytes, Ordering::Relaxed);
    }

    /// Bytes over the limits.
    fn excess(&self) -> usize {
        let all = ALL_BYTES.min(self.all.budget.limit() / 4);
        let of_session = self.session.load(Ordering::Relaxed).saturating_sub(SESSION_BYTES);
        self.all.bytes.load(Ordering::Relaxed).saturating_sub(all).max(of_session)
    }
}

/// The streams of one session.
#[derive(Debug)]
pub struct Streams {
    ids: EventIds,
    table: Mutex<Table>,
    account: Arc<Account>,
}

#[derive(Debug, Default)]
struct Table {
    /// Streams of calls, the oldest first.
    calls: VecDeque<Arc<Recording>>,
    /// The session's own stream.
    own: Option<Arc<Own>>,
}

/// The session's own stream, and what its client was last told of the lists.
#[derive(Debug)]
pub struct Own {
    pub recording: Arc<Recording>,
    pub told: Mutex<Option<[u64; 4]>>,
}

/// What an event id leads to.
#[derive(Debug)]
pub enum Resumed {
    Call(Reader),
    Own(Arc<Own>, Reader),
}

impl Streams {
    /// `all` counts the bytes of every session.
    pub fn new(revision: Revision, all: Arc<Kept>) -> Self {
        let account = Arc::new(Account { session: AtomicUsize::new(0), all });
        Self { ids: revision.features().event_ids, table: Mutex::default(), account }
    }

    pub fn ids(&self) -> EventIds {
        self.ids
    }

    /// A new stream of a call and its first reader. Where there is no room for one more, it cannot be resumed.
    pub fn open(&self) -> (Arc<Recording>, Reader) {
        let recording = Recording::new(self.ids, &self.account);
        let reader = recording.attach(1);
        let mut table = self.table.lock();
        table.sweep(clock::uptime());
        if table.calls.len() >= SESSION_STREAMS {
            table.drop_oldest();
        }
        if table.calls.len() < SESSION_STREAMS {
            table.calls.push_back(Arc::clone(&recording));
        } else {
            recording.change(replay::Recording::forget);
        }
        (recording, reader)
    }

    /// The session's own stream from now on, and its reader. An earlier one is forgotten.
    pub fn open_own(&self) -> (Arc<Own>, Reader) {
        let recording = Recording::new(self.ids, &self.account);
        let reader = recording.attach(1);
        let own = Arc::new(Own { recording, told: Mutex::default() });
        self.table.lock().own = Some(Arc::clone(&own));
        (own, reader)
    }

    /// The stream that an event was on, from the event after it.
    pub fn resume(&self, last: &str) -> Option<Resumed> {
        let (name, number) = last.rsplit_once('-')?;
        let number = number.parse::<u64>().ok().filter(|n| n.to_string() == number)?;
        let mut table = self.table.lock();
        table.sweep(clock::uptime());
        if let Some(own) = table.own.as_ref().filter(|own| own.recording.name == name) {
            return Some(Resumed::Own(Arc::clone(own), own.recording.resume(number)?));
        }
        let recording = table.calls.iter().find(|recording| recording.name == name)?;
        recording.resume(number).map(Resumed::Call)
    }

    /// Writes a message on a stream of this session. Those that `may_be_missed` make room for others.
    pub fn push(&self, recording: &Recording, message: Pieces, may_be_missed: bool) {
        recording.push(message, may_be_missed);
        if self.account.excess() > 0 {
            self.make_room();
            let excess = self.account.excess();
            recording.change(|events| events.fit(excess));
        }
    }

    /// Forgets streams that have ended, the oldest first, until there is room.
    fn make_room(&self) {
        let mut table = self.table.lock();
        while self.account.excess() > 0 && table.drop_oldest() {}
    }

    /// Forgets what is too old.
    pub fn sweep(&self, now: Duration) {
        self.table.lock().sweep(now);
    }
}

impl Table {
    /// Forgets the oldest stream that has ended; `false` when there is none.
    fn drop_oldest(&mut self) -> bool {
        let at = self.calls.iter().position(|recording| recording.events.lock().is_over());
        let Some(recording) = at.and_then(|at| self.calls.remove(at)) else { return false };
        recording.change(replay::Recording::forget);
        true
    }

    fn sweep(&mut self, now: Duration) {
        let is_kept = |recording: &Arc<Recording>| {
            let events = recording.events.lock();
            !(events.is_over() && events.is_stale(now))
        };
        self.calls.retain(is_kept);
        if self.own.as_ref().is_some_and(|own| own.recording.events.lock().is_stale(now)) {
            self.own = None;
        }
    }
}

type Events = replay::Recording<Queued>;

/// What was said on one stream.
#[derive(Debug)]
pub struct Recording {
    /// 64 random bits: a number of another session means nothing here.
    name: String,
    ids: EventIds,
    events: Mutex<Events>,
    /// There is something new, or the reader has changed.
    changed: Notify,
    account: Arc<Account>,
}

impl Recording {
    fn new(ids: EventIds, account: &Arc<Account>) -> Arc<Self> {
        Arc::new(Self {
            name: HEXLOWER.encode(&clock::random::<8>()),
            ids,
            events: Mutex::new(Events::new(clock::uptime())),
            changed: Notify::new(),
            account: Arc::clone(account),
        })
    }

    /// A change, with what it means for the account.
    fn change<T>(&self, change: impl FnOnce(&mut Events) -> T) -> T {
        let mut events = self.events.lock();
        let before = events.bytes();
        let result = change(&mut events);
        let after = events.bytes();
        if after > before {
            self.account.add(after - before);
        } else if after < before {
            self.account.remove(before - after);
        }
        result
    }

    fn id(&self, number: u64) -> String {
        format!("{}-{number}", self.name)
    }

    /// Makes a new reader, which begins with that event. An earlier one ends.
    fn attach(self: &Arc<Self>, from: u64) -> Reader {
        let number = self.events.lock().attach(from);
        self.reader(number, from)
    }

    /// A reader of what came after that event, where all of it is here.
    fn resume(self: &Arc<Self>, last: u64) -> Option<Reader> {
        let number = if self.ids == EventIds::None { None } else { self.events.lock().resume(last) };
        number.map(|number| self.reader(number, last.saturating_add(1)))
    }

    fn reader(self: &Arc<Self>, number: u64, from: u64) -> Reader {
        self.changed.notify_waiters();
        let hello = match self.ids {
            EventIds::Primed => sse::priming(&self.id(from.saturating_sub(1)), RETRY),
            EventIds::Plain | EventIds::None => sse::comment("open"),
        };
        Reader { recording: Arc::clone(self), number, hello: Some(hello) }
    }

    fn push(&self, message: Pieces, may_be_missed: bool) {
        let (bytes, budget) = (message.len(), &self.account.all.budget);
        let queued = || Queued::new(message, budget);
        self.change(|events| events.push(queued, bytes, may_be_missed, clock::uptime()));
        self.changed.notify_waiters();
    }

    /// Nothing will be written any more.
    pub fn end(&self) {
        self.events.lock().end(clock::uptime());
        self.changed.notify_waiters();
    }

    fn find(&self, reader: u64) -> Found<Pieces> {
        let event = |number, queued: &Queued| {
            let id = (self.ids != EventIds::None).then(|| self.id(number));
            queued.message.clone().event(id.as_deref(), None)
        };
        self.change(|events| events.find(reader, event))
    }

    /// Waits until nobody has read for so long. Written events change nothing.
    pub async fn unread(&self, patience: Duration) {
        loop {
            self.until_read(false).await;
            if tokio::time::timeout(patience, self.until_read(true)).await.is_err() {
                return;
            }
        }
    }

    async fn until_read(&self, is_read: bool) {
        loop {
            let changed = self.changed.notified();
            if self.events.lock().has_reader() == is_read {
                return;
            }
            changed.await;
        }
    }

    /// Waits until the gateway ends and nobody reads.
    pub async fn forsaken(&self, draining: &CancellationToken) {
        draining.cancelled().await;
        self.until_read(false).await;
    }
}

impl Drop for Recording {
    fn drop(&mut self) {
        let bytes = self.events.lock().bytes();
        self.account.remove(bytes);
    }
}

/// Who reads a recording. Dropping it leaves the recording to the next one.
#[derive(Debug)]
pub struct Reader {
    recording: Arc<Recording>,
    number: u64,
    hello: Option<Bytes>,
}

impl Reader {
    /// The next bytes of the stream, a comment after so much quiet; `None` at its end. Cancel-safe.
    pub async fn next(&mut self, keepalive: Duration) -> Option<Pieces> {
        let quiet = tokio::time::sleep(keepalive);
        tokio::pin!(quiet);
        loop {
            if let Some(hello) = self.hello.take() {
                return Some(hello.into());
            }
            // Made before the look, so that nothing falls between the two.
            let changed = self.recording.changed.notified();
            match self.recording.find(self.number) {
                Found::Event(event) => return Some(event),
                Found::Over => return None,
                Found::Nothing => {}
            }
            tokio::select! {
                () = changed => {}
                () = &mut quiet => return Some(sse::comment("keep-alive").into()),
            }
        }
    }
}

impl Drop for Reader {
    fn drop(&mut self) {
        if self.recording.change(|events| events.leave(self.number, clock::uptime())) {
            self.recording.changed.notify_waiters();
        }
    }
}

#[cfg(test)]
mod tests;
