//! State that the connections of one listener share, and the state of one connection.

use std::net::{IpAddr, SocketAddr};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use arc_swap::ArcSwap;
use http::header::{AUTHORIZATION, HOST};
use http::request::Parts;
use http::uri::Authority;
use http::{HeaderMap, Method, Response, StatusCode};
use parking_lot::Mutex;

use crate::base::callers::CallerNumber;
use crate::base::clock;
use crate::base::fair_slots::{FairSlot, FairSlots};
use crate::base::tally::LogTally;
use crate::base::task_group::TaskGroup;
use crate::config::{Limits, MAX_HEADER_FIELD, PeerNetwork, ServerSettings};
use crate::gateway::client::connected::ConnectedClient;
use crate::gateway::client::fresh_number;
use crate::gateway::client::quota::{QuotaKind, QuotaSlot};
use crate::gateway::service::Service;
use crate::identity::resource::WELL_KNOWN;
use crate::listener::address::{CredentialFailures, Network};
use crate::listener::body::ReplyBody;
use crate::listener::callers::credentials::{CallerAccess, Credentials, Unauthenticated};
use crate::listener::forwarded;
use crate::listener::guard::{HeadGuard, is_direct};
use crate::listener::lobby::{ConnectionAdmission, Lobby, LobbyLimits};
use crate::listener::reply;
use crate::listener::tls::ServerTls;
use crate::mcp::client_name::ClientNameCache;
use crate::policy::Caller;
use crate::serve::late::{PassedOrigin, Successor};
use crate::serve::sessions::ClientSessions;
use crate::telemetry::metrics::Shortage;

/// State that the connections of one listener share.
#[derive(Debug)]
pub struct ListenerState {
    pub service: Arc<Service>,
    pub sessions: Arc<ClientSessions>,
    /// The listener's own address.
    pub local: SocketAddr,
    /// The settings that a reload replaces.
    pub terms: ArcSwap<ListenerSettings>,
    /// Accepted credentials, shared by all listeners; a reload replaces them.
    pub credentials: Arc<ArcSwap<Credentials>>,
    pub endpoint: String,
    /// True if HTTP+SSE of 2024-11-05 is served too.
    pub legacy_sse: bool,
    /// Connections that have not presented a valid credential.
    pub lobby: Arc<Lobby<Network>>,
    /// Slots for connections that have.
    pub places: FairSlots,
    /// Limits log lines about a lack of such slots.
    pub full: LogTally,
    /// Rate limits for wrong credentials, shared by all listeners; a reload replaces them.
    pub failures: Arc<ArcSwap<CredentialFailures>>,
    /// Limits log lines about peers that may not connect.
    pub strangers: LogTally,
    /// TLS of the listener; `None` for plain HTTP.
    pub tls: Option<ServerTls>,
    /// The tasks of the connections.
    pub tasks: TaskGroup,
    /// True for the listener for other replicas, which passes nothing on.
    pub is_for_peers: bool,
    /// The process that serves in place of this one, once there is one.
    pub successor: Arc<OnceLock<Successor>>,
}

/// Settings of one listener. A request uses those in force; a connection keeps its time limits from
/// when it began.
#[derive(Debug)]
pub struct ListenerSettings {
    pub guard: HeadGuard,
    /// The limits, with no more connections than there are file descriptors for.
    pub limits: Limits,
    /// Peers whose headers name the address of the client.
    trusted: Vec<PeerNetwork>,
    /// True if only trusted peers may connect.
    is_closed: bool,
}

impl ListenerSettings {
    /// Creates the settings of the listener at `local`. `is_tls` says what the listener speaks,
    /// which no reload changes.
    pub fn new(local: SocketAddr, server: &ServerSettings, limits: Limits, is_tls: bool) -> Self {
        let guard = HeadGuard::new(local, &server.allowed_hosts, &server.allowed_origins, MAX_HEADER_FIELD);
        let guard = if is_tls { guard.over_tls() } else { guard };
        let is_closed = !is_tls && !local.ip().is_loopback();
        Self { guard, limits, trusted: server.trusted_proxies.clone(), is_closed }
    }

    /// Returns whether a peer may connect.
    pub fn admits(&self, peer: IpAddr) -> bool {
        !self.is_closed || self.trusts(peer)
    }

    /// Returns whether a peer is a proxy of the operator.
    fn trusts(&self, peer: IpAddr) -> bool {
        self.trusted.iter().any(|network| network.contains(peer))
    }

    /// Returns the address of a request's client: the last one in the chain of proxies that is no
    /// proxy of the operator. Only such a proxy is believed, and only about addresses.
    pub fn client_address(&self, peer: IpAddr, headers: &HeaderMap) -> IpAddr {
        if !self.trusts(peer) {
            return peer;
        }
        let named = forwarded::addresses(headers);
        named.into_iter().rev().find(|address| !self.trusts(*address)).unwrap_or(peer)
    }

    pub const fn lobby(&self) -> LobbyLimits {
        LobbyLimits { all: self.limits.anonymous_connections, per_origin: self.limits.connections_per_ip }
    }
}

