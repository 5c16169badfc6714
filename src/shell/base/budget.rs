//! The byte budget: one limit for all messages in the memory of this process that are incomplete,
//! wait for their call's turn, or wait for a slow reader.
//!
//! A reader takes room before it reads bytes. The room is released when the last slice of the bytes
//! is dropped, which is when the kernel has taken them. A message without room is refused, and its
//! call fails with that reason. Messages below [`COUNTED_FROM`] are not counted where their number
//! is bounded: one for each call in flight and one for each of its notices.
//!
//! A reader that holds no room may wait for it, because it blocks no other. Among readers that hold
//! room for a part of their message only one may wait, so no two wait for each other.
//!
//! `max-buffered` is the limit. `listener::pieces` copies no message. Bytes that are written anew
//! for a client (projections, notices, questions) take room like all others.
//!
//! | message | takes room | without room (`busy`: the call ends with that reason) |
//! |---|---|---|
//! | body of a client over HTTP | as it arrives | 503, the connection is closed |
//! | line of a client on a pipe | as it arrives | waits 10 s, stopping its client, then skipped |
//! | answer over HTTP with a length | all, first | waits 10 s, holding nothing, then `busy` |
//! | answer over HTTP without one, SSE | as it arrives | one waits 10 s, others end with `busy` |
//! | line of a process, event of HTTP+SSE | as it arrives | waits, then skipped and `busy` |
//! | request to an HTTP server | its copy, first | `busy`, not executed |
//! | progress, log messages | when written | dropped |
//! | questions, requests to processes | by force | further calls are refused |
//! | recordings, small messages to a pipe | by force | progress is dropped |
//! | result rewritten for its client | by force | replaces the received bytes |
//!
//! A line of a process waits 10 s at most, and no more than 1 s in which no room is released.
//! Recordings take a quarter of the limit at most.
//!
//! If there can be several callers, each has a share of a quarter for its requests, the answers
//! being read for it, and the answers that it has not read yet. A message may exceed the share if
//! its caller has no other message. When the share is used up, a further request gets 503, and a
//! further answer waits 10 s and then ends with `busy`. All requests together leave a quarter of
//! the limit to answers, and answers may exceed the limit by a sixteenth. So messages of one caller
//! never displace the result of a call that was executed for another caller.
//!
//! Room is short when a message waits or three quarters of the limit are used; if there can be
//! several callers, from five eighths on, and for a caller's requests from three quarters of its
//! share on. Then `listener::press` ends connections whose client takes less than 64 KiB in 5 s,
//! and request bodies that bring less. Not counted, but bounded in number: messages below 16 KiB
//! (one for each call and each of its 16 notices), 64 KiB read and 64 KiB written for each client's
//! connection, 128 KiB read ahead for each connection to an HTTP server, 64 KiB for each process.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use bytes::Bytes;
use tokio::sync::Notify;
use tokio::time::{Instant, sleep_until};

use crate::base::callers::{CallerCounts, CallerNumber};
use crate::engine::failure::{CallFailure, ExecutionDoubt, FailureReason};
use crate::wire::frame::replace_line_breaks;

mod user;

use self::user::RoomUser;

/// Size in bytes from which messages are counted. Smaller ones are bounded in number instead.
pub const COUNTED_FROM: usize = 16 * 1024;
/// Calls are refused while messages exceed the limit by more than one part in this many.
const OVERDRAFT: usize = 16;
/// Divisor of the limit for a caller's share, and for the part that requests leave to answers.
const SHARES: usize = 4;

/// How long a message may wait for room.
const PATIENCE: Duration = Duration::from_secs(10);

/// How long a message that blocks others may wait while no room at all is released.
const STUCK: Duration = Duration::from_secs(1);

/// The error that the budget has no room for a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NoRoom;

impl NoRoom {
    /// Returns the failure of the message's call.
    pub fn failure(self, executed: ExecutionDoubt) -> CallFailure {
        let text = "The gateway's memory for messages is used up (`max-buffered`), so this one had no room.";
        CallFailure::new(FailureReason::Busy, executed, text).retry_after(Duration::from_secs(1))
    }
}

