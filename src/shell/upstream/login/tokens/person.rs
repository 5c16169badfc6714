//! Logins that a person gives, and their end.

use super::{TokenKeeper, TokenState};
use crate::base::clock;
use crate::config::AuthKind;
use crate::login::client::AssertionMoment;
use crate::login::error::{OAuthError, OAuthRefusal};
use crate::login::flow::{self, LoginAction, LoginFlow, LoginHistory, LoginKind};
use crate::login::scope::OFFLINE;
use crate::login::terms::other_than_first;
use crate::login::token::UpstreamLogin;
use crate::store::logins::KeepOutcome;
use crate::upstream::login::parts::chance;
use crate::upstream::state::standing::CredentialStanding;

/// Most requests of one login; more than any server needs.
const STEPS: usize = 32;

impl TokenKeeper {
    /// Returns whether a person can log in at this upstream.
    pub fn takes_person(&self) -> bool {
        self.parts.logins.is_some() && self.terms.kind() == AuthKind::OAuth
    }

    /// Starts a login by a person: sends the requests that precede the page on which the person
    /// agrees, such as a registration. The returned flow has that page's address. If one of these
    /// requests fails, an audit record is written.
    ///
    /// # Errors
    /// A sentence for the operator.
    pub async fn begin(&self) -> Result<LoginFlow, String> {
        let logins =
            self.parts.logins.as_ref().ok_or("nothing is kept of this gateway's upstreams, and so no login")?;
        if self.terms.kind() != AuthKind::OAuth {
            return Err(format!("headend logs in to `{}` by itself; see its `[upstreams.{0}.auth]`", self.upstream));
        }
        let terms = self.current_terms().await?;
        let challenge = self.inner.lock().challenge.clone();
        let granted = challenge
            .as_ref()
            .zip(self.login())
            .and_then(|(challenge, login)| flow::login_to_extend(&login, challenge));
        let registrations = logins.registrations(&self.key).await.map_err(|error| error.to_string())?;
        let known = LoginHistory { registrations, granted, most: None };
        let now = clock::since_1970().as_secs();
        let mut flow = LoginFlow::new(terms, LoginKind::Person, challenge, known, chance(), now);
        match self.drive(&mut flow).await {
            Ok(LoginAction::Open(_)) => Ok(flow),
            Ok(_) => Err(OAuthError::OutOfTurn.to_string()),
            Err(error) => {
                self.parts.record("login-failed", &self.upstream, &error.to_string());
                if matches!(error, OAuthError::OtherThanFirst { .. }) && self.health.standing().awaits_login() {
                    self.health.stands(CredentialStanding::NeedsLogin, || error.to_string());
                    self.health.failed(error.to_string());
                }
                Err(error.to_string())
            }
        }
    }

    /// Returns the scopes of the stored login that a new one would replace, to compare both; `None`
    /// if there is no login or the store cannot be read. Of a login from another issuer no scope
    /// counts but `offline_access`, which any login with a refresh token has.
    pub async fn scopes_before(&self, issuer: &str) -> Option<Vec<String>> {
        let held = self.parts.logins.as_ref()?.get(&self.key).await.ok().flatten()?;
        let tokens = held.login.tokens;
        let mut scopes = if held.login.server.issuer == issuer { tokens.scopes } else { Vec::new() };
        // Servers grant this scope by the refresh token, and do not always list it.
        scopes.extend(tokens.refresh.map(|_| OFFLINE.to_owned()));
        Some(scopes)
    }

    /// Completes a login after its page has answered: gets the tokens, writes the audit record, and
    /// stores the login. Also returns true if it may be of another account than the login before.
    ///
    /// # Errors
    /// A sentence for the operator.
    pub async fn finish(&self, flow: &mut LoginFlow) -> Result<(UpstreamLogin, bool), String> {
        let logins =
            self.parts.logins.as_ref().ok_or("nothing is kept of this gateway's upstreams, and so no login")?;
        let login = match self.drive(flow).await {
            Ok(LoginAction::Done(login)) => *login,
            Ok(_) => return Err(OAuthError::OutOfTurn.to_string()),
            Err(error) => {
                self.parts.record("login-failed", &self.upstream, &error.to_string());
                return Err(error.to_string());
            }
        };
        let before = logins.get(&self.key).await.ok().flatten();
        let is_same = before.is_some_and(|held| {
            let same_issuer = held.login.server.issuer == login.server.issuer;
            let subject = |login: &UpstreamLogin| login.account.as_ref().map(|account| account.subject.clone());
            same_issuer && subject(&held.login).is_some() && subject(&held.login) == subject(&login)
        });
        let account = login.account.as_ref().map_or("", |account| account.shown.as_str());
        self.parts.record_login(&self.upstream, &format!("{} {account}", login.server.issuer)).await?;
        let failed = |why: String| {
            self.parts.record("login-failed", &self.upstream, &why);
            why
        };
        let kept = logins.keep(&self.key, &login, flow.terms().first_issuer.as_deref()).await;
        if let KeepOutcome::OtherIssuer(first) = kept.map_err(|error| failed(error.to_string()))? {
            return Err(failed(other_than_first(&login.server.issuer, &first).to_string()));
        }
        tracing::info!(upstream.name = %self.upstream, issuer = %login.server.issuer, "logged in");
        Ok((login, !is_same))
    }

    /// Ends the login: removes it from the store and from use, then asks the server to revoke its
    /// tokens, whose answer changes nothing. Returns whether there was a login.
    ///
    /// # Errors
    /// A sentence for the operator.
    pub async fn log_out(&self) -> Result<bool, String> {
        let Some(logins) = &self.parts.logins else { return Ok(false) };
        let held = logins.get(&self.key).await.map_err(|error| error.to_string())?;
        let was_there = logins.forget(&self.key).await.map_err(|error| error.to_string())?;
        self.enter(TokenState::None);
        if let Some(held) = held {
            let moment = AssertionMoment { now: clock::since_1970().as_secs(), once: clock::random() };
            let requests = self.current_terms().await.map(|terms| held.login.revoke(&terms, moment));
            for request in requests.into_iter().flatten().flatten() {
                // The login is forgotten here, regardless of the server's answer.
                drop(self.fetcher.send(&request).await);
            }
            self.parts.record("logout", &self.upstream, &held.login.server.issuer);
        }
        Ok(was_there)
    }

    /// Sends the requests of a login until it needs a person or is complete. Stores a client
    /// registration that was made on the way, and forgets one that the server no longer knows.
    pub(super) async fn drive(&self, flow: &mut LoginFlow) -> Result<LoginAction, OAuthError> {
        for _ in 0..STEPS {
            let request = match flow.next() {
                LoginAction::Send(request) => request,
                LoginAction::Failed(error) => {
                    if error == OAuthError::Refused(OAuthRefusal::InvalidClient)
                        && let Some(logins) = &self.parts.logins
                    {
                        // The server has forgotten the client: the next login registers another
                        // one.
                        drop(logins.forget_registrations(&self.key).await);
                    }
                    return Err(error);
                }
                next @ (LoginAction::Open(_) | LoginAction::Done(_)) => return Ok(next),
            };
            let had = flow.registration().cloned();
            let answered = self.fetcher.send(&request).await;
            flow.answered(answered, clock::since_1970().as_secs());
            if let (Some(made), Some(logins)) = (flow.registration(), &self.parts.logins)
                && had.as_ref() != Some(made)
            {
                // The registration outlives a login that fails later; one that cannot be stored is
                // made again.
                drop(logins.keep_registration(&self.key, made).await);
            }
        }
        Err(OAuthError::OutOfTurn)
    }
}
