//! The tokens of one upstream: added to its requests, and renewed before they expire or when the
//! server refuses them.
//!
//! While a token is valid, calls use it without a lock and without waiting. Otherwise one task at a
//! time gets another token for all calls: it reads the login in the store, takes over a token that
//! another process has renewed, or claims the row and renews the token ([`crate::store::logins`]).
//! If the server cannot be asked, nothing changes; only a refusal of the grant ends a login, and
//! only if the row is still the one that was tried.
//!
//! `type = "client-credentials"` and `"workload"` need no person and no store: the gateway requests
//! a token when the server wants one.

use std::fmt;
use std::sync::Arc;
use std::time::{Duration, Instant};

use arc_swap::ArcSwap;
use http::header::{AUTHORIZATION, HeaderMap, HeaderValue, WWW_AUTHENTICATE};
use http::{Response, StatusCode};
use parking_lot::Mutex;
use tokio_util::sync::CancellationToken;

use crate::base::clock;
use crate::base::task_group::TaskGroup;
use crate::catalog::name::UpstreamName;
use crate::config::source::secret::Secret;
use crate::config::{AuthKind, UpstreamSettings};
use crate::login::challenge::{BearerChallenge, TokenComplaint};
use crate::login::flow;
use crate::login::scope::{self, StepUps};
use crate::login::terms::LoginTerms;
use crate::login::token::UpstreamLogin;
use crate::store::logins::LoginKey;
use crate::telemetry::metrics::RenewalLabel;
use crate::upstream::login::fetcher::Fetcher;
use crate::upstream::login::parts::{LoginServices, LoginSettings};
use crate::upstream::net::client::HttpClient;
use crate::upstream::shared::{SharedWork, SharedWorkSlot};
use crate::upstream::state::health::UpstreamHealth;
use crate::upstream::state::http_error::HttpError;
use crate::upstream::state::standing::CredentialStanding;
use crate::wire::foreign;

mod person;
mod renew;

/// How long a new token that the server refused is not used again.
const REJECTED: Duration = Duration::from_secs(60);
/// Waits after renewals that found no server: the first wait, doubled up to the last.
const SHORTEST: Duration = Duration::from_secs(1);
const LONGEST: Duration = Duration::from_secs(60);
/// Most renewals for one request: a token may expire on its way, or be replaced meanwhile.
const RENEWALS: u8 = 3;
/// A token is renewed this many seconds before it expires, or after three quarters of its life if
/// that is later.
const EARLY: u64 = 60;
/// Most characters of scopes in an error.
const SHOWN_SCOPES: usize = 300;

/// The tokens of one upstream.
#[derive(Debug)]
pub struct TokenKeeper {
    upstream: UpstreamName,
    /// The key of the login in the store.
    key: LoginKey,
    terms: LoginSettings,
    parts: LoginServices,
    fetcher: Fetcher,
    /// The client for requests to the upstream itself, if it needs its own certificates; or the
    /// reason why it cannot be built.
    client: Result<Option<HttpClient>, String>,
    health: Arc<UpstreamHealth>,
    tasks: TaskGroup,
    stop: CancellationToken,
    state: ArcSwap<TokenState>,
    flight: SharedWorkSlot,
    inner: Mutex<TokenKeeperState>,
}

/// The state that renewals change.
#[derive(Debug, Default)]
struct TokenKeeperState {
    /// The server's last challenge, which the next login answers.
    challenge: Option<BearerChallenge>,
    /// A token that was refused although it was new, and the end of the time in which it is not
    /// used.
    rejected: Option<(u64, Instant)>,
    /// Scopes of the first token that headend got without a person.
    first_scopes: Option<Vec<String>>,
    /// Renewals in a row that found no server; the time until which none is tried, and the reason.
    failures: u32,
    rest: Option<(Instant, String)>,
}

/// The state of the tokens.
#[derive(Debug)]
enum TokenState {
    /// The store has not been read yet.
    Unread,
    /// There is no login.
    None,
    Token(AccessToken),
    /// The previous login has ended.
    Expired,
}

/// An access token, with the login that it belongs to.
#[derive(Clone, Debug)]
struct AccessToken {
    value: HeaderValue,
    version: u64,
    /// When to renew the token, and when it expires, both since 1970.
    due: Option<Duration>,
    end: Option<Duration>,
    login: Arc<UpstreamLogin>,
}

