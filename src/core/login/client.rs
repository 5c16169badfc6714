//! The identity of headend at one authorization server, and how requests prove it.

use std::sync::Arc;

use data_encoding::BASE64;
use serde::{Deserialize, Serialize};

pub use super::assertion::AssertionMoment;
use super::assertion::{ClientAssertion, SigningKey};
use super::error::OAuthError;
use super::hidden::SecretText;
use super::request::FormBody;
use super::server::AuthorizationServer;
pub use super::terms::ConfiguredClient;

/// A client that headend registered by itself, at one issuer only.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ClientRegistration {
    pub issuer: String,
    /// Redirect address that the client was registered for.
    pub redirect_url: String,
    /// Scopes that the client was registered for. Servers grant it no others.
    #[serde(default)]
    pub scopes: Vec<String>,
    pub id: String,
    pub secret: Option<SecretText>,
    /// The `token_endpoint_auth_method` that the server answered.
    pub method: Option<String>,
    /// Expiry of the secret, in seconds since 1970.
    pub expires: Option<u64>,
}

impl ClientRegistration {
    /// Returns whether the registration can be used for such a login.
    pub fn fits(&self, issuer: &str, redirect_url: &str, scopes: &[String], now: u64) -> bool {
        let is_there = self.issuer == issuer && self.redirect_url == redirect_url;
        is_there && self.expires.is_none_or(|end| now < end) && scopes.iter().all(|scope| self.scopes.contains(scope))
    }
}

/// A client at one authorization server.
#[derive(Clone, Debug)]
pub struct OAuthClient {
    pub id: String,
    proof: ClientProof,
}

/// The method by which a client authenticates.
#[derive(Clone, Debug)]
enum ClientProof {
    /// No method: a public client.
    None,
    /// A secret in the `Authorization` header.
    Basic(SecretText),
    /// A secret in the form.
    Post(SecretText),
    /// An assertion that is signed with a key.
    Key(Arc<SigningKey>),
}

impl OAuthClient {
    /// Returns the operator's client.
    pub fn configured(client: &ConfiguredClient, server: &AuthorizationServer) -> Self {
        let proof = match (&client.key, &client.secret) {
            (Some(key), _) => ClientProof::Key(Arc::clone(key)),
            (None, secret) => ClientProof::of(secret.as_ref(), None, server),
        };
        Self { id: client.id.clone(), proof }
    }

    /// Returns a client that headend registered.
    pub fn registered(registration: &ClientRegistration, server: &AuthorizationServer) -> Self {
        let proof = ClientProof::of(registration.secret.as_ref(), registration.method.as_deref(), server);
        Self { id: registration.id.clone(), proof }
    }

    /// Returns the client whose id is the address of its metadata document.
    pub fn documented(url: &str) -> Self {
        Self { id: url.to_owned(), proof: ClientProof::None }
    }

    /// Adds the client's id and its proof to a form. Returns the value of `Authorization` if the
    /// proof belongs there.
    ///
    /// # Errors
    /// [`OAuthError::Key`].
    pub(super) fn prove(
        &self,
        form: &mut FormBody,
        server: &AuthorizationServer,
        moment: AssertionMoment,
    ) -> Result<Option<SecretText>, OAuthError> {
        match &self.proof {
            ClientProof::None => form.add("client_id", &self.id),
            ClientProof::Basic(secret) => {
                // Servers on the Python SDK want the id in the form too.
                form.add("client_id", &self.id);
                return Ok(Some(basic(&self.id, secret)));
            }
            ClientProof::Post(secret) => {
                form.add("client_id", &self.id);
                form.add("client_secret", secret.expose());
            }
            ClientProof::Key(key) => {
                let assertion = ClientAssertion { client: &self.id, audience: &server.issuer, moment };
                form.add("client_id", &self.id);
                form.add("client_assertion_type", "urn:ietf:params:oauth:client-assertion-type:jwt-bearer");
                form.add("client_assertion", key.sign(&assertion)?.expose());
            }
        }
        Ok(None)
    }
}

impl ClientProof {
    /// Chooses the registered method, else the first of ours that the server offers. Basic is the
    /// default of RFC 8414.
    fn of(secret: Option<&SecretText>, registered: Option<&str>, server: &AuthorizationServer) -> Self {
        let Some(secret) = secret else { return Self::None };
        let offers = |method: &str| match &server.auth_methods {
            Some(offered) => offered.iter().any(|one| one == method),
            None => method == "client_secret_basic",
        };
        let method = registered.or_else(|| {
            ["client_secret_basic", "client_secret_post", "none"].into_iter().find(|method| offers(method))
        });
        match method {
            Some("none") => Self::None,
            Some("client_secret_post") => Self::Post(secret.clone()),
            Some(_) | None => Self::Basic(secret.clone()),
        }
    }
}

/// Returns the value of `Authorization` for a secret. Source: RFC 6749, 2.3.1: both parts are
/// form-encoded before they are joined.
fn basic(id: &str, secret: &SecretText) -> SecretText {
    let encode = |text: &str| url::form_urlencoded::byte_serialize(text.as_bytes()).collect::<String>();
    let pair = SecretText::new(format!("{}:{}", encode(id), encode(secret.expose())));
    SecretText::new(format!("Basic {}", BASE64.encode(pair.expose().as_bytes())))
}
