//! Operations on their way to the database's thread, their types forgotten.

use std::path::PathBuf;

use rusqlite::Connection;

use super::error::{DbError, told};

/// What an operation does to the tables. The files of the groups of tables alone make one.
pub trait Work: Send + 'static {
    type Out: Send + 'static;
    fn work(self, connection: &Connection) -> rusqlite::Result<Self::Out>;
}

impl<T: Send + 'static, W: FnOnce(&Connection) -> rusqlite::Result<T> + Send + 'static> Work for W {
    type Out = T;

    fn work(self, connection: &Connection) -> rusqlite::Result<T> {
        self(connection)
    }
}

/// The reply, once it is known whether the transaction holds.
pub(super) type Finish = Box<dyn FnOnce(Result<(), DbError>) + Send>;

/// Where an operation is done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Place {
    /// Anywhere: it only reads.
    Any,
    /// In a transaction.
    Inside,
    /// Outside of all transactions.
    Outside,
}

/// An operation whose type is forgotten.
pub(super) trait Job: Send {
    fn place(&self) -> Place;
    /// Runs it; the error of one that failed, which has to be undone.
    fn run(self: Box<Self>, connection: &Connection) -> (Result<(), DbError>, Finish);
    fn refuse(self: Box<Self>, error: DbError);
}

/// An operation that waits for the thread.
pub(super) struct Begun<W, D> {
    pub(super) path: PathBuf,
    pub(super) place: Place,
    pub(super) work: W,
    pub(super) done: D,
}

impl<W: Work, D: FnOnce(Result<W::Out, DbError>) + Send + 'static> Job for Begun<W, D> {
    fn place(&self) -> Place {
        self.place
    }

    fn run(self: Box<Self>, connection: &Connection) -> (Result<(), DbError>, Finish) {
        let Self { path, work, done, .. } = *self;
        let outcome = work.work(connection).map_err(|error| told(&path, &error));
        let holds = outcome.as_ref().map(drop).map_err(Clone::clone);
        (holds, Box::new(move |committed| done(outcome.and_then(|value| committed.map(|()| value)))))
    }

    fn refuse(self: Box<Self>, error: DbError) {
        (self.done)(Err(error));
    }
}
