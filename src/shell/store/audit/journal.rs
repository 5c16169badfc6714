//! Records of changes that the command line makes to a store without a daemon. They are a chain of
//! their own in the audit log, and on disk before the command ends.

use super::{AuditLog, new_chain_name, open_in};
use crate::config;
use crate::policy::AuditEntry;
use crate::policy::records::chain::RetentionBounds;
use crate::store::db::Db;
use crate::telemetry::metrics::Metrics;

/// An open chain of one command.
#[derive(Debug)]
pub struct CommandChain {
    audit: AuditLog,
    runtime: tokio::runtime::Runtime,
}

impl CommandChain {
    /// Opens a chain. A command that only reads must not do so, since it would leave a file behind.
    ///
    /// # Errors
    /// A sentence, when nothing can be recorded.
    pub fn open(db: &Db, config: &config::AuditSettings) -> Result<Self, String> {
        let state = db.dir();
        let metrics = Metrics::new().map_err(|error| error.to_string())?.audit();
        // Old records are left to processes that live longer.
        let config = config::AuditSettings { retain: RetentionBounds::default(), ..config.clone() };
        let audit = open_in(state, db, &config, &new_chain_name(), metrics).map_err(|error| error.to_string())?;
        let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build();
        Ok(Self { audit, runtime: runtime.map_err(|error| error.to_string())? })
    }

    /// Writes the records and waits until they are on disk.
    ///
    /// # Errors
    /// A sentence, when they are not on disk.
    pub fn write(&self, entries: impl IntoIterator<Item = AuditEntry>) -> Result<(), String> {
        let records: Vec<_> = entries.into_iter().map(|entry| self.audit.record(entry, true)).collect();
        self.runtime.block_on(async {
            for record in records {
                record.written().await.map_err(|error| error.to_string())?;
            }
            self.audit.flush().await;
            Ok(())
        })
    }
}
