//! The daemon itself: its start, its files and its log.

use std::time::Duration;

use prometheus::{Gauge, IntCounter, IntGauge};

use super::builder::{Builder, signed};

/// The size of files that grow, and when one of them was written last.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DiskUse {
    pub bytes: u64,
    /// Time since 1970; zero if there is no file.
    pub written: Duration,
}

#[derive(Debug)]
struct DiskFamilies {
    bytes: IntGauge,
    written: IntGauge,
}

#[derive(Debug)]
pub struct OwnMetrics {
    start: Gauge,
    dropped: IntCounter,
    audit: DiskFamilies,
    store: DiskFamilies,
}

impl OwnMetrics {
    /// # Errors
    /// A family that the registry refuses, which is a mistake in this file.
    pub(super) fn new(b: &Builder) -> Result<Self, prometheus::Error> {
        Ok(Self {
            start: b.add(Gauge::new(
                "headend_start_duration_seconds",
                "Time from the start of the daemon until it took calls; 0 before that.",
            )?)?,
            dropped: b.counter(
                "headend_log_dropped_lines_total",
                "Lines of the log that were dropped because their reader was too slow.",
            )?,
            audit: DiskFamilies {
                bytes: b.gauge("headend_audit_bytes", "Size of the files of the audit log.")?,
                written: b.gauge(
                    "headend_audit_last_write_timestamp_seconds",
                    "When the audit log was written last; 0 without one.",
                )?,
            },
            store: DiskFamilies {
                bytes: b.gauge("headend_store_bytes", "Size of the files of the store in the state directory.")?,
                written: b.gauge(
                    "headend_store_last_write_timestamp_seconds",
                    "When the store was written last; 0 without one.",
                )?,
            },
        })
    }

    /// Records how long the start of the daemon took.
    pub fn started(&self, took: Duration) {
        self.start.set(took.as_secs_f64());
    }

    /// Sets the number of dropped lines of the log, just before a scrape.
    pub fn observe_log(&self, dropped: u64) {
        let counter = &self.dropped;
        counter.inc_by(dropped.saturating_sub(counter.get()));
    }

    /// Sets the size of the audit log and the store, just before a scrape.
    pub fn observe_files(&self, audit: DiskUse, store: DiskUse) {
        self.audit.set(audit);
        self.store.set(store);
    }
}

impl DiskFamilies {
    fn set(&self, used: DiskUse) {
        self.bytes.set(signed(used.bytes));
        self.written.set(signed(used.written.as_secs()));
    }
}
