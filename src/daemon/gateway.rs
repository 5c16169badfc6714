//! Composition root: builds the gateway from a configuration, runs its faces, ends it in order.

use std::io;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::atomic::AtomicU64;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use tokio::net::TcpListener;
use tokio::sync::{Mutex, Semaphore, oneshot};
use tokio_util::sync::CancellationToken;

use crate::base::budget::Budget;
use crate::base::clock;
use crate::base::queue::Queue;
use crate::base::tally::Tally;
use crate::base::task_group::TaskGroup;
use crate::catalog::page::CursorKey;
use crate::config::{Auth, Config, Warning};
use crate::console::live_desk::LiveDesk;
use crate::console::{self, Console};
use crate::daemon::admin;
use crate::daemon::systemd;
use crate::engine::state::StateKey;
use crate::engine::task_id::TaskKey;
use crate::gateway::quota::{ShareLimits, Shares};
use crate::gateway::service::{LOCAL, MAX_ASKING, STATELESS, Service};
use crate::gateway::supervisor::{self, Order, Parts, Supervised};
use crate::gateway::turned_away;
use crate::listener::address::Failures;
use crate::listener::descriptors::Room;
use crate::listener::guard::Guard;
use crate::listener::lobby::{Lobby, LobbyLimits};
use crate::policy::{CallerLimiter, Entry};
use crate::serve::http_server::{Front, accept};
use crate::serve::lines::LineClient;
use crate::serve::pages::{self, Served};
use crate::serve::sessions::{SessionLimits, Sessions};
use crate::store::approvals::Ledger;
use crate::store::audit::{self, Audit, OpenError};
use crate::store::db::DbError;
use crate::store::directory::Store;
use crate::store::leases::Leases;
use crate::store::pins::{PinChange, PinKind, Pins};
use crate::store::recent::Recent;
use crate::telemetry::metrics::Metrics;
use crate::upstream::actor::Intake;
use crate::upstream::client::HttpClient;
use crate::upstream::parked::Parks;
use crate::wire::frame::Bounds;

/// After the drain: how long what was given up may take to say so.
const LAST_WORDS: Duration = Duration::from_secs(2);

/// Where the configuration came from, and how to read it again.
pub(crate) struct ConfigSource {
    /// `None` for the embedded default and for upstreams given on the command line.
    pub(crate) path: Option<PathBuf>,
    pub(crate) load: Loader,
    /// Grants and pins are kept; not those of upstreams that the command line names.
    pub(crate) remembers: bool,
}

/// Reads the configuration anew; the error is every problem, as text.
pub(crate) type Loader = Box<dyn Fn() -> Result<(Config, Vec<Warning>), String> + Send + Sync>;

impl std::fmt::Debug for ConfigSource {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "ConfigSource({:?})", self.path)
    }
}

