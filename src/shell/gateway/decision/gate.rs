//! Waits until everything is on disk that must be there before a call goes upstream: its use of
//! limits, the record of its decision, the use of a once-grant or of a sealed state.

use std::sync::Arc;

use futures_util::future::BoxFuture;

use super::found::STORE_WAIT;
use crate::engine::failure::{CallFailure, ExecutionDoubt, FailureReason};
use crate::engine::sealed::state::StateUse;
use crate::policy::LimitLease;
use crate::policy::consent::{ApprovalGrant, GrantLifetime};
use crate::store::approvals::{Approvals, GrantUseError};
use crate::store::audit::RecordState;
use crate::store::leases::Leases;
use crate::store::states::UsedStates;

/// The writes that a call waits for. A cancelled wait can be started again and continues. Dropped
/// before the writes are done, it gives a once-grant back: a refused call uses nothing up.
pub(crate) struct DiskGate {
    work: BoxFuture<'static, Result<(), CallFailure>>,
    once: Option<Arc<ApprovalGrant>>,
}

impl DiskGate {
    /// Collects a call's writes; `None` if it has none to wait for. A grave call, or one with a
    /// stored grant, is refused if the store of the cluster cannot confirm it.
    pub(crate) fn new(
        approvals: &Arc<Approvals>,
        recorded: RecordState,
        grant: Option<&Arc<ApprovalGrant>>,
        lease: Option<(Leases, LimitLease)>,
        state: Option<(UsedStates, StateUse)>,
        is_grave: bool,
    ) -> Option<Self> {
        let once = grant.filter(|grant| grant.is_once()).map(|grant| (Arc::clone(approvals), Arc::clone(grant)));
        let is_stored = grant.is_some_and(|grant| grant.lifetime() != GrantLifetime::Session);
        let is_unconfirmed = (is_stored && !approvals.is_confirmed()) || (is_grave && approvals.is_store_away());
        let is_recorded = matches!(recorded, RecordState::Accepted);
        if once.is_none() && lease.is_none() && state.is_none() && is_recorded && !is_unconfirmed {
            return None;
        }
        let kept = once.as_ref().map(|(_, grant)| Arc::clone(grant));
        let used = grant.cloned().filter(|_| matches!(recorded, RecordState::Pending(_)));
        let work = Box::pin(async move {
            let failure = |reason, text: &str| CallFailure::new(reason, ExecutionDoubt::No, text);
            if is_unconfirmed {
                lease.iter().for_each(|(_, lease)| lease.give_back());
                let text = "The permission of this call cannot be confirmed at the moment, so it was not made.";
                return Err(failure(FailureReason::StoreUnavailable, text).retry_after(STORE_WAIT));
            }
            if let Some((leases, lease)) = &lease {
                leases.settle(lease).await?;
            }
            // From here on a refusal gives back what the call took from its limits.
            let refuse = |reason, text: &str| {
                lease.iter().for_each(|(_, lease)| lease.give_back());
                failure(reason, text)
            };
            let unrecorded = "The call could not be recorded, so it was not made.";
            recorded.written().await.map_err(|_| refuse(FailureReason::Unrecorded, unrecorded))?;
            if let Some(grant) = used {
                grant.set_recorded();
            }
            if let Some((approvals, grant)) = once {
                // After the record: a call that is refused for a full disk must not use its
                // approval up.
                let used_by_another = "The approval of this call was used for an equal call. Make the call again.";
                let unkept = "The use of this call's approval could not be kept, so the call was not made.";
                approvals.consume(&grant).await.map_err(|why| match why {
                    GrantUseError::Already => refuse(FailureReason::AwaitingApproval, used_by_another),
                    GrantUseError::NotKept(_) => refuse(approvals.store_failure(), unkept).retry_after(STORE_WAIT),
                })?;
            }
            if let Some((used, state)) = state {
                used.keep(state).await?;
            }
            Ok(())
        });
        Some(Self { work, once: kept })
    }

    /// Waits until everything is on disk. After an error the call must not be made.
    ///
    /// # Errors
    /// [`FailureReason::Unrecorded`], [`FailureReason::StoreUnavailable`],
    /// [`FailureReason::Limited`] if other processes have used a limit up,
    /// [`FailureReason::AwaitingApproval`] if one has used the once-grant, or
    /// [`FailureReason::Denied`] if one has used the state.
    pub(crate) async fn pass(&mut self) -> Result<(), CallFailure> {
        (&mut self.work).await
    }
}

impl Drop for DiskGate {
    fn drop(&mut self) {
        if let Some(grant) = &self.once {
            grant.give_back();
        }
    }
}

#[cfg(test)]
mod tests;
