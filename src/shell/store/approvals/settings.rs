//! Changes the settings of approvals while some are open.

use std::sync::Arc;

use super::{Approvals, OpenState, desk_limits};
use crate::config::ApprovalSettings;
use crate::policy::consent::{ApprovalEnd, OpenApproval};

impl Approvals {
    /// Applies other settings, to open approvals too: closes those whose time is over now, and the
    /// newest ones of a caller that has too many.
    pub fn set_limits(&self, consent: &ApprovalSettings) {
        let inner = &self.inner;
        let now = self.wall();
        let mut open = inner.lock();
        let OpenState { desk, waiting, .. } = &mut *open;
        let life = |approval: &OpenApproval| waiting.get(&approval.id).map_or(0, |waiting| waiting.span.life(consent));
        let excess = desk.set_limits(desk_limits(consent), life);
        open.consent.clone_from(consent);
        excess.iter().for_each(|id| inner.close(&mut open, id, ApprovalEnd::Superseded, None));
        inner.expire(&mut open, now);
        let grants = inner.grants.load();
        inner.grants.store(Arc::new(grants.with_unused(consent.unused_expiry.as_secs())));
        inner.tell();
        drop(open);
        self.write_operator();
    }
}
