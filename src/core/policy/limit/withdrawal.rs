//! The draw of a call from one bucket, and its bound for the disk.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use super::buckets::{Bucket, Key, Parts as _, RowId, Table};
use super::meter::{Admission, Meter, Stored};

/// A bound that covers a call, once it is durable.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Granted {
    /// The bound to write; `None` if the disk has it already.
    pub write: Option<Stored>,
    pub(in crate::policy) up_to: u64,
}

/// Other processes have used the limit up.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Overdrawn {
    pub limit: Arc<str>,
    pub retry_after: Duration,
}

impl Granted {
    fn new(write: Option<Stored>, up_to: u64) -> Self {
        Self { write, up_to }
    }
}

/// The draw of a call from one bucket.
#[derive(Debug)]
pub(in crate::policy) struct Withdrawal {
    pub(in crate::policy) table: Arc<Table>,
    pub(in crate::policy) key: Key,
    pub(in crate::policy) meter: Meter,
    pub(in crate::policy) now: u64,
    /// The bucket right after the call took its part, and what tells whether that still means the same.
    pub(in crate::policy) after: u64,
    pub(in crate::policy) moved: u64,
    pub(in crate::policy) epoch: AtomicU64,
}

impl Withdrawal {
    pub(in crate::policy) fn row(&self) -> RowId {
        RowId { limit: self.table.identity.to_string(), bucket: self.key.row() }
    }

    /// Whether the disk holds it as used already.
    pub(in crate::policy) fn is_leased(&self) -> bool {
        let shard = self.table.lock(self.key.parts());
        let asked = |bucket: &Bucket| self.after.saturating_add(bucket.moved.saturating_sub(self.moved));
        shard.buckets.get(&self.key).is_some_and(|bucket| asked(bucket) <= bucket.leased)
    }

    /// See [`Claim::extend`](super::lease::Claim::extend).
    pub(in crate::policy) fn extend(&self, on_disk: Option<Stored>) -> Result<Granted, Overdrawn> {
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
    pub(in crate::policy) fn leased(&self, up_to: u64) {
        if let Some(bucket) = self.table.lock(self.key.parts()).buckets.get_mut(&self.key) {
            bucket.leased = bucket.leased.max(up_to);
            bucket.known = bucket.known.max(up_to);
            bucket.written = bucket.written.max(up_to);
        }
    }

    /// What was written is not on the disk.
    pub(in crate::policy) fn unwritten(&self) {
        if let Some(bucket) = self.table.lock(self.key.parts()).buckets.get_mut(&self.key) {
            bucket.written = bucket.known;
        }
    }

    /// The call will not be made.
    pub(in crate::policy) fn give_back(&self) {
        let epoch = self.epoch.load(Ordering::Relaxed);
        let mut shard = self.table.lock(self.key.parts());
        if let Some(bucket) = shard.buckets.get_mut(&self.key).filter(|bucket| bucket.epoch == epoch) {
            bucket.state = bucket.state.saturating_sub(self.meter.unit());
        }
    }
}
