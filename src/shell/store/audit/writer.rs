//! The thread that writes the audit log: formats records, syncs them, stores the head, and starts
//! new segments.

use std::fs::File;
use std::io::{self, Write as _};
use std::sync::atomic::Ordering;
use std::sync::mpsc::{Receiver, TryRecvError, sync_channel};
use std::time::{Duration, Instant};

use tokio::sync::{mpsc, oneshot};

use super::dormant::{self, LateLog};
use super::files::LogSegment;
use super::queue::{QUEUE, RESERVE};
use super::recover::ChainStart;
use super::ticket::{RecordTicket, UnrecordedError, WriterJob, WriterResources};
use crate::base::clock;
use crate::policy::AuditEntry;
use crate::policy::records::chain::{ChainHead, ChainWriter};
use crate::store::port::{AuditHead, DbError};

mod retire;
mod switch;

/// Longest time from handing over a plain record until it is on disk and the head is stored.
const LAG: Duration = Duration::from_secs(1);
/// Pause after a batch without waiters: a busy gateway wakes the writer 100 times a second at most.
const REST: Duration = Duration::from_millis(10);
/// Number of records on disk after which the head is written to the journal.
const ANCHOR_EVERY: u64 = 1000;

/// Returns the current day, in days since 1970.
fn today() -> u64 {
    clock::unix_millis() / (24 * 3_600_000)
}

/// Marks the log as unhealthy and stores the error for the status. Logs the error if the log was
/// healthy before.
fn note_failure(setting: &WriterResources, error: &io::Error) {
    *setting.shared.trouble.lock() = error.to_string();
    if setting.shared.healthy.swap(false, Ordering::AcqRel) {
        let what = if setting.options.deny { "calls are refused until it does" } else { "calls go on unrecorded" };
        tracing::error!(error = %error, folder = %setting.folder.path().display(), "the audit log takes no records; {what}");
    }
}

/// A position in the chain, with the counts up to it.
#[derive(Clone, Copy, Debug)]
struct ChainMark {
    chain: ChainWriter,
    /// Bytes of the segment up to there.
    length: u64,
    /// Records since the start, except those of the log about itself.
    records: u64,
    /// Lost records that the log mentions up to there.
    told: u64,
}

/// A head that was given to the store.
struct HeadWrite {
    head: ChainHead,
    /// Whether the store has kept it, once that is known.
    outcome: Receiver<Result<(), DbError>>,
}

/// The state of the writer's thread.
pub(super) struct LogWriter {
    setting: WriterResources,
    segment: LogSegment,
    file: File,
    /// Position behind everything that was written.
    written: ChainMark,
    /// Position behind everything that is on disk for certain; in the same segment as `written`.
    synced: ChainMark,
    /// The head that the store has.
    kept: Option<ChainHead>,
    /// The head that the store is to keep.
    storing: Option<HeadWrite>,
    /// Number of the record that the journal was told last.
    anchored: u64,
    /// True if the file may have bytes behind `written`, from an attempt that failed.
    must_cut: bool,
    /// Records that could not be written and that the log does not mention yet.
    lost: u64,
    /// Records of events that have taken effect and that the disk did not take yet; [`RESERVE`] at
    /// most.
    backlog: Vec<RecordTicket>,
    /// Records of such events that are written and not synced yet.
    unsynced: Vec<RecordTicket>,
    /// Deadline for the next sync and for storing the head.
    due: Option<Instant>,
    /// Whether a failure to store the head was logged.
    refused: bool,
    /// Day of the segment's first record, in days since 1970.
    day: u64,
    text: Vec<u8>,
}

impl LogWriter {
    /// Starts the thread that writes the records of `jobs`. `start` is the open log, or the error
    /// why it is not open; then the thread opens it as soon as that works.
    pub(super) fn start(
        mut setting: WriterResources,
        start: io::Result<ChainStart>,
        mut jobs: mpsc::Receiver<WriterJob>,
    ) -> io::Result<()> {
        if let Err(error) = &start {
            note_failure(&setting, error);
        }
        let work = async move {
            let opened = match start {
                Ok(start) => Some(LateLog { start, lost: 0, backlog: Vec::new() }),
                Err(_) => dormant::wait_until_open(&mut setting, &mut jobs).await,
            };
            let Some(LateLog { start, lost, backlog }) = opened else { return };
            let (mut writer, notes) = Self::new(setting, start);
            (writer.lost, writer.backlog) = (lost, backlog);
            writer.begin(notes);
            writer.run(&mut jobs).await;
        };
        #[cfg(any(test, feature = "testing"))]
        if clock::played::is_staged() {
            drop(tokio::runtime::Handle::current().spawn(work));
            return Ok(());
        }
        // A runtime of its own, so that the log outlives the runtime of the gateway.
        let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build()?;
        drop(std::thread::Builder::new().name("audit".to_owned()).spawn(move || runtime.block_on(work))?);
        Ok(())
    }

