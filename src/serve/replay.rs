//! Event streams that a legacy client can resume: what was said on them stays here for a while, under ids of the session.
//!
//! A recording has one writer and at most one reader. A client that resumes becomes the reader, and whoever read before ends
//! without another byte, so no message is on two streams. Ids are looked up in their own session only; one that is unknown,
//! another session's or too old is no id at all.
//!
//! Notices give way when there is no room; questions and the answer do not while somebody reads. Without a reader a recording
//! that outgrows its bounds is forgotten. The lock of the table is taken before the lock of a recording.
//!
//! Streams of legacy HTTP clients have ids from 2025-03-26 on, and a priming event from 2025-11-25 on. Once such a call
//! is answered by a stream, a task of its own runs it and writes the recording. An id that does not resolve opens the
//! session's own stream, or gets 409 if that is open. A recording holds 256 events or 1 MiB and is kept for 5 minutes
//! after its end; a session holds 4 MiB, all sessions 64 MiB or a quarter of `max-buffered`.
//!
//! Each hop resumes for itself: event ids of upstreams and clients never mix. Modern streams are not resumed on either
//! side.
//!
//! Source: MCP 2025-11-25, basic/transports, "Resumability and Redelivery".

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use bytes::Bytes;
use data_encoding::HEXLOWER;
use parking_lot::{Mutex, MutexGuard};
use tokio::sync::Notify;
use tokio_util::sync::CancellationToken;

use crate::base::budget::Budget;
use crate::base::clock;
use crate::listener::pieces::{Pieces, Queued};
use crate::mcp::version::{EventIds, Revision};
use crate::wire::sse;

/// Of one recording: events, bytes of their messages, and how long it is kept when it has ended and nobody reads.
const MAX_EVENTS: usize = 256;
const MAX_BYTES: usize = 1024 * 1024;
const KEPT: Duration = Duration::from_secs(300);
/// Of one session.
const SESSION_STREAMS: usize = 64;
const SESSION_BYTES: usize = 4 * 1024 * 1024;
/// Of all sessions together.
const ALL_BYTES: usize = 64 * 1024 * 1024;
/// When a client should come back.
const RETRY: Duration = Duration::from_secs(1);

/// Bytes of messages that are kept for all sessions.
#[derive(Debug)]
pub(crate) struct Kept {
    bytes: AtomicUsize,
    budget: Arc<Budget>,
}

impl Kept {
    /// They are part of that budget, of which they take a quarter at most.
    pub(crate) fn new(budget: Arc<Budget>) -> Arc<Self> {
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

    fn is_over(&self) -> bool {
        let all = ALL_BYTES.min(self.all.budget.limit() / 4);
        self.session.load(Ordering::Relaxed) > SESSION_BYTES || self.all.bytes.load(Ordering::Relaxed) > all
    }
}

/// The streams of one session.
#[derive(Debug)]
pub(crate) struct Streams {
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
pub(crate) struct Own {
    pub(crate) recording: Arc<Recording>,
    pub(crate) told: Mutex<Option<[u64; 4]>>,
}

/// What an event id leads to.
#[derive(Debug)]
pub(crate) enum Resumed {
    Call(Reader),
    Own(Arc<Own>, Reader),
}

impl Streams {
    /// `all` counts the bytes of every session.
    pub(crate) fn new(revision: Revision, all: Arc<Kept>) -> Self {
        let account = Arc::new(Account { session: AtomicUsize::new(0), all });
        Self { ids: revision.features().event_ids, table: Mutex::default(), account }
    }

    pub(crate) fn ids(&self) -> EventIds {
        self.ids
    }

    fn lock(&self) -> MutexGuard<'_, Table> {
        self.table.lock()
    }

    /// A new stream of a call and its first reader. Where there is no room for one more, it cannot be resumed.
    pub(crate) fn open(&self) -> (Arc<Recording>, Reader) {
        let recording = Recording::new(self.ids, &self.account);
        let reader = recording.attach(1);
        let mut table = self.lock();
        table.sweep(clock::uptime());
        if table.calls.len() >= SESSION_STREAMS {
            table.drop_oldest();
        }
        if table.calls.len() < SESSION_STREAMS {
            table.calls.push_back(Arc::clone(&recording));
        } else {
            recording.lock().forgotten = true;
        }
        (recording, reader)
    }

    /// The session's own stream from now on, and its reader. An earlier one is forgotten.
    pub(crate) fn open_own(&self) -> (Arc<Own>, Reader) {
        let recording = Recording::new(self.ids, &self.account);
        let reader = recording.attach(1);
        let own = Arc::new(Own { recording, told: Mutex::default() });
        self.lock().own = Some(Arc::clone(&own));
        (own, reader)
    }

