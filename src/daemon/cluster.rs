//! The gateway as one replica of a cluster: its row, its heartbeat, and the listener for the other
//! replicas.

use std::net::SocketAddr;
use std::sync::Arc;

use arc_swap::ArcSwap;
use tokio::net::TcpListener;

use crate::base::clock;
use crate::base::current_run::CurrentRun;
use crate::base::fair_slots::FairSlots;
use crate::base::tally::LogTally;
use crate::cluster::link::MAX_PASSING;
use crate::cluster::membership::Cluster;
use crate::cluster::peer_tls::PeerTls;
use crate::cluster::row::ReplicaFacts;
use crate::config::show::shared_parts;
use crate::config::{ClusterSettings, Config, Limits, ServerSettings};
use crate::daemon::doors::GatewayListeners;
use crate::daemon::gateway::{GatewayStartError, RunningGateway};
use crate::engine::sealed::peer::PeerKey;
use crate::gateway::service::Service;
use crate::listener::lobby::{Lobby, LobbyLimits};
use crate::listener::tls::ServerTls;
use crate::serve::front::{ListenerSettings, ListenerState};
use crate::store::db::Db;
use crate::store::port::ReplicaOperations;
use crate::wire::digest::Digest;

/// Limits of connections that have not proved to be those of a replica.
const STRANGERS: LobbyLimits = LobbyLimits { all: 64, per_origin: 32 };
/// Descriptors of connections to and from other replicas.
pub(super) const DESCRIPTORS: usize = 2 * MAX_PASSING + STRANGERS.descriptors();

/// Creates the member of the cluster that the configuration names; `None` without one.
///
/// # Errors
/// The store is not one of a cluster, or the key for other replicas cannot be made.
pub(super) fn member(
    config: &Config,
    db: Option<&Db>,
    run: &Arc<CurrentRun>,
) -> Result<Option<Arc<Cluster>>, GatewayStartError> {
    let (Some(settings), Some(db)) = (&config.cluster, db) else { return Ok(None) };
    let store =
        replicas(db).ok_or_else(|| config_error("[cluster] needs its store, which this process has not opened"))?;
    let secrets = db.secrets("peers 1")?.ok_or_else(|| config_error("[cluster] needs `key` in [secrets]"))?;
    let is_secure = settings.peer_url.as_ref().is_some_and(|url| url.scheme() == "https");
    let tls = is_secure.then(PeerTls::generate).transpose().map_err(GatewayStartError::Config)?;
    let mut facts = ReplicaFacts {
        name: settings.name.clone(),
        url: settings.peer_url.clone(),
        key: tls.as_ref().map(|tls| tls.digest().hex()),
        version: env!("CARGO_PKG_VERSION").to_owned(),
        started: clock::unix_seconds(),
        load: 0,
        policy: String::new(),
        upstreams: String::new(),
    };
    compare_by(&mut facts, config);
    Ok(Some(Cluster::new(store, PeerKey::new(&secrets), tls, Arc::clone(run), facts)))
}

fn replicas(db: &Db) -> Option<Arc<dyn ReplicaOperations>> {
    #[cfg(test)]
    if let Some(replicas) = headend_shell::stage::replicas::installed() {
        return Some(replicas);
    }
    db.replicas()
}

fn config_error(text: &str) -> GatewayStartError {
    GatewayStartError::Config(text.to_owned())
}

/// Puts the digests in by which replicas are compared.
fn compare_by(facts: &mut ReplicaFacts, config: &Config) {
    let [policy, upstreams] = shared_parts(config).map(|part| Digest::of(part.as_bytes()).hex());
    (facts.policy, facts.upstreams) = (policy, upstreams);
}

