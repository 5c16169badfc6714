//! The upstream half of a client's call: sent, parked or a task. Cancel-safe, movable; dropping it cancels.

use crate::engine::ask::ClientAnswer;
use crate::engine::event::ExchangeEvent;
use crate::upstream::call::parked::HeldExchange;
use crate::upstream::call::task::TaskExchange;
use crate::upstream::session::sent::Sent;
use crate::upstream::turns::InTurn;
use crate::wire::raw::RawJson;

/// A call upstream.
#[derive(Debug)]
pub enum Exchange {
    /// It runs on its connection.
    Sent(Sent),
    /// The call is parked; this is a view of it.
    Held(HeldExchange),
    /// The call may become a task of its server, which the gateway polls until it ends.
    Task(Box<TaskExchange>),
}

impl Exchange {
    /// The next event. After [`ExchangeEvent::Done`] it must not be called again.
    pub async fn next(&mut self) -> ExchangeEvent {
        match self {
            Self::Sent(exchange) => exchange.next().await,
            Self::Held(exchange) => exchange.next().await,
            Self::Task(exchange) => exchange.next().await,
        }
    }

    /// Answers a request of the upstream, by its id. One that is not open any more is ignored.
    pub fn reply(&mut self, id: &RawJson, answer: ClientAnswer) {
        match self {
            Self::Sent(exchange) => exchange.reply(id, answer),
            Self::Held(exchange) => exchange.reply(id, answer),
            Self::Task(exchange) => exchange.reply(id, answer),
        }
    }

    /// The client has everything that was asked before it, and the call waits. The next call has its turn once the task of
    /// the connection knows, so that what is asked in that call is not taken for this one's.
    pub fn parked(&mut self, turn: InTurn) {
        match self {
            Self::Sent(exchange) => exchange.parked(turn),
            Self::Held(exchange) => exchange.parked(turn),
            Self::Task(exchange) => exchange.parked(turn),
        }
    }

    /// Gives the call up, where dropping this value does not.
    pub fn give_up(&mut self) {
        if let Self::Held(exchange) = self {
            exchange.give_up();
        }
    }
}
