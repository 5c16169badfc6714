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
//!
//! A disk that takes no writes stops nothing: operations that would write fail, all others go on, and the thread tries again until
//! it takes them (`db/thread`, `db/open`, `db/health`).

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::mpsc::{self, SyncSender, TrySendError};
use std::time::Duration;

use rusqlite::Connection;
use tokio::sync::oneshot;

use crate::store::seal::{KeySource, Seals};
use crate::wire::secrets::Secrets;

mod approvals;
mod audit;
mod backup;
mod closing;
mod error;
mod grants;
mod health;
mod job;
mod limits;
mod logins;
mod meta;
mod number;
mod open;
mod pins;
mod prompts;
mod restored;
mod schema;
mod sessions;
mod sign_ins;
mod states;
mod thread;

pub use self::backup::{BackupRows, back_up};
pub use self::error::DbError;
pub use self::health::Health;
pub use self::job::Work;
pub use self::logins::{Claim, Claimant, LoginKey, MadeLogin};
pub use self::sessions::Kept;
pub use self::sign_ins::{Key, SignIn};

use self::closing::Running;
use self::job::{Begun, Job, Place};

/// Operations that may wait for the thread.
const QUEUE: usize = 4096;
/// The file in the state directory.
pub const FILE: &str = "headend.db";
/// The threads of the databases of this process.
static THREADS: Running = Running::new();

/// Waits until all databases of this process are closed, no longer than `most`. For the end of the process, once all their clones are
/// dropped. Blocks.
pub fn wait_until_closed(most: Duration) {
    THREADS.wait(most);
}

/// The open database. Clones are the same one; the thread ends with the last of them.
#[derive(Clone, Debug)]
pub struct Db {
    path: PathBuf,
    seals: Seals,
    jobs: SyncSender<Box<dyn Job>>,
    health: Arc<Health>,
    /// On a stage, which has no thread for it.
    #[cfg(any(test, feature = "testing"))]
    unthreaded: Option<Arc<thread::Unthreaded>>,
}

impl Db {
    /// [`Self::open_with`] a key in the same directory.
    #[cfg(any(test, feature = "testing"))]
    pub fn open(dir: &Path) -> Result<Self, DbError> {
        Self::open_with(dir, &KeySource { given: None, make: true })
    }

    /// Whether this directory has a store; opening one makes it.
    pub fn is_in(dir: &Path) -> bool {
        dir.join(FILE).exists()
    }

    /// The database and the log of writes that it has not taken yet.
    pub fn files_in(dir: &Path) -> impl Iterator<Item = PathBuf> {
        [FILE.to_owned(), format!("{FILE}-wal")].map(|name| dir.join(name)).into_iter()
    }

    /// Opens the file in this directory, made if it is missing, and starts its thread. Some values in it are sealed with `key`.
    /// Where the disk takes no writes the file is read, and [`Self::health`] says so. Blocks.
    ///
    /// # Errors
    /// A sentence with the file and the way out.
    pub fn open_with(dir: &Path, key: &KeySource) -> Result<Self, DbError> {
        let seals = Seals::of(dir, key).map_err(DbError::Key)?;
        let path = dir.join(FILE);
        let health = Arc::new(Health::default());
        let work = thread::Thread::open(path.clone(), Arc::clone(&health))?;
        let (jobs, inbox) = mpsc::sync_channel(QUEUE);
        #[cfg(any(test, feature = "testing"))]
        if crate::base::clock::played::is_staged() {
            let unthreaded = Some(Arc::new(thread::Unthreaded::new(work, inbox)));
            return Ok(Self { path, seals, jobs, health, unthreaded });
        }
        let run = THREADS.begin();
        #[cfg(any(test, feature = "testing"))]
        let process = crate::base::clock::played::Process::current();
        let started = std::thread::Builder::new().name("db".to_owned()).spawn(move || {
            #[cfg(any(test, feature = "testing"))]
            if let Some(process) = process {
                process.enter();
            }
            work.run(&inbox);
            drop(run);
        });
        match started {
            // It ends with the last sender; `wait_until_closed` is for the end of the process.
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

    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Whether it takes writes.
    pub fn health(&self) -> &Arc<Health> {
        &self.health
    }

    /// Whether a value was left out so far, since its key is missing.
    pub fn has_lost(&self) -> bool {
        self.seals.has_lost()
    }

    /// Secrets for that purpose, made of the keys of the store and of its identity; `None` where
    /// there is no key. Blocks.
    ///
    /// # Errors
    /// When it cannot be read.
    pub fn secrets(&self, purpose: &str) -> Result<Option<Secrets>, DbError> {
        let identity = self.identity().run_now()?;
        Ok(self.seals.secrets(purpose, &identity))
    }

    /// Waits for all operations begun before this one: their writes are on disk.
    pub fn all_so_far(&self) -> Operation<'_, impl Work<Out = ()>> {
        self.read(|_| Ok(()))
    }

    /// An operation that only reads: alone it needs no transaction.
    fn read<T: Send + 'static, W>(&self, work: W) -> Operation<'_, W>
    where
        W: FnOnce(&Connection) -> rusqlite::Result<T> + Send + 'static,
    {
        Operation { db: self, place: Place::Any, work }
    }

    /// An operation in a transaction.
    fn write<T: Send + 'static, W>(&self, work: W) -> Operation<'_, W>
    where
        W: FnOnce(&Connection) -> rusqlite::Result<T> + Send + 'static,
    {
        Operation { db: self, place: Place::Inside, work }
    }

    /// Empties the journal into the file, so that no replaced value is left there. Blocks.
    fn forget_replaced(&self) {
        // Another process that reads puts it off until the next one.
        if let Err(error) = self.empty_journal().run_now() {
            tracing::debug!(error = %error, "the journal of the store is not emptied yet");
        }
    }

    /// Finds its transaction in the way where it is done inside of one.
    fn empty_journal(&self) -> Operation<'_, impl Work<Out = ()>> {
        let work = |connection: &Connection| connection.query_row("PRAGMA wal_checkpoint(TRUNCATE)", [], |_| Ok(()));
        Operation { db: self, place: Place::Outside, work }
    }

