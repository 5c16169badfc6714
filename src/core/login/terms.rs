//! The operator's terms for the login of one upstream, and the addresses that documents of peers
//! may name under them.

use std::sync::Arc;

use url::Url;

use super::assertion::SigningKey;
use super::error::{DocumentKind, OAuthError};
use super::hidden::SecretText;
use crate::mcp::version::Revision;
use crate::wire::foreign;
use crate::wire::reach::{Reach, is_loopback};

/// Longest address of an issuer in a sentence for the operator, in bytes.
const MAX_SHOWN: usize = 200;

/// The settings of `[upstreams.NAME.auth]` that a login needs, and what is known of the upstream.
#[derive(Clone, Debug)]
pub struct LoginTerms {
    /// The upstream's URL in the configuration.
    pub url: Url,
    /// Issuers that the operator pins, as text. If there are none, any issuer is allowed that the
    /// server names, or `first_issuer` alone.
    pub issuers: Vec<String>,
    /// Issuer of the first login at this upstream, from the store. It counts while `issuers` is
    /// empty.
    pub first_issuer: Option<String>,
    /// True if headend logs in by itself, with a credential of the configuration or of its
    /// platform.
    pub is_unattended: bool,
    pub client: Option<ConfiguredClient>,
    /// Address at which the operator serves headend's client id metadata document.
    pub client_metadata_url: Option<String>,
    /// Scopes that are always asked for.
    pub scopes: Vec<String>,
    pub resource: ResourceRule,
    /// Address to which the login page sends the browser.
    pub redirect_url: String,
    /// The upstream's revision, if an earlier handshake got so far.
    pub revision: Option<Revision>,
}

/// A client that the operator registered by hand.
#[derive(Clone, Debug)]
pub struct ConfiguredClient {
    pub id: String,
    pub secret: Option<SecretText>,
    pub key: Option<Arc<SigningKey>>,
}

impl ConfiguredClient {
    /// Returns whether the client proves itself with a secret or a key.
    fn has_credential(&self) -> bool {
        self.secret.is_some() || self.key.is_some()
    }
}

/// The rule for the parameter `resource` of requests.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum ResourceRule {
    /// As the server publishes it.
    #[default]
    Auto,
    /// Left out: some providers refuse it.
    Omit,
    /// The operator's own text.
    Is(String),
}

impl LoginTerms {
    /// Returns which addresses the host of a URL that a peer named may have; `None` if nothing may
    /// be sent to the URL.
    ///
    /// `http` is for this machine alone, and only if the upstream is on this machine too. Such an
    /// upstream can name only this machine and issuers that the operator pinned.
    pub fn reach(&self, url: &Url) -> Option<Reach> {
        let is_own = url.origin() == self.url.origin();
        let is_pinned = || self.pins().any(|pin| pin.origin() == url.origin());
        let reach = match (url.scheme(), is_loopback(url), is_loopback(&self.url)) {
            ("http" | "https", true, true) => Reach::Loopback,
            ("https", true, false) if is_pinned() => Reach::Loopback,
            ("https", false, _) if is_own || is_pinned() => Reach::Private,
            ("https", false, false) => Reach::Public,
            _ => return None,
        };
        reach.admits_host(url).then_some(reach)
    }

    /// Parses an address in a document, and checks that it may be asked.
    ///
    /// # Errors
    /// [`OAuthError::UnsafeAddress`] and [`OAuthError::Unreachable`].
    pub(super) fn address(&self, which: DocumentKind, text: &str) -> Result<Url, OAuthError> {
        let url = parse_plain_url(text).ok_or(OAuthError::UnsafeAddress)?;
        self.reach(&url).ok_or(OAuthError::Unreachable(which))?;
        Ok(url)
    }

