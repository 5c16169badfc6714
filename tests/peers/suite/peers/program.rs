//! Programs that take orders line by line.

use std::io::Write as _;
use std::path::Path;
use std::process::{Child, ChildStdin, Command, Stdio};
use std::time::Duration;

use serde_json::Value;

use super::PeerFolders;
use super::bench::client_environment;
use crate::harness::Gateway;
use crate::process::{Lines, end};

/// Time for one order; a loaded machine starts Node in seconds.
const PATIENCE: Duration = Duration::from_secs(60);

/// A program that reads one JSON value a line and writes some.
#[derive(Debug)]
pub(super) struct LineProgram {
    child: Child,
    stdin: ChildStdin,
    lines: Lines,
    errors: Lines,
    at: String,
}

impl LineProgram {
    pub(super) fn start(peers: &PeerFolders, gateway: &Gateway, script: &str, job: &Value, at: &str) -> Self {
        let python = Path::new(script).extension().is_some_and(|extension| extension == "py");
        let mut command = Command::new(if python { peers.python("python") } else { peers.node() });
        client_environment(peers, gateway, &mut command);
        command.arg(crate::ground::root().join("tests/peers").join(script)).arg(job.to_string());
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn().unwrap_or_else(|error| panic!("{at}: {error}"));
        let stdin = child.stdin.take().unwrap();
        let lines = Lines::of(child.stdout.take().unwrap());
        let errors = Lines::of(child.stderr.take().unwrap());
        Self { child, stdin, lines, errors, at: at.to_owned() }
    }

    pub(super) fn tell(&mut self, line: &Value) {
        writeln!(self.stdin, "{line}").unwrap_or_else(|error| panic!("{error}: {}", self.story()));
    }

    /// Returns all lines of the program so far.
    pub(super) fn said(&self) -> Vec<Value> {
        values(&self.lines.all())
    }

    /// Waits until the program says the wanted thing.
    pub(super) fn wait_for<T>(&self, what: &str, find: impl Fn(&[Value]) -> Option<T>) -> T {
        let found = self.lines.wait_for(PATIENCE, |lines| find(&values(lines)));
        found.unwrap_or_else(|| panic!("{what} did not come: {}", self.story()))
    }

    fn story(&self) -> String {
        format!("{}\n{}\n{}", self.at, self.lines.all().join("\n"), self.errors.all().join("\n"))
    }
}

impl Drop for LineProgram {
    fn drop(&mut self) {
        end(&mut self.child);
    }
}

fn values(lines: &[String]) -> Vec<Value> {
    lines.iter().filter_map(|line| serde_json::from_str(line).ok()).collect()
}
