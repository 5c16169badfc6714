//! The live buckets of all limits.

use std::borrow::Borrow;
use std::collections::HashMap;
use std::hash::{BuildHasher, Hash, Hasher};
use std::ptr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use foldhash::fast::RandomState;

use super::super::decide::Facts;
use super::super::{ItemRules, Policy, Stamp};
use super::{Admission, Identity, KeyPart, Limit, Quota, Rate, admit};

/// Parts of a limit's table that are locked each on their own.
const SHARDS: usize = 16;

/// Buckets that one shard may hold: 65,536 for each limit, if callers hash evenly.
const SHARD_CAPACITY: usize = 4096;

/// Wait of a call that finds no room for its bucket, when not even a guess is possible.
const LEAST_WAIT: Duration = Duration::from_millis(1);

/// How much of each limit is used up. One belongs to each policy; calls share it.
///
/// A bucket exists while it is not full. When a table has no more room, buckets that are full again
/// are dropped; if there are none, a call that needs a new one is refused.
#[derive(Debug)]
pub(crate) struct Limiter {
    stamp: Stamp,
    /// In the order of the policy's limits.
    tables: Vec<Arc<Table>>,
}

/// Why nothing was taken.
#[derive(Debug)]
pub(in crate::policy) enum Limited {
    /// The limit that takes longest, and how long.
    Until { limit: Arc<str>, retry_after: Duration },
    /// The limiter is that of another policy.
    Foreign,
}

impl Limiter {
    /// All buckets full.
    pub(crate) fn new(policy: &Policy) -> Self {
        Self::build(policy, &[])
    }

    /// The limiter for the policy that replaces this one's.
    ///
    /// Limits with the same id, key, rate and burst share their buckets with this limiter, so calls
    /// still decided by the old policy count, and a reload refills nothing.
    pub(crate) fn carry_over(&self, new: &Policy) -> Self {
        Self::build(new, &self.tables)
    }

    fn build(policy: &Policy, old: &[Arc<Table>]) -> Self {
        let tables = policy.limits.iter().map(|limit| {
            let same = old.iter().find(|table| table.identity == limit.identity);
            same.map_or_else(|| Arc::new(Table::new(limit, SHARD_CAPACITY)), Arc::clone)
        });
        Self { stamp: policy.stamp.clone(), tables: tables.collect() }
    }

    /// Takes one call from every limit that matches, or, if one refuses, from none.
    pub(in crate::policy) fn take(
        &self,
        policy: &Policy,
        item: &ItemRules,
        facts: &Facts<'_>,
        now: Duration,
    ) -> Result<(), Limited> {
        let mut draws = Vec::new();
        for (index, limit) in &item.limits {
            if limit.target.covers(facts.caller) {
                let table = self.tables.get(*index).filter(|_| self.stamp.is(&policy.stamp));
                let table = table.ok_or(Limited::Foreign)?;
                draws.push(Draw::new(table, limit.bucket(facts)));
            }
        }
        take_all(draws, u64::try_from(now.as_nanos()).unwrap_or(u64::MAX))
    }
}

/// Requests by caller or by address, whatever they ask for: a limit that stands before any policy.
#[derive(Debug)]
pub(crate) struct CallerLimiter(Table);

impl CallerLimiter {
    /// `None` for a rate or burst that admits nothing or takes a century to refill.
    pub(crate) fn new(rate: Rate, burst: u32) -> Option<Self> {
        let quota = Quota::new(rate, burst).ok()?;
        let identity = Identity { id: Arc::from("caller-rate"), key: vec![KeyPart::Caller], rate, burst };
        Some(Self(Table::of(identity, quota, SHARD_CAPACITY)))
    }

    /// How long a caller that takes no request has to wait for one. A caller without a bucket never has to.
    pub(crate) fn wait(&self, caller: &str, now: Duration) -> Option<Duration> {
        let parts = [caller, "", ""];
        let now = u64::try_from(now.as_nanos()).unwrap_or(u64::MAX);
        let shard = self.0.shard(parts).lock().unwrap_or_else(PoisonError::into_inner);
        let parts: &dyn Parts = &parts;
        match admit(*shard.buckets.get(parts)?, self.0.quota, now) {
            (_, Admission::Admit) => None,
            (_, Admission::RetryAfter(wait)) => Some(wait),
        }
    }

    /// Takes one request.
    ///
    /// # Errors
    /// The time to wait.
    pub(crate) fn take(&self, caller: &str, now: Duration) -> Result<(), Duration> {
        let draw = Draw::new(&self.0, [caller, "", ""]);
        take_all(vec![draw], u64::try_from(now.as_nanos()).unwrap_or(u64::MAX)).map_err(|limited| match limited {
            Limited::Until { retry_after, .. } => retry_after,
            Limited::Foreign => LEAST_WAIT,
        })
    }
}

/// One bucket that a call draws from.
struct Draw<'t> {
    table: &'t Table,
    shard: &'t Mutex<Shard>,
    parts: [&'t str; 3],
}

impl<'t> Draw<'t> {
    fn new(table: &'t Table, parts: [&'t str; 3]) -> Self {
        Self { table, shard: table.shard(parts), parts }
    }
}

