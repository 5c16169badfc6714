//! Operations on their way to the database's thread, as trait objects.

use std::path::Path;

use rusqlite::Connection;

use super::error::describe_error;
use crate::store::port::{DbError, DbReply};

/// Whether an operation needs a transaction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Transaction {
    /// The operation only reads.
    Either,
    Required,
    Forbidden,
}

/// An operation as a trait object, independent of its result's type.
pub(super) trait DbJob: Send {
    fn transaction(&self) -> Transaction;
    /// Runs the operation and keeps the outcome. Returns the error of an operation that failed and
    /// must be undone.
    fn run(&mut self, connection: &Connection, path: &Path) -> Result<(), DbError>;
    /// Tells the outcome, or the error of the transaction.
    fn finish(self: Box<Self>, transaction: Result<(), DbError>);
}

/// An operation that waits for the thread.
pub(super) struct QueuedOperation<T, W> {
    transaction: Transaction,
    work: Option<W>,
    outcome: Result<T, DbError>,
    reply: DbReply<T>,
}

impl<T, W> QueuedOperation<T, W> {
    pub(super) fn new(transaction: Transaction, work: W, reply: DbReply<T>) -> Self {
        Self { transaction, work: Some(work), outcome: Err(DbError::Closed), reply }
    }
}

impl<T: Send, W: FnOnce(&Connection) -> rusqlite::Result<T> + Send> DbJob for QueuedOperation<T, W> {
    fn transaction(&self) -> Transaction {
        self.transaction
    }

    fn run(&mut self, connection: &Connection, path: &Path) -> Result<(), DbError> {
        if let Some(work) = self.work.take() {
            self.outcome = work(connection).map_err(|error| describe_error(path, &error));
        }
        self.outcome.as_ref().map(drop).map_err(Clone::clone)
    }

    fn finish(self: Box<Self>, transaction: Result<(), DbError>) {
        (self.reply)(transaction.and(self.outcome));
    }
}
