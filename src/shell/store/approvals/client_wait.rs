//! What approvals have to do with the clients behind them: whether an agent still waits, a call
//! that is left to the console and the terminal, sessions and callers that leave.

use std::sync::Arc;
use std::time::Duration;

use super::{Approvals, Open, Span, unlisted};
use crate::policy::Caller;
use crate::policy::consent::{AgentWait, ApprovalView, Closed, Grant, Lifetime, PromptId};

impl Approvals {
    /// When the client of a prompt was asked in the answer of its call, since 1970, if it has not
    /// come back yet.
    pub fn asked_at(&self, id: &PromptId) -> Option<Duration> {
        self.inner.lock().desk.asked_at(id)
    }

    /// Leaves a prompt to the console and the terminal: it is open as long as they may take, for
    /// other processes too.
    pub(super) fn hand_over(&self, id: &PromptId) {
        let inner = &self.inner;
        let mut open = inner.lock();
        let Open { desk, waiting, consent, .. } = &mut *open;
        let Some(waiting) = waiting.get_mut(id) else { return };
        waiting.span = Span::Person(Duration::MAX);
        let Some(prompt) = desk.extend(id, waiting.span.life(consent)) else { return };
        if let Some(db) = &inner.db {
            let view = ApprovalView::new(prompt, inner.grants.load().places());
            db.enter_prompt(inner.owner(), view).then(unlisted::unlisted);
        }
        inner.tell();
    }

    /// Whether the agent of an open prompt of this process still waits.
    pub fn agent_wait(&self, id: &PromptId) -> AgentWait {
        let now = self.wall();
        self.inner.lock().desk.agent_wait(id, now)
    }

    /// Whether that prompt was allowed when its agent had been told to stop.
    pub fn was_late(&self, id: &PromptId) -> bool {
        let open = self.inner.lock();
        open.closed.iter().rev().find(|ending| ending.id == *id).is_some_and(|ending| ending.is_late)
    }

    /// A session or pipe ended, and its session grants with it.
    pub fn session_ended(&self, session: u64) {
        let inner = &self.inner;
        let mut open = inner.lock();
        open.desk.session_ended(session);
        let over = |grant: &Grant| grant.lifetime() == Lifetime::Session && grant.asked().session == Some(session);
        let grants = inner.grants.load();
        if grants.iter().any(|grant| over(grant)) {
            inner.grants.store(Arc::new(grants.without(over)));
            inner.tell();
        }
    }

    /// A caller's credential is not valid any more: its open prompts close, and what was granted
    /// for its sessions ends. Other grants are for the caller, who may come back with another
    /// credential.
    pub fn caller_left(&self, caller: &Caller) {
        let inner = &self.inner;
        let mut open = inner.lock();
        let closed = open.desk.supersede(|prompt| prompt.asked.caller == *caller);
        closed.iter().for_each(|id| inner.close(&mut open, id, Closed::Superseded, None));
        let over = |grant: &Grant| grant.lifetime() == Lifetime::Session && grant.asked().caller == *caller;
        let grants = inner.grants.load();
        if grants.iter().any(|grant| over(grant)) {
            grants.iter().filter(|grant| over(grant)).for_each(|grant| inner.invalidated(grant));
            inner.grants.store(Arc::new(grants.without(over)));
            inner.tell();
        }
    }
}