/// The count of bytes in all large messages that are in memory or being read, and its limit.
#[derive(Debug)]
pub struct ByteBudget {
    used: AtomicUsize,
    limit: AtomicUsize,
    /// Number of times that room was released.
    freed: AtomicUsize,
    /// Messages that wait for room.
    waiting: AtomicUsize,
    /// The waiting messages for which the whole budget is short, not only their caller's share.
    starving: AtomicUsize,
    changed: Notify,
    /// True while a partly read message waits for room.
    partial: AtomicBool,
    /// True if there can be several callers.
    is_shared: AtomicBool,
    /// Bytes used, by caller.
    callers: CallerCounts,
}

impl ByteBudget {
    /// Creates a budget with this limit in bytes.
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

    /// Returns whether there can be several callers.
    pub fn is_shared(&self) -> bool {
        self.is_shared.load(Ordering::Relaxed)
    }

    /// Sets whether there can be several callers, each of which then has a share.
    pub fn set_shared(&self, is_shared: bool) {
        self.is_shared.store(is_shared, Ordering::Relaxed);
        self.changed.notify_waiters();
    }

    pub fn limit(&self) -> usize {
        self.limit.load(Ordering::Relaxed)
    }

    /// Changes the limit. Messages beyond a smaller limit stay.
    pub fn set_limit(&self, limit: usize) {
        self.limit.store(limit, Ordering::Relaxed);
        // A larger limit may have room for a waiting message.
        self.changed.notify_waiters();
    }

    pub fn used(&self) -> usize {
        self.used.load(Ordering::Relaxed)
    }

    /// Returns whether messages exceed the limit so far that no call can be accepted. A budget that
    /// is merely used up refuses large messages only: clients that read nothing must not block the
    /// small messages of others.
    pub fn is_overdrawn(&self) -> bool {
        let limit = self.limit();
        self.used() > limit.saturating_add(limit / OVERDRAFT)
    }

    /// Returns whether room is so short that slow clients must be disconnected.
    pub fn is_short(&self) -> bool {
        // Requests of several callers together never use more than six eighths.
        let enough = self.limit() / 8 * if self.is_shared() { 5 } else { 6 };
        self.starving.load(Ordering::Relaxed) > 0 || self.used() > enough
    }

    /// Returns whether room is short for requests of this caller, in the whole budget or in the
    /// caller's share.
    pub fn is_short_for(&self, caller: &CallerNumber) -> bool {
        let of_caller = self.callers.of(caller).load(Ordering::Relaxed);
        self.is_short() || (self.is_shared() && of_caller > self.limit() / SHARES / 4 * 3)
    }

    /// Counts the bytes until their last slice is dropped, even beyond the limit. For bytes that
    /// must not be lost and that another bound limits.
    pub fn count(self: &Arc<Self>, bytes: Bytes) -> Bytes {
        if bytes.len() < COUNTED_FROM {
            return bytes;
        }
        let room = self.hold(bytes.len());
        Bytes::from_owner(CountedBytes { bytes, _room: room })
    }

    /// Counts the bytes of a message that is already on one line, if there is room for them.
    ///
    /// # Errors
    /// [`NoRoom`].
    pub fn try_count(self: &Arc<Self>, bytes: Bytes) -> Result<Bytes, NoRoom> {
        let mut room = BudgetRoom::new(self);
        room.try_grow_to(bytes.len())?;
        Ok(room.keep_line(bytes))
    }

    /// Counts the bytes of a caller's progress notification if there is room for them.
    ///
    /// # Errors
    /// [`NoRoom`].
    pub fn try_count_progress(self: &Arc<Self>, caller: &CallerNumber, bytes: Bytes) -> Result<Bytes, NoRoom> {
        let mut room = BudgetRoom::of_request(self, caller);
        room.try_grow_to(bytes.len())?;
        Ok(room.keep_line(bytes))
    }

    /// Counts the bytes of an answer that was rewritten for its caller, even beyond the limit: the
    /// bytes that it replaces had room.
    pub fn count_rewritten(self: &Arc<Self>, caller: &CallerNumber, bytes: Bytes) -> Bytes {
        BudgetRoom::of(self, RoomUser::Answer(Some(caller.clone()))).keep_line(bytes)
    }

    /// Takes room for this many bytes, even beyond the limit.
    pub fn hold(self: &Arc<Self>, bytes: usize) -> BudgetRoom {
        let mut room = BudgetRoom::new(self);
        room.set(bytes);
        room
    }

    /// Takes room for this many bytes of small messages, even beyond the limit.
    pub fn hold_small(self: &Arc<Self>, bytes: usize) -> BudgetRoom {
        let mut room = BudgetRoom::new(self);
        self.take(&RoomUser::Gateway, bytes);
        room.bytes = bytes;
        room
    }

