//! Event streams that a legacy client can resume: the recordings ([`crate::engine::replay`]) of a
//! session, and their event ids.
//!
//! No message is on two streams. An id is looked up in its own session only; an id that is unknown,
//! too old or another session's counts as none. The lock of the table is taken before the lock of a
//! recording.
//!
//! Streams of legacy HTTP clients have ids from 2025-03-26 on, and a priming event from 2025-11-25
//! on. Once such a call is answered with a stream, a task of its own runs the call and writes the
//! recording. An id that does not resolve opens the session's own stream, or gets 409 if that is
//! open. A recording holds 256 events or 1 MiB, and is kept for 5 minutes after its end; a session
//! holds 4 MiB, all sessions together 64 MiB or a quarter of `max-buffered`.
//!
//! Each hop resumes on its own: event ids of upstreams and clients never mix. Modern streams are
//! not resumed on either side.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use bytes::Bytes;
use data_encoding::HEXLOWER;
use parking_lot::Mutex;
use tokio::sync::Notify;
use tokio_util::sync::CancellationToken;

use crate::base::budget::ByteBudget;
use crate::base::clock;
use crate::engine::replay::{self, RecordingItem};
use crate::listener::pieces::{MessageSlices, QueuedMessage};
use crate::mcp::version::{EventIds, Revision};
use crate::wire::sse;

/// Most recordings of one session, and most bytes of their messages.
const SESSION_STREAMS: usize = 64;
const SESSION_BYTES: usize = 4 * 1024 * 1024;
/// Most bytes in the recordings of all sessions.
const ALL_BYTES: usize = 64 * 1024 * 1024;
/// Time after which a client should reconnect.
const RETRY: Duration = Duration::from_secs(1);

/// The count of bytes in the recordings of all sessions.
#[derive(Debug)]
pub struct RecordedBytes {
    bytes: AtomicUsize,
    budget: Arc<ByteBudget>,
}

impl RecordedBytes {
    /// Creates the count. Recordings are part of this budget, and take a quarter of it at most.
    pub fn new(budget: Arc<ByteBudget>) -> Arc<Self> {
        Arc::new(Self { bytes: AtomicUsize::new(0), budget })
    }
}

/// Counts of bytes in recordings: of one session, and of all.
#[derive(Debug)]
struct RecordingAccount {
    session: AtomicUsize,
    all: Arc<RecordedBytes>,
}

impl RecordingAccount {
    fn add(&self, bytes: usize) {
        self.session.fetch_add(bytes, Ordering::Relaxed);
        self.all.bytes.fetch_add(bytes, Ordering::Relaxed);
    }

    fn remove(&self, bytes: usize) {
        self.session.fetch_sub(bytes, Ordering::Relaxed);
        self.all.bytes.fetch_sub(bytes, Ordering::Relaxed);
    }

    /// Returns how many bytes exceed the limits.
    fn excess(&self) -> usize {
        let all = ALL_BYTES.min(self.all.budget.limit() / 4);
        let of_session = self.session.load(Ordering::Relaxed).saturating_sub(SESSION_BYTES);
        self.all.bytes.load(Ordering::Relaxed).saturating_sub(all).max(of_session)
    }
}

/// The recordings of one session.
#[derive(Debug)]
pub struct SessionStreams {
    ids: EventIds,
    table: Mutex<RecordingTable>,
    account: Arc<RecordingAccount>,
}

/// The recordings of one session.
#[derive(Debug, Default)]
struct RecordingTable {
    /// Recordings of calls, the oldest first.
    calls: VecDeque<Arc<SessionRecording>>,
    /// The recording of the session's own stream.
    own: Option<Arc<OwnStream>>,
}

/// The recording of the session's own stream, and the lists that its client knows.
#[derive(Debug)]
pub struct OwnStream {
    pub recording: Arc<SessionRecording>,
    /// Digests of the lists; `None` before the stream was first followed.
    pub told: Mutex<Option<[u64; 4]>>,
}

/// The stream that an event id leads to.
#[derive(Debug)]
pub enum ResumedStream {
    Call(RecordingReader),
    Own(Arc<OwnStream>, RecordingReader),
}

