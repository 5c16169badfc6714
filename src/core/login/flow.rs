//! One login from its beginning to its tokens, as a state machine. [`Flow::next`] says what to do,
//! and [`Flow::answered`] and [`Flow::returned`] take the result.

use std::collections::VecDeque;

use url::Url;

use super::authorize::{Authorization, Callback, Chance, Wish};
use super::challenge::Challenge;
use super::client::{Client, Moment, Registration};
use super::error::{Document, OAuthError, Refusal};
use super::hidden::Hidden;
use super::registration::{self, ApplicationType, Choice};
use super::request::{Answered, Request};
use super::resource::{self, Resource};
use super::scope::{self, Sources};
use super::server::{Server, Sought};
use super::terms::Terms;
use super::token::{self, Asked, Grant, Login, Tokens};

/// The kind of a login.
#[derive(Clone, Debug)]
pub enum Kind {
    /// A person agrees on a page.
    Person,
    /// The client asks for its own rights, with its own credential.
    ClientCredentials,
    /// The platform vouches for the workload with this token.
    Workload(Hidden),
}

/// Knowledge of earlier logins at this upstream.
#[derive(Clone, Debug, Default)]
pub struct Known {
    pub registrations: Vec<Registration>,
    /// Issuer and scopes of the login that is to get more rights.
    pub granted: Option<(String, Vec<String>)>,
    /// Scopes that headend asks for without a person, which no server can raise; `None` before its
    /// first token if none are configured.
    pub most: Option<Vec<String>>,
}

/// The next action in a login.
#[derive(Debug)]
pub enum Next {
    /// Send this request, and give the answer to [`Flow::answered`].
    Send(Box<Request>),
    /// Show this address to a person, and give the call-back to [`Flow::returned`].
    Open(Box<Authorization>),
    Done(Box<Login>),
    Failed(OAuthError),
}

/// A login in progress.
#[derive(Debug)]
pub struct Flow {
    terms: Terms,
    kind: Kind,
    challenge: Option<Challenge>,
    known: Known,
    chance: Chance,
    /// Time of the last answer, in seconds since 1970.
    now: u64,
    stage: Stage,
    resource: Option<Resource>,
    /// Value of the parameter `resource`.
    parameter: Option<String>,
    server: Option<Server>,
    registration: Option<Registration>,
    scopes: Vec<String>,
}

/// The stage of a login, named after the answer that it waits for. The URLs are those that may have
/// the metadata; the text beside the token request is the nonce that an id token must repeat.
#[derive(Debug)]
enum Stage {
    Resource(VecDeque<Url>),
    Server(Sought, VecDeque<Url>),
    Register { endpoint: Url, application: ApplicationType, is_second: bool },
    Page(Client, Box<Authorization>),
    Token(Client, Box<Request>, Option<String>),
    Done(Box<Login>),
    Failed(OAuthError),
}

impl Flow {
    /// Begins a login, with the challenge that asked for it, if there was one.
    pub fn new(terms: Terms, kind: Kind, challenge: Option<Challenge>, known: Known, chance: Chance, now: u64) -> Self {
        let named = challenge.as_ref().and_then(|challenge| challenge.resource_metadata.as_deref());
        let stage = match Resource::places(&terms, named) {
            Ok(places) => Stage::Resource(places.into()),
            Err(error) => Stage::Failed(error),
        };
        let (resource, parameter, server, registration, scopes) = (None, None, None, None, Vec::new());
        Self { terms, kind, challenge, known, chance, now, stage, resource, parameter, server, registration, scopes }
    }

    /// Returns what to do now. A second call returns the same.
    pub fn next(&self) -> Next {
        let revision = self.terms.revision.map(|revision| revision.as_str());
        let get = |url: Option<&Url>, which| match url.and_then(|url| Some((url, self.terms.reach(url)?))) {
            Some((url, reach)) => Next::Send(Box::new(Request::get(url.clone(), reach, revision))),
            None => Next::Failed(OAuthError::Unreachable(which)),
        };
        match &self.stage {
            Stage::Resource(places) => get(places.front(), Document::Resource),
            Stage::Server(_, places) => get(places.front(), Document::Server),
            Stage::Register { endpoint, application, .. } => match &self.server {
                Some(server) => registration::request(&self.terms, server, endpoint, *application, &self.scopes)
                    .map_or_else(Next::Failed, |request| Next::Send(Box::new(request))),
                None => Next::Failed(OAuthError::OutOfTurn),
            },
            Stage::Page(_, authorization) => Next::Open(authorization.clone()),
            Stage::Token(_, request, _) => Next::Send(request.clone()),
            Stage::Done(login) => Next::Done(login.clone()),
            Stage::Failed(error) => Next::Failed(error.clone()),
        }
    }

