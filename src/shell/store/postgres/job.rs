//! Operations on their way to the thread of the store, as trait objects.

use std::future::Future;
use std::pin::Pin;

use super::session::{PostgresSession, WorkKind};
use crate::store::port::{DbError, DbReply};

/// The run of an operation; it stays on the store's thread.
pub(super) type RunningWork<'r> = Pin<Box<dyn Future<Output = Result<(), DbError>> + 'r>>;

/// An operation as a trait object, independent of its result's type.
pub(super) trait PostgresJob: Send {
    fn kind(&self) -> WorkKind;
    /// Runs the operation and keeps the outcome. Returns the error of an operation that failed and
    /// must be undone.
    fn run<'r>(&'r mut self, session: &'r PostgresSession) -> RunningWork<'r>;
    /// Tells the outcome, or the error of the transaction.
    fn finish(self: Box<Self>, transaction: Result<(), DbError>);
}

/// An operation that waits for the thread.
pub(super) struct QueuedWork<T, W> {
    kind: WorkKind,
    work: Option<W>,
    outcome: Result<T, DbError>,
    reply: DbReply<T>,
}

impl<T, W> QueuedWork<T, W> {
    pub(super) fn new(kind: WorkKind, work: W, reply: DbReply<T>) -> Self {
        Self { kind, work: Some(work), outcome: Err(DbError::Closed), reply }
    }
}

impl<T: Send, W: AsyncFnOnce(&PostgresSession) -> Result<T, DbError> + Send> PostgresJob for QueuedWork<T, W> {
    fn kind(&self) -> WorkKind {
        self.kind
    }

    fn run<'r>(&'r mut self, session: &'r PostgresSession) -> RunningWork<'r> {
        Box::pin(async move {
            if let Some(work) = self.work.take() {
                self.outcome = work(session).await;
            }
            self.outcome.as_ref().map(drop).map_err(Clone::clone)
        })
    }

    fn finish(self: Box<Self>, transaction: Result<(), DbError>) {
        (self.reply)(transaction.and(self.outcome));
    }
}
