//! The upstream half of a live call: progress, then exactly one outcome. Cancel-safe, movable; dropping it cancels.

use tokio::sync::{mpsc, oneshot};

use crate::engine::call::{Outcome, Outgoing};
use crate::engine::peer::{CallPort, down};
use crate::runtime::upstream::http::HttpExchange;
use crate::wire::raw::RawJson;

/// Progress that may wait for a slow client before the oldest gives way to the newest.
const NOTICES: usize = 16;

/// What comes back of a call.
#[derive(Debug)]
pub(crate) enum ExchangeEvent {
    /// `params` of a progress notification of the upstream.
    Progress(RawJson),
    /// `params` of a log message of the upstream.
    Log(RawJson),
    Done(Outcome),
}

/// A call that was handed to its upstream.
#[derive(Debug)]
pub(crate) enum Exchange {
    Stdio(StdioExchange),
    Http(Box<HttpExchange>),
}

impl Exchange {
    /// The next event. After [`ExchangeEvent::Done`] it must not be called again.
    pub(crate) async fn next(&mut self) -> ExchangeEvent {
        match self {
            Self::Stdio(exchange) => exchange.next().await,
            Self::Http(exchange) => exchange.next().await,
        }
    }
}

/// A call on its way to the actor of a stdio upstream.
#[derive(Debug)]
pub(crate) struct Command {
    pub(crate) outgoing: Outgoing,
    pub(crate) port: Port,
}

/// The actor's end of a call.
#[derive(Debug)]
pub(crate) struct Port {
    key: u64,
    outcome: oneshot::Sender<Outcome>,
    notices: Option<mpsc::Sender<ExchangeEvent>>,
}

impl CallPort for Port {
    fn key(&self) -> u64 {
        self.key
    }

    fn progress(&mut self, params: RawJson) {
        if let Some(notices) = &self.notices {
            // A client that reads too slowly misses progress, never the outcome; the actor never waits for it.
            drop(notices.try_send(ExchangeEvent::Progress(params)));
        }
    }

    fn log(&mut self, params: RawJson) {
        if let Some(notices) = &self.notices {
            drop(notices.try_send(ExchangeEvent::Log(params)));
        }
    }

    fn done(self, outcome: Outcome) {
        // The receiver is gone when the client has left; there is nobody to tell.
        drop(self.outcome.send(outcome));
    }
}

/// The caller's end of a call to a stdio upstream.
#[derive(Debug)]
pub(crate) struct StdioExchange {
    key: u64,
    outcome: oneshot::Receiver<Outcome>,
    notices: Option<mpsc::Receiver<ExchangeEvent>>,
    ended: Option<Outcome>,
    finished: bool,
    cancels: mpsc::UnboundedSender<u64>,
}

/// Makes both ends of a call. `cancels` leads to the actor.
pub(crate) fn stdio_call(key: u64, wants_notices: bool, cancels: mpsc::UnboundedSender<u64>) -> (Port, StdioExchange) {
    let (outcome_in, outcome) = oneshot::channel();
    let (notices_in, notices) = if wants_notices {
        let (sender, receiver) = mpsc::channel(NOTICES);
        (Some(sender), Some(receiver))
    } else {
        (None, None)
    };
    let port = Port { key, outcome: outcome_in, notices: notices_in };
    (port, StdioExchange { key, outcome, notices, ended: None, finished: false, cancels })
}

impl StdioExchange {
    async fn next(&mut self) -> ExchangeEvent {
        if let Some(notices) = &mut self.notices {
            if self.ended.is_none() {
                tokio::select! {
                    biased;
                    Some(notice) = notices.recv() => return notice,
                    outcome = &mut self.outcome => self.ended = Some(outcome.unwrap_or_else(|_| lost())),
                }
            }
            // What was sent before the outcome is delivered before it.
            if let Ok(notice) = notices.try_recv() {
                return notice;
            }
        } else if self.ended.is_none() {
            self.ended = Some((&mut self.outcome).await.unwrap_or_else(|_| lost()));
        }
        self.finished = true;
        ExchangeEvent::Done(self.ended.take().unwrap_or_else(lost))
    }
}

/// The actor ended without an answer, before it took the call.
fn lost() -> Outcome {
    Outcome::Failed(down())
}

impl Drop for StdioExchange {
    fn drop(&mut self) {
        if !self.finished {
            // A task that has ended has nothing to cancel.
            let _gone = self.cancels.send(self.key);
        }
    }
}
