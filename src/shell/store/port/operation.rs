//! An operation of the store before it begins, and the ways to get its answer.

use std::sync::mpsc;

use tokio::sync::oneshot;

use super::error::DbError;

/// The function that takes the outcome of an operation, once it is in the store or has failed.
pub type DbReply<T> = Box<dyn FnOnce(Result<T, DbError>) + Send>;

/// An operation that has not begun. Its writes are on disk when its outcome is known; one that
/// fails has written nothing.
#[must_use = "an operation does nothing until it is run"]
pub struct DbOperation<'s, T>(Box<dyn FnOnce(DbReply<T>) + Send + 's>);

impl<'s, T: Send + 'static> DbOperation<'s, T> {
    /// Makes an operation, without beginning it. `begin` hands the request to the engine with the
    /// reply to call.
    pub fn new(begin: impl FnOnce(DbReply<T>) + Send + 's) -> Self {
        Self(Box::new(begin))
    }

    /// Begins the operation. The future returns the outcome; dropping the future stops nothing.
    ///
    /// # Errors
    /// [`DbError`]; nothing was written then.
    pub fn run(self) -> impl Future<Output = Result<T, DbError>> {
        let outcome = self.run_with(|outcome| outcome);
        async move { outcome.await? }
    }

    /// Begins the operation. The future returns the result of `conclude`, which is called as the
    /// function of [`Self::then`] is; dropping the future stops neither.
    ///
    /// # Errors
    /// When the store ended before.
    pub fn run_with<R: Send + 'static>(
        self,
        conclude: impl FnOnce(Result<T, DbError>) -> R + Send + 'static,
    ) -> impl Future<Output = Result<R, DbError>> {
        let (reply, answer) = oneshot::channel();
        self.then(move |outcome| drop(reply.send(conclude(outcome))));
        async move { answer.await.map_err(|_| DbError::Closed) }
    }

    /// Runs the operation and blocks: for start-up, threads and the command line.
    ///
    /// # Errors
    /// [`DbError`]; nothing was written then.
    pub fn run_now(self) -> Result<T, DbError> {
        let (reply, answer) = mpsc::sync_channel(1);
        self.then(move |outcome| drop(reply.send(outcome)));
        answer.recv().unwrap_or(Err(DbError::Closed))
    }

    /// Begins the operation, and calls `done` before the reply of any later operation of this
    /// process, even if no task waits any more. `done` must not block. It is called at once if the
    /// operation cannot be taken.
    pub fn then(self, done: impl FnOnce(Result<T, DbError>) + Send + 'static) {
        (self.0)(Box::new(done));
    }
}

impl<T> std::fmt::Debug for DbOperation<'_, T> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Operation")
    }
}
