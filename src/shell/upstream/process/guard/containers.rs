//! Containers that an upstream's command runs, found by a label that headend gives them: the mark
//! of their start.
//!
//! The program that headend starts is a client of the container engine, whose container may outlive
//! it. So the guard asks the same program, with the same environment, for containers that are left:
//! before the start for those of dead owners, and at its end for its own.

use std::ffi::{OsStr, OsString};
use std::io::Read as _;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use crate::base::clock;

/// The name of the label.
const LABEL: &str = "headend.owner";
/// How often to check whether a program of the engine has ended.
const LOOK: Duration = Duration::from_millis(5);
/// Longest list of containers that is read, in bytes.
const MAX_LIST: u64 = 1 << 20;

/// Returns the option that labels a container.
pub(super) fn label(mark: &str) -> [OsString; 2] {
    ["--label".into(), format!("{LABEL}={mark}").into()]
}

/// A container engine: the upstream's own program, with its options, directory and environment.
pub(super) struct ContainerEngine<'a> {
    pub(super) file: &'a OsStr,
    pub(super) global: &'a [OsString],
    pub(super) environment: &'a [(OsString, OsString)],
    pub(super) cwd: Option<&'a Path>,
}

impl ContainerEngine<'_> {
    /// Ends the running containers with this mark. Blocks for `patience` at most.
    pub(super) fn end(&self, mark: &str, patience: Duration) {
        let until = clock::now() + patience;
        let filter = format!("label={LABEL}={mark}");
        let Some(list) = self.run(&["ps", "--quiet", "--no-trunc", "--filter", &filter], until) else { return };
        self.kill(list.lines().map(str::trim), until);
    }

    /// Ends all running containers whose mark is wanted. Blocks for `patience` at most.
    pub(super) fn end_all(&self, is_wanted: impl Fn(&str) -> bool, patience: Duration) {
        let until = clock::now() + patience;
        let filter = format!("label={LABEL}");
        let format = format!("{{{{.ID}}}} {{{{.Label \"{LABEL}\"}}}}");
        let list = ["ps", "--no-trunc", "--filter", &filter, "--format", &format];
        let Some(list) = self.run(&list, until) else { return };
        let marked = list.lines().filter_map(|line| line.trim().split_once(' '));
        self.kill(marked.filter(|(_, mark)| is_wanted(mark.trim())).map(|(id, _)| id), until);
    }

    /// Kills the containers with these ids.
    fn kill<'i>(&self, ids: impl Iterator<Item = &'i str>, until: Instant) {
        // Text that could be an option is no id.
        let is_id = |id: &&str| !id.is_empty() && id.bytes().all(|byte| byte.is_ascii_hexdigit());
        let words: Vec<&str> = std::iter::once("kill").chain(ids.filter(is_id)).collect();
        if words.len() > 1 {
            drop(self.run(&words, until));
        }
    }

    /// Runs a command of the engine. Returns its output if it succeeded in time.
    fn run(&self, words: &[&str], until: Instant) -> Option<String> {
        let mut command = Command::new(self.file);
        command
            .args(self.global)
            .args(words)
            .env_clear()
            .envs(self.environment.iter().map(|(key, value)| (key, value)));
        if let Some(cwd) = self.cwd {
            command.current_dir(cwd);
        }
        let mut child = command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::null()).spawn().ok()?;
        let stdout = child.stdout.take()?;
        let reading = std::thread::Builder::new().name("containers".to_owned()).spawn(move || {
            let mut printed = Vec::new();
            drop(stdout.take(MAX_LIST).read_to_end(&mut printed));
            printed
        });
        let succeeded = wait(&mut child, until);
        let reading = reading.ok()?;
        // Another process may keep the pipe open.
        while !reading.is_finished() && clock::now() < until {
            std::thread::sleep(LOOK);
        }
        let printed = (succeeded && reading.is_finished()).then(|| reading.join().ok()).flatten()?;
        Some(String::from_utf8_lossy(&printed).into_owned())
    }
}

/// Returns whether the child succeeds in time; otherwise it is killed.
fn wait(child: &mut Child, until: Instant) -> bool {
    loop {
        match child.try_wait() {
            Ok(Some(status)) => return status.success(),
            Ok(None) if clock::now() < until => std::thread::sleep(LOOK),
            Ok(None) | Err(_) => {
                drop(child.kill());
                drop(child.wait());
                return false;
            }
        }
    }
}
