//! Types that the log's handles and its writer share: settings, and records in flight.

use std::fmt;
use std::fs::File;
use std::io;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64};
use std::time::Duration;

use parking_lot::Mutex;
use tokio::sync::{Notify, mpsc, oneshot, watch};

use super::files::LogFolder;
use super::retention::RetiredFiles;
use crate::base::clock;
use crate::policy::AuditEntry;
use crate::policy::records::chain::{LogSettings, RetentionBounds};
use crate::store::db::Db;
use crate::store::port::AuditHead;
use crate::telemetry::metrics::AuditMetrics;

/// The error for a record that could not be written; its action must not happen.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the audit log takes no records")]
pub struct UnrecordedError;

/// The settings of a log.
#[derive(Clone, Debug)]
pub struct AuditLogOptions {
    pub folder: PathBuf,
    /// Name of the chain, see [`chain_of_its_own`](super::new_chain_name) and
    /// [`MAIN`](super::MAIN).
    pub chain: String,
    /// Whether arguments are written in plain text.
    pub arguments: bool,
    /// Whether each record is awaited until it is on disk.
    pub strict: bool,
    /// Whether an action that cannot be recorded must not happen.
    pub deny: bool,
    /// Bytes after which a new segment begins.
    pub max_segment: u64,
    /// How long records are kept.
    pub retain: RetentionBounds,
}

/// The settings that may change while the log is open.
#[derive(Clone, Copy, Debug)]
pub(super) struct LogChange {
    pub arguments: bool,
    pub deny: bool,
    pub max_segment: u64,
    pub retain: RetentionBounds,
}

/// The resources and settings of a writer.
pub(super) struct WriterResources {
    pub(super) folder: LogFolder,
    pub(super) options: AuditLogOptions,
    pub(super) form: LogSettings,
    pub(super) db: Db,
    pub(super) metrics: AuditMetrics,
    pub(super) shared: Arc<WriterStatus>,
    pub(super) kept: Option<AuditHead>,
    /// The daemon's lock on the folder, once it has one.
    pub(super) lock: Option<File>,
    /// A sender into the writer's own queue, weak so that it does not keep the log open.
    pub(super) queue: mpsc::WeakSender<WriterJob>,
    /// Signals that the writer has taken records out of the queue. Closed when the writer ends.
    pub(super) taken: watch::Sender<()>,
}

impl WriterResources {
    pub(super) fn change(&mut self, LogChange { arguments, deny, max_segment, retain }: LogChange) {
        let Self { options, form, .. } = self;
        (options.arguments, options.deny) = (arguments, deny);
        (options.max_segment, options.retain) = (max_segment, retain);
        form.set_arguments(arguments);
    }
}

/// State that the handles and the writer share.
#[derive(Debug)]
pub(super) struct WriterStatus {
    /// Whether the last attempt to write succeeded.
    pub(super) healthy: AtomicBool,
    /// Error of the last attempt that failed.
    pub(super) trouble: Mutex<String>,
    /// Ends the writer's pause between two batches.
    pub(super) urgent: Notify,
    /// Whether an action that cannot be recorded must not happen.
    pub(super) deny: AtomicBool,
    /// Records that found no place in the queue and that the log does not mention yet.
    pub(super) given_up: AtomicU64,
    /// Number of lost records since the start, and the uptime of the last loss.
    pub(super) losses: Mutex<(u64, Duration)>,
    /// True while old files are searched or removed.
    pub(super) retiring: AtomicBool,
}

impl WriterStatus {
    /// Counts lost records, which are shown for [`LOSS_SHOWN`](super::queue::LOSS_SHOWN).
    pub(super) fn note_losses(&self, records: u64, now: Duration) {
        let mut losses = self.losses.lock();
        *losses = (losses.0 + records, now);
    }
}

/// A message to the writer.
#[derive(Debug)]
#[expect(
    clippy::large_enum_variant,
    reason = "nearly all are records, and a box would be freed by another thread than made it"
)]
pub(super) enum WriterJob {
    Record(RecordTicket),
    /// Changes the settings of all records behind it.
    Change(LogChange),
    /// Records the removal of files, then removes them.
    Retire(Vec<RetiredFiles>),
    /// Syncs everything, stores the head, and answers.
    Flush(oneshot::Sender<()>),
    /// Continues in the chain of that name, and answers.
    Switch(String, oneshot::Sender<io::Result<()>>),
    /// Answers, then blocks the writer until the other end is dropped.
    #[cfg(any(test, feature = "testing"))]
    Hold(oneshot::Sender<()>, std::sync::mpsc::Receiver<()>),
}

/// A record on its way to the writer.
#[derive(Debug)]
pub(super) struct RecordTicket {
    pub(super) entry: AuditEntry,
    /// Time of the event, in milliseconds since 1970.
    pub(super) at: u64,
    pub(super) durable: bool,
    /// True if the event has taken effect, by a person or the gateway. The writer keeps such a
    /// record while the disk takes none.
    pub(super) is_done: bool,
    pub(super) waiter: Option<RecordWaiter>,
}

impl RecordTicket {
    /// A durable record of an event that has taken effect, for which no task waits.
    pub(super) fn done(entry: AuditEntry) -> Self {
        Self { entry, at: clock::unix_millis(), durable: true, is_done: true, waiter: None }
    }

    /// A durable record of an event that takes effect once the waiter hears that the record is on
    /// disk.
    pub(super) fn awaited(entry: AuditEntry, waiter: RecordWaiter) -> Self {
        Self { entry, at: clock::unix_millis(), durable: true, is_done: false, waiter: Some(waiter) }
    }
}

/// The receiver of a record's outcome.
pub(super) enum RecordWaiter {
    Task(oneshot::Sender<Result<(), UnrecordedError>>),
    /// Work that runs on the writer's thread and must not block.
    Work(Box<dyn FnOnce(Result<(), UnrecordedError>) + Send>),
}

impl RecordWaiter {
    pub(super) fn tell(self, outcome: Result<(), UnrecordedError>) {
        match self {
            // The task may no longer wait.
            Self::Task(waiting) => drop(waiting.send(outcome)),
            Self::Work(work) => work(outcome),
        }
    }
}

impl fmt::Debug for RecordWaiter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Waiter")
    }
}
