//! The scriptable MCP servers of the tests, and their logs.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use std::io::{BufRead as _, BufReader};

use rustix::process::{Signal, kill_process};

use crate::process::{eventually, pid_of};

/// The path of a cargo example, which lies beside the folder of the test executable.
pub(crate) fn example(name: &str) -> PathBuf {
    let test = std::env::current_exe().unwrap();
    let profile = test.parent().and_then(Path::parent).unwrap();
    let path = profile.join("examples").join(name);
    assert!(path.exists(), "{} is missing: `cargo test` and `cargo build --examples` build it", path.display());
    path
}

/// One upstream played by `fake-upstream`: its command line.
#[derive(Debug, Clone)]
pub(crate) struct Fake {
    args: Vec<String>,
}

impl Fake {
    /// A stdio server of that era (`legacy`, `modern` or `both`).
    pub(crate) fn stdio(era: &str) -> Self {
        Self { args: vec!["stdio".into(), "--era".into(), era.into()] }
    }

    /// The same behind HTTP; [`Fake::spawn`] starts it.
    pub(crate) fn http(era: &str) -> Self {
        Self { args: ["http", "--listen", "127.0.0.1:0", "--era", era].map(str::to_owned).into() }
    }

    /// A server of HTTP+SSE, which is of the legacy era.
    pub(crate) fn sse() -> Self {
        Self { args: ["sse", "--listen", "127.0.0.1:0", "--era", "legacy"].map(str::to_owned).into() }
    }

    /// At that address.
    pub(crate) fn at(mut self, address: &str) -> Self {
        let place = self.args.iter().position(|word| word == "--listen").unwrap();
        address.clone_into(&mut self.args[place + 1]);
        self
    }

    /// Adds an option with its value.
    pub(crate) fn with(mut self, option: &str, value: impl AsRef<str>) -> Self {
        self.args.extend([option.to_owned(), value.as_ref().to_owned()]);
        self
    }

    /// Makes it misbehave.
    pub(crate) fn behaving(self, behaviour: &str) -> Self {
        self.with("--behaviour", behaviour)
    }

    /// Logs every message that it receives.
    pub(crate) fn logging(self, log: &Log) -> Self {
        self.with("--log", log.path.to_str().unwrap())
    }

    /// As a `command = [...]` value.
    pub(crate) fn command(&self) -> String {
        let program = example("fake-upstream");
        let words = std::iter::once(program.to_str().unwrap()).chain(self.args.iter().map(String::as_str));
        toml_array(words)
    }

    /// Starts one that listens.
    pub(crate) fn spawn(&self) -> Listening {
        Listening::spawn(&example("fake-upstream"), &self.args)
    }
}

/// A TOML array of strings.
pub(crate) fn toml_array<'w>(words: impl IntoIterator<Item = &'w str>) -> String {
    // JSON strings are TOML basic strings.
    serde_json::to_string(&words.into_iter().collect::<Vec<_>>()).unwrap()
}

/// A server of ours that listens on a port of its own and ends with the test.
#[derive(Debug)]
pub(crate) struct Listening {
    child: Child,
    pub(crate) url: String,
}

impl Listening {
    /// Starts the program and reads its URL from the first line that it prints.
    pub(crate) fn spawn(program: &Path, args: &[String]) -> Self {
        let mut child = Command::new(program)
            .args(args)
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .unwrap_or_else(|error| panic!("start {}: {error}", program.display()));
        let mut line = String::new();
        BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
        let url = line.split_whitespace().find(|word| word.starts_with("http://")).map(str::to_owned);
        let url = url.unwrap_or_else(|| panic!("{} {args:?} printed no URL but {line:?}", program.display()));
        Self { child, url }
    }
}

impl Listening {
    /// Where it listens.
    pub(crate) fn address(&self) -> &str {
        self.url.trim_start_matches("http://").split('/').next().unwrap()
    }

    /// Lets it stand still.
    pub(crate) fn freeze(&self) {
        kill_process(pid_of(&self.child), Signal::STOP).unwrap();
        let stands = |stat: &str| stat.rsplit(')').next().is_some_and(|rest| rest.trim_start().starts_with('T'));
        let threads = || fs::read_dir(format!("/proc/{}/task", self.child.id())).unwrap();
        let stat = |thread: fs::DirEntry| fs::read_to_string(thread.path().join("stat")).unwrap_or_default();
        eventually("it stands still", || threads().all(|thread| stands(&stat(thread.unwrap()))));
    }

    /// Lets it go on.
    pub(crate) fn thaw(&self) {
        kill_process(pid_of(&self.child), Signal::CONT).unwrap();
    }
}

impl Drop for Listening {
    fn drop(&mut self) {
        // The process may have ended already.
        let _ignored = self.child.kill();
        let _ignored = self.child.wait();
    }
}

/// The log of an upstream's input: one message a line.
#[derive(Debug, Clone)]
pub(crate) struct Log {
    path: PathBuf,
}

impl Log {
    pub(crate) fn new(folder: &Path, name: &str) -> Self {
        Self { path: folder.join(format!("{name}.log")) }
    }

    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// The lines that contain all of these texts, spaces around colons aside.
    pub(crate) fn lines_with(&self, needles: &[&str]) -> Vec<String> {
        let text = fs::read(&self.path).unwrap_or_default();
        let text = String::from_utf8_lossy(&text).replace("\": ", "\":");
        text.lines().filter(|line| needles.iter().all(|needle| line.contains(needle))).map(str::to_owned).collect()
    }

    /// How many messages of that method arrived.
    pub(crate) fn count(&self, method: &str) -> usize {
        self.lines_with(&[&format!("\"method\":\"{method}\"")]).len()
    }

    /// Number of requests that only a client's own request can cause.
    pub(crate) fn work(&self) -> usize {
        ["tools/call", "prompts/get", "resources/read", "completion/complete"].iter().map(|m| self.count(m)).sum()
    }
}
