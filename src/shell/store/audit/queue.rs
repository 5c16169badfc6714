//! The queue before the writer of the audit log: which tasks wait for a place in it, and which
//! records are lost.
//!
//! A record that finds a place gets it when it is handed over, whether or not a task awaits it.
//! There is one queue, so the log has the records in the order in which they got their places.
//!
//! - Up to [`QUEUE`] records, no task waits. Decisions about calls have no further places: beyond
//!   that, the task of the call keeps its record and waits ([`RecordState::written`],
//!   [`RecordState::placed`]).
//! - [`BACKLOG`] more places are for events that have taken effect: ends of calls, changes of pins,
//!   sums of calls of hidden items.
//! - [`RESERVE`] more places are for answers, revocations, operators' actions and the gateway
//!   itself, so that no client and no server keeps their records out.
//! - Beyond that, grants, logins and operators wait for a place. Any other record is lost, and so
//!   is the record of a call whose client goes away while its task waits: it is counted, both logs
//!   say so, and the gateway is degraded.
//!
//! A grant or a login takes effect once its record is on disk ([`RecordSlot::record_before`],
//! [`RecordSlot::written`]).
//!
//! Arguments in queued records are bounded too: those of
//! [`COUNTED_FROM`](crate::base::budget::COUNTED_FROM) bytes or more take room in the byte budget
//! while the record waits, and smaller ones are bounded by the number of decisions and approvals.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use parking_lot::Mutex;
use tokio::sync::{Notify, mpsc, oneshot, watch};

use super::ticket::{RecordTicket, RecordWaiter, UnrecordedError, WriterJob, WriterStatus};
use crate::base::clock;
use crate::base::tally::LogTally;
use crate::policy::{AuditEntry, AuditEvent};
use crate::telemetry::metrics::AuditMetrics;

/// Records that may be queued before calls wait.
pub(super) const QUEUE: usize = 1024;
/// Further places for effects of clients and servers, for which no task waits.
pub(super) const BACKLOG: usize = 16 * 1024;
/// Further places for acts of people and the gateway: as many as there can be grants and open
/// approvals.
pub(super) const RESERVE: usize = 16 * 1024;
/// Places that are free while the writer has caught up.
const CAUGHT_UP: usize = BACKLOG + RESERVE;
/// Time for which a loss is shown after the last lost record.
pub(super) const LOSS_SHOWN: Duration = Duration::from_secs(600);
/// Rate limit of log lines about lost records.
static LOST: LogTally = LogTally::of(1);

/// The sending end of the queue.
#[derive(Debug)]
pub(super) struct RecordQueue {
    jobs: mpsc::Sender<WriterJob>,
    taken: watch::Receiver<()>,
    shared: Arc<WriterStatus>,
    metrics: AuditMetrics,
}

impl RecordQueue {
    /// Creates an empty queue. Also returns its receiving end, and the sender by which the writer
    /// signals that it has taken records.
    pub(super) fn new(deny: bool, metrics: AuditMetrics) -> (Arc<Self>, mpsc::Receiver<WriterJob>, watch::Sender<()>) {
        let (jobs, received) = mpsc::channel(QUEUE + CAUGHT_UP);
        let (says, taken) = watch::channel(());
        let shared = Arc::new(WriterStatus {
            healthy: AtomicBool::new(true),
            trouble: Mutex::default(),
            urgent: Notify::new(),
            deny: AtomicBool::new(deny),
            given_up: AtomicU64::new(0),
            losses: Mutex::default(),
            retiring: AtomicBool::new(false),
        });
        (Arc::new(Self { jobs, taken, shared, metrics }), received, says)
    }

    pub(super) const fn shared(&self) -> &Arc<WriterStatus> {
        &self.shared
    }

    pub(super) fn downgrade(&self) -> mpsc::WeakSender<WriterJob> {
        self.jobs.downgrade()
    }

    pub(super) fn set_deny(&self, deny: bool) {
        self.shared.deny.store(deny, Ordering::Relaxed);
    }

    fn denies(&self) -> bool {
        self.shared.deny.load(Ordering::Relaxed)
    }

    fn is_healthy(&self) -> bool {
        self.shared.healthy.load(Ordering::Acquire)
    }

    /// Returns why the writer takes no records, and true if calls are refused for that; `None`
    /// while it takes them.
    pub(super) fn trouble(&self) -> Option<(String, bool)> {
        (!self.is_healthy()).then(|| (self.shared.trouble.lock().clone(), self.denies()))
    }

