//! The guard: a small process of this same program between headend and each upstream's program, so
//! that no process started for an upstream outlives headend.
//!
//! The guard is the parent of the program, and adopts every process below it whose parent has ended
//! (`PR_SET_CHILD_SUBREAPER`), also those that have left their group and session. It ends them all
//! on request, and when headend has ended in any way, because headend's end of the socket between
//! the two closes then. The program's pipes do not go through the guard.
//!
//! A child has a cleared environment, its own process group and no new privileges. It is stopped by
//! the end of its input, SIGTERM and SIGKILL, always with everything that it started.
//!
//! A program under a lease is killed by its guard when the lease ends, even if headend is stopped
//! or the machine was asleep until then. headend tells the guard of each renewal.
//!
//! `order` defines the messages between headend and a guard; `watch` is the code of the guard
//! itself.

use std::io::{self, IoSlice};
use std::os::fd::{AsFd as _, BorrowedFd, OwnedFd};
use std::os::unix::net::UnixStream as StdStream;
use std::os::unix::process::ExitStatusExt as _;
use std::process::{ExitStatus, Stdio};
use std::time::Duration;

use bytes::BytesMut;
use rustix::net::{SendAncillaryBuffer, SendAncillaryMessage, SendFlags, sendmsg};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::UnixStream;
use tokio::process::{Child, ChildStderr, ChildStdin, ChildStdout, Command};
use tokio::sync::watch::Receiver;

use crate::base::clock;
use crate::base::stop::StopTimes;
use crate::upstream::process::launch::{Launch, SpawnError};
use crate::upstream::process::mark::end_marked;

mod containers;
mod order;
pub mod watch;

use self::order::{END, GUARD, GuardReport, KILL, LEASE, StartOrder, TERM};

/// How long a guard may take to start the program; only a stalled machine needs that long.
const START: Duration = Duration::from_secs(20);

/// The guard of a running child, whose pipes are used elsewhere. When the value is dropped, the
/// guard ends the child.
#[derive(Debug)]
pub struct GuardedChild {
    guard: Child,
    control: UnixStream,
    heard: BytesMut,
    status: Option<ExitStatus>,
    mark: Option<String>,
    /// The end of the program's lease, which the guard is told when it moves.
    lease: Option<Receiver<Duration>>,
}

/// The pipes of a child.
pub type ChildPipes = (ChildStdin, ChildStdout, ChildStderr);

impl GuardedChild {
    /// Starts a guard process, has it start the upstream's program, and waits until the guard
    /// reports that the program runs. Returns the guard's handle, whose drop ends the child, and
    /// the child's pipes. Logs a warning if the child cannot gain the privileges that its settings
    /// allow, because this process cannot.
    ///
    /// # Errors
    /// [`SpawnError`].
    pub async fn start(upstream: &str, launch: &Launch) -> Result<(Self, ChildPipes), SpawnError> {
        // Before the order, which has the end as it is then.
        let lease = launch.lease.as_ref().map(|lease| lease.until());
        let order = StartOrder::of(launch)?;
        launch.look()?;
        if !order.no_new_privileges && rustix::thread::no_new_privs() == Ok(true) {
            tracing::warn!(
                upstream.name = upstream,
                "this process may gain no privileges, so neither may its children; systemd has NoNewPrivileges=no"
            );
        }
        let program = || launch.name();
        let guarded = |source: io::Error| {
            let source = io::Error::new(source.kind(), format!("its guard: {source}"));
            SpawnError::Start { program: program(), source }
        };
        let lifeline = launch.lifeline.as_ref().map(|lifeline| lifeline.hold()).transpose().map_err(guarded)?;
        let (mut guard, control, stdin) = spawn(upstream, lifeline.as_ref()).map_err(guarded)?;
        let (Some(stdout), Some(stderr)) = (guard.stdout.take(), guard.stderr.take()) else {
            return Err(SpawnError::Pipes { program: program() });
        };
        let (heard, mark) = (BytesMut::new(), launch.mark.clone());
        let mut keeper = Self { guard, control, heard, status: None, mark, lease };
        let begun = tokio::time::timeout(START, async {
            keeper.control.write_all(&order.encode()).await?;
            Ok(keeper.report().await)
        });
        match begun.await {
            Ok(Ok(Some(GuardReport::Started))) => Ok((keeper, (stdin, stdout, stderr))),
            Ok(Ok(Some(GuardReport::Failed(errno)))) => Err(launch.refused(io::Error::from_raw_os_error(errno))),
            Ok(Ok(Some(GuardReport::Ended(_)) | None)) => Err(guarded(io::Error::other("it ended at its start"))),
            Ok(Err(error)) => Err(guarded(error)),
            Err(_) => Err(guarded(io::ErrorKind::TimedOut.into())),
        }
    }

    /// Returns the process number of the guard, below which are all processes of the child.
    pub fn number(&self) -> Option<u32> {
        self.guard.id()
    }

