//! The guard: a small process of this very program between headend and each upstream's program, so that nothing that was
//! started outlives headend.
//!
//! The guard is the parent of the program and adopts every process below it that loses its own (`PR_SET_CHILD_SUBREAPER`),
//! those too that have left their group and session. It ends them all when it is told to, and when headend has ended,
//! however that happened: its end of the socket between the two closes then. The program's pipes go past the guard.
//!
//! A child has a cleared environment, its own process group and no new privileges. It is stopped by the end of its input,
//! SIGTERM and SIGKILL, always with everything that it started.
//!
//! `order` is what the guard is told at its start, `watch` is the guard's own side.

use std::io::{self, IoSlice};
use std::os::fd::{AsFd as _, OwnedFd};
use std::os::unix::net::UnixStream as StdStream;
use std::os::unix::process::ExitStatusExt as _;
use std::process::{ExitStatus, Stdio};
use std::time::Duration;

use bytes::BytesMut;
use rustix::net::{SendAncillaryBuffer, SendAncillaryMessage, SendFlags, sendmsg};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::UnixStream;
use tokio::process::{Child, ChildStderr, ChildStdin, ChildStdout, Command};

use crate::base::stop::StopTimes;
use crate::upstream::process::launch::{Launch, SpawnError};
use crate::upstream::process::mark::end_marked;

mod containers;
mod order;
pub mod watch;

use self::order::{END, GUARD, KILL, Order, Report, TERM};

/// How long a guard may take until it has started the program; only a machine that has stopped needs it.
const START: Duration = Duration::from_secs(20);

/// The guard of a running child, whose pipes are in other hands. Dropped, it leaves the child's end to the guard.
#[derive(Debug)]
pub struct Keeper {
    guard: Child,
    control: UnixStream,
    heard: BytesMut,
    status: Option<ExitStatus>,
    mark: Option<String>,
}

/// The pipes of a child.
pub type Pipes = (ChildStdin, ChildStdout, ChildStderr);

impl Keeper {
    /// Starts the child of that upstream with a guard.
    ///
    /// # Errors
    /// [`SpawnError`].
    pub async fn start(upstream: &str, launch: &Launch) -> Result<(Self, Pipes), SpawnError> {
        let order = Order::of(launch)?;
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
        let (mut guard, control, stdin) = spawn(upstream).map_err(guarded)?;
        let (Some(stdout), Some(stderr)) = (guard.stdout.take(), guard.stderr.take()) else {
            return Err(SpawnError::Pipes { program: program() });
        };
        let mut keeper = Self { guard, control, heard: BytesMut::new(), status: None, mark: launch.mark.clone() };
        let begun = tokio::time::timeout(START, async {
            keeper.control.write_all(&order.encode()).await?;
            Ok(keeper.report().await)
        });
        match begun.await {
            Ok(Ok(Some(Report::Started))) => Ok((keeper, (stdin, stdout, stderr))),
            Ok(Ok(Some(Report::Failed(errno)))) => Err(launch.refused(io::Error::from_raw_os_error(errno))),
            Ok(Ok(Some(Report::Ended(_)) | None)) => Err(guarded(io::Error::other("it ended at its start"))),
            Ok(Err(error)) => Err(guarded(error)),
            Err(_) => Err(guarded(io::ErrorKind::TimedOut.into())),
        }
    }

    /// The number of the guard, below which are all processes of the child.
    pub fn number(&self) -> Option<u32> {
        self.guard.id()
    }

    /// Waits for the child to end by itself; `None` where the guard is gone. Cancel-safe.
    pub async fn exited(&mut self) -> Option<ExitStatus> {
        while self.status.is_none() && self.hear().await.is_some() {}
        self.status
    }

    /// Waits for the end of a guard that was not told to end. Cancel-safe.
    pub async fn lost(&mut self) {
        while self.hear().await.is_some() {}
    }

    /// Ends the child and all that it started: the caller has closed stdin, then SIGTERM, then SIGKILL. Bounded by the sum of the
    /// waits.
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

    /// Takes note of the guard's next report.
    async fn hear(&mut self) -> Option<()> {
        match self.report().await? {
            Report::Ended(raw) => self.status = Some(ExitStatus::from_raw(raw)),
            Report::Started | Report::Failed(_) => {}
        }
        Some(())
    }

    /// The guard's next report; `None` when it is gone. Cancel-safe.
    async fn report(&mut self) -> Option<Report> {
        loop {
            if let Some(end) = memchr::memchr(b'\n', &self.heard) {
                return Report::parse(&self.heard.split_to(end + 1));
            }
            if !matches!(self.control.read_buf(&mut self.heard).await, Ok(1..)) {
                return None;
            }
        }
    }
}

/// Starts a guard: its stdin is the socket to it, the other two pipes are the child's. Gives the child's stdin too.
fn spawn(upstream: &str) -> io::Result<(Child, UnixStream, ChildStdin)> {
    let (ours, theirs) = StdStream::pair()?;
    let (reader, writer) = io::pipe()?;
    // One byte always fits.
    let (mut space, fds) =
        ([const { std::mem::MaybeUninit::uninit() }; rustix::cmsg_space!(ScmRights(1))], [reader.as_fd()]);
    let mut passed = SendAncillaryBuffer::new(&mut space);
    passed.push(SendAncillaryMessage::ScmRights(&fds));
    sendmsg(&ours, &[IoSlice::new(b"0")], &mut passed, SendFlags::NOSIGNAL)?;
    // Also where the file has been replaced by a newer one since the start.
    let mut command = Command::new("/proc/self/exe");
    command.arg0("headend").arg(GUARD).arg(upstream).env_clear();
    command.stdin(OwnedFd::from(theirs)).stdout(Stdio::piped()).stderr(Stdio::piped()).process_group(0);
    let guard = command.spawn()?;
    ours.set_nonblocking(true)?;
    let stdin = ChildStdin::from_std(std::process::ChildStdin::from(OwnedFd::from(writer)))?;
    Ok((guard, UnixStream::from_std(ours)?, stdin))
}
