//! A request that reaches an upstream, as far as it is known before it is decided.

use std::sync::Arc;

use crate::engine::call::Outgoing;
use crate::engine::question::park::ParkId;
use crate::engine::state::Carrier;
use crate::gateway::answer::CallLabels;
use crate::gateway::client::ClientContext;
use crate::gateway::client::quota::Place;
use crate::gateway::client_requests::ClientRequests;
use crate::gateway::decision::GoingOn;
use crate::gateway::decision::found::Found;
use crate::mcp::kinds::Kinds;
use crate::policy::Action;
use crate::wire::id::ClientId;
use crate::wire::raw::RawJson;

/// Everything that a call is made of, but its permit and its place.
pub struct Prepared<'s> {
    pub client: &'s ClientContext,
    pub found: Found<'s>,
    pub action: Action,
    pub labels: CallLabels,
    pub outgoing: Outgoing,
    /// Where the client wants progress.
    pub token: Option<ClientId>,
    pub going_on: GoingOn,
    /// What the client can be asked for by the gateway itself.
    pub asks: Kinds,
    pub input: Option<Box<InputContext>>,
    pub share: Place,
}

/// What it takes to pass a server's request for input on.
#[derive(Debug)]
pub struct InputContext {
    pub offered: Kinds,
    /// The client is on this machine.
    pub is_here: bool,
    /// Rounds so far.
    pub round: u8,
    /// The client, as its states hold it.
    pub carrier: Carrier,
    /// For legacy clients, which are asked by requests.
    pub client_requests: Option<Arc<ClientRequests>>,
    /// The parked call that this request goes on with, and the client's answers.
    pub parked: Option<(ParkId, Option<RawJson>)>,
    /// For clients that know tasks.
    pub task: Option<TaskWay>,
}

/// What a modern client's request has to do with tasks.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum TaskWay {
    /// The call may become one.
    Passes,
    /// It is about one, which the upstream and the client call so.
    Named { theirs: String, ours: String },
}
