//! Composition root: builds the gateway from a configuration and shuts it down in order.

use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, AtomicUsize};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use arc_swap::ArcSwapOption;
use tokio::sync::Mutex;
use tokio_util::sync::CancellationToken;

use crate::base::access::Access;
use crate::base::budget::ByteBudget;
use crate::base::callers::CallerCounts;
use crate::base::clock;
pub(crate) use crate::base::clock::now;
pub(crate) use crate::base::never::or_never;
pub(crate) use crate::base::stop::StopTimes;
use crate::base::task_group::TaskGroup;
use crate::config::{Config, FileFingerprint, LoadedConfig};
use crate::console::{self, ConsoleSite};
use crate::daemon::access::SocketUserTable;
use crate::daemon::client_access::session_limits;
use crate::daemon::doors::{GatewayAddresses, GatewayListeners};
use crate::daemon::own_places::find_protected_folders;
use crate::daemon::replica;
use crate::daemon::succession::{HandoverState, PriorDaemon};
use crate::daemon::tokens::{self, LiveTokens};
use crate::gateway::client::admission::RequestAdmission;
use crate::gateway::client::connected::ConnectedClients;
use crate::gateway::held::HeldCalls;
use crate::gateway::hidden_calls;
use crate::gateway::keys::Keys;
use crate::gateway::logins::PendingLogins;
use crate::gateway::notify::NoticeSender;
use crate::gateway::role::GatewayRole;
use crate::gateway::service::Service;
use crate::gateway::supervisor::{self, SupervisorHandle, SupervisorServices};
use crate::listener::callers::credentials::CallerAccess;
use crate::operator::OperatorService;
use crate::operator::live::LiveBackend;
use crate::policy::{AuditEntry, Caller, OperatorAction};
use crate::serve::lines::LineClient;
use crate::serve::sessions::ClientSessions;
use crate::store::approvals::Approvals;
use crate::store::audit::{self, AuditLog, action::WrongAttempts};
use crate::store::directory::StateDir;
use crate::store::leases::Leases;
use crate::store::logins::Logins;
use crate::store::pins::PinRegistry;
use crate::store::recent::RecentDecisions;
use crate::store::restored::RestoreReview;
use crate::store::sessions::SessionStore;
use crate::store::sign_ins::SignIns;
use crate::telemetry::metrics::Metrics;
use crate::upstream::call::parks::ParkedCalls;
use crate::upstream::login::parts::LoginServices;
use crate::upstream::net::client::HttpClient;
use crate::upstream::process::mark::OwnerMarks;
use crate::upstream::spawner::{ClusterMembership, IntakeLimits};

pub(crate) use crate::store::approvals::SettingOwner;
pub(crate) use crate::store::audit::{MAIN, new_chain_name};

mod changes;
mod end;
mod records;
mod reload;
mod start_error;

pub(crate) use self::start_error::{GatewayStartError, bind_error_advice, describe_bind_error};

use self::records::{adopt_old_records, record_pin_changes};

/// Distance ahead of the clock beyond which the latest time in the store is reported as wrong.
const FAR_AHEAD: Duration = Duration::from_secs(10 * 365 * 24 * 3600);

/// The source of the configuration, and the state of the last reading.
pub(crate) struct ConfigSource {
    /// Path of the file; `None` for the embedded default and for upstreams of the command line.
    pub(crate) path: Option<PathBuf>,
    pub(crate) load: ConfigLoader,
    /// True if pins and logins are kept on disk; false for upstreams given on the command line.
    pub(crate) remembers: bool,
    /// The files as they were read last, even if the configuration in them was refused.
    pub(crate) files: parking_lot::Mutex<Vec<FileFingerprint>>,
    /// Warnings of the last configuration; a reload logs only the new ones.
    pub(crate) warned: parking_lot::Mutex<Vec<String>>,
}

/// A function that reads the configuration again.
pub(crate) type ConfigLoader = Box<dyn Fn() -> LoadedConfig + Send + Sync>;

impl ConfigSource {
    /// Reads the configuration and returns its files; the result is not applied or remembered.
    pub(crate) fn look(&self) -> Vec<FileFingerprint> {
        (self.load)().files
    }
}

impl std::fmt::Debug for ConfigSource {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "ConfigSource({:?})", self.path)
    }
}

