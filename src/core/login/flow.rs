//! One login from its beginning to its tokens, as a state machine. [`LoginFlow::next`] says what to
//! do, and [`LoginFlow::answered`] and [`LoginFlow::returned`] take the result.

use std::collections::VecDeque;

use url::Url;

use super::authorize::{AuthorizationRequest, LoginCallback, LoginRandomness, PendingAuthorization};
use super::challenge::BearerChallenge;
use super::client::{AssertionMoment, ClientRegistration, OAuthClient};
use super::error::{DocumentKind, OAuthError, OAuthRefusal};
use super::hidden::SecretText;
use super::registration::{self, ApplicationType, ClientChoice};
use super::request::{OAuthAnswerResult, OAuthRequest};
use super::resource::{self, ResourceMetadata};
use super::scope::{self, ScopeSources};
use super::server::{AuthorizationServer, SoughtIssuer};
use super::terms::LoginTerms;
use super::token::{self, LoginTokens, TokenGrant, TokenTerms, UpstreamLogin};

/// The kind of a login.
#[derive(Clone, Debug)]
pub enum LoginKind {
    /// A person agrees on a page.
    Person,
    /// The client asks for its own rights, with its own credential.
    ClientCredentials,
    /// The platform vouches for the workload with this token.
    Workload(SecretText),
}

/// Knowledge of earlier logins at this upstream.
#[derive(Clone, Debug, Default)]
pub struct LoginHistory {
    pub registrations: Vec<ClientRegistration>,
    /// Issuer and scopes of the login that is to get more rights.
    pub granted: Option<(String, Vec<String>)>,
    /// Scopes that headend asks for without a person, which no server can raise; `None` before its
    /// first token if none are configured.
    pub most: Option<Vec<String>>,
}

/// The next action in a login.
#[derive(Debug)]
pub enum LoginAction {
    /// Send this request, and give the answer to [`LoginFlow::answered`].
    Send(Box<OAuthRequest>),
    /// Show this address to a person, and give the call-back to [`LoginFlow::returned`].
    Open(Box<PendingAuthorization>),
    Done(Box<UpstreamLogin>),
    Failed(OAuthError),
}

/// A login in progress.
#[derive(Debug)]
pub struct LoginFlow {
    terms: LoginTerms,
    kind: LoginKind,
    challenge: Option<BearerChallenge>,
    known: LoginHistory,
    chance: LoginRandomness,
    /// Time of the last answer, in seconds since 1970.
    now: u64,
    stage: LoginStage,
    resource: Option<ResourceMetadata>,
    /// Value of the parameter `resource`.
    parameter: Option<String>,
    server: Option<AuthorizationServer>,
    registration: Option<ClientRegistration>,
    scopes: Vec<String>,
}

/// The stage of a login, named after the answer that it waits for. The URLs are those that may have
/// the metadata; the text beside the token request is the nonce that an id token must repeat.
#[derive(Debug)]
enum LoginStage {
    Resource(VecDeque<Url>),
    Server(SoughtIssuer, VecDeque<Url>),
    Register { endpoint: Url, application: ApplicationType, is_second: bool },
    Page(OAuthClient, Box<PendingAuthorization>),
    Token(OAuthClient, Box<OAuthRequest>, Option<String>),
    Done(Box<UpstreamLogin>),
    Failed(OAuthError),
}

impl LoginFlow {
    /// Begins a login, with the challenge that asked for it, if there was one.
    pub fn new(
        terms: LoginTerms,
        kind: LoginKind,
        challenge: Option<BearerChallenge>,
        known: LoginHistory,
        chance: LoginRandomness,
        now: u64,
    ) -> Self {
        let named = challenge.as_ref().and_then(|challenge| challenge.resource_metadata.as_deref());
        let stage = match ResourceMetadata::places(&terms, named) {
            Ok(places) => LoginStage::Resource(places.into()),
            Err(error) => LoginStage::Failed(error),
        };
        let (resource, parameter, server, registration, scopes) = (None, None, None, None, Vec::new());
        Self { terms, kind, challenge, known, chance, now, stage, resource, parameter, server, registration, scopes }
    }

    /// Returns what to do now. A second call returns the same.
    pub fn next(&self) -> LoginAction {
        let revision = self.terms.revision.map(|revision| revision.as_str());
        let get = |url: Option<&Url>, which| match url.and_then(|url| Some((url, self.terms.reach(url)?))) {
            Some((url, reach)) => LoginAction::Send(Box::new(OAuthRequest::get(url.clone(), reach, revision))),
            None => LoginAction::Failed(OAuthError::Unreachable(which)),
        };
        match &self.stage {
            LoginStage::Resource(places) => get(places.front(), DocumentKind::Resource),
            LoginStage::Server(_, places) => get(places.front(), DocumentKind::Server),
            LoginStage::Register { endpoint, application, .. } => match &self.server {
                Some(server) => registration::request(&self.terms, server, endpoint, *application, &self.scopes)
                    .map_or_else(LoginAction::Failed, |request| LoginAction::Send(Box::new(request))),
                None => LoginAction::Failed(OAuthError::OutOfTurn),
            },
            LoginStage::Page(_, authorization) => LoginAction::Open(authorization.clone()),
            LoginStage::Token(_, request, _) => LoginAction::Send(request.clone()),
            LoginStage::Done(login) => LoginAction::Done(login.clone()),
            LoginStage::Failed(error) => LoginAction::Failed(error.clone()),
        }
    }

