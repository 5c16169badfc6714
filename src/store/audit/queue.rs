//! The queue before the writer of the audit log: which tasks wait for a place in it, and which
//! records are lost.
//!
//! A record has its place when it is handed over, whether a task awaits it or not. There is one
//! queue, so the log has the records in the order in which they were handed over.
//!
//! - Up to [`QUEUE`] records, no task waits.
//! - Up to [`BACKLOG`] more, calls wait until the writer has caught up ([`Recorded::written`],
//!   [`Recorded::placed`]). Denials, revocations and ends of calls have taken effect, and only
//!   their records wait.
//! - Beyond that, calls, grants, logins and operators wait for a place. Any other record is lost:
//!   it is counted, both logs say so, and the gateway is degraded.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use parking_lot::Mutex;
use tokio::sync::{Notify, mpsc, oneshot, watch};

use super::ticket::{Job, Shared, Ticket, Unrecorded};
use crate::base::clock;
use crate::base::tally::Tally;
use crate::policy::Entry;
use crate::telemetry::metrics::AuditMetrics;

/// Records that may wait for the writer before calls wait with them.
pub(super) const QUEUE: usize = 1024;
/// Further records, for which no task waits: as many as there can be grants and open approvals.
pub(super) const BACKLOG: usize = 16 * 1024;
/// How long a loss is shown after the last lost record.
pub(crate) const LOSS_SHOWN: Duration = Duration::from_secs(600);
/// Lines about lost records.
static LOST: Tally = Tally::of(1);

/// The queue's end for those who record.
#[derive(Debug)]
pub(super) struct RecordQueue {
    jobs: mpsc::Sender<Job>,
    taken: watch::Receiver<()>,
    shared: Arc<Shared>,
    metrics: AuditMetrics,
}

