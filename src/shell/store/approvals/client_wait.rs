//! Approvals and the clients behind them: whether an agent still waits, handing an approval over to
//! people, and the end of sessions and callers.

use std::sync::Arc;
use std::time::Duration;

use super::{ApprovalLife, Approvals, OpenState, unlisted};
use crate::policy::Caller;
use crate::policy::consent::{AgentWait, ApprovalEnd, ApprovalGrant, ApprovalId, ApprovalView, GrantLifetime};

impl Approvals {
    /// Returns the time since 1970 at which the client of an approval was asked in the answer of
    /// its call; `None` if the client has come back since, or was not asked that way.
    pub fn asked_at(&self, id: &ApprovalId) -> Option<Duration> {
        self.inner.lock().desk.asked_at(id)
    }

    /// Leaves an approval to the console and the terminal: it stays open as long as they may take,
    /// in the store's list too.
    pub(super) fn hand_over(&self, id: &ApprovalId) {
        let inner = &self.inner;
        let mut open = inner.lock();
        let OpenState { desk, waiting, consent, .. } = &mut *open;
        let Some(waiting) = waiting.get_mut(id) else { return };
        waiting.span = ApprovalLife::Person(Duration::MAX);
        let Some(approval) = desk.extend(id, waiting.span.life(consent)) else { return };
        if let Some(db) = &inner.db {
            let view = ApprovalView::new(approval, inner.grants.load().places());
            let entered = db.enter_approval(inner.owner(), view, approval.shared_digest());
            entered.then(|outcome| unlisted::log_unlisted(outcome.map(drop)));
        }
        inner.tell();
    }

    /// Returns whether the agent of an open approval of this process still waits.
    pub fn agent_wait(&self, id: &ApprovalId) -> AgentWait {
        let now = self.wall();
        self.inner.lock().desk.agent_wait(id, now)
    }

    /// Returns true if the approval was allowed after its agent had been told to stop.
    pub fn was_late(&self, id: &ApprovalId) -> bool {
        let open = self.inner.lock();
        open.closed.iter().rev().find(|ending| ending.id == *id).is_some_and(|ending| ending.is_late)
    }

    /// Forgets a session or pipe that ended, and drops its session grants.
    pub fn session_ended(&self, session: u64) {
        let inner = &self.inner;
        let mut open = inner.lock();
        open.desk.session_ended(session);
        let over = |grant: &ApprovalGrant| {
            grant.lifetime() == GrantLifetime::Session && grant.asked().session == Some(session)
        };
        let grants = inner.grants.load();
        if grants.iter().any(|grant| over(grant)) {
            inner.grants.store(Arc::new(grants.without(over)));
            inner.tell();
        }
    }

    /// Closes the open approvals of a caller whose credential is no longer valid, and ends its
    /// session grants. Other grants belong to the caller, who may come back with another
    /// credential.
    pub fn caller_left(&self, caller: &Caller) {
        let inner = &self.inner;
        let mut open = inner.lock();
        let closed = open.desk.supersede(|approval| approval.asked.caller == *caller);
        closed.iter().for_each(|id| inner.close(&mut open, id, ApprovalEnd::Superseded, None));
        let over =
            |grant: &ApprovalGrant| grant.lifetime() == GrantLifetime::Session && grant.asked().caller == *caller;
        let grants = inner.grants.load();
        if grants.iter().any(|grant| over(grant)) {
            grants.iter().filter(|grant| over(grant)).for_each(|grant| inner.invalidated(grant));
            inner.grants.store(Arc::new(grants.without(over)));
            inner.tell();
        }
    }
}
