//! Slots that callers share fairly. Calls have a bounded queue in front of them; connections have
//! slots without a queue.
//!
//! A caller takes as many free slots as it asks for. While none is free, calls wait in one queue
//! for each caller. The next free slot goes to the waiting caller that holds the fewest; callers
//! that hold equally many take turns. Within a queue, calls keep their order of arrival.
//!
//! If several callers share the queue, the calls of one caller take no more of it than they leave
//! free, so others find room. A call waits for the usual time of the queue. If another caller holds
//! more slots than its own by then, it waits on, for as long as the longest call may take, because
//! a slot becomes free within that time.
//!
//! Taking or releasing a slot while no call waits is one change of an atomic number. Everything
//! else takes a lock.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicIsize, AtomicU64, AtomicUsize, Ordering};
use std::time::Duration;

use parking_lot::Mutex;
use tokio::sync::oneshot;
use tokio::time::{Instant, timeout_at};

use crate::base::callers::{CallerCounts, CallerNumber};

#[cfg(test)]
mod tests;

/// Slots and the queue in front of them. Clones share both.
#[derive(Clone, Debug)]
pub struct FairSlots(Arc<FairSlotsState>);

#[derive(Debug)]
struct FairSlotsState {
    /// Slots in all, less one for each held slot and one for each waiting call. Negative while
    /// calls wait, and while more slots are held than a reduced number allows.
    balance: AtomicIsize,
    /// Slots held, by caller.
    held: CallerCounts,
    /// Most calls that may wait.
    queue_limit: AtomicUsize,
    /// Number of the next waiting call.
    next: AtomicU64,
    line: Mutex<SlotQueues>,
}

/// The waiting calls of all callers.
#[derive(Debug)]
struct SlotQueues {
    /// Slots in all.
    number: isize,
    waiting: usize,
    /// Queues that are not empty. The first one is the next in turn among equals.
    queues: VecDeque<(CallerNumber, VecDeque<SlotWaiter>)>,
}

/// A waiting call.
#[derive(Debug)]
struct SlotWaiter {
    number: u64,
    slot: oneshot::Sender<FairSlot>,
}

/// A slot; released on drop, or assigned to the next waiting call.
#[derive(Debug)]
pub struct FairSlot {
    slots: Arc<FairSlotsState>,
    caller: CallerNumber,
}

impl Drop for FairSlot {
    fn drop(&mut self) {
        self.slots.held.of(&self.caller).fetch_sub(1, Ordering::AcqRel);
        if self.slots.balance.fetch_add(1, Ordering::AcqRel) < 0 {
            self.slots.assign_free_slots();
        }
    }
}

/// A call's position in its caller's queue. Dropping it leaves the queue; a slot that was assigned
/// meanwhile goes to the next call.
#[derive(Debug)]
pub struct QueuedCall {
    slots: Arc<FairSlotsState>,
    caller: CallerNumber,
    number: u64,
    slot: oneshot::Receiver<FairSlot>,
    since: Instant,
}

impl Drop for QueuedCall {
    fn drop(&mut self) {
        self.slots.leave(&self.caller, self.number);
    }
}

impl QueuedCall {
    /// Waits for a slot until `usual` has passed since the call was queued, or until `longest` has
    /// passed if another caller holds more slots than this one by then. Returns `None` when the
    /// time is over. Cancel-safe: a wait that is resumed does not become longer.
    pub async fn wait(&mut self, usual: Duration, longest: Duration) -> Option<FairSlot> {
        if let Ok(slot) = timeout_at(self.since + usual, &mut self.slot).await {
            return slot.ok();
        }
        if usual.is_zero() || !self.slots.is_behind(&self.caller) {
            return None;
        }
        timeout_at(self.since + longest, &mut self.slot).await.ok()?.ok()
    }
}

impl FairSlots {
    /// Creates slots, and a queue for at most `queue_limit` waiting calls.
    pub fn new(number: usize, queue_limit: usize) -> Self {
        let number = signed(number);
        Self(Arc::new(FairSlotsState {
            balance: AtomicIsize::new(number),
            held: CallerCounts::default(),
            queue_limit: AtomicUsize::new(queue_limit),
            next: AtomicU64::new(0),
            line: Mutex::new(SlotQueues { number, waiting: 0, queues: VecDeque::new() }),
        }))
    }

    /// Takes a slot if one is free that no call waits for.
    pub fn try_take(&self, caller: &CallerNumber) -> Option<FairSlot> {
        let take = |balance: isize| (balance > 0).then(|| balance - 1);
        self.0.balance.fetch_update(Ordering::AcqRel, Ordering::Relaxed, take).ok()?;
        self.0.held.of(caller).fetch_add(1, Ordering::AcqRel);
        Some(FairSlot { slots: Arc::clone(&self.0), caller: caller.clone() })
    }

    /// Queues a call; `None` if the queue has no room for it. `is_shared`: there can be several
    /// callers, so each may take only its share of the queue.
    pub fn queue(&self, caller: &CallerNumber, is_shared: bool) -> Option<QueuedCall> {
        let number = self.0.next.fetch_add(1, Ordering::Relaxed);
        let (sender, slot) = oneshot::channel();
        {
            let mut line = self.0.line.lock();
            if !line.has_room(caller, is_shared, self.0.queue_limit.load(Ordering::Relaxed)) {
                return None;
            }
            self.0.balance.fetch_sub(1, Ordering::AcqRel);
            line.push(caller, SlotWaiter { number, slot: sender });
        }
        // A slot may have become free since the caller tried to take one.
        self.0.assign_free_slots();
        Some(QueuedCall { slots: Arc::clone(&self.0), caller: caller.clone(), number, slot, since: Instant::now() })
    }

