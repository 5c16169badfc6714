//! A child process: cleared environment, own process group, stopped politely and then firmly, always as a whole group.

use std::collections::VecDeque;
use std::path::PathBuf;
use std::process::{ExitStatus, Stdio};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use bytes::BytesMut;
use rustix::process::{Pid, Signal};
use tokio::io::{AsyncRead, AsyncReadExt as _};
use tokio::process::{Child, ChildStderr, ChildStdin, ChildStdout, Command};

use crate::config::secret::Secret;
use crate::runtime::clock;
use crate::wire::lines::{Line, LineDecoder};

/// What a child inherits of our environment; everything else must be named in the configuration.
const INHERITED: [&str; 4] = ["PATH", "HOME", "LANG", "TMPDIR"];
/// How long a child may take to end after its stdin closed, and after SIGTERM.
const POLITE: Duration = Duration::from_secs(2);
const FIRM: Duration = Duration::from_secs(3);
const STDERR_LINES: usize = 64;
const STDERR_LINE_BYTES: usize = 4096;
/// Log lines of one child in a second; what is over it is counted.
const STDERR_LINES_PER_SECOND: u32 = 50;

/// Why a child could not be started.
#[derive(Debug, thiserror::Error)]
pub(crate) enum SpawnError {
    #[error("the command is empty")]
    Empty,
    #[error("command `{program}` not found in PATH")]
    NotFound { program: String },
    #[error("start `{program}`: {source}")]
    Start {
        program: String,
        #[source]
        source: std::io::Error,
    },
    #[error("the pipes of `{program}` are missing")]
    Pipes { program: String },
}

/// The last lines that a child wrote to stderr.
#[derive(Clone, Debug, Default)]
pub(crate) struct LastWords(Arc<Mutex<VecDeque<String>>>);

impl LastWords {
    fn push(&self, line: String) {
        let mut lines = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if lines.len() == STDERR_LINES {
            lines.pop_front();
        }
        lines.push_back(line);
    }

    /// The last line, for a status display.
    pub(crate) fn last(&self) -> Option<String> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).back().cloned()
    }
}

/// A running child and its pipes.
#[derive(Debug)]
pub(crate) struct Process {
    child: Child,
    group: Option<Pid>,
    pub(crate) stdin: ChildStdin,
    pub(crate) stdout: ChildStdout,
    pub(crate) stderr: ChildStderr,
}

/// What ends a child once its pipes are in other hands.
#[derive(Debug)]
pub(crate) struct Reaper {
    child: Child,
    group: Option<Pid>,
}

/// What to start.
#[derive(Clone, Debug)]
pub(crate) struct Launch {
    pub(crate) command: Vec<String>,
    /// The file that the first word leads to, where that is settled.
    pub(crate) program: Option<PathBuf>,
    pub(crate) env: Vec<(String, Secret)>,
    pub(crate) cwd: Option<PathBuf>,
}

impl Process {
    /// Starts the child.
    ///
    /// # Errors
    /// [`SpawnError`].
    pub(crate) fn start(launch: &Launch) -> Result<Self, SpawnError> {
        let (program, arguments) = launch.command.split_first().ok_or(SpawnError::Empty)?;
        let mut command = launch.program.as_ref().map_or_else(|| Command::new(program), Command::new);
        command.arg0(program).args(arguments).env_clear();
        command.envs(INHERITED.iter().filter_map(|key| Some((*key, std::env::var_os(key)?))));
        command.envs(launch.env.iter().map(|(key, value)| (key, value.expose())));
        if let Some(cwd) = &launch.cwd {
            command.current_dir(cwd);
        }
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        command.process_group(0).kill_on_drop(true);
        let mut child = command.spawn().map_err(|source| {
            let missing = source.kind() == std::io::ErrorKind::NotFound;
            // A missing working directory gives the same error.
            if missing && launch.cwd.as_ref().is_none_or(|cwd| cwd.is_dir()) {
                SpawnError::NotFound { program: program.clone() }
            } else {
                SpawnError::Start { program: program.clone(), source }
            }
        })?;
        let group = child.id().and_then(|id| Pid::from_raw(i32::try_from(id).ok()?));
        match (child.stdin.take(), child.stdout.take(), child.stderr.take()) {
            (Some(stdin), Some(stdout), Some(stderr)) => Ok(Self { child, group, stdin, stdout, stderr }),
            _ => Err(SpawnError::Pipes { program: program.clone() }),
        }
    }

    pub(crate) fn split(self) -> (ChildStdin, ChildStdout, ChildStderr, Reaper) {
        (self.stdin, self.stdout, self.stderr, Reaper { child: self.child, group: self.group })
    }
}

impl Reaper {
    /// Waits for the child to end by itself.
    pub(crate) async fn exited(&mut self) -> Option<ExitStatus> {
        self.child.wait().await.ok()
    }

    /// Ends the whole group: the caller has closed stdin, then SIGTERM, then SIGKILL. Bounded by the sum of the waits.
    pub(crate) async fn stop(mut self) -> Option<ExitStatus> {
        let mut status = tokio::time::timeout(POLITE, self.child.wait()).await.ok().and_then(Result::ok);
        if status.is_none() {
            self.signal(Signal::TERM);
            status = tokio::time::timeout(FIRM, self.child.wait()).await.ok().and_then(Result::ok);
        }
        // Also after a polite exit: a wrapper may have left the real server behind in the group.
        self.signal(Signal::KILL);
        if status.is_none() {
            status = self.child.wait().await.ok();
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

impl Drop for Reaper {
    fn drop(&mut self) {
        // Reached without `stop` or `kill` only when the program ends in a hurry; no child may outlive it.
        self.signal(Signal::KILL);
    }
}

/// Reads a child's stderr to its end, so that the child never blocks on it; logs what fits the rate.
pub(crate) async fn drain_stderr(upstream: String, stderr: impl AsyncRead + Unpin, words: LastWords) {
    let mut stderr = stderr;
    let mut decoder = LineDecoder::new(STDERR_LINE_BYTES);
    let (mut window, mut logged, mut suppressed) = (clock::now(), 0_u32, 0_u64);
    loop {
        let buffer: &mut BytesMut = decoder.buffer();
        if !matches!(stderr.read_buf(buffer).await, Ok(n) if n > 0) {
            break;
        }
        while let Some(line) = decoder.next_line() {
            let bytes = match line {
                Line::Full(bytes) => bytes,
                Line::Oversize { prefix, .. } => prefix,
            };
            let text = String::from_utf8_lossy(&bytes).into_owned();
            if window.elapsed() > Duration::from_secs(1) {
                if suppressed > 0 {
                    tracing::info!(upstream.name = %upstream, suppressed, "lines of stderr left out");
                }
                (window, logged, suppressed) = (clock::now(), 0, 0);
            }
            logged += 1;
            if logged <= STDERR_LINES_PER_SECOND {
                tracing::debug!(upstream.name = %upstream, line = %text, "stderr");
            } else {
                suppressed += 1;
            }
            words.push(text);
        }
    }
}
