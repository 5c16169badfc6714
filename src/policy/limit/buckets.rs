//! The live buckets of all limits.

use std::borrow::Borrow;
use std::collections::HashMap;
use std::hash::{BuildHasher, Hash, Hasher};
use std::ptr;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use foldhash::fast::RandomState;

use super::super::decide::Facts;
use super::super::{ItemRules, Policy, Stamp};
use super::lease::{Granted, Lease, Overdrawn};
use super::{Admission, Counts, Identity, KeyPart, Meter, Part, Rate, Stored};

/// Parts of a table that are locked each on their own.
const SHARDS: usize = 16;

/// Buckets that one shard may hold: 65,536 for each part of a limit, if callers hash evenly.
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
    /// Calls need leases.
    durable: bool,
    /// In the order of the policy's limits, and within each of its parts.
    tables: Vec<Vec<Arc<Table>>>,
}

/// Where the number of a bucket is on disk.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct RowId {
    /// Everything that makes the part of the limit the same one.
    pub(crate) limit: String,
    pub(crate) bucket: String,
}

/// A bucket that is in use, for the disk.
#[derive(Clone, Debug)]
pub(crate) struct Used {
    pub(crate) row: RowId,
    /// What is used, to the call.
    pub(crate) exactly: Stored,
    /// What the disk holds for it, unless another process has drawn as well.
    pub(crate) written: Stored,
}

/// What a call took.
#[derive(Debug, Default)]
pub(in crate::policy) struct Taken {
    /// Its places among the calls under way, where their number is limited.
    pub(in crate::policy) held: Option<Held>,
    /// What has to be on disk before the call may be sent.
    pub(in crate::policy) lease: Option<Lease>,
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
    /// All buckets full; nothing of them outlives the process.
    pub(crate) fn new(policy: &Policy) -> Self {
        Self::build(policy, &[], false, &HashMap::new())
    }

    /// Buckets as they were left on disk, where they are kept from now on: calls bring leases.
    pub(crate) fn durable(policy: &Policy, rows: &HashMap<RowId, Stored>) -> Self {
        Self::build(policy, &[], true, rows)
    }

    /// The limiter for the policy that replaces this one's.
    ///
    /// Parts of limits that stay the same share their buckets with this limiter, so calls still
    /// decided by the old policy count, and a reload refills nothing. Where buckets are kept on disk,
    /// those of a part that comes back are found again by their first lease.
    pub(crate) fn carry_over(&self, new: &Policy) -> Self {
        Self::build(new, &self.tables, self.durable, &HashMap::new())
    }

    fn build(policy: &Policy, old: &[Vec<Arc<Table>>], durable: bool, rows: &HashMap<RowId, Stored>) -> Self {
        let table = |part: &Part| {
            let same = old.iter().flatten().find(|table| table.identity == part.identity);
            same.map_or_else(|| Arc::new(Table::new(part, SHARD_CAPACITY, durable, rows)), Arc::clone)
        };
        let tables = policy.limits.iter().map(|limit| limit.parts.iter().map(table).collect());
        Self { stamp: policy.stamp.clone(), durable, tables: tables.collect() }
    }

    /// Takes one call from every limit that matches, or, if one refuses, from none. `now` is the time since 1970.
    pub(in crate::policy) fn take(
        &self,
        policy: &Policy,
        item: &ItemRules,
        facts: &Facts<'_>,
        now: Duration,
    ) -> Result<Taken, Limited> {
        let mut draws = Vec::new();
        for (index, limit) in &item.limits {
            if limit.target.covers(facts.caller) {
                let tables = self.tables.get(*index).filter(|_| self.stamp.is(&policy.stamp));
                let tables = tables.ok_or(Limited::Foreign)?;
                let bucket = limit.bucket(facts);
                draws.extend(tables.iter().zip(&limit.parts).map(|(table, part)| Draw::new(table, part.meter, bucket)));
            }
        }
        if draws.is_empty() { Ok(Taken::default()) } else { take_all(draws, nanos(now)) }
    }

