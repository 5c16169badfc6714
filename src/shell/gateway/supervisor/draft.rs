//! The input of a snapshot, copied so that the snapshot can be made on another thread.

use std::sync::Arc;

use super::ManagedUpstream;
use crate::config::Config;
use crate::gateway::snapshot::Snapshot;
use crate::policy::{Limiter, Policy};
use crate::store::pins::PinRegistry;

/// The input of a snapshot, independent of the supervisor's later changes.
pub(super) struct SnapshotDraft {
    pub(super) config: Arc<Config>,
    pub(super) policy: Arc<Policy>,
    pub(super) limiter: Arc<Limiter>,
    pub(super) pins: PinRegistry,
    /// The upstreams in the configuration's order.
    pub(super) managed: Vec<ManagedUpstream>,
    /// The snapshot that clients see now.
    pub(super) old: Arc<Snapshot>,
    /// True to make a snapshot even if clients would see no change.
    pub(super) is_forced: bool,
}
