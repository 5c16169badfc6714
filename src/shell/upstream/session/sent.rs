//! A call that was handed to its upstream. Cancel-safe, movable; dropping it cancels.

use crate::engine::ask::ClientAnswer;
use crate::engine::call::{Outcome, Outgoing};
use crate::engine::event::ExchangeEvent;
use crate::upstream::http::exchange::HttpExchange;
use crate::upstream::line::call::StdioExchange;
use crate::upstream::turns::InTurn;
use crate::wire::raw::RawJson;

/// One call on its connection.
#[derive(Debug)]
pub enum Sent {
    Stdio(StdioExchange),
    Http(Box<HttpExchange>),
}

impl Sent {
    /// The next event. After [`ExchangeEvent::Done`] it must not be called again.
    pub async fn next(&mut self) -> ExchangeEvent {
        match self {
            Self::Stdio(exchange) => exchange.next().await,
            Self::Http(exchange) => exchange.next().await,
        }
    }

    /// Its end, whatever comes before.
    pub async fn outcome(&mut self) -> Outcome {
        loop {
            if let ExchangeEvent::Done(outcome) = self.next().await {
                return outcome;
            }
        }
    }

    /// The call, after its end, where nothing of it was written. Over HTTP its own request knows what came of it.
    pub fn take_unsent(&mut self) -> Option<Box<Outgoing>> {
        match self {
            Self::Stdio(exchange) => exchange.take_unsent(),
            Self::Http(_) => None,
        }
    }

    /// Answers a request of the upstream, by its id. One that is not open any more is ignored.
    pub fn reply(&mut self, id: &RawJson, answer: ClientAnswer) {
        match self {
            Self::Stdio(exchange) => exchange.reply(id, answer),
            Self::Http(exchange) => exchange.reply(id, &answer),
        }
    }

    /// The client has everything that was asked before it, and the call waits.
    pub fn parked(&mut self, turn: InTurn) {
        match self {
            Self::Stdio(exchange) => exchange.parked(turn),
            Self::Http(exchange) => {
                exchange.parked();
                drop(turn);
            }
        }
    }
}
