//! A parked call, as one request of its client sees it.

use tokio::sync::mpsc;

use crate::engine::call::CallOutcome;
use crate::engine::connection::ask::ClientAnswer;
use crate::engine::event::CallEvent;
use crate::engine::failure::{CallFailure, ExecutionDoubt, FailureReason};
use crate::engine::question::park::ParkId;
use crate::upstream::turns::SharedCallTurn;
use crate::wire::json::raw::{RawJson, RawObject};

/// A message from a request to the task of a parked call.
#[derive(Debug)]
pub(super) enum ParkOrder {
    /// Another request of the client continues the call, with its answers by key.
    Attach {
        answers: RawObject,
        viewer: mpsc::Sender<CallEvent>,
        turn: SharedCallTurn,
    },
    Reply {
        key: RawJson,
        answer: ClientAnswer,
    },
    Parked(SharedCallTurn),
    GiveUp,
}

/// One request's view of a parked call. Dropping it leaves the call parked.
#[derive(Debug)]
pub struct ParkedExchange {
    pub id: ParkId,
    pub(super) orders: mpsc::Sender<ParkOrder>,
    pub(super) events: mpsc::Receiver<CallEvent>,
}

impl ParkedExchange {
    pub async fn next(&mut self) -> CallEvent {
        self.events.recv().await.unwrap_or_else(|| CallEvent::Done(CallOutcome::Failed(ended())))
    }

    pub fn reply(&self, key: &RawJson, answer: ClientAnswer) {
        // The queue has room for as many orders as there can be open questions; a call that has
        // ended needs no answer.
        drop(self.orders.try_send(ParkOrder::Reply { key: key.clone(), answer }));
    }

    pub fn parked(&self, turn: SharedCallTurn) {
        drop(self.orders.try_send(ParkOrder::Parked(turn)));
    }

    pub fn give_up(&self) {
        drop(self.orders.try_send(ParkOrder::GiveUp));
    }
}

/// Returns the failure of a request that continues a call which no longer exists. The call was
/// executed in part, so it is not started again.
pub(crate) fn ended() -> CallFailure {
    let text = "The call that asked for input has ended; start it again.";
    CallFailure::new(FailureReason::UpstreamProtocol, ExecutionDoubt::Unknown, text)
}