/// Information about a login for an operator.
#[derive(Clone, Debug)]
pub struct UpstreamLoginView {
    pub issuer: String,
    pub account: Option<String>,
    /// Time until the token in use expires.
    pub left: Option<Duration>,
    pub is_refreshing: bool,
}

/// The attempts of one request to get another token.
#[derive(Debug, Default)]
pub struct TokenAttempts {
    renewals: u8,
    step_ups: StepUps,
}

impl AccessToken {
    /// Creates the token of a login, and computes when to renew it. `None` if it cannot be sent in
    /// a header.
    fn of(version: u64, login: UpstreamLogin, now: Duration) -> Option<Self> {
        let mut value = HeaderValue::from_str(&format!("Bearer {}", login.tokens.access.expose())).ok()?;
        value.set_sensitive(true);
        let end = login.tokens.expires.map(Duration::from_secs);
        let due = end.map(|end| {
            let life = end.saturating_sub(now);
            end.saturating_sub((life / 4).clamp(Duration::from_secs(1), Duration::from_secs(EARLY)))
        });
        Some(Self { value, version, due, end, login: Arc::new(login) })
    }

    fn is_good(&self, now: Duration) -> bool {
        self.end.is_none_or(|end| now < end)
    }

    fn is_due(&self, now: Duration) -> bool {
        self.due.is_some_and(|due| now >= due) && self.login.tokens.refresh.is_some()
    }
}

impl TokenKeeper {
    /// Creates the token keeper of an upstream; `None` if the upstream is not behind a URL, or if
    /// the configuration has a credential for it.
    pub fn of(
        spec: &UpstreamSettings,
        parts: &LoginServices,
        health: &Arc<UpstreamHealth>,
        (tasks, stop): (&TaskGroup, &CancellationToken),
    ) -> Option<Arc<Self>> {
        let terms = LoginSettings::of(spec)?;
        let keeper = Self {
            upstream: spec.name.clone(),
            key: LoginKey::of(spec),
            fetcher: terms.fetcher(),
            client: terms.client(),
            terms,
            parts: parts.clone(),
            health: Arc::clone(health),
            tasks: tasks.clone(),
            stop: stop.clone(),
            state: ArcSwap::from_pointee(TokenState::Unread),
            flight: SharedWorkSlot::default(),
            inner: Mutex::default(),
        };
        Some(Arc::new(keeper))
    }

    /// Returns the HTTP client for requests to the upstream itself, built with the keeper, if these
    /// need certificates of their own; `None` if the shared client does.
    ///
    /// # Errors
    /// A sentence for the operator.
    pub fn client(&self) -> Result<Option<HttpClient>, String> {
        self.client.clone()
    }

    /// Adds the token to a request's headers, and returns its version; `None` if there is no login.
    /// Starts a renewal in the background if the token expires soon, and waits for one only if
    /// there is no valid token. Cancel-safe.
    ///
    /// # Errors
    /// [`HttpError::Unadmitted`] if the login has ended, [`HttpError::NoToken`] if it cannot be
    /// renewed at the moment.
    pub async fn attach(self: &Arc<Self>, headers: &mut HeaderMap) -> Result<Option<u64>, HttpError> {
        for _ in 0..3 {
            let state = self.state.load_full();
            let worn = match &*state {
                TokenState::None => return Ok(None),
                TokenState::Token(token) => {
                    let now = clock::since_1970();
                    if token.is_good(now) {
                        if token.is_due(now) && self.rest().is_none() {
                            // In the background; a failure shows only when the token has expired.
                            drop(self.renew(Some(token.version)));
                        }
                        headers.insert(AUTHORIZATION, token.value.clone());
                        return Ok(Some(token.version));
                    }
                    Some(token.version)
                }
                TokenState::Unread | TokenState::Expired => None,
            };
            self.renew(worn).await?;
        }
        Err(HttpError::NoToken("the token expires before it can be used".to_owned()))
    }

