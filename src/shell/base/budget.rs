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
//! | result rewritten for its client | by force, in place of the received bytes | |
//!
//! If there can be several callers, each has a share of a quarter for its requests, for the answers
//! that are read for it and for those that it has not read. A message may exceed the share if its
//! caller has no other. If the share is used up, another request gets 503, and another answer waits
//! 10 s and ends with `busy`. All requests together leave a quarter to answers, and answers may exceed
//! the limit by a sixteenth. So messages of one caller do not keep out the result of another
//! caller's call, which was executed.
//!
//! Room is short when a message waits, or three quarters are used; if there can be several callers,
//! from five eighths on, and for requests of a caller from three quarters of its share on. Then
//! `listener::press` ends connections whose client takes less than 64 KiB in 5 s, and bodies that
//! bring less. Not counted, but bounded by their number: messages below 16 KiB (one for each call
//! and each of its 16 notices), 64 KiB read and 64 KiB written for each client's connection,
//! 128 KiB read ahead for each connection to an HTTP server, 64 KiB for each process.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use bytes::Bytes;
use tokio::sync::Notify;
use tokio::time::{Instant, sleep_until};

use crate::base::callers::{CallerCounts, CallerNumber};
use crate::engine::failure::{Executed, Failure, Reason};
use crate::wire::frame::on_one_line;

mod user;

use self::user::User;

/// Smaller messages, in bytes, are bounded by their number instead.
pub const COUNTED_FROM: usize = 16 * 1024;

/// Messages that cannot be refused may exceed the limit by one part in so many before calls are refused.
const OVERDRAFT: usize = 16;

/// The part of the limit that each of several callers may use, and that requests leave to answers:
/// one of so many.
const SHARES: usize = 4;

/// How long a message may wait for room.
const PATIENCE: Duration = Duration::from_secs(10);

/// How long a message that blocks others may wait while no room at all is given back.
const STUCK: Duration = Duration::from_secs(1);

/// The budget has no room for a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NoRoom;

impl NoRoom {
    /// The failure of the message's call.
    pub fn failure(self, executed: Executed) -> Failure {
        let text = "The gateway's memory for messages is used up (`max-buffered`), so this one had no room.";
        Failure::new(Reason::Busy, executed, text).retry_after(Duration::from_secs(1))
    }
}

/// Counts the bytes of all large messages that are alive or being read.
#[derive(Debug)]
pub struct Budget {
    used: AtomicUsize,
    limit: AtomicUsize,
    /// How often room was given back.
    freed: AtomicUsize,
    /// How many messages wait for room, and how many of them wait for more than their caller's
    /// share.
    waiting: AtomicUsize,
    starving: AtomicUsize,
    changed: Notify,
    /// A partly read message waits for room.
    partial: AtomicBool,
    /// There can be several callers.
    is_shared: AtomicBool,
    /// Bytes used, by caller.
    callers: CallerCounts,
}

impl Budget {
    /// A budget of so many bytes.
    pub fn new(limit: usize) -> Arc<Self> {
        Arc::new(Self {
            used: AtomicUsize::new(0),
            limit: AtomicUsize::new(limit),
            freed: AtomicUsize::new(0),
            waiting: AtomicUsize::new(0),
            starving: AtomicUsize::new(0),
            changed: Notify::new(),
            partial: AtomicBool::new(false),
            is_shared: AtomicBool::new(false),
            callers: CallerCounts::default(),
        })
    }

    /// Whether there can be several callers.
    pub fn is_shared(&self) -> bool {
        self.is_shared.load(Ordering::Relaxed)
    }

    /// Says whether there can be several callers, each of whom has a share.
    pub fn set_shared(&self, is_shared: bool) {
        self.is_shared.store(is_shared, Ordering::Relaxed);
        self.changed.notify_waiters();
    }

    pub fn limit(&self) -> usize {
        self.limit.load(Ordering::Relaxed)
    }

    /// Changes the limit. Messages beyond a smaller one stay.
    pub fn set_limit(&self, limit: usize) {
        self.limit.store(limit, Ordering::Relaxed);
        // A larger one may have room for a message that waits.
        self.changed.notify_waiters();
    }

    pub fn used(&self) -> usize {
        self.used.load(Ordering::Relaxed)
    }

    /// Whether messages exceed the limit so far that no call can be taken. A budget that is merely used up refuses only
    /// large messages: clients that read nothing must not block the small ones of others.
    pub fn is_overdrawn(&self) -> bool {
        let limit = self.limit();
        self.used() > limit.saturating_add(limit / OVERDRAFT)
    }