    /// Every bucket that is on disk, for a clean stop.
    pub(crate) fn used(&self) -> Vec<Used> {
        self.tables.iter().flatten().filter(|table| table.durable).flat_map(|table| table.used()).collect()
    }
}

fn nanos(now: Duration) -> u64 {
    u64::try_from(now.as_nanos()).unwrap_or(u64::MAX)
}

/// Requests by caller or by address, whatever they ask for: a limit that stands before any policy.
#[derive(Debug)]
pub(crate) struct CallerLimiter {
    table: Arc<Table>,
    meter: Meter,
}

impl CallerLimiter {
    /// `None` for a rate or burst that admits nothing or takes a century to refill.
    pub(crate) fn new(rate: Rate, burst: u32) -> Option<Self> {
        let meter = Meter::rate(rate, burst).ok()?;
        let counts = Counts::Rate { rate, burst };
        let identity = Identity { id: Arc::from("caller-rate"), key: vec![KeyPart::Caller], counts };
        let part = Part { identity, meter };
        Some(Self { table: Arc::new(Table::new(&part, SHARD_CAPACITY, false, &HashMap::new())), meter })
    }

    /// Takes one request.
    ///
    /// # Errors
    /// The time to wait.
    pub(crate) fn take(&self, caller: &str, now: Duration) -> Result<(), Duration> {
        let draw = Draw::new(&self.table, self.meter, [caller, "", ""]);
        take_all(vec![draw], nanos(now)).map(drop).map_err(|limited| match limited {
            Limited::Until { retry_after, .. } => retry_after,
            Limited::Foreign => LEAST_WAIT,
        })
    }
}

/// The places that a call has among the calls under way. Dropping it gives them back.
#[derive(Debug)]
pub(in crate::policy) struct Held(Vec<(Arc<Table>, Key)>);

impl Drop for Held {
    fn drop(&mut self) {
        for (table, key) in &self.0 {
            table.lock(key.parts()).leave(key);
        }
    }
}

/// One bucket that a call draws from.
struct Draw<'t> {
    table: &'t Arc<Table>,
    meter: Meter,
    shard: &'t Mutex<Shard>,
    parts: [&'t str; 3],
}

impl<'t> Draw<'t> {
    fn new(table: &'t Arc<Table>, meter: Meter, parts: [&'t str; 3]) -> Self {
        Self { table, meter, shard: table.shard(parts), parts }
    }

    fn key(&self) -> Key {
        Key(self.parts.map(Box::from))
    }
}

/// Peeks at all, then commits to all, with all shards locked.
fn take_all(mut draws: Vec<Draw<'_>>, now: u64) -> Result<Taken, Limited> {
    // By address, the one order that all threads and the limiters of several policies share: no
    // deadlock. The same shard cannot occur twice, since each part of each limit has its own table.
    draws.sort_unstable_by_key(|draw| ptr::from_ref(draw.shard).addr());
    let mut locked: Vec<(Draw<'_>, MutexGuard<'_, Shard>, u64)> = Vec::with_capacity(draws.len());
    let mut worst: Option<(Duration, &Arc<str>)> = None;
    for draw in draws {
        // A panic cannot leave a shard half changed: each change is one insertion.
        let mut shard = draw.shard.lock().unwrap_or_else(PoisonError::into_inner);
        match shard.peek(&draw, now) {
            (state, Admission::Admit) => locked.push((draw, shard, state)),
            (_, Admission::RetryAfter(wait)) => {
                let refusal = (wait, &draw.table.identity.id);
                worst = worst.max(Some(refusal));
            }
        }
    }
    if let Some((retry_after, limit)) = worst {
        return Err(Limited::Until { limit: Arc::clone(limit), retry_after });
    }
    let mut needs_lease = false;
    let mut places = Vec::new();
    let mut drawn = Vec::new();
    for (draw, shard, state) in &mut locked {
        let bucket = shard.commit(draw, *state, now);
        needs_lease |= draw.table.durable && bucket.leased < bucket.state;
        if draw.meter.is_concurrent() {
            places.push((Arc::clone(draw.table), draw.key()));
        } else {
            drawn.push(bucket);
        }
    }
    let held = (!places.is_empty()).then_some(Held(places));
    let lease = needs_lease.then(|| {
        let draws = locked.iter().map(|(draw, ..)| draw).filter(|draw| !draw.meter.is_concurrent());
        let claims = draws.zip(drawn).map(|(draw, bucket)| {
            let (table, key, meter) = (Arc::clone(draw.table), draw.key(), draw.meter);
            let epoch = AtomicU64::new(bucket.epoch);
            Withdrawal { table, key, meter, now, after: bucket.state, moved: bucket.moved, epoch }
        });
        Lease::new(claims)
    });
    Ok(Taken { held, lease })
}

