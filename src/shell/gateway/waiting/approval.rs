//! An open approval that a call waits for.

use futures_util::future::BoxFuture;

use crate::gateway::service::Service;
use crate::policy::Evidence;
use crate::policy::consent::{Answer, CannotAnswer, Closed, PromptId};
use crate::store::approvals::Seat;

/// An open approval, as the call that waits for it sees it.
pub struct PendingApproval {
    pub prompt: PromptId,
    /// Held until the call is decided again: a once-grant is for this call until then.
    pub seat: Option<Seat>,
    /// The client's answer on its way to the store.
    pub answering: Option<BoxFuture<'static, Result<Closed, CannotAnswer>>>,
    closed: BoxFuture<'static, Closed>,
}

impl PendingApproval {
    pub fn new(service: &Service, seat: Seat) -> Self {
        let (approvals, prompt) = (service.approvals.clone(), seat.prompt());
        let closed = Box::pin(async move { approvals.settled(&prompt).await });
        Self { prompt, seat: Some(seat), answering: None, closed }
    }

    /// Waits until the approval is closed. Must not be called again after that.
    pub async fn wait_until_closed(&mut self) -> Closed {
        (&mut self.closed).await
    }

    /// Begins to answer the approval by the client's own word.
    pub fn answer(&mut self, service: &Service, answer: Answer) {
        let (approvals, prompt) = (service.approvals.clone(), self.prompt);
        self.answering =
            Some(Box::pin(async move { approvals.answer(&prompt, answer, Evidence::Client, "client").await }));
    }
}
