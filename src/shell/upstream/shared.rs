//! Runs one future for several waiters. It completes even if all of them are dropped.

use futures_util::FutureExt as _;
use futures_util::future::{BoxFuture, Shared};
use parking_lot::Mutex;
use tokio_util::sync::CancellationToken;

use crate::base::task_group::TaskGroup;
use crate::upstream::state::http_error::HttpError;

/// A handle to wait for the outcome.
pub(crate) type SharedWork = Shared<BoxFuture<'static, Result<(), HttpError>>>;

/// A slot for work of one kind, of which at most one piece is under way.
#[derive(Debug, Default)]
pub(crate) struct SharedWorkSlot(Mutex<Option<SharedWork>>);

impl SharedWorkSlot {
    /// Returns whether work is under way.
    pub(crate) fn is_under_way(&self) -> bool {
        self.0.lock().as_ref().is_some_and(|work| work.peek().is_none())
    }

    /// Joins the work that is under way, or else starts this work in a task of its own.
    pub(crate) fn join(
        &self,
        (tasks, stop): (&TaskGroup, &CancellationToken),
        begin: impl FnOnce() -> BoxFuture<'static, Result<(), HttpError>>,
    ) -> SharedWork {
        let mut under_way = self.0.lock();
        if let Some(work) = under_way.as_ref().filter(|work| work.peek().is_none()) {
            return work.clone();
        }
        let work = begin().shared();
        *under_way = Some(work.clone());
        let (driven, stop) = (work.clone(), stop.clone());
        tasks.spawn("session", async move {
            tokio::select! {
                _told_to_all = driven => {}
                () = stop.cancelled() => {}
            }
        });
        work
    }
}
