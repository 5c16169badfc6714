//! Everything that logins of all upstreams share, and the settings of one upstream for a login.

use std::sync::{Arc, OnceLock};

use url::Url;

use crate::base::clock;
use crate::catalog::name::UpstreamName;
use crate::config::source::guard;
use crate::config::{AuthKind, ProxySettings, ResourceParameter, UpstreamAuth, UpstreamSettings, UpstreamTarget};
use crate::login::assertion::SigningKey;
use crate::login::authorize::LoginRandomness;
use crate::login::client::ConfiguredClient;
use crate::login::flow::LoginKind;
use crate::login::hidden::SecretText;
use crate::login::terms::{LoginTerms, ResourceRule};
use crate::policy::AuditEntry;
use crate::store::audit::AuditLog;
use crate::store::logins::Logins;
use crate::upstream::login::fetcher::Fetcher;
use crate::upstream::net::client::HttpClient;
use crate::upstream::net::trust::Certificates;

/// The call-back address while there is no console: no page answers there, and the person pastes
/// the address.
const NOWHERE: &str = "http://127.0.0.1:8628/oauth/callback";

/// The services that the logins of all upstreams share. Clones share them.
#[derive(Clone, Debug)]
pub struct LoginServices {
    /// The store of logins; `None` if nothing is stored.
    pub logins: Option<Logins>,
    /// The console's call-back address, once the console listens.
    pub callback: Arc<OnceLock<String>>,
    audit: AuditLog,
}

impl LoginServices {
    pub fn new(logins: Option<Logins>, audit: AuditLog) -> Self {
        Self { logins, callback: Arc::default(), audit }
    }

    /// Writes an audit record; `why` must contain no secret.
    pub fn record(&self, result: &'static str, upstream: &UpstreamName, why: &str) {
        // The event has happened already, so no request waits for its record.
        drop(self.audit.record(entry(result, upstream, why), false));
    }

    /// Writes the audit record of a login and waits until it is on disk, before which the login
    /// does not count; `why` must contain no secret.
    ///
    /// # Errors
    /// A sentence for the operator.
    pub async fn record_login(&self, upstream: &UpstreamName, why: &str) -> Result<(), String> {
        let not_kept = |error| format!("the login is not kept: {error}");
        let slot = self.audit.reserve().await.map_err(not_kept)?;
        slot.written(entry("login", upstream, why)).await.map_err(not_kept)
    }
}

fn entry(result: &'static str, upstream: &UpstreamName, why: &str) -> AuditEntry {
    AuditEntry::gateway(result, format!("{upstream}: {why}"))
}

/// The login settings of one upstream.
#[derive(Debug)]
pub struct LoginSettings {
    url: Url,
    auth: UpstreamAuth,
    proxy: ProxySettings,
    /// The key that signs for the client, or the reason why it cannot be used; `None` without a
    /// key.
    key: Option<Result<Arc<SigningKey>, String>>,
    /// The certificates, or the reason why they cannot be used.
    trust: Result<Arc<Certificates>, String>,
    /// True if the upstream has certificates of its own.
    has_own: bool,
}

impl LoginSettings {
    /// Reads the settings of an upstream behind a URL whose configuration has no credential.
    pub fn of(spec: &UpstreamSettings) -> Option<Self> {
        let UpstreamTarget::Http { url, .. } = &spec.target else { return None };
        if spec.target.has_credential() {
            return None;
        }
        let auth = spec.auth.clone().unwrap_or_default();
        let key = auth.private_key.as_ref().map(|pem| {
            SigningKey::parse(pem.expose()).map(Arc::new).map_err(|error| format!("`private-key`: {error}"))
        });
        let trust = Certificates::of(&spec.certificates).map(Arc::new);
        let has_own = !spec.certificates.is_empty();
        Some(Self { url: url.clone(), auth, proxy: spec.proxy.clone(), key, trust, has_own })
    }

    pub fn kind(&self) -> AuthKind {
        self.auth.kind
    }

    /// Returns the scopes of the configuration.
    pub fn scopes(&self) -> &[String] {
        &self.auth.scopes
    }

    /// Returns how the gateway logs in without a person.
    ///
    /// # Errors
    /// The token of the platform cannot be read; a sentence for the operator.
    pub async fn own_kind(&self) -> Result<LoginKind, String> {
        let Some(path) = self.auth.assertion_file.clone() else { return Ok(LoginKind::ClientCredentials) };
        let shown = path.display().to_string();
        let read = tokio::task::spawn_blocking(move || guard::read(&path)).await.map_err(|error| error.to_string())?;
        let text = read.map_err(|error| format!("`assertion-file`: read {shown}: {error}"))?;
        Ok(LoginKind::Workload(SecretText::new(text.trim_end().to_owned())))
    }

    /// Creates the client for documents and tokens. If the certificates cannot be used, there are
    /// no terms and therefore no requests.
    pub fn fetcher(&self) -> Fetcher {
        Fetcher::new(self.trust.clone().unwrap_or_default(), self.proxy.clone())
    }

    /// Creates the client for requests to the upstream itself, if it needs its own certificates.
    ///
    /// # Errors
    /// A sentence for the operator.
    pub fn client(&self) -> Result<Option<HttpClient>, String> {
        let trust = self.trust.as_ref().map_err(Clone::clone)?;
        if self.has_own { HttpClient::of(trust).map(Some) } else { Ok(None) }
    }

    /// Returns the terms of a login that starts now.
    ///
    /// # Errors
    /// A sentence for the operator.
    pub fn terms(&self, parts: &LoginServices) -> Result<LoginTerms, String> {
        let auth = &self.auth;
        self.trust.as_ref().map_err(Clone::clone)?;
        let key = self.key.clone().transpose()?;
        let secret = auth.client_secret.as_ref().map(|secret| SecretText::new(secret.expose().to_owned()));
        let client = auth.client_id.clone().map(|id| ConfiguredClient { id, secret, key });
        let redirect_url = match (&auth.redirect_url, parts.callback.get()) {
            (Some(url), _) => url.to_string(),
            (None, Some(own)) => own.clone(),
            (None, None) => NOWHERE.to_owned(),
        };
        Ok(LoginTerms {
            url: self.url.clone(),
            issuers: auth.issuers.clone(),
            first_issuer: None,
            is_unattended: auth.kind != AuthKind::OAuth,
            client,
            client_metadata_url: auth.client_metadata_url.as_ref().map(Url::to_string),
            scopes: auth.scopes.clone(),
            resource: match &auth.resource {
                ResourceParameter::Auto => ResourceRule::Auto,
                ResourceParameter::Omit => ResourceRule::Omit,
                ResourceParameter::Is(uri) => ResourceRule::Is(uri.clone()),
            },
            redirect_url,
            revision: None,
        })
    }
}

/// Draws the random values for one login.
pub fn chance() -> LoginRandomness {
    LoginRandomness { state: clock::random(), verifier: clock::random(), nonce: clock::random(), once: clock::random() }
}