/// Returns the facts of the moment, which the heartbeat puts into the row. The digests are computed
/// once for each configuration.
fn refresher(service: &Arc<Service>) -> impl Fn(&mut ReplicaFacts) + Send + use<> {
    let service = Arc::clone(service);
    let compared = parking_lot::Mutex::new(0);
    move |facts| {
        let snapshot = service.snapshots.load();
        let running = snapshot.config.server.limits.in_flight.saturating_sub(service.admission.free());
        facts.load = u64::try_from(running).unwrap_or(u64::MAX);
        if std::mem::replace(&mut *compared.lock(), snapshot.generation) != snapshot.generation {
            compare_by(facts, &snapshot.config);
        }
    }
}

impl RunningGateway {
    /// Enters the directory of the cluster, if there is one, and serves the listener for the other
    /// replicas.
    ///
    /// # Errors
    /// [`GatewayStartError`].
    pub(super) async fn join_cluster(
        &self,
        settings: &ClusterSettings,
        doors: &GatewayListeners,
        limits: &Limits,
    ) -> Result<(), GatewayStartError> {
        let Some(cluster) = &self.service.cluster else { return Ok(()) };
        let bound = match settings.peer_listen {
            Some(address) => Some(super::listen::bind(PEERS, address).await?),
            None => None,
        };
        if let Some((listener, local)) = bound {
            self.serve_peers(cluster, (listener, local), doors, limits)?;
        }
        cluster.join().await?;
        let (refresh, stop) = (refresher(&self.service), self.supervised.stop.clone());
        self.supervised.tasks.spawn("heartbeat", Arc::clone(cluster).follow(refresh, stop));
        Ok(())
    }

    fn serve_peers(
        &self,
        cluster: &Arc<Cluster>,
        (listener, local): (TcpListener, SocketAddr),
        doors: &GatewayListeners,
        limits: &Limits,
    ) -> Result<(), GatewayStartError> {
        let host = cluster.bound_to(local.port());
        let config = Arc::clone(&self.service.snapshots.load().config);
        let tls = cluster.tls().map(|tls| tls.server().map(ServerTls::of_peers));
        let tls = tls.transpose().map_err(GatewayStartError::Config)?;
        let terms = settings_for_peers(&config.server, local, host, limits);
        let front = Arc::new(ListenerState {
            service: Arc::clone(&self.service),
            sessions: Arc::clone(&self.sessions),
            local,
            credentials: Arc::clone(&doors.credentials),
            endpoint: config.server.endpoint.clone(),
            legacy_sse: config.server.legacy_sse,
            lobby: Lobby::new("peers", STRANGERS, Some(self.service.metrics.clone())),
            places: FairSlots::new(MAX_PASSING, 0),
            terms: ArcSwap::from_pointee(terms),
            full: LogTally::default(),
            failures: Arc::clone(&doors.failures),
            strangers: LogTally::default(),
            tls,
            tasks: self.supervised.tasks.clone(),
            is_for_peers: true,
            successor: Arc::clone(&self.handover.late),
        });
        doors.peers.get_or_init(|| Arc::clone(&front));
        // Other replicas are served until the calls in flight have ended.
        let stop = self.service.giving_up.clone();
        self.supervised.tasks.spawn("peers", crate::serve::http_server::accept(front, listener, stop));
        Ok(())
    }
}

/// Key of the configuration that sets the address of the listener for replicas.
const PEERS: &str = "[cluster] peer-listen";

/// Returns the settings of the listener for replicas, which send the authority of `peer-url` as Host.
pub(super) fn settings_for_peers(
    server: &ServerSettings,
    local: SocketAddr,
    host: Option<String>,
    limits: &Limits,
) -> ListenerSettings {
    let server = ServerSettings {
        allowed_hosts: host.into_iter().collect(),
        allowed_origins: Vec::new(),
        trusted_proxies: Vec::new(),
        ..server.clone()
    };
    // Plain connections are possible on loopback only, which the configuration has checked.
    ListenerSettings::new(local, &server, Limits { connections: MAX_PASSING, ..limits.clone() }, true)
}
