//! A call's slot, and its wait for its turn on a session where calls take turns.

use std::sync::Arc;
use std::time::Duration;

use futures_util::future::BoxFuture;

use crate::config::Upstream;
use crate::engine::askers::Item;
use crate::engine::failure::Failure;
use crate::engine::turns::Passer;
use crate::upstream::session::handle::Slot;
use crate::upstream::session::lane::{Lane, LaneUse};
use crate::upstream::turns::InTurn;

/// The slot of a call that is not sent yet, with the wait for its turn.
pub(super) struct SlotHold {
    pub slot: Slot,
    /// Time that the call waited for the slot. The wait for a turn is shorter by it.
    waited: Duration,
    wait: Option<TurnWait>,
}

/// A call's wait for its turn.
struct TurnWait {
    /// The session whose turn is awaited; another one may have replaced it.
    lane: LaneUse,
    passer: Passer,
    turn: BoxFuture<'static, Result<InTurn, Failure>>,
}

impl SlotHold {
    pub(super) const fn new(slot: Slot, waited: Duration) -> Self {
        Self { slot, waited, wait: None }
    }

    /// Waits until the call may pass. Cancel-safe: a cancelled wait keeps its position.
    ///
    /// # Errors
    /// The wait was too long.
    pub(super) async fn turn(
        &mut self,
        lane: &LaneUse,
        passer: Passer,
        item: Option<Item>,
        spec: Arc<Upstream>,
    ) -> Result<InTurn, Failure> {
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
    pub(super) fn passer(&self) -> Option<Passer> {
        self.wait.as_ref().map(|wait| wait.passer)
    }
}
