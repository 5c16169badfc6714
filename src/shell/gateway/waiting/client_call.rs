//! One call of a client from its decision to its answer. It waits for an approval or for a login at
//! its upstream, or it is permitted. After a wait it is decided again from the start.

use futures_util::future::BoxFuture;

use crate::engine::failure::{Executed, Failure, Reason};
use crate::gateway::answer::{Answer, refused};
use crate::gateway::call::{Call, ClientEvent};
use crate::gateway::waiting::channel::OriginalRequest;
use crate::gateway::waiting::{WaitStep, WaitingCall};
use crate::store::audit::Recorded;
use crate::telemetry::metrics::OutcomeLabel;

/// The outcome of a request.
pub enum Handled {
    Answer(Answer),
    Call(Box<ClientCall>),
    /// An answer that takes a moment.
    Later(BoxFuture<'static, Answer>),
    /// The gateway itself is full; HTTP says 503.
    Overloaded,
}

impl Handled {
    /// Lets an answer wait for the place of its record in the audit log, so that no client is
    /// faster than the log.
    pub fn after(self, recorded: Recorded) -> Self {
        match self {
            Self::Answer(answer) if recorded.waits_for_place() => Self::Later(Box::pin(async move {
                recorded.placed().await;
                answer
            })),
            Self::Answer(_) | Self::Call(_) | Self::Later(_) | Self::Overloaded => self,
        }
    }
}

/// One call of a client. Dropping it before the answer cancels it.
#[expect(clippy::large_enum_variant, reason = "nearly every call is of the large kind, and in a box already")]
pub enum ClientCall {
    Waiting(Box<WaitingCall>),
    Permitted(Call),
}

impl ClientCall {
    /// The next thing for the client. Cancel-safe in the way of [`Call::next`].
    pub async fn next(&mut self) -> ClientEvent {
        loop {
            let waiting = match self {
                Self::Permitted(call) => return call.next().await,
                Self::Waiting(waiting) => waiting,
            };
            // Boxed: this path is rare, and inlining it would grow every call's future.
            match Box::pin(waiting.next()).await {
                WaitStep::Event(event) => return event,
                WaitStep::DecideAgain => {
                    let decided = Box::pin(waiting.decide()).await;
                    match decided {
                        Ok(call) => *self = *call,
                        Err(answer) => return ClientEvent::Done(answer),
                    }
                }
            }
        }
    }

    /// Whether it is held while a person decides elsewhere. If its client gives it up in the moment
    /// of the answer, it must not be sent.
    pub const fn is_held(&self) -> bool {
        // One whose client is asked is held from the moment on when that client has no person.
        matches!(self, Self::Waiting(_))
    }

    /// Whether its server's questions wait for the client on its stream.
    pub fn is_asking(&self) -> bool {
        matches!(self, Self::Permitted(call) if call.is_asking())
    }

    /// Closes these questions as if their time were over.
    pub fn nobody_answers(&mut self) {
        if let Self::Permitted(call) = self {
            call.nobody_answers();
        }
    }

    /// The client has withdrawn its request.
    pub fn withdraw(self) {
        if let Self::Permitted(call) = self {
            call.withdraw();
        }
    }

    /// Lets a permitted call run on without its client: a legacy client that went away did not
    /// cancel. A call that awaits approval ends, since no client is left to ask.
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
    /// The answer, if it comes to no call.
    async fn decide(&mut self) -> Result<Box<ClientCall>, Answer> {
        let OriginalRequest { client, params, meta, labels, metrics } = self.request.clone();
        let waits = self.prior_waits();
        match self.service.clone().call_after(&client, labels.method, &params, meta, labels.arrived, waits) {
            Handled::Call(mut call) => {
                match &mut *call {
                    ClientCall::Permitted(call) => call.resume_progress(self.progress.take()),
                    ClientCall::Waiting(waiting) => waiting.resume(self),
                }
                Ok(call)
            }
            Handled::Answer(answer) => Err(answer),
            Handled::Later(answer) => Err(answer.await),
            Handled::Overloaded => {
                metrics.count(labels.label, OutcomeLabel::Busy);
                let busy = Failure::new(Reason::Busy, Executed::No, "The gateway is busy.");
                Err(refused(&busy, &labels, client.revision))
            }
        }
    }
}
