//! Tokens: the requests for them, the login that is kept of them, and its end.
//!
//! Source: RFC 6749, 4.1.3, 4.4, 5, 6; RFC 7009; RFC 7523, 2.1; RFC 8707, 2.2.

use data_encoding::BASE64URL_NOPAD;
use serde::{Deserialize, Serialize};

use super::client::{AssertionMoment, ClientRegistration, OAuthClient};
use super::document::PeerDocument;
use super::error::{AnswerFailure, DocumentKind, OAuthError, OAuthRefusal};
use super::hidden::SecretText;
use super::request::{FormBody, OAuthAnswer, OAuthRequest, RequestContent};
use super::scope;
use super::server::AuthorizationServer;
use super::terms::LoginTerms;
use crate::wire::frame::{Frame, JsonBounds};
use crate::wire::json::raw::{RawJson, RawObject};

/// Longest lifetime of a token that is believed, in seconds; servers write odd numbers.
const LONGEST: u64 = 10 * 365 * 24 * 3600;
const MAX_ACCOUNT: usize = 200;

/// A login: at which server, as which client, for which account, and its tokens. Its serialised
/// form must be sealed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct UpstreamLogin {
    pub server: AuthorizationServer,
    /// The client that headend registered for the login; `None` for the operator's client and for
    /// the metadata document.
    pub registration: Option<ClientRegistration>,
    /// Id of the client at this login, by which a change of the configuration is noticed.
    pub client_id: String,
    /// Value of the parameter `resource` in the requests.
    pub resource: Option<String>,
    pub tokens: LoginTokens,
    /// The account, if an id token names one: for people, and to tell accounts apart.
    pub account: Option<LoginAccount>,
}

/// The tokens of a login.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct LoginTokens {
    pub access: SecretText,
    pub refresh: Option<SecretText>,
    /// Expiry of the access token in seconds since 1970, if the server names it.
    pub expires: Option<u64>,
    /// Scopes of the access token: as the server said, else as they were asked for.
    pub scopes: Vec<String>,
}

/// An account at an issuer.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct LoginAccount {
    pub subject: String,
    /// E-mail address or name of the account, for people.
    pub shown: String,
}

/// The grant of a token request.
#[derive(Debug)]
pub(super) enum TokenGrant<'a> {
    Code {
        code: &'a SecretText,
        redirect_url: &'a str,
        verifier: &'a SecretText,
    },
    /// The client's own rights.
    Client,
    /// A token of the workload, signed by its platform.
    Workload(&'a SecretText),
    Refresh(&'a SecretText),
}

/// The terms under which a token is asked for.
#[derive(Debug)]
pub(super) struct TokenTerms<'a> {
    pub(super) terms: &'a LoginTerms,
    pub(super) server: &'a AuthorizationServer,
    pub(super) client: &'a OAuthClient,
    pub(super) resource: Option<&'a str>,
    /// Scopes to ask for. If empty, the parameter is left out.
    pub(super) scopes: &'a [String],
    pub(super) moment: AssertionMoment,
}

impl TokenTerms<'_> {
    /// Makes the request for a token.
    pub(super) fn request(&self, grant: &TokenGrant<'_>) -> Result<OAuthRequest, OAuthError> {
        let mut form = FormBody::default();
        match grant {
            TokenGrant::Code { code, redirect_url, verifier } => {
                form.add("grant_type", "authorization_code");
                form.add("code", code.expose());
                form.add("redirect_uri", redirect_url);
                form.add("code_verifier", verifier.expose());
            }
            TokenGrant::Client => form.add("grant_type", "client_credentials"),
            TokenGrant::Workload(assertion) => {
                form.add("grant_type", "urn:ietf:params:oauth:grant-type:jwt-bearer");
                form.add("assertion", assertion.expose());
            }
            TokenGrant::Refresh(token) => {
                form.add("grant_type", "refresh_token");
                form.add("refresh_token", token.expose());
            }
        }
        if !self.scopes.is_empty() {
            form.add("scope", &self.scopes.join(" "));
        }
        if let Some(resource) = self.resource {
            form.add("resource", resource);
        }
        self.post(&self.server.token_endpoint, form)
    }

    /// Makes a request with a form, to which the client's proof is added.
    fn post(&self, url: &url::Url, mut form: FormBody) -> Result<OAuthRequest, OAuthError> {
        let authorization = self.client.prove(&mut form, self.server, self.moment)?;
        // Judged again: the address of a login may no longer be allowed after a change of the
        // configuration.
        let reach = self.terms.reach(url).ok_or(OAuthError::Unreachable(DocumentKind::Server))?;
        Ok(OAuthRequest {
            url: url.clone(),
            reach,
            content: RequestContent::Form(form.encode()),
            authorization,
            revision: None,
        })
    }
}