    /// Counts an answer's bytes, which hold room already, towards its caller's share until dropped.
    ///
    /// # Errors
    /// [`NoRoom`]: the caller's share is used up.
    pub fn try_count_in_share(self: &Arc<Self>, caller: CallerNumber, bytes: Bytes) -> Result<Bytes, NoRoom> {
        let mut room = BudgetRoom::of(self, RoomUser::Share(caller));
        room.try_grow_to(bytes.len())?;
        Ok(room.keep_line(bytes))
    }

    /// Takes this many more bytes for a message that holds `held`, within the bounds of its user.
    fn try_take(&self, user: &RoomUser, held: usize, bytes: usize) -> Result<(), NoRoom> {
        let (limit, is_shared) = (self.limit(), self.is_shared());
        // Several readers for one caller may pass this check at the same moment; then each exceeds
        // the share once.
        if self.lacks_share(user, held, bytes) {
            return Err(NoRoom);
        }
        if user.is_counted() {
            let most = match user {
                RoomUser::Request(_) if is_shared => limit - limit / SHARES,
                RoomUser::Answer(_) if is_shared => limit.saturating_add(limit / OVERDRAFT),
                RoomUser::Request(_) | RoomUser::Answer(_) | RoomUser::Gateway | RoomUser::Share(_) => limit,
            };
            let take = |used: usize| {
                let most = if used == held { limit } else { most };
                used.checked_add(bytes).filter(|used| *used <= most)
            };
            // A failing load is ordered too: `give_back` relies on that.
            self.used.fetch_update(Ordering::SeqCst, Ordering::SeqCst, take).map_err(|_| NoRoom)?;
        }
        self.take_of_share(user, bytes);
        Ok(())
    }

    /// Returns whether the caller's other messages leave a message that holds `held` no more room.
    fn lacks_share(&self, user: &RoomUser, held: usize, bytes: usize) -> bool {
        let Some(caller) = user.caller().filter(|_| self.is_shared()) else { return false };
        let used = self.callers.of(caller).load(Ordering::SeqCst);
        used > held && used.saturating_add(bytes) > self.limit() / SHARES
    }

    /// Takes this many bytes, even beyond the limit.
    fn take(&self, user: &RoomUser, bytes: usize) {
        if user.is_counted() {
            self.used.fetch_add(bytes, Ordering::SeqCst);
        }
        self.take_of_share(user, bytes);
    }

    fn take_of_share(&self, user: &RoomUser, bytes: usize) {
        if let Some(caller) = user.caller() {
            self.callers.of(caller).fetch_add(bytes, Ordering::SeqCst);
        }
    }

    /// Claims the right to wait for room with a part of a message; `None` if another message has
    /// it.
    fn turn(self: &Arc<Self>) -> Option<PartialWaitRight> {
        let taken = self.partial.swap(true, Ordering::AcqRel);
        (!taken).then(|| PartialWaitRight(Arc::clone(self)))
    }

    /// Releases room and wakes waiting messages.
    fn give_back(&self, user: &RoomUser, bytes: usize) {
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
        // A waiting message registers itself before it reads `used` for the last time.
        if self.waiting.load(Ordering::SeqCst) > 0 {
            self.changed.notify_waiters();
        }
    }
}

/// Bytes that hold room.
struct CountedBytes {
    bytes: Bytes,
    _room: BudgetRoom,
}

impl AsRef<[u8]> for CountedBytes {
    fn as_ref(&self) -> &[u8] {
        &self.bytes
    }
}

/// Room that one message holds; released on drop.
#[derive(Debug)]
pub struct BudgetRoom {
    budget: Arc<ByteBudget>,
    user: RoomUser,
    bytes: usize,
    /// True for a connection whose next messages wait behind this one.
    shared: bool,
    wait: Option<RoomWait>,
    /// The value of [`ByteBudget::freed`] when this message last waited in vain.
    stuck: Option<usize>,
}

/// The state of a wait for room, kept outside the waiting future so that the wait can be resumed.
#[derive(Debug)]
struct RoomWait {
    until: Instant,
    freed: usize,
    stuck_at: Instant,
    _turn: Option<PartialWaitRight>,
}

/// The right to wait for room while holding a part of a message. One message at a time has it;
/// given up on drop.
#[derive(Debug)]
struct PartialWaitRight(Arc<ByteBudget>);

