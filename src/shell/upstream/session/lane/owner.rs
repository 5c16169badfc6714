//! Owners of sessions with an upstream: all clients together, one caller, or one client.

use std::sync::{Arc, Weak};

use crate::config::{InstanceScope, UpstreamSettings, UpstreamTarget};
use crate::engine::connection::ask::DeclaredCapabilities;
use crate::engine::handshake::HandshakeAgreement;
use crate::mcp::asking::kinds::InputKinds;
use crate::mcp::version::Era;
use crate::policy::Caller;
use crate::upstream::session_news::ClientTag;

/// The owner of a session.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) enum LaneOwner {
    Caller(Caller),
    Client(u64),
    /// The gateway, which reads the lists as clients with some capabilities see them.
    Gateway,
}

/// The client of a call that needs a session.
#[derive(Clone, Debug)]
pub struct LaneRequest {
    pub caller: Caller,
    pub client: Option<Arc<ClientTag>>,
    /// Kinds of input that this client can give.
    pub offered: InputKinds,
}

/// The owner of a session, and the input that its client can give.
pub(super) type LaneKey = (LaneOwner, InputKinds);

/// The key of a lane in the table, and the client whose end is the lane's end.
#[derive(Debug)]
pub(super) struct LaneOwnership {
    pub(super) key: LaneKey,
    pub(super) client: Option<Weak<ClientTag>>,
}

/// The kind of session that a call uses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum SessionSharing {
    Everybody,
    Caller,
    /// A session for one client, or for the caller if the call has no client.
    Client,
}

/// Returns which sessions the calls of an upstream use.
fn sharing(spec: &UpstreamSettings, agreed: HandshakeAgreement) -> SessionSharing {
    if agreed.revision.era() == Era::Modern {
        return SessionSharing::Everybody;
    }
    match (spec.instance, &spec.target) {
        (InstanceScope::Shared, _) | (InstanceScope::Auto, UpstreamTarget::Stdio { .. }) => SessionSharing::Everybody,
        (InstanceScope::Auto, UpstreamTarget::Http { .. }) | (InstanceScope::PerSession, _) => SessionSharing::Client,
        (InstanceScope::PerCaller, _) => SessionSharing::Caller,
    }
}

/// Returns whether clients of the upstream have lanes of their own, which show them the items that
/// their capabilities allow.
pub(in crate::upstream) fn are_owned(spec: &UpstreamSettings, agreed: HandshakeAgreement) -> bool {
    sharing(spec, agreed) != SessionSharing::Everybody
}

/// Returns the key of this client's lane and its client; `None` for the main lane.
pub(super) fn place<'w>(
    spec: &UpstreamSettings,
    agreed: HandshakeAgreement,
    wants: &'w LaneRequest,
) -> Option<(LaneKey, Option<&'w Arc<ClientTag>>)> {
    let client = match sharing(spec, agreed) {
        SessionSharing::Everybody => return None,
        SessionSharing::Caller => None,
        SessionSharing::Client => wants.client.as_ref(),
    };
    let owner = client.map_or_else(|| LaneOwner::Caller(wants.caller.clone()), |tag| LaneOwner::Client(tag.number()));
    Some(((owner, DeclaredCapabilities::new(wants.offered, &spec.roots).kinds), client))
}
