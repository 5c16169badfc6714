//! The limiter: draws of a call from all limits of a policy, all or none.

use std::collections::HashMap;
use std::ptr;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::time::Duration;

use parking_lot::MutexGuard;

use crate::policy::action::PolicyAction;
use crate::policy::compiled::{ItemRules, Policy, PolicyStamp};
use crate::policy::limit::buckets::{
    BucketDraw, BucketKey, BucketRow, BucketShard, BucketTable, KeyParts as _, LEAST_WAIT, SHARD_CAPACITY, UsedBucket,
};
use crate::policy::limit::lease::LimitLease;
use crate::policy::limit::meter::{Meter, MeterAnswer, StoredBucket};
use crate::policy::limit::rate::Rate;
use crate::policy::limit::withdrawal::Withdrawal;
use crate::policy::limit::{KeyPart, LimitPart, PartIdentity, PartMeasure};

/// The use of all limits of one policy, shared by its calls.
///
/// A bucket exists while it is not full. If a table has no more room, buckets that are full again
/// are dropped; if there are none, a call that needs a new bucket is refused.
#[derive(Debug)]
pub struct Limiter {
    stamp: PolicyStamp,
    /// Whether buckets are on disk, so that calls need leases.
    durable: bool,
    /// Tables in the order of the policy's limits, and for each limit in the order of its parts.
    tables: Vec<Vec<Arc<BucketTable>>>,
}

/// The use of limits by one call that they admitted. Dropping it frees the call's concurrency slots
/// only: its draws from rates and daily quotas are given back by the lease, or without one by
/// [`Limiter::give_back`].
#[derive(Debug, Default)]
pub(in crate::policy) struct LimitDraws {
    /// Slots in the matching limits on concurrent calls; `None` without such a limit.
    pub(in crate::policy) held: Option<CallSlots>,
    /// Bounds that must be on disk before the call is sent; `None` if they are, or if buckets are
    /// not kept on disk.
    pub(in crate::policy) lease: Option<LimitLease>,
    /// The time of the draw; `None` if no limit matches.
    pub(in crate::policy) drawn: Option<DrawTime>,
}

/// The time at which a call drew from the limits of a policy.
#[derive(Clone, Debug)]
pub(in crate::policy) struct DrawTime {
    at: Duration,
    stamp: PolicyStamp,
}

/// The reason why a call is refused. It has drawn from no limit then.
#[derive(Debug)]
pub(in crate::policy) enum LimitRefusal {
    /// The limit with the longest wait, and that wait.
    Until { limit: Arc<str>, retry_after: Duration },
    /// The limiter belongs to another policy.
    Foreign,
}

impl Limiter {
    /// Makes a limiter with full buckets, which do not outlive the process.
    pub fn new(policy: &Policy) -> Self {
        Self::build(policy, &[], false, &HashMap::new(), Duration::ZERO)
    }

    /// Makes a limiter with the buckets in `rows`, whose calls need leases from then on. `now` is
    /// the time since 1970.
    pub fn durable(policy: &Policy, rows: &HashMap<BucketRow, StoredBucket>, now: Duration) -> Self {
        Self::build(policy, &[], true, rows, now)
    }

    /// Makes the limiter for the policy that replaces this one's.
    ///
    /// Parts of limits that stay the same share their buckets with this limiter: calls that the old
    /// policy still decides count, and a reload refills nothing. A part with another rate or burst
    /// begins with the calls that its old buckets hold at `now`, the time since 1970. If buckets
    /// are kept on disk, the buckets of a part that returns are found again by their first lease.
    pub fn carry_over(&self, new: &Policy, now: Duration) -> Self {
        Self::build(new, &self.tables, self.durable, &HashMap::new(), now)
    }

    /// Makes a limiter that shares the tables of unchanged parts with `old`, and takes other
    /// buckets from `rows`.
    fn build(
        policy: &Policy,
        old: &[Vec<Arc<BucketTable>>],
        durable: bool,
        rows: &HashMap<BucketRow, StoredBucket>,
        now: Duration,
    ) -> Self {
        let table = |part: &LimitPart| {
            if let Some(same) = old.iter().flatten().find(|table| table.identity == part.identity) {
                return Arc::clone(same);
            }
            let table = BucketTable::new(part, SHARD_CAPACITY, durable, rows, nanos(now));
            for other in old.iter().flatten().filter(|other| part.identity.is_rate_of(&other.identity)) {
                table.carry_over(other, nanos(now));
            }
            Arc::new(table)
        };
        let tables = policy.limits.iter().map(|limit| limit.parts.iter().map(table).collect());
        Self { stamp: policy.stamp.clone(), durable, tables: tables.collect() }
    }

    /// Draws one call from every limit that matches, or from none if one refuses. `now` is the time
    /// since 1970.
    ///
    /// # Errors
    /// The limit with the longest wait, or [`LimitRefusal::Foreign`] if `policy` is not this
    /// limiter's.
    pub(in crate::policy) fn take(
        &self,
        policy: &Policy,
        item: &ItemRules,
        action: &PolicyAction,
        now: Duration,
    ) -> Result<LimitDraws, LimitRefusal> {
        let mut draws = Vec::new();
        for (index, limit) in &item.limits {
            if limit.counts(action) {
                let tables = self.tables.get(*index).filter(|_| self.stamp.is(&policy.stamp));
                let tables = tables.ok_or(LimitRefusal::Foreign)?;
                let bucket = limit.bucket(action);
                draws.extend(
                    tables.iter().zip(&limit.parts).map(|(table, part)| BucketDraw::new(table, part.meter, bucket)),
                );
            }
        }
        if draws.is_empty() {
            return Ok(LimitDraws::default());
        }
        let drawn = Some(DrawTime { at: now, stamp: self.stamp.clone() });
        Ok(LimitDraws { drawn, ..take_all(draws, nanos(now))? })
    }