    /// Handles a refusal (status and challenge) of a request that had the token `had`: stores the
    /// challenge for the next login, and gets another token if that can help. Returns whether the
    /// request is worth another attempt, which is counted in `attempts`. Cancel-safe.
    pub async fn again(
        self: &Arc<Self>,
        refusal: (StatusCode, Option<BearerChallenge>),
        had: Option<u64>,
        attempts: &mut TokenAttempts,
    ) -> bool {
        let (status, Some(challenge)) = refusal else { return false };
        let wants_more = challenge.error == Some(TokenComplaint::InsufficientScope);
        if status != StatusCode::UNAUTHORIZED && !wants_more {
            return false;
        }
        if let Some(why) = self.refuses_scopes(&challenge) {
            self.parts.record("login-not-renewed", &self.upstream, &why);
            return false;
        }
        self.inner.lock().challenge = Some(challenge.clone());
        let is_own = self.terms.kind() != AuthKind::OAuth;
        let worn = match had {
            Some(version) if wants_more => {
                let lacks = self.login().is_some_and(|login| flow::login_to_extend(&login, &challenge).is_some());
                if !is_own || !lacks || !attempts.step_ups.another() {
                    return false;
                }
                Some(version)
            }
            Some(version) if attempts.renewals > 0 && self.is_fresh(version) => {
                self.reject(version);
                return false;
            }
            _ if attempts.renewals == RENEWALS => return false,
            Some(version) => Some(version),
            // A login may have been added meanwhile, but without a token of headend's own there is
            // none.
            None if is_own => None,
            None => return false,
        };
        attempts.renewals += u8::from(!wants_more);
        // Work that was under way already may be about an older token.
        for _ in 0..2 {
            if self.renew(worn).await.is_err() {
                return false;
            }
            match &**self.state.load() {
                TokenState::Token(token) if Some(token.version) != worn => return true,
                TokenState::Token(_) => {}
                TokenState::None | TokenState::Unread | TokenState::Expired => return false,
            }
        }
        false
    }

    /// Returns whether this token is in use and has not expired: then its refusal is the server's
    /// verdict about it.
    fn is_fresh(&self, version: u64) -> bool {
        matches!(&**self.state.load(), TokenState::Token(token) if token.version == version && token.is_good(clock::since_1970()))
    }

    /// Returns the terms of a login that starts or is renewed now, with the issuer of the last
    /// login.
    ///
    /// # Errors
    /// A sentence for the operator.
    async fn current_terms(&self) -> Result<LoginTerms, String> {
        let mut terms = self.terms.terms(&self.parts)?;
        if let Some(logins) = &self.parts.logins {
            terms.first_issuer = logins.issuer(&self.key).await.map_err(|error| error.to_string())?;
        }
        Ok(terms)
    }

    /// Returns the most scopes that headend requests without a person: those of the configuration,
    /// else those of its first token.
    fn most_scopes(&self) -> Option<Vec<String>> {
        let configured = self.terms.scopes();
        if configured.is_empty() { self.inner.lock().first_scopes.clone() } else { Some(configured.to_vec()) }
    }

    /// Returns the reason why headend does not request the scopes of this challenge; `None` if a
    /// person decides about them, or if they are within the allowed scopes.
    pub fn refuses_scopes(&self, challenge: &BearerChallenge) -> Option<String> {
        if self.terms.kind() == AuthKind::OAuth || challenge.error != Some(TokenComplaint::InsufficientScope) {
            return None;
        }
        let most = self.most_scopes()?;
        let beyond = scope::missing_scopes(challenge, &most).join(" ");
        let beyond = foreign::short(&beyond, SHOWN_SCOPES);
        (!beyond.is_empty()).then(|| {
            format!("the server wants more rights than headend may ask for by itself: {beyond}. To give them, add them to `scopes`")
        })
    }

    /// Returns the login of the token in use; `None` without a token.
    fn login(&self) -> Option<Arc<UpstreamLogin>> {
        match &**self.state.load() {
            TokenState::Token(token) => Some(Arc::clone(&token.login)),
            TokenState::None | TokenState::Unread | TokenState::Expired => None,
        }
    }

    /// Returns information for operators about the login of the token in use; `None` without a
    /// token.
    pub fn view(&self) -> Option<UpstreamLoginView> {
        let state = self.state.load();
        let TokenState::Token(token) = &**state else { return None };
        let now = clock::since_1970();
        Some(UpstreamLoginView {
            issuer: token.login.server.issuer.clone(),
            account: token.login.account.as_ref().map(|account| account.shown.clone()),
            left: token.end.map(|end| end.saturating_sub(now)),
            is_refreshing: self.flight.is_under_way(),
        })
    }

    /// Stops using this token, and refuses to take it up again for [`REJECTED`], because the server
    /// refused it although it was new.
    fn reject(&self, version: u64) {
        self.inner.lock().rejected = Some((version, clock::now() + REJECTED));
        self.enter(TokenState::Expired);
    }

    fn is_rejected(&self, version: u64) -> bool {
        let rejected = self.inner.lock().rejected;
        rejected.is_some_and(|(which, until)| which == version && clock::now() < until)
    }

