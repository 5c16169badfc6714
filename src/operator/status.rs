//! The status of a gateway, as `headend status` and the admin socket show it.

use serde::{Deserialize, Serialize};

use super::upstreams::{UpstreamView, all, is_zero};
use crate::base::clock;
use crate::cluster::membership::Cluster;
use crate::cluster::row::Replica;
use crate::gateway::condition::{GatewayFault, conditions};
use crate::gateway::service::Service;
use crate::policy::consent::ApprovalView;
use crate::policy::records::chain::timestamp;
use crate::store::db::StoreHealth;
use crate::store::disk::presence::OtherGateway;
use crate::store::port::DEAD_AFTER;
use crate::store::restored;

/// Most clients that are listed; the others are counted.
const MOST_CLIENTS: usize = 100;

/// The status of a gateway and its upstreams. [`StatusView::new`] leaves out addresses and
/// sessions, which the daemon sets.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", default)]
pub(crate) struct StatusView {
    pub(crate) version: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) config: Option<String>,
    pub(crate) uptime_seconds: u64,
    pub(crate) generation: u64,
    pub(crate) sessions: usize,
    pub(crate) in_flight: usize,
    pub(crate) addresses: AddressesView,
    pub(crate) clients: Vec<ConnectedClientView>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) clients_not_shown: Option<usize>,
    /// The review that a restored store waits for.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) restored: Option<RestoredView>,
    pub(crate) withheld_items: usize,
    pub(crate) degraded: Vec<GatewayFault>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) host_command: Option<String>,
    pub(crate) other_gateways: Vec<OtherGateway>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) store: Option<StoreView>,
    /// The replicas of the cluster, this one included; empty without a cluster.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(crate) replicas: Vec<ReplicaView>,
    /// Number of replicas with another key, which `replicas` lacks.
    #[serde(skip_serializing_if = "is_zero")]
    pub(crate) replicas_with_another_key: usize,
    pub(crate) upstreams: Vec<UpstreamView>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) approvals: Option<OpenApprovalsView>,
}

/// Addresses that a gateway listens on.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(default)]
pub(crate) struct AddressesView {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) mcp: Option<Vec<String>>,
    /// The address of the endpoint for clients on other machines.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) public: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) console: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) metrics: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) socket: Option<String>,
}

/// Connections of one caller's clients with the same name. Clients name themselves; nothing proves
/// the name.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(default)]
pub(crate) struct ConnectedClientView {
    pub(crate) name: String,
    pub(crate) caller: String,
    pub(crate) connections: usize,
}

/// A replica of the cluster, as the last reading of the directory has it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, rename_all = "kebab-case")]
pub(crate) struct ReplicaView {
    pub(crate) name: String,
    pub(crate) version: String,
    /// Time since its start.
    pub(crate) uptime_seconds: u64,
    /// Time since its last heartbeat.
    pub(crate) heartbeat_seconds: u64,
    pub(crate) in_flight: u64,
    /// True for the replica that answers.
    pub(crate) own: bool,
    /// True once its last heartbeat is so old that it counts as dead.
    pub(crate) silent: bool,
    /// Differences from the replica that answers: `policy`, `upstreams`, `version`;
    /// `name` if two have one name.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(crate) differs: Vec<String>,
}

/// A review that is due after a restore.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) struct RestoredView {
    pub(crate) text: String,
    pub(crate) backup_time: String,
}

/// Whether the store accepts writes, and if not, why and since when.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct StoreView {
    pub(crate) writable: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) why: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) since: Option<String>,
}

/// Number and age of the open approvals of all processes on the store.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) struct OpenApprovalsView {
    pub(crate) open: usize,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) oldest_seconds: Option<u64>,
}

