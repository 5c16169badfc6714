//! What all listeners of MCP share: who may come in.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::{Arc, OnceLock};

use arc_swap::ArcSwap;
use parking_lot::Mutex;

use crate::config::Config;
use crate::console;
use crate::daemon::access;
use crate::listener::address::Failures;
use crate::listener::credentials::Credentials;
use crate::listener::descriptors::Room;
use crate::serve::front::Front;
use crate::serve::pages::{self, Served};

/// Addresses of the gateway.
#[derive(Clone, Debug, Default)]
pub(crate) struct Addresses {
    pub(crate) endpoints: Vec<String>,
    pub(crate) metrics: Option<SocketAddr>,
    /// The console's address, if it is on.
    pub(crate) console: Option<Arc<str>>,
    /// File with the access token, if clients need one.
    pub(crate) token_file: Option<PathBuf>,
}

/// Exchanged by a reload, one by one.
#[derive(Debug)]
pub(crate) struct Doors {
    pub(super) credentials: Arc<ArcSwap<Credentials>>,
    pub(super) failures: Arc<ArcSwap<Failures>>,
    pub(super) fronts: Mutex<Vec<Arc<Front>>>,
    /// The address of the metrics, and their pages.
    pub(super) pages: OnceLock<(SocketAddr, Arc<Served>)>,
    /// The generated token and its file, once a token is required; none without a state directory.
    pub(super) own_token: OnceLock<Option<(String, PathBuf)>>,
}

#[cfg(test)]
impl super::gateway::Gateway {
    /// The first listener of MCP.
    pub(crate) fn first_front(&self) -> Arc<Front> {
        Arc::clone(&self.doors.get().unwrap().fronts.lock()[0])
    }

    /// The metrics and their address.
    pub(crate) fn pages(&self) -> Option<(SocketAddr, Arc<Served>)> {
        self.doors.get()?.pages.get().cloned()
    }
}

/// The descriptors that the configuration's connections may use.
pub(super) fn room(config: &Config, listeners: usize) -> Room {
    let fixed = console::DESCRIPTORS + pages::CONNECTIONS.descriptors() + access::DESCRIPTORS;
    Room::make(&config.server.limits, listeners, config.upstreams.len(), fixed)
}
