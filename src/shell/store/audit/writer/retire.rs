//! Finds old files of the log, and removes them once their removal is on record.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use super::LogWriter;
use crate::base::clock;
use crate::policy::{AuditEntry, RecordRemoval};
use crate::store::audit::retention::{self, RetiredFiles};
use crate::store::audit::ticket::{RecordTicket, WriterJob, WriterResources};

impl LogWriter {
    /// Starts a thread that finds old files and hands them back as [`WriterJob::Retire`], unless
    /// one is at work.
    pub(super) fn look_for_old(&self) {
        let WriterResources { options, folder, shared, queue, .. } = &self.setting;
        if options.retain.is_everything() || shared.retiring.swap(true, Ordering::AcqRel) {
            return;
        }
        let (folder, retain, current) = (folder.clone(), options.retain, self.segment.clone());
        let (done, queue) = (Arc::clone(shared), queue.clone());
        let work = move || {
            let found =
                retention::find_retired(&folder, &retain, &current, clock::unix_millis()).unwrap_or_else(|error| {
                    tracing::warn!(error = %error, "old files of the audit log cannot be read, so they stay");
                    Vec::new()
                });
            // Without a sender the log is ending, and the next start looks again.
            if let Some(queue) = queue.upgrade() {
                drop(queue.blocking_send(WriterJob::Retire(found)));
                done.urgent.notify_one();
            }
        };
        if let Err(error) = std::thread::Builder::new().name("audit-retain".to_owned()).spawn(work) {
            shared.retiring.store(false, Ordering::Release);
            tracing::warn!(error = %error, "old files of the audit log stay for now");
        }
    }

    /// Writes the record of a removal of old files, stores the head, and removes the files only if
    /// both succeed.
    pub(super) fn retire(&mut self, retired: &RetiredFiles) {
        let RecordRemoval { chain, from, until, files, .. } = &retired.removal;
        let mut removal = retired.removal.clone();
        self.setting.form.vouch(&mut removal);
        let entry = AuditEntry::removal(removal);
        // If this fails the files stay, so the record is not kept for later.
        let ticket = RecordTicket { is_done: false, ..RecordTicket::done(entry) };
        self.commit(vec![ticket]);
        self.settle_now();
        // The record was not written, or the store does not have the newest head and would miss one
        // in a removed file.
        if !self.setting.shared.healthy.load(Ordering::Acquire) || self.kept != Some(self.synced.chain.head()) {
            return;
        }
        if retired.is_whole
            && let Err(error) = self.setting.db.forget_audit_head(chain.clone()).run_now()
        {
            return tracing::warn!(error = %error, audit.chain = %chain, "old files of the audit log stay for now");
        }
        match self.setting.folder.remove(&retired.segments) {
            Ok(()) => tracing::info!(
                audit.chain = %chain,
                from,
                until,
                files,
                bad = retired.removal.bad.as_deref(),
                "old records were removed from the audit log"
            ),
            Err(error) => {
                tracing::warn!(error = %error, audit.chain = %chain, "old files of the audit log cannot be removed")
            }
        }
    }
}