/// A running gateway without listeners. Its owner adds HTTP, pipes and the admin socket.
#[derive(Debug)]
pub(crate) struct RunningGateway {
    pub(crate) service: Arc<Service>,
    pub(crate) supervised: SupervisorHandle,
    pub(crate) sessions: Arc<ClientSessions>,
    /// Logins at upstreams that wait for a person to complete them.
    pub(crate) logins: Arc<PendingLogins>,
    pub(crate) source: ConfigSource,
    /// The console; set once it listens.
    pub(crate) console: OnceLock<Arc<ConsoleSite>>,
    /// The service that performs and records the operator's requests.
    pub(crate) operator: OperatorService,
    pub(super) wrong_codes: WrongAttempts,
    pub(super) store: Option<StateDir>,
    /// The operator's review after a restored backup; `None` without a store.
    pub(super) restore_review: Option<RestoreReview>,
    /// Console sign-ins in the store; `None` without a store.
    pub(super) sign_ins: Option<SignIns>,
    /// Stored tokens of clients; `None` without a store.
    pub(super) client_tokens: Option<LiveTokens>,
    /// State of the HTTP listeners; set once they are opened.
    pub(super) doors: OnceLock<GatewayListeners>,
    /// Addresses of the HTTP listeners; set once they are opened.
    pub(super) addresses: OnceLock<GatewayAddresses>,
    /// Users of the admin socket; set once it is served.
    pub(super) users: OnceLock<SocketUserTable>,
    pub(super) socket: OnceLock<PathBuf>,
    pub(crate) handover: HandoverState,
    reloading: Mutex<()>,
    times: StopTimes,
}

impl RunningGateway {
    /// Builds a gateway and starts its upstreams; `chain` names its chain in the audit log.
    ///
    /// # Errors
    /// [`GatewayStartError`].
    pub(crate) fn build(
        config: Config,
        source: ConfigSource,
        store: Option<StateDir>,
        chain: &str,
        times: StopTimes,
    ) -> Result<Self, GatewayStartError> {
        Self::build_as(GatewayRole::Serve, config, source, store, chain, times, None)
    }

    /// Builds the gateway of a daemon that takes over from `prior`. No upstream starts before
    /// [`PriorDaemon::begun`] fires.
    ///
    /// # Errors
    /// [`GatewayStartError`].
    pub(crate) fn build_after(
        prior: &PriorDaemon,
        config: Config,
        source: ConfigSource,
        store: StateDir,
        times: StopTimes,
    ) -> Result<Self, GatewayStartError> {
        Self::build_as(GatewayRole::Serve, config, source, Some(store), MAIN, times, Some(prior))
    }

    /// Builds a gateway that stands in for a daemon: it serves the lists that are known from the
    /// store, starts no upstream and records nothing.
    ///
    /// # Errors
    /// [`GatewayStartError`].
    pub(crate) fn stand_in(
        config: Config,
        source: ConfigSource,
        store: StateDir,
        times: StopTimes,
    ) -> Result<Self, GatewayStartError> {
        Self::build_as(GatewayRole::StandIn, config, source, Some(store), "", times, None)
    }

