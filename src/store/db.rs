//! `headend.db` in the state directory: the data that outlives the process. `SQLite`, written by one thread. Only this
//! file and those below it know connections, rows and SQL, one file for each group of tables; another database would
//! replace this folder.
//!
//! Everything else speaks in operations, which are methods of [`Db`]. Each of them is
//! - *atomic*: all of it or nothing, and what it decides by reading is true when it writes, over all processes;
//! - *durable*: its outcome is told once it is on the disk, and an error says that nothing was written;
//! - *in order*: those of one process happen one after the other as they were begun, and what is to follow from an outcome is done
//!   before the next one begins, so that memory follows the order of the disk.
//!
//! An operation that only reads needs the order alone. The head of each file says which processes write its tables.
//!
//! Operations that wait are done together: one transaction with a savepoint for each, one commit, one wait for the disk. Several
//! processes may have the file open; its own locks keep them apart.

use std::fs;
use std::io;
use std::os::unix::fs::{OpenOptionsExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};
use std::sync::mpsc::{self, Receiver, SyncSender, TrySendError};
use std::time::Duration;

use rusqlite::{Connection, ErrorCode, OpenFlags, TransactionBehavior};
use tokio::sync::oneshot;

use crate::base::clock;
use crate::config::guard;
use crate::store::seal::{KeySource, Seals};

mod approvals;
mod audit;
mod grants;
mod limits;
mod meta;
mod pins;
mod prompts;
mod schema;

/// Operations that may wait for the thread.
const QUEUE: usize = 4096;
/// Operations in one transaction.
const BATCH: usize = 256;
/// The file in the state directory.
const FILE: &str = "headend.db";
/// How long another process may hold the file.
const BUSY: Duration = Duration::from_secs(5);
/// Between two tries of what `SQLite` itself does not wait for.
const RETRY: Duration = Duration::from_millis(5);

/// Why a value could not be stored.
#[derive(Clone, Debug, thiserror::Error)]
pub(crate) enum DbError {
    #[error(
        "{path} is damaged or no database of headend ({why}); move it away together with the -wal and -shm files beside it, \
         and start again: all grants and pins are then asked for again"
    )]
    Corrupt { path: PathBuf, why: String },
    #[error(
        "{path} was written by a newer headend (its version is {found}, this program knows {known}); run that one, or move the \
         file away together with the -wal and -shm files beside it: all grants and pins are then asked for again",
        known = schema::VERSION
    )]
    Newer { path: PathBuf, found: i64 },
    #[error(
        "{path} cannot be written ({why}); its directory must belong to the user that headend runs as, and have space"
    )]
    NotWritable { path: PathBuf, why: String },
    #[error("{path} {why}")]
    Refused { path: PathBuf, why: String },
    #[error("{0}")]
    Key(String),
    #[error("{path} is held by another process for too long; try again")]
    Busy { path: PathBuf },
    #[error("{path}: {why}")]
    Failed { path: PathBuf, why: String },
    #[error("too much waits to be written to {path}")]
    Full { path: PathBuf },
    #[error("{path} is closed")]
    Closed { path: PathBuf },
}

/// The open database. Clones are the same one; the thread ends with the last of them.
#[derive(Clone, Debug)]
pub(crate) struct Db {
    path: PathBuf,
    seals: Seals,
    jobs: SyncSender<Box<dyn Job>>,
}

impl Db {
    /// [`Self::open_with`] a key in the same directory.
    #[cfg(test)]
    pub(crate) fn open(dir: &Path) -> Result<Self, DbError> {
        Self::open_with(dir, &KeySource { given: None, make: true })
    }

    /// Whether this directory has a store; opening one makes it.
    pub(crate) fn is_in(dir: &Path) -> bool {
        dir.join(FILE).exists()
    }

    /// Opens the file in this directory, made if it is missing, and starts its thread. Some values in it are sealed with `key`.
    /// Blocks.
    ///
    /// # Errors
    /// A sentence with the file and the way out.
    pub(crate) fn open_with(dir: &Path, key: &KeySource) -> Result<Self, DbError> {
        let seals = Seals::of(dir, key).map_err(DbError::Key)?;
        let path = dir.join(FILE);
        let connection = connect(&path)?;
        let (jobs, inbox) = mpsc::sync_channel(QUEUE);
        let file = path.clone();
        let started = std::thread::Builder::new().name("db".to_owned()).spawn(move || write(connection, &inbox, &file));
        match started {
            // It ends with the last sender.
            Ok(thread) => drop(thread),
            Err(error) => return Err(DbError::Failed { path, why: format!("start its thread: {error}") }),
        }
        Ok(Self { path, seals, jobs })
    }

    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// Whether a value was left out so far, since its key is missing.
    pub(crate) fn has_lost(&self) -> bool {
        self.seals.has_lost()
    }

