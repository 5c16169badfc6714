//! The client of a request, on any transport: its caller, profile, revision and capabilities.

use std::sync::Arc;

use tokio_util::sync::CancellationToken;

use crate::base::access::Access;
use crate::base::never::or_never;
use crate::catalog::merge::CatalogEntry;
use crate::engine::sealed::state::StateCarrier;
use crate::gateway::client_requests::ClientRequests;
use crate::gateway::snapshot::{CatalogView, Snapshot, Viewer};
use crate::gateway::watched::SessionSubscriptions;
use crate::mcp::asking::kinds::InputKinds;
use crate::mcp::client_name::ClientName;
use crate::mcp::extension::APPS;
use crate::mcp::log::SessionLogLevel;
use crate::mcp::version::Revision;
use crate::policy::{ActionKind, Caller, PolicyAction};
use crate::store::sessions::KeptSession;
pub use crate::upstream::session_news::ClientTag;
pub(crate) use crate::upstream::session_news::fresh_number;
use crate::wire::digest::Digest;
use crate::wire::json::raw::{RawJson, RawObject};

pub mod admission;
pub mod connected;
pub mod handed_uris;
pub mod quota;

/// Session number shared by all clients without a session. A session grant for it lasts as long as
/// a session may, at most.
pub const STATELESS: u64 = 0;

/// A client: its identity, the form of its answers, and how it can be asked.
#[derive(Clone, Debug)]
pub struct ClientContext {
    pub caller: Caller,
    pub access: Arc<Access>,
    pub profile: Option<Arc<str>>,
    pub revision: Revision,
    /// True if its calls may be held open while they wait for a person.
    pub can_wait: bool,
    /// Kinds of input that the client offers.
    pub offered: InputKinds,
    /// The settings under which the client declared Apps; `None` if it did not.
    pub apps: Option<RawJson>,
    /// True if the client runs on this machine, so that an address on loopback is the same place to
    /// it.
    pub is_here: bool,
    /// Questions to a legacy client; `None` if it can be asked nothing.
    pub client_requests: Option<Arc<ClientRequests>>,
    /// The log level of a legacy session.
    pub log: Option<Arc<SessionLogLevel>>,
    /// Resource subscriptions of a legacy client.
    pub watched: Option<Arc<SessionSubscriptions>>,
    /// Number of the connection, which identifies a client without a session; unique in this
    /// process among the numbers of connections, sessions and pipes.
    pub connection: u64,
    /// The session or pipe of the client, which tells it from other clients of its caller.
    pub tag: Option<Arc<ClientTag>>,
    /// Fires when the client's input has ended: it answers no question any more and is told nothing
    /// about its held calls.
    pub input_over: Option<CancellationToken>,
    /// The stored session, if a restart does not end it.
    pub kept: Option<Arc<KeptSession>>,
    /// The name that a legacy client gave in `initialize`. A session from before a restart has
    /// none; a modern client gives its name in each request (`Meta::client_name`).
    pub name: Option<ClientName>,
}

impl ClientContext {
    /// Waits until the client's input has ended; for ever if it cannot end on its own.
    pub async fn input_over(&self) {
        or_never(self.input_over.as_ref().map(CancellationToken::cancelled)).await;
    }

    /// Makes a client of which nothing else is known yet: it can be asked nothing, watches nothing
    /// and has no session.
    pub fn new(caller: Caller, access: Arc<Access>, profile: Option<Arc<str>>, revision: Revision) -> Self {
        Self {
            caller,
            access,
            profile,
            revision,
            can_wait: true,
            offered: InputKinds::default(),
            apps: None,
            is_here: false,
            client_requests: None,
            log: None,
            watched: None,
            connection: STATELESS,
            tag: None,
            input_over: None,
            kept: None,
            name: None,
        }
    }

    /// Adds what a legacy client said in `initialize`: its capabilities and its name.
    pub fn initialized(self, capabilities: Option<&RawJson>, name: Option<ClientName>) -> Self {
        Self { name, ..self.asked_by(ClientRequests::new(capabilities), capabilities) }
    }

    /// Restores a legacy client after a restart of the gateway. Its new questions have ids that an
    /// answer to an earlier process cannot match.
    pub fn revived(self, capabilities: Option<&RawJson>) -> Self {
        self.asked_by(ClientRequests::anew(capabilities), capabilities)
    }

    /// Sets the questions to a legacy client and its use of Apps, with a fresh log level and no
    /// subscriptions.
    fn asked_by(self, client_requests: Option<Arc<ClientRequests>>, capabilities: Option<&RawJson>) -> Self {
        let declared = capabilities.and_then(|raw| RawObject::parse(raw).ok());
        Self {
            apps: declared.and_then(|declared| APPS.settings_in(&declared)),
            offered: client_requests.as_ref().map(|asked| asked.offered).unwrap_or_default(),
            client_requests,
            log: Some(Arc::default()),
            watched: Some(Arc::default()),
            ..self
        }
    }

    /// Returns the number of the client's session or pipe, [`STATELESS`] without one.
    pub fn session(&self) -> u64 {
        self.tag.as_ref().map_or(STATELESS, |tag| tag.number())
    }

    /// Returns the number of the client's session or pipe, or of its connection without one.
    pub fn connection(&self) -> u64 {
        self.tag.as_ref().map_or(self.connection, |tag| tag.number())
    }

    /// Makes the policy's action for an item of the catalog, without arguments.
    pub fn action(&self, entry: &CatalogEntry, kind: ActionKind, launch: Digest) -> PolicyAction {
        let who = (self.caller.clone(), Arc::clone(self.access.rights()));
        PolicyAction::on(entry, kind, launch, who, self.profile.clone(), self.session())
    }

    /// Returns the capabilities of a legacy client that outlive a restart of the gateway.
    pub fn kept_capabilities(&self) -> Option<RawJson> {
        let input = self.client_requests.as_ref().map(|asked| asked.capabilities.clone());
        self.with_apps(input)
    }

    /// Returns the capabilities to declare to an upstream, with Apps as the client declared them.
    pub fn with_apps(&self, capabilities: Option<RawJson>) -> Option<RawJson> {
        match &self.apps {
            Some(settings) => Some(APPS.added_with(settings, capabilities.as_ref())),
            None => capabilities,
        }
    }

    /// Returns the credential kind, revision and capabilities to which the client's sealed states
    /// are bound.
    pub fn carrier(&self) -> StateCarrier {
        let capabilities = self.offered.bits() | (u8::from(self.apps.is_some()) << InputKinds::BITS);
        let revision = self.revision;
        StateCarrier { kind: self.access.credential().kind(), revision, capabilities }
    }

    /// Returns the client as the viewer of a catalog.
    pub fn viewer(&self) -> Viewer<'_> {
        let kind = self.access.credential().kind();
        let (caller, rights) = (&self.caller, &**self.access.rights());
        Viewer { caller, rights, kind, revision: self.revision, offered: self.offered, apps: self.apps.is_some() }
    }
}

/// Returns the client's view of a snapshot; `None` if its profile is gone or is not for its caller.
pub fn view_of<'s>(snapshot: &'s Snapshot, client: &ClientContext) -> Option<&'s Arc<CatalogView>> {
    snapshot.view(client.profile.as_deref()).filter(|view| view.admits(&client.caller, &client.access))
}
