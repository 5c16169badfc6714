//! Shared by the log and its writer: settings, and records in flight.

use std::fmt;
use std::fs::File;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64};
use std::time::Duration;

use parking_lot::Mutex;
use tokio::sync::{Notify, mpsc, oneshot, watch};

use super::files::Folder;
use super::retention::Retired;
use crate::base::clock;
use crate::policy::Entry;
use crate::policy::chain::{Form, Retain};
use crate::store::db::Db;
use crate::store::port::AuditHead;
use crate::telemetry::metrics::AuditMetrics;

/// A record could not be written; its action must not happen.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the audit log takes no records")]
pub struct Unrecorded;

/// How the log is kept.
#[derive(Clone, Debug)]
pub struct Options {
    pub folder: PathBuf,
    /// See [`chain_of_its_own`](super::chain_of_its_own) and [`MAIN`](super::MAIN).
    pub chain: String,
    /// Whether arguments are written down as they are.
    pub arguments: bool,
    /// Whether each record is durable.
    pub strict: bool,
    /// Whether what cannot be recorded must not happen.
    pub deny: bool,
    /// Bytes after which a new segment begins.
    pub max_segment: u64,
    /// How long records are kept.
    pub retain: Retain,
}

/// The settings that may change while the log is written.
#[derive(Clone, Copy, Debug)]
pub(super) struct Settings {
    pub(super) arguments: bool,
    pub(super) deny: bool,
    pub(super) max_segment: u64,
    pub(super) retain: Retain,
}

/// Settings of a writer.
pub(super) struct Setting {
    pub(super) folder: Folder,
    pub(super) options: Options,
    pub(super) form: Form,
    pub(super) db: Db,
    pub(super) metrics: AuditMetrics,
    pub(super) shared: Arc<Shared>,
    pub(super) kept: Option<AuditHead>,
    /// The daemon's lock of the folder, once it has one.
    pub(super) lock: Option<File>,
    /// The way back into the queue, which keeps no log open.
    pub(super) queue: mpsc::WeakSender<Job>,
    /// Changes when the writer has taken records out of the queue. Closed when no writer is left.
    pub(super) taken: watch::Sender<()>,
}

impl Setting {
    pub(super) fn change(&mut self, Settings { arguments, deny, max_segment, retain }: Settings) {
        let Self { options, form, .. } = self;
        (options.arguments, options.deny) = (arguments, deny);
        (options.max_segment, options.retain) = (max_segment, retain);
        form.set_arguments(arguments);
    }
}

/// Shared by handles and the writer.
#[derive(Debug)]
pub(super) struct Shared {
    /// Whether the last attempt to write succeeded.
    pub(super) healthy: AtomicBool,
    /// Why the last attempt that failed did so.
    pub(super) trouble: Mutex<String>,
    /// Ends the writer's rest between two batches.
    pub(super) urgent: Notify,
    /// Whether what cannot be recorded must not happen.
    pub(super) deny: AtomicBool,
    /// Records that found no place in the queue, until the writer has said so in the log.
    pub(super) given_up: AtomicU64,
    /// The number of lost records since the start, and the uptime of the last one.
    pub(super) losses: Mutex<(u64, Duration)>,
    /// Whether what is kept no longer is looked for or being removed.
    pub(super) retiring: AtomicBool,
}

impl Shared {
    /// Notes lost records, which are shown for [`LOSS_SHOWN`](super::queue::LOSS_SHOWN).
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
pub(super) enum Job {
    Record(Ticket),
    /// What comes behind it is written under other settings.
    Change(Settings),
    /// Record the removal of files, then remove them.
    Retire(Vec<Retired>),
    /// Sync everything, keep the head, say so.
    Flush(oneshot::Sender<()>),
    /// Say that the writer rests, which it does until the other end is dropped.
    #[cfg(any(test, feature = "testing"))]
    Hold(oneshot::Sender<()>, std::sync::mpsc::Receiver<()>),
}

/// A record on its way.
#[derive(Debug)]
pub(super) struct Ticket {
    pub(super) entry: Entry,
    /// When it happened, in milliseconds since 1970.
    pub(super) at: u64,
    pub(super) durable: bool,
    /// Whether the event has taken effect by a person's or the gateway's hand. The writer keeps
    /// such a record while the disk takes none.
    pub(super) is_done: bool,
    pub(super) waiter: Option<Waiter>,
}

impl Ticket {
    /// A durable record of an event that has taken effect, for which no task waits.
    pub(super) fn done(entry: Entry) -> Self {
        Self { entry, at: clock::unix_millis(), durable: true, is_done: true, waiter: None }
    }

    /// A durable record of an event that takes effect once the waiter is told that it is on disk.
    pub(super) fn awaited(entry: Entry, waiter: Waiter) -> Self {
        Self { entry, at: clock::unix_millis(), durable: true, is_done: false, waiter: Some(waiter) }
    }
}

/// The receiver of a record's outcome.
pub(super) enum Waiter {
    Task(oneshot::Sender<Result<(), Unrecorded>>),
    /// Work that the writer's thread starts. Must not block.
    Work(Box<dyn FnOnce(Result<(), Unrecorded>) + Send>),
}

impl Waiter {
    pub(super) fn tell(self, outcome: Result<(), Unrecorded>) {
        match self {
            // A task that no longer waits does not need the answer.
            Self::Task(waiting) => drop(waiting.send(outcome)),
            Self::Work(work) => work(outcome),
        }
    }
}

impl fmt::Debug for Waiter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Waiter")
    }
}
