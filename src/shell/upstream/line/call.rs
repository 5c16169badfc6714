//! A call over lines, with one end for its caller and one for the connection. It is cancel-safe and
//! movable; dropping it cancels the call.

use std::sync::Arc;

use tokio::sync::{mpsc, oneshot};

use crate::base::budget::{ByteBudget, COUNTED_FROM, NoRoom};
use crate::base::callers::CallerNumber;
use crate::engine::askers::CallOrigin;
use crate::engine::call::{CallOutcome, OutgoingCall, WantedEvents};
use crate::engine::connection::ask::{ClientAnswer, ServerRequest};
use crate::engine::event::CallEvent;
use crate::engine::failure::{CallFailure, ExecutionDoubt};
use crate::engine::peer::CallPort;
use crate::upstream::turns::SharedCallTurn;
use crate::wire::json::raw::RawJson;
use crate::wire::message::Notification;

/// Most progress notifications that wait for a slow client; beyond that, new ones are dropped.
const NOTICES: usize = 16;
/// Most requests of a server that may wait for one call.
const REQUESTS: usize = 8;

/// A call on its way to the task of a stdio upstream.
#[derive(Debug)]
pub(crate) struct LineCall {
    pub outgoing: OutgoingCall,
    pub port: StdioPort,
}

/// A message about a call to the task after the call was sent.
#[derive(Debug)]
pub(crate) enum LineCallSignal {
    Cancel(u64),
    Parked(u64, SharedCallTurn),
    Reply(RawJson, ClientAnswer),
}

/// The outcome of a call, and the call itself if no byte of it was written.
type LineCallEnd = (CallOutcome, Option<Box<OutgoingCall>>);

/// The task's end of a call.
#[derive(Debug)]
pub(crate) struct StdioPort {
    key: u64,
    party: CallOrigin,
    budget: Arc<ByteBudget>,
    outcome: oneshot::Sender<LineCallEnd>,
    notices: Option<mpsc::Sender<CallEvent>>,
    requests: Option<mpsc::Sender<CallEvent>>,
}

impl StdioPort {
    /// Returns whether the other end of the call is gone.
    pub(crate) fn is_closed(&self) -> bool {
        self.outcome.is_closed()
    }

    /// Ends the call as unsent: no byte of it was written, and none will be.
    pub(crate) fn unsent(self, outgoing: OutgoingCall) {
        drop(self.outcome.send((CallOutcome::Failed(CallFailure::down()), Some(Box::new(outgoing)))));
    }
}

impl CallPort for StdioPort {
    fn key(&self) -> u64 {
        self.key
    }

    fn party(&self) -> &CallOrigin {
        &self.party
    }

    fn progress(&mut self, params: RawJson) {
        if let (Some(notices), Ok(params)) = (&self.notices, count_in_share(params, &self.party, &self.budget)) {
            // A client that reads too slowly misses progress, never the outcome; the task never
            // waits for it.
            drop(notices.try_send(CallEvent::Progress(params)));
        }
    }

    fn log(&mut self, params: RawJson) {
        if let (Some(notices), Ok(params)) = (&self.notices, count_in_share(params, &self.party, &self.budget)) {
            drop(notices.try_send(CallEvent::Log(params)));
        }
    }

    fn notice(&mut self, notification: Notification) {
        if let Some(notices) = &self.notices {
            drop(notices.try_send(CallEvent::Notice(notification)));
        }
    }

    fn ask(&mut self, request: ServerRequest) -> bool {
        // Requests have a queue of their own, so that progress cannot crowd them out.
        self.requests.as_ref().is_some_and(|requests| requests.try_send(CallEvent::Ask(request)).is_ok())
    }

    fn withdrawn(&mut self, id: &RawJson) {
        if let Some(requests) = &self.requests {
            // Lost only if the client answers nothing, in which case its answer will be ignored
            // anyway.
            drop(requests.try_send(CallEvent::Withdrawn(id.clone())));
        }
    }

