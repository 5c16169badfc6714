//! A child without a guard, for systems without subreapers: its process group ends with it, and a
//! process that leaves the group outlives it.

use std::path::Path;
use std::process::{ExitStatus, Stdio};

use rustix::process::{Pid, Signal};
use tokio::process::{Child, ChildStderr, ChildStdin, ChildStdout, Command};

use crate::base::stop::StopTimes;
use crate::upstream::process::launch::{Launch, SpawnError};

/// A running child.
#[derive(Debug)]
pub struct GuardedChild {
    child: Child,
    group: Option<Pid>,
}

/// The pipes of a child.
pub type ChildPipes = (ChildStdin, ChildStdout, ChildStderr);

impl GuardedChild {
    /// Starts the child.
    ///
    /// # Errors
    /// [`SpawnError`].
    #[expect(clippy::unused_async, reason = "that of a guarded one waits for its guard")]
    pub async fn start(_upstream: &str, launch: &Launch) -> Result<(Self, ChildPipes), SpawnError> {
        let (_, arguments) = launch.words()?;
        launch.look()?;
        let mut command = match launch.confinement.umask {
            None => Command::new(launch.file()),
            // The umask belongs to the whole process, so a shell sets it for the child.
            Some(umask) => {
                let mut shell = Command::new(Path::new("/bin/sh"));
                shell.arg("-c").arg(format!("umask {umask:03o}; exec \"$0\" \"$@\"")).arg(launch.file());
                shell
            }
        };
        command.args(arguments).env_clear().envs(launch.environment());
        if let Some(cwd) = launch.directory() {
            command.current_dir(cwd);
        }
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        command.process_group(0).kill_on_drop(true);
        let mut child = command.spawn().map_err(|source| launch.refused(source))?;
        let group = child.id().and_then(|id| Pid::from_raw(i32::try_from(id).ok()?));
        match (child.stdin.take(), child.stdout.take(), child.stderr.take()) {
            (Some(stdin), Some(stdout), Some(stderr)) => Ok((Self { child, group }, (stdin, stdout, stderr))),
            _ => Err(SpawnError::Pipes { program: launch.name() }),
        }
    }

    /// Returns `None`: there is no guard.
    #[expect(clippy::unused_self, reason = "a guarded one has a number")]
    pub const fn number(&self) -> Option<u32> {
        None
    }

    /// Waits until the child exits by itself. Cancel-safe.
    pub async fn exited(&mut self) -> Option<ExitStatus> {
        self.child.wait().await.ok()
    }

    /// Never resolves: there is no guard to lose.
    pub async fn lost(&mut self) {
        std::future::pending().await
    }

    /// Ends the whole group, after the caller has closed stdin: waits, then sends SIGTERM, then
    /// SIGKILL. Takes at most the sum of the waits.
    pub async fn stop(mut self, times: &StopTimes) -> Option<ExitStatus> {
        let mut status = tokio::time::timeout(times.polite, self.child.wait()).await.ok().and_then(Result::ok);
        if status.is_none() {
            self.signal(Signal::TERM);
            status = tokio::time::timeout(times.firm, self.child.wait()).await.ok().and_then(Result::ok);
        }
        // Also after a polite exit: a wrapper may have left the real server in the group.
        self.signal(Signal::KILL);
        if status.is_none() {
            status = tokio::time::timeout(times.killed, self.child.wait()).await.ok().and_then(Result::ok);
        }
        self.group = None;
        status
    }

    fn signal(&self, signal: Signal) {
        if let Some(group) = self.group {
            // The group may be empty already.
            let _gone = rustix::process::kill_process_group(group, signal);
        }
    }
}

impl Drop for GuardedChild {
    fn drop(&mut self) {
        // Reached without `stop` only if the program ends in a hurry; no child may outlive it.
        self.signal(Signal::KILL);
    }
}