    /// Opens the audit log and the stores, then starts the upstreams and the gateway's tasks.
    fn build_as(
        role: GatewayRole,
        mut config: Config,
        source: ConfigSource,
        store: Option<StateDir>,
        chain: &str,
        times: StopTimes,
        prior: Option<&PriorDaemon>,
    ) -> Result<Self, GatewayStartError> {
        let metrics = Metrics::new()?;
        let serves = role == GatewayRole::Serve;
        let pinned = store.as_ref().map(StateDir::db).transpose()?;
        // A stand-in only reads the pins; everything else in the store belongs to the daemon.
        let db = pinned.clone().filter(|_| serves);
        config.has_stored_callers = tokens::has_any(db.as_ref())?;
        let audit = match (&store, &db) {
            (Some(store), Some(db)) => audit::open_in(store.dir(), db, &config.audit, chain, metrics.audit())?,
            _ => AuditLog::none(),
        };
        // If the audit log is not writable, the gateway starts too, and refuses calls.
        let version = concat!("headend ", env!("CARGO_PKG_VERSION"));
        let started = prior.map_or_else(
            || AuditEntry::gateway("started", version),
            |prior| AuditEntry::gateway("took over", format!("{version} from {}", prior.name)),
        );
        drop(audit.record(started, true));
        let limits = &config.server.limits;
        let session_limits = session_limits(&config);
        let limits = limits.clone();
        let budget = ByteBudget::new(limits.buffered_bytes);
        budget.set_shared(config.has_many_callers());
        metrics.reloaded(true, clock::unix_seconds());
        let pins = match pinned.filter(|_| source.remembers) {
            Some(db) => PinRegistry::open(db)?,
            None => PinRegistry::memory(),
        };
        if let Some(db) = &db {
            // Expired grants must not become valid again because the clock was set back.
            let latest = db.latest_time().run_now()?;
            if latest > clock::since_1970() + FAR_AHEAD {
                tracing::error!(
                    seconds_since_1970 = latest.as_secs(),
                    "the last time in headend.db is more than ten years ahead of the clock: every grant with a time and every open \
                     approval counts as expired. Set the clock right; if it is right, put a copy of headend.db from before in its place"
                );
            }
            clock::advance_clock(latest);
        }
        // A daemon before this one has done what the first one on a store does.
        let is_daemon = chain == MAIN && prior.is_none();
        let restore_review = db.clone().map(|db| RestoreReview::open(db, is_daemon)).transpose()?;
        let leases = Leases::new(db.clone(), metrics.clone());
        let kept_logins = db.clone().filter(|_| source.remembers).map(Logins::new);
        if is_daemon {
            adopt_old_records(&config, store.as_ref(), kept_logins.as_ref());
        }
        let login_parts = LoginServices::new(kept_logins, audit.clone());
        let keys =
            Keys::open(db.as_ref())?.ok_or_else(|| GatewayStartError::Config("no key could be made".to_owned()))?;
        let cluster = match db.as_ref().filter(|_| is_daemon) {
            Some(db) => replica::member(&config, db, db.secrets("peers 1")?.as_ref(), &keys.run),
            None => Ok(None),
        };
        let cluster = cluster.map_err(GatewayStartError::Config)?;
        let membership = match (&cluster, &config.cluster) {
            (Some(cluster), _) => ClusterMembership::Replica(Arc::clone(cluster)),
            (None, Some(_)) => ClusterMembership::Outside,
            (None, None) => ClusterMembership::Alone,
        };
        let parts = SupervisorServices {
            metrics: metrics.clone(),
            store: store.clone(),
            http: HttpClient::new(),
            intake: IntakeLimits::new(Arc::clone(&budget), &limits),
            logins: login_parts.clone(),
            pins: pins.clone(),
            leases: leases.clone(),
            times,
            marks: OwnerMarks::claim(store.as_ref().filter(|_| serves).map(StateDir::dir)),
            prior: prior.map(|prior| prior.programs.clone()).unwrap_or_default(),
            membership,
            role,
        };
        let kept_sessions = db.clone().map(SessionStore::open).transpose()?.flatten();
        let token_store = db.clone();
        let sign_ins = db.clone().map(|db| SignIns::new(db, console::MAX_SESSIONS));
        let approvals = match db {
            Some(db) => Approvals::open(db, &config.consent)?,
            None => Approvals::memory(&config.consent),
        };
        let (invalidated, told) = (approvals.clone(), audit.clone());
        pins.on_change(Box::new(move |news| record_pin_changes(news, &invalidated, &told)));
        approvals.record_in(audit.clone());
        approvals.count_in(metrics.approvals().clone());
        let state = store.as_ref().map(StateDir::dir);
        approvals.set_places(find_protected_folders(source.path.as_deref(), &source.files.lock(), state));
        let supervised = supervisor::start(config, parts).map_err(GatewayStartError::Config)?;
        if let Some(review) = restore_review.clone().filter(|_| is_daemon) {
            supervised.tasks.spawn("restored", review.run(audit.clone(), supervised.stop.clone()));
        }
        supervised.tasks.spawn("approvals", approvals.clone().run(supervised.stop.clone()));
        let approvals = Arc::new(approvals);
        let (tasks, draining, giving_up) = (TaskGroup::default(), CancellationToken::new(), CancellationToken::new());
        let (turned_away, watch) = hidden_calls::queue();
        let service = Arc::new(Service {
            role,
            presence: OnceLock::new(),
            host_command: OnceLock::new(),
            turned_away,
            snapshots: Arc::clone(&supervised.snapshots),
            generation: supervised.generation.clone(),
            settled: supervised.settled.clone(),
            metrics,
            audit,
            parks: ParkedCalls::new(tasks.clone(), draining.clone()),
            pins: pins.clone(),
            handed: Default::default(),
            approvals: Arc::clone(&approvals),
            leases,
            tasks,
            draining,
            giving_up,
            arriving: Arc::new(()),
            keys,
            cluster,
            max_result_bytes: AtomicUsize::new(limits.result_bytes),
            budget: Arc::clone(&budget),
            admission: RequestAdmission::new(&limits),
            held: HeldCalls::default(),
            calls: AtomicU64::new(u64::from(u32::from_be_bytes(clock::random()))),
            calls_of: CallerCounts::default(),
            clients: ConnectedClients::default(),
            recent: RecentDecisions::default(),
            console: OnceLock::new(),
            ports: OnceLock::new(),
            refused_reload: ArcSwapOption::empty(),
            started: now(),
        });
        supervised.tasks.spawn("clock", clock::watch_steps(supervised.stop.clone()));
        supervised.tasks.spawn("turned-away", watch.run(Arc::clone(&service), supervised.stop.clone()));
        let notices = NoticeSender::start(&service, &supervised.tasks, &supervised.stop);
        let (tasks, draining) = (service.tasks.clone(), service.draining.clone());
        let wrong_codes = WrongAttempts::new(OperatorAction::WrongCode, service.audit.clone(), tasks, draining);
        let callback = Arc::clone(&login_parts.callback);
        let logins = Arc::new(PendingLogins::new(callback, supervised.orders.clone()));
        let desk = LiveBackend {
            service: Arc::clone(&service),
            pins,
            orders: supervised.orders.clone(),
            logins: Arc::clone(&logins),
            notices,
            review: restore_review.clone(),
        };
        let sessions = Arc::new(ClientSessions::new(
            session_limits,
            budget,
            Some(approvals),
            kept_sessions,
            Arc::clone(&service.keys.run),
        ));
        let client_tokens = token_store.map(|db| LiveTokens::new(db, &service, &sessions, supervised.orders.clone()));
        Ok(Self {
            operator: OperatorService::new(Arc::new(desk), service.audit.clone()),
            service,
            logins,
            supervised,
            sessions,
            source,
            console: OnceLock::new(),
            wrong_codes,
            store,
            restore_review,
            sign_ins,
            client_tokens,
            doors: OnceLock::new(),
            addresses: OnceLock::new(),
            users: OnceLock::new(),
            socket: OnceLock::new(),
            handover: HandoverState::default(),
            reloading: Mutex::new(()),
            times,
        })
    }

