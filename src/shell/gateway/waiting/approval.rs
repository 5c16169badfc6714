//! The open approval that a call waits for.

use futures_util::future::BoxFuture;

use crate::gateway::service::Service;
use crate::policy::ApprovalEvidence;
use crate::policy::consent::{AnswerError, ApprovalEnd, ApprovalId, PersonAnswer};
use crate::store::approvals::ApprovalWait;

/// An open approval, seen from the call that waits for it.
pub struct PendingApproval {
    pub approval: ApprovalId,
    /// The call's claim on the approval, held until the call is decided again: until then a
    /// once-grant is reserved for this call.
    pub seat: Option<ApprovalWait>,
    /// The store's pending result for the client's answer.
    pub answering: Option<BoxFuture<'static, Result<ApprovalEnd, AnswerError>>>,
    closed: BoxFuture<'static, ApprovalEnd>,
}

impl PendingApproval {
    /// Takes the call's claim on an approval and watches for its end.
    pub fn new(service: &Service, seat: ApprovalWait) -> Self {
        let (approvals, approval) = (service.approvals.clone(), seat.approval());
        let closed = Box::pin(async move { approvals.settled(&approval).await });
        Self { approval, seat: Some(seat), answering: None, closed }
    }

    /// Waits until the approval is closed. Must not be called again after that.
    pub async fn wait_until_closed(&mut self) -> ApprovalEnd {
        (&mut self.closed).await
    }

    /// Begins to store the client's own answer to the approval.
    pub fn answer(&mut self, service: &Service, answer: PersonAnswer) {
        let (approvals, approval) = (service.approvals.clone(), self.approval);
        self.answering =
            Some(Box::pin(
                async move { approvals.answer(&approval, answer, ApprovalEvidence::Client, "client").await },
            ));
    }
}
