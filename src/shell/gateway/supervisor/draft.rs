//! The draft of a snapshot.

use std::sync::Arc;

use super::Managed;
use crate::config::Config;
use crate::gateway::snapshot::Snapshot;
use crate::policy::{Limiter, Policy};
use crate::store::pins::Pins;

/// Everything that a snapshot is made of, so that it can be made beside the supervisor.
pub(super) struct Draft {
    pub(super) config: Arc<Config>,
    pub(super) policy: Arc<Policy>,
    pub(super) limiter: Arc<Limiter>,
    pub(super) pins: Pins,
    /// The upstreams in the configuration's order.
    pub(super) managed: Vec<Managed>,
    /// The snapshot that clients see now.
    pub(super) old: Arc<Snapshot>,
    /// Make a snapshot even if clients would see the same.
    pub(super) is_forced: bool,
}
