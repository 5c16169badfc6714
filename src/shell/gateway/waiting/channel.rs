//! The channel from a call to the person that it waits for, and what the call takes up meanwhile.

use std::sync::Arc;

use tokio::sync::OwnedSemaphorePermit;

use crate::engine::question::approval::QuestionKind;
use crate::gateway::answer::{Answer, CallLabels};
use crate::gateway::client::ClientContext;
use crate::gateway::client::quota::Place;
use crate::gateway::client_requests::ClientRequests;
use crate::gateway::held::Hold;
use crate::mcp::input::InputRequest;
use crate::mcp::meta::Meta;
use crate::policy::consent::hold::Holder;
use crate::policy::consent::unattended::AskingHost;
use crate::policy::consent::{Answer as ApprovalAnswer, PromptId};
use crate::telemetry::metrics::{OutcomeLabel, UpstreamMetrics};
use crate::wire::raw::{RawJson, RawObject};

/// The waits that a call has behind it when it is decided again.
#[derive(Clone, Copy, Debug, Default)]
pub struct PriorWaits {
    /// The approval that it has waited for.
    pub approval: Option<PromptId>,
    /// It has waited for the login at its upstream, and waits for none again.
    pub login: bool,
}

/// How the client of a waiting call is asked.
pub enum ClientChannel {
    /// By a request on the call's own stream.
    OnStream(OwnQuestion),
    /// A modern client has answered the question about an approval.
    Answered(ApprovalAnswer),
    /// A modern client was asked, and comes back without an answer of its own; it is asked again
    /// with this result.
    Repeated(RawJson),
    /// The person acts elsewhere. The client may be asked all the same.
    Elsewhere(Option<OwnQuestion>),
}

impl ClientChannel {
    /// The question for the call's own stream.
    pub const fn question(&self) -> Option<&OwnQuestion> {
        match self {
            Self::OnStream(question) | Self::Elsewhere(Some(question)) => Some(question),
            Self::Answered(_) | Self::Repeated(_) | Self::Elsewhere(None) => None,
        }
    }
}

/// A question of the gateway's own to a legacy client: a form, the request to open a page, or a
/// form without fields that says where a held call can be approved.
pub struct OwnQuestion {
    pub client_requests: Arc<ClientRequests>,
    pub request: InputRequest,
    pub kind: QuestionKind,
    /// The name of a page's question for a client of 2025-11-25.
    pub page_id: String,
}

impl OwnQuestion {
    /// The question in the words of the client's revision; `None` where it cannot be asked.
    pub fn new(client: &ClientContext, request: InputRequest, kind: QuestionKind, page_id: String) -> Option<Self> {
        let client_requests = client.client_requests.clone()?;
        let request = request.for_revision(client.revision, || page_id.clone()).ok()?;
        Some(Self { client_requests, request, kind, page_id })
    }
}

/// The places that a call takes up while it waits for a person. Given back before the call is
/// decided.
pub enum WaitPlace {
    /// A place among the caller's calls, and one among all calls that wait for a person.
    Asked { _share: Place, _asking: OwnedSemaphorePermit },
    /// A place among the held calls.
    Held(Hold),
}

/// A request as it came, to be decided again.
#[derive(Clone)]
pub struct OriginalRequest {
    pub client: ClientContext,
    pub params: RawObject,
    pub meta: Meta,
    pub labels: CallLabels,
    /// The metrics of the upstream that it is for.
    pub metrics: UpstreamMetrics,
}

impl OriginalRequest {
    /// The request without the state and the answers that its client came back with.
    pub fn new(
        client: &ClientContext,
        params: &RawObject,
        meta: Meta,
        labels: CallLabels,
        metrics: &UpstreamMetrics,
    ) -> Self {
        let mut params = params.clone();
        params.remove("requestState");
        params.remove("inputResponses");
        Self { client: client.clone(), params, meta, labels, metrics: metrics.clone() }
    }

    /// Counts the call as one that asks for input; the answer that asks.
    pub fn ask_again(&self, result: RawJson) -> Answer {
        self.metrics.count(self.labels.label, OutcomeLabel::InputRequired);
        Answer::ok(result)
    }

    /// The host that asks, for the memory of hosts without a person.
    pub fn host(&self) -> AskingHost {
        AskingHost { connection: self.client.connection(), holder: self.holder() }
    }

    /// The client that waits for the call.
    pub fn holder(&self) -> Holder {
        let ClientContext { caller, name, .. } = &self.client;
        let name = name.clone().or_else(|| self.meta.client_name());
        Holder { caller: caller.clone(), client: name.map_or_else(|| Arc::from(""), |said| said.name) }
    }
}
