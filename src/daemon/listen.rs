//! Opens the HTTP listeners: MCP, metrics and the console.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use arc_swap::ArcSwap;
use tokio::net::TcpListener;
use tokio_util::sync::CancellationToken;

use crate::base::clock;
use crate::base::fair_slots::FairSlots;
use crate::base::tally::LogTally;
use crate::config::{Config, MAX_HEADER_FIELD, ServerSettings};
use crate::console::{self, ConsoleSessions, ConsoleSite};
use crate::daemon::doors::{GatewayAddresses, room};
use crate::daemon::gateway::{GatewayStartError, RunningGateway};
use crate::daemon::inherited::{InheritedListener, InheritedSockets};
use crate::daemon::scrape::MetricsPage;
use crate::gateway::client::STATELESS;
use crate::gateway::condition::{GatewayFault, conditions};
use crate::listener::callers::credentials::Credentials;
use crate::listener::guard::HeadGuard;
use crate::listener::lobby::Lobby;
use crate::listener::tls::{self, H2, HTTP1, ServerTls};
use crate::policy::Caller;
use crate::serve::front::{ListenerSettings, ListenerState};
use crate::serve::http_server::accept;
use crate::serve::pages::{self, PageServer};
use crate::store::directory::StateDir;

/// Keys of the configuration that set the listeners' addresses.
pub(crate) const SERVER: &str = "[server] listen";
pub(crate) const METRICS: &str = "[metrics] listen";
pub(crate) const CONSOLE: &str = "[console] listen";
/// Longest time between two sweeps for sessions that were idle for too long.
const SWEEP: Duration = Duration::from_secs(60);

/// Parses the certificates of a configuration that no gateway runs with yet.
///
/// # Errors
/// A certificate that cannot be used; a sentence for the operator.
pub(crate) fn check_certificates(config: &Config) -> Result<(), String> {
    tls::renew(&config.server.tls, &[]).map(drop)
}

impl RunningGateway {
    /// Opens the HTTP listeners of the configuration, as far as they are not among the `inherited`
    /// sockets, and spawns their tasks, and a task that ends idle sessions. No connection is
    /// accepted before `begun` fires.
    ///
    /// # Errors
    /// [`GatewayStartError`]. An address that cannot be bound fails before any listener is served.
    pub(crate) async fn listen(
        &self,
        inherited: &mut InheritedSockets,
        begun: &CancellationToken,
    ) -> Result<GatewayAddresses, GatewayStartError> {
        let config = Arc::clone(&self.service.snapshots.load().config);
        let mut addresses = GatewayAddresses::default();
        let mut listeners = Vec::new();
        for address in &config.server.listen {
            listeners.push(self.bind(SERVER, *address, true, inherited).await?);
        }
        let metrics = match config.metrics.listen {
            Some(address) => Some(self.bind(METRICS, address, true, inherited).await?),
            None => None,
        };
        let console = match config.console.listen {
            Some(address) => Some(self.bind(CONSOLE, address, config.console.chosen, inherited).await?),
            None => None,
        };
        let bound = listeners.iter().chain(&metrics).chain(&console).map(|(_, local)| local.port());
        self.service.ports.get_or_init(|| bound.collect());
        let doors = self.open_doors(&config)?;
        addresses.token_file = doors.own_token.get().and_then(|own| own.as_ref()).map(|(_, path)| path.clone());
        if let Some(live) = &self.client_tokens {
            if let Err(error) = live.refresh().await {
                tracing::error!(error = %error, "stored tokens are not accepted yet");
            }
            self.supervised.tasks.spawn("tokens", live.clone().follow(self.supervised.stop.clone()));
        }
        let limits = room(&config, listeners.len()).fit(&config.server.limits);
        let tls = |protocols: &[&[u8]]| {
            let certificates = doors.certificates.as_ref();
            let tls = certificates.map(|certificates| ServerTls::new(Arc::clone(certificates), protocols));
            tls.transpose().map_err(GatewayStartError::Config)
        };
        if let Some(settings) = &config.cluster {
            // Boxed: the start has many steps, and this one is rare.
            Box::pin(self.join_cluster(settings, doors, &limits)).await?;
        }
        let tls_of_endpoints = tls(&[H2, HTTP1])?;
        let scheme = if tls_of_endpoints.is_some() { "https" } else { "http" };
        for (listener, local) in listeners {
            let server = &config.server;
            let terms = ListenerSettings::new(local, server, limits.clone(), tls_of_endpoints.is_some());
            addresses.endpoints.push(format!("{scheme}://{local}{}", server.endpoint));
            let front = Arc::new(ListenerState {
                service: Arc::clone(&self.service),
                sessions: Arc::clone(&self.sessions),
                local,
                credentials: Arc::clone(&doors.credentials),
                endpoint: server.endpoint.clone(),
                legacy_sse: server.legacy_sse,
                lobby: Lobby::new("mcp", terms.lobby(), Some(self.service.metrics.clone())),
                places: FairSlots::new(limits.connections, 0),
                terms: ArcSwap::from_pointee(terms),
                full: LogTally::default(),
                failures: Arc::clone(&doors.failures),
                strangers: LogTally::default(),
                tls: tls_of_endpoints.clone(),
                tasks: self.service.tasks.clone(),
                is_for_peers: false,
                successor: Arc::clone(&self.handover.late),
            });
            doors.fronts.lock().push(Arc::clone(&front));
            let accepting = accept(front, listener, self.service.draining.clone());
            self.service.tasks.spawn("listener", serve_after(begun, &self.service.draining, accepting));
        }
        if let Some((listener, local)) = metrics {
            addresses.metrics = Some(local);
            let tls = if local.ip().is_loopback() { None } else { tls(&[HTTP1])? };
            addresses.are_metrics_secure = tls.is_some();
            self.serve_pages((listener, local), &config, tls, begun);
        }
        if let Some((listener, local)) = console {
            addresses.console = Some(self.serve_console((listener, local), &config.console.allowed_hosts, begun)?);
        }
        let (sessions, draining) = (Arc::clone(&self.sessions), self.service.draining.clone());
        let (approvals, snapshots) = (Arc::clone(&self.service.approvals), Arc::clone(&self.service.snapshots));
        self.service.tasks.spawn("sweep", async move {
            let mut begun = clock::now();
            let pause = || snapshots.load().config.server.limits.session_idle.min(SWEEP);
            while tokio::time::timeout(pause(), draining.cancelled()).await.is_err() {
                sessions.sweep();
                // Session grants of clients without a session last at most as long as a session
                // may.
                let life = snapshots.load().config.server.limits.session_max;
                if clock::now().duration_since(begun) >= life {
                    begun = clock::now();
                    approvals.session_ended(STATELESS);
                }
            }
        });
        Ok(self.addresses.get_or_init(|| addresses).clone())
    }

