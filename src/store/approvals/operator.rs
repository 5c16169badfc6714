//! The daemon's setting for the operator's commands, kept for commands that find no daemon.

use std::sync::atomic::Ordering;

use super::Approvals;
use super::unlisted::unlisted;
use crate::config::Operator;

impl Approvals {
    /// Keeps the setting in the store, from here on after each change too. The daemon alone does so: a gateway beside it has a
    /// configuration of its own.
    pub(crate) fn keep_operator(&self) {
        self.inner.keeps_operator.store(true, Ordering::Relaxed);
        self.write_operator();
    }

    pub(super) fn write_operator(&self) {
        let inner = &self.inner;
        if let Some(db) = &inner.db
            && inner.keeps_operator.load(Ordering::Relaxed)
        {
            db.keep_operator(self.operator().number()).then(unlisted);
        }
    }

    pub(super) fn operator(&self) -> Operator {
        self.inner.lock().consent.operator
    }
}
