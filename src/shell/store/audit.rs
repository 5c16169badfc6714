//! The audit log on disk. One thread, the writer, writes the records of all tasks.
//!
//! Handing over a record costs its caller one channel operation. The writer formats and hashes all
//! queued records, writes them with one call, and syncs once for all tasks that wait for the disk.
//! A record without a waiting task is on disk a second later at most.
//!
//! No record is lost silently: [`queue`] describes which tasks wait for a place in the queue, and
//! what happens to a record without one. While the disk takes no records, each further record waits
//! for proof that it was written (`on-failure = "deny"`), which refuses its call until the disk
//! takes records again; the first record after that says how many are missing. `policy::chain`
//! describes the format.
//!
//! Each process writes a chain of its own: the daemon writes `main` and continues it after a
//! restart, `headend stdio` writes `s-<random>`. The daemon locks the folder, so that no second
//! daemon writes its chain. At its start the writer compares the log with the head that the store
//! kept. Half a line, as a crash leaves it, is cut off. A log that was cut or rolled back is left
//! as it is; a new segment begins with the numbers that the store expected, so that `headend audit
//! verify` names the gap from then on.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use data_encoding::HEXLOWER;
use tokio::sync::{Semaphore, oneshot};

use crate::base::clock;
use crate::config;
use crate::config::ClusterSettings;
use crate::config::source::guard;
use crate::policy::AuditEntry;
use crate::policy::records::chain::LogSettings;
use crate::store::db::{Db, DbError, ReplicaLogs};
use crate::store::disk::disk_use;
use crate::store::port::AuditHead;
use crate::store::seal::KeySource;
use crate::telemetry::metrics::{AuditMetrics, DiskUse};

pub mod action;
mod backwards;
mod dormant;
mod files;
mod journal;
pub mod past;
mod queue;
mod recover;
mod retention;
pub mod search;
pub mod tail;
mod ticket;
pub mod verify;
mod writer;

pub use self::files::{LogFolder, MAIN};
pub use self::journal::CommandChain;
pub use self::queue::{RecordSlot, RecordState};
pub use self::ticket::{AuditLogOptions, UnrecordedError};

use self::queue::RecordQueue;
use self::search::{DecisionPage, DecisionQuery, PageBounds, SearchError};
use self::ticket::{LogChange, WriterJob, WriterResources};

/// Most searches that run at once.
const SEARCHES: usize = 2;
/// Time that a further search waits for its turn.
const SEARCH_WAIT: Duration = Duration::from_secs(5);

