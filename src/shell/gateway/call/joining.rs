//! The state of a request that joins its parked call.

use crate::base::clock;
use crate::engine::askers::DefinedItem;
use crate::engine::call::CallDeadline;
use crate::engine::connection::turns::TurnKind;
use crate::engine::failure::CallFailure;
use crate::engine::question::GatheredQuestions;
use crate::engine::question::park::ParkId;
use crate::gateway::call::context::CallContext;
use crate::gateway::call::running::RunningCall;
use crate::gateway::call::turn::SlotHold;
use crate::gateway::decision::gate::DiskGate;
use crate::upstream::call::exchange::UpstreamExchange;
use crate::upstream::call::parked::{ParkedExchange, ended};
use crate::upstream::session::lane::LaneUse;
use crate::upstream::turns::SharedCallTurn;
use crate::wire::json::raw::RawJson;

/// A request, with its slot, that is about to join a parked call.
pub(super) struct JoiningCall {
    id: ParkId,
    /// The client's answers to the questions of that call.
    answers: Option<RawJson>,
    gate: Option<DiskGate>,
    hold: SlotHold,
}

/// A parked call that a request has joined.
pub(super) struct JoinedCall {
    exchange: ParkedExchange,
    lane: LaneUse,
    turn: SharedCallTurn,
}

impl JoiningCall {
    pub(super) const fn new(id: ParkId, answers: Option<RawJson>, gate: Option<DiskGate>, hold: SlotHold) -> Self {
        Self { id, answers, gate, hold }
    }

    /// Joins the parked call, once it has its turn and the gate has passed. Can be cancelled and
    /// called again: attaching twice does no harm.
    ///
    /// # Errors
    /// The parked call has ended, or must not continue.
    pub(super) async fn join(&mut self, context: &CallContext) -> Result<JoinedCall, CallFailure> {
        let (parks, caller, id) = (&context.service.parks, &context.action.caller, &self.id);
        let lane = parks.lane(caller, id).ok_or_else(ended)?;
        // The call runs again, so it needs a turn again; a repeated request shares the turn of the
        // one before.
        let item = context.item().ok().map(DefinedItem::of);
        let asks = lane.news.turns.passer(item.as_ref()) == Some(TurnKind::Asker);
        let turn = match parks.turn(caller, id) {
            None if asks => {
                let spec = context.handle.spec.load_full();
                self.hold.turn(&lane, TurnKind::Returning, item, spec).await?
            }
            shared => shared,
        };
        if let Some(turn) = &turn {
            parks.set_turn(caller, id, turn);
        }
        context.pass(&mut self.gate, false).await?;
        let held = parks.attach(caller, id, self.answers.as_ref(), turn.clone()).await;
        Ok(JoinedCall { exchange: held.ok_or_else(ended)?, lane, turn })
    }

    /// Turns the request into a running call that follows the parked one.
    pub(super) fn joined(self, context: &CallContext, joined: JoinedCall) -> RunningCall {
        let JoinedCall { exchange, lane, turn } = joined;
        let (sent, spec) = (clock::now(), context.handle.spec.load());
        let deadline = CallDeadline::new(sent, spec.call_timeout, spec.call_max);
        let (exchange, slot, gathered) =
            (UpstreamExchange::Held(exchange), self.hold.slot, GatheredQuestions::default());
        RunningCall { exchange, deadline, sent, lane, turn, slot, is_resumed: true, request: None, gathered }
    }
}
