//! A request for an upstream, complete except for its decision.

use std::sync::Arc;

use crate::engine::call::OutgoingCall;
use crate::engine::question::park::ParkId;
use crate::engine::sealed::state::StateCarrier;
use crate::gateway::answer::CallLabels;
use crate::gateway::client::ClientContext;
use crate::gateway::client::quota::QuotaSlot;
use crate::gateway::client_requests::ClientRequests;
use crate::gateway::decision::CallContinuation;
use crate::gateway::decision::found::FoundItem;
use crate::mcp::asking::kinds::InputKinds;
use crate::policy::PolicyAction;
use crate::wire::id::ClientId;
use crate::wire::json::raw::RawJson;

/// Everything that a call is made of except its permit and its place among running calls.
pub struct PreparedCall<'s> {
    pub client: &'s ClientContext,
    pub found: FoundItem<'s>,
    pub action: PolicyAction,
    pub labels: CallLabels,
    pub outgoing: OutgoingCall,
    /// The URI that the client reads, if it is not the upstream's own.
    pub asked: Option<Arc<str>>,
    /// The client's progress token, if it wants progress.
    pub token: Option<ClientId>,
    pub going_on: CallContinuation,
    /// Kinds of question that the gateway itself can ask the client.
    pub asks: InputKinds,
    pub input: Option<Box<InputContext>>,
    /// The call's slot among its caller's calls.
    pub share: QuotaSlot,
}

/// The context for passing a server's request for input on to the client.
#[derive(Debug)]
pub struct InputContext {
    /// Kinds of input that the upstream may ask this client for.
    pub offered: InputKinds,
    /// True if the client runs on this machine.
    pub is_here: bool,
    /// Number of earlier rounds of this call.
    pub round: u8,
    /// Credential kind, revision and capabilities of the client, to which its sealed states are
    /// bound.
    pub carrier: StateCarrier,
    /// Questions to a legacy client, which are sent as requests; `None` for modern ones.
    pub client_requests: Option<Arc<ClientRequests>>,
    /// The parked call that this request joins, with the client's answers.
    pub parked: Option<(ParkId, Option<RawJson>)>,
    /// The relation to tasks, for a client that knows them.
    pub task: Option<ClientTaskUse>,
}

/// The relation of a modern client's request to tasks.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ClientTaskUse {
    /// The call may become a task.
    Passes,
    /// The request is about a task: the upstream's id and the client's id of it.
    Named { theirs: String, ours: String },
}
