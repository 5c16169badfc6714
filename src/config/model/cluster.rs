//! The settings of a cluster.

use std::net::SocketAddr;
use std::time::Duration;

use serde::Serialize;
use url::Url;

use crate::values::store_url::StoreUrl;

/// The `[cluster]` table.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub struct ClusterSettings {
    /// The store that all replicas share.
    pub store: StoreUrl,
    /// The name of this replica, unique in the cluster.
    pub name: String,
    /// Longest time for which a start waits for the store.
    pub store_wait: Duration,
    /// The address where other replicas reach this one; `None` if they cannot.
    pub peer_listen: Option<SocketAddr>,
    /// The URL of `peer_listen` as the other replicas see it; set together with it.
    pub peer_url: Option<Url>,
}
