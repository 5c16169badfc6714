//! The `[upstreams.<name>.auth]` table: the login of the gateway at a server behind a URL.
//!
//! A server that asks for a login needs no such table: `headend login NAME` finds everything. The
//! table pins an issuer, names a client that was registered by hand, or lets the gateway log in by
//! itself (`type = "client-credentials"`, `"workload"`).

use std::path::PathBuf;

use url::Url;

use super::address::is_loopback;
use crate::source::file::{ConfigNode, ConfigTable};
use crate::source::secret;
use crate::source::secret::{MissingSecrets, Secret};

/// The login settings of one upstream.
#[derive(Clone, Debug, Default, PartialEq, serde::Serialize)]
#[serde(rename_all = "kebab-case")]
pub struct UpstreamAuth {
    #[serde(rename = "type")]
    pub kind: AuthKind,
    /// The only authorization servers that may issue tokens, as texts; empty allows the one of the
    /// first login. Exactly one if there is a credential, which is sent to no other.
    pub issuers: Vec<String>,
    pub client_id: Option<String>,
    pub client_secret: Option<Secret>,
    /// PEM text of a key that signs the client's assertions.
    pub private_key: Option<Secret>,
    /// The file in which the platform keeps the token that identifies this workload. Read for each
    /// login, since platforms renew it.
    pub assertion_file: Option<PathBuf>,
    /// The address of the operator's client metadata document, which is then the client id.
    pub client_metadata_url: Option<Url>,
    /// The scopes to request besides those that the server asks for; without a person, the only
    /// ones.
    pub scopes: Vec<String>,
    #[serde(skip)]
    pub resource: ResourceParameter,
    /// The address to which the authorization server sends the browser; `None` is the console.
    pub redirect_url: Option<Url>,
    /// PEM text of authorities to trust besides the system's, for the server and pinned issuers.
    pub ca: Option<Secret>,
    /// PEM text of headend's own certificate and its key.
    pub client_certificate: Option<Secret>,
}

/// The party that logs in.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, strum::IntoStaticStr, strum::VariantArray, serde::Serialize)]
#[strum(const_into_str, serialize_all = "kebab-case")]
#[serde(into = "&'static str")]
pub enum AuthKind {
    /// The operator, in a browser.
    #[default]
    #[strum(serialize = "oauth")]
    OAuth,
    /// The gateway, with its own secret or key.
    ClientCredentials,
    /// The gateway, with the identity that its platform gives it.
    Workload,
}

/// The certificates for connections to one upstream, and to its authorization servers: PEM texts.
#[derive(Clone, Debug, Default, PartialEq, serde::Serialize)]
#[serde(rename_all = "kebab-case")]
pub struct UpstreamCertificates {
    /// Authorities that are accepted besides the system's.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ca: Option<Secret>,
    /// The client's certificate with its key.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub client_certificate: Option<Secret>,
}

impl UpstreamCertificates {
    pub fn is_empty(&self) -> bool {
        self.ca.is_none() && self.client_certificate.is_none()
    }

    /// Reads `ca` and `client-certificate` of an upstream. `auth` may have them instead, as before
    /// they were keys of the upstream itself.
    pub(crate) fn read(
        table: &mut ConfigTable<'_>,
        is_remote: bool,
        auth: Option<&UpstreamAuth>,
        lacks: &mut MissingSecrets,
    ) -> Self {
        let (ca, certificate) = (table.take("ca"), table.take("client-certificate"));
        let of_auth = |node: &ConfigNode<'_>, other: Option<&Secret>| {
            if !is_remote {
                node.problem("belongs to `url`; a local program reads its certificates itself");
            } else if other.is_some() {
                node.problem("stands in `auth` too; keep one of the two");
            }
        };
        let [other_ca, other] =
            [auth.and_then(|auth| auth.ca.clone()), auth.and_then(|auth| auth.client_certificate.clone())];
        ca.iter().for_each(|node| of_auth(node, other_ca.as_ref()));
        certificate.iter().for_each(|node| of_auth(node, other.as_ref()));
        let ca = ca.and_then(|node| secret::read_or_lack(&node, lacks)).map(|found| found.secret);
        let client_certificate = certificate.and_then(|node| read_secret(&node, lacks));
        Self { ca: ca.or(other_ca), client_certificate: client_certificate.or(other) }
    }
}

