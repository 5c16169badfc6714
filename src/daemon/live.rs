//! What a reload changes besides upstreams and the snapshot: who may come in, and for how long.

use std::path::PathBuf;
use std::sync::{Arc, OnceLock};

use arc_swap::ArcSwap;
use parking_lot::Mutex;

use crate::config::{Auth, Config, MAX_HEADER_FIELD};
use crate::daemon::access::Access;
use crate::daemon::doors::{Doors, room};
use crate::daemon::gateway::{Gateway, StartError, session_limits};
use crate::listener::address::Failures;
use crate::listener::credentials::{CallerAccess, Credentials};
use crate::listener::guard::Guard;
use crate::policy::Caller;
use crate::serve::front::Terms;
use crate::telemetry::logs;

/// Each accepted token and its caller.
type Tokens = Vec<(String, Caller)>;

/// What a configuration needs and may not get. It is asked for before anything changes.
pub(super) struct Ready {
    access: Access,
    /// `None` where none is required.
    tokens: Option<Tokens>,
    /// The operator's, where there is a console.
    console_token: Option<String>,
}

impl Gateway {
    /// Lets in the callers of the configuration.
    ///
    /// # Errors
    /// The generated token cannot be read or made.
    pub(super) fn open_doors(&self, config: &Config) -> Result<&Doors, StartError> {
        let own_token = OnceLock::new();
        let tokens = self.tokens(&config.server.auth, &own_token)?;
        let credentials = Credentials::new(tokens.as_deref(), &self.service.giving_up);
        let failures = Failures::new(&config.server.limits, config.has_many_callers());
        Ok(self.doors.get_or_init(|| Doors {
            credentials: Arc::new(ArcSwap::from_pointee(credentials)),
            failures: Arc::new(ArcSwap::from_pointee(failures)),
            fronts: Mutex::default(),
            pages: OnceLock::new(),
            own_token,
        }))
    }

    /// The accepted tokens with their callers, the generated one of our own user among them.
    fn tokens(&self, auth: &Auth, own: &OnceLock<Option<(String, PathBuf)>>) -> Result<Option<Tokens>, StartError> {
        let Auth::Token { tokens } = auth else { return Ok(None) };
        if let (None, Some(store)) = (own.get(), &self.store) {
            let failed = |source| StartError::Token { dir: store.dir().to_owned(), source };
            let made = store.token().map_err(failed)?;
            own.get_or_init(|| Some(made));
        }
        let named = tokens.iter().filter_map(|(name, token)| Some((token.expose().to_owned(), Caller::token(name)?)));
        let own = own.get().and_then(Option::as_ref).map(|(token, _)| (token.clone(), Caller::local().clone()));
        Ok(Some(named.chain(own).collect()))
    }

    /// Asks for all that the configuration needs, and changes nothing.
    ///
    /// # Errors
    /// Why it cannot be put in force.
    pub(super) fn make_ready(&self, config: &Config) -> Result<Ready, String> {
        let tokens = match self.doors.get() {
            Some(doors) => self.tokens(&config.server.auth, &doors.own_token).map_err(|error| error.to_string())?,
            None => None,
        };
        let console_token = match (self.console.get(), &self.store) {
            (Some(_), Some(store)) => Some(store.console_token().map_err(|error| error.to_string())?),
            _ => None,
        };
        Ok(Ready { access: Access::of(&config.admin)?, tokens, console_token })
    }

    /// Puts the settings of the snapshot's configuration in force that are in no snapshot.
    pub(super) async fn put_in_force(&self, before: &Config, ready: Ready) {
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
            let (next, withdrawn) = doors.credentials.load().next(ready.tokens.as_deref(), &self.service.giving_up);
            doors.credentials.store(Arc::new(next));
            gone.extend(withdrawn);
            self.set_terms(doors, before, &config);
        }
        if let Some(users) = self.users.get() {
            gone.extend(users.change(ready.access));
        }
        self.end_all_of(&gone);
        if before.audit != config.audit {
            // Last: a disk that hangs must not keep a withdrawn token valid.
            self.service.audit.change(&config.audit).await;
        }
        if !gone.is_empty() {
            // A token that comes back later finds none of the sessions that have ended now.
            self.sessions.settled().await;
        }
    }

    /// Gives each listener its part of the limits, and the hosts and origins that it serves.
    fn set_terms(&self, doors: &Doors, before: &Config, config: &Config) {
        let (old, new) = (&before.server, &config.server);
        let many = (before.has_many_callers(), config.has_many_callers());
        if old.limits.auth_failures != new.limits.auth_failures || many.0 != many.1 {
            doors.failures.store(Arc::new(Failures::new(&new.limits, many.1)));
        }
        let same = (&old.limits, &old.allowed_hosts, &old.allowed_origins)
            == (&new.limits, &new.allowed_hosts, &new.allowed_origins);
        let fronts = doors.fronts.lock();
        if same && before.upstreams.len() == config.upstreams.len() {
            return;
        }
        if let Some((local, served)) = doors.pages.get() {
            served.guard.store(Arc::new(Guard::new(
                *local,
                &new.allowed_hosts,
                &new.allowed_origins,
                MAX_HEADER_FIELD,
            )));
        }
        let limits = room(config, fronts.len()).fit(&new.limits);
        fronts.iter().for_each(|front| front.set_terms(Terms::new(front.local, new, limits.clone())));
    }

    /// Ends what callers have open whose access is over: calls and streams by their access, sessions by the table, and what
    /// they asked a person. What was granted for a session ends too.
    fn end_all_of(&self, gone: &[CallerAccess]) {
        if gone.is_empty() {
            return;
        }
        gone.iter().for_each(|caller| caller.access.withdraw());
        self.sessions.end_withdrawn();
        for CallerAccess { caller, .. } in gone {
            tracing::info!(%caller, "the caller's credential is not valid any more; its sessions, streams and calls end");
            self.service.approvals.caller_left(caller);
        }
    }
}