/// The buckets of one part of a limit.
#[derive(Debug)]
struct Table {
    identity: Identity,
    /// The buckets are on disk. Calls at once are not: none survives the process.
    durable: bool,
    /// Of the policy that made the table. Policies that share it may have other numbers, but times are alike in all of them.
    meter: Meter,
    shards: [Mutex<Shard>; SHARDS],
    shard_capacity: usize,
    hasher: RandomState,
}

impl Table {
    fn new(part: &Part, shard_capacity: usize, durable: bool, rows: &HashMap<RowId, Stored>) -> Self {
        let table = Self {
            identity: part.identity.clone(),
            durable: durable && !part.meter.is_concurrent(),
            meter: part.meter,
            shards: std::array::from_fn(|_| Mutex::default()),
            shard_capacity,
            hasher: RandomState::default(),
        };
        let limit = table.identity.to_string();
        for (row, stored) in rows.iter().filter(|(row, _)| row.limit == limit) {
            if let Some(key) = Key::of_row(&row.bucket) {
                table.lock(key.parts()).restore(table.meter, key, stored.number());
            }
        }
        table
    }

    fn shard(&self, parts: [&str; 3]) -> &Mutex<Shard> {
        let [first, others @ ..] = &self.shards;
        let index = self.hasher.hash_one(parts) % SHARDS as u64;
        usize::try_from(index).ok().and_then(|i| others.get(i.checked_sub(1)?)).unwrap_or(first)
    }

    fn lock(&self, parts: [&str; 3]) -> MutexGuard<'_, Shard> {
        self.shard(parts).lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn used(&self) -> Vec<Used> {
        let limit = self.identity.to_string();
        let mut used = Vec::new();
        for shard in &self.shards {
            let shard = shard.lock().unwrap_or_else(PoisonError::into_inner);
            used.extend(shard.buckets.iter().filter(|(_, bucket)| 0 < bucket.written).map(|(key, bucket)| Used {
                row: RowId { limit: limit.clone(), bucket: key.row() },
                exactly: self.meter.stored(bucket.state),
                written: self.meter.stored(bucket.written),
            }));
        }
        used
    }
}

/// One bucket. Without a disk only `state` counts.
#[derive(Clone, Copy, Debug)]
struct Bucket {
    /// The number of its [`Meter`].
    state: u64,
    /// Up to here the disk holds it as used for sure.
    leased: u64,
    /// What the disk holds for sure, by this process or others.
    known: u64,
    /// What this process last wrote or found on disk; it may be on its way there.
    written: u64,
    /// How far what other processes drew has moved `state`, all together.
    moved: u64,
    /// When a call last found it full.
    full_at: u64,
    /// Differs whenever it has been full in between: what was drawn before that has been refilled already.
    epoch: u64,
}

impl Bucket {
    /// One that was full before its first call.
    fn new(state: u64, full_at: u64, epoch: u64) -> Self {
        Self { state, leased: 0, known: 0, written: 0, moved: 0, full_at, epoch }
    }
}

