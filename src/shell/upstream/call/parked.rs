//! One request's view of a parked call.

use tokio::sync::mpsc;

use crate::engine::ask::ClientAnswer;
use crate::engine::call::Outcome;
use crate::engine::event::ExchangeEvent;
use crate::engine::failure::{Executed, Failure, Reason};
use crate::engine::question::park::ParkId;
use crate::upstream::turns::InTurn;
use crate::wire::raw::{RawJson, RawObject};

/// Messages of requests to the task of a parked call.
#[derive(Debug)]
pub(super) enum Order {
    /// Another request of the client is here, with its answers by key.
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
        // As many slots as there can be open questions; an ended call needs no answer.
        drop(self.orders.try_send(Order::Reply { key: key.clone(), answer }));
    }

    pub fn parked(&self, turn: InTurn) {
        drop(self.orders.try_send(Order::Parked(turn)));
    }

    pub fn give_up(&self) {
        drop(self.orders.try_send(Order::GiveUp));
    }
}

/// The failure of a request that goes on with a call that is not there any more. It was begun, so it is not begun again.
pub(crate) fn ended() -> Failure {
    let text = "The call that asked for input has ended; start it again.";
    Failure::new(Reason::UpstreamProtocol, Executed::Unknown, text)
}