    fn done(self, outcome: CallOutcome) {
        let share = |raw| count_in_share(raw, &self.party, &self.budget);
        let outcome = match outcome {
            CallOutcome::Result { raw, era } => share(raw).map(|raw| CallOutcome::Result { raw, era }),
            CallOutcome::Error { raw } => share(raw).map(|raw| CallOutcome::Error { raw }),
            failed @ CallOutcome::Failed(_) => Ok(failed),
        };
        let outcome = outcome.unwrap_or_else(|no_room| CallOutcome::Failed(no_room.failure(ExecutionDoubt::Unknown)));
        // If the client has gone, the receiver is gone too.
        drop(self.outcome.send((outcome, None)));
    }
}

/// Counts the bytes of a message for a call towards the share of its caller.
///
/// # Errors
/// [`NoRoom`]: the share is used up.
pub(crate) fn count_in_share(raw: RawJson, party: &CallOrigin, budget: &Arc<ByteBudget>) -> Result<RawJson, NoRoom> {
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
    outcome: oneshot::Receiver<LineCallEnd>,
    notices: Option<mpsc::Receiver<CallEvent>>,
    requests: Option<mpsc::Receiver<CallEvent>>,
    ended: Option<CallOutcome>,
    unsent: Option<Box<OutgoingCall>>,
    finished: bool,
    signals: mpsc::UnboundedSender<LineCallSignal>,
}

/// Creates both ends of a call. `signals` leads to the task; messages of the server take room of
/// `budget`.
pub(crate) fn stdio_call(
    key: u64,
    party: CallOrigin,
    wants: WantedEvents,
    budget: Arc<ByteBudget>,
    signals: mpsc::UnboundedSender<LineCallSignal>,
) -> (StdioPort, StdioExchange) {
    let (outcome_in, outcome) = oneshot::channel();
    let (notices_in, notices) = wants.notices.then(|| mpsc::channel(NOTICES)).unzip();
    let (requests_in, requests) = wants.requests.then(|| mpsc::channel(REQUESTS)).unzip();
    let port = StdioPort { key, party, budget, outcome: outcome_in, notices: notices_in, requests: requests_in };
    (port, StdioExchange { key, outcome, notices, requests, ended: None, unsent: None, finished: false, signals })
}

impl StdioExchange {
    /// Waits for the next event. Must not be called after [`CallEvent::Done`].
    pub async fn next(&mut self) -> CallEvent {
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
        CallEvent::Done(self.ended.take().unwrap_or_else(lost))
    }

    fn end(&mut self, ending: Result<LineCallEnd, oneshot::error::RecvError>) {
        let (outcome, unsent) = ending.unwrap_or_else(|_| (lost(), None));
        (self.ended, self.unsent) = (Some(outcome), unsent);
    }

    /// Returns the call, after its end, if no byte of it was written.
    pub fn take_unsent(&mut self) -> Option<Box<OutgoingCall>> {
        self.unsent.take()
    }

    pub fn reply(&self, id: &RawJson, answer: ClientAnswer) {
        // If the task has ended, there is no server to send the answer to.
        let _gone = self.signals.send(LineCallSignal::Reply(id.clone(), answer));
    }

    /// Parks the call: the client has all questions asked so far, and the call waits for their
    /// answers.
    pub fn parked(&self, turn: SharedCallTurn) {
        // If the task has ended, there is no call that could wait.
        drop(self.signals.send(LineCallSignal::Parked(self.key, turn)));
    }
}

async fn next_of(channel: &mut Option<mpsc::Receiver<CallEvent>>) -> Option<CallEvent> {
    match channel {
        Some(channel) => channel.recv().await,
        None => None,
    }
}

/// Returns the outcome if the task had no room for the call.
fn lost() -> CallOutcome {
    CallOutcome::Failed(CallFailure::down())
}

impl Drop for StdioExchange {
    fn drop(&mut self) {
        if !self.finished {
            // Closed before the cancellation is sent, which may be read before the call is.
            self.outcome.close();
            // If the task has ended, there is nothing to cancel.
            let _gone = self.signals.send(LineCallSignal::Cancel(self.key));
        }
    }
}