    /// Changes the tables as nothing in this program would.
    #[cfg(test)]
    pub fn damage(&self, sql: &'static str) {
        self.write(move |connection| connection.execute_batch(sql)).run_now().unwrap();
    }

    /// Makes the connection refuse writes, as a full disk does, or take them again.
    #[cfg(any(test, feature = "testing"))]
    #[allow(clippy::unwrap_used, reason = "a test fails by panicking")]
    pub fn refuse_writes(&self, on: bool) {
        self.read(move |connection| connection.pragma_update(None, "query_only", on)).run_now().unwrap();
    }

    fn send(&self, job: Box<dyn Job>) {
        match self.jobs.try_send(job) {
            Ok(()) => {}
            Err(TrySendError::Full(job)) => job.refuse(DbError::Full { path: self.path.clone() }),
            Err(TrySendError::Disconnected(job)) => job.refuse(self.closed()),
        }
        #[cfg(any(test, feature = "testing"))]
        if let Some(unthreaded) = &self.unthreaded {
            unthreaded.work();
        }
    }

    fn closed(&self) -> DbError {
        DbError::Closed { path: self.path.clone() }
    }
}

/// An operation that has not begun. Its writes are on disk when its outcome is known; one that fails has written
/// nothing.
#[must_use = "an operation does nothing until it is run"]
#[derive(Debug)]
pub struct Operation<'d, W> {
    db: &'d Db,
    place: Place,
    work: W,
}

impl<W: Work> Operation<'_, W> {
    /// Begins it. The future tells the outcome; dropping it stops nothing.
    ///
    /// # Errors
    /// [`DbError`]; nothing was written then.
    pub fn run(self) -> impl Future<Output = Result<W::Out, DbError>> {
        let outcome = self.run_with(|outcome| outcome);
        async move { outcome.await? }
    }

    /// Begins it. The future tells what `conclude`, which is called like that of [`Self::then`], made of the outcome; dropping it
    /// stops neither.
    ///
    /// # Errors
    /// When the database ended before.
    pub fn run_with<R: Send + 'static>(
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
    pub fn run_now(self) -> Result<W::Out, DbError> {
        let db = self.db;
        let (reply, answer) = mpsc::sync_channel(1);
        self.then(move |outcome| drop(reply.send(outcome)));
        answer.recv().unwrap_or_else(|_| Err(db.closed()))
    }

    /// Begins it, and calls `done` on the database's thread before any later operation begins, even if no task waits
    /// any more. `done` must not block. It is called at once if the operation cannot be taken.
    pub fn then(self, done: impl FnOnce(Result<W::Out, DbError>) + Send + 'static) {
        let Self { db, place, work } = self;
        db.send(Box::new(Begun { path: db.path.clone(), place, work, done }));
    }
}

/// Ends a job: without a key, a value that must be sealed is not written.
pub fn no_key() -> rusqlite::Error {
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

#[cfg(test)]
mod tests;