    /// The stream that an event was on, from the event after it.
    pub(crate) fn resume(&self, last: &str) -> Option<Resumed> {
        let (name, number) = last.rsplit_once('-')?;
        let number = number.parse::<u64>().ok().filter(|n| n.to_string() == number)?;
        let mut table = self.lock();
        table.sweep(clock::uptime());
        if let Some(own) = table.own.as_ref().filter(|own| own.recording.name == name) {
            return Some(Resumed::Own(Arc::clone(own), own.recording.resume(number)?));
        }
        let recording = table.calls.iter().find(|recording| recording.name == name)?;
        recording.resume(number).map(Resumed::Call)
    }

    /// Writes a message on a stream of this session. Those that `may_be_missed` make room for others.
    pub(crate) fn push(&self, recording: &Recording, message: Pieces, may_be_missed: bool) {
        recording.push(message, may_be_missed);
        if self.account.is_over() {
            self.make_room();
            recording.trim();
        }
    }

    /// Forgets streams that have ended, the oldest first, until there is room.
    fn make_room(&self) {
        let mut table = self.lock();
        while self.account.is_over() && table.drop_oldest() {}
    }

    /// Forgets what is too old.
    pub(crate) fn sweep(&self, now: Duration) {
        self.lock().sweep(now);
    }
}

impl Table {
    /// Forgets the oldest stream that has ended; `false` when there is none.
    fn drop_oldest(&mut self) -> bool {
        let at = self.calls.iter().position(|recording| recording.is_over());
        let Some(recording) = at.and_then(|at| self.calls.remove(at)) else { return false };
        recording.forget(&mut recording.lock());
        true
    }

    fn sweep(&mut self, now: Duration) {
        self.calls.retain(|recording| !(recording.is_over() && recording.is_stale(now)));
        if self.own.as_ref().is_some_and(|own| own.recording.is_stale(now)) {
            self.own = None;
        }
    }
}

/// What was said on one stream.
#[derive(Debug)]
pub(crate) struct Recording {
    /// 64 random bits: a number of another session means nothing here.
    name: String,
    ids: EventIds,
    state: Mutex<State>,
    /// There is something new, or the reader has changed.
    changed: Notify,
    account: Arc<Account>,
}

#[derive(Debug)]
struct State {
    events: VecDeque<Event>,
    bytes: usize,
    /// The number of the next event. The priming event is number 0.
    next: u64,
    /// The reader was given everything before this number.
    read: u64,
    /// From here on nothing is gone that must not be missed.
    whole_from: u64,
    /// The number of the reader; 0 when nobody reads.
    reader: u64,
    readers: u64,
    ended: bool,
    /// It cannot be resumed any more.
    forgotten: bool,
    /// Uptime when it was last written or left by a reader.
    quiet_since: Duration,
}

#[derive(Debug)]
struct Event {
    number: u64,
    message: Queued,
    /// The length of the message.
    bytes: usize,
    may_be_missed: bool,
}

/// What a reader finds.
enum Found {
    Event(Pieces),
    Nothing,
    /// The end, or another reader.
    Over,
}

impl Recording {
    fn new(ids: EventIds, account: &Arc<Account>) -> Arc<Self> {
        let state = State {
            events: VecDeque::new(),
            bytes: 0,
            next: 1,
            read: 1,
            whole_from: 0,
            reader: 0,
            readers: 0,
            ended: false,
            forgotten: false,
            quiet_since: clock::uptime(),
        };
        Arc::new(Self {
            name: HEXLOWER.encode(&clock::random::<8>()),
            ids,
            state: Mutex::new(state),
            changed: Notify::new(),
            account: Arc::clone(account),
        })
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock()
    }

    fn id(&self, number: u64) -> String {
        format!("{}-{number}", self.name)
    }

    /// Makes a new reader, which begins with that event. An earlier one ends.
    fn attach(self: &Arc<Self>, from: u64) -> Reader {
        let number = {
            let mut state = self.lock();
            state.readers += 1;
            state.reader = state.readers;
            state.read = from;
            state.reader
        };
        self.changed.notify_waiters();
        let hello = match self.ids {
            EventIds::Primed => sse::priming(&self.id(from.saturating_sub(1)), RETRY),
            EventIds::Plain | EventIds::None => sse::comment("open"),
        };
        Reader { recording: Arc::clone(self), number, hello: Some(hello) }
    }

