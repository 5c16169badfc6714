//! Scriptable MCP servers for tests, and their logs.

use std::fs;
use std::path::{Path, PathBuf};

use serde_json::Value;

pub(crate) use super::listening::{Listening, example};
use super::setup::GatewaySetup;

/// The command line of an upstream that `fake-upstream` plays.
#[derive(Debug, Clone)]
pub(crate) struct Fake {
    args: Vec<String>,
}

impl Fake {
    /// Creates a stdio server of this era (`legacy`, `modern` or `both`).
    pub(crate) fn stdio(era: &str) -> Self {
        Self { args: vec!["stdio".into(), "--era".into(), era.into()] }
    }

    /// Creates a server behind HTTP; [`Fake::spawn`] starts it.
    pub(crate) fn http(era: &str) -> Self {
        Self { args: ["http", "--listen", "127.0.0.1:0", "--era", era].map(str::to_owned).into() }
    }

    /// Creates a server of HTTP+SSE, which belongs to the legacy era.
    pub(crate) fn sse() -> Self {
        Self { args: ["sse", "--listen", "127.0.0.1:0", "--era", "legacy"].map(str::to_owned).into() }
    }

    /// Sets the address of the server.
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

    /// Makes the server misbehave.
    pub(crate) fn behaving(self, behaviour: &str) -> Self {
        self.with("--behaviour", behaviour)
    }

    /// Logs every message that the server receives.
    pub(crate) fn logging(self, log: &InputLog) -> Self {
        self.with("--log", log.path.to_str().unwrap())
    }

    /// Returns the command as a `command = [...]` value.
    pub(crate) fn command(&self) -> String {
        let program = example("fake-upstream");
        let words = std::iter::once(program.to_str().unwrap()).chain(self.args.iter().map(String::as_str));
        toml_array(words)
    }

    /// Starts a server that listens.
    pub(crate) fn spawn(&self) -> Listening {
        Listening::spawn(&example("fake-upstream"), &self.args)
    }
}

/// Changes of an upstream's lists, which take effect when they are written.
pub(crate) struct Patch(PathBuf);

impl Patch {
    pub(crate) fn new(setup: &GatewaySetup) -> Self {
        Self(setup.world.path("work").join("patch.json"))
    }

    pub(crate) fn of(&self, fake: Fake) -> Fake {
        fake.with("--patch", self.0.to_str().unwrap())
    }

    pub(crate) fn write(&self, patch: &Value) {
        let fresh = self.0.with_extension("new");
        fs::write(&fresh, patch.to_string()).unwrap();
        fs::rename(fresh, &self.0).unwrap();
    }
}

/// Formats a TOML array of strings.
pub(crate) fn toml_array<'w>(words: impl IntoIterator<Item = &'w str>) -> String {
    // JSON strings are TOML basic strings.
    serde_json::to_string(&words.into_iter().collect::<Vec<_>>()).unwrap()
}

/// The log of an upstream's input, with one message on each line.
#[derive(Debug, Clone)]
pub(crate) struct InputLog {
    path: PathBuf,
}

impl InputLog {
    pub(crate) fn new(folder: &Path, name: &str) -> Self {
        Self { path: folder.join(format!("{name}.log")) }
    }

    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// Returns the lines that contain all of these texts, ignoring spaces around colons.
    pub(crate) fn lines_with(&self, needles: &[&str]) -> Vec<String> {
        let text = fs::read(&self.path).unwrap_or_default();
        let text = String::from_utf8_lossy(&text).replace("\": ", "\":");
        text.lines().filter(|line| needles.iter().all(|needle| line.contains(needle))).map(str::to_owned).collect()
    }

    /// Counts the received messages with this method.
    pub(crate) fn count(&self, method: &str) -> usize {
        self.lines_with(&[&format!("\"method\":\"{method}\"")]).len()
    }

    /// Counts the requests that only a client's request can cause.
    pub(crate) fn work(&self) -> usize {
        ["tools/call", "prompts/get", "resources/read", "completion/complete"].iter().map(|m| self.count(m)).sum()
    }
}
