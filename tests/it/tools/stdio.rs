//! A client's end of the pipes of `headend stdio`.

use std::io::Write as _;
use std::path::Path;
use std::process::{Child, ChildStdin, Command, ExitStatus, Stdio};
use std::time::Duration;

use rustix::process::{Signal, kill_process};
use serde_json::Value;

use super::harness::{TestHome, headend};
use super::http::ResponseHead;
use super::mcp::McpAnswer;
use super::process::{Lines, pid_of, wait};

/// A running `headend stdio`.
#[derive(Debug)]
pub(crate) struct Pipe {
    child: Child,
    stdin: Option<ChildStdin>,
    stdout: Lines,
    pub(crate) stderr: Lines,
    read: usize,
}

impl Pipe {
    /// Starts `headend stdio --config CONFIG ARGS` in this world.
    pub(crate) fn start(world: &TestHome, config: &Path, args: &[&str]) -> Self {
        Self::start_by(world.command(headend()), config, args)
    }

    /// Starts like [`Pipe::start`], by a command that runs the program with the added arguments.
    pub(crate) fn start_by(mut command: Command, config: &Path, args: &[&str]) -> Self {
        command.arg("stdio").arg("--config").arg(config).args(args);
        Self::of(command)
    }

    /// Starts a command that is `headend stdio` with all of its arguments.
    pub(crate) fn of(mut command: Command) -> Self {
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn().unwrap();
        let stdin = child.stdin.take();
        let stdout = Lines::of(child.stdout.take().unwrap());
        let stderr = Lines::of(child.stderr.take().unwrap());
        Self { child, stdin, stdout, stderr, read: 0 }
    }

    pub(crate) fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Writes one line.
    pub(crate) fn send(&mut self, line: &[u8]) {
        self.try_send(line).unwrap_or_else(|error| panic!("write: {error}\n{}", self.story()));
    }

    /// Writes one line; the other side may be gone.
    pub(crate) fn try_send(&mut self, line: &[u8]) -> std::io::Result<()> {
        let stdin = self.stdin.as_mut().unwrap();
        stdin.write_all(line)?;
        if !line.ends_with(b"\n") {
            stdin.write_all(b"\n")?;
        }
        stdin.flush()
    }

    /// Reads the next line; `None` if none came in time.
    pub(crate) fn line(&mut self, patience: Duration) -> Option<String> {
        let at = self.read;
        let line = self.stdout.wait_for(patience, |lines| lines.get(at).cloned())?;
        self.read += 1;
        Some(line)
    }

    /// Reads the response to this id, with the notices before it.
    pub(crate) fn answer(&mut self, id: &Value, patience: Duration) -> McpAnswer {
        let mut notices = Vec::new();
        while let Some(raw) = self.line(patience) {
            let message: Value =
                serde_json::from_str(&raw).unwrap_or_else(|error| panic!("stdout is the protocol: {error}: {raw}"));
            if message.get("method").is_none() && message.get("id") == Some(id) {
                return McpAnswer { status: 200, head: ResponseHead::default(), message, raw, notices };
            }
            notices.push(message);
        }
        panic!("no response to {id} but {notices:?}\n{}", self.story());
    }

    /// Closes its input and waits for its end.
    pub(crate) fn close(&mut self, patience: Duration) -> Option<ExitStatus> {
        self.stdin = None;
        wait(&mut self.child, patience)
    }

    pub(crate) fn signal(&self, signal: Signal) {
        kill_process(pid_of(&self.child), signal).unwrap();
    }

    /// Waits for its end, with its input open.
    pub(crate) fn wait(&mut self, patience: Duration) -> Option<ExitStatus> {
        wait(&mut self.child, patience)
    }

    /// Returns its output on stderr.
    pub(crate) fn story(&self) -> String {
        format!("stderr of headend stdio:\n{}", self.stderr.all().join("\n"))
    }
}

impl Drop for Pipe {
    fn drop(&mut self) {
        if self.close(Duration::from_secs(5)).is_none() {
            // The process did not end with its input; the test that checks this reports it.
            let _ignored = self.child.kill();
            let _ignored = self.child.wait();
        }
    }
}