    /// Waits until the child exits by itself; `None` if the guard is gone. Cancel-safe.
    pub async fn exited(&mut self) -> Option<ExitStatus> {
        while self.status.is_none() && self.hear().await.is_some() {}
        self.status
    }

    /// Waits until a guard has ended that was not told to end, and stores the child's exit status
    /// if it comes before. Meanwhile tells the guard of each later end of the lease. Cancel-safe.
    pub async fn lost(&mut self) {
        let Some(mut lease) = self.lease.clone() else {
            while self.hear().await.is_some() {}
            return;
        };
        loop {
            tokio::select! {
                heard = self.hear() => if heard.is_none() {
                    return;
                },
                // Its sender outlives the program.
                Ok(()) = lease.changed() => {
                    let until = clock::millis(*lease.borrow_and_update());
                    let order = [&[LEASE][..], &until.to_le_bytes()].concat();
                    // If the order does not fit, the guard reads nothing and the lease runs out.
                    let _full = self.control.try_write(&order);
                }
            }
        }
    }

    /// Ends the child and everything that it started, after the caller has closed its stdin: waits,
    /// then has the guard send SIGTERM, then SIGKILL. Takes at most the sum of the waits. Returns
    /// the child's exit status, if it is known.
    pub async fn stop(mut self, times: &StopTimes) -> Option<ExitStatus> {
        let mut ended = tokio::time::timeout(times.polite, self.exited()).await;
        if ended.is_err() {
            self.tell(TERM);
            ended = tokio::time::timeout(times.firm, self.exited()).await;
        }
        // Also after a polite exit: a wrapper may have left the real server behind.
        self.tell(if ended.is_err() { KILL } else { END });
        let is_lost = matches!(ended, Ok(None));
        let gone = async {
            if let Some(mark) = self.mark.take().filter(|_| is_lost) {
                tracing::error!("the guard of an upstream was ended from outside");
                drop(tokio::task::spawn_blocking(move || end_marked(&mark)).await);
            }
            while self.hear().await.is_some() {}
            drop(self.guard.wait().await);
        };
        if tokio::time::timeout(times.killed, gone).await.is_err() {
            tracing::warn!("a process of an upstream outlives SIGKILL; its guard goes on trying");
        }
        self.status
    }

    fn tell(&self, order: u8) {
        // A guard that is gone has no child any more.
        let _gone = self.control.try_write(&[order]);
    }

    /// Waits for the guard's next report and stores the child's exit status from it; `None` when
    /// the guard is gone.
    async fn hear(&mut self) -> Option<()> {
        match self.report().await? {
            GuardReport::Ended(raw) => self.status = Some(ExitStatus::from_raw(raw)),
            GuardReport::Started | GuardReport::Failed(_) => {}
        }
        Some(())
    }

    /// Reads the guard's next report; `None` when it is gone. Cancel-safe.
    async fn report(&mut self) -> Option<GuardReport> {
        loop {
            if let Some(end) = memchr::memchr(b'\n', &self.heard) {
                return GuardReport::parse(&self.heard.split_to(end + 1));
            }
            if !matches!(self.control.read_buf(&mut self.heard).await, Ok(1..)) {
                return None;
            }
        }
    }
}

/// Starts the process of a guard. Its stdin is the socket between it and headend; its stdout and
/// stderr become the child's. The guard holds `lifeline` until it ends. Returns the guard,
/// headend's end of the socket, and the child's stdin.
fn spawn(upstream: &str, lifeline: Option<&OwnedFd>) -> io::Result<(Child, UnixStream, ChildStdin)> {
    let (ours, theirs) = StdStream::pair()?;
    let (reader, writer) = io::pipe()?;
    // One byte always fits.
    let mut space = [const { std::mem::MaybeUninit::uninit() }; rustix::cmsg_space!(ScmRights(2))];
    let fds: Vec<BorrowedFd<'_>> = std::iter::once(reader.as_fd()).chain(lifeline.map(|fd| fd.as_fd())).collect();
    let mut passed = SendAncillaryBuffer::new(&mut space);
    passed.push(SendAncillaryMessage::ScmRights(&fds));
    sendmsg(&ours, &[IoSlice::new(b"0")], &mut passed, SendFlags::NOSIGNAL)?;
    // Works also if the file was replaced by a newer one since the start.
    let mut command = Command::new("/proc/self/exe");
    command.arg0("headend").arg(GUARD).arg(upstream).env_clear();
    command.stdin(OwnedFd::from(theirs)).stdout(Stdio::piped()).stderr(Stdio::piped()).process_group(0);
    let guard = command.spawn()?;
    ours.set_nonblocking(true)?;
    let stdin = ChildStdin::from_std(std::process::ChildStdin::from(OwnedFd::from(writer)))?;
    Ok((guard, UnixStream::from_std(ours)?, stdin))
}