    /// Creates a writer that continues an open log; also returns the log's records about itself.
    fn new(setting: WriterResources, start: ChainStart) -> (Self, Vec<AuditEntry>) {
        let ChainStart { chain, segment, file, length, notes } = start;
        let mark = ChainMark { chain, length, records: 0, told: 0 };
        let kept = setting.kept.as_ref().map(|kept| kept.head);
        // A segment of another day is replaced at the first record, if files are kept by the day.
        let is_of_today = length == 0 || setting.folder.is_of(&segment, clock::unix_millis());
        let day = if is_of_today { today() } else { 0 };
        let writer = Self {
            setting,
            segment,
            file,
            written: mark,
            synced: mark,
            kept,
            storing: None,
            anchored: chain.head().seq,
            must_cut: false,
            lost: 0,
            backlog: Vec::new(),
            unsynced: Vec::new(),
            due: None,
            refused: false,
            day,
            text: Vec::new(),
        };
        (writer, notes)
    }

    /// Writes the log's records about its own opening, and looks for old files. A log that opened
    /// late is healthy from here on if that write succeeds.
    fn begin(&mut self, notes: Vec<AuditEntry>) {
        let is_late = !self.setting.shared.healthy.load(Ordering::Acquire);
        if is_late || !notes.is_empty() {
            self.commit(notes.into_iter().map(RecordTicket::done).collect());
        }
        self.look_for_old();
    }

    /// Takes batches from the queue until all senders are gone, then flushes.
    async fn run(&mut self, jobs: &mut mpsc::Receiver<WriterJob>) {
        let mut batch = Vec::with_capacity(QUEUE / 4);
        loop {
            let received = tokio::select! {
                received = jobs.recv_many(&mut batch, QUEUE / 4) => Some(received),
                () = clock::sleep_until(self.due) => None,
            };
            match received {
                Some(0) => break self.flush(),
                Some(_) => {
                    self.setting.taken.send_replace(());
                    self.batch(&mut batch);
                }
                None => {}
            }
            if self.due.is_some_and(|due| due <= clock::now()) {
                self.settle();
            }
            if jobs.is_empty() {
                tokio::select! {
                    () = self.setting.shared.urgent.notified() => {}
                    () = tokio::time::sleep(REST) => {}
                }
            }
        }
    }

    /// Processes a batch of jobs and empties it. Records are committed together; removals of old
    /// files and flushes come after them.
    fn batch(&mut self, jobs: &mut Vec<WriterJob>) {
        let mut tickets = Vec::with_capacity(jobs.len());
        let mut flushes: Vec<oneshot::Sender<()>> = Vec::new();
        let mut retired = Vec::new();
        for job in jobs.drain(..) {
            match job {
                WriterJob::Record(ticket) => tickets.push(ticket),
                WriterJob::Change(settings) => {
                    if !tickets.is_empty() {
                        self.commit(std::mem::take(&mut tickets));
                    }
                    self.setting.change(settings);
                }
                WriterJob::Retire(old) => retired.push(old),
                WriterJob::Flush(done) => flushes.push(done),
                WriterJob::Switch(chain, done) => {
                    if !tickets.is_empty() {
                        self.commit(std::mem::take(&mut tickets));
                    }
                    // The task may no longer wait.
                    done.send(self.switch(chain)).unwrap_or_default();
                }
                #[cfg(any(test, feature = "testing"))]
                WriterJob::Hold(begun, held) => {
                    begun.send(()).unwrap_or_default();
                    let _released = held.recv();
                }
            }
        }
        if !tickets.is_empty() {
            self.commit(tickets);
        }
        for old in retired {
            old.iter().for_each(|old| self.retire(old));
            self.setting.shared.retiring.store(false, Ordering::Release);
        }
        if !flushes.is_empty() {
            self.flush();
        }
        // The task may no longer wait.
        flushes.into_iter().for_each(|done| done.send(()).unwrap_or_default());
    }

