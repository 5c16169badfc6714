//! The byte budget: one limit for all messages that wait in this process, be it for their rest, for their call's turn
//! or for a slow reader.
//!
//! A reader takes room before it reads bytes; dropping the last slice of them gives it back, which is when the kernel
//! has them. A message without room is refused, and its call ends with that reason. Messages below [`COUNTED_FROM`] are
//! not counted where their number is bounded: one for each call in flight and one for each of its notices.
//!
//! A reader that holds nothing may wait for room: it blocks no other. Among readers that hold a part of their message
//! only one may wait, and it gets the room that the others give back, so no two wait for each other.
//!
//! `max-buffered` is the limit. `listener::pieces` writes results beside their envelope, so no message is copied. Bytes
//! written anew for a client (projections, notices, questions) take room like any other.
//!
//! | message | takes room | and without room |
//! |---|---|---|
//! | body of a client over HTTP | as it arrives | 503, and the connection is closed |
//! | line of a client on a pipe | as it arrives | waits 10 s, which stops its client; then the line is skipped |
//! | answer over HTTP with a length | all of it, first | waits 10 s, holding nothing; then the call ends with `busy` |
//! | answer over HTTP without one, SSE | as it arrives | one at a time waits 10 s, all others end at once with `busy` |
//! | line of a process, event of HTTP+SSE | as it arrives | waits while others give room back, 1 s without; then the line is skipped and its call ends with `busy` |
//! | request to an HTTP server | its copy, first | `busy`, not executed |
//! | progress, log messages | when written | dropped |
//! | questions, requests to processes | by force | no call is taken while they exceed the limit by a sixteenth |
//! | recordings, small messages for a client on a pipe | by force | recordings take a quarter at most; progress gives way |
//!
//! Room is short when a message waits or three quarters are used; then `listener::press` ends connections whose client
//! takes less than 64 KiB in 5 s. Not counted, but bounded by their number: messages below 16 KiB (one for each call
//! and each of its 16 notices), 64 KiB read and 64 KiB written for each client's connection, 128 KiB read ahead for
//! each connection to an HTTP server, 64 KiB for each process.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use bytes::Bytes;
use tokio::sync::Notify;
use tokio::time::{Instant, sleep_until};

use crate::engine::failure::{Executed, Failure, Reason};
use crate::wire::frame::on_one_line;

/// Smaller messages, in bytes, are bounded by their number instead.
pub(crate) const COUNTED_FROM: usize = 16 * 1024;

/// Messages that cannot be refused may exceed the limit by one part in so many before calls are refused.
const OVERDRAFT: usize = 16;

/// How long a message may wait for room.
const PATIENCE: Duration = Duration::from_secs(10);

/// How long a message that blocks others may wait while no room at all is given back.
const STUCK: Duration = Duration::from_secs(1);

/// The budget has no room for a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct NoRoom;

impl NoRoom {
    /// The failure of the message's call.
    pub(crate) fn failure(self, executed: Executed) -> Failure {
        let text = "The gateway's memory for messages is used up (`max-buffered`), so this one had no room.";
        Failure::new(Reason::Busy, executed, text).retry_after(Duration::from_secs(1))
    }
}

/// Counts the bytes of all large messages that are alive or being read.
#[derive(Debug)]
pub(crate) struct Budget {
    used: AtomicUsize,
    limit: AtomicUsize,
    /// How often room was given back.
    freed: AtomicUsize,
    /// How many messages wait for room.
    waiting: AtomicUsize,
    changed: Notify,
    /// A partly read message waits for room.
    partial: AtomicBool,
    /// There can be several callers.
    is_shared: AtomicBool,
}

impl Budget {
    /// A budget of so many bytes.
    pub(crate) fn new(limit: usize) -> Arc<Self> {
        Arc::new(Self {
            used: AtomicUsize::new(0),
            limit: AtomicUsize::new(limit),
            freed: AtomicUsize::new(0),
            waiting: AtomicUsize::new(0),
            changed: Notify::new(),
            partial: AtomicBool::new(false),
            is_shared: AtomicBool::new(false),
        })
    }

    /// Whether there can be several callers.
    pub(crate) fn is_shared(&self) -> bool {
        self.is_shared.load(Ordering::Relaxed)
    }

    /// Says whether there can be several callers.
    pub(crate) fn set_shared(&self, is_shared: bool) {
        self.is_shared.store(is_shared, Ordering::Relaxed);
    }

