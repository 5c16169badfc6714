//! Metadata of an authorization server: where it is, and how much of it is believed.
//!
//! Source: RFC 8414; `OpenID` Connect Discovery 1.0; MCP 2025-11-25 and later, authorization,
//! "Authorization Server Metadata Discovery"; MCP 2025-03-26, authorization, 2.3.

use serde::{Deserialize, Serialize};
use url::Url;

use super::document::PeerDocument;
use super::error::{DocumentKind, OAuthError};
use super::terms::{LoginTerms, same_issuer};

const OAUTH: &str = "/.well-known/oauth-authorization-server";
const OPENID: &str = "/.well-known/openid-configuration";

/// The part of an authorization server's metadata that logins need.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct AuthorizationServer {
    /// The server's own text, which is compared as text from then on.
    pub issuer: String,
    pub authorization_endpoint: Option<Url>,
    pub token_endpoint: Url,
    pub registration_endpoint: Option<Url>,
    pub revocation_endpoint: Option<Url>,
    /// Methods by which clients authenticate; `None` if the server does not say.
    pub auth_methods: Option<Vec<String>>,
    pub scopes: Vec<String>,
    /// True if PKCE with S256 is offered.
    pub pkce: bool,
    /// `authorization_response_iss_parameter_supported`: the server names itself in its answers.
    pub names_itself: bool,
    /// `client_id_metadata_document_supported`: a client's id may be the address of its metadata.
    pub client_documents: bool,
}

/// An issuer to look for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SoughtIssuer {
    /// The issuer that the resource's metadata or the operator named.
    Named(String),
    /// The server's own origin, as in 2025-03-26, because there is no metadata that names an
    /// issuer.
    OwnOrigin,
}

impl SoughtIssuer {
    /// Returns the addresses to ask, in this order, until one has the document.
    ///
    /// # Errors
    /// [`OAuthError::UnsafeAddress`] and [`OAuthError::Unreachable`].
    pub fn places(&self, terms: &LoginTerms) -> Result<Vec<Url>, OAuthError> {
        let issuer = match self {
            Self::Named(issuer) => terms.address(DocumentKind::Server, issuer)?,
            Self::OwnOrigin => terms.address(DocumentKind::Server, &terms.url.origin().ascii_serialization())?,
        };
        if issuer.query().is_some() {
            return Err(OAuthError::UnsafeAddress);
        }
        let path = issuer.path().trim_end_matches('/');
        let at = |path: &str| {
            let mut url = issuer.clone();
            url.set_path(path);
            url
        };
        let mut places = vec![at(&format!("{OAUTH}{path}")), at(&format!("{OPENID}{path}"))];
        if !path.is_empty() {
            places.push(at(&format!("{path}{OPENID}")));
        }
        Ok(places)
    }

    /// Returns whether metadata with this issuer is that of the server which is looked for.
    fn is(&self, terms: &LoginTerms, issuer: &str) -> bool {
        match self {
            Self::Named(named) => same_issuer(named, issuer),
            Self::OwnOrigin => same_issuer(&terms.url.origin().ascii_serialization(), issuer),
        }
    }

    /// Returns the server with the default endpoints of 2025-03-26, if it publishes no metadata.
    ///
    /// # Errors
    /// [`OAuthError::Document`], unless the server's own origin is looked for.
    pub fn default_server(&self, terms: &LoginTerms) -> Result<AuthorizationServer, OAuthError> {
        let Self::OwnOrigin = self else { return Err(OAuthError::Document(DocumentKind::Server, "not found")) };
        let at = |path: &str| {
            let mut url = terms.url.clone();
            url.set_path(path);
            url.set_query(None);
            url.set_fragment(None);
            url
        };
        Ok(AuthorizationServer {
            issuer: terms.url.origin().ascii_serialization(),
            authorization_endpoint: Some(at("/authorize")),
            token_endpoint: at("/token"),
            registration_endpoint: Some(at("/register")),
            revocation_endpoint: None,
            auth_methods: None,
            scopes: Vec::new(),
            // Required of these servers, though no metadata says so.
            pkce: true,
            names_itself: false,
            client_documents: false,
        })
    }
}

impl AuthorizationServer {
    /// Reads the document. Its endpoints are judged like all addresses that a peer names.
    ///
    /// # Errors
    /// [`OAuthError::OtherIssuer`], [`OAuthError::Document`], [`OAuthError::UnsafeAddress`] and
    /// [`OAuthError::Unreachable`].
    pub fn read(terms: &LoginTerms, sought: &SoughtIssuer, document: &PeerDocument) -> Result<Self, OAuthError> {
        let issuer = document.needed("issuer")?;
        if !sought.is(terms, &issuer) {
            return Err(OAuthError::OtherIssuer);
        }
        let endpoint = |name: &'static str| {
            document.text(name)?.map(|text| terms.address(DocumentKind::Server, &text)).transpose()
        };
        let challenges = document.texts("code_challenge_methods_supported")?;
        Ok(Self {
            authorization_endpoint: endpoint("authorization_endpoint")?,
            token_endpoint: endpoint("token_endpoint")?.ok_or_else(|| document.wrong("token_endpoint"))?,
            registration_endpoint: endpoint("registration_endpoint")?,
            revocation_endpoint: endpoint("revocation_endpoint")?,
            auth_methods: document.texts("token_endpoint_auth_methods_supported")?,
            scopes: document.texts("scopes_supported")?.unwrap_or_default(),
            pkce: challenges.is_some_and(|methods| methods.iter().any(|method| method == "S256")),
            names_itself: document.is_true("authorization_response_iss_parameter_supported"),
            client_documents: document.is_true("client_id_metadata_document_supported"),
            issuer,
        })
    }
}

#[cfg(test)]
mod tests;
