//! The waits of a call before it is sent. A client over HTTP hears from time to time that its call goes on, which breaks the call's own
//! wait off; the waits in queues go on here, each with its place in line and its time.

use std::sync::Arc;

use futures_util::future::BoxFuture;

use crate::config::Upstream;
use crate::engine::call::Failure;
use crate::gateway::admission::InFlight;
use crate::gateway::service::Service;
use crate::upstream::handle::{Handle, Slot};
use crate::upstream::session::{Lane, LaneUse};
use crate::upstream::session_news::InTurn;

type Turn = BoxFuture<'static, Result<InTurn, Failure>>;
type Wait<T> = Option<BoxFuture<'static, Result<T, Failure>>>;

/// What a call waits for, and its slot while it waits for its turn.
#[derive(Default)]
pub(super) struct Queued {
    place: Wait<InFlight>,
    slot: Wait<Slot>,
    /// With its lane, which another one may have replaced meanwhile.
    turn: Option<(LaneUse, Turn)>,
    held: Option<Slot>,
}

impl Queued {
    /// Waits for a place among all calls. Cancel-safe, like the other waits.
    ///
    /// # Errors
    /// It took too long.
    pub(super) async fn place(&mut self, service: &Arc<Service>) -> Result<InFlight, Failure> {
        let wait = self.place.get_or_insert_with(|| {
            let service = Arc::clone(service);
            Box::pin(async move { service.admission.place().await })
        });
        let place = wait.await;
        self.place = None;
        place
    }

    /// Waits for a slot of the upstream.
    ///
    /// # Errors
    /// It took too long, or too many wait.
    pub(super) async fn slot(&mut self, handle: &Arc<Handle>) -> Result<Slot, Failure> {
        if let Some(held) = self.held.take() {
            return Ok(held);
        }
        let wait = self.slot.get_or_insert_with(|| {
            let handle = Arc::clone(handle);
            Box::pin(async move { handle.slot().await })
        });
        let slot = wait.await;
        self.slot = None;
        slot
    }

    /// Waits for the call's turn, where calls take turns. The slot stays the call's meanwhile.
    ///
    /// # Errors
    /// It took too long.
    pub(super) async fn turn(
        &mut self,
        slot: Slot,
        lane: &LaneUse,
        spec: Arc<Upstream>,
    ) -> Result<(Slot, InTurn), Failure> {
        self.held = Some(slot);
        self.turn.take_if(|(waits_at, _)| !std::ptr::eq::<Lane>(&**waits_at, &**lane));
        let (_, wait) = self.turn.get_or_insert_with(|| {
            let at = lane.clone();
            (lane.clone(), Box::pin(async move { at.turn(spec).await }))
        });
        let turn = wait.await;
        self.turn = None;
        let slot = self.held.take().ok_or_else(Failure::down);
        Ok((slot?, turn?))
    }

    /// Whether a slot is waited for or held.
    pub(super) fn is_begun(&self) -> bool {
        self.slot.is_some() || self.held.is_some()
    }
}