impl SessionStreams {
    /// Creates the recordings of a session. `all` counts the bytes of all sessions.
    pub fn new(revision: Revision, all: Arc<RecordedBytes>) -> Self {
        let account = Arc::new(RecordingAccount { session: AtomicUsize::new(0), all });
        Self { ids: revision.features().event_ids, table: Mutex::default(), account }
    }

    pub fn ids(&self) -> EventIds {
        self.ids
    }

    /// Opens a recording for a call, with its first reader. If there is no room for another
    /// recording, the stream cannot be resumed.
    pub fn open(&self) -> (Arc<SessionRecording>, RecordingReader) {
        let recording = SessionRecording::new(self.ids, &self.account);
        let reader = recording.attach(1);
        let mut table = self.table.lock();
        table.sweep(clock::uptime());
        if table.calls.len() >= SESSION_STREAMS {
            table.drop_oldest();
        }
        if table.calls.len() < SESSION_STREAMS {
            table.calls.push_back(Arc::clone(&recording));
        } else {
            recording.change(replay::StreamRecording::forget);
        }
        (recording, reader)
    }

    /// Opens the session's own stream with its reader. An earlier one is forgotten.
    pub fn open_own(&self) -> (Arc<OwnStream>, RecordingReader) {
        let recording = SessionRecording::new(self.ids, &self.account);
        let reader = recording.attach(1);
        let own = Arc::new(OwnStream { recording, told: Mutex::default() });
        self.table.lock().own = Some(Arc::clone(&own));
        (own, reader)
    }

    /// Finds the stream of an event id, and returns a reader from the event after it.
    pub fn resume(&self, last: &str) -> Option<ResumedStream> {
        let (name, number) = last.rsplit_once('-')?;
        let number = number.parse::<u64>().ok().filter(|n| n.to_string() == number)?;
        let mut table = self.table.lock();
        table.sweep(clock::uptime());
        if let Some(own) = table.own.as_ref().filter(|own| own.recording.name == name) {
            return Some(ResumedStream::Own(Arc::clone(own), own.recording.resume(number)?));
        }
        let recording = table.calls.iter().find(|recording| recording.name == name)?;
        recording.resume(number).map(ResumedStream::Call)
    }

    /// Appends a message to a stream of this session. If room is needed, streams that have ended
    /// are forgotten, then messages of this stream are dropped: first those that `may_be_missed`,
    /// then those that were read.
    pub fn push(&self, recording: &SessionRecording, message: MessageSlices, may_be_missed: bool) {
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

    /// Forgets streams that are too old.
    pub fn sweep(&self, now: Duration) {
        self.table.lock().sweep(now);
    }
}

impl RecordingTable {
    /// Forgets the oldest stream that has ended. Returns `false` if there is none.
    fn drop_oldest(&mut self) -> bool {
        let at = self.calls.iter().position(|recording| recording.events.lock().is_over());
        let Some(recording) = at.and_then(|at| self.calls.remove(at)) else { return false };
        recording.change(replay::StreamRecording::forget);
        true
    }

    fn sweep(&mut self, now: Duration) {
        let is_kept = |recording: &Arc<SessionRecording>| {
            let events = recording.events.lock();
            !(events.is_over() && events.is_stale(now))
        };
        self.calls.retain(is_kept);
        if self.own.as_ref().is_some_and(|own| own.recording.events.lock().is_stale(now)) {
            self.own = None;
        }
    }
}

type RecordedEvents = replay::StreamRecording<QueuedMessage>;

/// The recording of one stream.
#[derive(Debug)]
pub struct SessionRecording {
    /// 64 random bits in hex, so that an id means nothing in another session.
    name: String,
    ids: EventIds,
    events: Mutex<RecordedEvents>,
    /// Signals a new event, or a change of the reader.
    changed: Notify,
    account: Arc<RecordingAccount>,
}

impl SessionRecording {
    fn new(ids: EventIds, account: &Arc<RecordingAccount>) -> Arc<Self> {
        Arc::new(Self {
            name: HEXLOWER.encode(&clock::random::<8>()),
            ids,
            events: Mutex::new(RecordedEvents::new(clock::uptime())),
            changed: Notify::new(),
            account: Arc::clone(account),
        })
    }