    /// Whether room is so short that its holders must use it: slow clients are disconnected.
    pub fn is_short(&self) -> bool {
        // Requests of several callers never use more than six eighths.
        let enough = self.limit() / 8 * if self.is_shared() { 5 } else { 6 };
        self.starving.load(Ordering::Relaxed) > 0 || self.used() > enough
    }

    /// Whether room is short for requests of that caller: for all messages, or within the caller's
    /// share.
    pub fn is_short_for(&self, caller: &CallerNumber) -> bool {
        let of_caller = self.callers.of(caller).load(Ordering::Relaxed);
        self.is_short() || (self.is_shared() && of_caller > self.limit() / SHARES / 4 * 3)
    }

    /// Counts the bytes until their last slice is dropped, with or without room. For bytes that must not be lost and
    /// whose number another bound limits.
    pub fn count(self: &Arc<Self>, bytes: Bytes) -> Bytes {
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
    pub fn try_count(self: &Arc<Self>, bytes: Bytes) -> Result<Bytes, NoRoom> {
        let mut room = Room::new(self);
        room.try_grow_to(bytes.len())?;
        Ok(room.keep_line(bytes))
    }

    /// Counts the bytes of progress for a caller, which gives way to answers, if there is room for
    /// them.
    ///
    /// # Errors
    /// [`NoRoom`].
    pub fn try_count_progress(self: &Arc<Self>, caller: &CallerNumber, bytes: Bytes) -> Result<Bytes, NoRoom> {
        let mut room = Room::of_request(self, caller);
        room.try_grow_to(bytes.len())?;
        Ok(room.keep_line(bytes))
    }

    /// Counts the bytes of an answer that was rewritten for its caller, with or without room: the
    /// received bytes had room.
    pub fn count_rewritten(self: &Arc<Self>, caller: &CallerNumber, bytes: Bytes) -> Bytes {
        Room::of(self, User::Answer(Some(caller.clone()))).keep_line(bytes)
    }

    /// Takes room for so many bytes, available or not.
    pub fn hold(self: &Arc<Self>, bytes: usize) -> Room {
        let mut room = Room::new(self);
        room.set(bytes);
        room
    }

    /// Takes room for so many bytes of small messages, available or not.
    pub fn hold_small(self: &Arc<Self>, bytes: usize) -> Room {
        let mut room = Room::new(self);
        self.take(&User::Gateway, bytes);
        room.bytes = bytes;
        room
    }

    /// Counts the bytes of an answer towards the share of its caller until their last slice is
    /// dropped.
    ///
    /// # Errors
    /// [`NoRoom`]: the caller's share is used up.
    pub fn try_count_in_share(self: &Arc<Self>, caller: CallerNumber, bytes: Bytes) -> Result<Bytes, NoRoom> {
        let mut room = Room::of(self, User::Share(caller));
        room.try_grow_to(bytes.len())?;
        Ok(room.keep_line(bytes))
    }

    /// Takes so many more bytes for a message that holds `held`.
    fn try_take(&self, user: &User, held: usize, bytes: usize) -> Result<(), NoRoom> {
        let (limit, is_shared) = (self.limit(), self.is_shared());
        // Several readers for one caller may pass this look at the same moment; each of them
        // exceeds the share once.
        if self.lacks_share(user, held, bytes) {
            return Err(NoRoom);
        }
        if user.is_counted() {
            let most = match user {
                User::Request(_) if is_shared => limit - limit / SHARES,
                User::Answer(_) if is_shared => limit.saturating_add(limit / OVERDRAFT),
                User::Request(_) | User::Answer(_) | User::Gateway | User::Share(_) => limit,
            };
            let take = |used: usize| {
                let most = if used == held { limit } else { most };
                used.checked_add(bytes).filter(|used| *used <= most)
            };
            // The failing load is ordered too: `give_back` relies on it.
            self.used.fetch_update(Ordering::SeqCst, Ordering::SeqCst, take).map_err(|_| NoRoom)?;
        }
        self.take_of_share(user, bytes);
        Ok(())
    }

    /// Whether a message that holds `held` has to do without so many more bytes because of its
    /// caller's other messages.
    fn lacks_share(&self, user: &User, held: usize, bytes: usize) -> bool {
        let Some(caller) = user.caller().filter(|_| self.is_shared()) else { return false };
        let used = self.callers.of(caller).load(Ordering::SeqCst);
        used > held && used.saturating_add(bytes) > self.limit() / SHARES
    }

    /// Takes so many bytes, available or not.
    fn take(&self, user: &User, bytes: usize) {
        if user.is_counted() {
            self.used.fetch_add(bytes, Ordering::SeqCst);
        }
        self.take_of_share(user, bytes);
    }

    fn take_of_share(&self, user: &User, bytes: usize) {
        if let Some(caller) = user.caller() {
            self.callers.of(caller).fetch_add(bytes, Ordering::SeqCst);
        }
    }

    fn turn(self: &Arc<Self>) -> Option<Turn> {
        let taken = self.partial.swap(true, Ordering::AcqRel);
        (!taken).then(|| Turn(Arc::clone(self)))
    }

    fn give_back(&self, user: &User, bytes: usize) {
        if bytes == 0 {
            return;
        }
        if let Some(caller) = user.caller() {
            self.callers.of(caller).fetch_sub(bytes, Ordering::SeqCst);
        }
        if user.is_counted() {
            self.used.fetch_sub(bytes, Ordering::SeqCst);
        }
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
pub struct Room {
    budget: Arc<Budget>,
    user: User,
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

/// A message among those that wait.
struct Waiting<'a>(&'a AtomicUsize);

impl<'a> Waiting<'a> {
    fn new(count: &'a AtomicUsize) -> Self {
        count.fetch_add(1, Ordering::SeqCst);
        Self(count)
    }
}

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

impl Room {
    /// No room yet, for one message.
    pub fn new(budget: &Arc<Budget>) -> Self {
        Self::of(budget, User::Gateway)
    }

    fn of(budget: &Arc<Budget>, user: User) -> Self {
        Self { budget: Arc::clone(budget), user, bytes: 0, shared: false, wait: None, stuck: None }
    }

    /// No room yet, for one request of a caller.
    pub fn of_request(budget: &Arc<Budget>, caller: &CallerNumber) -> Self {
        Self::of(budget, User::Request(caller.clone()))
    }

    /// No room yet, for answers over a connection whose next messages wait behind the one being
    /// read.
    pub fn shared(budget: &Arc<Budget>) -> Self {
        let mut room = Self::of(budget, User::Answer(None));
        room.shared = true;
        room
    }

    /// Makes it the room of an answer for that caller, before any is taken.
    pub fn use_share_of(&mut self, caller: CallerNumber) {
        self.user = User::Answer(Some(caller));
    }

    /// Takes room until it suffices for so many bytes; small messages need none.
    ///
    /// # Errors
    /// [`NoRoom`]; room taken earlier stays.
    pub fn try_grow_to(&mut self, bytes: usize) -> Result<(), NoRoom> {
        if bytes < COUNTED_FROM || bytes <= self.bytes {
            return Ok(());
        }
        self.budget.try_take(&self.user, self.bytes, bytes - self.bytes)?;
        self.bytes = bytes;
        self.wait = None;
        Ok(())
    }

    /// Like `try_grow_to`, and waits for room. Cancel-safe: resuming a wait does not extend it.
    ///
    /// # Errors
    /// [`NoRoom`] when the wait was in vain.
    pub async fn grow_to(&mut self, bytes: usize) -> Result<(), NoRoom> {
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
        // A caller that has used up its share waits for itself: that makes room short for no other.
        let is_starving = !budget.lacks_share(&self.user, self.bytes, bytes - self.bytes);
        let _waiting = Waiting::new(&budget.waiting);
        let _starving = is_starving.then(|| Waiting::new(&budget.starving));
        if self.wait.is_none() {
            let now = Instant::now();
            let turn = (is_starving && self.bytes > 0).then(|| budget.turn().ok_or(NoRoom)).transpose()?;
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
    pub fn set(&mut self, bytes: usize) {
        let bytes = if bytes < COUNTED_FROM { 0 } else { bytes };
        if bytes > self.bytes {
            self.budget.take(&self.user, bytes - self.bytes);
        } else {
            self.budget.give_back(&self.user, self.bytes - bytes);
        }
        self.bytes = bytes;
    }

    /// Moves room into these bytes, for as long as a slice of them lives. They are brought to one line before: as a part of a frame
    /// they would be copied for that, and the copy would take no room.
    pub fn keep(&mut self, bytes: Bytes) -> Bytes {
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
        let mut room = Self::of(&self.budget, self.user.clone());
        room.bytes = length;
        Bytes::from_owner(Counted { bytes, _room: room })
    }
}

impl Drop for Room {
    fn drop(&mut self) {
        self.budget.give_back(&self.user, self.bytes);
    }
}

#[cfg(test)]
mod tests;