    /// Takes the answer to the request of [`Self::next`].
    pub fn answered(&mut self, answered: Answered, now: u64) {
        self.now = now;
        if let Err(error) = self.take(answered) {
            self.stage = Stage::Failed(error);
        }
    }

    /// Takes the call-back of the login page, and makes the token request from its code.
    ///
    /// # Errors
    /// [`OAuthError::State`], which leaves the login waiting: a call-back that does not belong to
    /// it ends nothing. [`OAuthError::OutOfTurn`] if the login does not wait for a call-back. Any
    /// other error has ended the login.
    pub fn returned(&mut self, callback: &Callback, now: u64) -> Result<(), OAuthError> {
        let (Stage::Page(client, authorization), Some(server)) = (&self.stage, &self.server) else {
            return Err(OAuthError::OutOfTurn);
        };
        self.now = now;
        let asked = match authorization.returned(server, callback) {
            Err(OAuthError::State) => return Err(OAuthError::State),
            Err(error) => Err(error),
            Ok(code) => {
                let (redirect_url, verifier) = (&*self.terms.redirect_url, &authorization.verifier);
                self.asked(server, client, &[]).request(&Grant::Code { code: &code, redirect_url, verifier })
            }
        };
        self.stage = match &asked {
            Ok(request) => Stage::Token(client.clone(), Box::new(request.clone()), authorization.nonce.clone()),
            Err(error) => Stage::Failed(error.clone()),
        };
        asked.map(drop)
    }

    /// Returns the terms of this login, as they were when it began.
    pub fn terms(&self) -> &Terms {
        &self.terms
    }

    /// Returns the upstream's authorization server, once it is known.
    pub fn server(&self) -> Option<&Server> {
        self.server.as_ref()
    }

    /// Returns the registration of the login's client, if it has one. A registration that was made
    /// during this login outlives the failure of the login.
    pub fn registration(&self) -> Option<&Registration> {
        self.registration.as_ref()
    }

    /// Returns the scopes that are asked for.
    pub fn scopes(&self) -> &[String] {
        &self.scopes
    }

    /// Takes an answer at the current stage and goes on to the next one.
    fn take(&mut self, answered: Answered) -> Result<(), OAuthError> {
        let answer = answered.map_err(OAuthError::NoAnswer)?;
        match &mut self.stage {
            Stage::Resource(places) => {
                places.pop_front();
                match answer.document(Document::Resource)? {
                    Some(document) => {
                        let read = Resource::read(&self.terms, &document)?;
                        let sought = Sought::Named(self.terms.issuer(&read.issuers)?);
                        self.resource = Some(read);
                        self.seek(sought)
                    }
                    None if places.is_empty() => self.without_metadata(),
                    None => Ok(()),
                }
            }
            Stage::Server(sought, places) => {
                places.pop_front();
                match answer.document(Document::Server)? {
                    Some(document) => {
                        let server = Server::read(&self.terms, sought, &document)?;
                        self.found(&server)
                    }
                    None if places.is_empty() => {
                        let server = sought.default_server(&self.terms)?;
                        self.found(&server)
                    }
                    None => Ok(()),
                }
            }
            Stage::Register { endpoint, application, is_second } => {
                let server = self.server.clone().ok_or(OAuthError::OutOfTurn)?;
                match registration::read(&self.terms, &server, &self.scopes, &answer) {
                    Err(OAuthError::Registration(Refusal::InvalidRedirectUri | Refusal::InvalidClientMetadata))
                        if !*is_second =>
                    {
                        let (endpoint, application) = (endpoint.clone(), application.other());
                        self.stage = Stage::Register { endpoint, application, is_second: true };
                        Ok(())
                    }
                    Err(error) => Err(error),
                    Ok(made) => {
                        let client = Client::registered(&made, &server);
                        self.registration = Some(made);
                        self.ask(client, &server)
                    }
                }
            }
            Stage::Token(client, _, nonce) => {
                let server = self.server.clone().ok_or(OAuthError::OutOfTurn)?;
                let (tokens, claims) = Tokens::read(&answer, &self.scopes, self.now)?;
                let account = token::account(claims.as_ref(), &server, nonce.as_deref())?;
                let client_id = client.id.clone();
                let registration = self.registration.clone();
                let resource = self.parameter.clone();
                let login = Login { server, registration, client_id, resource, tokens, account };
                self.stage = Stage::Done(Box::new(login));
                Ok(())
            }
            Stage::Page(..) | Stage::Done(_) | Stage::Failed(_) => Err(OAuthError::OutOfTurn),
        }
    }