    pub(crate) fn limit(&self) -> usize {
        self.limit.load(Ordering::Relaxed)
    }

    /// Changes the limit. Messages beyond a smaller one stay.
    pub(crate) fn set_limit(&self, limit: usize) {
        self.limit.store(limit, Ordering::Relaxed);
        // A larger one may have room for a message that waits.
        self.changed.notify_waiters();
    }

    pub(crate) fn used(&self) -> usize {
        self.used.load(Ordering::Relaxed)
    }

    /// Whether messages exceed the limit so far that no call can be taken. A budget that is merely used up refuses only
    /// large messages: clients that read nothing must not block the small ones of others.
    pub(crate) fn is_overdrawn(&self) -> bool {
        let limit = self.limit();
        self.used() > limit.saturating_add(limit / OVERDRAFT)
    }

    /// Whether room is so short that its holders must use it: slow clients are disconnected.
    pub(crate) fn is_short(&self) -> bool {
        self.waiting.load(Ordering::Relaxed) > 0 || self.used() > self.limit() / 4 * 3
    }

    /// Counts the bytes until their last slice is dropped, with or without room. For bytes that must not be lost and
    /// whose number another bound limits.
    pub(crate) fn count(self: &Arc<Self>, bytes: Bytes) -> Bytes {
        if bytes.len() < COUNTED_FROM {
            return bytes;
        }
        let room = self.hold(bytes.len());
        Bytes::from_owner(Counted { bytes, _room: room })
    }

    /// Counts the bytes, which are on one line, if there is room for them.
    ///
    /// # Errors
    /// [`NoRoom`].
    pub(crate) fn try_count(self: &Arc<Self>, bytes: Bytes) -> Result<Bytes, NoRoom> {
        let mut room = Room::new(self);
        room.try_grow_to(bytes.len())?;
        Ok(room.keep_line(bytes))
    }

    /// Takes room for so many bytes, available or not.
    pub(crate) fn hold(self: &Arc<Self>, bytes: usize) -> Room {
        let mut room = Room::new(self);
        room.set(bytes);
        room
    }

    /// Takes room for so many bytes of small messages, available or not.
    pub(crate) fn hold_small(self: &Arc<Self>, bytes: usize) -> Room {
        let mut room = Room::new(self);
        self.used.fetch_add(bytes, Ordering::SeqCst);
        room.bytes = bytes;
        room
    }

    fn try_take(&self, bytes: usize) -> Result<(), NoRoom> {
        let limit = self.limit();
        let take = |used: usize| used.checked_add(bytes).filter(|used| *used <= limit);
        // The failing load is ordered too: `give_back` relies on it.
        self.used.fetch_update(Ordering::SeqCst, Ordering::SeqCst, take).map(drop).map_err(|_| NoRoom)
    }

    fn turn(self: &Arc<Self>) -> Option<Turn> {
        let taken = self.partial.swap(true, Ordering::AcqRel);
        (!taken).then(|| Turn(Arc::clone(self)))
    }

    fn give_back(&self, bytes: usize) {
        if bytes == 0 {
            return;
        }
        self.used.fetch_sub(bytes, Ordering::SeqCst);
        self.freed.fetch_add(1, Ordering::Relaxed);
        // A waiter registers before its last look at `used`.
        if self.waiting.load(Ordering::SeqCst) > 0 {
            self.changed.notify_waiters();
        }
    }
}

/// Bytes that take room.
struct Counted {
    bytes: Bytes,
    _room: Room,
}

impl AsRef<[u8]> for Counted {
    fn as_ref(&self) -> &[u8] {
        &self.bytes
    }
}

/// Room that was taken, given back on drop.
#[derive(Debug)]
pub(crate) struct Room {
    budget: Arc<Budget>,
    bytes: usize,
    /// Other messages wait behind this one.
    shared: bool,
    wait: Option<Wait>,
    /// The value of `freed` when a wait of this message ended in vain.
    stuck: Option<usize>,
}

/// A wait for room; kept outside the waiting future, which may be dropped and made anew.
#[derive(Debug)]
struct Wait {
    until: Instant,
    freed: usize,
    stuck_at: Instant,
    _turn: Option<Turn>,
}

/// The right to wait while holding a part of a message.
#[derive(Debug)]
struct Turn(Arc<Budget>);

impl Drop for Turn {
    fn drop(&mut self) {
        self.0.partial.store(false, Ordering::Release);
    }
}

