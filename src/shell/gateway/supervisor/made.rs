//! A snapshot that is being made, and one that was made.

use std::sync::Arc;
use std::time::Duration;

use tokio::task::JoinHandle;

use crate::gateway::snapshot::Snapshot;
use crate::upstream::session::handle::Handle;

/// Tells a task that a snapshot is in force.
pub(super) type Afterwards = Box<dyn FnOnce() + Send>;

/// A snapshot that is being made.
pub(super) struct Making {
    pub(super) made: JoinHandle<Made>,
    pub(super) afterwards: Vec<Afterwards>,
}

/// A snapshot that was made of a draft.
pub(super) struct Made {
    /// `None` if clients would see the same.
    pub(super) snapshot: Option<Snapshot>,
    /// Number of items of each upstream that wait for the operator.
    pub(super) waiting: Vec<usize>,
    /// The upstreams that were read anew, each with its part of the time that judging took.
    pub(super) judged: Vec<(Arc<Handle>, Duration)>,
}
