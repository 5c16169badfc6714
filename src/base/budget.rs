//! The bytes that wait in this process, under one limit: for the rest of their message, for a call's turn, for a slow reader.
//!
//! Room is taken before bytes are read, and given back when the last slice of them is dropped, which is when the kernel has
//! them. A message that finds no room is refused; its call ends and says so. Messages below [`COUNTED_FROM`] are not counted
//! where their number is bounded: one for each call and notice of a call in flight.
//!
//! A reader that holds nothing may wait for room, since it keeps nobody else from getting on. Of those that hold a part of
//! their message only one may wait, which gets what the others give back: no two ever wait for each other.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use bytes::Bytes;
use tokio::sync::Notify;
use tokio::time::{Instant, sleep_until};

use crate::engine::call::{Executed, Failure, Reason};

/// Smaller messages, in bytes, are bounded by their number.
pub(crate) const COUNTED_FROM: usize = 16 * 1024;

/// The part of the limit, its inverse, by which messages that cannot be refused may exceed it before calls are.
const OVERDRAFT: usize = 16;

/// How long a message may wait for room.
const PATIENCE: Duration = Duration::from_secs(10);

/// How long a message that others wait behind may wait while no room is given back at all.
const STUCK: Duration = Duration::from_secs(1);

/// There is no room for a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct NoRoom;

impl NoRoom {
    /// The failure of a call that this happens to.
    pub(crate) fn failure(self, executed: Executed) -> Failure {
        let text = "The gateway holds as many bytes for clients that read slowly as it may.";
        Failure::new(Reason::Busy, executed, text).retry_after(Duration::from_secs(1))
    }
}

/// Bytes in all large messages that are alive or being read.
#[derive(Debug)]
pub(crate) struct Budget {
    used: AtomicUsize,
    limit: usize,
    /// How often room was given back.
    freed: AtomicUsize,
    /// Messages that wait for room.
    waiting: AtomicUsize,
    changed: Notify,
    /// A message of which a part is here waits for room.
    partial: AtomicBool,
}

impl Budget {
    /// A budget of so many bytes.
    pub(crate) fn new(limit: usize) -> Arc<Self> {
        Arc::new(Self {
            used: AtomicUsize::new(0),
            limit,
            freed: AtomicUsize::new(0),
            waiting: AtomicUsize::new(0),
            changed: Notify::new(),
            partial: AtomicBool::new(false),
        })
    }

    pub(crate) fn limit(&self) -> usize {
        self.limit
    }

    pub(crate) fn used(&self) -> usize {
        self.used.load(Ordering::Relaxed)
    }

    /// Whether so much is held beyond the limit that no call can be taken. A budget that is merely used up refuses large
    /// messages alone: clients that read nothing must not keep others from small ones.
    pub(crate) fn is_overdrawn(&self) -> bool {
        self.used() > self.limit.saturating_add(self.limit / OVERDRAFT)
    }

    /// Whether room is so short that those who hold it must use it: clients that read nothing are not waited for.
    pub(crate) fn is_short(&self) -> bool {
        self.waiting.load(Ordering::Relaxed) > 0 || self.used() > self.limit / 4 * 3
    }

    /// The same bytes, counted until the last slice of them is dropped, whether there is room or not. For bytes that must not
    /// be lost, whose number something else bounds.
    pub(crate) fn count(self: &Arc<Self>, bytes: Bytes) -> Bytes {
        if bytes.len() < COUNTED_FROM {
            return bytes;
        }
        let room = self.hold(bytes.len());
        Bytes::from_owner(Counted { bytes, _room: room })
    }

    /// The same bytes, counted, where there is room for them.
    ///
    /// # Errors
    /// [`NoRoom`].
    pub(crate) fn try_count(self: &Arc<Self>, bytes: Bytes) -> Result<Bytes, NoRoom> {
        let mut room = Room::new(self);
        room.try_grow_to(bytes.len())?;
        Ok(room.keep(bytes))
    }

    /// Room for so many bytes, whether there is any or not.
    pub(crate) fn hold(self: &Arc<Self>, bytes: usize) -> Room {
        let mut room = Room::new(self);
        room.set(bytes);
        room
    }

    /// Room for so many bytes of small messages, whether there is any or not.
    pub(crate) fn hold_small(self: &Arc<Self>, bytes: usize) -> Room {
        let mut room = Room::new(self);
        self.used.fetch_add(bytes, Ordering::SeqCst);
        room.bytes = bytes;
        room
    }

    fn try_take(&self, bytes: usize) -> Result<(), NoRoom> {
        let take = |used: usize| used.checked_add(bytes).filter(|used| *used <= self.limit);
        // The look that fails is ordered too: `give_back` counts on it.
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
        // Who waits has said so before its last look at `used`.
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
    /// Of how much room given back a wait was in vain.
    stuck: Option<usize>,
}

/// A wait for room; kept beside the future that waits, which may be dropped and made anew.
#[derive(Debug)]
struct Wait {
    until: Instant,
    freed: usize,
    stuck_at: Instant,
    _turn: Option<Turn>,
}

/// The right to wait with a part of a message.
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
    /// None yet, for one message.
    pub(crate) fn new(budget: &Arc<Budget>) -> Self {
        Self { budget: Arc::clone(budget), bytes: 0, shared: false, wait: None, stuck: None }
    }

    /// None yet, for a connection on which other messages wait behind the one that is read.
    pub(crate) fn shared(budget: &Arc<Budget>) -> Self {
        let mut room = Self::new(budget);
        room.shared = true;
        room
    }

    /// Takes room until there is enough for so many bytes; small messages need none.
    ///
    /// # Errors
    /// [`NoRoom`]; what was held before is held still.
    pub(crate) fn try_grow_to(&mut self, bytes: usize) -> Result<(), NoRoom> {
        if bytes < COUNTED_FROM || bytes <= self.bytes {
            return Ok(());
        }
        self.budget.try_take(bytes - self.bytes)?;
        self.bytes = bytes;
        self.wait = None;
        Ok(())
    }

    /// The same, and waits for it. Cancel-safe: a wait that is taken up again is not longer for it.
    ///
    /// # Errors
    /// [`NoRoom`] when there was none in time.
    pub(crate) async fn grow_to(&mut self, bytes: usize) -> Result<(), NoRoom> {
        if self.try_grow_to(bytes).is_ok() {
            return Ok(());
        }
        // Seldom, and it must not make every reader's future larger.
        let grown = Box::pin(self.wait_for(bytes)).await;
        self.wait = None;
        grown
    }

    async fn wait_for(&mut self, bytes: usize) -> Result<(), NoRoom> {
        let budget = Arc::clone(&self.budget);
        let freed = || budget.freed.load(Ordering::Relaxed);
        if bytes > budget.limit || self.stuck == Some(freed()) {
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

    /// Holds room for so many bytes from now on, whether there is more or not; small messages need none.
    pub(crate) fn set(&mut self, bytes: usize) {
        let bytes = if bytes < COUNTED_FROM { 0 } else { bytes };
        if bytes > self.bytes {
            self.budget.used.fetch_add(bytes - self.bytes, Ordering::SeqCst);
        } else {
            self.budget.give_back(self.bytes - bytes);
        }
        self.bytes = bytes;
    }

    /// Gives these bytes their part of the room, for as long as a slice of them lives.
    pub(crate) fn keep(&mut self, bytes: Bytes) -> Bytes {
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
