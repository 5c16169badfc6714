//! Metrics of the audit log: records that were written, and records that were lost.

use std::sync::Arc;

use prometheus::IntCounter;

use crate::policy::AuditEvent;

/// The series of the audit log.
#[derive(Clone, Debug)]
pub struct AuditMetrics {
    /// Written records, in the order of the events.
    pub(super) records: Arc<[IntCounter]>,
    pub(super) failures: IntCounter,
}

impl AuditMetrics {
    /// Counts a written record.
    pub fn recorded(&self, event: AuditEvent) {
        if let Some(counter) = self.records.get(event as usize) {
            counter.inc();
        }
    }

    /// Counts records that could not be written.
    pub fn failed(&self, records: u64) {
        self.failures.inc_by(records);
    }
}