/// Peeks at all, then commits to all, with all shards locked.
fn take_all(mut draws: Vec<Draw<'_>>, now: u64) -> Result<(), Limited> {
    // By address, the one order that all threads and the limiters of several policies share: no
    // deadlock. The same shard cannot occur twice, since each limit has its own table.
    draws.sort_unstable_by_key(|draw| ptr::from_ref(draw.shard).addr());
    let mut held: Vec<(Draw<'_>, MutexGuard<'_, Shard>, u64)> = Vec::with_capacity(draws.len());
    let mut worst: Option<(Duration, &Arc<str>)> = None;
    for draw in draws {
        // A panic cannot leave a shard half changed: each change is one insertion.
        let mut shard = draw.shard.lock().unwrap_or_else(PoisonError::into_inner);
        match shard.peek(&draw, now) {
            (state, Admission::Admit) => held.push((draw, shard, state)),
            (_, Admission::RetryAfter(wait)) => {
                let refusal = (wait, &draw.table.identity.id);
                worst = worst.max(Some(refusal));
            }
        }
    }
    if let Some((retry_after, limit)) = worst {
        return Err(Limited::Until { limit: Arc::clone(limit), retry_after });
    }
    for (draw, shard, state) in &mut held {
        shard.commit(draw, *state);
    }
    Ok(())
}

/// The buckets of one limit.
#[derive(Debug)]
struct Table {
    identity: Identity,
    quota: Quota,
    shards: [Mutex<Shard>; SHARDS],
    shard_capacity: usize,
    hasher: RandomState,
}

impl Table {
    fn new(limit: &Limit, shard_capacity: usize) -> Self {
        Self::of(limit.identity.clone(), limit.quota, shard_capacity)
    }

    fn of(identity: Identity, quota: Quota, shard_capacity: usize) -> Self {
        Self {
            identity,
            quota,
            shards: std::array::from_fn(|_| Mutex::default()),
            shard_capacity,
            hasher: RandomState::default(),
        }
    }

    fn shard(&self, parts: [&str; 3]) -> &Mutex<Shard> {
        let [first, others @ ..] = &self.shards;
        let index = self.hasher.hash_one(parts) % SHARDS as u64;
        usize::try_from(index).ok().and_then(|i| others.get(i.checked_sub(1)?)).unwrap_or(first)
    }
}

#[derive(Debug, Default)]
struct Shard {
    /// Bucket to the time at which it is full again, in nanoseconds.
    buckets: HashMap<Key, u64, RandomState>,
    /// State of buckets that are not listed. A thread that read its clock before a sweep must not
    /// find a dropped bucket fuller than it was.
    floor: u64,
    /// No bucket is full before this time, so sweeping earlier would be in vain.
    sweep_at: u64,
}

impl Shard {
    /// The state after one more call, and whether that is admitted; changes no bucket.
    fn peek(&mut self, draw: &Draw<'_>, now: u64) -> (u64, Admission) {
        let parts: &dyn Parts = &draw.parts;
        if let Some(state) = self.buckets.get(parts) {
            return admit(*state, draw.table.quota, now);
        }
        if draw.table.shard_capacity <= self.buckets.len() {
            self.sweep(now);
        }
        if draw.table.shard_capacity <= self.buckets.len() {
            let wait = Duration::from_nanos(self.sweep_at.saturating_sub(now)).max(LEAST_WAIT);
            return (self.floor, Admission::RetryAfter(wait));
        }
        admit(self.floor, draw.table.quota, now)
    }

    fn commit(&mut self, draw: &Draw<'_>, state: u64) {
        self.sweep_at = self.sweep_at.min(state);
        let parts: &dyn Parts = &draw.parts;
        if let Some(bucket) = self.buckets.get_mut(parts) {
            *bucket = state;
        } else {
            self.buckets.insert(Key(draw.parts.map(Box::from)), state);
        }
    }

    /// Drops the buckets that are full again.
    fn sweep(&mut self, now: u64) {
        if now < self.sweep_at {
            return;
        }
        self.buckets.retain(|_, state| now < *state);
        self.floor = self.floor.max(now);
        self.sweep_at = self.buckets.values().copied().min().unwrap_or(u64::MAX);
    }
}

/// Parts of a bucket's key, to look one up without making a [`Key`].
trait Parts {
    fn parts(&self) -> [&str; 3];
}

#[derive(Debug)]
struct Key([Box<str>; 3]);

impl Parts for Key {
    fn parts(&self) -> [&str; 3] {
        self.0.each_ref().map(|part| &**part)
    }
}

impl Parts for [&str; 3] {
    fn parts(&self) -> [&str; 3] {
        *self
    }
}

impl Hash for dyn Parts + '_ {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.parts().hash(state);
    }
}

impl PartialEq for dyn Parts + '_ {
    fn eq(&self, other: &Self) -> bool {
        self.parts() == other.parts()
    }
}

impl Eq for dyn Parts + '_ {}

impl<'p> Borrow<dyn Parts + 'p> for Key {
    fn borrow(&self) -> &(dyn Parts + 'p) {
        self
    }
}

// As the borrowed form does, which a map relies on.
impl Hash for Key {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.parts().hash(state);
    }
}

impl PartialEq for Key {
    fn eq(&self, other: &Self) -> bool {
        self.0 == other.0
    }
}

impl Eq for Key {}

#[cfg(test)]
mod tests;
