//! The database's thread: runs the operations that wait together, and reopens the file when its
//! disk takes writes again.
//!
//! While the disk takes no writes, the thread tries again by itself, after 0.25 s and then at most
//! every 5 s. Meanwhile operations that only read, or find nothing to write, succeed.

#[cfg(any(test, feature = "testing"))]
use std::cell::RefCell;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError};
use std::time::{Duration, Instant};

#[cfg(any(test, feature = "testing"))]
use parking_lot::ReentrantMutex;
use rusqlite::{Connection, MAIN_DB, TransactionBehavior};

use super::error::describe_error;
use super::job::{DbJob, Transaction};
use super::open::{self, FileStamp, ReadOnlyCopy};
use crate::base::clock;
use crate::store::port::{DbError, StoreHealth};
use crate::store::sqlite::tables::meta;

/// Operations in one transaction.
const BATCH: usize = 256;
/// Key in `meta` of the random number that is written to try the disk.
const TRIED: &str = "tried";
/// The first and the longest pause before the next try to write.
const FIRST: Duration = Duration::from_millis(250);
const LONGEST: Duration = Duration::from_secs(5);

/// The thread's work: everything but the channel.
pub(super) struct DbThread {
    path: PathBuf,
    connection: Connection,
    /// The fingerprint of the copied file, if the connection is to a copy in memory.
    copy_of: Option<FileStamp>,
    health: Arc<StoreHealth>,
    /// The pause and the time of the next try, while the file takes no writes.
    again: Option<(Duration, Instant)>,
}

impl DbThread {
    /// Opens the file, for reading alone where it takes no writes.
    ///
    /// # Errors
    /// When it can be neither written nor read, or is not to be used.
    pub(super) fn open(path: PathBuf, health: Arc<StoreHealth>) -> Result<Self, DbError> {
        let error = match open::open_for_writing(&path) {
            Ok(connection) => return Ok(Self { path, connection, copy_of: None, health, again: None }),
            Err(error) if error.is_unwritable() => error,
            Err(error) => return Err(error),
        };
        let ReadOnlyCopy { connection, stamp } = open::copy_to_memory(&path).map_err(|also| match (&error, also) {
            (
                DbError::NotWritable { path, why },
                DbError::NotWritable { why: also, .. } | DbError::Failed { why: also, .. },
            ) => DbError::Unreadable { path: path.clone(), why: why.clone(), also },
            (_, also) => also,
        })?;
        health.failed(&error);
        let again = Some((FIRST, clock::now() + FIRST));
        Ok(Self { path, connection, copy_of: Some(stamp), health, again })
    }

    /// Returns the work on a database without a file.
    #[cfg(test)]
    pub(super) fn in_memory() -> Result<Self, DbError> {
        let path = PathBuf::from(":memory:");
        let connection = open::in_memory(&path)?;
        Ok(Self { path, connection, copy_of: None, health: Arc::default(), again: None })
    }

    pub(super) const fn health(&self) -> &Arc<StoreHealth> {
        &self.health
    }

    /// Runs operations until the last sender is gone, then closes the file.
    pub(super) fn run(mut self, inbox: &Receiver<Box<dyn DbJob>>) {
        while let Some(first) = self.next(inbox) {
            self.batch(first, inbox);
        }
        // No task is left to hear about a failure; answered jobs are on disk.
        drop(self.connection.close());
    }

    /// Runs an operation together with those that wait behind it.
    fn batch(&mut self, first: Box<dyn DbJob>, inbox: &Receiver<Box<dyn DbJob>>) {
        let mut jobs = vec![first];
        while jobs.len() < BATCH
            && let Ok(next) = inbox.try_recv()
        {
            jobs.push(next);
        }
        let (outside, jobs): (Vec<_>, Vec<_>) =
            jobs.into_iter().partition(|job| job.transaction() == Transaction::Forbidden);
        if self.copy_of.is_none() && jobs.iter().any(|job| job.transaction() == Transaction::Required) {
            self.transact(jobs);
        } else {
            self.read(jobs);
        }
        self.read(outside);
    }