    /// Gives the draws of a call without a lease that will not be made back to rates and daily
    /// quotas; concurrency slots are freed by [`CallSlots`]. Does nothing if the limiter, the
    /// policy or the rules are not those that the call was decided by.
    pub(in crate::policy) fn give_back(
        &self,
        item: &ItemRules,
        action: &PolicyAction,
        policy: &Policy,
        drawn: &DrawTime,
    ) {
        if ![&self.stamp, &policy.stamp, &item.stamp].iter().all(|stamp| stamp.is(&drawn.stamp)) {
            return;
        }
        for (index, limit) in item.limits.iter().filter(|(_, limit)| limit.counts(action)) {
            let bucket = limit.bucket(action);
            let tables = self.tables.get(*index).into_iter().flatten().zip(&limit.parts);
            for (table, part) in tables.filter(|(_, part)| !part.meter.is_concurrent()) {
                table.lock(bucket).give_back(bucket, part.meter, nanos(drawn.at));
            }
        }
    }

    /// Returns the buckets that are on disk, with their exact states, which are written at a clean
    /// stop.
    pub fn used(&self) -> Vec<UsedBucket> {
        self.tables.iter().flatten().filter(|table| table.durable).flat_map(|table| table.used()).collect()
    }
}

fn nanos(now: Duration) -> u64 {
    u64::try_from(now.as_nanos()).unwrap_or(u64::MAX)
}

/// A limit on all requests of a caller or from an address. It is checked before any policy.
#[derive(Debug)]
pub struct CallerLimiter {
    table: Arc<BucketTable>,
    meter: Meter,
}

impl CallerLimiter {
    /// Makes the limit; `None` for a rate or burst that admits nothing or takes over a century to
    /// refill.
    pub fn new(rate: Rate, burst: u32) -> Option<Self> {
        let meter = Meter::rate(rate, burst).ok()?;
        let counts = PartMeasure::Rate { rate, burst };
        let identity = PartIdentity { id: Arc::from("caller-rate"), key: vec![KeyPart::Caller], counts };
        let part = LimitPart { identity, meter };
        Some(Self { table: Arc::new(BucketTable::new(&part, SHARD_CAPACITY, false, &HashMap::new(), 0)), meter })
    }

    /// Draws a number of requests, all or none. `caller` is the caller's key, or an address.
    ///
    /// # Errors
    /// The time until the requests would be admitted.
    pub fn take(&self, caller: &str, requests: u32, now: Duration) -> Result<(), Duration> {
        let draw = BucketDraw::new(&self.table, self.meter, [caller, "", ""]).times(requests);
        take_all(vec![draw], nanos(now)).map(drop).map_err(|limited| match limited {
            LimitRefusal::Until { retry_after, .. } => retry_after,
            LimitRefusal::Foreign => LEAST_WAIT,
        })
    }
}

/// The slots that a call holds in limits on concurrent calls; freed on drop.
#[derive(Debug)]
pub(in crate::policy) struct CallSlots(Vec<(Arc<BucketTable>, BucketKey)>);

impl Drop for CallSlots {
    fn drop(&mut self) {
        for (table, key) in &self.0 {
            table.lock(key.parts()).leave(key);
        }
    }
}

/// Draws from all buckets or from none, with all their shards locked.
fn take_all(mut draws: Vec<BucketDraw<'_>>, now: u64) -> Result<LimitDraws, LimitRefusal> {
    // Locks are taken in the order of addresses, which all threads and the limiters of several
    // policies share, so there is no deadlock. A shard cannot occur twice, since each part of each
    // limit has its own table.
    draws.sort_unstable_by_key(|draw| ptr::from_ref(draw.shard).addr());
    let mut locked: Vec<(BucketDraw<'_>, MutexGuard<'_, BucketShard>, u64)> = Vec::with_capacity(draws.len());
    let mut worst: Option<(Duration, &Arc<str>)> = None;
    for draw in draws {
        // A panic cannot leave a shard half changed: each change is one insertion.
        let mut shard = draw.shard.lock();
        match shard.peek(&draw, now) {
            (state, MeterAnswer::Admit) => locked.push((draw, shard, state)),
            (_, MeterAnswer::RetryAfter(wait)) => {
                let refusal = (wait, &draw.table.identity.id);
                worst = worst.max(Some(refusal));
            }
        }
    }
    if let Some((retry_after, limit)) = worst {
        return Err(LimitRefusal::Until { limit: Arc::clone(limit), retry_after });
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
    let held = (!places.is_empty()).then_some(CallSlots(places));
    let lease = needs_lease.then(|| {
        let draws = locked.iter().map(|(draw, ..)| draw).filter(|draw| !draw.meter.is_concurrent());
        let claims = draws.zip(drawn).map(|(draw, bucket)| {
            let (table, key, meter) = (Arc::clone(draw.table), draw.key(), draw.meter);
            let epoch = AtomicU64::new(bucket.epoch);
            Withdrawal { table, key, meter, now, after: bucket.state, moved: bucket.moved, epoch }
        });
        LimitLease::new(claims)
    });
    Ok(LimitDraws { held, lease, drawn: None })
}

#[cfg(test)]
mod tests;
