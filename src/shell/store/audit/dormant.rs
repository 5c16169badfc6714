//! A log whose folder takes no files at the start. Until it does, its records are answered as lost,
//! except those of events that have taken effect.

use std::io;
use std::time::Duration;

use tokio::sync::mpsc;

use super::files::MAIN;
use super::queue::{QUEUE, RESERVE};
use super::recover::{self, Start};
use super::ticket::{Job, Setting, Ticket, Unrecorded};
use crate::base::clock;

/// Time between two attempts to open the folder while no record comes.
const AGAIN: Duration = Duration::from_secs(1);

/// Returns true if a failed opening may succeed later by itself: the operating system refused it,
/// not a check of ours.
pub(super) fn passes(error: &io::Error) -> bool {
    error.raw_os_error().is_some()
}

/// Creates the folder and continues the chain, or begins it. For the daemon's chain, locks the
/// folder first.
pub(super) fn open(setting: &mut Setting) -> io::Result<Start> {
    setting.folder.make()?;
    if setting.options.chain == MAIN && setting.lock.is_none() {
        setting.lock = setting.folder.lock(Some(setting.db.dir()))?;
    }
    recover::resume(&setting.folder, &setting.options.chain, setting.kept.as_ref())
}

/// A log that opened late.
pub(super) struct Opened {
    pub(super) start: Start,
    /// Number of records lost before the log opened.
    pub(super) lost: u64,
    /// Records of events that took effect before the log opened, the oldest first.
    pub(super) backlog: Vec<Ticket>,
}

/// Answers queued records as lost, and tries to open the log after each batch and each second,
/// until it opens. Returns `None` if all senders are gone.
pub(super) async fn wait(setting: &mut Setting, jobs: &mut mpsc::Receiver<Job>) -> Option<Opened> {
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
        let opened = open(setting);
        for job in batch.drain(..) {
            match job {
                Job::Record(ticket) if ticket.is_done && backlog.len() < RESERVE => backlog.push(ticket),
                Job::Record(ticket) => {
                    lost += 1;
                    setting.metrics.failed(1);
                    setting.shared.note_losses(1, clock::uptime());
                    let answer = if setting.options.deny { Err(Unrecorded) } else { Ok(()) };
                    ticket.waiter.into_iter().for_each(|waiter| waiter.tell(answer.clone()));
                }
                Job::Change(settings) => setting.change(settings),
                // Only the writer of an open log looks for old files.
                Job::Retire(_) => {}
                // No record is on its way to the disk.
                Job::Flush(done) => done.send(()).unwrap_or_default(),
                #[cfg(any(test, feature = "testing"))]
                Job::Hold(begun, held) => {
                    begun.send(()).unwrap_or_default();
                    let _released = held.recv();
                }
            }
        }
        match opened {
            Ok(start) => return Some(Opened { start, lost, backlog }),
            Err(error) => tracing::debug!(error = %error, "the audit log still takes no records"),
        }
    }
}
