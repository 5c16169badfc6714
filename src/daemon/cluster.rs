//! The gateway as one replica of a cluster: its heartbeat, and the listener for the other replicas.

use std::net::SocketAddr;
use std::sync::Arc;

use arc_swap::ArcSwap;
use tokio::net::TcpListener;

use crate::base::fair_slots::FairSlots;
use crate::base::tally::LogTally;
use crate::cluster::link::MAX_PASSING;
use crate::cluster::membership::Cluster;
use crate::config::{ClusterSettings, Limits};
use crate::daemon::doors::GatewayListeners;
use crate::daemon::gateway::{GatewayStartError, RunningGateway};
use crate::daemon::replica::{STRANGERS, refresher, settings_for_peers};
use crate::listener::lobby::Lobby;
use crate::listener::tls::ServerTls;
use crate::serve::front::ListenerState;

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
            Some(address) => Some(bind(address).await?),
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

/// Binds the listener for replicas; returns it with its actual address.
async fn bind(address: SocketAddr) -> Result<(TcpListener, SocketAddr), GatewayStartError> {
    let failed = |source| GatewayStartError::Listen { key: PEERS, address, source };
    let listener = TcpListener::bind(address).await.map_err(failed)?;
    let local = listener.local_addr().map_err(failed)?;
    Ok((listener, local))
}