    /// Takes the answer to the request of [`Self::next`].
    pub fn answered(&mut self, answered: OAuthAnswerResult, now: u64) {
        self.now = now;
        if let Err(error) = self.take(answered) {
            self.stage = LoginStage::Failed(error);
        }
    }

    /// Takes the call-back of the login page, and makes the token request from its code.
    ///
    /// # Errors
    /// [`OAuthError::State`], which leaves the login waiting: a call-back that does not belong to
    /// it ends nothing. [`OAuthError::OutOfTurn`] if the login does not wait for a call-back. Any
    /// other error has ended the login.
    pub fn returned(&mut self, callback: &LoginCallback, now: u64) -> Result<(), OAuthError> {
        let (LoginStage::Page(client, authorization), Some(server)) = (&self.stage, &self.server) else {
            return Err(OAuthError::OutOfTurn);
        };
        self.now = now;
        let asked = match authorization.returned(server, callback) {
            Err(OAuthError::State) => return Err(OAuthError::State),
            Err(error) => Err(error),
            Ok(code) => {
                let (redirect_url, verifier) = (&*self.terms.redirect_url, &authorization.verifier);
                self.asked(server, client, &[]).request(&TokenGrant::Code { code: &code, redirect_url, verifier })
            }
        };
        self.stage = match &asked {
            Ok(request) => LoginStage::Token(client.clone(), Box::new(request.clone()), authorization.nonce.clone()),
            Err(error) => LoginStage::Failed(error.clone()),
        };
        asked.map(drop)
    }

    /// Returns the terms of this login, as they were when it began.
    pub fn terms(&self) -> &LoginTerms {
        &self.terms
    }

    /// Returns the upstream's authorization server, once it is known.
    pub fn server(&self) -> Option<&AuthorizationServer> {
        self.server.as_ref()
    }

    /// Returns the registration of the login's client, if it has one. A registration that was made
    /// during this login outlives the failure of the login.
    pub fn registration(&self) -> Option<&ClientRegistration> {
        self.registration.as_ref()
    }

    /// Returns the scopes that are asked for.
    pub fn scopes(&self) -> &[String] {
        &self.scopes
    }

    /// Takes an answer at the current stage and goes on to the next one.
    fn take(&mut self, answered: OAuthAnswerResult) -> Result<(), OAuthError> {
        let answer = answered.map_err(OAuthError::NoAnswer)?;
        match &mut self.stage {
            LoginStage::Resource(places) => {
                places.pop_front();
                match answer.document(DocumentKind::Resource)? {
                    Some(document) => {
                        let read = ResourceMetadata::read(&self.terms, &document)?;
                        let sought = SoughtIssuer::Named(self.terms.issuer(&read.issuers)?);
                        self.resource = Some(read);
                        self.seek(sought)
                    }
                    None if places.is_empty() => self.without_metadata(),
                    None => Ok(()),
                }
            }
            LoginStage::Server(sought, places) => {
                places.pop_front();
                match answer.document(DocumentKind::Server)? {
                    Some(document) => {
                        let server = AuthorizationServer::read(&self.terms, sought, &document)?;
                        self.found(&server)
                    }
                    None if places.is_empty() => {
                        let server = sought.default_server(&self.terms)?;
                        self.found(&server)
                    }
                    None => Ok(()),
                }
            }
            LoginStage::Register { endpoint, application, is_second } => {
                let server = self.server.clone().ok_or(OAuthError::OutOfTurn)?;
                match registration::read(&self.terms, &server, &self.scopes, &answer) {
                    Err(OAuthError::Registration(
                        OAuthRefusal::InvalidRedirectUri | OAuthRefusal::InvalidClientMetadata,
                    )) if !*is_second => {
                        let (endpoint, application) = (endpoint.clone(), application.other());
                        self.stage = LoginStage::Register { endpoint, application, is_second: true };
                        Ok(())
                    }
                    Err(error) => Err(error),
                    Ok(made) => {
                        let client = OAuthClient::registered(&made, &server);
                        self.registration = Some(made);
                        self.ask(client, &server)
                    }
                }
            }
            LoginStage::Token(client, _, nonce) => {
                let server = self.server.clone().ok_or(OAuthError::OutOfTurn)?;
                let (tokens, claims) = LoginTokens::read(&answer, &self.scopes, self.now)?;
                let account = token::account(claims.as_ref(), &server, nonce.as_deref())?;
                let client_id = client.id.clone();
                let registration = self.registration.clone();
                let resource = self.parameter.clone();
                let login = UpstreamLogin { server, registration, client_id, resource, tokens, account };
                self.stage = LoginStage::Done(Box::new(login));
                Ok(())
            }
            LoginStage::Page(..) | LoginStage::Done(_) | LoginStage::Failed(_) => Err(OAuthError::OutOfTurn),
        }
    }