    /// Changes the recording, and updates the byte counts accordingly.
    fn change<T>(&self, change: impl FnOnce(&mut RecordedEvents) -> T) -> T {
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

    /// Creates a new reader that starts with this event. An earlier reader ends.
    fn attach(self: &Arc<Self>, from: u64) -> RecordingReader {
        let number = self.events.lock().attach(from);
        self.reader(number, from)
    }

    /// Creates a reader of everything after this event; `None` if some of that is missing.
    fn resume(self: &Arc<Self>, last: u64) -> Option<RecordingReader> {
        let number = if self.ids == EventIds::None { None } else { self.events.lock().resume(last) };
        number.map(|number| self.reader(number, last.saturating_add(1)))
    }

    /// Creates a reader, whose first bytes are a priming event or a comment.
    fn reader(self: &Arc<Self>, number: u64, from: u64) -> RecordingReader {
        self.changed.notify_waiters();
        let hello = match self.ids {
            EventIds::Primed => sse::encode_priming_event(&self.id(from.saturating_sub(1)), RETRY),
            EventIds::Plain | EventIds::None => sse::comment("open"),
        };
        RecordingReader { recording: Arc::clone(self), number, hello: Some(hello) }
    }

    fn push(&self, message: MessageSlices, may_be_missed: bool) {
        let (bytes, budget) = (message.len(), &self.account.all.budget);
        let queued = || QueuedMessage::new(message, budget);
        self.change(|events| events.push(queued, bytes, may_be_missed, clock::uptime()));
        self.changed.notify_waiters();
    }

    /// Marks the stream as complete.
    pub fn end(&self) {
        self.events.lock().end(clock::uptime());
        self.changed.notify_waiters();
    }

    fn find(&self, reader: u64) -> RecordingItem<MessageSlices> {
        let event = |number, queued: &QueuedMessage| {
            let id = (self.ids != EventIds::None).then(|| self.id(number));
            queued.message.clone().event(id.as_deref(), None)
        };
        self.change(|events| events.find(reader, event))
    }

    /// Waits until the stream had no reader for as long as `patience`. New events do not affect the
    /// wait.
    pub async fn unread(&self, patience: Duration) {
        loop {
            self.until_read(false).await;
            if tokio::time::timeout(patience, self.until_read(true)).await.is_err() {
                return;
            }
        }
    }

    /// Waits until there is a reader, or until there is none.
    async fn until_read(&self, is_read: bool) {
        loop {
            let changed = self.changed.notified();
            if self.events.lock().has_reader() == is_read {
                return;
            }
            changed.await;
        }
    }

    /// Waits until the gateway ends while the stream has no reader.
    pub async fn forsaken(&self, draining: &CancellationToken) {
        draining.cancelled().await;
        self.until_read(false).await;
    }
}

impl Drop for SessionRecording {
    fn drop(&mut self) {
        let bytes = self.events.lock().bytes();
        self.account.remove(bytes);
    }
}

/// The current reader of a recording. Dropping it allows the next one.
#[derive(Debug)]
pub struct RecordingReader {
    recording: Arc<SessionRecording>,
    number: u64,
    hello: Option<Bytes>,
}

impl RecordingReader {
    /// Waits for the next bytes of the stream, or returns a comment after `keepalive`; `None` at
    /// its end. Cancel-safe.
    pub async fn next(&mut self, keepalive: Duration) -> Option<MessageSlices> {
        let quiet = tokio::time::sleep(keepalive);
        tokio::pin!(quiet);
        loop {
            if let Some(hello) = self.hello.take() {
                return Some(hello.into());
            }
            // Registered before looking, so that no change is missed in between.
            let changed = self.recording.changed.notified();
            match self.recording.find(self.number) {
                RecordingItem::Event(event) => return Some(event),
                RecordingItem::Over => return None,
                RecordingItem::Nothing => {}
            }
            tokio::select! {
                () = changed => {}
                () = &mut quiet => return Some(sse::comment("keep-alive").into()),
            }
        }
    }
}

impl Drop for RecordingReader {
    fn drop(&mut self) {
        if self.recording.change(|events| events.leave(self.number, clock::uptime())) {
            self.recording.changed.notify_waiters();
        }
    }
}

#[cfg(test)]
mod tests;
