//! Applies the settings that a reload changes outside the snapshot: credentials, users, limits,
//! logs.

use std::path::PathBuf;
use std::sync::{Arc, OnceLock};

use arc_swap::ArcSwap;
use parking_lot::Mutex;

use crate::config::{ClientAuth, Config};
use crate::daemon::access::SocketUsers;
use crate::daemon::client_access::{end_access, session_limits};
use crate::daemon::doors::{GatewayListeners, room};
use crate::daemon::gateway::{GatewayStartError, RunningGateway};
use crate::daemon::listen::{metrics_credentials, pages_guard};
use crate::daemon::replica::settings_for_peers;
use crate::listener::address::CredentialFailures;
use crate::listener::callers::credentials::Credentials;
use crate::listener::tls::{self, ServedCertificate, ServedCertificates};
use crate::policy::Caller;
use crate::serve::front::ListenerSettings;
use crate::telemetry::logs;

/// Accepted tokens, each with its caller.
type TokenCallers = Vec<(String, Caller)>;

/// Values that a new configuration needs and that may be unavailable. They are fetched before the
/// reload changes anything.
pub(super) struct ReloadPreparation {
    access: SocketUsers,
    /// Accepted tokens; `None` if clients need no token.
    tokens: Option<TokenCallers>,
    /// Token of the console; `None` without a console or a store.
    console_token: Option<String>,
    /// Certificates of the listeners, and the reasons why some of them are those of before; `None`
    /// if the listeners keep all of theirs.
    certificates: Option<(Vec<ServedCertificate>, Vec<String>)>,
}

impl RunningGateway {
    /// Creates the shared state of the HTTP listeners, with the credentials of the configuration.
    ///
    /// # Errors
    /// The generated token cannot be read or created.
    pub(super) fn open_doors(&self, config: &Config) -> Result<&GatewayListeners, GatewayStartError> {
        let own_token = OnceLock::new();
        let tokens = self.tokens(config, &own_token)?;
        let stored = self.client_tokens.as_ref().map(|live| Arc::clone(live.table())).unwrap_or_default();
        let credentials = Credentials::new(tokens.as_deref(), &self.service.giving_up).with_stored(stored);
        let (tasks, giving_up) = (&self.service.tasks, &self.service.giving_up);
        let (credentials, _) = credentials.accept_jwts(None, config, tasks, giving_up);
        let failures = CredentialFailures::new(&config.server.limits, config.has_many_callers());
        let failures = Arc::new(ArcSwap::from_pointee(failures));
        if let Some(live) = &self.client_tokens {
            live.limit_failures(&failures);
        }
        let (served, _) = tls::renew(&config.server.tls, &[]).map_err(GatewayStartError::Config)?;
        self.show_certificates(&served);
        let certificates = (!served.is_empty()).then(|| ServedCertificates::new(served));
        Ok(self.doors.get_or_init(|| GatewayListeners {
            credentials: Arc::new(ArcSwap::from_pointee(credentials)),
            failures,
            fronts: Mutex::default(),
            peers: OnceLock::new(),
            certificates,
            pages: OnceLock::new(),
            own_token,
        }))
    }

    /// Returns the accepted tokens with their callers, including the generated token of our own
    /// user; `None` if clients need no token. Creates the generated token in the state directory on
    /// first use.
    fn tokens(
        &self,
        config: &Config,
        own: &OnceLock<Option<(String, PathBuf)>>,
    ) -> Result<Option<TokenCallers>, GatewayStartError> {
        let ClientAuth::Token { tokens } = &config.server.auth else { return Ok(None) };
        if config.server.jwt.as_ref().is_some_and(|jwt| !jwt.with_tokens) {
            return Ok(Some(Vec::new()));
        }
        if let (None, Some(store)) = (own.get(), &self.store) {
            let failed = |source| GatewayStartError::Token { dir: store.dir().to_owned(), source };
            let made = store.token().map_err(failed)?;
            own.get_or_init(|| Some(made));
        }
        let named = tokens.iter().filter_map(|(name, token)| Some((token.expose().to_owned(), Caller::token(name)?)));
        let own = own.get().and_then(Option::as_ref).map(|(token, _)| (token.clone(), Caller::local().clone()));
        Ok(Some(named.chain(own).collect()))
    }

    /// Fetches all values that the configuration needs, and applies nothing.
    ///
    /// # Errors
    /// The reason why the configuration cannot be applied.
    pub(super) fn make_ready(&self, config: &Config) -> Result<ReloadPreparation, String> {
        let tokens = match self.doors.get() {
            Some(doors) => self.tokens(config, &doors.own_token).map_err(|error| error.to_string())?,
            None => None,
        };
        let console_token = match (self.console.get(), &self.store) {
            (Some(_), Some(store)) => Some(store.console_token().map_err(|error| error.to_string())?),
            _ => None,
        };
        let served = self.doors.get().and_then(|doors| doors.certificates.as_ref());
        let certificates = served.filter(|_| !config.server.tls.is_empty());
        let certificates = certificates.map(|served| tls::renew(&config.server.tls, &served.current())).transpose()?;
        Ok(ReloadPreparation { access: SocketUsers::of(&config.admin)?, tokens, console_token, certificates })
    }

