//! Metrics of the daemon itself: its start, its files and its log.

use std::time::Duration;

use super::Metrics;
use super::family::signed;

/// The size of a set of files, and the time of the last write to one of them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DiskUse {
    pub bytes: u64,
    /// Time of the last write since 1970; zero if there is no file.
    pub written: Duration,
}

impl Metrics {
    /// Records how long the start of the daemon took.
    pub fn started(&self, took: Duration) {
        self.0.families.start_duration.set(took.as_secs_f64());
    }

    /// Updates the number of dropped log lines, just before a scrape.
    pub fn observe_log(&self, dropped: u64) {
        let counter = &self.0.families.dropped_lines;
        counter.inc_by(dropped.saturating_sub(counter.get()));
    }

    /// Updates the sizes of the audit log and the store, just before a scrape.
    pub fn observe_files(&self, audit: DiskUse, store: DiskUse) {
        let f = &self.0.families;
        for (bytes, written, used) in
            [(&f.audit_bytes, &f.audit_written, audit), (&f.store_bytes, &f.store_written, store)]
        {
            bytes.set(signed(used.bytes));
            written.set(signed(used.written.as_secs()));
        }
    }
}