    /// Waits for all operations begun before this one: their writes are on disk.
    pub(crate) fn all_so_far(&self) -> Operation<'_, impl Work<Out = ()>> {
        self.read(|_| Ok(()))
    }

    /// An operation that only reads: alone it needs no transaction.
    fn read<T: Send + 'static, W>(&self, work: W) -> Operation<'_, W>
    where
        W: FnOnce(&Connection) -> rusqlite::Result<T> + Send + 'static,
    {
        Operation { db: self, writes: false, work }
    }

    /// An operation in a transaction.
    fn write<T: Send + 'static, W>(&self, work: W) -> Operation<'_, W>
    where
        W: FnOnce(&Connection) -> rusqlite::Result<T> + Send + 'static,
    {
        Operation { db: self, writes: true, work }
    }

    /// Empties the journal into the file, so that no replaced value is left there. Blocks.
    fn forget_replaced(&self) {
        let empty = |connection: &Connection| connection.query_row("PRAGMA wal_checkpoint(TRUNCATE)", [], |_| Ok(()));
        // Another process that reads puts it off until the next one.
        if let Err(error) = self.read(empty).run_now() {
            tracing::debug!(error = %error, "the journal of the store is not emptied yet");
        }
    }

    /// Changes the tables as nothing in this program would.
    #[cfg(test)]
    pub(crate) fn damage(&self, sql: &'static str) {
        self.write(move |connection| connection.execute_batch(sql)).run_now().unwrap();
    }

    fn send(&self, job: Box<dyn Job>) {
        match self.jobs.try_send(job) {
            Ok(()) => {}
            Err(TrySendError::Full(job)) => job.refuse(DbError::Full { path: self.path.clone() }),
            Err(TrySendError::Disconnected(job)) => job.refuse(self.closed()),
        }
    }

    fn closed(&self) -> DbError {
        DbError::Closed { path: self.path.clone() }
    }
}

/// What an operation does to the tables. The files below this one alone make one.
pub(crate) trait Work: Send + 'static {
    type Out: Send + 'static;
    fn work(self, connection: &Connection) -> rusqlite::Result<Self::Out>;
}

impl<T: Send + 'static, W: FnOnce(&Connection) -> rusqlite::Result<T> + Send + 'static> Work for W {
    type Out = T;

    fn work(self, connection: &Connection) -> rusqlite::Result<T> {
        self(connection)
    }
}

/// An operation that has not begun. Its writes are on disk when its outcome is known; one that fails has written
/// nothing.
#[must_use = "an operation does nothing until it is run"]
#[derive(Debug)]
pub(crate) struct Operation<'d, W> {
    db: &'d Db,
    writes: bool,
    work: W,
}

impl<W: Work> Operation<'_, W> {
    /// Begins it. The future tells the outcome; dropping it stops nothing.
    ///
    /// # Errors
    /// [`DbError`]; nothing was written then.
    pub(crate) fn run(self) -> impl Future<Output = Result<W::Out, DbError>> {
        let outcome = self.run_with(|outcome| outcome);
        async move { outcome.await? }
    }

    /// Begins it. The future tells what `conclude`, which is called like that of [`Self::then`], made of the outcome; dropping it
    /// stops neither.
    ///
    /// # Errors
    /// When the database ended before.
    pub(crate) fn run_with<R: Send + 'static>(
        self,
        conclude: impl FnOnce(Result<W::Out, DbError>) -> R + Send + 'static,
    ) -> impl Future<Output = Result<R, DbError>> {
        let db = self.db;
        let (reply, answer) = oneshot::channel();
        self.then(move |outcome| drop(reply.send(conclude(outcome))));
        async move { answer.await.map_err(|_| db.closed()) }
    }

    /// Does it, blocking: for start-up, threads and the command line.
    ///
    /// # Errors
    /// [`DbError`]; nothing was written then.
    pub(crate) fn run_now(self) -> Result<W::Out, DbError> {
        let db = self.db;
        let (reply, answer) = mpsc::sync_channel(1);
        self.then(move |outcome| drop(reply.send(outcome)));
        answer.recv().unwrap_or_else(|_| Err(db.closed()))
    }

    /// Begins it, and calls `done` on the database's thread before any later operation begins, even if no task waits
    /// any more. `done` must not block. It is called at once if the operation cannot be taken.
    pub(crate) fn then(self, done: impl FnOnce(Result<W::Out, DbError>) + Send + 'static) {
        let Self { db, writes, work } = self;
        db.send(Box::new(Begun { path: db.path.clone(), writes, work, done }));
    }
}

