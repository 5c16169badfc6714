//! Passes open approvals to the daemon that takes over, and adopts those of the daemon before.
//!
//! An approval goes over once no call waits for it. Until then its call is in the daemon before,
//! which judges the answers to it.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use tokio::sync::{mpsc, watch};

use super::unlisted::log_unlisted;
use super::{ApprovalLife, Approvals, OpenState, WaitedApproval};
use crate::base::clock;
use crate::policy::consent::{ApprovalId, ApprovalView, PassedApproval};

impl Approvals {
    /// Gives the open approvals for which no call waits to another process, and returns them. Sends
    /// each of the others to `later` once its call has ended.
    pub fn pass_on(&self, later: mpsc::Sender<PassedApproval>) -> Vec<PassedApproval> {
        let mut open = self.inner.lock();
        let passed = open.desk.unheld().iter().filter_map(|id| open.pass_on(id)).collect();
        open.successor = Some(later);
        drop(open);
        self.inner.tell();
        passed
    }

    /// Takes back the approvals that the other process did not adopt, also those in `later`, and
    /// passes none on.
    pub fn take_back(&self, passed: Vec<PassedApproval>, mut later: mpsc::Receiver<PassedApproval>) {
        {
            let mut open = self.inner.lock();
            open.successor = None;
            open.passed.clear();
        }
        passed.into_iter().for_each(|passed| self.adopt(passed));
        while let Ok(passed) = later.try_recv() {
            self.adopt(passed);
        }
    }

    /// Adds an open approval of the daemon before, and lists it in the store as this process's own.
    /// Logs one that cannot be adopted: its call is asked about again.
    pub fn adopt(&self, passed: PassedApproval) {
        let inner = &self.inner;
        let mut open = inner.lock();
        let OpenState { desk, waiting, .. } = &mut *open;
        let Some(approval) = desk.adopt(passed) else {
            return tracing::warn!("an open approval of the daemon before cannot be read and is asked about again");
        };
        let (id, asked) = (approval.id, approval.asked.clone());
        if let Some(db) = &inner.db {
            let view = ApprovalView::new(approval, inner.grants.load().places());
            let action = approval.shared_digest();
            let inner = Arc::clone(inner);
            db.enter_approval(inner.owner(), view, action).then(move |outcome| {
                log_unlisted(outcome.map(drop));
                // An answer may have been left before the approval was this process's.
                inner.version.store(-1, Ordering::Relaxed);
            });
        }
        let span = ApprovalLife::Person(Duration::MAX);
        let (opened, end) = (clock::now(), watch::Sender::new(None));
        waiting.insert(id, WaitedApproval { asked, span, opened, end, is_late: false });
        drop(open);
        inner.tell();
    }

    /// Reads the changes of other processes more often while the daemon before ends.
    pub fn set_predecessor(&self, is_there: bool) {
        self.inner.has_predecessor.store(is_there, Ordering::Relaxed);
        self.inner.opened.notify_one();
    }

    /// Returns whether a call of an item of this upstream waits for its approval.
    pub fn is_awaited(&self, upstream: &str) -> bool {
        self.inner.lock().desk.is_awaited(upstream)
    }
}

impl OpenState {
    /// Removes an approval for which no call waits, to be adopted by another process. Its row stays
    /// in the store.
    fn pass_on(&mut self, id: &ApprovalId) -> Option<PassedApproval> {
        let passed = self.desk.pass_on(id)?;
        self.waiting.remove(id);
        self.passed.insert(*id);
        Some(passed)
    }

    /// Passes an approval on if the daemon is taken over and no call waits for it.
    pub(super) fn pass_later(&mut self, id: &ApprovalId) {
        let Some(successor) = self.successor.clone() else { return };
        if let Some(passed) = self.pass_on(id)
            && successor.try_send(passed).is_err()
        {
            tracing::warn!("an open approval is lost; its call is asked about again");
        }
    }
}
