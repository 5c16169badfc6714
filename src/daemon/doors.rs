//! State that all HTTP listeners share and a reload replaces: accepted credentials, failed
//! attempts, and the list of listeners.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::{Arc, OnceLock};

use arc_swap::ArcSwap;
use parking_lot::Mutex;

use crate::config::Config;
use crate::console;
use crate::daemon::{access, replica};
use crate::listener::address::CredentialFailures;
use crate::listener::callers::credentials::Credentials;
use crate::listener::descriptors::DescriptorRoom;
use crate::listener::tls::ServedCertificates;
use crate::serve::front::ListenerState;
use crate::serve::pages::{self, PageServer};

/// Addresses on which the gateway listens.
#[derive(Clone, Debug, Default)]
pub(crate) struct GatewayAddresses {
    pub(crate) endpoints: Vec<String>,
    pub(crate) metrics: Option<SocketAddr>,
    /// True if the metrics are served with TLS.
    pub(super) are_metrics_secure: bool,
    /// Base URL of the console, if the console is on.
    pub(crate) console: Option<Arc<str>>,
    /// File that contains the generated access token, if clients need one.
    pub(crate) token_file: Option<PathBuf>,
}

impl GatewayAddresses {
    /// Returns the address of the metrics page, if there is one.
    pub(crate) fn metrics_page(&self) -> Option<String> {
        let scheme = if self.are_metrics_secure { "https" } else { "http" };
        self.metrics.map(|address| format!("{scheme}://{address}/metrics"))
    }
}

/// Credentials, failed attempts and listeners of HTTP. A reload replaces the parts one by one.
#[derive(Debug)]
pub(crate) struct GatewayListeners {
    pub(super) credentials: Arc<ArcSwap<Credentials>>,
    pub(super) failures: Arc<ArcSwap<CredentialFailures>>,
    pub(super) fronts: Mutex<Vec<Arc<ListenerState>>>,
    /// The listener for other replicas, in a cluster.
    pub(super) peers: OnceLock<Arc<ListenerState>>,
    /// Certificates of the listeners; `None` if they speak plain HTTP until the next start.
    pub(super) certificates: Option<Arc<ServedCertificates>>,
    /// Address of the metrics listener, and the pages that it serves.
    pub(super) pages: OnceLock<(SocketAddr, Arc<PageServer>)>,
    /// The generated token and its file; unset until clients need a token and there is a state
    /// directory.
    pub(super) own_token: OnceLock<Option<(String, PathBuf)>>,
}

#[cfg(test)]
impl super::gateway::RunningGateway {
    /// Returns the first MCP listener.
    pub(crate) fn first_front(&self) -> Arc<ListenerState> {
        Arc::clone(&self.doors.get().unwrap().fronts.lock()[0])
    }

    /// Returns the listener for other replicas, in a cluster.
    pub(crate) fn peers_front(&self) -> Option<Arc<ListenerState>> {
        self.doors.get()?.peers.get().map(Arc::clone)
    }

    /// Returns the metrics listener's address and pages.
    pub(crate) fn pages(&self) -> Option<(SocketAddr, Arc<PageServer>)> {
        self.doors.get()?.pages.get().cloned()
    }
}

/// Divides the process's file descriptors among listeners, upstreams and the fixed needs of
/// console, metrics and admin socket.
pub(super) fn room(config: &Config, listeners: usize) -> DescriptorRoom {
    let peers = if config.cluster.is_some() { replica::DESCRIPTORS } else { 0 };
    let fixed = console::DESCRIPTORS + pages::CONNECTIONS.descriptors() + access::DESCRIPTORS + peers;
    DescriptorRoom::make(&config.server.limits, listeners, config.upstreams.len(), fixed)
}