/// The reply, once it is known whether the transaction holds.
type Finish = Box<dyn FnOnce(Result<(), DbError>) + Send>;

/// An operation whose type is forgotten.
trait Job: Send {
    fn writes(&self) -> bool;
    /// Runs it; false when it failed and has to be undone.
    fn run(self: Box<Self>, connection: &Connection) -> (bool, Finish);
    fn refuse(self: Box<Self>, error: DbError);
}

struct Begun<W, D> {
    path: PathBuf,
    writes: bool,
    work: W,
    done: D,
}

impl<W: Work, D: FnOnce(Result<W::Out, DbError>) + Send + 'static> Job for Begun<W, D> {
    fn writes(&self) -> bool {
        self.writes
    }

    fn run(self: Box<Self>, connection: &Connection) -> (bool, Finish) {
        let Self { path, work, done, .. } = *self;
        let outcome = work.work(connection).map_err(|error| told(&path, &error));
        let holds = outcome.is_ok();
        (holds, Box::new(move |committed| done(outcome.and_then(|value| committed.map(|()| value)))))
    }

    fn refuse(self: Box<Self>, error: DbError) {
        (self.done)(Err(error));
    }
}

/// The thread's work, until the last [`Db`] is gone.
fn write(mut connection: Connection, inbox: &Receiver<Box<dyn Job>>, path: &Path) {
    while let Ok(first) = inbox.recv() {
        let mut jobs = vec![first];
        while jobs.len() < BATCH
            && let Ok(next) = inbox.try_recv()
        {
            jobs.push(next);
        }
        if jobs.iter().any(|job| job.writes()) {
            transact(&mut connection, jobs, path);
        } else {
            for job in jobs {
                let (_, finish) = job.run(&connection);
                finish(Ok(()));
            }
        }
    }
    // No task is left to hear about a failure; answered jobs are on disk.
    drop(connection.close());
}

fn transact(connection: &mut Connection, jobs: Vec<Box<dyn Job>>, path: &Path) {
    let mut transaction = match connection.transaction_with_behavior(TransactionBehavior::Immediate) {
        Ok(transaction) => transaction,
        Err(error) => {
            let error = told(path, &error);
            return jobs.into_iter().for_each(|job| job.refuse(error.clone()));
        }
    };
    let mut finishes = Vec::with_capacity(jobs.len());
    for job in jobs {
        let savepoint = match transaction.savepoint() {
            Ok(savepoint) => savepoint,
            Err(error) => {
                job.refuse(told(path, &error));
                continue;
            }
        };
        let (holds, finish) = job.run(&savepoint);
        // One that is not committed is undone when it is dropped.
        let kept = if holds { savepoint.commit() } else { Ok(()) };
        finishes.push((finish, kept.map_err(|error| told(path, &error))));
    }
    let committed = transaction.commit().map_err(|error| told(path, &error));
    for (finish, kept) in finishes {
        finish(kept.and_then(|()| committed.clone()));
    }
}

/// Ends a job: without a key, a value that must be sealed is not written.
pub(crate) fn no_key() -> rusqlite::Error {
    let why = "the key of the sealed values is missing; set [secrets] key as the daemon has it";
    rusqlite::Error::ToSqlConversionFailure(why.into())
}

/// `SQLite` counts in signed numbers.
fn signed(number: u64) -> i64 {
    i64::try_from(number).unwrap_or(i64::MAX)
}

fn unsigned(number: i64) -> u64 {
    u64::try_from(number).unwrap_or(0)
}

