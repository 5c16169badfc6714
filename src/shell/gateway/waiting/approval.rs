//! The open approval that a call waits for, and the wait until it is in the store of a cluster.

use futures_util::future::BoxFuture;

use crate::gateway::decision::CallContinuation;
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

/// A new approval on its way to the store of a cluster, seen from the call that needs it.
pub struct PendingListing {
    /// The call's claim on the approval; `None` once it is listed.
    seat: Option<ApprovalWait>,
    /// The way in which the call went on before.
    going_on: CallContinuation,
    listed: Option<ApprovalId>,
}

impl PendingListing {
    pub const fn new(seat: ApprovalWait, going_on: CallContinuation) -> Self {
        Self { seat: Some(seat), going_on, listed: None }
    }

    /// Waits until the approval is in the store, and returns whether it is. Cancel-safe.
    pub async fn wait_until_listed(&mut self) -> bool {
        if let Some(seat) = &mut self.seat {
            self.listed = seat.wait_until_listed().await;
            self.seat = None;
        }
        self.listed.is_some()
    }

    /// Returns how the call goes on: with the answer to this approval that its client brought, if
    /// it has brought one.
    pub fn going_on(&mut self) -> Option<CallContinuation> {
        let listed = self.listed?;
        let before = std::mem::replace(&mut self.going_on, CallContinuation::Anew);
        let is_about = before.consent_to(&listed).is_some();
        Some(if is_about { before } else { CallContinuation::Listed(listed) })
    }
}
