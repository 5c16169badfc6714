//! The state that all requests share: the snapshot, the store, the limits.

use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Instant;

use arc_swap::{ArcSwap, ArcSwapOption};
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

use crate::base::budget::ByteBudget;
use crate::base::callers::CallerCounts;
use crate::base::clock;
use crate::base::task_group::TaskGroup;
use crate::cluster::membership::Cluster;
use crate::config::{HostCommand, Limits};
use crate::gateway::answer::RequestAnswer;
use crate::gateway::client::admission::{CallPlace, RequestAdmission};
use crate::gateway::client::connected::ConnectedClients;
use crate::gateway::client::handed_uris::HandedUris;
use crate::gateway::client::{ClientContext, view_of};
use crate::gateway::held::HeldCalls;
use crate::gateway::keys::Keys;
use crate::gateway::role::GatewayRole;
use crate::gateway::snapshot::Snapshot;
use crate::gateway::turned_away::UnknownCallQueue;
use crate::mcp::asking::elicitation::OwnListeners;
use crate::mcp::client_name::ClientName;
use crate::mcp::method::ItemList;
use crate::policy;
use crate::policy::Caller;
use crate::store::approvals::Approvals;
use crate::store::audit::AuditLog;
use crate::store::disk::presence::Presence;
use crate::store::leases::Leases;
use crate::store::pins::PinRegistry;
use crate::store::recent::RecentDecisions;
use crate::telemetry::metrics::Metrics;
use crate::upstream::call::parks::ParkedCalls;
use crate::wire::code;
use crate::wire::json::raw::RawObject;

/// The state that all connections share.
#[derive(Debug)]
pub struct Service {
    pub role: GatewayRole,
    /// The file that announces this process in its state directory; set in `headend stdio` only.
    pub presence: OnceLock<Presence>,
    /// The command by which hosts reach this daemon; set in the daemon only.
    pub host_command: OnceLock<HostCommand>,
    pub snapshots: Arc<ArcSwap<Snapshot>>,
    /// Generation of the snapshot in force; list streams wait for it to grow.
    pub generation: watch::Receiver<u64>,
    /// True once every upstream has listed or failed, or the time for that is over.
    pub settled: watch::Receiver<bool>,
    pub metrics: Metrics,
    pub audit: AuditLog,
    pub tasks: TaskGroup,
    /// Fires when new requests are refused, before the gateway ends.
    pub draining: CancellationToken,
    /// Fires when calls in flight are given up.
    pub giving_up: CancellationToken,
    /// Cloned by each request that is arriving, and by each relay that may still send one: after a
    /// hand-over no upstream ends before they are dropped.
    pub arriving: Arc<()>,
    pub keys: Keys,
    /// The cluster that this process is a replica of; `None` without one.
    pub cluster: Option<Arc<Cluster>>,
    pub parks: ParkedCalls,
    /// Approved definitions, launches and apps.
    pub pins: PinRegistry,
    /// URIs that results of tools handed to callers.
    pub handed: HandedUris,
    /// Grants and open approvals.
    pub approvals: Arc<Approvals>,
    /// Use of limits by calls, on disk.
    pub leases: Leases,
    /// Longest result that a client is sent, in bytes.
    pub max_result_bytes: AtomicUsize,
    pub budget: Arc<ByteBudget>,
    pub admission: RequestAdmission,
    /// Calls that are held while a person decides.
    pub held: HeldCalls,
    /// Number of the next call.
    pub calls: AtomicU64,
    /// Number of calls of each caller since the start.
    pub calls_of: CallerCounts,
    /// Recorder of calls that were answered as if their item did not exist.
    pub turned_away: UnknownCallQueue,
    /// Connected clients, for `status`.
    pub clients: ConnectedClients,
    /// The latest decisions, for the console.
    pub recent: RecentDecisions,
    pub started: Instant,
    /// Base URL of the console's pages, once it listens.
    pub console: OnceLock<String>,
    /// Ports that this process listens on.
    pub ports: OnceLock<Vec<u16>>,
    /// The refused configuration, if the last reload was refused.
    pub refused_reload: ArcSwapOption<RefusedReload>,
}

/// A configuration that was refused at a reload; the one before stays in force.
#[derive(Debug)]
pub struct RefusedReload {
    /// The first problem, as a line without secrets.
    pub why: String,
    /// Time of the first refusal since a configuration was last applied, in seconds since 1970.
    pub since: u64,
}

