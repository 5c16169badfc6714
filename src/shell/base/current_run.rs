//! The run of this process as a replica of a cluster. It changes if the other replicas took the
//! process for dead: what it held may then be held by others.

use arc_swap::ArcSwap;

use crate::engine::sealed::run_id::RunId;

/// Most runs of one process that are known to be its own.
const MAX_RUNS: usize = 64;

/// The run of this process, and its earlier ones. Without a cluster there is none.
#[derive(Debug, Default)]
pub struct CurrentRun(ArcSwap<Vec<RunId>>);

impl CurrentRun {
    /// Returns the run; `None` without a cluster.
    pub fn get(&self) -> Option<RunId> {
        self.0.load().first().copied()
    }

    /// Begins another run.
    pub fn begin(&self, run: RunId) {
        self.0.rcu(|runs| std::iter::once(run).chain(runs.iter().copied()).take(MAX_RUNS).collect::<Vec<_>>());
    }

    /// Returns whether a run is one of this process.
    pub fn is_own(&self, run: RunId) -> bool {
        self.0.load().contains(&run)
    }
}