/// Opens and judges the file.
fn connect(path: &Path) -> Result<Connection, DbError> {
    make_file(path)?;
    let flags = OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    let mut connection = Connection::open_with_flags(path, flags).map_err(|error| told(path, &error))?;
    prepare(&connection).map_err(|error| told(path, &error))?;
    schema::migrate(&mut connection, &clock::random()).map_err(|obstacle| match obstacle {
        schema::Obstacle::Newer(found) => DbError::Newer { path: path.to_owned(), found },
        schema::Obstacle::Foreign => {
            DbError::Corrupt { path: path.to_owned(), why: "its tables are not ours".to_owned() }
        }
        schema::Obstacle::Sql(error) => told(path, &error),
    })?;
    Ok(connection)
}

/// Makes the file with mode 0600; the files beside it get the same from `SQLite`, which follows no link for them. None of them
/// may be a link, another's, or one that others may write.
///
/// The file is not opened where it is there: closing it would give back the locks of another connection of this process.
fn make_file(path: &Path) -> Result<(), DbError> {
    let failed =
        |path: &Path, error: &io::Error| DbError::NotWritable { path: path.to_owned(), why: error.to_string() };
    match fs::OpenOptions::new().append(true).create_new(true).mode(0o600).open(path) {
        Ok(_) => {}
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
        Err(error) => return Err(failed(path, &error)),
    }
    for end in ["", "-wal", "-shm"] {
        let mut file = path.as_os_str().to_owned();
        file.push(end);
        let file = PathBuf::from(file);
        match guard::look(&file, guard::SHARED) {
            Ok(data) if end.is_empty() && data.permissions().mode() & guard::SECRET != 0 => {
                let alone = fs::Permissions::from_mode(0o600);
                fs::set_permissions(&file, alone).map_err(|error| failed(&file, &error))?;
            }
            Ok(_) => {}
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            Err(error) => return Err(DbError::Refused { path: file, why: error.to_string() }),
        }
    }
    Ok(())
}

fn prepare(connection: &Connection) -> rusqlite::Result<()> {
    connection.busy_timeout(BUSY)?;
    connection.pragma_update(None, "secure_delete", true)?;
    connection.pragma_update(None, "trusted_schema", false)?;
    connection.pragma_update(None, "foreign_keys", true)?;
    connection.pragma_update(None, "cell_size_check", true)?;
    let verdict: String = connection.query_row("PRAGMA quick_check(1)", [], |row| row.get(0))?;
    if verdict != "ok" {
        let code = rusqlite::ffi::Error::new(rusqlite::ffi::SQLITE_CORRUPT);
        return Err(rusqlite::Error::SqliteFailure(code, Some(verdict)));
    }
    let mode = write_ahead(connection)?;
    if mode != "wal" {
        let code = rusqlite::ffi::Error::new(rusqlite::ffi::SQLITE_READONLY);
        return Err(rusqlite::Error::SqliteFailure(code, Some(format!("its journal stays {mode:?}"))));
    }
    connection.pragma_update(None, "synchronous", "FULL")
}

/// Turns the write-ahead log on, and says which journal the file has then. Of several processes that do it at once `SQLite`
/// refuses all but one without asking the busy handler, since each holds a lock that the other one wants.
fn write_ahead(connection: &Connection) -> rusqlite::Result<String> {
    let until = clock::now() + BUSY;
    loop {
        match connection.query_row("PRAGMA journal_mode = WAL", [], |row| row.get(0)) {
            Err(error) if error.sqlite_error_code() == Some(ErrorCode::DatabaseBusy) && clock::now() < until => {
                std::thread::sleep(RETRY);
            }
            mode => return mode,
        }
    }
}

/// The meaning of a `SQLite` error for the operator.
fn told(path: &Path, error: &rusqlite::Error) -> DbError {
    let (path, why) = (path.to_owned(), error.to_string());
    match error.sqlite_error_code() {
        Some(ErrorCode::NotADatabase | ErrorCode::DatabaseCorrupt) => DbError::Corrupt { path, why },
        Some(ErrorCode::ReadOnly | ErrorCode::CannotOpen | ErrorCode::PermissionDenied | ErrorCode::DiskFull) => {
            DbError::NotWritable { path, why }
        }
        Some(ErrorCode::DatabaseBusy | ErrorCode::DatabaseLocked) => DbError::Busy { path },
        _ => DbError::Failed { path, why },
    }
}

#[cfg(test)]
mod tests;
