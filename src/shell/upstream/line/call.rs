//! A call over lines, with one end for its caller and one for the connection. It is cancel-safe and
//! movable; dropping it cancels the call.

use std::sync::Arc;

use tokio::sync::{mpsc, oneshot};

use crate::base::budget::{Budget, COUNTED_FROM, NoRoom};
use crate::base::callers::CallerNumber;
use crate::engine::ask::{ClientAnswer, ServerRequest};
use crate::engine::askers::Party;
use crate::engine::call::{Outcome, Outgoing, Wants};
use crate::engine::event::ExchangeEvent;
use crate::engine::failure::{Executed, Failure};
use crate::engine::peer::CallPort;
use crate::upstream::turns::InTurn;
use crate::wire::message::Notification;
use crate::wire::raw::RawJson;

/// Most progress notifications that wait for a slow client; beyond that, new ones are dropped.
const NOTICES: usize = 16;
/// Most requests of a server that may wait for one call.
const REQUESTS: usize = 8;

/// A call on its way to the task of a stdio upstream.
#[derive(Debug)]
pub(crate) struct Command {
    pub outgoing: Outgoing,
    pub port: Port,
}

/// A message about a call to the task after the call was sent.
#[derive(Debug)]
pub(crate) enum Signal {
    Cancel(u64),
    Parked(u64, InTurn),
    Reply(RawJson, ClientAnswer),
}

/// The outcome of a call, and the call itself if no byte of it was written.
type Ending = (Outcome, Option<Box<Outgoing>>);

/// The task's end of a call.
#[derive(Debug)]
pub(crate) struct Port {
    key: u64,
    party: Party,
    budget: Arc<Budget>,
    outcome: oneshot::Sender<Ending>,
    notices: Option<mpsc::Sender<ExchangeEvent>>,
    requests: Option<mpsc::Sender<ExchangeEvent>>,
}

impl Port {
    /// Returns whether the other end of the call is gone.
    pub(crate) fn is_closed(&self) -> bool {
        self.outcome.is_closed()
    }

    /// Ends the call as unsent: no byte of it was written, and none will be.
    pub(crate) fn unsent(self, outgoing: Outgoing) {
        drop(self.outcome.send((Outcome::Failed(Failure::down()), Some(Box::new(outgoing)))));
    }
}

impl CallPort for Port {
    fn key(&self) -> u64 {
        self.key
    }

    fn party(&self) -> &Party {
        &self.party
    }

    fn progress(&mut self, params: RawJson) {
        if let (Some(notices), Ok(params)) = (&self.notices, count_in_share(params, &self.party, &self.budget)) {
            // A client that reads too slowly misses progress, never the outcome; the task never
            // waits for it.
            drop(notices.try_send(ExchangeEvent::Progress(params)));
        }
    }

    fn log(&mut self, params: RawJson) {
        if let (Some(notices), Ok(params)) = (&self.notices, count_in_share(params, &self.party, &self.budget)) {
            drop(notices.try_send(ExchangeEvent::Log(params)));
        }
    }

    fn notice(&mut self, notification: Notification) {
        if let Some(notices) = &self.notices {
            drop(notices.try_send(ExchangeEvent::Notice(notification)));
        }
    }

    fn ask(&mut self, request: ServerRequest) -> bool {
        // Requests have a queue of their own, so that progress cannot crowd them out.
        self.requests.as_ref().is_some_and(|requests| requests.try_send(ExchangeEvent::Ask(request)).is_ok())
    }

    fn withdrawn(&mut self, id: &RawJson) {
        if let Some(requests) = &self.requests {
            // Lost only if the client answers nothing, in which case its answer will be ignored
            // anyway.
            drop(requests.try_send(ExchangeEvent::Withdrawn(id.clone())));
        }
    }

    fn done(self, outcome: Outcome) {
        let share = |raw| count_in_share(raw, &self.party, &self.budget);
        let outcome = match outcome {
            Outcome::Result { raw, era } => share(raw).map(|raw| Outcome::Result { raw, era }),
            Outcome::Error { raw } => share(raw).map(|raw| Outcome::Error { raw }),
            failed @ Outcome::Failed(_) => Ok(failed),
        };
        let outcome = outcome.unwrap_or_else(|no_room| Outcome::Failed(no_room.failure(Executed::Unknown)));
        // If the client has gone, the receiver is gone too.
        drop(self.outcome.send((outcome, None)));
    }
}