    /// Writes records, all or none, syncs if one of them is durable, and tells their waiters the
    /// outcome.
    fn commit(&mut self, mut tickets: Vec<RecordTicket>) {
        let healthy = self.setting.shared.healthy.load(Ordering::Acquire);
        let durable = !healthy || tickets.iter().any(|ticket| ticket.durable);
        let outcome = self.write(&mut tickets).and_then(|()| if durable { self.sync() } else { Ok(()) });
        let answer = match &outcome {
            Ok(()) => {
                tickets.iter().for_each(|ticket| self.setting.metrics.recorded(ticket.entry.event));
                self.recovered(healthy);
                Ok(())
            }
            Err(error) => {
                note_failure(&self.setting, error);
                if self.setting.options.deny { Err(UnrecordedError) } else { Ok(()) }
            }
        };
        tickets.into_iter().filter_map(|ticket| ticket.waiter).for_each(|waiter| waiter.tell(answer.clone()));
        if self.due.is_none() {
            self.due = Some(clock::now() + LAG);
        }
    }

    /// Marks the log as healthy and logs that, unless it was healthy before.
    fn recovered(&self, was_healthy: bool) {
        if !was_healthy {
            self.setting.shared.healthy.store(true, Ordering::Release);
            tracing::info!("the audit log takes records again");
        }
    }

    /// Counts records that will not be in the log, also in the metrics and among the losses of the
    /// status. The next write states their number before its new records.
    fn lose(&mut self, records: u64) {
        if records != 0 {
            self.lost += records;
            self.setting.metrics.failed(records);
            self.setting.shared.note_losses(records, clock::uptime());
        }
    }

    /// Keeps records of events that have taken effect until the disk takes records; counts those
    /// without room as lost.
    fn keep(&mut self, done: Vec<RecordTicket>) {
        let room = RESERVE.saturating_sub(self.backlog.len());
        self.lose(done.len().saturating_sub(room) as u64);
        self.backlog.extend(done.into_iter().take(room));
    }

    /// Writes records without syncing them. Moves those of events that have taken effect out of
    /// `tickets`: they are kept until they are synced, also after a failure. After a failure the
    /// others count as lost.
    fn write(&mut self, tickets: &mut Vec<RecordTicket>) -> io::Result<()> {
        self.lost += self.setting.shared.given_up.swap(0, Ordering::Relaxed);
        let outcome = self.try_write(tickets);
        let (done, others) = std::mem::take(tickets).into_iter().partition(|ticket| ticket.is_done);
        *tickets = others;
        if outcome.is_ok() {
            self.unsynced.extend(done);
        } else {
            self.lose(tickets.len() as u64);
            self.keep(done);
        }
        outcome
    }

    /// Writes the backlog, the number of lost records, and `tickets` with one call, without a sync.
    /// First cuts off what a failed write left in the file, and starts a new segment if the segment
    /// is full or, when files are kept by the day, of another day. After a success the backlog
    /// waits for its sync.
    fn try_write(&mut self, tickets: &[RecordTicket]) -> io::Result<()> {
        if self.must_cut {
            self.file.set_len(self.written.length)?;
            self.must_cut = false;
        }
        let is_of_another_day =
            self.written.length != 0 && self.setting.options.retain.age.is_some() && self.day != today();
        if self.written.length >= self.setting.options.max_segment || is_of_another_day {
            self.next_segment()?;
        }
        let mut chain = self.written.chain;
        self.text.clear();
        for ticket in &self.backlog {
            chain.append(&ticket.entry, ticket.at, &self.setting.form, &mut self.text);
        }
        if self.lost != 0 {
            let why = format!("{} records before this one could not be written", self.lost);
            chain.append(&AuditEntry::gateway("lost", why), clock::unix_millis(), &self.setting.form, &mut self.text);
        }
        for ticket in tickets {
            chain.append(&ticket.entry, ticket.at, &self.setting.form, &mut self.text);
        }
        // The file must be cut unless the write succeeds.
        self.must_cut = true;
        self.file.write_all(&self.text)?;
        self.must_cut = false;
        self.written = ChainMark {
            chain,
            length: self.written.length + self.text.len() as u64,
            records: self.written.records + (self.backlog.len() + tickets.len()) as u64,
            told: self.written.told + std::mem::take(&mut self.lost),
        };
        self.unsynced.append(&mut self.backlog);
        Ok(())
    }