impl StatusView {
    /// Reads the status of a gateway. Facts that only the program around it knows stay at their
    /// defaults.
    pub(crate) fn new(service: &Service) -> Self {
        let snapshot = service.snapshots.load_full();
        let upstreams = all(&snapshot);
        let in_flight = upstreams.iter().filter_map(|upstream| upstream.facts.as_ref()).map(|facts| facts.in_flight);
        Self {
            version: env!("CARGO_PKG_VERSION").to_owned(),
            uptime_seconds: clock::since(service.started).as_secs(),
            generation: snapshot.generation,
            in_flight: in_flight.sum(),
            withheld_items: snapshot.dropped.len(),
            degraded: conditions(service),
            host_command: service.host_command.get().map(|command| command.line()),
            store: service.approvals.store_health().map(|store| StoreView::from(&**store)),
            replicas: service.cluster.as_ref().map(|cluster| ReplicaView::all(cluster)).unwrap_or_default(),
            replicas_with_another_key: service.cluster.as_ref().map_or(0, |cluster| cluster.reading().unreadable),
            upstreams,
            ..Self::default()
        }
    }

    /// Sets the connected clients from tuples of caller, name and number of connections, which are
    /// sorted by number, largest first. Lists the first [`MOST_CLIENTS`] and counts the connections
    /// of the others.
    pub(crate) fn set_clients<N: ToString>(&mut self, counted: Vec<(impl ToString, N, usize)>) {
        let more: usize = counted.iter().skip(MOST_CLIENTS).map(|(.., count)| count).sum();
        let listed = counted.into_iter().take(MOST_CLIENTS);
        let client = |(caller, name, connections): (_, N, usize)| ConnectedClientView {
            name: name.to_string(),
            caller: ToString::to_string(&caller),
            connections,
        };
        self.clients = listed.map(client).collect();
        self.clients_not_shown = (more > 0).then_some(more);
    }
}

impl ReplicaView {
    /// Describes all replicas, sorted by name.
    fn all(cluster: &Cluster) -> Vec<Self> {
        let (reading, now) = (cluster.reading(), clock::now());
        let Some(own) = reading.replicas.iter().find(|replica| Some(replica.run) == cluster.run()) else {
            return Vec::new();
        };
        let view = |replica: &Replica| {
            let (theirs, ours, is_own) = (&replica.facts, &own.facts, replica.run == own.run);
            let silent = replica.age(now) >= DEAD_AFTER;
            let differs = [
                ("policy", theirs.policy != ours.policy),
                ("upstreams", theirs.upstreams != ours.upstreams),
                ("version", theirs.version != ours.version),
                ("name", !is_own && !silent && theirs.name == ours.name),
            ];
            Self {
                name: theirs.name.clone(),
                version: theirs.version.clone(),
                uptime_seconds: clock::unix_seconds().saturating_sub(theirs.started),
                heartbeat_seconds: replica.age(now).as_secs(),
                in_flight: theirs.load,
                own: is_own,
                silent,
                differs: differs.iter().filter(|(_, is_on)| *is_on).map(|(what, _)| (*what).to_owned()).collect(),
            }
        };
        let mut views: Vec<_> = reading.replicas.iter().map(view).collect();
        views.sort_by(|a, b| a.name.cmp(&b.name));
        views
    }
}

impl From<&StoreHealth> for StoreView {
    fn from(store: &StoreHealth) -> Self {
        let trouble = store.trouble();
        let since = trouble.as_ref().map(|trouble| timestamp(trouble.since.saturating_mul(1000)));
        Self { writable: trouble.is_none(), why: trouble.map(|trouble| trouble.why), since }
    }
}

impl RestoredView {
    /// Describes the review of a backup taken at `backup_time`, in seconds since 1970.
    pub(crate) fn new(backup_time: u64) -> Self {
        Self { text: restored::review_sentence(backup_time), backup_time: timestamp(backup_time.saturating_mul(1000)) }
    }
}

impl From<&[ApprovalView]> for OpenApprovalsView {
    fn from(rows: &[ApprovalView]) -> Self {
        Self { open: rows.len(), oldest_seconds: rows.iter().map(|row| row.age).max() }
    }
}