    /// Puts certificates in force for new connections. Logs and counts those that stay because
    /// their successor cannot be used.
    fn replace_certificates(&self, doors: &GatewayListeners, renewed: Vec<ServedCertificate>, faults: &[String]) {
        let Some(served) = &doors.certificates else { return };
        for fault in faults {
            tracing::warn!(fault = %fault, "a changed certificate cannot be used, the one before stays in force");
        }
        self.service.metrics.certificates_refused(faults.len());
        self.show_certificates(&renewed);
        served.replace(renewed);
    }

    /// Shows when certificates expire on the metrics page.
    fn show_certificates(&self, served: &[ServedCertificate]) {
        let files: Vec<_> = served.iter().map(|one| (one.path.display().to_string(), one.expiry)).collect();
        self.service.metrics.certificates(files.iter().map(|(file, expiry)| (file.as_str(), *expiry)));
    }

    /// Applies the settings of the snapshot's configuration that live outside the snapshot. Ends
    /// the sessions, streams and calls of callers whose credential is no longer valid.
    pub(super) async fn put_in_force(&self, before: &Config, ready: ReloadPreparation) {
        let config = Arc::clone(&self.service.snapshots.load().config);
        self.sessions.set_limits(session_limits(&config));
        self.service.set_limits(&before.server.limits, &config.server.limits, config.has_many_callers());
        if before.consent != config.consent {
            self.service.approvals.set_limits(&config.consent);
        }
        if before.log.filter != config.log.filter {
            logs::set_filter(&config.log.filter);
        }
        if let (Some(console), Some(token)) = (self.console.get(), &ready.console_token) {
            console.renew(token);
        }
        let mut gone = Vec::new();
        if let Some(doors) = self.doors.get() {
            let old = doors.credentials.load_full();
            let (tasks, giving_up) = (&self.service.tasks, &self.service.giving_up);
            let (next, withdrawn) = old.next(ready.tokens.as_deref(), giving_up);
            let (next, of_issuers) = next.accept_jwts(Some(&old), &config, tasks, giving_up);
            doors.credentials.store(Arc::new(next));
            gone.extend(withdrawn.into_iter().chain(of_issuers));
            if before.server.jwt != config.server.jwt {
                // Callers of a removed issuer may have sessions without a token in the table.
                self.sessions.end_withdrawn();
            }
            self.set_terms(doors, before, &config);
            if let Some((renewed, faults)) = ready.certificates {
                self.replace_certificates(doors, renewed, &faults);
            }
        }
        if let Some(live) = &self.client_tokens
            && let Err(error) = live.refresh().await
        {
            tracing::warn!(error = %error, "stored tokens are accepted as before");
        }
        if let Some(users) = self.users.get() {
            gone.extend(users.change(ready.access));
        }
        end_access(&self.service, &self.sessions, &gone);
        if before.audit != config.audit {
            // Last: a slow disk must not keep a withdrawn token valid.
            self.service.audit.change(&config.audit).await;
        }
        if !gone.is_empty() {
            // Waits for the ends of sessions to be stored: a token that is accepted again later
            // must not revive them.
            self.sessions.settled().await;
        }
    }

    /// Applies limits, allowed hosts and origins to the listeners, and replaces the table of failed
    /// attempts if its limits change.
    fn set_terms(&self, doors: &GatewayListeners, before: &Config, config: &Config) {
        let (old, new) = (&before.server, &config.server);
        let many = (before.has_many_callers(), config.has_many_callers());
        if old.limits.auth_failures != new.limits.auth_failures || many.0 != many.1 {
            doors.failures.store(Arc::new(CredentialFailures::new(&new.limits, many.1)));
        }
        if let Some((_, served)) = doors.pages.get() {
            served.credentials.store(Arc::new(metrics_credentials(config, &self.service.giving_up)));
        }
        let same = (&old.limits, &old.allowed_hosts, &old.allowed_origins, &old.trusted_proxies)
            == (&new.limits, &new.allowed_hosts, &new.allowed_origins, &new.trusted_proxies);
        let fronts = doors.fronts.lock();
        if same && before.upstreams.len() == config.upstreams.len() {
            return;
        }
        if let Some((local, served)) = doors.pages.get() {
            served.guard.store(Arc::new(pages_guard(*local, new, served.tls.is_some())));
        }
        let limits = room(config, fronts.len()).fit(&new.limits);
        for front in fronts.iter() {
            front.set_terms(ListenerSettings::new(front.local, new, limits.clone(), front.tls.is_some()));
        }
        if let (Some(peers), Some(cluster)) = (doors.peers.get(), &self.service.cluster) {
            peers.set_terms(settings_for_peers(new, peers.local, cluster.bound_to(peers.local.port()), &limits));
        }
    }
}