/// The reason why the log could not be opened.
#[derive(Debug, thiserror::Error)]
pub enum AuditOpenError {
    #[error("the audit log in {path}: {source}")]
    Folder {
        path: PathBuf,
        #[source]
        source: io::Error,
    },
    #[error("the store of the audit log: {0}")]
    Store(#[source] DbError),
    #[error("start the audit log's thread: {0}")]
    Thread(#[source] io::Error),
}

/// Opens the log of the state directory `state` with the settings of the configuration, and starts
/// its writer.
///
/// # Errors
/// [`AuditOpenError`]. A relative folder must not be a symbolic link.
pub fn open_in(
    state: &Path,
    db: &Db,
    config: &config::AuditSettings,
    chain: &str,
    metrics: AuditMetrics,
) -> Result<AuditLog, AuditOpenError> {
    let options = AuditLogOptions {
        folder: state.join(&config.path),
        chain: chain.to_owned(),
        arguments: config.capture_arguments,
        strict: config.strict,
        deny: config.on_failure == config::OnFailure::Deny,
        max_segment: config.max_segment as u64,
        retain: config.retain,
    };
    let is_link = |path: &Path| std::fs::symlink_metadata(path).is_ok_and(|data| data.is_symlink());
    if config.path.is_relative() && is_link(&options.folder) {
        let source = guard::link_error(&options.folder);
        return Err(AuditOpenError::Folder { path: options.folder, source });
    }
    AuditLog::open(options, db.clone(), metrics)
}

/// Reads the heads of all chains from the store of a state directory or its cluster, and the
/// settings of its log. Returns none if there is no database, and creates none.
///
/// # Errors
/// When it cannot be read.
pub fn read_heads_in(
    state: &Path,
    cluster: Option<&ClusterSettings>,
) -> Result<(Vec<AuditHead>, Option<LogSettings>), DbError> {
    let key = KeySource::default();
    if let Some(cluster) = cluster {
        let ReplicaLogs { mut heads, key } = Db::logs_of_replicas(cluster)?;
        return Ok((heads.remove(&cluster.name).unwrap_or_default(), Some(LogSettings::new(&key, false))));
    }
    if !Db::is_in(state) {
        return Ok((Vec::new(), None));
    }
    let db = Db::open_with(state, &key)?;
    let form = LogSettings::new(&db.installation_key().run_now()?, false);
    Ok((db.audit_heads().run_now()?, Some(form)))
}

/// Generates the name of a chain that no other process writes.
pub fn new_chain_name() -> String {
    format!("s-{}", HEXLOWER.encode(&clock::random::<4>()))
}

/// The audit log; clones share it.
#[derive(Clone, Debug, Default)]
pub struct AuditLog(Option<Arc<AuditLogState>>);

#[derive(Debug)]
struct AuditLogState {
    queue: Arc<RecordQueue>,
    strict: AtomicBool,
    folder: LogFolder,
    searches: Arc<Semaphore>,
}

impl AuditLog {
    /// A log that drops all records, for a gateway without a state directory.
    pub const fn none() -> Self {
        Self(None)
    }

    /// Opens the log and starts its writer. If the disk takes no files now, the log opens later by
    /// itself, and takes no records until then.
    ///
    /// # Errors
    /// [`AuditOpenError`], if something has to be repaired first.
    pub fn open(options: AuditLogOptions, db: Db, metrics: AuditMetrics) -> Result<Self, AuditOpenError> {
        let folder = LogFolder::at(options.folder.clone());
        let form =
            LogSettings::new(&db.installation_key().run_now().map_err(AuditOpenError::Store)?, options.arguments);
        let heads = db.audit_heads().run_now().map_err(AuditOpenError::Store)?;
        let kept = heads.into_iter().find(|kept| kept.chain == options.chain);
        let (queue, jobs, taken) = RecordQueue::new(options.deny, metrics.clone());
        let (shared, back) = (Arc::clone(queue.shared()), queue.downgrade());
        let audit = Self(Some(Arc::new(AuditLogState {
            queue,
            strict: AtomicBool::new(options.strict),
            folder: folder.clone(),
            searches: Arc::new(Semaphore::new(SEARCHES)),
        })));
        let mut setting =
            WriterResources { folder, options, form, db, metrics, shared, kept, lock: None, queue: back, taken };
        let start = match dormant::open_log(&mut setting) {
            Err(source) if !dormant::is_transient(&source) => {
                return Err(AuditOpenError::Folder { path: setting.options.folder, source });
            }
            start => start,
        };
        writer::LogWriter::start(setting, start, jobs).map_err(AuditOpenError::Thread)?;
        Ok(audit)
    }

    /// Returns true if records are written to disk.
    pub const fn is_kept(&self) -> bool {
        self.0.is_some()
    }

    /// Returns the size of the log, with the chains of all processes, and the time of its last
    /// write. Blocks.
    pub fn disk_use(&self) -> DiskUse {
        let Some(inner) = &self.0 else { return DiskUse::default() };
        // A folder that cannot be read counts as empty.
        let segments = inner.folder.chains().unwrap_or_default().into_values().flatten();
        disk_use::measure(segments.map(|segment| inner.folder.path().join(segment.name())))
    }

    /// Returns why the log takes no records, and true if calls are refused for that; `None` while
    /// it takes them.
    pub fn trouble(&self) -> Option<(String, bool)> {
        self.0.as_ref()?.queue.trouble()
    }

    /// Returns a sentence about records that were lost, for some minutes after the last loss.
    pub fn loss(&self) -> Option<String> {
        self.0.as_ref()?.queue.loss(clock::uptime())
    }

    /// Hands a record over to the writer. If the queue has a place, the record is in it when this
    /// returns. A `durable` record is on disk when [`RecordState::written`] returns; so is any
    /// other record in strict mode, or while the disk takes no records and calls are refused for
    /// that.
    pub fn record(&self, entry: AuditEntry, durable: bool) -> RecordState {
        let Some(inner) = &self.0 else { return RecordState::Accepted };
        inner.queue.record(entry, durable || inner.strict.load(Ordering::Relaxed))
    }

    /// Hands over the record of an event that has already taken effect, for which no task waits.
    /// The record is on disk soon, or as soon as the disk takes records again.
    pub fn record_done(&self, entry: AuditEntry) {
        if let Some(inner) = &self.0 {
            inner.queue.record_done(entry);
        }
    }

    /// Waits for a place in the queue, for the record of a grant, a login or an operator's action
    /// that must not take effect without its record.
    ///
    /// # Errors
    /// [`UnrecordedError`], if the writer has ended and `on-failure` is `"deny"`.
    pub async fn reserve(&self) -> Result<RecordSlot, UnrecordedError> {
        match &self.0 {
            Some(inner) => inner.queue.reserve().await,
            None => Ok(RecordSlot::default()),
        }
    }

    /// Applies other settings to all records that are handed over from here on.
    pub async fn change(&self, config: &config::AuditSettings) {
        let Some(inner) = &self.0 else { return };
        let deny = config.on_failure == config::OnFailure::Deny;
        inner.strict.store(config.strict, Ordering::Relaxed);
        inner.queue.set_deny(deny);
        let settings = LogChange {
            arguments: config.capture_arguments,
            deny,
            max_segment: config.max_segment as u64,
            retain: config.retain,
        };
        // The writer may have ended; then no record follows.
        drop(inner.queue.send(WriterJob::Change(settings)).await);
    }

    /// Searches one page of decisions, on a blocking thread. A few searches run at once; each has a
    /// bound in time and bytes, within which it ends even if its caller is gone.
    ///
    /// # Errors
    /// [`SearchError`].
    pub async fn search(&self, query: DecisionQuery) -> Result<DecisionPage, SearchError> {
        let inner = self.0.as_ref().ok_or(SearchError::NoLog)?;
        let place = tokio::time::timeout(SEARCH_WAIT, Arc::clone(&inner.searches).acquire_owned());
        let Ok(Ok(place)) = place.await else { return Err(SearchError::Busy) };
        let folder = inner.folder.clone();
        let found = tokio::task::spawn_blocking(move || {
            let found = search::search(&folder, &query, PageBounds::default());
            drop(place);
            found
        });
        found.await.map_err(|_| SearchError::Busy)?.map_err(SearchError::Unreadable)
    }

    /// Continues in the chain of that name, once all records so far are on disk, the head is stored
    /// and the former chain is released for another process.
    ///
    /// # Errors
    /// The log takes no records, or the other chain cannot be opened; the log stays where it was.
    pub async fn switch(&self, chain: &str) -> io::Result<()> {
        let Some(inner) = &self.0 else { return Ok(()) };
        let (done, switched) = oneshot::channel();
        let is_sent = inner.queue.send(WriterJob::Switch(chain.to_owned(), done)).await.is_ok();
        let ended = || Err(io::Error::other(UnrecordedError));
        if is_sent { switched.await.unwrap_or_else(|_| ended()) } else { ended() }
    }

    /// Waits until all records so far are on disk and the head is stored. The log stays open.
    pub async fn flush(&self) {
        let Some(inner) = &self.0 else { return };
        let (done, flushed) = oneshot::channel();
        if inner.queue.send(WriterJob::Flush(done)).await.is_ok() {
            // A writer that ends flushes first.
            drop(flushed.await);
        }
    }
}

#[cfg(any(test, feature = "testing"))]
#[allow(clippy::unwrap_used, reason = "a test fails by panicking")]
impl AuditLog {
    /// Pauses the writer until the returned sender is dropped.
    pub async fn hold(&self) -> std::sync::mpsc::Sender<()> {
        let (release, held) = std::sync::mpsc::channel();
        let (begun, has_begun) = oneshot::channel();
        self.0.as_ref().unwrap().queue.send(WriterJob::Hold(begun, held)).await.unwrap();
        has_begun.await.unwrap();
        release
    }
}

#[cfg(test)]
mod tests;
