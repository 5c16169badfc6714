//! A client's call from its decision to its answer: waiting for a person, or permitted. After a
//! wait it is decided again from the start.

use futures_util::future::BoxFuture;

use crate::engine::failure::{CallFailure, ExecutionDoubt, FailureReason};
use crate::gateway::answer::{RequestAnswer, refusal_answer};
use crate::gateway::call::{ClientEvent, PermittedCall};
use crate::gateway::waiting::channel::OriginalRequest;
use crate::gateway::waiting::{WaitEvent, WaitingCall};
use crate::store::audit::RecordState;
use crate::telemetry::metrics::OutcomeLabel;

/// The gateway's response to a request.
pub enum RequestOutcome {
    Answer(RequestAnswer),
    Call(Box<ClientCall>),
    /// An answer that has to be waited for.
    Later(BoxFuture<'static, RequestAnswer>),
    /// The gateway is full; HTTP answers 503.
    Overloaded,
}

impl RequestOutcome {
    /// Delays an answer until its record has a place in the audit log's queue, so that no client is
    /// faster than the log.
    pub fn after(self, recorded: RecordState) -> Self {
        match self {
            Self::Answer(answer) if recorded.waits_for_place() => Self::Later(Box::pin(async move {
                recorded.placed().await;
                answer
            })),
            Self::Answer(_) | Self::Call(_) | Self::Later(_) | Self::Overloaded => self,
        }
    }
}

/// A call of a client. Dropping it before the answer cancels it.
#[expect(clippy::large_enum_variant, reason = "nearly every call is of the large kind, and in a box already")]
pub enum ClientCall {
    Waiting(Box<WaitingCall>),
    Permitted(PermittedCall),
}

impl ClientCall {
    /// Waits for the next event for the client; a call whose wait has ended is decided again on the
    /// way. Cancel-safe in the way of [`PermittedCall::next`].
    pub async fn next(&mut self) -> ClientEvent {
        loop {
            let waiting = match self {
                Self::Permitted(call) => return call.next().await,
                Self::Waiting(waiting) => waiting,
            };
            // Boxed: this path is rare, and inlining it would grow every call's future.
            match Box::pin(waiting.next()).await {
                WaitEvent::Event(event) => return event,
                WaitEvent::DecideAgain => {
                    let decided = Box::pin(waiting.decide()).await;
                    match decided {
                        Ok(call) => *self = *call,
                        Err(answer) => return ClientEvent::Done(answer),
                    }
                }
            }
        }
    }

    /// Whether the call waits for a person. It must not be sent if its client gives it up at the
    /// moment of the answer.
    pub const fn is_held(&self) -> bool {
        // A call whose client is asked counts too: it becomes held once that client proves to have
        // no person.
        matches!(self, Self::Waiting(_))
    }

    /// Whether questions of the call's server are open at its client.
    pub fn is_asking(&self) -> bool {
        matches!(self, Self::Permitted(call) if call.is_asking())
    }

    /// Closes these questions as if their time were over.
    pub fn nobody_answers(&mut self) {
        if let Self::Permitted(call) = self {
            call.nobody_answers();
        }
    }

    /// Cancels the call upstream because its client has withdrawn the request.
    pub fn withdraw(self) {
        if let Self::Permitted(call) = self {
            call.withdraw();
        }
    }

    /// Lets a permitted call run on without its client: a legacy client that went away did not
    /// cancel. A call that waits for a person ends, since no client is left to ask.
    pub fn detach(self) {
        if let Self::Permitted(call) = self {
            call.detach();
        }
    }
}

impl WaitingCall {
    /// Decides the call from the start.
    ///
    /// # Errors
    /// The answer, if the call is not made.
    async fn decide(&mut self) -> Result<Box<ClientCall>, RequestAnswer> {
        let OriginalRequest { client, params, meta, labels, metrics } = self.request.clone();
        let waits = self.prior_waits();
        match self.service.clone().call_after(&client, labels.method, &params, meta, labels.arrived, waits) {
            RequestOutcome::Call(mut call) => {
                match &mut *call {
                    ClientCall::Permitted(call) => call.resume_progress(self.progress.take()),
                    ClientCall::Waiting(waiting) => waiting.resume(self),
                }
                Ok(call)
            }
            RequestOutcome::Answer(answer) => Err(answer),
            RequestOutcome::Later(answer) => Err(answer.await),
            RequestOutcome::Overloaded => {
                metrics.count(labels.label, OutcomeLabel::Busy);
                let busy = CallFailure::new(FailureReason::Busy, ExecutionDoubt::No, "The gateway is busy.");
                Err(refusal_answer(&busy, &labels, client.revision))
            }
        }
    }
}
