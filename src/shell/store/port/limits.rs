//! Operations on the bounds of limits. Every process writes bounds, and each written bound includes
//! the draws of the others.

use std::collections::HashMap;
use std::time::Duration;

use super::error::DbError;
use super::operation::DbOperation;
use crate::policy::{BucketRow, LeaseBound, LimitLease, OverdrawnLimit, StoredBucket, UsedBucket};

/// Operations on the bounds of limits, one for each bucket.
pub trait LimitOperations {
    /// Returns all bounds, and removes those of buckets that are full again, if the store takes
    /// writes. Blocks.
    ///
    /// # Errors
    /// When they cannot be read.
    fn limits(&self, now: Duration) -> Result<HashMap<BucketRow, StoredBucket>, DbError>;

    /// Reads, extends and writes the bounds of all buckets that a call drew from, so that the call
    /// may be sent. `sweeps` removes buckets that are full again as well.
    fn extend_lease(
        &self,
        lease: LimitLease,
        now: Duration,
        sweeps: bool,
    ) -> DbOperation<'_, Result<Vec<LeaseBound>, OverdrawnLimit>>;

    /// Writes the exact use. If another process has drawn as well, its bound stays.
    fn keep_used(&self, used: Vec<UsedBucket>, now: Duration) -> DbOperation<'_, ()>;
}