#[derive(Debug, Default)]
struct Shard {
    buckets: HashMap<Key, Bucket, RandomState>,
    /// State of buckets that are not listed. A thread that read its clock before a sweep must not
    /// find a dropped bucket fuller than it was.
    floor: u64,
    /// No bucket is full before this time, so sweeping earlier would be in vain.
    sweep_at: u64,
    epochs: u64,
}

impl Shard {
    /// The state after one more call, and whether that is admitted; changes no bucket.
    fn peek(&mut self, draw: &Draw<'_>, now: u64) -> (u64, Admission) {
        let parts: &dyn Parts = &draw.parts;
        if let Some(bucket) = self.buckets.get(parts) {
            return draw.meter.admit(bucket.state, now);
        }
        if draw.table.shard_capacity <= self.buckets.len() {
            self.sweep(draw.meter, now);
        }
        if draw.table.shard_capacity <= self.buckets.len() {
            let wait = match draw.meter {
                Meter::Concurrent { places } => draw.meter.judge(u64::from(places) + 1, now),
                Meter::Rate { .. } | Meter::Day { .. } => {
                    let wait = Duration::from_nanos(self.sweep_at.saturating_sub(now));
                    Admission::RetryAfter(wait.max(LEAST_WAIT))
                }
            };
            return (self.floor, wait);
        }
        draw.meter.admit(self.floor, now)
    }

    fn commit(&mut self, draw: &Draw<'_>, state: u64, now: u64) -> Bucket {
        self.sweep_at = self.sweep_at.min(draw.meter.full_at(state));
        self.epochs += 1;
        let parts: &dyn Parts = &draw.parts;
        if let Some(bucket) = self.buckets.get_mut(parts) {
            if bucket.state <= draw.meter.full(now) {
                (bucket.full_at, bucket.epoch) = (now, self.epochs);
            }
            bucket.state = state;
            return *bucket;
        }
        let bucket = Bucket::new(state, now, self.epochs);
        self.buckets.insert(draw.key(), bucket);
        bucket
    }

    /// A bucket as it was on disk.
    fn restore(&mut self, meter: Meter, key: Key, state: u64) {
        self.epochs += 1;
        self.sweep_at = self.sweep_at.min(meter.full_at(state));
        let bucket = Bucket { leased: state, known: state, written: state, ..Bucket::new(state, 0, self.epochs) };
        self.buckets.insert(key, bucket);
    }

    /// A call ends that had a place.
    fn leave(&mut self, key: &Key) {
        let Some(bucket) = self.buckets.get_mut(key) else { return };
        bucket.state = bucket.state.saturating_sub(1);
        if bucket.state == 0 {
            self.buckets.remove(key);
        }
    }

    /// Drops the buckets that are full again, for the disk too.
    fn sweep(&mut self, meter: Meter, now: u64) {
        if now < self.sweep_at {
            return;
        }
        let full_at = |bucket: &Bucket| meter.full_at(bucket.state.max(bucket.written));
        self.buckets.retain(|_, bucket| now < full_at(bucket));
        self.floor = self.floor.max(meter.full(now));
        self.sweep_at = self.buckets.values().map(full_at).min().unwrap_or(u64::MAX);
    }
}

/// What a call took from one bucket.
#[derive(Debug)]
pub(super) struct Withdrawal {
    table: Arc<Table>,
    key: Key,
    meter: Meter,
    now: u64,
    /// The bucket right after the call took its part, and what tells whether that still means the same.
    after: u64,
    moved: u64,
    epoch: AtomicU64,
}

impl Withdrawal {
    pub(super) fn row(&self) -> RowId {
        RowId { limit: self.table.identity.to_string(), bucket: self.key.row() }
    }

    /// Whether the disk holds it as used already.
    pub(super) fn is_leased(&self) -> bool {
        let shard = self.table.lock(self.key.parts());
        let asked = |bucket: &Bucket| self.after.saturating_add(bucket.moved.saturating_sub(self.moved));
        shard.buckets.get(&self.key).is_some_and(|bucket| asked(bucket) <= bucket.leased)
    }