    /// Goes on although the resource has no metadata: with the issuer that the operator pinned,
    /// else with the server's own origin, if the server may be that old.
    fn without_metadata(&mut self) -> Result<(), OAuthError> {
        let may_be_old = self.terms.revision.is_none_or(|revision| !revision.features().resource_metadata);
        match self.terms.issuers.first() {
            Some(pinned) => self.seek(SoughtIssuer::Named(pinned.clone())),
            None if may_be_old => self.seek(SoughtIssuer::OwnOrigin),
            None => Err(OAuthError::NoMetadata),
        }
    }

    /// Begins to look for the metadata of that issuer.
    fn seek(&mut self, sought: SoughtIssuer) -> Result<(), OAuthError> {
        let places = sought.places(&self.terms)?;
        self.stage = LoginStage::Server(sought, places.into());
        Ok(())
    }

    /// Checks the authorization server that was found, and chooses the scopes and the client.
    fn found(&mut self, server: &AuthorizationServer) -> Result<(), OAuthError> {
        self.terms.check_issuer(&server.issuer)?;
        let is_person = matches!(self.kind, LoginKind::Person);
        if is_person && !server.pkce {
            return Err(OAuthError::NoPkce);
        }
        let granted = self.known.granted.as_ref().filter(|(issuer, _)| *issuer == server.issuer);
        let chosen = ScopeSources {
            configured: &self.terms.scopes,
            granted: granted.map_or(&[], |(_, scopes)| scopes),
            challenge: self.challenge.as_ref().and_then(|challenge| challenge.scope.as_deref()),
            resource: self.resource.as_ref().and_then(|resource| resource.scopes.as_deref()),
            server: &server.scopes,
            offline: is_person,
        }
        .choose();
        // Without a person, no one sees what is asked for, so a server must not raise it.
        self.scopes = self.known.most.clone().filter(|_| !is_person).unwrap_or(chosen);
        self.parameter = resource::resource_parameter(&self.terms, self.resource.as_ref());
        self.server = Some(server.clone());
        let client = match &self.kind {
            LoginKind::Person => {
                match registration::choose(&self.terms, server, &self.known.registrations, &self.scopes, self.now)? {
                    ClientChoice::Is(client) => client,
                    ClientChoice::Register(endpoint) => {
                        let application = ApplicationType::of(&self.terms.redirect_url);
                        self.stage = LoginStage::Register { endpoint, application, is_second: false };
                        return Ok(());
                    }
                }
            }
            // The server knows these clients beforehand; the workload's may be known by its token
            // alone.
            LoginKind::ClientCredentials | LoginKind::Workload(_) => {
                let configured = self.terms.client.as_ref().ok_or(OAuthError::NoClient)?;
                OAuthClient::configured(configured, server)
            }
        };
        self.registration =
            self.known.registrations.iter().find(|one| one.issuer == server.issuer && one.id == client.id).cloned();
        self.ask(client, server)
    }

    /// Goes on with this client: to the login page for a person, or to the token request.
    fn ask(&mut self, client: OAuthClient, server: &AuthorizationServer) -> Result<(), OAuthError> {
        let grant = match &self.kind {
            LoginKind::Person => {
                let (redirect_url, resource) = (&*self.terms.redirect_url, self.parameter.as_deref());
                let wish = AuthorizationRequest { client: &client, redirect_url, resource, scopes: &self.scopes };
                let authorization = PendingAuthorization::new(server, &wish, &self.chance)?;
                self.stage = LoginStage::Page(client, Box::new(authorization));
                return Ok(());
            }
            LoginKind::ClientCredentials => TokenGrant::Client,
            LoginKind::Workload(assertion) => TokenGrant::Workload(assertion),
        };
        let request = self.asked(server, &client, &self.scopes).request(&grant)?;
        self.stage = LoginStage::Token(client, Box::new(request), None);
        Ok(())
    }

    /// Returns the terms under which this login asks for a token.
    fn asked<'a>(
        &'a self,
        server: &'a AuthorizationServer,
        client: &'a OAuthClient,
        scopes: &'a [String],
    ) -> TokenTerms<'a> {
        let moment = AssertionMoment { now: self.now, once: self.chance.once };
        TokenTerms { terms: &self.terms, server, client, resource: self.parameter.as_deref(), scopes, moment }
    }
}

/// Returns the issuer and the scopes of a refused token's login, for a login that is to get more.
/// Returns `None` if the token has all scopes that the challenge names: asking a person again would
/// change nothing.
pub fn login_to_extend(login: &UpstreamLogin, challenge: &BearerChallenge) -> Option<(String, Vec<String>)> {
    let lacks = !scope::missing_scopes(challenge, &login.tokens.scopes).is_empty();
    lacks.then(|| (login.server.issuer.clone(), login.tokens.scopes.clone()))
}

#[cfg(test)]
mod tests;
