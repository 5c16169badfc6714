//! The gateways' settings for operator commands, kept in the store for commands that find no
//! daemon.

use std::sync::Arc;

use super::unlisted::log_unlisted;
use super::{Approvals, ApprovalsState};
use crate::config::OperatorAccess;
use crate::engine::failure::FailureReason;
use crate::store::port::{DAEMON, SettingOwner};

impl Approvals {
    /// Stores the setting, now and after each change. Only the first keeper counts.
    pub fn keep_operator(&self, keeper: SettingOwner) {
        let _first_stays = self.inner.keeper.set(keeper);
        self.write_operator();
    }

    /// Returns the reason of a refusal because the store takes no writes.
    pub fn store_failure(&self) -> FailureReason {
        self.store_health().map_or(FailureReason::Unrecorded, |health| health.failure_reason())
    }

    /// Returns whether stored grants may be relied on.
    pub fn is_confirmed(&self) -> bool {
        self.store_health().is_none_or(|health| health.is_confirmed())
    }

    /// Returns whether the store of a cluster does not answer.
    pub fn is_store_away(&self) -> bool {
        self.store_health().is_some_and(|health| health.is_away())
    }

    /// Ends and records the open approvals of earlier daemons, whose calls ended with them. The
    /// caller is the daemon, and the only one with the lock of the state directory.
    pub fn end_approvals_of_earlier_daemons(&self) {
        let Some(db) = &self.inner.db else { return };
        let inner = Arc::clone(&self.inner);
        db.remove_approvals_of_daemons(inner.owner()).then(move |removed| {
            log_unlisted(removed.map(|rows| rows.iter().for_each(|row| inner.superseded(row))));
        });
    }

    /// Stores the current setting in the background.
    pub(super) fn write_operator(&self) {
        let inner = &self.inner;
        if let (Some(db), Some(keeper)) = (&inner.db, inner.keeper.get()) {
            db.keep_operator(*keeper, self.operator().number()).then(log_unlisted);
        }
    }

    pub(super) fn operator(&self) -> OperatorAccess {
        self.inner.lock().consent.operator
    }
}

impl ApprovalsState {
    /// Returns the name of this process in the store's rows of open approvals.
    pub(super) fn owner(&self) -> String {
        match self.keeper.get() {
            Some(SettingOwner::Daemon) => format!("{DAEMON}{}", self.owner),
            Some(SettingOwner::Alone) | None => self.owner.clone(),
        }
    }
}