    /// Goes on although the resource has no metadata: with the issuer that the operator pinned,
    /// else with the server's own origin, if the server may be that old.
    fn without_metadata(&mut self) -> Result<(), OAuthError> {
        let may_be_old = self.terms.revision.is_none_or(|revision| !revision.features().resource_metadata);
        match self.terms.issuers.first() {
            Some(pinned) => self.seek(Sought::Named(pinned.clone())),
            None if may_be_old => self.seek(Sought::OwnOrigin),
            None => Err(OAuthError::NoMetadata),
        }
    }

    /// Begins to look for the metadata of that issuer.
    fn seek(&mut self, sought: Sought) -> Result<(), OAuthError> {
        let places = sought.places(&self.terms)?;
        self.stage = Stage::Server(sought, places.into());
        Ok(())
    }

    /// Checks the authorization server that was found, and chooses the scopes and the client.
    fn found(&mut self, server: &Server) -> Result<(), OAuthError> {
        self.terms.check_issuer(&server.issuer)?;
        let is_person = matches!(self.kind, Kind::Person);
        if is_person && !server.pkce {
            return Err(OAuthError::NoPkce);
        }
        let granted = self.known.granted.as_ref().filter(|(issuer, _)| *issuer == server.issuer);
        let chosen = Sources {
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
        self.parameter = resource::parameter(&self.terms, self.resource.as_ref());
        self.server = Some(server.clone());
        let client = match &self.kind {
            Kind::Person => {
                match registration::choose(&self.terms, server, &self.known.registrations, &self.scopes, self.now)? {
                    Choice::Is(client) => client,
                    Choice::Register(endpoint) => {
                        let application = ApplicationType::of(&self.terms.redirect_url);
                        self.stage = Stage::Register { endpoint, application, is_second: false };
                        return Ok(());
                    }
                }
            }
            // The server knows these clients beforehand; the workload's may be known by its token
            // alone.
            Kind::ClientCredentials | Kind::Workload(_) => {
                let configured = self.terms.client.as_ref().ok_or(OAuthError::NoClient)?;
                Client::configured(configured, server)
            }
        };
        self.registration =
            self.known.registrations.iter().find(|one| one.issuer == server.issuer && one.id == client.id).cloned();
        self.ask(client, server)
    }

    /// Goes on with this client: to the login page for a person, or to the token request.
    fn ask(&mut self, client: Client, server: &Server) -> Result<(), OAuthError> {
        let grant = match &self.kind {
            Kind::Person => {
                let (redirect_url, resource) = (&*self.terms.redirect_url, self.parameter.as_deref());
                let wish = Wish { client: &client, redirect_url, resource, scopes: &self.scopes };
                let authorization = Authorization::new(server, &wish, &self.chance)?;
                self.stage = Stage::Page(client, Box::new(authorization));
                return Ok(());
            }
            Kind::ClientCredentials => Grant::Client,
            Kind::Workload(assertion) => Grant::Workload(assertion),
        };
        let request = self.asked(server, &client, &self.scopes).request(&grant)?;
        self.stage = Stage::Token(client, Box::new(request), None);
        Ok(())
    }

    /// Returns the terms under which this login asks for a token.
    fn asked<'a>(&'a self, server: &'a Server, client: &'a Client, scopes: &'a [String]) -> Asked<'a> {
        let moment = Moment { now: self.now, once: self.chance.once };
        Asked { terms: &self.terms, server, client, resource: self.parameter.as_deref(), scopes, moment }
    }
}

/// Returns the issuer and the scopes of a refused token's login, for a login that is to get more.
/// Returns `None` if the token has all scopes that the challenge names: asking a person again would
/// change nothing.
pub fn more(login: &Login, challenge: &Challenge) -> Option<(String, Vec<String>)> {
    let lacks = !scope::lacking(challenge, &login.tokens.scopes).is_empty();
    lacks.then(|| (login.server.issuer.clone(), login.tokens.scopes.clone()))
}

#[cfg(test)]
mod tests;
