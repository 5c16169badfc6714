//! Errors that can end a login. Their texts are ours: no text of a peer is in them, except an
//! origin that must be named.

use crate::wire::foreign;

/// The reason why there is no token.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum OAuthError {
    #[error("the server names its metadata at a place of its own choice, not at its own origin")]
    ForeignMetadata,
    #[error("the server publishes no metadata that says who issues its tokens; name the issuer in `issuers`")]
    NoMetadata,
    #[error("the metadata of the {0} cannot be used: {1}")]
    Document(DocumentKind, &'static str),
    #[error("the server's metadata is about another resource; if the server is right, set `resource` to its address")]
    OtherResource,
    #[error(
        "the server names {new}, but `issuers` has {pinned}; nothing was sent to the other one",
        new = server_at(.named.as_ref())
    )]
    NotPinned {
        /// The address in ASCII; `None` for a text that is no address.
        named: Option<String>,
        pinned: String,
    },
    #[error(
        "the server names {new}, but the first login was given at {old}; nothing was sent to the other one{advice}",
        new = server_at(.named.as_ref()), old = foreign::short(.first, 200), advice = advice(.named.as_ref())
    )]
    OtherThanFirst {
        /// The address in ASCII; `None` for a text that is no address.
        named: Option<String>,
        first: String,
    },
    #[error("a credential belongs to one authorization server; name it: `issuers = [\"https://login.example.com\"]`")]
    OneIssuer,
    #[error(
        "{0} leads to an address that this server may not name; a private or loopback issuer has to be in `issuers`"
    )]
    Unreachable(DocumentKind),
    #[error("the authorization server calls itself by another name than the one it was found by")]
    OtherIssuer,
    #[error("the authorization server does not offer PKCE with S256")]
    NoPkce,
    #[error("the authorization server registers no clients by itself; register headend there and set `client-id`")]
    NoRegistration,
    #[error("the authorization server refuses to register headend ({0}); register it there and set `client-id`")]
    Registration(OAuthRefusal),
    #[error("`client-id` is needed for this type of login")]
    NoClient,
    #[error("{0}")]
    Key(&'static str),
    #[error("the address of the login page has characters that do not belong into an address")]
    UnsafeAddress,
    #[error("the login page sent the browser back with an answer to another question, or a second time")]
    State,
    #[error("the answer of the login page does not name the authorization server that was asked")]
    Mixed,
    #[error("{}", denied(.0))]
    Denied(OAuthRefusal),
    #[error("the login page sent no code")]
    NoCode,
    #[error("the authorization server refuses: {0}")]
    Refused(OAuthRefusal),
    #[error("the token cannot be used: {0}")]
    Token(&'static str),
    /// No fault of the login is known: it stays as it is.
    #[error("the authorization server cannot be asked: {0}")]
    NoAnswer(AnswerFailure),
    #[error("a step was answered that was not asked")]
    OutOfTurn,
}

/// Describes the refusal of a login page in a sentence.
fn denied(refusal: &OAuthRefusal) -> String {
    if matches!(refusal, OAuthRefusal::AccessDenied) {
        "you (or the server) refused the login".to_owned()
    } else {
        format!("the login page answered: {refusal}")
    }
}

/// Returns the words for an authorization server in an error text. `named` is its address, `None`
/// if the peer named it by a text that is no usable address.
fn server_at(named: Option<&String>) -> String {
    named.map_or_else(
        || "an authorization server by a text that is no usable address".to_owned(),
        |address| format!("the authorization server {address}"),
    )
}

/// Returns the end of an error text that says how to trust the authorization server at the address
/// `named`, by adding it to `issuers`; empty for `None`.
fn advice(named: Option<&String>) -> String {
    let line =
        |address| format!(". If you trust it, write `issuers = [\"{address}\"]` in the `auth` table of the upstream");
    named.map(line).unwrap_or_default()
}

impl OAuthError {
    /// Returns whether the same request may succeed later without a change of settings or login.
    pub fn passes(&self) -> bool {
        matches!(
            self,
            Self::NoAnswer(
                AnswerFailure::Network | AnswerFailure::Late | AnswerFailure::Busy | AnswerFailure::Proxy(_)
            )
        )
    }

    /// Returns whether the server said that the grant, a refresh token or a code, is used up,
    /// revoked or expired.
    pub fn ends_grant(&self) -> bool {
        matches!(self, Self::Refused(OAuthRefusal::InvalidGrant))
    }
}

/// A document of a peer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, strum::Display)]
pub enum DocumentKind {
    #[strum(to_string = "server")]
    Resource,
    #[strum(to_string = "authorization server")]
    Server,
    #[strum(to_string = "client")]
    Registration,
    #[strum(to_string = "token")]
    Token,
}

/// The reason why a request has no answer that could be read.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum AnswerFailure {
    #[error("it cannot be reached")]
    Network,
    #[error("it does not answer in time")]
    Late,
    /// The status is 429 or 5xx.
    #[error("it has a failure of its own or asks to be left alone for a while")]
    Busy,
    #[error("its address is not one that this server may name")]
    Address,
    #[error("its certificate is not accepted")]
    Certificate,
    #[error("it redirects, which headend does not follow")]
    Redirect,
    #[error("its answer is too large")]
    TooLarge,
    #[error("its answer is not JSON")]
    NotJson,
    /// The proxy on the way gave no connection; the text names it without its credentials.
    #[error("{0}")]
    Proxy(String),
}

/// An error code of a peer. Source: RFC 6749 4.1.2.1 and 5.2, RFC 7591 3.2.2, RFC 8707 2, `OpenID`
/// Connect Core 3.1.2.6.
#[derive(Clone, Copy, Debug, PartialEq, Eq, strum::Display, strum::EnumString, strum::IntoStaticStr)]
#[strum(serialize_all = "snake_case")]
pub enum OAuthRefusal {
    InvalidRequest,
    InvalidClient,
    InvalidGrant,
    UnauthorizedClient,
    UnsupportedGrantType,
    InvalidScope,
    InvalidTarget,
    AccessDenied,
    UnsupportedResponseType,
    ServerError,
    TemporarilyUnavailable,
    InvalidRedirectUri,
    InvalidClientMetadata,
    InvalidSoftwareStatement,
    LoginRequired,
    InteractionRequired,
    ConsentRequired,
    #[strum(to_string = "an error without a known name")]
    Other,
}

impl OAuthRefusal {
    /// Returns the code that a peer's text stands for.
    pub fn of(text: &str) -> Self {
        text.parse().unwrap_or(Self::Other)
    }
}