    /// Builds the console and spawns its listener. Returns the console's base URL.
    fn serve_console(
        &self,
        (listener, local): BoundListener,
        allowed_hosts: &[String],
        begun: &CancellationToken,
    ) -> Result<Arc<str>, GatewayStartError> {
        let token = match &self.store {
            Some(store) => {
                let failed = |source| GatewayStartError::Token { dir: store.dir().to_owned(), source };
                store.console_token().map_err(failed)?
            }
            // This token is never shown, so links are the only way to sign in.
            None => StateDir::fresh_token(),
        };
        let doors = ConsoleSessions::new(&token, self.sign_ins.clone(), clock::uptime());
        let (tasks, draining) = (self.service.tasks.clone(), self.service.draining.clone());
        let console = ConsoleSite::new(self.operator.clone(), doors, local, allowed_hosts, tasks, draining);
        let console = Arc::clone(self.console.get_or_init(|| Arc::new(console)));
        let base = Arc::clone(console.base());
        self.service.console.get_or_init(|| base.to_string());
        self.logins.open(&base);
        let lobby = Lobby::new("console", console::ANONYMOUS, Some(self.service.metrics.clone()));
        let serving = console::serve(console, listener, lobby);
        self.service.tasks.spawn("console", serve_after(begun, &self.service.draining, serving));
        Ok(base)
    }