    /// Returns a sentence about records that were lost in the last [`LOSS_SHOWN`], because the
    /// queue was full or the disk took none.
    pub(super) fn loss(&self, now: Duration) -> Option<String> {
        let (lost, last) = *self.shared.losses.lock();
        let age = now.saturating_sub(last);
        let is_shown = lost > 0 && age < LOSS_SHOWN;
        is_shown.then(|| {
            format!(
                "records of the audit log found no place in its queue or on the disk and are lost: {lost}, the last one {} s ago",
                age.as_secs()
            )
        })
    }

    /// Waits for a place for a job, and sends it to the writer.
    ///
    /// # Errors
    /// [`UnrecordedError`], if the writer has ended.
    pub(super) async fn send(&self, job: WriterJob) -> Result<(), UnrecordedError> {
        self.jobs.send(job).await.map_err(|_| UnrecordedError)?;
        self.shared.urgent.notify_one();
        Ok(())
    }

    /// Queues a record if there is a place; otherwise the returned value keeps it and waits. A
    /// record that `is_durable` is answered once it is on disk, and so is any record while the disk
    /// takes none and `on-failure` is `"deny"`.
    pub(super) fn record(self: &Arc<Self>, entry: AuditEntry, is_durable: bool) -> RecordState {
        let waits = is_durable || (self.denies() && !self.is_healthy());
        let (waiter, answered) = waits.then(oneshot::channel).unzip();
        let spared = spared_places(entry.event);
        let waiter = waiter.map(RecordWaiter::Task);
        let ticket = RecordTicket { entry, at: clock::unix_millis(), durable: waits, is_done: false, waiter };
        let unsent = self.place(WriterJob::Record(ticket), spared).err();
        let places = self.jobs.capacity();
        if waits || places < CAUGHT_UP + QUEUE / 2 {
            self.shared.urgent.notify_one();
        }
        if unsent.is_none() && answered.is_none() && places >= CAUGHT_UP {
            return RecordState::Accepted;
        }
        RecordState::Pending(Box::new(PendingRecord { queue: Arc::clone(self), unsent, spared, answered }))
    }

    /// Queues the record of an event that has taken effect, or counts it as lost. Never waits. The
    /// writer keeps the record while the disk takes none.
    pub(super) fn record_done(&self, entry: AuditEntry) {
        let spared = spared_places(entry.event);
        match self.place(WriterJob::Record(RecordTicket::done(entry)), spared) {
            Ok(()) => self.shared.urgent.notify_one(),
            Err(_) => self.lose(),
        }
    }

    /// Queues a job if more than `spared` places are free, else returns it. Tasks that do this at
    /// the same moment may each take one place more.
    #[expect(clippy::result_large_err, reason = "the record itself, which is moved on")]
    fn place(&self, job: WriterJob, spared: usize) -> Result<(), WriterJob> {
        if self.jobs.capacity() <= spared {
            return Err(job);
        }
        self.jobs.try_send(job).map_err(mpsc::error::TrySendError::into_inner)
    }

    /// Waits for a place for one record, and reserves it.
    ///
    /// # Errors
    /// [`UnrecordedError`], if the writer has ended and `on-failure` is `"deny"`.
    pub(super) async fn reserve(&self) -> Result<RecordSlot, UnrecordedError> {
        match self.jobs.clone().reserve_owned().await {
            Ok(place) => Ok(RecordSlot(Some((place, Arc::clone(&self.shared))))),
            Err(_) if self.denies() => Err(UnrecordedError),
            Err(_) => Ok(RecordSlot::default()),
        }
    }

    fn is_behind(&self) -> bool {
        self.jobs.capacity() < CAUGHT_UP
    }

    /// Waits until at least `places` places are free.
    ///
    /// # Errors
    /// [`UnrecordedError`], if the writer has ended.
    async fn has_places(&self, places: usize) -> Result<(), UnrecordedError> {
        let mut taken = self.taken.clone();
        loop {
            taken.mark_unchanged();
            // Records that an ended writer left behind are gone with it.
            taken.has_changed().map_err(|_| UnrecordedError)?;
            if self.jobs.capacity() >= places {
                return Ok(());
            }
            taken.changed().await.map_err(|_| UnrecordedError)?;
        }
    }

    /// Counts a record that found no place, and logs that at a bounded rate.
    fn lose(&self) {
        let now = clock::uptime();
        // The writer reports the number in the audit log.
        self.shared.given_up.fetch_add(1, Ordering::Relaxed);
        self.metrics.failed(1);
        self.shared.note_losses(1, now);
        if let Some(count) = LOST.count(now) {
            tracing::error!(count, "records of the audit log are lost, since its queue is full");
        }
    }
}

/// Returns the number of free places that records of this event leave to others.
const fn spared_places(event: AuditEvent) -> usize {
    match event {
        AuditEvent::Decision => CAUGHT_UP,
        AuditEvent::Outcome | AuditEvent::Refusals | AuditEvent::Pin | AuditEvent::Launch => RESERVE,
        AuditEvent::Prompt
        | AuditEvent::Answer
        | AuditEvent::Grant
        | AuditEvent::Revoke
        | AuditEvent::Gateway
        | AuditEvent::Action => 0,
    }
}