impl Service {
    /// Returns the ports and names of the gateway's own listeners: those of this process, and those
    /// of the configuration, which another process may serve.
    pub fn own(&self) -> OwnListeners {
        let snapshot = self.snapshots.load();
        let config = &snapshot.config;
        let listens = config.server.listen.iter().chain(&config.metrics.listen).chain(&config.console.listen);
        let mut ports: Vec<u16> = listens.map(std::net::SocketAddr::port).collect();
        ports.extend(self.ports.get().into_iter().flatten());
        OwnListeners { ports, names: config.server.allowed_hosts.clone() }
    }
}

impl Service {
    /// Stores the outcome of a reload; `why` has a line for each problem, and the first is kept.
    pub fn reload_ended(&self, outcome: Result<(), &str>) {
        let refused = outcome.err().map(|why| {
            let since = self.refused_reload.load().as_ref().map_or_else(clock::unix_seconds, |refused| refused.since);
            Arc::new(RefusedReload { why: why.lines().next().unwrap_or_default().to_owned(), since })
        });
        self.refused_reload.store(refused);
    }

    /// Waits until the upstreams have been heard of, which takes a moment after the start and no
    /// time later.
    pub async fn settled(&self) {
        if !*self.settled.borrow() {
            // The sender lives as long as the gateway.
            drop(self.settled.clone().wait_for(|settled| *settled).await);
        }
    }

    /// Announces the client's name in the state directory, if this process is the gateway of one
    /// client.
    pub fn name_host(&self, name: impl FnOnce() -> Option<ClientName>) {
        if let Some(presence) = self.presence.get()
            && let Some(name) = name()
        {
            presence.name_host(&name.name);
        }
    }

    pub(super) fn max_result_bytes(&self) -> usize {
        self.max_result_bytes.load(Ordering::Relaxed)
    }

    /// Puts new limits in force. `is_shared`: there can be several callers.
    pub fn set_limits(&self, old: &Limits, new: &Limits, is_shared: bool) {
        self.budget.set_shared(is_shared);
        self.admission.set_limits(old, new);
        self.budget.set_limit(new.buffered_bytes);
        self.max_result_bytes.store(new.result_bytes, Ordering::Relaxed);
    }

    /// Whether no request of this client can be taken: all places are taken and the queue has no
    /// room for its caller, or too many bytes are held.
    pub(super) fn is_full(&self, client: &ClientContext) -> bool {
        self.admission.is_full(client.access.caller(), self.budget.is_shared()) || self.budget.is_overdrawn()
    }

    /// Takes a place among all running calls for one call of this client, or a place in the queue;
    /// `None` if the queue has no room for its caller.
    pub(super) fn enter(&self, client: &ClientContext) -> Option<CallPlace> {
        self.admission.enter(client.access.caller(), self.budget.is_shared())
    }

    /// Returns one page of a list, from bytes shared by all callers with the same view, and notes
    /// the tools that it shows to the client.
    pub fn list(&self, client: &ClientContext, list: ItemList, params: &RawObject) -> RequestAnswer {
        let snapshot = self.snapshots.load_full();
        let Some(view) = view_of(&snapshot, client) else {
            return RequestAnswer::error(code::INVALID_PARAMS, "this profile no longer exists", None);
        };
        let (viewer, now) = (client.viewer(), clock::since_1970());
        let rendered = snapshot.list(view, list, viewer, &self.keys.cursors, now);
        let page = match params.get("cursor") {
            None => Some(0),
            Some(raw) if raw.bytes().as_ref() == b"null" => Some(0),
            Some(raw) => raw.parse::<String>().ok().and_then(|cursor| {
                self.keys.cursors.open(viewer.scope(list, view), rendered.content.as_ref()?, &cursor, now)
            }),
        };
        let page = page.and_then(|page| usize::try_from(page).ok());
        page.and_then(|page| rendered.pages.get(page)).map_or_else(
            || {
                RequestAnswer::error(
                    code::INVALID_PARAMS,
                    "the cursor is not valid any more; list again from the start",
                    None,
                )
            },
            |page| RequestAnswer::ok(page.clone()),
        )
    }

    /// Records a summary of calls of items that their callers cannot see, and logs it if there is
    /// no audit log.
    pub fn wrote_refusals(&self, written: policy::AuditEntry) {
        if !self.audit.is_kept() {
            let caller = written.caller.as_ref().map_or("", Caller::name);
            tracing::info!(target: "audit", caller, count = written.count, why = %written.why, "refusals");
        }
        drop(self.audit.record(written, false));
    }
}
