//! The settings of gateways for the operator's commands, kept for commands that find no daemon.

use super::Approvals;
use super::keeper::Keeper;
use super::unlisted::unlisted;
use crate::config::Operator;

impl Approvals {
    /// Keeps the setting in the store, from here on after each change too. The first keeper stays.
    pub(crate) fn keep_operator(&self, keeper: Keeper) {
        let _first_stays = self.inner.keeper.set(keeper);
        self.write_operator();
    }

    pub(super) fn write_operator(&self) {
        let inner = &self.inner;
        if let (Some(db), Some(keeper)) = (&inner.db, inner.keeper.get()) {
            db.keep_operator(*keeper, self.operator().number()).then(unlisted);
        }
    }

    pub(super) fn operator(&self) -> Operator {
        self.inner.lock().consent.operator
    }
}
