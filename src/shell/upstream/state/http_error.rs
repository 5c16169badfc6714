//! The failure of an exchange with an upstream over HTTP.

use http::StatusCode;

use crate::engine::failure::ExecutionDoubt;
use crate::upstream::state::standing::CredentialStanding;

/// The failure of an exchange with an upstream outside of calls: probing, lists, streams.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum HttpError {
    /// No connection: nothing was sent.
    Connect(String),
    /// This process may open no more connections: nothing was sent, and nothing is known of the
    /// server.
    NoDescriptor(String),
    /// The connection broke after the request was sent.
    Broken(String),
    /// HTTP 401 or 403: the server wants other credentials and has not looked at the message.
    Unadmitted(CredentialStanding, StatusCode),
    /// The login cannot be renewed at the moment: nothing was sent, and nothing is known of the
    /// server.
    NoToken(String),
    /// HTTP 403: the server wants scopes that headend does not ask for by itself, and has not
    /// looked at the message.
    MoreScopes(String),
    Status(StatusCode),
    /// The server redirects to where nothing is sent: it has not looked at the message.
    Elsewhere(String),
    Protocol(String),
    /// There was no room for the message: for the request, or for the answer.
    NoRoom(ExecutionDoubt),
}

impl HttpError {
    /// Whether it says that the server is not there or does not work, rather than something about
    /// one message.
    pub fn is_of_a_dead_server(&self) -> bool {
        match self {
            Self::Connect(_) | Self::Broken(_) => true,
            Self::Status(status) => status.is_server_error(),
            Self::NoDescriptor(_)
            | Self::NoToken(_)
            | Self::Unadmitted(..)
            | Self::MoreScopes(_)
            | Self::Elsewhere(_)
            | Self::Protocol(_)
            | Self::NoRoom(_) => false,
        }
    }

    /// Whether a call that failed so may still run: no answer to it was read, and no refusal. What
    /// stands before a server answers 502 and 504 for it.
    pub fn may_run(&self) -> bool {
        match self {
            Self::Broken(_) | Self::Protocol(_) | Self::NoRoom(_) => true,
            Self::Status(status) => status.is_server_error() && *status != StatusCode::SERVICE_UNAVAILABLE,
            Self::Connect(_)
            | Self::NoDescriptor(_)
            | Self::NoToken(_)
            | Self::Unadmitted(..)
            | Self::Elsewhere(_)
            | Self::MoreScopes(_) => false,
        }
    }
}

impl std::fmt::Display for HttpError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Connect(why) | Self::NoDescriptor(why) => write!(f, "connect: {why}"),
            Self::Broken(why) => write!(f, "connection broken: {why}"),
            Self::Unadmitted(CredentialStanding::Refused | CredentialStanding::Admitted, status) => {
                write!(f, "the server refuses the gateway's credentials with HTTP status {status}")
            }
            Self::Unadmitted(CredentialStanding::NeedsLogin, status) => {
                write!(f, "the server wants a login (HTTP status {status})")
            }
            Self::Unadmitted(CredentialStanding::LoginExpired, _) => {
                f.write_str("the login has expired or was revoked")
            }
            Self::NoToken(why) | Self::MoreScopes(why) | Self::Elsewhere(why) => f.write_str(why),
            Self::Status(status) => write!(f, "HTTP status {status}"),
            Self::Protocol(why) => f.write_str(why),
            Self::NoRoom(_) => f.write_str("no room for the message"),
        }
    }
}
