//! The member of the cluster that a gateway has: the facts in its row, and the settings of its
//! listener for the other replicas.

use std::net::SocketAddr;
use std::sync::Arc;

use crate::base::clock;
use crate::base::current_run::CurrentRun;
use crate::cluster::link::MAX_PASSING;
use crate::cluster::membership::Cluster;
use crate::cluster::peer_tls::PeerTls;
use crate::cluster::row::ReplicaFacts;
use crate::config::show::shared_parts;
use crate::config::{Config, Limits, ServerSettings};
use crate::engine::sealed::peer::PeerKey;
use crate::gateway::service::Service;
use crate::listener::lobby::LobbyLimits;
use crate::serve::front::ListenerSettings;
use crate::store::db::Db;
use crate::store::port::ReplicaOperations;
use crate::wire::digest::Digest;
use crate::wire::secrets::SealSecrets;

/// Limits of connections that have not proved to be those of a replica.
pub(super) const STRANGERS: LobbyLimits = LobbyLimits { all: 64, per_origin: 32 };
/// Descriptors of connections to and from other replicas.
pub(super) const DESCRIPTORS: usize = 2 * MAX_PASSING + STRANGERS.descriptors();

/// Creates the member of the cluster that the configuration names; `None` without one. `secrets`
/// are those of the cluster for this purpose.
///
/// # Errors
/// A sentence: the store is not one of a cluster, or the key for other replicas cannot be made.
pub(super) fn member(
    config: &Config,
    db: &Db,
    secrets: Option<&SealSecrets>,
    run: &Arc<CurrentRun>,
) -> Result<Option<Arc<Cluster>>, String> {
    let Some(settings) = &config.cluster else { return Ok(None) };
    let store = replicas(db).ok_or("[cluster] needs its store, which this process has not opened")?;
    let secrets = secrets.ok_or("[cluster] needs `key` in [secrets]")?;
    let is_secure = settings.peer_url.as_ref().is_some_and(|url| url.scheme() == "https");
    let tls = is_secure.then(PeerTls::generate).transpose()?;
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
    Ok(Some(Cluster::new(store, PeerKey::new(secrets), tls, Arc::clone(run), facts)))
}

fn replicas(db: &Db) -> Option<Arc<dyn ReplicaOperations>> {
    #[cfg(test)]
    if let Some(replicas) = crate::stage::replicas::installed() {
        return Some(replicas);
    }
    db.replicas()
}

/// Puts the digests in by which replicas are compared.
fn compare_by(facts: &mut ReplicaFacts, config: &Config) {
    let [policy, upstreams] = shared_parts(config).map(|part| Digest::of(part.as_bytes()).hex());
    (facts.policy, facts.upstreams) = (policy, upstreams);
}

/// Returns the facts of the moment, which the heartbeat puts into the row. The digests are computed
/// once for each configuration.
pub(super) fn refresher(service: &Arc<Service>) -> impl Fn(&mut ReplicaFacts) + Send + use<> {
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

/// Returns the settings of the listener for replicas, which send the authority of `peer-url` as
/// Host.
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