    /// Returns whether a call of this caller would get neither a slot nor room in the queue.
    /// `is_shared`: there can be several callers, so each may take only its share of the queue.
    pub fn is_full(&self, caller: &CallerNumber, is_shared: bool) -> bool {
        let limit = self.0.queue_limit.load(Ordering::Relaxed);
        self.free() == 0 && !self.0.line.lock().has_room(caller, is_shared, limit)
    }

    /// Returns the number of free slots.
    pub fn free(&self) -> usize {
        usize::try_from(self.0.balance.load(Ordering::Acquire)).unwrap_or(0)
    }

    /// Returns the number of slots that a caller holds.
    pub fn held(&self, caller: &CallerNumber) -> usize {
        self.0.held.of(caller).load(Ordering::Acquire)
    }

    /// Returns the number of waiting calls.
    pub fn waiting(&self) -> usize {
        self.0.line.lock().waiting
    }

    /// Changes the number of slots. Held slots stay with their holders; those beyond a smaller
    /// number are not given out again.
    pub fn set_number(&self, number: usize) {
        {
            let mut line = self.0.line.lock();
            let before = std::mem::replace(&mut line.number, signed(number));
            self.0.balance.fetch_add(line.number - before, Ordering::AcqRel);
        }
        self.0.assign_free_slots();
    }

    /// Changes how many calls may wait. Calls beyond a smaller number stay.
    pub fn set_queue_limit(&self, limit: usize) {
        self.0.queue_limit.store(limit, Ordering::Relaxed);
    }
}

/// Converts a number of slots, capped so that sums cannot overflow.
fn signed(number: usize) -> isize {
    isize::try_from(number).unwrap_or(isize::MAX).min(isize::MAX / 4)
}

impl FairSlotsState {
    /// Gives the free slots to waiting calls.
    fn assign_free_slots(self: &Arc<Self>) {
        while let Some((waiter, caller)) = self.next_waiter() {
            let slot = FairSlot { slots: Arc::clone(self), caller };
            // If the call is gone, its slot is dropped here, outside the lock.
            drop(waiter.slot.send(slot));
        }
    }

    /// Removes the waiting call that gets the next slot, if one is free, and counts the slot as
    /// held.
    fn next_waiter(&self) -> Option<(SlotWaiter, CallerNumber)> {
        let mut line = self.line.lock();
        let waiting = signed(line.waiting);
        if waiting == 0 || self.balance.load(Ordering::Acquire) + waiting <= 0 {
            return None;
        }
        let holds = |(caller, _): &(CallerNumber, _)| self.held.of(caller).load(Ordering::Acquire);
        // Among equals the first one, whose last turn is the longest ago.
        let (at, _) = line.queues.iter().enumerate().min_by_key(|(_, queue)| holds(queue))?;
        let (caller, mut queue) = line.queues.remove(at)?;
        let waiter = queue.pop_front()?;
        line.waiting -= 1;
        if !queue.is_empty() {
            line.queues.push_back((caller.clone(), queue));
        }
        self.held.of(&caller).fetch_add(1, Ordering::AcqRel);
        Some((waiter, caller))
    }

    /// Removes a waiting call from its queue, if it still waits.
    fn leave(&self, caller: &CallerNumber, number: u64) {
        let mut line = self.line.lock();
        let Some(at) = line.queues.iter().position(|(of, _)| of == caller) else { return };
        let Some((_, queue)) = line.queues.get_mut(at) else { return };
        let Some(place) = queue.iter().position(|waiter| waiter.number == number) else { return };
        drop(queue.remove(place));
        if queue.is_empty() {
            line.queues.remove(at);
        }
        line.waiting -= 1;
        self.balance.fetch_add(1, Ordering::AcqRel);
    }

    /// Returns whether another caller holds more slots than this one.
    fn is_behind(&self, caller: &CallerNumber) -> bool {
        let own = self.held.of(caller).load(Ordering::Acquire);
        self.held.all().any(|held| held.load(Ordering::Acquire) > own)
    }
}

impl SlotQueues {
    /// Appends a waiting call to its caller's queue.
    fn push(&mut self, caller: &CallerNumber, waiter: SlotWaiter) {
        self.waiting += 1;
        match self.queues.iter_mut().find(|(of, _)| of == caller) {
            Some((_, queue)) => queue.push_back(waiter),
            None => self.queues.push_back((caller.clone(), VecDeque::from([waiter]))),
        }
    }

    /// Returns whether one more call of this caller may wait. If callers share the queue
    /// (`is_shared`), each may have one call in it, and more as long as those are fewer than the
    /// positions left.
    fn has_room(&self, caller: &CallerNumber, is_shared: bool, limit: usize) -> bool {
        let left = limit.saturating_sub(self.waiting);
        if !is_shared {
            return left > 0;
        }
        let own = self.queues.iter().find(|(of, _)| of == caller).map_or(0, |(_, queue)| queue.len());
        own < left.max(limit.min(1))
    }
}
