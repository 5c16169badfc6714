//! Questions of a legacy server to the legacy client whose call it works on: passed on under an id of our own, and the answer
//! passed back as it is.

use std::future::poll_fn;
use std::sync::Arc;
use std::task::Poll;
use std::time::{Duration, Instant};

use bytes::Bytes;

use crate::base::clock;
use crate::engine::ask::{ClientAnswer, ServerRequest, declined};
use crate::gateway::question::client_requests::{ClientRequests, PendingRequest};
use crate::gateway::question::on_stream::PATIENCE;
use crate::mcp::input::InputRequest;
use crate::mcp::version::Revision;
use crate::wire::raw::RawJson;

/// Questions of one call that may be open.
const MAX_OPEN: usize = 8;

/// The questions of one call.
#[derive(Debug, Default)]
pub(crate) struct Relay {
    open: Vec<Relayed>,
    /// Since when there is an open one.
    since: Option<Instant>,
}

#[derive(Debug)]
struct Relayed {
    request: ServerRequest,
    question: PendingRequest,
    until: Instant,
}

/// What comes of a question.
#[derive(Debug)]
pub(crate) struct Relayable {
    /// The server's id of it.
    pub(crate) id: RawJson,
    pub(crate) answer: ClientAnswer,
    /// What the client is told, where it did not answer in time.
    pub(crate) withdrawal: Option<Bytes>,
}

impl Relay {
    pub(crate) fn is_empty(&self) -> bool {
        self.open.is_empty()
    }

    /// Opens a question that was judged; the message for the client. `None` when this client cannot be asked that.
    pub(crate) fn ask(
        &mut self,
        client_requests: &Arc<ClientRequests>,
        request: ServerRequest,
        judged: InputRequest,
        revision: Revision,
    ) -> Option<Bytes> {
        if self.open.len() >= MAX_OPEN {
            return None;
        }
        let id = || data_encoding::HEXLOWER.encode(&clock::random::<16>());
        let asked = judged.for_revision(revision, id).ok()?;
        let (message, question) = client_requests.ask(&asked.method, asked.params.as_ref())?;
        let now = clock::now();
        self.since.get_or_insert(now);
        self.open.push(Relayed { request, question, until: now + PATIENCE });
        Some(message)
    }

    /// The next answer. Cancel-safe; waits for ever when nothing is open.
    pub(crate) async fn next(&mut self) -> Relayable {
        let first_until = self.open.iter().map(|relayed| relayed.until).min();
        let answered = poll_fn(|context| {
            for (at, relayed) in self.open.iter_mut().enumerate() {
                if let Poll::Ready(answer) = relayed.question.poll_answer(context) {
                    return Poll::Ready((at, answer));
                }
            }
            Poll::Pending
        });
        let timeout = async {
            match first_until {
                Some(until) => tokio::time::sleep_until(until.into()).await,
                None => std::future::pending().await,
            }
        };
        let done = tokio::select! {
            biased;
            done = answered => Some(done),
            () = timeout => None,
        };
        let (at, answer) = done.unwrap_or_else(|| {
            let late = self.open.iter().position(|relayed| Some(relayed.until) == first_until);
            (late.unwrap_or_default(), None)
        });
        let relayed = self.open.swap_remove(at);
        let withdrawal = answer.is_none().then(|| relayed.question.withdrawal("no answer in time"));
        let answer = answer.unwrap_or_else(|| declined(&relayed.request.method));
        Relayable { id: relayed.request.id, answer, withdrawal }
    }

    /// For how long the client was being asked, once nothing is open any more.
    pub(crate) fn settled(&mut self, now: Instant) -> Option<Duration> {
        if !self.open.is_empty() {
            return None;
        }
        self.since.take().map(|since| now.duration_since(since))
    }

    /// The call has ended: what the client is told of the questions that are open.
    pub(crate) fn close(&mut self) -> Vec<Bytes> {
        self.open.drain(..).map(|relayed| relayed.question.withdrawal("the call has ended")).collect()
    }

    /// The server wants no answer any more: what the client is told.
    pub(crate) fn withdraw(&mut self, id: &RawJson) -> Option<Bytes> {
        let at = self.open.iter().position(|relayed| relayed.request.id == *id)?;
        Some(self.open.swap_remove(at).question.withdrawal("withdrawn by the server"))
    }
}