impl UpstreamLogin {
    /// Makes the request that renews the tokens; `None` for a login without a refresh token.
    ///
    /// # Errors
    /// [`OAuthError::NoClient`] if the operator's client is gone, the errors of
    /// [`LoginTerms::check_issuer`], [`OAuthError::Unreachable`], [`OAuthError::Key`].
    pub fn refresh(&self, terms: &LoginTerms, moment: AssertionMoment) -> Result<Option<OAuthRequest>, OAuthError> {
        let Some(token) = &self.tokens.refresh else { return Ok(None) };
        let client = self.client(terms)?;
        self.asked(terms, &client, moment).request(&TokenGrant::Refresh(token)).map(Some)
    }

    /// Returns the login with the tokens of a refresh. If the server sends no new refresh token,
    /// the old one stays good.
    ///
    /// # Errors
    /// As [`LoginTokens::read`]. After an error with [`OAuthError::ends_grant`] the login is over,
    /// if it is still the one that was tried.
    pub fn refreshed(&self, answer: &OAuthAnswer, now: u64) -> Result<Self, OAuthError> {
        let (mut tokens, _) = LoginTokens::read(answer, &self.tokens.scopes, now)?;
        tokens.refresh = tokens.refresh.or_else(|| self.tokens.refresh.clone());
        Ok(Self { tokens, ..self.clone() })
    }

    /// Makes the requests that revoke the tokens at the server, the refresh token first. Their
    /// answers do not matter.
    ///
    /// # Errors
    /// As [`Self::refresh`].
    pub fn revoke(&self, terms: &LoginTerms, moment: AssertionMoment) -> Result<Vec<OAuthRequest>, OAuthError> {
        let Some(endpoint) = &self.server.revocation_endpoint else { return Ok(Vec::new()) };
        let client = self.client(terms)?;
        let refresh = self.tokens.refresh.iter().map(|token| (token, "refresh_token"));
        let all = refresh.chain([(&self.tokens.access, "access_token")]);
        all.map(|(token, kind)| {
            let mut form = FormBody::default();
            form.add("token", token.expose());
            form.add("token_type_hint", kind);
            self.asked(terms, &client, moment).post(endpoint, form)
        })
        .collect()
    }

    /// Returns whether the configuration still means this login: its issuer may be used, and its
    /// client is the same.
    pub fn fits(&self, terms: &LoginTerms) -> bool {
        self.client(terms).is_ok()
    }

    fn asked<'a>(&'a self, terms: &'a LoginTerms, client: &'a OAuthClient, moment: AssertionMoment) -> TokenTerms<'a> {
        TokenTerms { terms, server: &self.server, client, resource: self.resource.as_deref(), scopes: &[], moment }
    }

    /// Returns the client of this login, if the configuration still means the login.
    fn client(&self, terms: &LoginTerms) -> Result<OAuthClient, OAuthError> {
        terms.check_issuer(&self.server.issuer)?;
        let client = match (&self.registration, &terms.client) {
            (Some(registration), None) if registration.issuer == self.server.issuer => {
                OAuthClient::registered(registration, &self.server)
            }
            (None, Some(configured)) => OAuthClient::configured(configured, &self.server),
            (None, None) => {
                terms.client_metadata_url.as_deref().map(OAuthClient::documented).ok_or(OAuthError::NoClient)?
            }
            (Some(_), _) => return Err(OAuthError::NoClient),
        };
        if client.id == self.client_id { Ok(client) } else { Err(OAuthError::NoClient) }
    }
}

