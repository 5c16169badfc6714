//! A log whose folder takes no files at the start. Until it does, records are lost, except those of
//! events that have taken effect.

use std::io;
use std::time::Duration;

use tokio::sync::mpsc;

use super::files::MAIN;
use super::queue::{QUEUE, RESERVE};
use super::recover::{self, ChainStart};
use super::ticket::{RecordTicket, UnrecordedError, WriterJob, WriterResources};
use crate::base::clock;

/// Time between two attempts to open the folder while no record comes.
const AGAIN: Duration = Duration::from_secs(1);

/// Returns true if a failed opening may succeed later by itself, because the operating system
/// refused it, and no check of headend did.
pub(super) fn is_transient(error: &io::Error) -> bool {
    error.raw_os_error().is_some()
}

/// Creates the folder if it is missing, and opens the chain's last segment or its first. For the
/// daemon's chain, locks the folder before; the lock stays in `setting`. Blocks.
pub(super) fn open_log(setting: &mut WriterResources) -> io::Result<ChainStart> {
    setting.folder.make()?;
    if setting.options.chain == MAIN && setting.lock.is_none() {
        setting.lock = setting.folder.lock(Some(setting.db.dir()))?;
    }
    recover::resume(&setting.folder, &setting.options.chain, setting.kept.as_ref())
}

/// A log that opened late.
pub(super) struct LateLog {
    pub(super) start: ChainStart,
    /// Number of records lost before the log opened.
    pub(super) lost: u64,
    /// Records of events that took effect before the log opened, the oldest first.
    pub(super) backlog: Vec<RecordTicket>,
}

/// Handles jobs until the log opens, which is tried for each batch and each second. Records of
/// events that have taken effect are kept, [`RESERVE`] at most; all others are lost, and their
/// waiters get an error only if calls are refused without a log (`deny`). Changed settings are
/// applied. Returns the open log, or `None` if all senders are gone.
pub(super) async fn wait_until_open(
    setting: &mut WriterResources,
    jobs: &mut mpsc::Receiver<WriterJob>,
) -> Option<LateLog> {
    let mut lost = 0;
    let mut backlog = Vec::new();
    let mut batch = Vec::with_capacity(QUEUE / 4);
    loop {
        let received = tokio::time::timeout(AGAIN, jobs.recv_many(&mut batch, QUEUE / 4)).await;
        if received == Ok(0) {
            return None;
        }
        setting.taken.send_replace(());
        // Opening precedes the refusals below: a record that is refused is never in a log that
        // opened before it came.
        let opened = open_log(setting);
        for job in batch.drain(..) {
            match job {
                WriterJob::Record(ticket) if ticket.is_done && backlog.len() < RESERVE => backlog.push(ticket),
                WriterJob::Record(ticket) => {
                    lost += 1;
                    setting.metrics.failed(1);
                    setting.shared.note_losses(1, clock::uptime());
                    let answer = if setting.options.deny { Err(UnrecordedError) } else { Ok(()) };
                    ticket.waiter.into_iter().for_each(|waiter| waiter.tell(answer.clone()));
                }
                WriterJob::Change(settings) => setting.change(settings),
                // Only the writer of an open log looks for old files.
                WriterJob::Retire(_) => {}
                WriterJob::Switch(_, done) => {
                    let why = Err(io::Error::other(UnrecordedError));
                    done.send(why).unwrap_or_default();
                }
                // No record is on its way to the disk.
                WriterJob::Flush(done) => done.send(()).unwrap_or_default(),
                #[cfg(any(test, feature = "testing"))]
                WriterJob::Hold(begun, held) => {
                    begun.send(()).unwrap_or_default();
                    let _released = held.recv();
                }
            }
        }
        match opened {
            Ok(start) => return Some(LateLog { start, lost, backlog }),
            Err(error) => tracing::debug!(error = %error, "the audit log still takes no records"),
        }
    }
}
