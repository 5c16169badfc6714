//! A request that reaches an upstream, as far as it is known before it is decided.

use std::sync::Arc;

use crate::engine::call::Outgoing;
use crate::engine::question::park::ParkId;
use crate::engine::state::Carrier;
use crate::gateway::answer::CallLabels;
use crate::gateway::client::ClientContext;
use crate::gateway::decision::GoingOn;
use crate::gateway::found::Found;
use crate::gateway::question::client_requests::ClientRequests;
use crate::gateway::quota::Place;
use crate::mcp::input::Kinds;
use crate::policy::Action;
use crate::wire::id::ClientId;
use crate::wire::raw::RawJson;

/// Everything that a call is made of, but its permit and its place.
pub(crate) struct Prepared<'s> {
    pub(crate) client: &'s ClientContext,
    pub(crate) found: Found<'s>,
    pub(crate) action: Action,
    pub(crate) labels: CallLabels,
    pub(crate) outgoing: Outgoing,
    /// Where the client wants progress.
    pub(crate) token: Option<ClientId>,
    pub(crate) going_on: GoingOn,
    /// What the client can be asked for by the gateway itself.
    pub(crate) asks: Kinds,
    pub(crate) input: Option<Box<InputContext>>,
    pub(crate) share: Place,
}

/// What it takes to pass a server's request for input on.
#[derive(Debug)]
pub(crate) struct InputContext {
    pub(crate) offered: Kinds,
    /// The client is on this machine.
    pub(crate) is_here: bool,
    /// Rounds so far.
    pub(crate) round: u8,
    /// The client, as its states hold it.
    pub(crate) carrier: Carrier,
    /// For legacy clients, which are asked by requests.
    pub(crate) client_requests: Option<Arc<ClientRequests>>,
    /// The parked call that this request goes on with, and the client's answers.
    pub(crate) parked: Option<(ParkId, Option<RawJson>)>,
    /// For clients that know tasks.
    pub(crate) task: Option<TaskWay>,
}

/// What a modern client's request has to do with tasks.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum TaskWay {
    /// The call may become one.
    Passes,
    /// It is about one, which the upstream and the client call so.
    Named { theirs: String, ours: String },
}
