//! Makes headend a client of an authorization server: by the operator's client, by headend's own
//! metadata document, or by a registration. Source: MCP 2025-11-25 and later, authorization,
//! "Client Registration Approaches"; RFC 7591.

use url::Url;

use super::client::{ClientRegistration, OAuthClient};
use super::document::PeerDocument;
use super::error::{AnswerFailure, DocumentKind, OAuthError, OAuthRefusal};
use super::request::{OAuthAnswer, OAuthRequest, RequestContent};
use super::server::AuthorizationServer;
use super::terms::LoginTerms;
use crate::wire::json::raw::{RawJson, RawObject};
use crate::wire::reach::is_loopback;

const NAME: &str = "headend";

/// The client to use, or where to register one.
#[derive(Debug)]
pub enum ClientChoice {
    Is(OAuthClient),
    Register(Url),
}

/// The kind of application that headend claims to be. Servers allow redirects to this machine for
/// native applications only, or for both kinds.
#[derive(Clone, Copy, Debug, PartialEq, Eq, strum::IntoStaticStr)]
#[strum(serialize_all = "lowercase")]
pub enum ApplicationType {
    Native,
    Web,
}

impl ApplicationType {
    /// Returns the type that a redirect address stands for.
    pub fn of(redirect_url: &str) -> Self {
        match Url::parse(redirect_url) {
            Ok(url) if url.scheme() == "https" && !is_loopback(&url) => Self::Web,
            Ok(_) | Err(_) => Self::Native,
        }
    }

    /// Returns the other type, for a second attempt.
    pub fn other(self) -> Self {
        match self {
            Self::Native => Self::Web,
            Self::Web => Self::Native,
        }
    }
}

/// Chooses a client in the order of the specification: the operator's client, the metadata
/// document, an earlier registration, a new one.
///
/// # Errors
/// [`OAuthError::NoRegistration`].
pub fn choose(
    terms: &LoginTerms,
    server: &AuthorizationServer,
    known: &[ClientRegistration],
    scopes: &[String],
    now: u64,
) -> Result<ClientChoice, OAuthError> {
    if let Some(client) = &terms.client {
        return Ok(ClientChoice::Is(OAuthClient::configured(client, server)));
    }
    if let Some(url) = terms.client_metadata_url.as_ref().filter(|_| server.client_documents) {
        return Ok(ClientChoice::Is(OAuthClient::documented(url)));
    }
    if let Some(one) = known.iter().find(|one| one.fits(&server.issuer, &terms.redirect_url, scopes, now)) {
        return Ok(ClientChoice::Is(OAuthClient::registered(one, server)));
    }
    server.registration_endpoint.clone().map(ClientChoice::Register).ok_or(OAuthError::NoRegistration)
}

/// Returns the members that describe headend in a registration.
fn description(redirect_url: &str, application: ApplicationType, method: &str) -> RawObject {
    let list = |items: &[&str]| RawJson::list(items.iter().map(|item| RawJson::string(item)));
    let mut object = RawObject::of_strings(&[("client_name", NAME)]);
    object.set("redirect_uris", list(&[redirect_url]));
    object.set("grant_types", list(&["authorization_code", "refresh_token"]));
    object.set("response_types", list(&["code"]));
    object.set("token_endpoint_auth_method", RawJson::string(method));
    object.set("application_type", RawJson::string(application.into()));
    object
}

/// Makes the request of a registration.
///
/// # Errors
/// [`OAuthError::Unreachable`].
pub fn request(
    terms: &LoginTerms,
    server: &AuthorizationServer,
    endpoint: &Url,
    application: ApplicationType,
    scopes: &[String],
) -> Result<OAuthRequest, OAuthError> {
    let reach = terms.reach(endpoint).ok_or(OAuthError::Unreachable(DocumentKind::Registration))?;
    let offers = |method: &str| server.auth_methods.as_ref().is_some_and(|all| all.iter().any(|one| one == method));
    let ours = ["none", "client_secret_basic", "client_secret_post"];
    let method = ours.into_iter().find(|method| offers(method)).unwrap_or("client_secret_basic");
    let mut body = description(&terms.redirect_url, application, method);
    if !scopes.is_empty() {
        body.set("scope", RawJson::string(&scopes.join(" ")));
    }
    let body = body.encode().into_bytes();
    Ok(OAuthRequest {
        url: endpoint.clone(),
        reach,
        content: RequestContent::Json(body),
        authorization: None,
        revision: None,
    })
}

/// Reads the answer to a registration.
///
/// # Errors
/// [`OAuthError::Registration`], [`OAuthError::Document`] and [`OAuthError::NoAnswer`].
pub fn read(
    terms: &LoginTerms,
    server: &AuthorizationServer,
    scopes: &[String],
    answer: &OAuthAnswer,
) -> Result<ClientRegistration, OAuthError> {
    let document = PeerDocument::of(DocumentKind::Registration, &answer.body);
    if !answer.is_success() {
        if answer.status == 429 || answer.status >= 500 {
            return Err(OAuthError::NoAnswer(AnswerFailure::Busy));
        }
        let code = document.and_then(|document| document.text("error").ok().flatten());
        return Err(OAuthError::Registration(code.map_or(OAuthRefusal::Other, |code| OAuthRefusal::of(&code))));
    }
    let document = document.ok_or(OAuthError::NoAnswer(AnswerFailure::NotJson))?;
    Ok(ClientRegistration {
        issuer: server.issuer.clone(),
        redirect_url: terms.redirect_url.clone(),
        scopes: scopes.to_vec(),
        id: document.needed("client_id")?,
        // A public client has no secret, for which some servers write an empty text.
        secret: document.text_or_empty("client_secret")?.map(super::hidden::SecretText::new),
        method: document.text_or_empty("token_endpoint_auth_method")?,
        // Zero means that the secret never expires.
        expires: document.seconds("client_secret_expires_at").filter(|end| *end > 0),
    })
}