/// Counts the bytes of a message for a call towards the share of its caller.
///
/// # Errors
/// [`NoRoom`]: the share is used up.
pub(crate) fn count_in_share(raw: RawJson, party: &Party, budget: &Arc<Budget>) -> Result<RawJson, NoRoom> {
    match &party.caller {
        Some(caller) if raw.bytes().len() >= COUNTED_FROM => {
            budget.try_count_in_share(CallerNumber::of(caller), raw.into_bytes()).map(RawJson::trusted)
        }
        Some(_) | None => Ok(raw),
    }
}

/// The caller's end of a call to a stdio upstream.
#[derive(Debug)]
pub struct StdioExchange {
    key: u64,
    outcome: oneshot::Receiver<Ending>,
    notices: Option<mpsc::Receiver<ExchangeEvent>>,
    requests: Option<mpsc::Receiver<ExchangeEvent>>,
    ended: Option<Outcome>,
    unsent: Option<Box<Outgoing>>,
    finished: bool,
    signals: mpsc::UnboundedSender<Signal>,
}

/// Creates both ends of a call. `signals` leads to the task; messages of the server take room of
/// `budget`.
pub(crate) fn stdio_call(
    key: u64,
    party: Party,
    wants: Wants,
    budget: Arc<Budget>,
    signals: mpsc::UnboundedSender<Signal>,
) -> (Port, StdioExchange) {
    let (outcome_in, outcome) = oneshot::channel();
    let (notices_in, notices) = wants.notices.then(|| mpsc::channel(NOTICES)).unzip();
    let (requests_in, requests) = wants.requests.then(|| mpsc::channel(REQUESTS)).unzip();
    let port = Port { key, party, budget, outcome: outcome_in, notices: notices_in, requests: requests_in };
    (port, StdioExchange { key, outcome, notices, requests, ended: None, unsent: None, finished: false, signals })
}

impl StdioExchange {
    /// Waits for the next event. Must not be called after [`ExchangeEvent::Done`].
    pub async fn next(&mut self) -> ExchangeEvent {
        if self.notices.is_none() && self.requests.is_none() {
            if self.ended.is_none() {
                let ending = (&mut self.outcome).await;
                self.end(ending);
            }
        } else {
            if self.ended.is_none() {
                tokio::select! {
                    biased;
                    Some(request) = next_of(&mut self.requests) => return request,
                    Some(notice) = next_of(&mut self.notices) => return notice,
                    ending = &mut self.outcome => self.end(ending),
                }
            }
            // Messages that were sent before the outcome are delivered before it.
            if let Some(notice) = self.notices.as_mut().and_then(|notices| notices.try_recv().ok()) {
                return notice;
            }
        }
        self.finished = true;
        ExchangeEvent::Done(self.ended.take().unwrap_or_else(lost))
    }

    fn end(&mut self, ending: Result<Ending, oneshot::error::RecvError>) {
        let (outcome, unsent) = ending.unwrap_or_else(|_| (lost(), None));
        (self.ended, self.unsent) = (Some(outcome), unsent);
    }

    /// Returns the call, after its end, if no byte of it was written.
    pub fn take_unsent(&mut self) -> Option<Box<Outgoing>> {
        self.unsent.take()
    }

    pub fn reply(&self, id: &RawJson, answer: ClientAnswer) {
        // If the task has ended, there is no server to send the answer to.
        let _gone = self.signals.send(Signal::Reply(id.clone(), answer));
    }

    /// Parks the call: the client has all questions asked so far, and the call waits for their
    /// answers.
    pub fn parked(&self, turn: InTurn) {
        // If the task has ended, there is no call that could wait.
        drop(self.signals.send(Signal::Parked(self.key, turn)));
    }
}

async fn next_of(channel: &mut Option<mpsc::Receiver<ExchangeEvent>>) -> Option<ExchangeEvent> {
    match channel {
        Some(channel) => channel.recv().await,
        None => None,
    }
}

/// Returns the outcome if the task had no room for the call.
fn lost() -> Outcome {
    Outcome::Failed(Failure::down())
}

impl Drop for StdioExchange {
    fn drop(&mut self) {
        if !self.finished {
            // Closed before the cancellation is sent, which may be read before the call is.
            self.outcome.close();
            // If the task has ended, there is nothing to cancel.
            let _gone = self.signals.send(Signal::Cancel(self.key));
        }
    }
}