    /// Waits for the next operation; tries to write meanwhile, if that is due.
    fn next(&mut self, inbox: &Receiver<Box<dyn DbJob>>) -> Option<Box<dyn DbJob>> {
        loop {
            let Some((pause, due)) = self.again else { return inbox.recv().ok() };
            let wait = due.saturating_duration_since(clock::now());
            if !wait.is_zero() {
                match inbox.recv_timeout(wait) {
                    Ok(job) => return Some(job),
                    Err(RecvTimeoutError::Disconnected) => return None,
                    Err(RecvTimeoutError::Timeout) => {}
                }
            }
            match self.try_again() {
                Ok(()) => {
                    self.again = None;
                    // Readers load again the rows that they dropped from memory meanwhile.
                    self.health.connected();
                    self.health.wrote();
                }
                Err(error) => {
                    tracing::debug!(error = %error, "the store still takes no writes");
                    let pause = (pause * 2).min(LONGEST);
                    self.again = Some((pause, clock::now() + pause));
                }
            }
        }
    }

    /// Writes something, by a fresh connection where this one cannot.
    fn try_again(&mut self) -> Result<(), DbError> {
        let is_able = self.copy_of.is_none() && self.connection.is_readonly(MAIN_DB).is_ok_and(|readonly| !readonly);
        if is_able {
            return touch(&mut self.connection).map_err(|error| describe_error(&self.path, &error));
        }
        let fresh = open::open_for_writing(&self.path).and_then(|mut fresh| {
            touch(&mut fresh).map_err(|error| describe_error(&self.path, &error))?;
            Ok(fresh)
        });
        match fresh {
            Ok(fresh) => {
                self.replace(fresh, None);
                Ok(())
            }
            Err(error) => {
                self.follow();
                Err(error)
            }
        }
    }

    /// Copies the file again if another process has changed it.
    fn follow(&mut self) {
        if self.copy_of.is_none_or(|stamp| stamp == FileStamp::of(&self.path)) {
            return;
        }
        match open::copy_to_memory(&self.path) {
            Ok(ReadOnlyCopy { connection, stamp }) => self.replace(connection, Some(stamp)),
            Err(error) => tracing::debug!(error = %error, "the store's file has changed and cannot be read"),
        }
    }

    fn replace(&mut self, connection: Connection, copy_of: Option<FileStamp>) {
        self.health.connected();
        self.copy_of = copy_of;
        drop(std::mem::replace(&mut self.connection, connection).close());
    }

    fn failed(&mut self, error: &DbError) {
        if error.is_unwritable() {
            self.again.get_or_insert_with(|| (FIRST, clock::now() + FIRST));
            self.health.failed(error);
        }
    }

    /// Runs operations one by one without a transaction: those that only read, and on a copy those
    /// that find nothing to write.
    fn read(&mut self, jobs: Vec<Box<dyn DbJob>>) {
        for mut job in jobs {
            // Nothing was undone, and nothing had to be: the outcome is the job's own.
            drop(job.run(&self.connection, &self.path));
            job.finish(Ok(()));
        }
    }

    /// Runs the operations on a file that takes no writes, as queries alone.
    fn look(&mut self, jobs: Vec<Box<dyn DbJob>>, error: &DbError) {
        let before = self.connection.pragma_query_value(None, "query_only", |row| row.get::<_, bool>(0));
        let (Ok(before), Ok(())) = (before, self.connection.pragma_update(None, "query_only", true)) else {
            return jobs.into_iter().for_each(|job| job.finish(Err(error.clone())));
        };
        self.read(jobs);
        if let Err(error) = self.connection.pragma_update(None, "query_only", before) {
            // All writes are refused then, which the next try to write notices.
            tracing::debug!(error = %error, "the store's connection stays read-only");
        }
    }