struct Waiting<'a>(&'a AtomicUsize);

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

impl Room {
    /// No room yet, for one message.
    pub(crate) fn new(budget: &Arc<Budget>) -> Self {
        Self { budget: Arc::clone(budget), bytes: 0, shared: false, wait: None, stuck: None }
    }

    /// No room yet, for a connection whose next messages wait behind the one being read.
    pub(crate) fn shared(budget: &Arc<Budget>) -> Self {
        let mut room = Self::new(budget);
        room.shared = true;
        room
    }

    /// Takes room until it suffices for so many bytes; small messages need none.
    ///
    /// # Errors
    /// [`NoRoom`]; room taken earlier stays.
    pub(crate) fn try_grow_to(&mut self, bytes: usize) -> Result<(), NoRoom> {
        if bytes < COUNTED_FROM || bytes <= self.bytes {
            return Ok(());
        }
        self.budget.try_take(bytes - self.bytes)?;
        self.bytes = bytes;
        self.wait = None;
        Ok(())
    }

    /// Like `try_grow_to`, and waits for room. Cancel-safe: resuming a wait does not extend it.
    ///
    /// # Errors
    /// [`NoRoom`] when the wait was in vain.
    pub(crate) async fn grow_to(&mut self, bytes: usize) -> Result<(), NoRoom> {
        if self.try_grow_to(bytes).is_ok() {
            return Ok(());
        }
        // Rare, and must not enlarge every reader's future.
        let grown = Box::pin(self.wait_for(bytes)).await;
        self.wait = None;
        grown
    }

    async fn wait_for(&mut self, bytes: usize) -> Result<(), NoRoom> {
        let budget = Arc::clone(&self.budget);
        let freed = || budget.freed.load(Ordering::Relaxed);
        if bytes > budget.limit() || self.stuck == Some(freed()) {
            return Err(NoRoom);
        }
        budget.waiting.fetch_add(1, Ordering::SeqCst);
        let _waiting = Waiting(&budget.waiting);
        if self.wait.is_none() {
            let now = Instant::now();
            let turn = (self.bytes > 0).then(|| budget.turn().ok_or(NoRoom)).transpose()?;
            self.wait = Some(Wait { until: now + PATIENCE, freed: freed(), stuck_at: now + STUCK, _turn: turn });
        }
        loop {
            let changed = budget.changed.notified();
            tokio::pin!(changed);
            changed.as_mut().enable();
            if self.try_grow_to(bytes).is_ok() {
                return Ok(());
            }
            let Some(wait) = &mut self.wait else { return Err(NoRoom) };
            let now = Instant::now();
            if wait.freed != freed() {
                wait.freed = freed();
                wait.stuck_at = now + STUCK;
            }
            let until = if self.shared { wait.until.min(wait.stuck_at) } else { wait.until };
            if now >= until {
                self.stuck = self.shared.then_some(wait.freed);
                return Err(NoRoom);
            }
            tokio::select! {
                () = changed => {}
                () = sleep_until(until) => {}
            }
        }
    }

    /// Holds room for exactly so many bytes from here on, available or not; small messages need none.
    pub(crate) fn set(&mut self, bytes: usize) {
        let bytes = if bytes < COUNTED_FROM { 0 } else { bytes };
        if bytes > self.bytes {
            self.budget.used.fetch_add(bytes - self.bytes, Ordering::SeqCst);
        } else {
            self.budget.give_back(self.bytes - bytes);
        }
        self.bytes = bytes;
    }

    /// Moves room into these bytes, for as long as a slice of them lives. They are brought to one line before: as a part of a frame
    /// they would be copied for that, and the copy would take no room.
    pub(crate) fn keep(&mut self, bytes: Bytes) -> Bytes {
        if bytes.len() < COUNTED_FROM { bytes } else { self.keep_line(on_one_line(bytes)) }
    }

    /// The same for bytes that are on one line.
    fn keep_line(&mut self, bytes: Bytes) -> Bytes {
        let length = bytes.len();
        if length < COUNTED_FROM {
            return bytes;
        }
        if self.bytes < length {
            self.set(length);
        }
        self.bytes -= length;
        let mut room = Self::new(&self.budget);
        room.bytes = length;
        Bytes::from_owner(Counted { bytes, _room: room })
    }
}

impl Drop for Room {
    fn drop(&mut self) {
        self.budget.give_back(self.bytes);
    }
}

#[cfg(test)]
mod tests;