    /// A reader of what came after that event, where all of it is here.
    fn resume(self: &Arc<Self>, last: u64) -> Option<Reader> {
        {
            let state = self.lock();
            let known = last < state.next && last.saturating_add(1) >= state.whole_from;
            if !known || state.forgotten || self.ids == EventIds::None {
                return None;
            }
        }
        Some(self.attach(last.saturating_add(1)))
    }

    fn push(&self, message: Pieces, may_be_missed: bool) {
        {
            let mut state = self.lock();
            state.quiet_since = clock::uptime();
            let number = state.next;
            state.next += 1;
            if state.forgotten && state.reader == 0 {
                return;
            }
            let bytes = message.len();
            state.bytes += bytes;
            self.account.add(bytes);
            let message = Queued::new(message, &self.account.all.budget);
            state.events.push_back(Event { number, message, bytes, may_be_missed });
            self.fit(&mut state, false);
        }
        self.changed.notify_waiters();
    }

    /// Nothing will be written any more.
    pub(crate) fn end(&self) {
        {
            let mut state = self.lock();
            state.ended = true;
            state.quiet_since = clock::uptime();
        }
        self.changed.notify_waiters();
    }

    fn trim(&self) {
        let mut state = self.lock();
        let over = self.account.is_over();
        self.fit(&mut state, over);
    }

    /// Keeps the recording within its bounds; `short` when there is no room for it elsewhere.
    fn fit(&self, state: &mut State, short: bool) {
        let mut short = short;
        while state.events.len() > MAX_EVENTS || state.bytes > MAX_BYTES || short {
            let read = state.read;
            let missable = state.events.iter().position(|event| event.may_be_missed);
            let at = missable.or_else(|| state.events.iter().position(|event| event.number < read));
            let Some(event) = at.and_then(|at| state.events.remove(at)) else {
                if state.reader == 0 {
                    self.forget(state);
                }
                return;
            };
            if !event.may_be_missed {
                state.whole_from = state.whole_from.max(event.number.saturating_add(1));
            }
            state.bytes = state.bytes.saturating_sub(event.bytes);
            self.account.remove(event.bytes);
            short = short && self.account.is_over();
        }
    }

    fn forget(&self, state: &mut State) {
        state.forgotten = true;
        state.events = VecDeque::new();
        self.account.remove(std::mem::take(&mut state.bytes));
    }

    fn find(&self, reader: u64) -> Found {
        let mut state = self.lock();
        if state.reader != reader {
            return Found::Over;
        }
        let read = state.read;
        let at = state.events.partition_point(|event| event.number < read);
        let Some(event) = state.events.get(at) else {
            return if state.ended { Found::Over } else { Found::Nothing };
        };
        let id = (self.ids != EventIds::None).then(|| self.id(event.number));
        let message = event.message.message.clone().event(id.as_deref(), None);
        state.read = event.number.saturating_add(1);
        // What was too large to be kept was kept for this reader.
        self.fit(&mut state, false);
        Found::Event(message)
    }

    /// It has ended and nobody reads it.
    fn is_over(&self) -> bool {
        let state = self.lock();
        state.reader == 0 && (state.ended || state.forgotten)
    }

    /// Nobody reads it, and nothing was said for long.
    fn is_stale(&self, now: Duration) -> bool {
        let state = self.lock();
        state.reader == 0 && now.saturating_sub(state.quiet_since) > KEPT
    }

    /// Waits until the gateway ends and nobody reads.
    pub(crate) async fn forsaken(&self, draining: &CancellationToken) {
        draining.cancelled().await;
        loop {
            let changed = self.changed.notified();
            if self.lock().reader == 0 {
                return;
            }
            changed.await;
        }
    }
}

impl Drop for Recording {
    fn drop(&mut self) {
        let bytes = self.lock().bytes;
        self.account.remove(bytes);
    }
}

/// Who reads a recording. Dropping it leaves the recording to the next one.
#[derive(Debug)]
pub(crate) struct Reader {
    recording: Arc<Recording>,
    number: u64,
    hello: Option<Bytes>,
}

impl Reader {
    /// The next bytes of the stream, a comment after so much quiet; `None` at its end. Cancel-safe.
    pub(crate) async fn next(&mut self, keepalive: Duration) -> Option<Pieces> {
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
        {
            let mut state = self.recording.lock();
            if state.reader != self.number {
                return;
            }
            state.reader = 0;
            state.quiet_since = clock::uptime();
            if state.forgotten {
                self.recording.forget(&mut state);
            } else {
                self.recording.fit(&mut state, false);
            }
        }
        self.recording.changed.notify_waiters();
    }
}

#[cfg(test)]
mod tests;