    /// Checks that the operator wants a login at this issuer. Nothing is sent to an issuer before
    /// this check.
    ///
    /// A credential belongs to one issuer, which the configuration names: otherwise any issuer that
    /// the server names would get the credential.
    ///
    /// # Errors
    /// [`OAuthError::OneIssuer`] if a credential has no issuer of its own or several,
    /// [`OAuthError::NotPinned`], and [`OAuthError::OtherThanFirst`].
    pub fn check_issuer(&self, issuer: &str) -> Result<(), OAuthError> {
        let has_credential = self.is_unattended || self.client.as_ref().is_some_and(ConfiguredClient::has_credential);
        if has_credential && self.issuers.len() != 1 {
            return Err(OAuthError::OneIssuer);
        }
        match (self.issuers.as_slice(), &self.first_issuer) {
            ([], Some(first)) if !same_issuer(first, issuer) => Err(other_than_first(issuer, first)),
            ([], _) => Ok(()),
            (pins, _) if pins.iter().any(|pin| same_issuer(pin, issuer)) => Ok(()),
            (pins, _) => Err(OAuthError::NotPinned { named: shown_issuer(issuer), pinned: pins.join(", ") }),
        }
    }

    /// Returns the first issuer of a server's list that [`Self::check_issuer`] admits.
    ///
    /// # Errors
    /// As [`Self::check_issuer`], for the first issuer of the list.
    pub(super) fn issuer(&self, listed: &[String]) -> Result<String, OAuthError> {
        let admitted = listed.iter().find(|issuer| self.check_issuer(issuer).is_ok());
        let first = admitted.or(listed.first()).ok_or(OAuthError::NoMetadata)?;
        self.check_issuer(first).map(|()| first.clone())
    }

    /// Returns the pinned issuers that are usable addresses.
    fn pins(&self) -> impl Iterator<Item = Url> + '_ {
        self.issuers.iter().filter_map(|issuer| parse_plain_url(issuer))
    }
}

/// Returns the error for a login at another issuer than that of the first login.
pub fn other_than_first(named: &str, first: &str) -> OAuthError {
    OAuthError::OtherThanFirst { named: shown_issuer(named), first: first.to_owned() }
}

/// Returns the address of an issuer that a server names, in ASCII, as an operator may be shown it
/// and write it. `None` for a text that is no address of a usual length.
fn shown_issuer(text: &str) -> Option<String> {
    let url = parse_plain_url(text)?;
    let shown = if is_bare(&url) { url.as_str().trim_end_matches('/') } else { url.as_str() };
    (shown.len() <= MAX_SHOWN).then(|| shown.to_owned())
}

/// Returns whether two texts name one issuer. They must be equal, but for the slash that a URL
/// parser adds to a bare host: servers whose library parses the issuer publish it with that slash,
/// while the issuer itself has none (RFC 3986, 6.2.3: the two are one address). A text with letters
/// outside ASCII equals its address in ASCII.
pub(super) fn same_issuer(one: &str, other: &str) -> bool {
    let without = |text: &str| text.strip_suffix('/').unwrap_or(text).to_owned();
    let is_bare = || parse_plain_url(one).is_some_and(|url| is_bare(&url));
    let has_other_letters = || !one.is_ascii() || !other.is_ascii();
    let is_one_address = || parse_plain_url(one).is_some_and(|url| parse_plain_url(other) == Some(url));
    one == other || (without(one) == without(other) && is_bare()) || (has_other_letters() && is_one_address())
}

/// Returns whether a URL has no path but `/` and no query after its host and port.
fn is_bare(url: &Url) -> bool {
    url.path() == "/" && url.query().is_none()
}

/// Parses a URL that all parsers read alike: without characters that some of them drop or turn
/// round, without a user or a fragment, and without characters that a shell interprets, since
/// people copy addresses into one.
pub fn parse_plain_url(text: &str) -> Option<Url> {
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-._~:/?@!*+,=&%[]".contains(&byte);
    // Letters outside ASCII are judged once they are encoded; hidden characters are refused here.
    if text.contains(foreign::is_hidden) || !text.bytes().all(|byte| !byte.is_ascii() || is_plain(byte)) {
        return None;
    }
    let url = Url::parse(text).ok()?;
    let has_user = !url.username().is_empty() || url.password().is_some();
    let is_web = matches!(url.scheme(), "https" | "http") && url.host_str().is_some_and(|host| !host.is_empty());
    (url.as_str().bytes().all(is_plain) && is_web && !has_user && url.fragment().is_none()).then_some(url)
}