    /// Spawns the listener for `/metrics`, `/healthz` and `/readyz`.
    fn serve_pages(
        &self,
        (listener, local): BoundListener,
        config: &Config,
        tls: Option<ServerTls>,
        begun: &CancellationToken,
    ) {
        let page = Arc::new(MetricsPage {
            service: Arc::clone(&self.service),
            sessions: Arc::clone(&self.sessions),
            store: self.store.clone(),
            reading: Arc::default(),
        });
        let pages = move |path: &str| -> pages::TextPage {
            let service = &page.service;
            let fixed = match path {
                "/metrics" => {
                    let page = Arc::clone(&page);
                    return Box::pin(async move { Some((http::StatusCode::OK, page.render().await)) });
                }
                "/healthz" => Some((http::StatusCode::OK, "ok\n".to_owned())),
                "/readyz" if service.draining.is_cancelled() => {
                    Some((http::StatusCode::SERVICE_UNAVAILABLE, "draining\n".to_owned()))
                }
                "/readyz" => Some(readiness(&conditions(service))),
                _ => None,
            };
            Box::pin(std::future::ready(fixed))
        };
        let guard = Arc::new(ArcSwap::from_pointee(pages_guard(local, &config.server, tls.is_some())));
        let credentials = ArcSwap::from_pointee(metrics_credentials(config, &self.service.giving_up));
        let served = Arc::new(PageServer { pages: Box::new(pages), guard, credentials, tls });
        if let Some(doors) = self.doors.get() {
            doors.pages.get_or_init(|| (local, Arc::clone(&served)));
        }
        // The pages are served until after the drain, so that a scraper sees the draining state,
        // unless another process serves them.
        let (stop, given) = (self.service.giving_up.clone(), self.handover.given.clone());
        let accepting = stop.child_token();
        let tasks = self.supervised.tasks.clone();
        let lobby = Lobby::for_operators("metrics", pages::CONNECTIONS, self.service.metrics.clone());
        let serving = pages::serve(listener, lobby, served, tasks.clone(), accepting.clone(), stop);
        tasks.spawn("pages", serve_after(begun, &self.service.draining, serving));
        tasks.spawn("pages given", async move {
            if accepting.run_until_cancelled(given.cancelled()).await.is_some() {
                accepting.cancel();
            }
        });
    }

    /// Takes the inherited listener for an address, or binds one; returns it with its actual
    /// address, which for the console's default may have another port. `key` names the setting in
    /// the error. Keeps a duplicate for a process that takes over.
    async fn bind(
        &self,
        key: &'static str,
        address: SocketAddr,
        is_chosen: bool,
        inherited: &mut InheritedSockets,
    ) -> Result<BoundListener, GatewayStartError> {
        let failed = |source| GatewayStartError::Listen { key, address, source };
        let listener = match inherited.take(key, address, is_chosen).map_err(failed)? {
            Some(listener) => listener,
            None => console::bind(address, is_chosen).await.map_err(failed)?.0,
        };
        let local = listener.local_addr().map_err(failed)?;
        let duplicate = InheritedListener::duplicate(key, address, &listener).map_err(failed)?;
        self.handover.sockets.lock().push(duplicate);
        Ok((listener, local))
    }
}

/// Returns the future that serves a listener once `begun` fires, unless `draining` does before.
fn serve_after<F: Future<Output = ()> + Send>(
    begun: &CancellationToken,
    draining: &CancellationToken,
    serving: F,
) -> impl Future<Output = ()> + Send + use<F> {
    let (begun, draining) = (begun.clone(), draining.clone());
    async move {
        if draining.run_until_cancelled(begun.cancelled()).await.is_some() {
            serving.await;
        }
    }
}

/// Returns the addresses of all HTTP listeners, each with the key of its setting.
pub(crate) fn addresses_of(config: &Config) -> Vec<(&'static str, SocketAddr)> {
    let server = config.server.listen.iter().map(|address| (SERVER, *address));
    let metrics = config.metrics.listen.map(|address| (METRICS, address));
    let console = config.console.listen.map(|address| (CONSOLE, address));
    server.chain(metrics).chain(console).collect()
}

/// A listening socket and its actual address.
type BoundListener = (TcpListener, SocketAddr);

/// Creates the rules for request heads of the listener for metrics and health.
pub(super) fn pages_guard(local: SocketAddr, server: &ServerSettings, is_tls: bool) -> HeadGuard {
    let guard = HeadGuard::new(local, &server.allowed_hosts, &server.allowed_origins, MAX_HEADER_FIELD);
    if is_tls { guard.over_tls() } else { guard }
}

/// Creates the credentials of the metrics: the token of `[metrics]`, or none.
pub(super) fn metrics_credentials(config: &Config, giving_up: &CancellationToken) -> Credentials {
    let token = config.metrics.token.as_ref().map(|token| [(token.expose().to_owned(), Caller::local().clone())]);
    Credentials::new(token.as_ref().map(<[_; 1]>::as_slice), giving_up)
}

/// Returns the status code and text of `/readyz`: whether calls can be made, and each fault.
fn readiness(conditions: &[GatewayFault]) -> (http::StatusCode, String) {
    let (status, word) = match conditions {
        [] => (http::StatusCode::OK, "ready"),
        _ if conditions.iter().any(|condition| condition.stops_calls) => {
            (http::StatusCode::SERVICE_UNAVAILABLE, "not ready")
        }
        _ => (http::StatusCode::OK, "degraded"),
    };
    let lines: String =
        conditions.iter().map(|GatewayFault { reason, text, .. }| format!("{reason}: {text}\n")).collect();
    (status, format!("{word}\n{lines}"))
}
