//! The review of a store that was restored from a backup, and its record in the audit log. Until an
//! operator has reviewed the store, grants that were revoked after the backup and old tokens are
//! valid again.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use tokio_util::sync::CancellationToken;

use crate::base::local_time::local_minute;
use crate::policy::AuditEntry;
use crate::store::audit::AuditLog;
use crate::store::db::{Db, DbError};
use crate::store::port::wait_for_change;

/// The pending review of a store; clones share it.
#[derive(Clone, Debug)]
pub struct RestoreReview {
    db: Db,
    /// Time of the backup, in seconds since 1970; 0 if no review is due.
    backup_time: Arc<AtomicU64>,
    is_recorded: bool,
}

impl RestoreReview {
    /// Reads the mark of a restore, and logs that a review is due. The first daemon on a restored
    /// store also gives it a new identity, so this must come before anything that is derived from
    /// the identity. Blocks.
    ///
    /// # Errors
    /// When the store cannot be read.
    pub fn open(db: Db, is_daemon: bool) -> Result<Self, DbError> {
        let mark = db.restore_mark().run_now()?;
        if let Some(mark) = mark {
            tracing::warn!("{}", review_sentence(mark.backup_time));
            if is_daemon
                && !mark.is_recorded
                && let Err(error) = db.renew_identity().run_now()
            {
                tracing::warn!(error = %error, "the restored store keeps the identity of its backup");
            }
        }
        let backup_time = Arc::new(AtomicU64::new(mark.map_or(0, |mark| mark.backup_time)));
        Ok(Self { db, backup_time, is_recorded: mark.is_some_and(|mark| mark.is_recorded) })
    }

    /// Returns the time of the backup, in seconds since 1970; `None` if no review is due.
    pub fn backup_time(&self) -> Option<u64> {
        Some(self.backup_time.load(Ordering::Relaxed)).filter(|time| *time != 0)
    }

    /// Writes a record of the restore to the audit log, unless there is one. The mark changes after
    /// the record is on disk, so a crash in between repeats the record.
    pub async fn record(self, audit: AuditLog) {
        let Some(backup_time) = self.backup_time().filter(|_| !self.is_recorded) else { return };
        let counts = match self.db.grants().run().await {
            Ok(grants) => format!("{} grants are live", grants.len()),
            Err(error) => format!("its grants cannot be read: {error}"),
        };
        let why = format!("restored from a backup of {}; {counts}", local_minute(backup_time));
        if audit.record(AuditEntry::gateway("restored", why), true).written().await.is_err() {
            return;
        }
        if let Err(error) = self.db.note_restore_recorded().run().await {
            tracing::warn!(error = %error, "the next start records the restore again");
        }
    }

    /// Records the restore, then each time that the store turns out to be in another database,
    /// until `stop` fires.
    pub async fn run(self, audit: AuditLog, stop: CancellationToken) {
        let mut changes = Some(self.db.health().changes());
        self.clone().record(audit.clone()).await;
        loop {
            self.record_replacement(&audit).await;
            tokio::select! {
                () = wait_for_change(&mut changes) => {}
                () = stop.cancelled() => return,
            }
        }
    }

    /// Writes a record if the store is in another database than before. A failure is tried again at
    /// the next change.
    async fn record_replacement(&self, audit: &AuditLog) {
        let Ok(Some(ended)) = self.db.replacement().run().await else { return };
        let why =
            format!("the store is in another database, which may lack the last changes; {ended} once-grants ended");
        if audit.record(AuditEntry::gateway("replaced", why), true).written().await.is_ok()
            && let Err(error) = self.db.note_replacement_recorded().run().await
        {
            tracing::warn!(error = %error, "the other database of the store is recorded again");
        }
    }

    /// Ends the review. Returns the time of the backup.
    ///
    /// # Errors
    /// A sentence, when no review is due or the store takes no writes.
    pub async fn end(&self) -> Result<u64, String> {
        let ended = self.db.end_restore_review().run().await.map_err(|error| error.to_string())?;
        self.backup_time.store(0, Ordering::Relaxed);
        ended.ok_or_else(|| NOTHING_DUE.to_owned())
    }
}

/// Error text when no review is due.
pub const NOTHING_DUE: &str = "no review is due: the store was not restored from a backup";

/// Returns the sentence about a review that is due.
pub fn review_sentence(backup_time: u64) -> String {
    format!(
        "restored from a backup of {}: what was revoked since then holds again; review `headend grants` and \
         the tokens of the configuration and the state directory, then run `headend grants reviewed`",
        local_minute(backup_time)
    )
}

#[cfg(test)]
mod tests;