    /// See [`Claim::extend`](super::Claim::extend).
    pub(super) fn extend(&self, on_disk: Option<Stored>) -> Result<Granted, Overdrawn> {
        let stored = on_disk.map_or(0, Stored::number);
        let mut shard = self.table.lock(self.key.parts());
        let epoch = self.epoch.load(Ordering::Relaxed);
        let fresh = Bucket { moved: self.moved, ..Bucket::new(self.after, self.now, epoch) };
        let bucket = shard.buckets.entry(self.key.clone()).or_insert(fresh);
        let asked = self.after.saturating_add(bucket.moved.saturating_sub(self.moved));
        if asked <= bucket.written && bucket.written <= stored {
            return Ok(Granted::new(None, bucket.written));
        }
        let now = self.now.max(bucket.full_at);
        let full = self.meter.full(now);
        // What others drew comes before what this process draws beyond its last lease.
        let others = stored.max(full).saturating_sub(bucket.written.max(full));
        let has_others = bucket.written < stored;
        if has_others {
            (bucket.known, bucket.written) = (stored, stored);
        }
        bucket.state = bucket.state.saturating_add(others);
        bucket.moved = bucket.moved.saturating_add(others);
        let is_late = bucket.epoch != epoch;
        if is_late && !has_others && matches!(self.meter, Meter::Rate { .. }) {
            // Time has refilled it, so it would be nothing on disk either.
            return Ok(Granted::new(None, 0));
        }
        // A call that is late in any other way counts anew: the day of its first count is over.
        let after = if is_late {
            bucket.state.max(full).saturating_add(self.meter.unit())
        } else {
            asked.saturating_add(others)
        };
        if let Admission::RetryAfter(retry_after) = self.meter.judge(after, now) {
            return Err(Overdrawn { limit: Arc::clone(&self.table.identity.id), retry_after });
        }
        if is_late {
            bucket.state = after;
            self.epoch.store(bucket.epoch, Ordering::Relaxed);
        }
        let up_to = self.meter.ahead(after, now);
        bucket.written = up_to;
        Ok(Granted::new(Some(self.meter.stored(up_to)), up_to))
    }

    /// The disk holds it as used up to there.
    pub(super) fn leased(&self, up_to: u64) {
        if let Some(bucket) = self.table.lock(self.key.parts()).buckets.get_mut(&self.key) {
            bucket.leased = bucket.leased.max(up_to);
            bucket.known = bucket.known.max(up_to);
            bucket.written = bucket.written.max(up_to);
        }
    }

    /// What was written is not on the disk.
    pub(super) fn unwritten(&self) {
        if let Some(bucket) = self.table.lock(self.key.parts()).buckets.get_mut(&self.key) {
            bucket.written = bucket.known;
        }
    }

    /// The call will not be made.
    pub(super) fn give_back(&self) {
        let epoch = self.epoch.load(Ordering::Relaxed);
        let mut shard = self.table.lock(self.key.parts());
        if let Some(bucket) = shard.buckets.get_mut(&self.key).filter(|bucket| bucket.epoch == epoch) {
            bucket.state = bucket.state.saturating_sub(self.meter.unit());
        }
    }
}

/// Parts of a bucket's key, to look one up without making a [`Key`].
trait Parts {
    fn parts(&self) -> [&str; 3];
}

#[derive(Clone, Debug)]
struct Key([Box<str>; 3]);

impl Key {
    /// The form on disk: a JSON array.
    fn row(&self) -> String {
        serde_json::Value::from_iter(self.0.iter().map(|part| &**part)).to_string()
    }

    fn of_row(text: &str) -> Option<Self> {
        serde_json::from_str::<[String; 3]>(text).ok().map(|parts| Self(parts.map(String::into_boxed_str)))
    }
}

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
