//! The record of what the command line does to a store without a daemon: a chain of its own in the audit log, on disk before the
//! command ends.

use super::{Audit, chain_of_its_own, open_in};
use crate::config;
use crate::policy::Entry;
use crate::policy::chain::Retain;
use crate::store::db::Db;
use crate::telemetry::metrics::Metrics;

/// An open chain.
#[derive(Debug)]
pub struct Journal {
    audit: Audit,
    runtime: tokio::runtime::Runtime,
}

impl Journal {
    /// To be opened where there is something to do: looking leaves no file behind.
    ///
    /// # Errors
    /// Why nothing can be recorded.
    pub fn open(db: &Db, config: &config::Audit) -> Result<Self, String> {
        let state = db.dir();
        let metrics = Metrics::new().map_err(|error| error.to_string())?.audit();
        // What is kept no longer is removed by those that live longer.
        let config = config::Audit { retain: Retain::default(), ..config.clone() };
        let audit = open_in(state, db, &config, &chain_of_its_own(), metrics).map_err(|error| error.to_string())?;
        let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build();
        Ok(Self { audit, runtime: runtime.map_err(|error| error.to_string())? })
    }

    /// Writes the records; they are on disk when this returns.
    ///
    /// # Errors
    /// Why they are not.
    pub fn write(&self, entries: impl IntoIterator<Item = Entry>) -> Result<(), String> {
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
