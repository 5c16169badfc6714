//! A parked call, as one request of its client sees it.

use tokio::sync::mpsc;

use crate::engine::ask::ClientAnswer;
use crate::engine::call::Outcome;
use crate::engine::event::ExchangeEvent;
use crate::engine::failure::{Executed, Failure, Reason};
use crate::engine::question::park::ParkId;
use crate::upstream::turns::InTurn;
use crate::wire::raw::{RawJson, RawObject};

/// A message from a request to the task of a parked call.
#[derive(Debug)]
pub(super) enum Order {
    /// Another request of the client continues the call, with its answers by key.
    Attach {
        answers: RawObject,
        viewer: mpsc::Sender<ExchangeEvent>,
        turn: InTurn,
    },
    Reply {
        key: RawJson,
        answer: ClientAnswer,
    },
    Parked(InTurn),
    GiveUp,
}

/// One request's view of a parked call. Dropping it leaves the call parked.
#[derive(Debug)]
pub struct HeldExchange {
    pub id: ParkId,
    pub(super) orders: mpsc::Sender<Order>,
    pub(super) events: mpsc::Receiver<ExchangeEvent>,
}

impl HeldExchange {
    pub async fn next(&mut self) -> ExchangeEvent {
        self.events.recv().await.unwrap_or_else(|| ExchangeEvent::Done(Outcome::Failed(ended())))
    }

    pub fn reply(&self, key: &RawJson, answer: ClientAnswer) {
        // The queue has room for as many orders as there can be open questions; a call that has
        // ended needs no answer.
        drop(self.orders.try_send(Order::Reply { key: key.clone(), answer }));
    }

    pub fn parked(&self, turn: InTurn) {
        drop(self.orders.try_send(Order::Parked(turn)));
    }

    pub fn give_up(&self) {
        drop(self.orders.try_send(Order::GiveUp));
    }
}

/// Returns the failure of a request that continues a call which no longer exists. The call was
/// executed in part, so it is not started again.
pub(crate) fn ended() -> Failure {
    let text = "The call that asked for input has ended; start it again.";
    Failure::new(Reason::UpstreamProtocol, Executed::Unknown, text)
}