impl LoginTokens {
    /// Reads the answer of a token endpoint, and the claims of an id token in it. `asked` are the
    /// scopes if the server names none.
    ///
    /// # Errors
    /// [`OAuthError::Refused`], [`OAuthError::NoAnswer`], [`OAuthError::Token`].
    pub(super) fn read(
        answer: &OAuthAnswer,
        asked: &[String],
        now: u64,
    ) -> Result<(Self, Option<RawObject>), OAuthError> {
        if (300..400).contains(&answer.status) {
            return Err(OAuthError::NoAnswer(AnswerFailure::Redirect));
        }
        if answer.status == 429 || answer.status >= 500 {
            return Err(OAuthError::NoAnswer(AnswerFailure::Busy));
        }
        let document = PeerDocument::of(DocumentKind::Token, &answer.body);
        let Some(document) = document else {
            let is_refusal = !answer.is_success();
            return Err(if is_refusal {
                OAuthError::Refused(OAuthRefusal::Other)
            } else {
                OAuthError::NoAnswer(AnswerFailure::NotJson)
            });
        };
        let error = document.text("error").ok().flatten();
        // Some servers refuse with the status of a success.
        if let Some(code) = error {
            return Err(OAuthError::Refused(OAuthRefusal::of(&code)));
        }
        if !answer.is_success() {
            return Err(OAuthError::Refused(OAuthRefusal::Other));
        }
        let access = document.text("access_token").ok().flatten();
        let access = access.filter(|token| token.bytes().all(|byte| matches!(byte, b'!'..=b'~')));
        let access = SecretText::new(access.ok_or(OAuthError::Token("the answer has no access token"))?);
        let kind = document.text("token_type").ok().flatten();
        if !kind.is_some_and(|kind| kind.eq_ignore_ascii_case("bearer")) {
            return Err(OAuthError::Token("its type is not Bearer"));
        }
        let refresh = document.text("refresh_token").ok().flatten().map(SecretText::new);
        let expires = document.seconds("expires_in").map(|life| now.saturating_add(life.min(LONGEST)));
        let scopes = document.text("scope").ok().flatten();
        let scopes = scopes.map_or_else(|| asked.to_vec(), |text| scope::split(&text).map(str::to_owned).collect());
        let claims = document.text("id_token").ok().flatten().and_then(|token| claims(&token));
        Ok((Self { access, refresh, expires, scopes }, claims))
    }
}

/// Reads the claims of an id token without checking its signature: the issuer itself sent the token
/// on a connection of ours, which vouches for it. Source: `OpenID` Connect Core, 3.1.3.7, 6.
fn claims(token: &str) -> Option<RawObject> {
    let payload = token.split('.').nth(1)?;
    let bytes = BASE64URL_NOPAD.decode(payload.as_bytes()).ok()?;
    let frame = Frame::from_client(bytes.into(), JsonBounds { depth: 16, nodes: 1_000 }).ok()?;
    RawObject::parse(&RawJson::checked(frame.bytes().clone()).ok()?).ok()
}

/// Returns the account that the claims of an id token name.
///
/// # Errors
/// [`OAuthError::Mixed`] if the id token is of another issuer or answers another login.
pub(super) fn account(
    claims: Option<&RawObject>,
    server: &AuthorizationServer,
    nonce: Option<&str>,
) -> Result<Option<LoginAccount>, OAuthError> {
    let Some(claims) = claims else { return Ok(None) };
    if claims.string("iss").is_some_and(|iss| iss != server.issuer) {
        return Err(OAuthError::Mixed);
    }
    if nonce.is_some_and(|nonce| claims.string("nonce").as_deref() != Some(nonce)) {
        return Err(OAuthError::Mixed);
    }
    let Some(subject) = claims.string("sub").filter(|text| text.len() <= MAX_ACCOUNT) else { return Ok(None) };
    let names = ["email", "preferred_username", "name"].into_iter();
    let shown = names.filter_map(|name| claims.string(name)).find(|text| !text.is_empty() && text.len() <= MAX_ACCOUNT);
    Ok(Some(LoginAccount { shown: shown.unwrap_or_else(|| subject.clone()), subject }))
}

#[cfg(test)]
mod tests;
