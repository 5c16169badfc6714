//! The reasons why a gateway cannot be built or cannot listen.

use std::io;
use std::net::SocketAddr;
use std::path::PathBuf;

use crate::store::audit::AuditOpenError;
use crate::store::db::DbError;

/// The reason why the gateway could not be built.
#[derive(Debug, thiserror::Error)]
pub(crate) enum GatewayStartError {
    #[error("{0}")]
    Config(String),
    #[error("{key}: {}; {}", describe_bind_error(*address, source), bind_error_advice(key, *address, source))]
    Listen {
        /// The key of the configuration that sets the address.
        key: &'static str,
        address: SocketAddr,
        #[source]
        source: io::Error,
    },
    #[error("the access token in {dir}: {source}")]
    Token {
        dir: PathBuf,
        #[source]
        source: io::Error,
    },
    #[error(transparent)]
    Audit(#[from] AuditOpenError),
    #[error("{}", .0.text_at_end())]
    State(#[from] DbError),
    #[error("metrics: {0}")]
    Metrics(#[from] prometheus::Error),
}

/// Describes why an address cannot be listened on.
pub(crate) fn describe_bind_error(address: SocketAddr, error: &io::Error) -> String {
    if error.kind() == io::ErrorKind::AddrInUse {
        format!("{address} is in use by another program")
    } else {
        format!("{address}: {error}")
    }
}

/// Advises the operator about an address of the key `key` that cannot be listened on.
pub(crate) fn bind_error_advice(key: &str, address: SocketAddr, error: &io::Error) -> String {
    let other = format!("write another address in {key}");
    if error.kind() == io::ErrorKind::AddrInUse {
        format!("`ss -ltnp 'sport = :{}'` names the program: end it, or {other}", address.port())
    } else {
        other
    }
}
