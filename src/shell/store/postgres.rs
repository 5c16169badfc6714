//! The store of a cluster in a database of `PostgreSQL`: one connection, used by one thread. Only
//! this file and those below it know connections, rows and SQL, one file for each group of tables.
//!
//! Each operation that writes is a transaction of its own under one lock of the database, so that
//! what it decides by reading is true when it writes, over all replicas. A replica that hangs in a
//! transaction is cut off by the server. Changes are told to the other replicas by `NOTIFY`; a look
//! each second finds what a notification did not tell.
//!
//! While the database cannot be used, operations fail at once, and the thread connects again
//! (`postgres/thread`). An operation whose `COMMIT` was not answered has failed too, although its
//! changes may be in the database: a once-grant may be used up then, and the call is not sent.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::mpsc::error::TrySendError;
use tokio::sync::mpsc::{self, Sender};

use super::port::{DbError, DbOperation, ReplicaLogs, ReplicaOperations, StoreEngine, StoreHealth};
use super::seal::Seals;
use crate::config::ClusterSettings;

mod bounds;
mod connect;
mod ends;
mod error;
mod job;
mod schema;
mod session;
mod tables;
#[cfg(any(test, feature = "testing"))]
pub(super) mod testing;
mod thread;

use self::bounds::WrittenBounds;
use self::connect::StoreServer;
use self::ends::WrittenEnds;
use self::error::failed;
use self::job::{PostgresJob, QueuedWork};
use self::session::{PostgresSession, WorkKind};

/// Most operations that wait for the thread; further ones fail at once.
const QUEUE: usize = 4096;

/// The open store of a cluster. Clones share it, and its thread ends when the last one is dropped.
#[derive(Clone, Debug)]
pub(super) struct Postgres {
    seals: Seals,
    /// Name of this replica, which marks the approvals of its daemon.
    replica: Arc<str>,
    bounds: Arc<WrittenBounds>,
    ends: Arc<WrittenEnds>,
    jobs: Sender<Box<dyn PostgresJob>>,
    health: Arc<StoreHealth>,
}

impl Postgres {
    /// Connects to the database, makes its tables if they are missing, and starts the thread. Waits
    /// for a database that is away as long as the settings say. Blocks.
    ///
    /// # Errors
    /// A sentence with the way out.
    pub(super) fn open(settings: &ClusterSettings, seals: Seals) -> Result<Self, DbError> {
        let (bounds, ends) = (Arc::<WrittenBounds>::default(), Arc::<WrittenEnds>::default());
        let health = Arc::<StoreHealth>::default();
        let (jobs, inbox) = mpsc::channel(QUEUE);
        let server = StoreServer::new(settings, Arc::clone(&bounds), Arc::clone(&ends))?;
        thread::start(server, settings.store_wait, Arc::clone(&health), inbox)?;
        Ok(Self { seals, replica: Arc::from(&*settings.name), bounds, ends, jobs, health })
    }

    /// Creates an operation that only reads.
    fn read<T: Send + 'static>(
        &self,
        work: impl AsyncFnOnce(&PostgresSession) -> Result<T, DbError> + Send + 'static,
    ) -> DbOperation<'_, T> {
        self.operation(WorkKind::Read, work)
    }

    /// Creates an operation whose changes matter to this replica alone, or are read when they are
    /// needed.
    fn write<T: Send + 'static>(
        &self,
        work: impl AsyncFnOnce(&PostgresSession) -> Result<T, DbError> + Send + 'static,
    ) -> DbOperation<'_, T> {
        self.operation(WorkKind::Write, work)
    }

    /// Creates an operation whose changes the other replicas are told of.
    fn announce<T: Send + 'static>(
        &self,
        work: impl AsyncFnOnce(&PostgresSession) -> Result<T, DbError> + Send + 'static,
    ) -> DbOperation<'_, T> {
        self.operation(WorkKind::Announced, work)
    }

    fn operation<T: Send + 'static>(
        &self,
        kind: WorkKind,
        work: impl AsyncFnOnce(&PostgresSession) -> Result<T, DbError> + Send + 'static,
    ) -> DbOperation<'_, T> {
        DbOperation::new(move |reply| {
            let job: Box<dyn PostgresJob> = Box::new(QueuedWork::new(kind, work, reply));
            match self.jobs.try_send(job) {
                Ok(()) => {}
                Err(TrySendError::Full(job)) => job.finish(Err(failed("too many operations wait"))),
                Err(TrySendError::Closed(job)) => job.finish(Err(DbError::Closed)),
            }
        })
    }
}

/// Counts the sealed values of the store of a cluster, by the id of their key. Changes nothing.
/// Blocks.
///
/// # Errors
/// When the store cannot be read, or is not of this program's version.
pub(super) fn count_sealed_values(settings: &ClusterSettings) -> Result<Vec<(String, u64)>, DbError> {
    look(settings, tables::sealed_columns::count_by_key)
}

/// Reads the heads of the audit logs of all replicas. Changes nothing. Blocks.
///
/// # Errors
/// When the store cannot be read, or is not of this program's version.
pub(super) fn logs_of_replicas(settings: &ClusterSettings) -> Result<ReplicaLogs, DbError> {
    look(settings, tables::audit_rows::logs_of_replicas)
}

/// Reads from the store of a cluster over a connection of its own.
fn look<T>(
    settings: &ClusterSettings,
    work: impl AsyncFnOnce(&PostgresSession) -> Result<T, DbError>,
) -> Result<T, DbError> {
    let server = StoreServer::new(settings, Arc::default(), Arc::default())?;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let runtime = runtime.map_err(|error| failed(format!("start its runtime: {error}")))?;
    runtime.block_on(server.look(work))
}

impl StoreEngine for Postgres {
    fn health(&self) -> &Arc<StoreHealth> {
        &self.health
    }

    fn replicas(&self) -> Option<Arc<dyn ReplicaOperations>> {
        Some(Arc::new(self.clone()))
    }

    fn all_so_far(&self) -> DbOperation<'_, ()> {
        self.read(async |_: &PostgresSession| Ok(()))
    }

    fn see(&self, now: u64) -> DbOperation<'_, ()> {
        self.write(async move |session: &PostgresSession| tables::meta::saw(session, now).await)
    }

    fn latest_time(&self) -> DbOperation<'_, Duration> {
        self.read(async |session: &PostgresSession| {
            tables::meta::number(session, tables::meta::LATEST_TIME).await.map(Duration::from_secs)
        })
    }

    #[cfg(test)]
    fn damage(&self, sql: &'static str) {
        self.write(async move |session: &PostgresSession| session.batch(sql).await).run_now().unwrap();
    }

    #[cfg(any(test, feature = "testing"))]
    #[allow(clippy::unwrap_used, reason = "a test fails by panicking")]
    fn refuse_writes(&self, on: bool) {
        self.read(async move |session: &PostgresSession| {
            session.refuse_writes(on);
            Ok(())
        })
        .run_now()
        .unwrap();
    }
}
