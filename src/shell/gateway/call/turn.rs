//! A call's slot, and its wait for its turn on a session where calls take turns.

use std::sync::Arc;
use std::time::Duration;

use futures_util::future::BoxFuture;

use crate::config::UpstreamSettings;
use crate::engine::askers::DefinedItem;
use crate::engine::connection::turns::TurnKind;
use crate::engine::failure::CallFailure;
use crate::upstream::session::handle::CallSlot;
use crate::upstream::session::lane::{Lane, LaneUse};
use crate::upstream::turns::SharedCallTurn;

/// The slot of a call that is not sent yet, with the wait for its turn.
pub(super) struct SlotHold {
    pub slot: CallSlot,
    /// Time that the call waited for the slot. The wait for a turn is shorter by it.
    waited: Duration,
    wait: Option<TurnWait>,
}

/// A call's wait for its turn.
struct TurnWait {
    /// The session whose turn is awaited; another one may have replaced it.
    lane: LaneUse,
    passer: TurnKind,
    turn: BoxFuture<'static, Result<SharedCallTurn, CallFailure>>,
}

impl SlotHold {
    pub(super) const fn new(slot: CallSlot, waited: Duration) -> Self {
        Self { slot, waited, wait: None }
    }

    /// Waits until the call may pass. Cancel-safe: a cancelled wait keeps its position.
    ///
    /// # Errors
    /// The wait was too long.
    pub(super) async fn turn(
        &mut self,
        lane: &LaneUse,
        passer: TurnKind,
        item: Option<DefinedItem>,
        spec: Arc<UpstreamSettings>,
    ) -> Result<SharedCallTurn, CallFailure> {
        self.wait.take_if(|wait| !std::ptr::eq::<Lane>(&*wait.lane, &**lane));
        let wait = self.wait.get_or_insert_with(|| {
            let (at, waited) = (lane.clone(), self.waited);
            let turn = Box::pin(async move { at.turn(passer, item, spec, waited).await });
            TurnWait { lane: lane.clone(), passer, turn }
        });
        let turn = (&mut wait.turn).await;
        self.wait = None;
        turn
    }

    /// Returns the kind of the call that waits for its turn, if one waits.
    pub(super) fn passer(&self) -> Option<TurnKind> {
        self.wait.as_ref().map(|wait| wait.passer)
    }
}
