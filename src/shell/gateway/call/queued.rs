//! The wait of a call for a slot of its upstream. Notices to a client over HTTP cancel the call's
//! own wait from time to time; the wait in the queue continues here, with its position and its
//! time.

use std::sync::Arc;
use std::time::{Duration, Instant};

use futures_util::future::BoxFuture;

use crate::base::clock;
use crate::engine::call::OutgoingCall;
use crate::engine::failure::CallFailure;
use crate::engine::question::park::ParkId;
use crate::gateway::call::context::CallContext;
use crate::gateway::call::turn::SlotHold;
use crate::gateway::decision::gate::DiskGate;
use crate::upstream::session::handle::CallSlot;
use crate::wire::json::raw::RawJson;

/// The way in which a call uses its slot.
pub(super) enum CallRequest {
    Send(OutgoingCall),
    /// Joins the parked call with the client's answers.
    Join {
        id: ParkId,
        answers: Option<RawJson>,
    },
}

/// A call that waits for its slot.
pub(super) struct SlotQueuedCall {
    pub(super) request: CallRequest,
    /// Writes that have to be on disk before the call is sent.
    pub(super) gate: Option<DiskGate>,
    /// The wait in the queue, if no slot was free.
    wait: Option<SlotWait>,
}

/// A call's wait in the queue for a slot.
struct SlotWait {
    slot: BoxFuture<'static, Result<CallSlot, CallFailure>>,
    since: Instant,
}

impl SlotQueuedCall {
    pub(super) const fn new(request: CallRequest, gate: Option<DiskGate>) -> Self {
        Self { request, gate, wait: None }
    }

    /// Waits for a slot of the upstream. Cancel-safe.
    ///
    /// # Errors
    /// The wait was too long, or too many calls wait.
    pub(super) async fn slot(&mut self, context: &CallContext) -> Result<SlotHold, CallFailure> {
        let (handle, caller) = (&context.handle, context.access.caller());
        // A call in the queue keeps its position and takes no slot that became free.
        if self.wait.is_none()
            && let Some(slot) = handle.free_slot(caller)
        {
            return Ok(SlotHold::new(slot, Duration::ZERO));
        }
        let wait = self.wait.get_or_insert_with(|| {
            let (handle, caller) = (Arc::clone(handle), caller.clone());
            SlotWait { slot: Box::pin(async move { handle.slot(&caller).await }), since: clock::now() }
        });
        let slot = (&mut wait.slot).await?;
        Ok(SlotHold::new(slot, clock::now().duration_since(wait.since)))
    }
}