impl ListenerState {
    /// Puts new settings in force.
    pub fn set_terms(&self, terms: ListenerSettings) {
        self.lobby.set_limits(terms.lobby());
        self.places.set_number(terms.limits.connections);
        self.terms.store(Arc::new(terms));
    }

    /// Returns whether a peer may connect. Counts and logs a refusal.
    pub fn admits(&self, peer: SocketAddr) -> bool {
        let is_admitted = self.terms.load().admits(peer.ip());
        if !is_admitted && let Some(count) = self.strangers.count(clock::uptime()) {
            tracing::warn!(client.address = %peer, count, "connection refused: `trusted-proxies` does not name its address, which is that of the latest");
        }
        is_admitted
    }

    pub fn keepalive(&self) -> Duration {
        self.terms.load().limits.keepalive
    }

    /// Returns the profile that a path names: `Some(None)` for `base` itself, `Some(Some(_))` for a
    /// known profile below it, `None` for other paths. A slash at the end is ignored.
    pub fn profile_at(&self, base: &str, path: &str) -> Option<Option<Arc<str>>> {
        let rest = path.strip_prefix(base)?;
        let rest = rest.strip_suffix('/').unwrap_or(rest);
        if rest.is_empty() {
            return Some(None);
        }
        let known = |name: &&str| self.service.snapshots.load().profiles.contains_key(*name);
        rest.strip_prefix('/').filter(known).map(|name| Some(Arc::from(name)))
    }

    /// Checks that a profile is for this caller.
    ///
    /// # Errors
    /// The response to a path that nothing has.
    pub fn admit_to_profile(
        &self,
        profile: Option<&str>,
        caller: &CallerAccess,
    ) -> Result<(), Box<Response<ReplyBody>>> {
        let Some(profile) = profile else { return Ok(()) };
        let snapshot = self.service.snapshots.load();
        let view = snapshot.profiles.get(profile);
        let is_open = view.is_some_and(|view| view.admits(&caller.caller, &caller.access));
        if is_open { Ok(()) } else { Err(not_found()) }
    }

    /// Returns the response to a request for the metadata of a place, which needs no credential;
    /// `None` for other requests, and if no issuer is accepted.
    pub fn metadata(&self, head: &Parts) -> Option<Box<Response<ReplyBody>>> {
        let path = head.uri.path();
        if !path.starts_with(WELL_KNOWN) {
            return None;
        }
        let document = self.credentials.load().metadata(path)?;
        Some(Box::new(match head.method {
            Method::GET => reply::json(StatusCode::OK, document),
            _ => reply::method_not_allowed("GET"),
        }))
    }

    /// Counts requests of a caller against its rate.
    ///
    /// # Errors
    /// The response to send if the rate is exceeded.
    pub fn admit(&self, caller: &Caller, requests: usize) -> Result<(), Box<Response<ReplyBody>>> {
        self.service.admission.admit(caller, requests).map_err(|over| {
            Box::new(reply::retry_later(StatusCode::TOO_MANY_REQUESTS, over.seconds(), "too many requests"))
        })
    }

    /// Counts a request over HTTP against its caller's rate, where its client is connected.
    ///
    /// # Errors
    /// As [`Self::admit`].
    pub fn admit_request(&self, caller: &Caller) -> Result<(), Box<Response<ReplyBody>>> {
        if self.is_for_peers { Ok(()) } else { self.admit(caller, 1) }
    }

    /// Identifies the caller of a request to a profile, or to the endpoint, and counts wrong
    /// credentials.
    ///
    /// An address that presented too many wrong credentials gets 429 for the next wrong one. A
    /// right one always passes, since all processes of a machine, and all clients behind a proxy,
    /// share an address. Guessing gains nothing by that: tokens have 16 characters or more.
    ///
    /// # Errors
    /// The response to send.
    pub async fn authenticate(
        &self,
        head: &Parts,
        profile: Option<&str>,
        seat: &HttpConnection,
    ) -> Result<CallerAccess, Box<Response<ReplyBody>>> {
        let refused = match self.credentials.load().authenticate(&head.headers, profile) {
            Ok(caller) => return Ok(caller),
            Err(Unauthenticated::Refused(refused)) => Some(refused),
            Err(Unauthenticated::Unvalidated) => None,
        };
        let refused = match refused {
            Some(refused) => refused,
            // Boxed: a token is validated once, and every request's future would be larger.
            None => match Box::pin(self.credentials.load_full().validate(&head.headers, profile)).await {
                Ok(caller) => return Ok(caller),
                Err(refused) => refused,
            },
        };
        if refused.status() != StatusCode::UNAUTHORIZED {
            return Err(refused);
        }
        self.service.metrics.auth_failed();
        // A request without any credential is how a client finds out that it needs one.
        let guess = head.headers.contains_key(AUTHORIZATION);
        let wait =
            guess.then(|| self.failures.load().count(self.network(seat, &head.headers), clock::uptime())).flatten();
        let Some(wait) = wait else { return Err(refused) };
        self.service.metrics.limit_hit("auth-failures");
        let seconds = wait.as_secs() + 1;
        Err(Box::new(reply::retry_later(StatusCode::TOO_MANY_REQUESTS, seconds, "too many wrong credentials")))
    }

