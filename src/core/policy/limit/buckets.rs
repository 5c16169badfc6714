//! The live buckets of all limits, in tables of one part each that are locked in shards.

use std::borrow::Borrow;
use std::collections::HashMap;
use std::hash::{BuildHasher, Hash, Hasher};
use std::sync::Arc;
use std::time::Duration;

use foldhash::fast::RandomState;
use parking_lot::{Mutex, MutexGuard};

use super::meter::{Meter, MeterAnswer, StoredBucket};
use super::{LimitPart, PartIdentity};

/// Number of shards of a table, each with a lock of its own.
pub(in crate::policy) const SHARDS: usize = 16;

/// Most buckets of one shard: 65,536 for each part of a limit, if callers hash evenly.
pub(in crate::policy) const SHARD_CAPACITY: usize = 4096;

/// Time to wait for a call whose bucket finds no room, if not even a guess is possible.
pub(in crate::policy) const LEAST_WAIT: Duration = Duration::from_millis(1);

/// The key of a bucket's row on disk.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct BucketRow {
    /// The identity of the limit's part, as text.
    pub limit: String,
    /// The bucket's key, as text.
    pub bucket: String,
}

/// A bucket in use, for the disk.
#[derive(Clone, Debug)]
pub struct UsedBucket {
    pub row: BucketRow,
    /// The exact number of the bucket.
    pub exactly: StoredBucket,
    /// The bound on disk, unless another process has drawn as well.
    pub written: StoredBucket,
}

/// The bucket that a call draws from, and the amount.
pub(in crate::policy) struct BucketDraw<'t> {
    /// Number of calls that are drawn at once.
    pub(in crate::policy) calls: u32,
    pub(in crate::policy) table: &'t Arc<BucketTable>,
    pub(in crate::policy) meter: Meter,
    pub(in crate::policy) shard: &'t Mutex<BucketShard>,
    parts: [&'t str; 3],
}

impl<'t> BucketDraw<'t> {
    pub(in crate::policy) fn new(table: &'t Arc<BucketTable>, meter: Meter, parts: [&'t str; 3]) -> Self {
        Self { calls: 1, table, meter, shard: table.shard(parts), parts }
    }

    /// Returns the draw for this number of calls at once.
    pub(in crate::policy) fn times(self, calls: u32) -> Self {
        Self { calls, ..self }
    }

    pub(in crate::policy) fn key(&self) -> BucketKey {
        BucketKey(self.parts.map(Box::from))
    }
}

/// The buckets of one part of a limit.
#[derive(Debug)]
pub(in crate::policy) struct BucketTable {
    pub(in crate::policy) identity: PartIdentity,
    /// Whether the buckets are kept on disk. Calls at once are not, since none survives the
    /// process.
    pub(in crate::policy) durable: bool,
    /// The meter of the policy that made the table. Policies that share the table may have other
    /// numbers, but their times mean the same.
    meter: Meter,
    pub(in crate::policy) shards: [Mutex<BucketShard>; SHARDS],
    shard_capacity: usize,
    hasher: RandomState,
}

impl BucketTable {
    /// Makes the table of a part at `now`, with the buckets that `rows` has for it or for the same
    /// limit with another rate or burst.
    pub(in crate::policy) fn new(
        part: &LimitPart,
        shard_capacity: usize,
        durable: bool,
        rows: &HashMap<BucketRow, StoredBucket>,
        now: u64,
    ) -> Self {
        let table = Self {
            identity: part.identity.clone(),
            durable: durable && !part.meter.is_concurrent(),
            meter: part.meter,
            shards: std::array::from_fn(|_| Mutex::default()),
            shard_capacity,
            hasher: RandomState::default(),
        };
        let limit = table.identity.to_string();
        for (row, stored) in rows {
            let other_rate = || table.identity.other_rate(&row.limit);
            let Some(key) = BucketKey::of_row(&row.bucket) else { continue };
            if row.limit == limit {
                table.lock(key.parts()).restore(table.meter, key, stored.number());
            } else if let Some(from) = other_rate() {
                let state = table.meter.carried(from, stored.number(), now);
                table.lock(key.parts()).carry(table.meter, key, state, now);
            }
        }
        table
    }