impl RecordQueue {
    /// Makes an empty queue. Returns its other end too, and the sender by which the writer says
    /// that it has taken records.
    pub(super) fn new(deny: bool, metrics: AuditMetrics) -> (Arc<Self>, mpsc::Receiver<Job>, watch::Sender<()>) {
        let (jobs, received) = mpsc::channel(QUEUE + BACKLOG);
        let (says, taken) = watch::channel(());
        let shared = Arc::new(Shared {
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

    pub(super) const fn shared(&self) -> &Arc<Shared> {
        &self.shared
    }

    pub(super) fn downgrade(&self) -> mpsc::WeakSender<Job> {
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

    /// Why the writer takes no records, and whether calls are refused for that.
    pub(super) fn trouble(&self) -> Option<(String, bool)> {
        (!self.is_healthy()).then(|| (self.shared.trouble.lock().clone(), self.denies()))
    }

    /// Records that were lost lately because the queue was full.
    pub(super) fn loss(&self, now: Duration) -> Option<String> {
        let (lost, last) = *self.shared.losses.lock();
        let age = now.saturating_sub(last);
        let is_shown = lost > 0 && age < LOSS_SHOWN;
        is_shown.then(|| {
            format!(
                "records of the audit log found no place in its queue and are lost: {lost}, the last one {} s ago",
                age.as_secs()
            )
        })
    }

    /// Gives the writer something to do, and waits for a place for that.
    ///
    /// # Errors
    /// No writer is left.
    pub(super) async fn send(&self, job: Job) -> Result<(), Unrecorded> {
        self.jobs.send(job).await.map_err(|_| Unrecorded)?;
        self.shared.urgent.notify_one();
        Ok(())
    }

    /// Puts a record in the queue, if there is a place. The record is answered once it is on disk
    /// if it `is_durable`, or if the disk takes no records.
    pub(super) fn record(self: &Arc<Self>, entry: Entry, is_durable: bool) -> Recorded {
        let waits = is_durable || (self.denies() && !self.is_healthy());
        let (answer, answered) = waits.then(oneshot::channel).unzip();
        let ticket = Ticket { entry, at: clock::unix_millis(), durable: waits, answer };
        let unsent = match self.jobs.try_send(Job::Record(ticket)) {
            Ok(()) => None,
            Err(mpsc::error::TrySendError::Full(job) | mpsc::error::TrySendError::Closed(job)) => Some(job),
        };
        let places = self.jobs.capacity();
        if waits || places < BACKLOG + QUEUE / 2 {
            self.shared.urgent.notify_one();
        }
        if unsent.is_none() && answered.is_none() && places >= BACKLOG {
            return Recorded::Accepted;
        }
        Recorded::Pending(Box::new(Pending { queue: Arc::clone(self), unsent, answered }))
    }

    /// Waits for a place for one record.
    ///
    /// # Errors
    /// [`Unrecorded`]: no writer is left, and `on-failure` is `"deny"`.
    pub(super) async fn reserve(&self) -> Result<RecordSlot, Unrecorded> {
        match self.jobs.clone().reserve_owned().await {
            Ok(place) => Ok(RecordSlot(Some((place, Arc::clone(&self.shared))))),
            Err(_) if self.denies() => Err(Unrecorded),
            Err(_) => Ok(RecordSlot::default()),
        }
    }

    fn is_behind(&self) -> bool {
        self.jobs.capacity() < BACKLOG
    }

    /// Waits until the writer has caught up.
    ///
    /// # Errors
    /// [`Unrecorded`]: no writer is left.
    async fn caught_up(&self) -> Result<(), Unrecorded> {
        let mut taken = self.taken.clone();
        loop {
            taken.mark_unchanged();
            // Records that a writer left behind are gone with it.
            taken.has_changed().map_err(|_| Unrecorded)?;
            if !self.is_behind() {
                return Ok(());
            }
            taken.changed().await.map_err(|_| Unrecorded)?;
        }
    }

    /// Counts a record that found no place.
    fn lose(&self) {
        let now = clock::uptime();
        // The writer says it in the audit log.
        self.shared.given_up.fetch_add(1, Ordering::Relaxed);
        self.metrics.failed(1);
        let mut losses = self.shared.losses.lock();
        *losses = (losses.0 + 1, now);
        drop(losses);
        if let Some(count) = LOST.count(now) {
            tracing::error!(count, "records of the audit log are lost, since its queue is full");
        }
    }
}

/// State of a submitted record.
#[derive(Debug)]
#[must_use = "a call waits for its record; drop it where nothing waits"]
pub(crate) enum Recorded {
    /// The record is queued, and no task waits for it.
    Accepted,
    /// To be awaited by a task that can wait.
    Pending(Box<Pending>),
}

impl Recorded {
    /// Waits until the record is where it has to be: on disk, or in the queue of a writer that has
    /// caught up.
    ///
    /// # Errors
    /// [`Unrecorded`]: it was not written, and `on-failure` is `"deny"`.
    pub(crate) async fn written(self) -> Result<(), Unrecorded> {
        match self {
            Self::Accepted => Ok(()),
            Self::Pending(pending) => pending.written().await,
        }
    }

    /// Whether a request that is refused should wait too, so that no client is faster than the
    /// writer.
    pub(crate) fn waits_for_place(&self) -> bool {
        match self {
            Self::Accepted => false,
            Self::Pending(pending) => pending.unsent.is_some() || pending.queue.is_behind(),
        }
    }

    /// Waits until the record is in the queue of a writer that has caught up, or no writer is left.
    pub(crate) async fn placed(self) {
        if let Self::Pending(mut pending) = self {
            pending.answered = None;
            // The request was refused whatever becomes of its record.
            drop(pending.written().await);
        }
    }
}

/// A record that is not where it has to be yet.
#[derive(Debug)]
pub(crate) struct Pending {
    queue: Arc<RecordQueue>,
    /// The record, if it found no place.
    unsent: Option<Job>,
    /// For a record that has to be on disk.
    answered: Option<oneshot::Receiver<Result<(), Unrecorded>>>,
}

impl Pending {
    async fn written(mut self) -> Result<(), Unrecorded> {
        let failed = if self.queue.denies() { Err(Unrecorded) } else { Ok(()) };
        if self.unsent.is_some() {
            let Ok(place) = self.queue.jobs.reserve().await else { return failed };
            if let Some(job) = self.unsent.take() {
                place.send(job);
            }
            self.queue.shared.urgent.notify_one();
        }
        match self.answered.take() {
            Some(answered) => answered.await.unwrap_or(failed),
            None => self.queue.caught_up().await.or(failed),
        }
    }
}

impl Drop for Pending {
    fn drop(&mut self) {
        if self.unsent.is_some() {
            self.queue.lose();
        }
    }
}

/// A place in the queue that is kept for one record; given back on drop.
#[derive(Debug, Default)]
#[must_use = "the place is for a record"]
pub(crate) struct RecordSlot(Option<(mpsc::OwnedPermit<Job>, Arc<Shared>)>);

impl RecordSlot {
    /// Puts a record in the place. Never waits; the record is on disk soon.
    pub(crate) fn record(self, entry: Entry) {
        let Some((place, shared)) = self.0 else { return };
        drop(place.send(Job::Record(Ticket { entry, at: clock::unix_millis(), durable: true, answer: None })));
        shared.urgent.notify_one();
    }
}
