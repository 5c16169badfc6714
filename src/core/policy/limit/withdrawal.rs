//! A withdrawal: the draw of a call from one bucket, and the bound that it needs on disk.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use super::buckets::{Bucket, BucketKey, BucketRow, BucketTable, KeyParts as _};
use super::meter::{Meter, MeterAnswer, StoredBucket};

/// A bound that covers a call, once it is durable.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LeaseBound {
    /// The bound to write; `None` if the disk has it already.
    pub write: Option<StoredBucket>,
    /// The bound as the bucket's number.
    pub(in crate::policy) up_to: u64,
}

/// The refusal of a call because other processes have used the limit up.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OverdrawnLimit {
    pub limit: Arc<str>,
    pub retry_after: Duration,
}

impl LeaseBound {
    fn new(write: Option<StoredBucket>, up_to: u64) -> Self {
        Self { write, up_to }
    }
}

/// The draw of a call from one bucket.
#[derive(Debug)]
pub(in crate::policy) struct Withdrawal {
    pub(in crate::policy) table: Arc<BucketTable>,
    pub(in crate::policy) key: BucketKey,
    pub(in crate::policy) meter: Meter,
    /// Time of the draw, in nanoseconds since 1970.
    pub(in crate::policy) now: u64,
    /// The bucket's number right after the draw.
    pub(in crate::policy) after: u64,
    /// The bucket's [`Bucket::moved`] at the draw; a later difference is added to `after`.
    pub(in crate::policy) moved: u64,
    /// The bucket's [`Bucket::epoch`] at the draw; in another epoch the draw has been refilled.
    pub(in crate::policy) epoch: AtomicU64,
}

impl Withdrawal {
    /// Returns the key of the bucket's row on disk.
    pub(in crate::policy) fn row(&self) -> BucketRow {
        BucketRow { limit: self.table.identity.to_string(), bucket: self.key.row() }
    }

    /// Whether the disk already counts the draw as used.
    pub(in crate::policy) fn is_leased(&self) -> bool {
        let shard = self.table.lock(self.key.parts());
        let asked = |bucket: &Bucket| self.after.saturating_add(bucket.moved.saturating_sub(self.moved));
        shard.buckets.get(&self.key).is_some_and(|bucket| asked(bucket) <= bucket.leased)
    }

    /// Extends the bound on disk, see [`Claim::extend`](super::lease::LeaseClaim::extend).
    pub(in crate::policy) fn extend(&self, on_disk: Option<StoredBucket>) -> Result<LeaseBound, OverdrawnLimit> {
        let stored = on_disk.map_or(0, StoredBucket::number);
        let mut shard = self.table.lock(self.key.parts());
        let epoch = self.epoch.load(Ordering::Relaxed);
        let fresh = Bucket { moved: self.moved, ..Bucket::new(self.after, self.now, epoch) };
        let bucket = shard.buckets.entry(self.key.clone()).or_insert(fresh);
        let asked = self.after.saturating_add(bucket.moved.saturating_sub(self.moved));
        if asked <= bucket.written && bucket.written <= stored {
            return Ok(LeaseBound::new(None, bucket.written));
        }
        let now = self.now.max(bucket.full_at);
        let full = self.meter.full(now);
        // Draws of others come before draws of this process beyond its last lease.
        let others = stored.max(full).saturating_sub(bucket.written.max(full));
        let has_others = bucket.written < stored;
        if has_others {
            (bucket.known, bucket.written) = (stored, stored);
        }
        bucket.state = bucket.state.saturating_add(others);
        bucket.moved = bucket.moved.saturating_add(others);
        let is_late = bucket.epoch != epoch;
        if is_late && !has_others && matches!(self.meter, Meter::Rate { .. }) {
            // Time has refilled the bucket, so the draw would be nothing on disk either.
            return Ok(LeaseBound::new(None, 0));
        }
        // For a late draw of another kind the call counts anew, since the day of its first count is
        // over.
        let after = if is_late {
            bucket.state.max(full).saturating_add(self.meter.unit())
        } else {
            asked.saturating_add(others)
        };
        if let MeterAnswer::RetryAfter(retry_after) = self.meter.judge(after, now) {
            return Err(OverdrawnLimit { limit: Arc::clone(&self.table.identity.id), retry_after });
        }
        if is_late {
            bucket.state = after;
            self.epoch.store(bucket.epoch, Ordering::Relaxed);
        }
        let up_to = self.meter.ahead(after, now);
        bucket.written = up_to;
        Ok(LeaseBound::new(Some(self.meter.stored(up_to)), up_to))
    }

    /// Notes that the bound up to `up_to` is durable.
    pub(in crate::policy) fn leased(&self, up_to: u64) {
        if let Some(bucket) = self.table.lock(self.key.parts()).buckets.get_mut(&self.key) {
            bucket.leased = bucket.leased.max(up_to);
            bucket.known = bucket.known.max(up_to);
            bucket.written = bucket.written.max(up_to);
        }
    }

    /// Forgets the bound that was not written.
    pub(in crate::policy) fn unwritten(&self) {
        if let Some(bucket) = self.table.lock(self.key.parts()).buckets.get_mut(&self.key) {
            bucket.written = bucket.known;
        }
    }

    /// Gives the draw back, because the call will not be made. A draw of an earlier epoch is left
    /// alone, since it was refilled already.
    pub(in crate::policy) fn give_back(&self) {
        let epoch = self.epoch.load(Ordering::Relaxed);
        let mut shard = self.table.lock(self.key.parts());
        if let Some(bucket) = shard.buckets.get_mut(&self.key).filter(|bucket| bucket.epoch == epoch) {
            bucket.state = bucket.state.saturating_sub(self.meter.unit());
        }
    }
}