impl Drop for PartialWaitRight {
    fn drop(&mut self) {
        self.0.partial.store(false, Ordering::Release);
    }
}

/// One waiting message in a count, until the value is dropped.
struct WaitingCount<'a>(&'a AtomicUsize);

impl<'a> WaitingCount<'a> {
    fn new(count: &'a AtomicUsize) -> Self {
        count.fetch_add(1, Ordering::SeqCst);
        Self(count)
    }
}

impl Drop for WaitingCount<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

impl BudgetRoom {
    /// Creates empty room for a message of the gateway or an upstream.
    pub fn new(budget: &Arc<ByteBudget>) -> Self {
        Self::of(budget, RoomUser::Gateway)
    }

    fn of(budget: &Arc<ByteBudget>, user: RoomUser) -> Self {
        Self { budget: Arc::clone(budget), user, bytes: 0, shared: false, wait: None, stuck: None }
    }

    /// Creates empty room for a request of a caller.
    pub fn of_request(budget: &Arc<ByteBudget>, caller: &CallerNumber) -> Self {
        Self::of(budget, RoomUser::Request(caller.clone()))
    }

    /// Creates empty room for answers on a connection that are read one after the other.
    pub fn shared(budget: &Arc<ByteBudget>) -> Self {
        let mut room = Self::of(budget, RoomUser::Answer(None));
        room.shared = true;
        room
    }

    /// Counts what this room takes from now on towards the share of that caller, as room of an
    /// answer. To be called before any room is taken.
    pub fn use_share_of(&mut self, caller: CallerNumber) {
        self.user = RoomUser::Answer(Some(caller));
    }

    /// Grows the room to this many bytes, if the budget allows it; small messages need no room.
    ///
    /// # Errors
    /// [`NoRoom`]; room that was taken earlier stays.
    pub fn try_grow_to(&mut self, bytes: usize) -> Result<(), NoRoom> {
        if bytes < COUNTED_FROM || bytes <= self.bytes {
            return Ok(());
        }
        self.budget.try_take(&self.user, self.bytes, bytes - self.bytes)?;
        self.bytes = bytes;
        self.wait = None;
        Ok(())
    }

    /// Grows like [`Self::try_grow_to`], waiting if needed. Cancel-safe: resuming adds no time.
    ///
    /// # Errors
    /// [`NoRoom`] if the wait was in vain.
    pub async fn grow_to(&mut self, bytes: usize) -> Result<(), NoRoom> {
        if self.try_grow_to(bytes).is_ok() {
            return Ok(());
        }
        // Boxed: this path is rare, and inlining it would grow every reader's future.
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
        // A wait for the caller's own share makes room short for no other.
        let is_starving = !budget.lacks_share(&self.user, self.bytes, bytes - self.bytes);
        let _waiting = WaitingCount::new(&budget.waiting);
        let _starving = is_starving.then(|| WaitingCount::new(&budget.starving));
        if self.wait.is_none() {
            let now = Instant::now();
            let turn = (is_starving && self.bytes > 0).then(|| budget.turn().ok_or(NoRoom)).transpose()?;
            self.wait = Some(RoomWait { until: now + PATIENCE, freed: freed(), stuck_at: now + STUCK, _turn: turn });
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

    /// Sets the room to exactly this many bytes, even beyond the limit; small messages need none.
    pub fn set(&mut self, bytes: usize) {
        let bytes = if bytes < COUNTED_FROM { 0 } else { bytes };
        if bytes > self.bytes {
            self.budget.take(&self.user, bytes - self.bytes);
        } else {
            self.budget.give_back(&self.user, self.bytes - bytes);
        }
        self.bytes = bytes;
    }

    /// Moves room into the bytes until their last slice is dropped. Puts them on one line first: a
    /// frame would otherwise copy them for that, and the copy would hold no room.
    pub fn keep(&mut self, bytes: Bytes) -> Bytes {
        if bytes.len() < COUNTED_FROM { bytes } else { self.keep_line(replace_line_breaks(bytes)) }
    }

    /// Moves room into the bytes like [`Self::keep`], for bytes that are on one line already.
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
        Bytes::from_owner(CountedBytes { bytes, _room: room })
    }
}

impl Drop for BudgetRoom {
    fn drop(&mut self) {
        self.budget.give_back(&self.user, self.bytes);
    }
}

#[cfg(test)]
mod tests;