/// The parameter that names to an authorization server the server for which the tokens are.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum ResourceParameter {
    /// The value in the server's metadata.
    #[default]
    Auto,
    /// Left out: some providers refuse it.
    Omit,
    Is(String),
}

impl ResourceParameter {
    /// Returns the word or address in the file.
    pub fn as_str(&self) -> &str {
        match self {
            Self::Auto => "auto",
            Self::Omit => "omit",
            Self::Is(uri) => uri,
        }
    }
}

/// Reads the table of an upstream with that URL. `has_credential`: the upstream sends a credential
/// of its own already.
pub(crate) fn read(
    mut table: ConfigTable<'_>,
    upstream: &Url,
    has_credential: bool,
    lacks: &mut MissingSecrets,
) -> UpstreamAuth {
    if has_credential {
        table.problem("the upstream has a credential in `headers` already; remove that one or this table");
    }
    let is_local = is_loopback(upstream);
    let kind = table.take("type").and_then(|node| node.choice()).unwrap_or_default();
    let issuers = table.take("issuers").map(|node| issuers(&node, is_local)).unwrap_or_default();
    let client_id = table.string("client-id");
    // A secret that is still missing belongs to an issuer too.
    let (secret_node, key_node) = (table.take("client-secret"), table.take("private-key"));
    let credential = match (kind, &secret_node, &key_node) {
        (_, Some(_), _) => Some("`client-secret`"),
        (_, None, Some(_)) => Some("`private-key`"),
        (AuthKind::Workload, None, None) => Some("`type = \"workload\"`"),
        (AuthKind::OAuth | AuthKind::ClientCredentials, None, None) => None,
    };
    let client_secret = secret_node.and_then(|node| read_secret(&node, lacks));
    let private_key = key_node.and_then(|node| read_secret(&node, lacks));
    let assertion_file = table.take("assertion-file").and_then(|node| absolute(&node));
    let client_metadata_url = table.take("client-metadata-url").and_then(|node| metadata_url(&node));
    let redirect_url = table.take("redirect-url").and_then(|node| redirect_url(&node));
    let scopes = table.take("scopes").map(|node| scopes(&node)).unwrap_or_default();
    let resource = table.take("resource").and_then(|node| resource(&node)).unwrap_or_default();
    let ca = table.take("ca").and_then(|node| secret::read_or_lack(&node, lacks)).map(|found| found.secret);
    let client_certificate = table.take("client-certificate").and_then(|node| read_secret(&node, lacks));
    let has_key = client_secret.is_some() || private_key.is_some();
    if client_secret.is_some() && private_key.is_some() {
        table.problem("has both `client-secret` and `private-key`; a client proves itself with one of them");
    }
    if client_secret.is_some() && client_id.is_none() {
        table.problem("`client-secret` belongs to a `client-id`");
    }
    if private_key.is_some() && client_id.is_none() && client_metadata_url.is_none() {
        table.problem("`private-key` belongs to a `client-id` or a `client-metadata-url`");
    }
    if client_id.is_some() && client_metadata_url.is_some() {
        table.problem("has both `client-id` and `client-metadata-url`; the address of the document is the client id");
    }
    // A missing secret is reported already, and the upstream is not started.
    if kind == AuthKind::ClientCredentials && (client_id.is_none() || (!has_key && lacks.found.is_empty())) {
        table.problem("`type = \"client-credentials\"` needs `client-id` and `client-secret` or `private-key`");
    }
    if kind == AuthKind::Workload && (client_id.is_none() || assertion_file.is_none()) {
        table.problem("`type = \"workload\"` needs `client-id` and `assertion-file`");
    }
    if let Some(credential) = credential.filter(|_| issuers.len() != 1) {
        table.problem(format!(
            "{credential} needs `issuers` with one authorization server, the one that knows this client: \
             `issuers = [\"https://login.example.com\"]`"
        ));
    }
    if kind != AuthKind::Workload && assertion_file.is_some() {
        table.problem("`assertion-file` belongs to `type = \"workload\"`");
    }
    table.finish();
    UpstreamAuth {
        kind,
        issuers,
        client_id,
        client_secret,
        private_key,
        assertion_file,
        client_metadata_url,
        scopes,
        resource,
        redirect_url,
        ca,
        client_certificate,
    }
}