    /// Returns our own user as a caller, with access until the gateway shuts down.
    pub(crate) fn own_caller(&self) -> CallerAccess {
        CallerAccess { caller: Caller::local().clone(), access: Access::new(&self.service.giving_up) }
    }

    /// Creates the context of an MCP client on a pipe or socket.
    pub(crate) fn line_client(&self, caller: CallerAccess, profile: Option<Arc<str>>) -> LineClient {
        let config = Arc::clone(&self.service.snapshots.load().config);
        let limits = &config.server.limits;
        LineClient {
            service: Arc::clone(&self.service),
            caller: caller.caller,
            access: caller.access,
            profile,
            connected: Some(self.service.metrics.connected("stdio")),
            is_here: true,
            posts: None,
            drains: false,
            is_relay: false,
            max_line_bytes: limits.body_bytes,
            max_uris: limits.uris_per_stream,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config;

    #[tokio::test]
    async fn a_file_that_was_written_since_the_look_is_not_applied() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("headend.toml");
        let write = |text: &str| std::fs::write(&path, text).unwrap();
        write("");
        let LoadedConfig { outcome, files } = config::load(&path);
        let (config, _) = outcome.unwrap();
        let load: ConfigLoader = Box::new({
            let path = path.clone();
            move || config::load(&path)
        });
        let (path, files) = (Some(path.clone()), parking_lot::Mutex::new(files));
        let source = ConfigSource { path, load, remembers: false, files, warned: parking_lot::Mutex::default() };
        let gateway = RunningGateway::build(config, source, None, "test", StopTimes::DAEMON).unwrap();
        let is_in_force = || gateway.service.snapshots.load().config.policy_stated;
        write("[policy]\n");
        let half = gateway.source.look();
        write("[policy]\ndefault = \"deny\"\n");
        assert!(!gateway.reload_changed(Some(&half)).await && !is_in_force());
        let whole = gateway.source.look();
        assert!(gateway.reload_changed(Some(&whole)).await && is_in_force());
        let generation = || gateway.service.snapshots.load().generation;
        let applied = generation();
        assert!(gateway.reload_changed(Some(&whole)).await && generation() == applied, "it was read before");
        // A file that keeps changing is read as it is; a missing file leaves the old one in force.
        write("");
        assert!(gateway.reload_changed(None).await && !is_in_force());
        let applied = gateway.source.look();
        std::fs::remove_file(gateway.source.path.as_ref().unwrap()).unwrap();
        let missing = gateway.source.look();
        assert!(gateway.reload_changed(Some(&missing)).await && *gateway.source.files.lock() == applied);
    }
}
