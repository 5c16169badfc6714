//! Continues the log in another chain, so that another process can write the former one.

use std::io;
use std::sync::atomic::Ordering;

use super::{LogWriter, today};
use crate::base::clock;
use crate::store::audit::dormant;
use crate::store::audit::files::MAIN;
use crate::store::audit::recover::ChainStart;
use crate::store::audit::ticket::{RecordTicket, UnrecordedError};

impl LogWriter {
    /// Continues in the chain of that name, once everything is on disk and the head is stored.
    /// Gives up the lock of the folder with the daemon's chain, and takes it for that chain.
    ///
    /// # Errors
    /// The log takes no records, or the other chain cannot be opened; the log stays in its chain.
    pub(super) fn switch(&mut self, chain: String) -> io::Result<()> {
        self.flush();
        let head = self.synced.chain.head();
        let is_stored = head.seq == 0 || self.kept == Some(head);
        if !self.setting.shared.healthy.load(Ordering::Acquire) || !is_stored {
            return Err(io::Error::other(UnrecordedError));
        }
        let heads = self.setting.db.audit_heads().run_now().map_err(io::Error::other)?;
        let kept = heads.into_iter().find(|kept| kept.chain == chain);
        let former = std::mem::replace(&mut self.setting.options.chain, chain);
        let former_kept = std::mem::replace(&mut self.setting.kept, kept);
        let opened = dormant::open_log(&mut self.setting);
        if opened.is_err() {
            (self.setting.options.chain, self.setting.kept) = (former, former_kept);
        }
        if self.setting.options.chain != MAIN {
            self.setting.lock = None;
        }
        self.continue_in(opened?);
        Ok(())
    }

    /// Takes an opened chain in place of the former one, whose file is closed, and writes the log's
    /// records about the opening.
    fn continue_in(&mut self, start: ChainStart) {
        let ChainStart { chain, segment, file, length, notes } = start;
        (self.segment, self.file) = (segment, file);
        (self.written.chain, self.written.length) = (chain, length);
        self.synced = self.written;
        self.kept = self.setting.kept.as_ref().map(|kept| kept.head);
        self.anchored = chain.head().seq;
        self.day = if length == 0 || self.is_of_today() { today() } else { 0 };
        if !notes.is_empty() {
            self.commit(notes.into_iter().map(RecordTicket::done).collect());
        }
    }

    /// Returns whether the first record of the segment is of the current day.
    fn is_of_today(&self) -> bool {
        self.setting.folder.is_of(&self.segment, clock::unix_millis())
    }
}
