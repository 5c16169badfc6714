//! One call of a client from its decision to its answer. It waits for an approval or for a login at its upstream, or it is permitted.
//! Whatever it waited for, it is decided again from the start.

use std::sync::Arc;

use futures_util::future::BoxFuture;

use crate::engine::failure::{Executed, Failure, Reason};
use crate::gateway::answer::{Answer, refused};
use crate::gateway::call::{Call, ClientEvent};
use crate::gateway::waiting::approval::Asking;
use crate::gateway::waiting::channel::{Request, Step, Waited};
use crate::gateway::waiting::login::AwaitingLogin;
use crate::store::audit::Recorded;
use crate::telemetry::metrics::OutcomeLabel;

/// The outcome of a request.
pub(crate) enum Handled {
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
    pub(crate) fn after(self, recorded: Recorded) -> Self {
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
pub(crate) enum ClientCall {
    Asking(Box<Asking>),
    LoggingIn(Box<AwaitingLogin>),
    Permitted(Call),
}

impl ClientCall {
    /// The next thing for the client. Cancel-safe in the way of [`Call::next`].
    pub(crate) async fn next(&mut self) -> ClientEvent {
        loop {
            // Seldom is it not permitted, and that must not make every call's future larger.
            let step = match self {
                Self::Permitted(call) => return call.next().await,
                Self::Asking(asking) => Box::pin(asking.next()).await,
                Self::LoggingIn(waiting) => Box::pin(waiting.next()).await,
            };
            match step {
                Step::Event(event) => return event,
                Step::Again => {
                    if let Some(event) = Box::pin(self.decide_again()).await {
                        return event;
                    }
                }
            }
        }
    }

    /// It has waited long enough: it is decided from the start. The event that ends it, if it comes to no call.
    async fn decide_again(&mut self) -> Option<ClientEvent> {
        let (service, request, waited) = match self {
            Self::Permitted(_) => return None,
            Self::Asking(asking) => {
                let waited = Waited { prompt: Some(asking.prompt), login: false };
                (Arc::clone(&asking.service), asking.request.clone(), waited)
            }
            Self::LoggingIn(waiting) => {
                let waited = Waited { prompt: waiting.prompt, login: true };
                (Arc::clone(&waiting.service), waiting.request.clone(), waited)
            }
        };
        let Request { client, params, meta, labels, metrics } = request;
        let answer = match service.call_after(&client, labels.method, &params, meta, labels.arrived, waited) {
            Handled::Call(mut call) => {
                call.goes_on_after(self);
                *self = *call;
                return None;
            }
            Handled::Answer(answer) => answer,
            Handled::Later(answer) => answer.await,
            Handled::Overloaded => {
                metrics.count(labels.label, OutcomeLabel::Busy);
                let busy = Failure::new(Reason::Busy, Executed::No, "The gateway is busy.");
                refused(&busy, &labels, client.revision)
            }
        };
        Some(ClientEvent::Done(answer))
    }

    /// Whether it is held while a person decides elsewhere. If its client gives it up in the moment of the answer, it must not be
    /// sent.
    pub(crate) fn is_held(&self) -> bool {
        match self {
            // One whose client is asked is held from the moment on when that client has no person.
            Self::Asking(_) | Self::LoggingIn(_) => true,
            Self::Permitted(_) => false,
        }
    }

    /// It is the same call as one that was held, decided again. Another call may have used the approval up, so that it waits again.
    fn goes_on_after(&mut self, before: &mut Self) {
        let (progress, reminders, is_told) = match before {
            Self::Permitted(_) => return,
            Self::Asking(before) => (before.progress.take(), std::mem::take(&mut before.reminders), before.is_told),
            Self::LoggingIn(before) => (before.progress.take(), std::mem::take(&mut before.reminders), false),
        };
        match self {
            Self::Permitted(call) => call.goes_on_after(progress),
            Self::Asking(asking) => {
                asking.is_told = is_told;
                if progress.is_some() {
                    (asking.progress, asking.reminders) = (progress, reminders);
                }
            }
            Self::LoggingIn(waiting) => {
                if progress.is_some() {
                    (waiting.progress, waiting.reminders) = (progress, reminders);
                }
            }
        }
    }

    /// Whether its server's questions wait for the client on its stream.
    pub(crate) fn is_asking(&self) -> bool {
        matches!(self, Self::Permitted(call) if call.is_asking())
    }

    /// Closes these questions as if their time were over.
    pub(crate) fn nobody_answers(&mut self) {
        if let Self::Permitted(call) = self {
            call.nobody_answers();
        }
    }

    /// The client has withdrawn its request.
    pub(crate) fn withdraw(self) {
        if let Self::Permitted(call) = self {
            call.withdraw();
        }
    }

    /// Lets a permitted call run on without its client: a legacy client that went away did not cancel. A call that
    /// awaits approval ends, since no client is left to ask.
    pub(crate) fn detach(self) {
        if let Self::Permitted(call) = self {
            call.detach();
        }
    }
}
