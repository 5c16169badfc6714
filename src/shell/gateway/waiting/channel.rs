//! How a waiting call's client is asked, and the slots that the call takes meanwhile.

use std::sync::Arc;

use tokio::sync::OwnedSemaphorePermit;

use crate::engine::question::approval::ApprovalQuestionKind;
use crate::gateway::answer::{CallLabels, RequestAnswer};
use crate::gateway::client::ClientContext;
use crate::gateway::client::quota::QuotaSlot;
use crate::gateway::client_requests::ClientRequests;
use crate::gateway::decision::CallContinuation;
use crate::gateway::held::HoldSlot;
use crate::mcp::asking::input::InputRequest;
use crate::mcp::meta::Meta;
use crate::policy::consent::hold::ClientKey;
use crate::policy::consent::unattended::AskingHost;
use crate::policy::consent::{ApprovalId, PersonAnswer as ApprovalAnswer};
use crate::telemetry::metrics::{OutcomeLabel, UpstreamMetrics};
use crate::wire::json::raw::{RawJson, RawObject};

/// The earlier waits of a call that is decided again.
#[derive(Default)]
pub struct PriorWaits {
    /// The way in which the call goes on, after a wait until its approval was listed.
    pub listed: Option<CallContinuation>,
    /// The approval that the call has waited for.
    pub approval: Option<ApprovalId>,
    /// True if the call has waited for a login; it does not wait for one again.
    pub login: bool,
}

/// How the client of a waiting call is asked.
pub enum ClientChannel {
    /// A request on the call's own stream.
    OnStream(OwnQuestion),
    /// A modern client's answer about the approval, to be stored.
    Answered(ApprovalAnswer),
    /// A modern client has repeated its request without an answer of its own; it is asked again
    /// with this result.
    Repeated(RawJson),
    /// The person acts elsewhere; a legacy client may be asked too.
    Elsewhere(Option<OwnQuestion>),
}

impl ClientChannel {
    /// Returns the question for the call's own stream, if there is one.
    pub const fn question(&self) -> Option<&OwnQuestion> {
        match self {
            Self::OnStream(question) | Self::Elsewhere(Some(question)) => Some(question),
            Self::Answered(_) | Self::Repeated(_) | Self::Elsewhere(None) => None,
        }
    }
}

/// The gateway's own question to a legacy client: a form, the request to open a page, or a form
/// without fields that says where a held call can be approved.
pub struct OwnQuestion {
    pub client_requests: Arc<ClientRequests>,
    pub request: InputRequest,
    pub kind: ApprovalQuestionKind,
    /// Id of a page's question, for a client of 2025-11-25.
    pub page_id: String,
}

impl OwnQuestion {
    /// Writes the question for the client's revision; `None` if the client cannot be asked it.
    pub fn new(
        client: &ClientContext,
        request: InputRequest,
        kind: ApprovalQuestionKind,
        page_id: String,
    ) -> Option<Self> {
        let client_requests = client.client_requests.clone()?;
        let request = request.for_revision(client.revision, || page_id.clone()).ok()?;
        Some(Self { client_requests, request, kind, page_id })
    }
}

/// The slots that a call takes while it waits for a person. Released before the call is decided.
pub enum WaitSlots {
    /// A slot among the caller's calls, and one among all calls whose client is asked.
    Asked { _share: QuotaSlot, _asking: OwnedSemaphorePermit },
    /// A slot among the held calls.
    Held(HoldSlot),
}

/// A client's request, kept to be decided again.
#[derive(Clone)]
pub struct OriginalRequest {
    pub client: ClientContext,
    pub params: RawObject,
    pub meta: Meta,
    pub labels: CallLabels,
    /// Metrics of the request's upstream.
    pub metrics: UpstreamMetrics,
}

impl OriginalRequest {
    /// Keeps a request without the sealed state and the answers that its client brought.
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

    /// Counts the call as one that asks for input, and returns the answer that asks.
    pub fn ask_again(&self, result: RawJson) -> RequestAnswer {
        self.metrics.count(self.labels.label, OutcomeLabel::InputRequired);
        RequestAnswer::ok(result)
    }

    /// Returns the client's host, for the record of hosts without a person.
    pub fn host(&self) -> AskingHost {
        AskingHost { connection: self.client.connection(), holder: self.holder() }
    }

    /// Returns the caller and client name for which the call is held.
    pub fn holder(&self) -> ClientKey {
        let ClientContext { caller, name, .. } = &self.client;
        let name = name.clone().or_else(|| self.meta.client_name());
        ClientKey { caller: caller.clone(), client: name.map_or_else(|| Arc::from(""), |said| said.name) }
    }
}