/// Reads an absolute path.
fn absolute(node: &ConfigNode<'_>) -> Option<PathBuf> {
    let path = PathBuf::from(node.string()?);
    if !path.is_absolute() {
        node.problem("must be an absolute path");
    }
    Some(path)
}

/// Reads a secret, or notes in `lacks` that it is missing; warns if it stands in the file itself.
fn read_secret(node: &ConfigNode<'_>, lacks: &mut MissingSecrets) -> Option<Secret> {
    let found = secret::read_or_lack(node, lacks)?.expanded(node, lacks);
    if found.literal {
        secret::warn_of_literal(node);
    }
    Some(found.secret)
}

/// Reads the issuers; an `http` one is accepted on this machine, for a server on this machine
/// (`is_local`).
fn issuers(node: &ConfigNode<'_>, is_local: bool) -> Vec<String> {
    let wanted = "a list of issuers such as \"https://login.example.com\"";
    let items = node.items(wanted).unwrap_or_default();
    let issuer = |item: &ConfigNode<'_>| {
        let text = item.string()?;
        let url = Url::parse(&text).ok();
        let is_usable = |url: &Url| url.scheme() == "https" || (is_local && url.scheme() == "http" && is_loopback(url));
        let is_plain = |url: &Url| is_bare(url) && url.query().is_none();
        if !url.is_some_and(|url| is_usable(&url) && is_plain(&url)) {
            item.problem(
                "must be an https:// URL without user, query and `#`, as the authorization server writes its `issuer`",
            );
        }
        Some(text)
    };
    items.iter().filter_map(issuer).collect()
}

/// Reports whether a URL has neither user nor fragment.
pub(crate) fn is_bare(url: &Url) -> bool {
    url.username().is_empty() && url.password().is_none() && url.fragment().is_none()
}

fn metadata_url(node: &ConfigNode<'_>) -> Option<Url> {
    let url = Url::parse(&node.string()?).ok();
    let usable = |url: &Url| url.scheme() == "https" && is_bare(url) && url.path().len() > 1;
    if !url.as_ref().is_some_and(usable) {
        node.problem("must be an https:// URL with a path, at which your client metadata document lies");
    }
    url
}

fn redirect_url(node: &ConfigNode<'_>) -> Option<Url> {
    let url = Url::parse(&node.string()?).ok();
    let usable = |url: &Url| (url.scheme() == "https" || (url.scheme() == "http" && is_loopback(url))) && is_bare(url);
    if !url.as_ref().is_some_and(usable) {
        node.problem(
            "must be an https:// URL, or http:// on this machine, as it is registered with the authorization server",
        );
    }
    url
}

fn scopes(node: &ConfigNode<'_>) -> Vec<String> {
    let items = node.items("a list of scopes such as \"mcp:read\"").unwrap_or_default();
    let scope = |item: &ConfigNode<'_>| {
        let text = item.string()?;
        let is_token = |c: char| c.is_ascii_graphic() && !matches!(c, '"' | '\\');
        if text.is_empty() || !text.chars().all(is_token) {
            item.problem("must be one scope: visible ASCII characters without spaces, `\"` and `\\`");
        }
        Some(text)
    };
    items.iter().filter_map(scope).collect()
}

fn resource(node: &ConfigNode<'_>) -> Option<ResourceParameter> {
    let text = node.string()?;
    Some(match text.as_str() {
        "auto" => ResourceParameter::Auto,
        "omit" => ResourceParameter::Omit,
        _ => {
            if !Url::parse(&text).is_ok_and(|url| url.fragment().is_none()) {
                node.problem("must be \"auto\", \"omit\" or the URI that the authorization server knows the server by");
            }
            ResourceParameter::Is(text)
        }
    })
}
