//! A call that was passed to its upstream. It is cancel-safe and movable; dropping it cancels the
//! call.

use crate::engine::call::{CallOutcome, OutgoingCall};
use crate::engine::connection::ask::ClientAnswer;
use crate::engine::event::CallEvent;
use crate::upstream::http::exchange::HttpExchange;
use crate::upstream::line::call::StdioExchange;
use crate::upstream::turns::SharedCallTurn;
use crate::wire::json::raw::RawJson;

/// A call on its connection.
#[derive(Debug)]
pub enum SentCall {
    Stdio(StdioExchange),
    Http(Box<HttpExchange>),
}

impl SentCall {
    /// Waits for the next event. Must not be called after [`CallEvent::Done`].
    pub async fn next(&mut self) -> CallEvent {
        match self {
            Self::Stdio(exchange) => exchange.next().await,
            Self::Http(exchange) => exchange.next().await,
        }
    }

    /// Waits for the outcome of the call and drops all earlier events.
    pub async fn outcome(&mut self) -> CallOutcome {
        loop {
            if let CallEvent::Done(outcome) = self.next().await {
                return outcome;
            }
        }
    }

    /// Returns the call, after its end, if nothing of it was written. Over HTTP the request itself
    /// handles that case.
    pub fn take_unsent(&mut self) -> Option<Box<OutgoingCall>> {
        match self {
            Self::Stdio(exchange) => exchange.take_unsent(),
            Self::Http(_) => None,
        }
    }

    /// Answers a request of the upstream, by its id. A request that is no longer open is ignored.
    pub fn reply(&mut self, id: &RawJson, answer: ClientAnswer) {
        match self {
            Self::Stdio(exchange) => exchange.reply(id, answer),
            Self::Http(exchange) => exchange.reply(id, &answer),
        }
    }

    /// Parks the call: the client has all questions asked so far, and the call waits for their
    /// answers.
    pub fn parked(&mut self, turn: SharedCallTurn) {
        match self {
            Self::Stdio(exchange) => exchange.parked(turn),
            Self::Http(exchange) => {
                exchange.parked();
                drop(turn);
            }
        }
    }
}