    /// Returns the network of a request's client.
    fn network(&self, seat: &HttpConnection, headers: &HeaderMap) -> Network {
        Network::from(self.terms.load().client_address(seat.peer, headers))
    }

    /// Returns whether our own user, who has no quota, holds more slots than it may: a quarter
    /// belongs to other callers.
    fn exceeds_local_share(&self, caller: &CallerNumber) -> bool {
        let number = self.terms.load().limits.connections;
        let theirs = number.div_ceil(4).min(number.saturating_sub(1));
        *caller == CallerNumber::LOCAL && self.service.budget.is_shared() && self.places.held(caller) > number - theirs
    }

    /// Takes a slot for a connection of another replica.
    fn place_of_peer(&self) -> Option<ConnectionSlots> {
        let place = self.places.try_take(&CallerNumber::LOCAL)?;
        Some((self.service.admission.quota.take(Caller::local(), QuotaKind::Connection)?, place))
    }

    /// Takes a slot for a connection whose caller is known. Counts and logs a refusal.
    fn place(&self, caller: &CallerAccess) -> Option<ConnectionSlots> {
        let taken = self.places.try_take(caller.access.caller());
        if taken.is_none() {
            self.service.metrics.short_of(Shortage::Places, clock::uptime());
        }
        let quota = &self.service.admission.quota;
        let held = taken
            .filter(|_| !self.exceeds_local_share(caller.access.caller()))
            .and_then(|place| Some((quota.take(&caller.caller, QuotaKind::Connection)?, place)));
        if held.is_none() {
            self.service.metrics.limit_hit("max-connections");
            if let Some(count) = self.full.count(clock::uptime()) {
                tracing::warn!(caller = %caller.caller, count, "connections refused: no place is left; the caller is the latest");
            }
        }
        held
    }
}

/// Returns the response to a path that nothing has.
pub(super) fn not_found() -> Box<Response<ReplyBody>> {
    let text = "nothing here; the MCP endpoint has another path";
    Box::new(reply::refusal(StatusCode::NOT_FOUND, text))
}

/// The slots of a connection with a valid credential: one of its caller's share, and one of all
/// connections.
type ConnectionSlots = (QuotaSlot, FairSlot);

/// The state of one HTTP connection: its origin, its slot, and the modern client on it.
#[derive(Debug)]
pub struct HttpConnection {
    peer: IpAddr,
    /// The name that the client asked for in the TLS handshake.
    server_name: Option<Box<str>>,
    /// `None` for the client of a passed-on request, whose connection another replica has.
    standing: Option<ConnectionAdmission<Network, ConnectionSlots>>,
    /// Number of the connection, unique in this process.
    pub(super) number: u64,
    /// The last name that modern clients on the connection gave themselves.
    pub(super) last_name: Mutex<ClientNameCache>,
    /// The entry among connected clients, once a modern client has given its name.
    pub(super) entry: OnceLock<ConnectedClient>,
}

impl HttpConnection {
    pub(super) fn new(
        peer: IpAddr,
        server_name: Option<Box<str>>,
        standing: ConnectionAdmission<Network, ConnectionSlots>,
    ) -> Self {
        Self { server_name, standing: Some(standing), ..Self::passed_on(peer) }
    }

    /// Creates the state of a passed-on request's own, since many clients share a connection. The
    /// peer is on another machine.
    pub(super) fn passed_on(peer: IpAddr) -> Self {
        let (number, last_name, entry) = (fresh_number(), Mutex::default(), OnceLock::new());
        Self { peer, server_name: None, standing: None, number, last_name, entry }
    }

    /// Returns whether the connection may serve requests that a replica has passed on; takes a slot
    /// for it the first time.
    pub fn allows_peer(&self, front: &ListenerState) -> bool {
        self.standing.as_ref().is_some_and(|standing| standing.settle(|| front.place_of_peer()))
    }

    /// Returns whether the Host of a request is the server that the connection was opened to.
    pub fn is_for(&self, headers: &HeaderMap) -> bool {
        let Some(name) = &self.server_name else { return true };
        let host = headers.get(HOST).and_then(|host| host.to_str().ok()?.parse::<Authority>().ok());
        host.is_some_and(|host| host.host().eq_ignore_ascii_case(name))
    }

    /// Returns the facts about the connection that a process needs to which its requests are
    /// passed.
    pub(super) fn origin(&self, listener: SocketAddr) -> PassedOrigin {
        PassedOrigin { listener, peer: self.peer, server_name: self.server_name.clone() }
    }

    /// Returns whether the client of this request is on this machine.
    pub fn is_here(&self, headers: &HeaderMap) -> bool {
        self.peer.is_loopback() && is_direct(headers)
    }

    /// Returns whether the connection may serve requests: its first caller with a valid credential
    /// got a slot for it. Takes that slot the first time.
    pub fn allows(&self, front: &ListenerState, caller: &CallerAccess) -> bool {
        self.standing.as_ref().is_some_and(|standing| standing.settle(|| front.place(caller)))
    }
}
