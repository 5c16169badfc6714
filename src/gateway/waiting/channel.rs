//! The way of a call to the person who can approve it, and what the call takes up meanwhile.

use std::sync::Arc;

use tokio::sync::OwnedSemaphorePermit;

use crate::engine::failure::Failure;
use crate::engine::question::approval::QuestionKind;
use crate::gateway::answer::CallLabels;
use crate::gateway::call::ClientEvent;
use crate::gateway::client::ClientContext;
use crate::gateway::question::client_requests::ClientRequests;
use crate::gateway::quota::Place;
use crate::gateway::waiting::held::Hold;
use crate::mcp::input::InputRequest;
use crate::mcp::meta::Meta;
use crate::policy::consent::hold::Holder;
use crate::policy::consent::unattended::AskingHost;
use crate::policy::consent::{Answer, PromptId};
use crate::telemetry::metrics::UpstreamMetrics;
use crate::wire::raw::{RawJson, RawObject};

/// The next of a call that waits for a person.
pub(crate) enum Step {
    Event(ClientEvent),
    /// It has waited long enough: it is decided from the start.
    Again,
}

/// What a call has waited for before it is decided again.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Waited {
    /// Its approval.
    pub(crate) prompt: Option<PromptId>,
    /// The login at its upstream; it waits for none again.
    pub(crate) login: bool,
}

/// How the client is asked.
pub(crate) enum Channel {
    /// By a request on the call's own stream: our form, or to open the approval's page.
    OnStream { client_requests: Arc<ClientRequests>, question: InputRequest, kind: QuestionKind },
    /// A modern client has answered our question.
    Answered(Answer),
    /// A modern client was asked, and comes back without an answer of its own; it is asked again with this result.
    Waiting(RawJson),
    /// The approval comes from elsewhere, and the call is refused so if that takes too long. Its
    /// client may be asked all the same.
    Elsewhere { refusal: Box<Failure>, note: Option<Note> },
}

/// A question to the client of a held call: a form without fields that says where the approval can
/// be given, or, at a host where no person was lately, the question that such a client gets.
pub(crate) struct Note {
    pub(crate) client_requests: Arc<ClientRequests>,
    pub(crate) question: InputRequest,
    pub(crate) kind: QuestionKind,
}

/// The places that a call takes up while it awaits approval. Given back before the call is decided.
pub(crate) enum Room {
    /// Its caller's place among its calls, and that among all that wait for a person.
    Asked(#[expect(dead_code, reason = "given back on drop")] (Place, OwnedSemaphorePermit)),
    /// A place among the held calls.
    Held(Hold),
}

/// A request as it came, to be decided again.
#[derive(Clone)]
pub(crate) struct Request {
    pub(crate) client: ClientContext,
    pub(crate) params: RawObject,
    pub(crate) meta: Meta,
    pub(crate) labels: CallLabels,
    /// Of the upstream that it is for.
    pub(crate) metrics: UpstreamMetrics,
}

impl Request {
    /// The host that asks, for the memory of hosts without a person.
    pub(crate) fn host(&self) -> AskingHost {
        AskingHost { connection: self.client.connection(), holder: self.holder() }
    }

    /// The client that waits for the call.
    pub(crate) fn holder(&self) -> Holder {
        let ClientContext { caller, name, .. } = &self.client;
        let name = name.clone().or_else(|| self.meta.client_name());
        Holder { caller: Arc::clone(caller), client: name.map_or_else(|| Arc::from(""), |said| said.name) }
    }
}
