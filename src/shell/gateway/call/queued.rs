//! The waits of a call before it is sent. A client over HTTP hears from time to time that its call goes on, which breaks the call's own
//! wait off; the waits in queues go on here, each with its place in line and its time.

use std::sync::Arc;
use std::time::{Duration, Instant};

use futures_util::future::BoxFuture;

use crate::base::callers::CallerNumber;
use crate::base::clock;
use crate::config::Upstream;
use crate::engine::askers::Item;
use crate::engine::failure::Failure;
use crate::engine::turns::Passer;
use crate::upstream::handle::{Handle, Slot};
use crate::upstream::session::{Lane, LaneUse};
use crate::upstream::turns::InTurn;

type Turn = BoxFuture<'static, Result<InTurn, Failure>>;
type Wait<T> = Option<BoxFuture<'static, Result<T, Failure>>>;

/// What a call waits for, and its slot while it waits for its turn.
#[derive(Default)]
pub(super) struct Queued {
    slot: Wait<Slot>,
    /// With its lane, which another one may have replaced meanwhile.
    turn: Option<(LaneUse, Passer, Turn)>,
    held: Option<Slot>,
    /// When the wait for a slot began, and how long it took. The wait for a turn is that much shorter.
    slot_since: Option<Instant>,
    waited: Duration,
}

impl Queued {
    /// Waits for a slot of the upstream. Cancel-safe, like the other waits.
    ///
    /// # Errors
    /// It took too long, or too many wait.
    pub(super) async fn slot(&mut self, handle: &Arc<Handle>, caller: &CallerNumber) -> Result<Slot, Failure> {
        if let Some(held) = self.held.take() {
            return Ok(held);
        }
        let wait = self.slot.get_or_insert_with(|| {
            let (handle, caller) = (Arc::clone(handle), caller.clone());
            Box::pin(async move { handle.slot(&caller).await })
        });
        let since = *self.slot_since.get_or_insert_with(clock::now);
        let slot = wait.await;
        self.slot = None;
        self.waited = clock::now().duration_since(since);
        slot
    }

    /// Waits until the call may pass. The slot stays the call's meanwhile.
    ///
    /// # Errors
    /// It took too long.
    pub(super) async fn turn(
        &mut self,
        slot: Slot,
        lane: &LaneUse,
        (passer, item): (Passer, Option<Item>),
        spec: Arc<Upstream>,
    ) -> Result<(Slot, InTurn), Failure> {
        self.held = Some(slot);
        self.turn.take_if(|(waits_at, ..)| !std::ptr::eq::<Lane>(&**waits_at, &**lane));
        let (.., wait) = self.turn.get_or_insert_with(|| {
            let (at, waited) = (lane.clone(), self.waited);
            (lane.clone(), passer, Box::pin(async move { at.turn((passer, item), spec, waited).await }))
        });
        let turn = wait.await;
        self.turn = None;
        let slot = self.held.take().ok_or_else(Failure::down);
        Ok((slot?, turn?))
    }

    /// How the call passes that waits for its turn.
    pub(super) fn passer(&self) -> Option<Passer> {
        self.turn.as_ref().map(|(_, passer, _)| *passer)
    }

    /// Whether a slot is waited for or held.
    pub(super) fn is_begun(&self) -> bool {
        self.slot.is_some() || self.held.is_some()
    }
}