/// Why the gateway could not be built. Each is a configuration to mend.
#[derive(Debug, thiserror::Error)]
pub(crate) enum StartError {
    #[error("{0}")]
    Config(String),
    #[error("listen on {address}: {source}")]
    Listen {
        address: SocketAddr,
        #[source]
        source: io::Error,
    },
    #[error("the access token in {dir}: {source}")]
    Token {
        dir: PathBuf,
        #[source]
        source: io::Error,
    },
    #[error(transparent)]
    Audit(#[from] OpenError),
    #[error("the state directory: {0}")]
    State(#[from] DbError),
    #[error("metrics: {0}")]
    Metrics(#[from] prometheus::Error),
}

/// A running gateway without faces; HTTP, pipes and the admin socket are added by its owner.
#[derive(Debug)]
pub(crate) struct Gateway {
    pub(crate) service: Arc<Service>,
    pub(crate) supervised: Supervised,
    pub(crate) sessions: Arc<Sessions>,
    pub(crate) source: ConfigSource,
    /// Set when it listens.
    pub(crate) console: OnceLock<Arc<Console>>,
    pub(crate) pins: Pins,
    store: Option<Store>,
    reloading: Mutex<()>,
    drain_timeout: Duration,
}

/// Where the gateway can be reached.
#[derive(Clone, Debug, Default)]
pub(crate) struct Addresses {
    pub(crate) endpoints: Vec<String>,
    pub(crate) metrics: Option<SocketAddr>,
    /// The console's own address, where it is on.
    pub(crate) console: Option<Arc<str>>,
    /// The file that holds the access token, where one is asked for.
    pub(crate) token_file: Option<PathBuf>,
}

impl Gateway {
    /// Starts the upstreams. Nothing listens yet. `chain` is that of the audit log, [`audit::MAIN`] for the daemon.
    ///
    /// # Errors
    /// [`StartError`].
    pub(crate) fn build(
        config: Config,
        source: ConfigSource,
        store: Option<Store>,
        chain: &str,
    ) -> Result<Self, StartError> {
        let metrics = Metrics::new()?;
        let db = store.as_ref().map(Store::db).transpose()?;
        let audit = match (&store, &db) {
            (Some(store), Some(db)) => audit::open_in(store.dir(), db, &config.audit, chain, metrics.audit())?,
            _ => Audit::none(),
        };
        // Without a disk that takes it the gateway starts too, and calls are refused.
        drop(audit.record(Entry::gateway("started", concat!("headend ", env!("CARGO_PKG_VERSION"))), true));
        let limits = &config.server.limits;
        let session_limits = SessionLimits {
            sessions: limits.sessions,
            per_caller: many_callers(&config).then_some(limits.sessions_per_caller),
            idle: limits.session_idle,
            max: limits.session_max,
        };
        let limits = limits.clone();
        let drain_timeout = config.server.drain_timeout;
        let budget = Budget::new(limits.buffered_bytes);
        metrics.reloaded(true, clock::unix_seconds());
        let pins = match db.clone().filter(|_| source.remembers) {
            Some(db) => Pins::open(db)?,
            None => Pins::memory(),
        };
        let leases = Leases::new(db.clone(), metrics.clone());
        let parts = Parts {
            metrics: metrics.clone(),
            store: store.clone(),
            http: HttpClient::new(),
            intake: Intake {
                budget: Arc::clone(&budget),
                max_message_bytes: limits.upstream_result_bytes,
                bounds: Bounds { depth: limits.upstream_depth, nodes: limits.upstream_nodes },
            },
            pins: pins.clone(),
            leases: leases.clone(),
        };
        let ledger = match db {
            Some(db) => Ledger::open(db, &config.consent)?,
            None => Ledger::memory(&config.consent),
        };
        let (invalidated, told) = (ledger.clone(), audit.clone());
        pins.on_change(Box::new(move |change| pin_changed(change, &invalidated, &told)));
        ledger.record_in(audit.clone());
        let burst = u32::try_from(limits.caller_burst).unwrap_or(u32::MAX);
        let supervised = supervisor::start(config, parts).map_err(StartError::Config)?;
        supervised.tasks.spawn("ledger", ledger.clone().run(supervised.stop.clone()));
        let ledger = Arc::new(ledger);
        let (tasks, draining, giving_up) = (TaskGroup::default(), CancellationToken::new(), CancellationToken::new());
        let (turned_away, watch) = turned_away::queue();
        let service = Arc::new(Service {
            turned_away,
            snapshots: Arc::clone(&supervised.snapshots),
            generation: supervised.generation.clone(),
            metrics,
            audit,
            parks: Parks::new(tasks.clone(), draining.clone(), giving_up.clone()),
            ledger: Arc::clone(&ledger),
            used: std::sync::Mutex::default(),
            leases,
            tasks,
            draining,
            giving_up,
            cursors: CursorKey::new(&clock::random::<32>()),
            states: StateKey::new(&clock::random())
                .ok_or_else(|| StartError::Config("no key could be made".to_owned()))?,
            task_ids: TaskKey::new(&clock::random())
                .ok_or_else(|| StartError::Config("no key could be made".to_owned()))?,
            in_flight: Arc::new(Semaphore::new(limits.in_flight)),
            queued: Queue::new(limits.queue),
            queue_time: limits.queue_timeout,
            asking: Arc::new(Semaphore::new(MAX_ASKING)),
            max_result_bytes: limits.result_bytes,
            budget: Arc::clone(&budget),
            shares: Shares::new(ShareLimits {
                connections: limits.connections_per_caller,
                calls: limits.in_flight_per_caller,
                streams: limits.streams_per_caller,
            }),
            caller_rate: CallerLimiter::new(limits.caller_rate, burst),
            calls: AtomicU64::new(u64::from(u32::from_be_bytes(clock::random()))),
            recent: Recent::default(),
            console: OnceLock::new(),
            ports: OnceLock::new(),
            started: clock::now(),
        });
        supervised.tasks.spawn("clock", clock::watch_steps(supervised.stop.clone()));
        supervised.tasks.spawn("turned-away", watch.run(Arc::clone(&service), supervised.stop.clone()));
        Ok(Self {
            service,
            supervised,
            sessions: Arc::new(Sessions::new(session_limits, budget, Some(ledger))),
            source,
            console: OnceLock::new(),
            pins,
            store,
            reloading: Mutex::new(()),
            drain_timeout,
        })
    }

    /// A client on a pipe.
    pub(crate) fn line_client(&self, caller: Arc<str>, profile: Option<Arc<str>>) -> LineClient {
        let config = Arc::clone(&self.service.snapshots.load().config);
        let limits = &config.server.limits;
        LineClient {
            service: Arc::clone(&self.service),
            caller,
            profile,
            settled: self.supervised.settled.clone(),
            connected: Some(self.service.metrics.connected("stdio")),
            is_here: true,
            has_room: false,
            max_line_bytes: limits.body_bytes,
            bounds: Bounds { depth: limits.depth, nodes: limits.nodes },
            max_uris: limits.uris_per_stream,
        }
    }

    /// Opens the HTTP listeners of the configuration.
    ///
    /// # Errors
    /// [`StartError`]; nothing listens then.
    pub(crate) async fn listen(&self) -> Result<Addresses, StartError> {
        let config = Arc::clone(&self.service.snapshots.load().config);
        let mut addresses = Addresses::default();
        let mut listeners = Vec::new();
        for address in &config.server.listen {
            listeners.push(bind(*address).await?);
        }
        let metrics = match config.metrics {
            Some(address) => Some(bind(address).await?),
            None => None,
        };
        let console = match config.console.listen {
            Some(address) => {
                let bound = console::bind(address, config.console.chosen).await;
                Some(bound.map_err(|source| StartError::Listen { address, source })?)
            }
            None => None,
        };
        let bound = listeners.iter().chain(&metrics).chain(&console).map(|(_, local)| local.port());
        self.service.ports.get_or_init(|| bound.collect());
        let tokens = match &config.server.auth {
            Auth::None => None,
            Auth::Token { tokens } => Some(self.tokens(tokens, &mut addresses)?),
        };
        let failures = Arc::new(Failures::new(&config.server.limits, many_callers(&config)));
        let fixed = console::DESCRIPTORS + pages::CONNECTIONS.descriptors() + admin::DESCRIPTORS;
        let room = Room::make(&config.server.limits, listeners.len(), config.upstreams.len(), fixed);
        let limits = room.fit(&config.server.limits);
        for (listener, local) in listeners {
            let server = &config.server;
            let guard =
                Guard::new(local, &server.allowed_hosts, &server.allowed_origins, tokens.clone(), &server.limits);
            addresses.endpoints.push(format!("http://{local}{}", server.endpoint));
            let front = Arc::new(Front {
                service: Arc::clone(&self.service),
                sessions: Arc::clone(&self.sessions),
                guard,
                endpoint: server.endpoint.clone(),
                legacy_sse: server.legacy_sse,
                settled: self.supervised.settled.clone(),
                bounds: Bounds { depth: server.limits.depth, nodes: server.limits.nodes },
                max_body_bytes: server.limits.body_bytes,
                body_time: server.limits.body_timeout,
                keepalive: server.limits.keepalive,
                lobby: Lobby::new(
                    "mcp",
                    LobbyLimits { all: limits.anonymous_connections, per_origin: limits.connections_per_ip },
                    Some(self.service.metrics.clone()),
                ),
                places: Arc::new(Semaphore::new(limits.connections)),
                full: Tally::default(),
                failures: Arc::clone(&failures),
                limits: limits.clone(),
            });
            self.service.tasks.spawn("listener", accept(front, listener, self.service.draining.clone()));
        }
        if let Some((listener, local)) = metrics {
            addresses.metrics = Some(local);
            self.serve_pages(listener, local, &config);
        }
        if let Some((listener, local)) = console {
            addresses.console = Some(self.serve_console(listener, local)?);
        }
        let (sessions, draining) = (Arc::clone(&self.sessions), self.service.draining.clone());
        let (ledger, life) = (Arc::clone(&self.service.ledger), config.server.limits.session_max);
        self.service.tasks.spawn("sweep", async move {
            let mut begun = clock::now();
            while tokio::time::timeout(Duration::from_secs(60), draining.cancelled()).await.is_err() {
                sessions.sweep();
                // What was allowed for the session of a client without one lasts no longer than a session may.
                if clock::now().duration_since(begun) >= life {
                    begun = clock::now();
                    ledger.session_ended(STATELESS);
                }
            }
        });
        Ok(addresses)
    }

    fn tokens(
        &self,
        named: &[(String, crate::config::secret::Secret)],
        addresses: &mut Addresses,
    ) -> Result<Vec<(String, Arc<str>)>, StartError> {
        let mut tokens: Vec<(String, Arc<str>)> =
            named.iter().map(|(caller, token)| (token.expose().to_owned(), Arc::from(caller.as_str()))).collect();
        if let Some(store) = &self.store {
            let failed = |source| StartError::Token { dir: store.dir().to_owned(), source };
            let (token, path) = store.token().map_err(failed)?;
            tokens.push((token, Arc::from(LOCAL)));
            addresses.token_file = Some(path);
        }
        Ok(tokens)
    }

    fn serve_console(&self, listener: TcpListener, local: SocketAddr) -> Result<Arc<str>, StartError> {
        let token = match &self.store {
            Some(store) => {
                let failed = |source| StartError::Token { dir: store.dir().to_owned(), source };
                store.console_token().map_err(failed)?
            }
            // Nobody can know it: links are the only way in.
            None => Store::fresh_token(),
        };
        let desk =
            Arc::new(LiveDesk::new(Arc::clone(&self.service), self.pins.clone(), self.supervised.orders.clone()));
        let console = Console::new(desk, &token, local, self.service.draining.clone());
        let console = Arc::clone(self.console.get_or_init(|| Arc::new(console)));
        let base = Arc::clone(console.base());
        self.service.console.get_or_init(|| base.to_string());
        let lobby = Lobby::new("console", console::ANONYMOUS, Some(self.service.metrics.clone()));
        self.service.tasks.spawn("console", console::serve(console, listener, lobby, self.service.tasks.clone()));
        Ok(base)
    }

    fn serve_pages(&self, listener: TcpListener, local: SocketAddr, config: &Config) {
        let service = Arc::clone(&self.service);
        let sessions = Arc::clone(&self.sessions);
        let pages = move |path: &str| match path {
            "/metrics" => {
                let buffered = (service.budget.used(), service.budget.limit());
                service.metrics.observe(sessions.len(), service.queued.len(), buffered);
                Some((http::StatusCode::OK, service.metrics.render()))
            }
            "/healthz" => Some((http::StatusCode::OK, "ok\n".to_owned())),
            "/readyz" if service.draining.is_cancelled() => {
                Some((http::StatusCode::SERVICE_UNAVAILABLE, "draining\n".to_owned()))
            }
            "/readyz" => Some((http::StatusCode::OK, "ready\n".to_owned())),
            _ => None,
        };
        let guard = Guard::new(
            local,
            &config.server.allowed_hosts,
            &config.server.allowed_origins,
            None,
            &config.server.limits,
        );
        // The pages outlive the drain, so that a scraper sees it.
        let stop = self.service.giving_up.clone();
        let tasks = self.supervised.tasks.clone();
        let lobby = Lobby::new("metrics", pages::CONNECTIONS, Some(self.service.metrics.clone()));
        let served = Served { pages: Box::new(pages), guard };
        tasks.spawn("pages", pages::serve(listener, lobby, served, tasks.clone(), stop));
    }

    /// Reads the configuration again and puts it in force, all or nothing. Returns what changed.
    ///
    /// # Errors
    /// Why it was refused; nothing has changed then.
    pub(crate) async fn reload(&self) -> Result<String, String> {
        let _one_at_a_time = self.reloading.lock().await;
        systemd::reloading();
        let outcome = self.load_and_apply().await;
        systemd::ready();
        match &outcome {
            Ok(plan) => tracing::info!(plan = %plan, "configuration reloaded"),
            Err(why) => {
                self.service.metrics.reloaded(false, clock::unix_seconds());
                tracing::error!(error = %why, "configuration refused, the old one stays in force");
            }
        }
        outcome
    }

    async fn load_and_apply(&self) -> Result<String, String> {
        let (config, warnings) = (self.source.load)()?;
        for warning in warnings {
            tracing::warn!(warning = %warning, "configuration");
        }
        let (reply, answer) = oneshot::channel();
        let order = Order::Apply { config: Box::new(config), reply };
        self.supervised.orders.send(order).await.map_err(|_| "the gateway is shutting down".to_owned())?;
        let plan = answer.await.map_err(|_| "the gateway is shutting down".to_owned())??;
        // What was agreed to for an upstream that is gone is over, even if one of the same name comes.
        self.service.ledger.invalidate(|asked| plan.stop.iter().any(|name| *name.as_str() == *asked.upstream));
        Ok(plan.to_string())
    }

    /// Ends everything in order; every step has its own limit. A second signal (`hurry`) skips the waiting.
    pub(crate) async fn shut_down(&self, hurry: &CancellationToken) {
        systemd::stopping();
        self.service.draining.cancel();
        tokio::select! {
            () = self.service.tasks.join() => {}
            () = tokio::time::sleep(self.drain_timeout) => tracing::warn!("calls in flight are given up"),
            () = hurry.cancelled() => {}
        }
        self.service.giving_up.cancel();
        self.service.tasks.stop();
        // Bounded: whoever does not take its answer now does not get it.
        drop(tokio::time::timeout(LAST_WORDS, self.service.tasks.join()).await);
        self.service.leases.keep(&self.service.snapshots.load_full().limiter).await;
        self.supervised.stop.cancel();
        tokio::select! {
            () = self.supervised.tasks.join() => {}
            () = hurry.cancelled() => {}
        }
        // The log says for itself when it takes nothing more.
        drop(self.service.audit.record(Entry::gateway("stopped", ""), true).written().await);
        self.service.audit.flush().await;
    }
}

/// Records what became of a pin, and ends the consents to what was pinned before.
fn pin_changed(change: &PinChange, ledger: &Ledger, audit: &Audit) {
    // The pin itself is kept in the store; no call waits for this record.
    drop(audit.record(change.entry(), false));
    let is_launch = change.key.kind == PinKind::Launch;
    let Some(over) = change.over else { return };
    ledger.invalidate(|asked| {
        let digest = if is_launch { asked.launch } else { asked.definition };
        *asked.upstream == *change.key.upstream.as_str() && digest == over
    });
}

/// Whether callers other than the local user can exist.
pub(crate) fn many_callers(config: &Config) -> bool {
    let named = matches!(&config.server.auth, Auth::Token { tokens } if !tokens.is_empty());
    named || !config.admin.users.is_empty() || config.admin.group.is_some()
}

async fn bind(address: SocketAddr) -> Result<(TcpListener, SocketAddr), StartError> {
    let failed = |source| StartError::Listen { address, source };
    let listener = TcpListener::bind(address).await.map_err(failed)?;
    let local = listener.local_addr().map_err(failed)?;
    Ok((listener, local))
}
