//! Groups of named tasks that are stopped and awaited together.

use std::future::Future;

use tokio::sync::oneshot;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use tokio_util::task::task_tracker::TaskTrackerToken;
use tracing::Instrument as _;

/// A set of tasks that end together. Clones share it.
#[derive(Clone, Debug, Default)]
pub struct TaskGroup {
    tracker: TaskTracker,
    stop: CancellationToken,
}

impl TaskGroup {
    /// Spawns a task that belongs to the group.
    pub fn spawn(&self, name: &'static str, task: impl Future<Output = ()> + Send + 'static) {
        let span = tracing::debug_span!("task", name);
        #[expect(clippy::disallowed_methods, reason = "the one place that spawns: tracked and named")]
        tokio::spawn(self.tracker.track_future(task.instrument(span)));
    }

    /// Runs the work in a task of its own, which continues if the caller is dropped. Returns `None`
    /// if the work panicked.
    pub async fn carry_out<T: Send + 'static>(
        &self,
        name: &'static str,
        work: impl Future<Output = T> + Send + 'static,
    ) -> Option<T> {
        let (done, outcome) = oneshot::channel();
        // The caller may have been dropped.
        self.spawn(name, async move { drop(done.send(work.await)) });
        outcome.await.ok()
    }

    /// Returns a token that counts as a task of the group until it is dropped.
    pub fn token(&self) -> TaskTrackerToken {
        self.tracker.token()
    }

    /// Number of tasks that run.
    #[cfg(any(test, feature = "testing"))]
    pub fn count(&self) -> usize {
        self.tracker.len()
    }

    /// Returns the token that fires when the group is asked to stop.
    pub fn stop_token(&self) -> &CancellationToken {
        &self.stop
    }

    /// Asks all tasks of the group to stop.
    pub fn stop(&self) {
        self.stop.cancel();
    }

    /// Waits until every task has ended.
    pub async fn join(&self) {
        self.tracker.close();
        self.tracker.wait().await;
    }
}