    /// Syncs all written records, and writes a checkpoint to the journal every [`ANCHOR_EVERY`]
    /// records. If syncing fails, the content of the disk is unknown, so the log goes back to the
    /// last synced position, and the records behind it are lost or kept for later.
    fn sync(&mut self) -> io::Result<()> {
        if self.written.chain.head() == self.synced.chain.head() {
            return Ok(());
        }
        if let Err(error) = self.file.sync_data() {
            let (written, synced) = (self.written, self.synced);
            self.lost += written.told - synced.told;
            self.written = synced;
            self.must_cut = true;
            let done = std::mem::take(&mut self.unsynced);
            self.lose((written.records - synced.records).saturating_sub(done.len() as u64));
            self.keep(done);
            return Err(error);
        }
        self.synced = self.written;
        let done = std::mem::take(&mut self.unsynced);
        done.iter().for_each(|ticket| self.setting.metrics.recorded(ticket.entry.event));
        let head = self.synced.chain.head();
        if head.seq / ANCHOR_EVERY != self.anchored / ANCHOR_EVERY {
            self.anchor(head);
        }
        Ok(())
    }

    /// Syncs the segment and creates the next one.
    fn next_segment(&mut self) -> io::Result<()> {
        self.sync()?;
        let number = self.segment.number + 1;
        let segment = LogSegment { chain: self.segment.chain.clone(), number };
        let file = match self.setting.folder.create(&segment) {
            // An empty file of a failed attempt; only this process writes the chain.
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {
                self.segment.number = number;
                return Err(error);
            }
            file => file?,
        };
        (self.segment, self.file) = (segment, file);
        self.written.length = 0;
        self.synced = self.written;
        self.day = today();
        self.look_for_old();
        Ok(())
    }

    /// Writes and syncs the backlog to find out whether the disk takes records again; if not, sets
    /// the time of the next try. While calls are refused, no record may come that would show it.
    fn retry(&mut self) {
        self.lost += self.setting.shared.given_up.swap(0, Ordering::Relaxed);
        match self.try_write(&[]).and_then(|()| self.sync()) {
            Ok(()) => self.recovered(false),
            Err(error) => {
                *self.setting.shared.trouble.lock() = error.to_string();
                self.due = Some(clock::now() + LAG);
            }
        }
    }

    /// Syncs records without waiters, and begins to store the head. Does not wait for the store:
    /// one that is slow must not hold up records. While the log takes no records, tries that again
    /// first.
    fn settle(&mut self) {
        self.sync_rest();
        self.store_head(false);
    }

    /// Does what [`Self::settle`] does, and waits for the store.
    fn settle_now(&mut self) {
        self.sync_rest();
        self.store_head(true);
    }

    fn sync_rest(&mut self) {
        self.due = None;
        if !self.setting.shared.healthy.load(Ordering::Acquire) {
            self.retry();
        }
        if let Err(error) = self.sync() {
            note_failure(&self.setting, &error);
        }
    }

    /// Begins to store the head, once an earlier one is stored.
    fn store_head(&mut self, must_wait: bool) {
        self.look_at_store(must_wait);
        let head = self.synced.chain.head();
        if self.storing.is_some() || self.kept == Some(head) || head.seq == 0 {
            return;
        }
        let kept = AuditHead { chain: self.segment.chain.clone(), head, segment: self.segment.name() };
        let (done, outcome) = sync_channel(1);
        self.setting.db.keep_audit_head(kept).then(move |kept| drop(done.send(kept)));
        self.storing = Some(HeadWrite { head, outcome });
        self.look_at_store(must_wait);
    }

    /// Notes whether the store has kept the head that it was given. While it is not known, looks
    /// again later.
    fn look_at_store(&mut self, must_wait: bool) {
        let Some(HeadWrite { head, outcome }) = &self.storing else { return };
        let outcome = if must_wait { outcome.recv().map_err(TryRecvError::from) } else { outcome.try_recv() };
        let kept = match outcome {
            Ok(kept) => kept,
            Err(TryRecvError::Disconnected) => Err(DbError::Closed),
            Err(TryRecvError::Empty) => {
                self.due = Some(clock::now() + LAG);
                return;
            }
        };
        match kept {
            Ok(()) => (self.kept, self.refused) = (Some(*head), false),
            Err(error) => {
                if !std::mem::replace(&mut self.refused, true) {
                    tracing::error!(error = %error, "the head of the audit log cannot be kept; a log that is cut would not be noticed");
                }
                self.due = Some(clock::now() + LAG);
            }
        }
        self.storing = None;
    }

    /// Syncs everything, stores the head, and writes it to the journal.
    fn flush(&mut self) {
        self.settle_now();
        self.anchor(self.synced.chain.head());
    }

    /// Writes the head of the log to the journal, which is stored elsewhere than the audit log.
    fn anchor(&mut self, head: ChainHead) {
        if head.seq != self.anchored {
            self.anchored = head.seq;
            tracing::info!(
                target: "audit",
                chain = %self.segment.chain,
                seq = head.seq,
                hash = %head.hash,
                "checkpoint"
            );
        }
    }
}
