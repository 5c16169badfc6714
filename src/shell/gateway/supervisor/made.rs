//! A snapshot that is being made, and its result.

use std::sync::Arc;
use std::time::Duration;

use tokio::task::JoinHandle;

use crate::gateway::snapshot::Snapshot;
use crate::upstream::session::handle::UpstreamHandle;

/// A reply to send once a snapshot is in force.
pub(super) type SnapshotCallback = Box<dyn FnOnce() + Send>;

/// A snapshot that is being made on another thread.
pub(super) struct PendingSnapshot {
    pub(super) made: JoinHandle<SnapshotResult>,
    /// Replies to send once it is in force.
    pub(super) afterwards: Vec<SnapshotCallback>,
}

/// The result of making a snapshot from a draft.
pub(super) struct SnapshotResult {
    /// The new snapshot; `None` if clients would see no change.
    pub(super) snapshot: Option<Snapshot>,
    /// Number of items that wait for the operator, for each upstream.
    pub(super) waiting: Vec<usize>,
    /// Freshly read upstreams, each with its part of the judging time.
    pub(super) judged: Vec<(Arc<UpstreamHandle>, Duration)>,
}