/// The state of a record that was handed over.
#[derive(Debug)]
#[must_use = "a call waits for its record; drop it where nothing waits"]
pub enum RecordState {
    /// The record is queued, and no task waits for it.
    Accepted,
    /// The record has to be awaited by a task that can wait.
    Pending(Box<PendingRecord>),
}

impl RecordState {
    /// Waits until the record is on disk if it has to be; else until it is in the queue of a writer
    /// that has caught up.
    ///
    /// # Errors
    /// [`UnrecordedError`], if the record was not written and `on-failure` is `"deny"`.
    pub async fn written(self) -> Result<(), UnrecordedError> {
        match self {
            Self::Accepted => Ok(()),
            Self::Pending(pending) => pending.written().await,
        }
    }

    /// Returns true if a request that is refused should wait too, so that clients cannot outrun the
    /// writer.
    pub fn waits_for_place(&self) -> bool {
        match self {
            Self::Accepted => false,
            Self::Pending(pending) => pending.unsent.is_some() || pending.queue.is_behind(),
        }
    }

    /// Waits until the record is in the queue of a writer that has caught up, or the writer has
    /// ended.
    pub async fn placed(self) {
        if let Self::Pending(mut pending) = self {
            pending.answered = None;
            // The request was refused, so the outcome of its record changes nothing.
            drop(pending.written().await);
        }
    }
}

/// A record that is not queued yet, or not on disk yet.
#[derive(Debug)]
pub struct PendingRecord {
    queue: Arc<RecordQueue>,
    /// The record, if it found no place.
    unsent: Option<WriterJob>,
    /// Free places that the record leaves to others.
    spared: usize,
    /// Receives the outcome of a record that has to be on disk.
    answered: Option<oneshot::Receiver<Result<(), UnrecordedError>>>,
}

impl PendingRecord {
    async fn written(mut self) -> Result<(), UnrecordedError> {
        let failed = if self.queue.denies() { Err(UnrecordedError) } else { Ok(()) };
        while let Some(job) = self.unsent.take() {
            // The record stays in `self` during the wait, so that it is counted as lost if the task
            // is dropped.
            self.unsent = self.queue.place(job, self.spared).err();
            if self.unsent.is_some() && self.queue.has_places(self.spared + 1).await.is_err() {
                return failed;
            }
            self.queue.shared.urgent.notify_one();
        }
        match self.answered.take() {
            Some(answered) => answered.await.unwrap_or(failed),
            None => self.queue.has_places(CAUGHT_UP).await.or(failed),
        }
    }
}

impl Drop for PendingRecord {
    fn drop(&mut self) {
        if self.unsent.is_some() {
            self.queue.lose();
        }
    }
}

/// A reserved place in the queue for one record; released on drop.
#[derive(Debug, Default)]
#[must_use = "the place is for a record"]
pub struct RecordSlot(Option<(mpsc::OwnedPermit<WriterJob>, Arc<WriterStatus>)>);

impl RecordSlot {
    /// Queues the record of an event that has taken effect. Never waits; the record is on disk
    /// soon.
    pub fn record(self, entry: AuditEntry) {
        self.submit(RecordTicket::done(entry));
    }

    /// Queues a record, and starts `work` once the record is on disk or cannot be written. `work`
    /// runs on the writer's thread and must not block; it is dropped if the writer ends.
    pub fn record_before(self, entry: AuditEntry, work: impl FnOnce(Result<(), UnrecordedError>) + Send + 'static) {
        if self.0.is_none() {
            return work(Ok(()));
        }
        self.submit(RecordTicket::awaited(entry, RecordWaiter::Work(Box::new(work))));
    }

    /// Queues a record, and waits until it is on disk.
    ///
    /// # Errors
    /// [`UnrecordedError`], if the record was not written and `on-failure` is `"deny"`.
    pub async fn written(self, entry: AuditEntry) -> Result<(), UnrecordedError> {
        let Some((_, shared)) = &self.0 else { return Ok(()) };
        let shared = Arc::clone(shared);
        let (waiter, outcome) = oneshot::channel();
        self.submit(RecordTicket::awaited(entry, RecordWaiter::Task(waiter)));
        let failed = || if shared.deny.load(Ordering::Relaxed) { Err(UnrecordedError) } else { Ok(()) };
        outcome.await.unwrap_or_else(|_| failed())
    }

    fn submit(self, ticket: RecordTicket) {
        let Some((place, shared)) = self.0 else { return };
        drop(place.send(WriterJob::Record(ticket)));
        shared.urgent.notify_one();
    }
}