    fn transact(&mut self, jobs: Vec<Box<dyn DbJob>>) {
        let before = self.connection.total_changes();
        let (done, committed) = match run_in_transaction(&mut self.connection, &self.path, jobs) {
            Ok(together) => together,
            Err((error, jobs)) if error.is_unwritable() => {
                self.failed(&error);
                return self.look(jobs, &error);
            }
            Err((error, jobs)) => return jobs.into_iter().for_each(|job| job.finish(Err(error.clone()))),
        };
        let trouble = committed.as_ref().err().or_else(|| done.iter().find_map(|(_, outcome)| outcome.as_ref().err()));
        match trouble.cloned() {
            Some(error) => self.failed(&error),
            // A hint, no proof: rows that are written as they were reach no disk.
            None if self.connection.total_changes() != before => {
                self.again = self.again.map(|(pause, _)| (pause, clock::now()));
            }
            None => {}
        }
        for (job, kept) in done {
            job.finish(kept.and_then(|()| committed.clone()));
        }
    }
}

/// A database without a thread of its own: the caller that begins an operation runs it, with all
/// that wait.
#[cfg(any(test, feature = "testing"))]
pub(super) struct InlineDb(ReentrantMutex<RefCell<(DbThread, JobReceiver)>>);

#[cfg(any(test, feature = "testing"))]
type JobReceiver = Receiver<Box<dyn DbJob>>;

#[cfg(any(test, feature = "testing"))]
impl InlineDb {
    pub(super) fn new(work: DbThread, inbox: JobReceiver) -> Self {
        Self(ReentrantMutex::new(RefCell::new((work, inbox))))
    }

    /// Runs all operations that wait. An operation begun by another's reply is run by the caller of
    /// that one.
    pub(super) fn work(&self) {
        let held = self.0.lock();
        let Ok(mut held) = held.try_borrow_mut() else { return };
        let (work, inbox) = &mut *held;
        while let Ok(first) = inbox.try_recv() {
            work.batch(first, inbox);
        }
    }
}

#[cfg(any(test, feature = "testing"))]
impl std::fmt::Debug for InlineDb {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Unthreaded")
    }
}

/// Operations, each with its outcome, and the outcome of their transaction.
type BatchOutcome = (Vec<(Box<dyn DbJob>, Result<(), DbError>)>, Result<(), DbError>);

/// Runs operations in one transaction. An operation that fails is undone alone.
///
/// # Errors
/// When no transaction can be begun; the operations are given back.
fn run_in_transaction(
    connection: &mut Connection,
    path: &Path,
    jobs: Vec<Box<dyn DbJob>>,
) -> Result<BatchOutcome, (DbError, Vec<Box<dyn DbJob>>)> {
    let mut transaction = match connection.transaction_with_behavior(TransactionBehavior::Immediate) {
        Ok(transaction) => transaction,
        Err(error) => return Err((describe_error(path, &error), jobs)),
    };
    let mut done = Vec::with_capacity(jobs.len());
    for mut job in jobs {
        let savepoint = match transaction.savepoint() {
            Ok(savepoint) => savepoint,
            Err(error) => {
                job.finish(Err(describe_error(path, &error)));
                continue;
            }
        };
        // A savepoint that is not committed is undone when it is dropped.
        let kept =
            job.run(&savepoint, path).and_then(|()| savepoint.commit().map_err(|error| describe_error(path, &error)));
        done.push((job, kept));
    }
    let committed = transaction.commit().map_err(|error| describe_error(path, &error));
    Ok((done, committed))
}

/// Writes a value that is not there yet: `SQLite` writes no other one.
fn touch(connection: &mut Connection) -> rusqlite::Result<()> {
    let transaction = connection.transaction_with_behavior(TransactionBehavior::Immediate)?;
    meta::put(&transaction, TRIED, u64::from_be_bytes(clock::random()))?;
    transaction.commit()
}
