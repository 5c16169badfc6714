//! The open approval that a call waits for.

use futures_util::future::BoxFuture;

use crate::gateway::service::Service;
use crate::policy::Evidence;
use crate::policy::consent::{Answer, CannotAnswer, Closed, PromptId};
use crate::store::approvals::Seat;

/// An open approval, seen from the call that waits for it.
pub struct PendingApproval {
    pub prompt: PromptId,
    /// The call's claim on the approval, held until the call is decided again: until then a
    /// once-grant is reserved for this call.
    pub seat: Option<Seat>,
    /// The store's pending result for the client's answer.
    pub answering: Option<BoxFuture<'static, Result<Closed, CannotAnswer>>>,
    closed: BoxFuture<'static, Closed>,
}

impl PendingApproval {
    /// Takes the call's claim on an approval and watches for its end.
    pub fn new(service: &Service, seat: Seat) -> Self {
        let (approvals, prompt) = (service.approvals.clone(), seat.prompt());
        let closed = Box::pin(async move { approvals.settled(&prompt).await });
        Self { prompt, seat: Some(seat), answering: None, closed }
    }

    /// Waits until the approval is closed. Must not be called again after that.
    pub async fn wait_until_closed(&mut self) -> Closed {
        (&mut self.closed).await
    }

    /// Begins to store the client's own answer to the approval.
    pub fn answer(&mut self, service: &Service, answer: Answer) {
        let (approvals, prompt) = (service.approvals.clone(), self.prompt);
        self.answering =
            Some(Box::pin(async move { approvals.answer(&prompt, answer, Evidence::Client, "client").await }));
    }
}
