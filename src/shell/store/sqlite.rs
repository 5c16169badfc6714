//! `headend.db` in the state directory: the store in a file of `SQLite`, written by one thread.
//! Only this file and those below it know connections, rows and SQL, one file for each group of
//! tables; another engine would be a folder beside this one.
//!
//! Operations that wait run together: one transaction with a savepoint for each, one commit, one
//! wait for the disk. Several processes may have the file open; its own locks keep them apart.
//!
//! A disk that takes no writes stops nothing: operations that would write fail, all others go on,
//! and the thread tries again until it takes them (`sqlite/thread`, `sqlite/open`).

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::mpsc::{self, SyncSender, TrySendError};
use std::time::Duration;

use rusqlite::Connection;

use super::port::{DbError, DbOperation, StoreEngine, StoreHealth, threads};
use super::seal::Seals;

mod backup;
mod error;
mod job;
mod open;
mod schema;
pub(super) mod tables;
mod thread;

pub use self::backup::back_up;

use self::job::{DbJob, QueuedOperation, Transaction};
use self::thread::DbThread;

/// Most operations that wait for the thread; further ones fail at once with [`DbError::Full`].
const QUEUE: usize = 4096;
/// Name of the database's file in the state directory.
pub const FILE: &str = "headend.db";

/// Checks that a file that another process has open is of this program's version. Changes nothing.
/// Blocks.
///
/// # Errors
/// A sentence with the file.
pub(super) fn check_version(path: &Path) -> Result<(), DbError> {
    open::source(path).map(drop)
}

/// The open database. Its thread ends when this is dropped.
#[derive(Debug)]
pub(super) struct Sqlite {
    path: PathBuf,
    seals: Seals,
    jobs: SyncSender<Box<dyn DbJob>>,
    health: Arc<StoreHealth>,
    /// The work without a thread, for stages of tests.
    #[cfg(any(test, feature = "testing"))]
    unthreaded: Option<thread::InlineDb>,
}

impl Sqlite {
    /// Opens the file, makes it if it is missing, and starts its thread. Blocks.
    ///
    /// # Errors
    /// A sentence with the file and the way out.
    pub(super) fn open(path: PathBuf, seals: Seals) -> Result<Self, DbError> {
        Self::start(DbThread::open(path.clone(), Arc::default())?, path, seals)
    }

    /// Opens a database without a file.
    #[cfg(test)]
    pub(super) fn in_memory(seals: Seals) -> Result<Self, DbError> {
        Self::start(DbThread::in_memory()?, PathBuf::new(), seals)
    }

    fn start(work: DbThread, path: PathBuf, seals: Seals) -> Result<Self, DbError> {
        let health = Arc::clone(work.health());
        let (jobs, inbox) = mpsc::sync_channel(QUEUE);
        #[cfg(any(test, feature = "testing"))]
        if crate::base::clock::played::is_staged() {
            let unthreaded = Some(thread::InlineDb::new(work, inbox));
            return Ok(Self { path, seals, jobs, health, unthreaded });
        }
        let run = threads::begin();
        #[cfg(any(test, feature = "testing"))]
        let process = crate::base::clock::played::TestProcess::current();
        let started = std::thread::Builder::new().name("db".to_owned()).spawn(move || {
            #[cfg(any(test, feature = "testing"))]
            if let Some(process) = process {
                process.enter();
            }
            work.run(&inbox);
            drop(run);
        });
        match started {
            // The thread ends with the last sender; `wait_until_closed` is for the end of the
            // process.
            Ok(thread) => drop(thread),
            Err(error) => return Err(DbError::Failed { path, why: format!("start its thread: {error}") }),
        }
        Ok(Self {
            path,
            seals,
            jobs,
            health,
            #[cfg(any(test, feature = "testing"))]
            unthreaded: None,
        })
    }

    /// Creates an operation that only reads, inside or outside of a transaction; it is queued when
    /// it is run.
    fn read<T: Send + 'static>(
        &self,
        work: impl FnOnce(&Connection) -> rusqlite::Result<T> + Send + 'static,
    ) -> DbOperation<'_, T> {
        self.operation(Transaction::Either, work)
    }

    /// Creates an operation that runs in a transaction; it is queued when it is run.
    fn write<T: Send + 'static>(
        &self,
        work: impl FnOnce(&Connection) -> rusqlite::Result<T> + Send + 'static,
    ) -> DbOperation<'_, T> {
        self.operation(Transaction::Required, work)
    }

    fn operation<T: Send + 'static>(
        &self,
        transaction: Transaction,
        work: impl FnOnce(&Connection) -> rusqlite::Result<T> + Send + 'static,
    ) -> DbOperation<'_, T> {
        DbOperation::new(move |reply| self.send(Box::new(QueuedOperation::new(transaction, work, reply))))
    }

    /// Empties the write-ahead log into the file, so that no replaced value is left in the log.
    /// Only logs a failure. Blocks.
    fn forget_replaced(&self) {
        // If another process reads the journal now, the next call empties it.
        if let Err(error) = self.empty_journal().run_now() {
            tracing::debug!(error = %error, "the journal of the store is not emptied yet");
        }
    }

    /// Creates the operation that empties the write-ahead log into the file. It cannot run inside
    /// of a transaction.
    fn empty_journal(&self) -> DbOperation<'_, ()> {
        let work = |connection: &Connection| connection.query_row("PRAGMA wal_checkpoint(TRUNCATE)", [], |_| Ok(()));
        self.operation(Transaction::Forbidden, work)
    }

    fn send(&self, job: Box<dyn DbJob>) {
        match self.jobs.try_send(job) {
            Ok(()) => {}
            Err(TrySendError::Full(job)) => job.finish(Err(DbError::Full { path: self.path.clone() })),
            Err(TrySendError::Disconnected(job)) => job.finish(Err(DbError::Closed)),
        }
        #[cfg(any(test, feature = "testing"))]
        if let Some(unthreaded) = &self.unthreaded {
            unthreaded.work();
        }
    }
}

impl StoreEngine for Sqlite {
    fn health(&self) -> &Arc<StoreHealth> {
        &self.health
    }

    fn all_so_far(&self) -> DbOperation<'_, ()> {
        self.read(|_| Ok(()))
    }

    fn see(&self, now: u64) -> DbOperation<'_, ()> {
        self.write(move |connection| tables::meta::saw(connection, now))
    }

    fn latest_time(&self) -> DbOperation<'_, Duration> {
        self.read(|connection| tables::meta::number(connection, tables::meta::LATEST_TIME).map(Duration::from_secs))
    }

    #[cfg(test)]
    fn damage(&self, sql: &'static str) {
        self.write(move |connection| connection.execute_batch(sql)).run_now().unwrap();
    }

    #[cfg(any(test, feature = "testing"))]
    #[allow(clippy::unwrap_used, reason = "a test fails by panicking")]
    fn refuse_writes(&self, on: bool) {
        self.read(move |connection| connection.pragma_update(None, "query_only", on)).run_now().unwrap();
    }
}

/// Returns the error for a value that must be sealed while there is no key; it is not written.
fn no_key() -> rusqlite::Error {
    let why = "the key of the sealed values is missing; set [secrets] key as the daemon has it";
    rusqlite::Error::ToSqlConversionFailure(why.into())
}

/// Converts a number to `SQLite`'s signed form.
fn signed(number: u64) -> i64 {
    i64::try_from(number).unwrap_or(i64::MAX)
}

fn unsigned(number: i64) -> u64 {
    u64::try_from(number).unwrap_or(0)
}

#[cfg(test)]
mod tests;
