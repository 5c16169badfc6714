//! The latest time that was seen, one of the numbers in the table `meta`.

use std::time::Duration;

pub(super) use super::number::{LATEST_TIME, not_before, number, raise, saw};

use super::{Db, Operation, Work};

impl Db {
    /// Remembers a time that was seen, in seconds since 1970.
    pub fn see(&self, now: u64) -> Operation<'_, impl Work<Out = ()>> {
        self.write(move |connection| saw(connection, now))
    }

    /// The latest time that any process has seen, since 1970.
    pub fn latest_time(&self) -> Operation<'_, impl Work<Out = Duration>> {
        self.read(|connection| number(connection, LATEST_TIME).map(Duration::from_secs))
    }
}
