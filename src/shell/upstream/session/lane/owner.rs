//! Owners of sessions with an upstream: all clients together, one caller, or one client.

use std::sync::{Arc, Weak};

use bytes::Bytes;

use crate::config::{AppsChoice, InstanceScope, UpstreamSettings, UpstreamTarget};
use crate::engine::connection::ask::DeclaredCapabilities;
use crate::engine::handshake::HandshakeAgreement;
use crate::mcp::asking::kinds::InputKinds;
use crate::mcp::version::Era;
use crate::policy::Caller;
use crate::upstream::session_news::ClientTag;
use crate::wire::json::raw::RawJson;

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
    /// The settings under which this client declared Apps.
    pub apps: Option<RawJson>,
}

impl LaneRequest {
    /// Returns the capabilities of the client that the server learns.
    pub(super) fn declared(&self, spec: &UpstreamSettings) -> DeclaredCapabilities {
        let apps = self.apps.clone().filter(|_| spec.apps == AppsChoice::On);
        DeclaredCapabilities::new(self.offered, &spec.roots).with_apps(apps)
    }
}

/// The owner of a session, the input that its client can give, and the client's settings of Apps.
pub(super) type LaneKey = (LaneOwner, InputKinds, Option<Bytes>);

/// Returns the key of a session of this owner.
pub(super) fn key_of(owner: LaneOwner, declared: &DeclaredCapabilities) -> LaneKey {
    (owner, declared.kinds, declared.apps.clone().map(RawJson::into_bytes))
}

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
    Some((key_of(owner, &wants.declared(spec)), client))
}
