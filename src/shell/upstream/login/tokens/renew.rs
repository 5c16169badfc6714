//! Gets another token, from the store or from the authorization server.

use std::time::Duration;

use super::{TokenKeeper, TokenState};
use crate::base::clock;
use crate::login::client::AssertionMoment;
use crate::login::error::{AnswerFailure, OAuthError};
use crate::login::flow::{self, LoginAction, LoginFlow, LoginHistory};
use crate::login::terms::LoginTerms;
use crate::store::db::DbError;
use crate::store::logins::{ClaimAttempt, Logins, StoredLogin};
use crate::telemetry::metrics::RenewalLabel;
use crate::upstream::login::parts::chance;
use crate::upstream::state::http_error::HttpError;

/// How long other processes may take to renew a login before this one gives up.
const PATIENCE: Duration = Duration::from_secs(45);
/// Interval at which the row is read meanwhile.
const LOOK: Duration = Duration::from_millis(50);
/// How often the store is asked to write new tokens, and the wait between attempts.
const WRITES: u32 = 5;
const PAUSE: Duration = Duration::from_secs(1);

impl TokenKeeper {
    /// Takes the login from the store, and renews it if needed.
    pub(super) async fn settle(&self, worn: Option<u64>) -> Result<(), HttpError> {
        let Some(logins) = &self.parts.logins else {
            self.enter(TokenState::None);
            return Ok(());
        };
        let until = clock::now() + PATIENCE;
        loop {
            let Some(held) = logins.get(&self.key).await.map_err(|error| unread(&error))? else {
                self.enter(TokenState::None);
                return Ok(());
            };
            let terms = self.current_terms().await.map_err(HttpError::NoToken)?;
            if !held.login.fits(&terms) {
                // The login belongs to an issuer or client that the configuration no longer names.
                self.enter(TokenState::None);
                return Ok(());
            }
            if held.is_expired || self.is_rejected(held.version) {
                return Err(self.expired("the login has expired or was revoked"));
            }
            let now = clock::since_1970();
            let ends = held.login.tokens.expires.map(Duration::from_secs);
            if worn != Some(held.version) && ends.is_none_or(|end| now < end) {
                return self.adopt(held.version, held.login);
            }
            if let Some(why) = self.rest() {
                return Err(HttpError::NoToken(why));
            }
            if self.renew_row(logins, &held, &terms).await? {
                return Ok(());
            }
            if clock::now() > until {
                return Err(HttpError::NoToken(
                    "another process of this store renews the login and does not end".to_owned(),
                ));
            }
        }
    }

    /// Makes one attempt to renew a row. Returns `false` if the row has to be read again.
    async fn renew_row(&self, logins: &Logins, held: &StoredLogin, terms: &LoginTerms) -> Result<bool, HttpError> {
        let moment = AssertionMoment { now: clock::since_1970().as_secs(), once: clock::random() };
        let request = match held.login.refresh(terms, moment) {
            Ok(Some(request)) => request,
            Ok(None) => {
                let why = "the token has expired, and the server gave no refresh token with it";
                return self.end(logins, held.version, why).await;
            }
            Err(error) => return Err(self.failed(&error)),
        };
        let claimed = match logins.claim(&self.key, held.version).await.map_err(|error| unread(&error))? {
            ClaimAttempt::Moved => return Ok(false),
            ClaimAttempt::Busy => {
                tokio::time::sleep(LOOK).await;
                return Ok(false);
            }
            ClaimAttempt::Mine(claimed) => claimed,
        };
        let answered = self.fetcher.send(&request).await.map_err(OAuthError::NoAnswer);
        let now = clock::since_1970().as_secs();
        match answered.and_then(|answer| held.login.refreshed(&answer, now)) {
            Ok(login) => {
                for attempt in 1.. {
                    match claimed.renewed(&login).await {
                        Ok(Some(version)) => {
                            self.health.metrics().renewal(RenewalLabel::Renewed);
                            self.parts.record("login-renewed", &self.upstream, &login.server.issuer);
                            self.adopt(version, login)?;
                            return Ok(true);
                        }
                        Ok(None) => return Ok(false),
                        // The server has exchanged the refresh token: this is the only copy.
                        Err(_) if attempt < WRITES => tokio::time::sleep(PAUSE).await,
                        Err(error) => return Err(unread(&error)),
                    }
                }
                Ok(false)
            }
            Err(error) if error.ends_grant() => {
                let why = if claimed.was_tried {
                    "an earlier renewal got no answer, and the server had exchanged the refresh token by then"
                } else {
                    "the authorization server has ended the login"
                };
                self.end(logins, held.version, why).await
            }
            Err(error) => {
                claimed.release(may_have_arrived(&error)).await;
                Err(self.failed(&error))
            }
        }
    }

    /// Ends the login of this version, if it is still stored.
    async fn end(&self, logins: &Logins, version: u64, why: &str) -> Result<bool, HttpError> {
        if !logins.expire(&self.key, version).await.map_err(|error| unread(&error))? {
            return Ok(false);
        }
        tracing::warn!(upstream.name = %self.upstream, why, "login expired: `headend login {}`", self.upstream);
        self.health.metrics().renewal(RenewalLabel::Expired);
        self.parts.record("login-expired", &self.upstream, why);
        Err(self.expired(why))
    }

    /// Gets a token for the gateway itself, without a person.
    pub(super) async fn obtain(&self, worn: Option<u64>) -> Result<(), HttpError> {
        if let TokenState::Token(token) = &**self.state.load()
            && Some(token.version) != worn
            && token.is_good(clock::since_1970())
        {
            return Ok(());
        }
        if let Some(why) = self.rest() {
            return Err(HttpError::NoToken(why));
        }
        let challenge = self.inner.lock().challenge.clone();
        // Before the first challenge nothing is known about the server; it may want no token at
        // all.
        if challenge.is_none() {
            self.enter(TokenState::None);
            return Ok(());
        }
        let granted = challenge
            .as_ref()
            .zip(self.login())
            .and_then(|(challenge, login)| flow::login_to_extend(&login, challenge));
        let terms = self.current_terms().await.map_err(HttpError::NoToken)?;
        let known = LoginHistory { registrations: Vec::new(), granted, most: self.most_scopes() };
        let now = clock::since_1970().as_secs();
        let kind = self.terms.own_kind().await.map_err(|why| self.failed(&why))?;
        let mut flow = LoginFlow::new(terms, kind, challenge, known, chance(), now);
        match self.drive(&mut flow).await {
            Ok(LoginAction::Done(login)) => {
                let recorded = self.parts.record_login(&self.upstream, &login.server.issuer).await;
                recorded.map_err(HttpError::NoToken)?;
                self.inner.lock().first_scopes.get_or_insert_with(|| login.tokens.scopes.clone());
                self.adopt(u64::from_be_bytes(clock::random()), *login)
            }
            Ok(_) => Err(self.failed(&OAuthError::OutOfTurn)),
            Err(error) => Err(self.failed(&error)),
        }
    }
}

fn unread(error: &DbError) -> HttpError {
    HttpError::NoToken(format!("the login in the store cannot be used: {error}"))
}

/// Returns whether a refresh token may have reached the server.
fn may_have_arrived(error: &OAuthError) -> bool {
    let OAuthError::NoAnswer(why) = error else {
        // The server answered, and refused the request for another reason than the token.
        return false;
    };
    !matches!(why, AnswerFailure::Address | AnswerFailure::Certificate | AnswerFailure::Proxy(_))
}
