//! Programs that the gateway starts. On a thread with a stage some run as tasks instead of
//! processes.

use std::cell::Cell;
use std::os::unix::process::ExitStatusExt as _;
use std::process::ExitStatus;

use rustix::process::Signal;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::sync::watch;
use tokio::task::AbortHandle;

use crate::base::stop::StopTimes;
use crate::upstream::process::guard;
use crate::upstream::process::launch::{Launch, SpawnError};

/// The writing end of a pipe.
pub type ProgramWriter = Box<dyn AsyncWrite + Unpin + Send>;
/// The reading end of a pipe.
pub type ProgramReader = Box<dyn AsyncRead + Unpin + Send>;

/// The pipes of a program: stdin, stdout, stderr.
pub type ProgramPipes = (ProgramWriter, ProgramReader, ProgramReader);

/// A function that starts an upstream's program as a task; `None` if the stage leaves it to a
/// process.
pub type ProgramPlayer = fn(&str, &Launch) -> Result<Option<(PlayedProgram, ProgramPipes)>, SpawnError>;

thread_local! {
    static PLAY: Cell<Option<ProgramPlayer>> = const { Cell::new(None) };
}

/// Installs the function that plays programs started on this thread; `None` restores processes.
pub fn install_player(play: Option<ProgramPlayer>) {
    PLAY.set(play);
}

/// A running program of an upstream: a guarded process, or a task of the stage.
#[derive(Debug)]
pub(crate) enum ProgramHandle {
    Guarded(Box<guard::GuardedChild>),
    Played(PlayedProgram),
}

/// A task that stands in for a process. Clones refer to one task.
#[derive(Clone, Debug)]
pub struct StageProgram {
    ended: watch::Sender<Option<ExitStatus>>,
    task: AbortHandle,
}

impl StageProgram {
    /// Wraps a task; the task itself writes its exit status to `ended` when it finishes.
    pub fn new(ended: watch::Sender<Option<ExitStatus>>, task: AbortHandle) -> Self {
        Self { ended, task }
    }

    /// Whether no exit status is set yet.
    pub fn is_alive(&self) -> bool {
        self.ended.borrow().is_none()
    }

    /// Aborts the task and sets its exit status, unless one is set already.
    pub fn end(&self, status: ExitStatus) {
        self.ended.send_if_modified(|ended| {
            let is_first = ended.is_none();
            ended.get_or_insert(status);
            is_first
        });
        self.task.abort();
    }
}

/// An upstream's program that runs as a task. Killed on drop.
#[derive(Debug)]
pub struct PlayedProgram {
    program: StageProgram,
    ended: watch::Receiver<Option<ExitStatus>>,
    ignores_term: bool,
}

impl PlayedProgram {
    /// `ignores_term`: the program ends at SIGKILL only, after the stop's firm time.
    pub fn new(program: StageProgram, ignores_term: bool) -> Self {
        Self { ended: program.ended.subscribe(), program, ignores_term }
    }

    async fn exited(&mut self) -> Option<ExitStatus> {
        self.ended.wait_for(Option::is_some).await.ok().and_then(|status| *status)
    }

    async fn stop(mut self, times: &StopTimes) -> Option<ExitStatus> {
        if tokio::time::timeout(times.polite, self.exited()).await.is_err() {
            if self.ignores_term {
                tokio::time::sleep(times.firm).await;
            }
            let signal = if self.ignores_term { Signal::KILL } else { Signal::TERM };
            self.program.end(ExitStatus::from_raw(signal.as_raw()));
        }
        self.exited().await
    }
}

impl Drop for PlayedProgram {
    fn drop(&mut self) {
        self.program.end(ExitStatus::from_raw(Signal::KILL.as_raw()));
    }
}

impl ProgramHandle {
    /// Starts a program as a task if this thread's stage plays it, else as a guarded process.
    ///
    /// # Errors
    /// [`SpawnError`].
    pub(crate) async fn start(upstream: &str, launch: &Launch) -> Result<(Self, ProgramPipes), SpawnError> {
        if let Some(play) = PLAY.get()
            && let Some((played, pipes)) = play(upstream, launch)?
        {
            return Ok((Self::Played(played), pipes));
        }
        let (keeper, (stdin, stdout, stderr)) = guard::GuardedChild::start(upstream, launch).await?;
        Ok((Self::Guarded(Box::new(keeper)), (Box::new(stdin), Box::new(stdout), Box::new(stderr))))
    }

    pub(crate) fn number(&self) -> Option<u32> {
        match self {
            Self::Guarded(keeper) => keeper.number(),
            Self::Played(_) => None,
        }
    }

    pub(crate) async fn exited(&mut self) -> Option<ExitStatus> {
        match self {
            Self::Guarded(keeper) => keeper.exited().await,
            Self::Played(played) => played.exited().await,
        }
    }

    pub(crate) async fn lost(&mut self) {
        match self {
            Self::Guarded(keeper) => keeper.lost().await,
            Self::Played(_) => std::future::pending().await,
        }
    }

    pub(crate) async fn stop(self, times: &StopTimes) -> Option<ExitStatus> {
        match self {
            Self::Guarded(keeper) => keeper.stop(times).await,
            Self::Played(played) => played.stop(times).await,
        }
    }
}
