//! The upstream half of a client's call: sent, parked or a task. It is cancel-safe and movable;
//! dropping it cancels the call, unless it is parked.

use crate::engine::connection::ask::ClientAnswer;
use crate::engine::event::CallEvent;
use crate::upstream::call::parked::ParkedExchange;
use crate::upstream::call::task::TaskExchange;
use crate::upstream::session::sent::SentCall;
use crate::upstream::turns::SharedCallTurn;
use crate::wire::json::raw::RawJson;

/// A call at an upstream.
#[derive(Debug)]
pub enum UpstreamExchange {
    /// A call that runs on its connection.
    Sent(SentCall),
    /// A view of a parked call.
    Held(ParkedExchange),
    /// A call that may become a task of its server, which the gateway polls until it ends.
    Task(Box<TaskExchange>),
}

impl UpstreamExchange {
    /// Waits for the next event. Must not be called after [`CallEvent::Done`].
    pub async fn next(&mut self) -> CallEvent {
        match self {
            Self::Sent(exchange) => exchange.next().await,
            Self::Held(exchange) => exchange.next().await,
            Self::Task(exchange) => exchange.next().await,
        }
    }

    /// Answers a request of the upstream, by its id. A request that is no longer open is ignored.
    pub fn reply(&mut self, id: &RawJson, answer: ClientAnswer) {
        match self {
            Self::Sent(exchange) => exchange.reply(id, answer),
            Self::Held(exchange) => exchange.reply(id, answer),
            Self::Task(exchange) => exchange.reply(id, answer),
        }
    }

    /// Parks the call: the client has all questions asked so far, and the call waits for their
    /// answers. `turn` passes to the next call once the connection's task knows, so that questions
    /// in that call are not attributed to this one.
    pub fn parked(&mut self, turn: SharedCallTurn) {
        match self {
            Self::Sent(exchange) => exchange.parked(turn),
            Self::Held(exchange) => exchange.parked(turn),
            Self::Task(exchange) => exchange.parked(turn),
        }
    }

    /// Gives up the call, if dropping this value would not.
    pub fn give_up(&mut self) {
        if let Self::Held(exchange) = self {
            exchange.give_up();
        }
    }
}