    /// Copies the buckets of `old`, the same limit with another rate or burst, as they are at
    /// `now`.
    pub(in crate::policy) fn carry_over(&self, old: &Self, now: u64) {
        for shard in &old.shards {
            let buckets: Vec<(BucketKey, u64)> =
                shard.lock().buckets.iter().map(|(key, bucket)| (key.clone(), bucket.state)).collect();
            for (key, state) in buckets {
                let state = self.meter.carried(old.meter, state, now);
                self.lock(key.parts()).carry(self.meter, key, state, now);
            }
        }
    }

    pub(in crate::policy) fn shard(&self, parts: [&str; 3]) -> &Mutex<BucketShard> {
        let [first, others @ ..] = &self.shards;
        let index = self.hasher.hash_one(parts) % SHARDS as u64;
        usize::try_from(index).ok().and_then(|i| others.get(i.checked_sub(1)?)).unwrap_or(first)
    }

    pub(in crate::policy) fn lock(&self, parts: [&str; 3]) -> MutexGuard<'_, BucketShard> {
        self.shard(parts).lock()
    }

    /// Returns the buckets of the table that are on disk.
    pub(in crate::policy) fn used(&self) -> Vec<UsedBucket> {
        let limit = self.identity.to_string();
        let mut used = Vec::new();
        for shard in &self.shards {
            let shard = shard.lock();
            used.extend(shard.buckets.iter().filter(|(_, bucket)| 0 < bucket.written).map(|(key, bucket)| {
                UsedBucket {
                    row: BucketRow { limit: limit.clone(), bucket: key.row() },
                    exactly: self.meter.stored(bucket.state),
                    written: self.meter.stored(bucket.written),
                }
            }));
        }
        used
    }
}

/// One bucket. If the table is not on disk, only `state` counts.
#[derive(Clone, Copy, Debug)]
pub(in crate::policy) struct Bucket {
    /// The number of the bucket, see [`Meter`].
    pub(in crate::policy) state: u64,
    /// The number up to which the disk is sure to count calls as used.
    pub(in crate::policy) leased: u64,
    /// The bound that is on disk for sure, of this process or another.
    pub(in crate::policy) known: u64,
    /// The bound that this process wrote or read last. It may not have reached the disk yet.
    pub(in crate::policy) written: u64,
    /// Total amount by which draws of other processes have moved `state`.
    pub(in crate::policy) moved: u64,
    /// The last time at which a call found the bucket full.
    pub(in crate::policy) full_at: u64,
    /// A number that changes whenever the bucket was full in between: draws from before that have
    /// been refilled already.
    pub(in crate::policy) epoch: u64,
}

impl Bucket {
    /// Makes a bucket that was full before its first call.
    pub(in crate::policy) fn new(state: u64, full_at: u64, epoch: u64) -> Self {
        Self { state, leased: 0, known: 0, written: 0, moved: 0, full_at, epoch }
    }
}

/// The buckets behind one lock.
#[derive(Debug, Default)]
pub(in crate::policy) struct BucketShard {
    pub(in crate::policy) buckets: HashMap<BucketKey, Bucket, RandomState>,
    /// Least state of a bucket that is not listed. A thread that read its clock before a sweep must
    /// not find a dropped bucket fuller than it was.
    floor: u64,
    /// The earliest time at which a bucket can be full; a sweep before it finds nothing.
    sweep_at: u64,
    /// The epoch that was given out last.
    epochs: u64,
}

impl BucketShard {
    /// Returns the state after a draw, and whether it is admitted. Changes no bucket, but may drop
    /// full ones to make room.
    pub(in crate::policy) fn peek(&mut self, draw: &BucketDraw<'_>, now: u64) -> (u64, MeterAnswer) {
        let parts: &dyn KeyParts = &draw.parts;
        if let Some(bucket) = self.buckets.get(parts) {
            return draw.meter.admit(draw.calls, bucket.state, now);
        }
        if draw.table.shard_capacity <= self.buckets.len() {
            self.sweep(draw.meter, now);
        }
        if draw.table.shard_capacity <= self.buckets.len() {
            let wait = match draw.meter {
                Meter::Concurrent { places } => draw.meter.judge(u64::from(places) + 1, now),
                Meter::Rate { .. } | Meter::Day { .. } => {
                    let wait = Duration::from_nanos(self.sweep_at.saturating_sub(now));
                    MeterAnswer::RetryAfter(wait.max(LEAST_WAIT))
                }
            };
            return (self.floor, wait);
        }
        draw.meter.admit(draw.calls, self.floor, now)
    }