    /// Starts to get a token other than `worn`, or joins the work that is under way: one renewal
    /// serves all requests that wait.
    fn renew(self: &Arc<Self>, worn: Option<u64>) -> SharedWork {
        self.flight.join((&self.tasks, &self.stop), || {
            let keeper = Arc::clone(self);
            Box::pin(async move {
                match keeper.terms.kind() {
                    AuthKind::ClientCredentials | AuthKind::Workload => keeper.obtain(worn).await,
                    AuthKind::OAuth => keeper.settle(worn).await,
                }
            })
        })
    }

    /// Returns the reason why no authorization server is asked for a token now: the last attempt
    /// failed a short time ago. `None` if a server may be asked.
    fn rest(&self) -> Option<String> {
        let inner = self.inner.lock();
        inner.rest.as_ref().filter(|(until, _)| clock::now() < *until).map(|(_, why)| why.clone())
    }

    /// Returns the reason why headend currently has no token that it gets without a person; `None`
    /// if it has one, or if a person logs in.
    pub fn unattended_failure(&self) -> Option<String> {
        if self.terms.kind() == AuthKind::OAuth { None } else { self.rest() }
    }

    /// Records that a token could not be got: sets the wait before the next attempt, logs, writes
    /// the audit record and the upstream's health, and returns the error for the request.
    fn failed(&self, error: &dyn fmt::Display) -> HttpError {
        let why = format!("the login cannot be renewed: {error}");
        let mut inner = self.inner.lock();
        let wait = SHORTEST.saturating_mul(1 << inner.failures.min(8)).min(LONGEST);
        inner.failures = inner.failures.saturating_add(1);
        inner.rest = Some((clock::now() + wait, why.clone()));
        drop(inner);
        if let Some(count) = self.health.lines.states.count(clock::uptime()) {
            tracing::warn!(upstream.name = %self.upstream, error = %error, retry_s = wait.as_secs(), count, "the login cannot be renewed");
        }
        self.parts.record("login-not-renewed", &self.upstream, &error.to_string());
        self.health.metrics().renewal(RenewalLabel::Failed);
        self.health.failed(why.clone());
        HttpError::NoToken(why)
    }

    /// Sets the state of the tokens, updates the metric of the token's expiry, and has the token
    /// hidden in texts about the upstream's messages.
    fn enter(&self, state: TokenState) {
        let end = if let TokenState::Token(token) = &state { token.end } else { None };
        if let TokenState::Token(token) = &state {
            self.health.flaws.hide_token(Secret::new(token.login.tokens.access.expose().to_owned()));
        }
        self.health.metrics().token_expires(end);
        self.state.store(Arc::new(state));
    }

    /// Puts the token of a login in use, and ends the wait after failed renewals. Fails if the
    /// token cannot be sent in a header.
    fn adopt(&self, version: u64, login: UpstreamLogin) -> Result<(), HttpError> {
        let token = AccessToken::of(version, login, clock::since_1970());
        let token = token.ok_or_else(|| HttpError::NoToken("the token is no HTTP header".to_owned()))?;
        let mut inner = self.inner.lock();
        (inner.failures, inner.rest) = (0, None);
        drop(inner);
        self.enter(TokenState::Token(token));
        Ok(())
    }

    /// Marks the login as expired, here and in the upstream's health, and returns the error for the
    /// request.
    fn expired(&self, why: &str) -> HttpError {
        self.enter(TokenState::Expired);
        self.health.stands(CredentialStanding::LoginExpired, || why.to_owned());
        HttpError::Unadmitted(CredentialStanding::LoginExpired, StatusCode::UNAUTHORIZED)
    }

    /// Returns whether the store has a usable login, for example by another process. If so, the
    /// token in use is dropped, and the next request reads the stored login.
    pub async fn has_login(&self) -> bool {
        let Some(logins) = &self.parts.logins else { return false };
        let held = logins.get(&self.key).await.ok().flatten();
        let is_there = held.is_some_and(|held| !held.is_expired && !self.is_rejected(held.version));
        if is_there {
            self.enter(TokenState::Unread);
        }
        is_there
    }
}

/// Returns the bearer challenge in the `WWW-Authenticate` headers of an answer; `None` if it has
/// none.
pub fn challenge_of<B>(response: &Response<B>) -> Option<BearerChallenge> {
    BearerChallenge::bearer(response.headers().get_all(WWW_AUTHENTICATE).iter().map(HeaderValue::as_bytes))
}
