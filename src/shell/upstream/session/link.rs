//! The link to a running upstream, or the state of a lane without one.

use std::sync::Arc;
use std::time::Instant;

use crate::engine::handshake::HandshakeAgreement;
use crate::mcp::log::SessionLogLevel;
use crate::telemetry::upstream_state::UpstreamState;
use crate::upstream::http::exchange::HttpLink;
use crate::upstream::line::link::StdioLink;

/// The state of a lane.
#[derive(Clone, Debug)]
pub enum LinkState {
    /// Lazy and at rest: nothing needs it.
    Idle,
    Starting,
    Ready(UpstreamLink),
    Down {
        /// Time of the next start.
        until: Instant,
    },
    Stopped,
}

impl From<&LinkState> for UpstreamState {
    fn from(state: &LinkState) -> Self {
        match state {
            LinkState::Idle => Self::Idle,
            LinkState::Starting => Self::Starting,
            LinkState::Ready(_) => Self::Ready,
            LinkState::Down { .. } => Self::Down,
            LinkState::Stopped => Self::Stopped,
        }
    }
}

/// A connection to a running upstream that takes calls.
#[derive(Clone, Debug)]
pub enum UpstreamLink {
    Stdio(StdioLink),
    Http(Arc<HttpLink>),
}

impl UpstreamLink {
    /// Returns the log level that the server was asked for.
    pub fn logs(&self) -> &SessionLogLevel {
        match self {
            Self::Stdio(link) => &link.logs,
            Self::Http(link) => &link.logs,
        }
    }

    /// Returns whether the link accepts calls; `false` between the end of a child's task and the
    /// next state of its upstream.
    pub fn is_open(&self) -> bool {
        match self {
            Self::Stdio(link) => link.is_open(),
            Self::Http(_) => true,
        }
    }

    /// Returns whether other replicas use the program too.
    pub fn is_shared(&self) -> bool {
        matches!(self, Self::Stdio(link) if link.is_shared())
    }

    pub fn agreed(&self) -> HandshakeAgreement {
        match self {
            Self::Stdio(link) => link.agreed,
            Self::Http(link) => link.agreed,
        }
    }
}