    /// Stores the state after a draw and returns the bucket.
    pub(in crate::policy) fn commit(&mut self, draw: &BucketDraw<'_>, state: u64, now: u64) -> Bucket {
        self.sweep_at = self.sweep_at.min(draw.meter.full_at(state));
        self.epochs += 1;
        let parts: &dyn KeyParts = &draw.parts;
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

    /// Adds a bucket as it was on disk.
    fn restore(&mut self, meter: Meter, key: BucketKey, state: u64) {
        self.epochs += 1;
        self.sweep_at = self.sweep_at.min(meter.full_at(state));
        let bucket = Bucket { leased: state, known: state, written: state, ..Bucket::new(state, 0, self.epochs) };
        self.buckets.insert(key, bucket);
    }

    /// Raises a bucket to the number that a bucket with another rate held. No row on disk has this
    /// number yet, so the next draw writes it.
    fn carry(&mut self, meter: Meter, key: BucketKey, state: u64, now: u64) {
        if state <= meter.full(now) {
            return;
        }
        self.sweep_at = self.sweep_at.min(meter.full_at(state));
        self.epochs += 1;
        let bucket = self.buckets.entry(key).or_insert(Bucket::new(state, now, self.epochs));
        bucket.state = bucket.state.max(state);
    }

    /// Gives back the draw of a call that will not be made. A bucket that was full since the draw
    /// is left alone, since it was refilled already.
    pub(in crate::policy) fn give_back(&mut self, parts: [&str; 3], meter: Meter, drawn_at: u64) {
        let parts: &dyn KeyParts = &parts;
        if let Some(bucket) = self.buckets.get_mut(parts).filter(|bucket| bucket.full_at <= drawn_at) {
            bucket.state = bucket.state.saturating_sub(meter.unit());
        }
    }

    /// Frees the slot of a call that ended.
    pub(in crate::policy) fn leave(&mut self, key: &BucketKey) {
        let Some(bucket) = self.buckets.get_mut(key) else { return };
        bucket.state = bucket.state.saturating_sub(1);
        if bucket.state == 0 {
            self.buckets.remove(key);
        }
    }

    /// Drops the buckets that are full again, also by the bound on disk.
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

/// The parts of a bucket's key, to look the bucket up without making a [`BucketKey`].
pub(in crate::policy) trait KeyParts {
    fn parts(&self) -> [&str; 3];
}

/// The key of a bucket: one text for each [`KeyPart`](super::KeyPart), empty if unused.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(in crate::policy) struct BucketKey([Box<str>; 3]);

impl BucketKey {
    /// Returns the form on disk: a JSON array.
    pub(in crate::policy) fn row(&self) -> String {
        serde_json::Value::from_iter(self.0.iter().map(|part| &**part)).to_string()
    }

    /// Parses a key in the form on disk.
    fn of_row(text: &str) -> Option<Self> {
        serde_json::from_str::<[String; 3]>(text).ok().map(|parts| Self(parts.map(String::into_boxed_str)))
    }
}

impl KeyParts for BucketKey {
    fn parts(&self) -> [&str; 3] {
        self.0.each_ref().map(|part| &**part)
    }
}

impl KeyParts for [&str; 3] {
    fn parts(&self) -> [&str; 3] {
        *self
    }
}

impl Hash for dyn KeyParts + '_ {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.parts().hash(state);
    }
}

impl PartialEq for dyn KeyParts + '_ {
    fn eq(&self, other: &Self) -> bool {
        self.parts() == other.parts()
    }
}

impl Eq for dyn KeyParts + '_ {}

impl<'p> Borrow<dyn KeyParts + 'p> for BucketKey {
    fn borrow(&self) -> &(dyn KeyParts + 'p) {
        self
    }
}

// Hashes as the borrowed form does, which a map relies on.
impl Hash for BucketKey {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.parts().hash(state);
    }
}

#[cfg(test)]
mod tests;
