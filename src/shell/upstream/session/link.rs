//! The link to a running upstream, or its state without one.

use std::sync::Arc;
use std::time::Instant;

use crate::engine::handshake::Agreed;
use crate::mcp::log::LogSwitch;
use crate::telemetry::upstream_state::UpstreamState;
use crate::upstream::http::exchange::HttpLink;
use crate::upstream::line::connection::StdioLink;

/// State of a lane.
#[derive(Clone, Debug)]
pub enum LinkState {
    /// Lazy, and at rest: nothing needs it.
    Idle,
    Starting,
    Ready(Link),
    Down {
        /// When it is tried again.
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

/// The way to a running upstream.
#[derive(Clone, Debug)]
pub enum Link {
    Stdio(StdioLink),
    Http(Arc<HttpLink>),
}

impl Link {
    /// The level that its server was asked for.
    pub fn logs(&self) -> &LogSwitch {
        match self {
            Self::Stdio(link) => &link.logs,
            Self::Http(link) => &link.logs,
        }
    }

    /// Whether it takes calls; `false` in the moment between the end of a child's task and the next state of its upstream.
    pub fn is_open(&self) -> bool {
        match self {
            Self::Stdio(link) => link.is_open(),
            Self::Http(_) => true,
        }
    }

    pub fn agreed(&self) -> Agreed {
        match self {
            Self::Stdio(link) => link.agreed,
            Self::Http(link) => link.agreed,
        }
    }
}
