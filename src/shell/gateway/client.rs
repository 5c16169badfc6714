//! One client: its caller, profile, revision and capabilities, on any transport.

use std::sync::Arc;

use tokio_util::sync::CancellationToken;

use crate::base::access::Access;
use crate::base::never::or_never;
use crate::catalog::merge::Entry;
use crate::engine::state::Carrier;
use crate::gateway::client_requests::ClientRequests;
use crate::gateway::snapshot::{Snapshot, View, Viewer};
use crate::gateway::watched::Subscriptions;
use crate::mcp::client_name::ClientName;
use crate::mcp::kinds::Kinds;
use crate::mcp::log::LogSwitch;
use crate::mcp::version::Revision;
use crate::policy::{Action, Caller, Kind};
use crate::store::sessions::KeptSession;
pub use crate::upstream::session_news::ClientTag;
pub(crate) use crate::upstream::session_news::fresh_number;
use crate::wire::digest::Digest;
use crate::wire::raw::RawJson;

pub mod admission;
pub mod connected;
pub mod quota;

/// The session of all clients that have none. What is allowed for it lasts as long as a session may, at most.
pub const STATELESS: u64 = 0;

/// Who asks, and how its answers must look.
#[derive(Clone, Debug)]
pub struct ClientContext {
    pub caller: Caller,
    pub access: Arc<Access>,
    pub profile: Option<Arc<str>>,
    pub revision: Revision,
    /// Its calls may be held open while they wait for a person.
    pub can_wait: bool,
    /// The kinds of input that the client offers.
    pub offered: Kinds,
    /// It is on this machine: an address on loopback is the same place to it.
    pub is_here: bool,
    /// How a legacy client is asked, where it can be.
    pub client_requests: Option<Arc<ClientRequests>>,
    /// The log level of a legacy session.
    pub log: Option<Arc<LogSwitch>>,
    /// What a legacy client watches.
    pub watched: Option<Arc<Subscriptions>>,
    /// Number of the connection, on which a client without a session is told from others; unique
    /// within this process with the numbers of sessions and pipes.
    pub connection: u64,
    /// Below the caller: the session or the pipe.
    pub tag: Option<Arc<ClientTag>>,
    /// Fires when its input has ended: it answers no question any more, and nobody is told that its
    /// calls are held.
    pub input_over: Option<CancellationToken>,
    /// A session that a restart does not end.
    pub kept: Option<Arc<KeptSession>>,
    /// The name that a legacy client gave itself. A session of before a restart has none; a modern client says it in each request
    /// (`Meta::client_name`).
    pub name: Option<ClientName>,
}

impl ClientContext {
    /// Waits until the client's input has ended; for ever where it cannot end by itself.
    pub async fn input_over(&self) {
        or_never(self.input_over.as_ref().map(CancellationToken::cancelled)).await;
    }

    /// A client of which nothing else is known yet: it can be asked nothing, watches nothing and has no session.
    pub fn new(caller: Caller, access: Arc<Access>, profile: Option<Arc<str>>, revision: Revision) -> Self {
        Self {
            caller,
            access,
            profile,
            revision,
            can_wait: true,
            offered: Kinds::default(),
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

    /// The same once it has said `initialize` with these capabilities and this name.
    pub fn initialized(self, capabilities: Option<&RawJson>, name: Option<ClientName>) -> Self {
        Self { name, ..self.asked_by(ClientRequests::new(capabilities)) }
    }

    /// The same once it is back after a restart of the gateway. It may still answer what it was asked before.
    pub fn revived(self, capabilities: Option<&RawJson>) -> Self {
        self.asked_by(ClientRequests::anew(capabilities))
    }

    fn asked_by(self, client_requests: Option<Arc<ClientRequests>>) -> Self {
        Self {
            offered: client_requests.as_ref().map(|asked| asked.offered).unwrap_or_default(),
            client_requests,
            log: Some(Arc::default()),
            watched: Some(Arc::default()),
            ..self
        }
    }

    /// The number of its session or pipe.
    pub fn session(&self) -> u64 {
        self.tag.as_ref().map_or(STATELESS, |tag| tag.number())
    }

    /// The number of its session or pipe, or of its connection where it has none.
    pub fn connection(&self) -> u64 {
        self.tag.as_ref().map_or(self.connection, |tag| tag.number())
    }

    /// What the client does with an item of the catalog, without arguments.
    pub fn action(&self, entry: &Entry, kind: Kind, launch: Digest) -> Action {
        Action::on(entry, kind, launch, self.caller.clone(), self.profile.clone(), self.session())
    }

    /// The client as its states hold it.
    pub fn carrier(&self) -> Carrier {
        let (revision, capabilities) = (self.revision, self.offered.bits());
        Carrier { kind: self.access.credential().kind(), revision, capabilities }
    }

    pub fn viewer(&self) -> Viewer<'_> {
        let kind = self.access.credential().kind();
        Viewer { caller: &self.caller, kind, revision: self.revision, offered: self.offered }
    }
}

/// The view of a client, for those that watch it for changes.
pub fn view_of(snapshot: &Snapshot, client: &ClientContext) -> Option<Arc<View>> {
    snapshot.view(client.profile.as_deref()).cloned()
}
