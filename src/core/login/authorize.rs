//! The login page where a person agrees, and the call-back from it: state, PKCE, and the check that
//! the call-back answers this login.
//!
//! Source: RFC 6749, 4.1; RFC 7636; RFC 9207; MCP 2026-07-28, authorization, "Authorization
//! Response Validation".

use std::fmt;

use data_encoding::BASE64URL_NOPAD;
use subtle::ConstantTimeEq as _;
use url::Url;

use super::client::OAuthClient;
use super::error::{OAuthError, OAuthRefusal};
use super::hidden::SecretText;
use super::scope::OFFLINE;
use super::server::AuthorizationServer;
use crate::wire::digest::Digest;

/// Longest query of a call-back that is read, in bytes.
const MAX_QUERY: usize = 16 * 1024;

/// The random bytes of one login.
#[derive(Clone)]
pub struct LoginRandomness {
    pub state: [u8; 32],
    pub verifier: [u8; 32],
    pub nonce: [u8; 16],
    /// Id of the client's assertion in the token request.
    pub once: [u8; 16],
}

impl fmt::Debug for LoginRandomness {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Chance(***)")
    }
}

/// A login that waits for its person at the login page.
#[derive(Clone, Debug)]
pub struct PendingAuthorization {
    /// The address to open, for people: ASCII, without characters that a shell interprets.
    pub url: Url,
    /// The key by which the call-back is found. It can be used once.
    pub state: SecretText,
    /// The PKCE code verifier.
    pub(super) verifier: SecretText,
    /// The value that an id token must repeat.
    pub(super) nonce: Option<String>,
}

/// The parts of an authorization request that do not come from the server.
#[derive(Debug)]
pub(super) struct AuthorizationRequest<'a> {
    pub(super) client: &'a OAuthClient,
    pub(super) redirect_url: &'a str,
    pub(super) resource: Option<&'a str>,
    pub(super) scopes: &'a [String],
}

impl PendingAuthorization {
    /// Makes the address of the login page, with the secrets that its call-back is judged by.
    ///
    /// # Errors
    /// [`OAuthError::NoPkce`], [`OAuthError::Document`].
    pub(super) fn new(
        server: &AuthorizationServer,
        wish: &AuthorizationRequest<'_>,
        chance: &LoginRandomness,
    ) -> Result<Self, OAuthError> {
        if !server.pkce {
            return Err(OAuthError::NoPkce);
        }
        let missing = OAuthError::Document(super::error::DocumentKind::Server, "authorization_endpoint");
        let mut url = server.authorization_endpoint.clone().ok_or(missing)?;
        let state = BASE64URL_NOPAD.encode(&chance.state);
        let verifier = BASE64URL_NOPAD.encode(&chance.verifier);
        let scope = wish.scopes.join(" ");
        let has = |name: &str| wish.scopes.iter().any(|scope| scope == name);
        // Some servers of OpenID Connect insist on a nonce.
        let nonce = has("openid").then(|| BASE64URL_NOPAD.encode(&chance.nonce));
        {
            let mut query = url.query_pairs_mut();
            query.append_pair("response_type", "code").append_pair("client_id", &wish.client.id);
            query.append_pair("redirect_uri", wish.redirect_url).append_pair("state", &state);
            query.append_pair("code_challenge", &challenge(&verifier)).append_pair("code_challenge_method", "S256");
            if !scope.is_empty() {
                query.append_pair("scope", &scope);
            }
            if let Some(resource) = wish.resource {
                query.append_pair("resource", resource);
            }
            if let Some(nonce) = &nonce {
                query.append_pair("nonce", nonce);
            }
            // Otherwise such a server gives no refresh token. Source: OpenID Connect Core, 11.
            if has(OFFLINE) {
                query.append_pair("prompt", "consent");
            }
        }
        Ok(Self { url, state: SecretText::new(state), verifier: SecretText::new(verifier), nonce })
    }

    /// Checks that a browser's call-back belongs to this login and is an answer of `server`, and
    /// returns its code.
    ///
    /// # Errors
    /// [`OAuthError::State`], [`OAuthError::Mixed`], [`OAuthError::Denied`],
    /// [`OAuthError::NoCode`]. The error of an answer from elsewhere is not looked at.
    pub(super) fn returned(
        &self,
        server: &AuthorizationServer,
        callback: &LoginCallback,
    ) -> Result<SecretText, OAuthError> {
        let state = callback.state.as_ref().ok_or(OAuthError::State)?;
        if !bool::from(state.expose().as_bytes().ct_eq(self.state.expose().as_bytes())) {
            return Err(OAuthError::State);
        }
        match &callback.iss {
            Some(iss) if *iss != server.issuer => return Err(OAuthError::Mixed),
            None if server.names_itself => return Err(OAuthError::Mixed),
            Some(_) | None => {}
        }
        if let Some(error) = callback.error {
            return Err(OAuthError::Denied(error));
        }
        callback.code.clone().ok_or(OAuthError::NoCode)
    }
}

/// The query of a call-back.
#[derive(Clone, Debug, Default)]
pub struct LoginCallback {
    /// Key of the login that the call-back belongs to.
    pub state: Option<SecretText>,
    code: Option<SecretText>,
    iss: Option<String>,
    error: Option<OAuthRefusal>,
}

impl LoginCallback {
    /// Reads a query, without the question mark. A repeated parameter makes the whole query void.
    /// Source: RFC 6749, 3.1.
    pub fn of_query(query: &str) -> Self {
        let mut read = Self::default();
        if query.len() > MAX_QUERY {
            return read;
        }
        for (name, value) in url::form_urlencoded::parse(query.as_bytes()) {
            let value = value.into_owned();
            let was_there = match &*name {
                "state" => read.state.replace(SecretText::new(value)).is_some(),
                "code" => read.code.replace(SecretText::new(value)).is_some(),
                "iss" => read.iss.replace(value).is_some(),
                "error" => read.error.replace(OAuthRefusal::of(&value)).is_some(),
                _ => false,
            };
            if was_there {
                return Self::default();
            }
        }
        read
    }

    /// Reads a text that a person pasted: the whole address, or its query alone.
    pub fn of_pasted(text: &str) -> Self {
        let text = text.trim();
        let query = text.split_once('?').map_or(text, |(_, query)| query);
        Self::of_query(query.split('#').next().unwrap_or_default())
    }
}

/// Returns the PKCE challenge of a verifier. Source: RFC 7636, 4.2.
fn challenge(verifier: &str) -> String {
    BASE64URL_NOPAD.encode(Digest::of(verifier.as_bytes()).bytes())
}

#[cfg(test)]
mod tests;
