//! A modern server asks for input, and the client is a legacy one: the server's requests become real requests to the client,
//! and the call goes on upstream when all are answered.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;

use crate::base::clock;
use crate::engine::ask::ClientAnswer;
use crate::gateway::question::client_requests::{ClientRequests, PendingRequest};
use crate::mcp::input::{InputRequest, Wanted, decline};
use crate::mcp::version::Revision;
use crate::wire::raw::{RawJson, RawObject};

/// How long a person may take for one answer.
pub(crate) const PATIENCE: Duration = Duration::from_secs(600);

/// One round of questions.
#[derive(Debug)]
pub(crate) struct Dialogue {
    client_requests: Arc<ClientRequests>,
    /// The server's state, which goes back to it as it is.
    state: Option<String>,
    waiting: VecDeque<InputRequest>,
    open: Option<(InputRequest, PendingRequest, Instant)>,
    responses: RawObject,
}

/// What to do next.
#[derive(Debug)]
pub(crate) enum Step {
    /// Send this to the client.
    Send(Bytes),
    /// Everything is answered: the members that the repeated request carries.
    Answered { responses: RawJson, state: Option<String> },
    /// The call cannot go on, with the reason.
    Over(&'static str),
}

impl Dialogue {
    /// Begins with what a server's result asks for. What is declined has its answer already.
    pub(crate) fn open(wanted: Wanted, revision: Revision, client_requests: &Arc<ClientRequests>) -> Self {
        let Wanted { asked, declined, state } = wanted;
        let id = || data_encoding::HEXLOWER.encode(&clock::random::<16>());
        let (mut waiting, mut responses) = (VecDeque::new(), RawObject::default());
        for (key, _) in declined {
            responses.set(&key, decline());
        }
        for request in asked {
            let key = request.key.clone();
            match request.for_revision(revision, id) {
                Ok(request) => waiting.push_back(request),
                // Nobody can fill in a form that cannot be shown.
                Err(_) => responses.set(&key, cancelled()),
            }
        }
        Self { client_requests: Arc::clone(client_requests), state, waiting, open: None, responses }
    }

    /// Asks one after the other, which is kinder to a person than all at once. Cancel-safe.
    pub(crate) async fn step(&mut self) -> Step {
        if let Some((_, question, until)) = &mut self.open {
            let Ok(answer) = tokio::time::timeout_at((*until).into(), question.answer()).await else {
                return Step::Over("the client did not answer the server's question in time");
            };
            let Some((request, _, _)) = self.open.take() else { return Step::Over("the client is gone") };
            match response(&request.method, answer) {
                Ok(response) => self.responses.set(&request.key, response),
                Err(why) => return Step::Over(why),
            }
        }
        let Some(request) = self.waiting.pop_front() else {
            let (responses, state) = (self.responses.encode(), self.state.take());
            return Step::Answered { responses, state };
        };
        let Some((message, question)) = self.client_requests.ask(&request.method, request.params.as_ref()) else {
            return Step::Over("the client has too many questions open");
        };
        self.open = Some((request, question, clock::now() + PATIENCE));
        Step::Send(message)
    }
}

fn cancelled() -> RawJson {
    RawJson::trusted(r#"{"action":"cancel"}"#)
}

/// The client's answer as the server takes it. The protocol has no place for an error there.
fn response(method: &str, answer: Option<ClientAnswer>) -> Result<RawJson, &'static str> {
    match (method, answer.ok_or("the client is gone")?) {
        (_, Ok(result)) if result.is_object() => Ok(result),
        ("elicitation/create", _) => Ok(cancelled()),
        ("roots/list", _) => Ok(RawJson::trusted(r#"{"roots":[]}"#)),
        _ => Err("the client refused to sample for the server"),
    }
}
