//! A child process: cleared environment, own process group, no new privileges, stopped by the end of its input, SIGTERM and
//! SIGKILL, always with everything that it started: see [`guard`](super::guard).

use std::process::ExitStatus;
use std::sync::Arc;
use std::time::Duration;

use bytes::BytesMut;
use tokio::io::{AsyncRead, AsyncReadExt as _};
use tokio::process::{ChildStderr, ChildStdin, ChildStdout};

use crate::base::clock;
use crate::base::stop::StopTimes;
use crate::upstream::guard::Keeper;
use crate::upstream::health::Health;
use crate::upstream::last_words::LastWords;
use crate::upstream::launch::{Launch, SpawnError};
use crate::upstream::logbook::Origin;
use crate::wire::lines::{Line, LineDecoder};

const STDERR_LINE_BYTES: usize = 4096;
/// Log lines of one child in a second; further lines are counted.
const STDERR_LINES_PER_SECOND: u32 = 50;

/// A running child and its pipes.
#[derive(Debug)]
pub(crate) struct Process {
    keeper: Keeper,
    stdin: ChildStdin,
    stdout: ChildStdout,
    stderr: ChildStderr,
}

/// Ends a child whose pipes are in other hands. Dropped, it leaves that to the guard.
#[derive(Debug)]
pub(crate) struct Reaper {
    keeper: Keeper,
}

impl Process {
    /// Starts the child of that upstream.
    ///
    /// # Errors
    /// [`SpawnError`].
    pub(crate) async fn start(upstream: &str, launch: &Launch) -> Result<Self, SpawnError> {
        let (keeper, (stdin, stdout, stderr)) = Keeper::start(upstream, launch).await?;
        Ok(Self { keeper, stdin, stdout, stderr })
    }

    pub(crate) fn split(self) -> (ChildStdin, ChildStdout, ChildStderr, Reaper) {
        (self.stdin, self.stdout, self.stderr, Reaper { keeper: self.keeper })
    }
}

impl Reaper {
    /// Waits for the child to end by itself. Cancel-safe.
    pub(crate) async fn exited(&mut self) -> Option<ExitStatus> {
        self.keeper.exited().await
    }

    /// Waits until the child has no guard any more. Cancel-safe.
    pub(crate) async fn lost(&mut self) {
        self.keeper.lost().await;
    }

    /// Ends the child and what it has started, also where the child has ended by itself. Bounded by the times.
    pub(crate) async fn stop(self, times: &StopTimes) -> Option<ExitStatus> {
        self.keeper.stop(times).await
    }
}

/// Reads a child's stderr to its end, so that the child never blocks on it; logs what fits the rate.
pub(crate) async fn drain_stderr(health: Arc<Health>, stderr: impl AsyncRead + Unpin, words: LastWords) {
    let (mut stderr, upstream) = (stderr, health.upstream());
    let mut decoder = LineDecoder::new(STDERR_LINE_BYTES);
    let (mut window, mut logged, mut suppressed) = (clock::now(), 0_u32, 0_u64);
    loop {
        let buffer: &mut BytesMut = decoder.buffer();
        if !matches!(stderr.read_buf(buffer).await, Ok(n) if n > 0) {
            break;
        }
        while let Some(line) = decoder.next_line() {
            let (bytes, is_cut) = match line {
                Line::Full(bytes) => (bytes, false),
                Line::Oversize { prefix, .. } => (prefix, true),
            };
            let text = words.shown(&String::from_utf8_lossy(&bytes), is_cut);
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
            health.log.add(Origin::Stderr, &text);
            words.push(text);
        }
    }
}
