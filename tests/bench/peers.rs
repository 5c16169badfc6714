//! Other gateways, measured beside this one where a file says how to start them.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, ensure};
use serde::Deserialize;
use tempfile::TempDir;

use crate::gateway::{free_port, on_path};
use crate::http::BenchConnection;
use crate::process::ServerProcess;
use crate::scenario::{BenchEndpoint, LoadEra, LoadSession};

/// Longest time until a gateway lists the tool that is called.
const READY: Duration = Duration::from_secs(60);

/// The file that names the other gateways.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct PeerFile {
    #[serde(default)]
    peer: Vec<PeerRecipe>,
}

/// The command and files that start one gateway. In `command` and in the texts of `files`,
/// `{upstream}` stands for the address of the upstream, `{port}` for the port to listen on, and
/// `{folder}` for the folder of the files.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct PeerRecipe {
    pub(crate) name: String,
    command: Vec<String>,
    /// Path of the gateway's MCP endpoint.
    path: String,
    #[serde(default)]
    files: BTreeMap<String, String>,
}

/// A running gateway of another project.
#[derive(Debug)]
pub(crate) struct RunningPeer {
    pub(crate) server: ServerProcess,
    pub(crate) target: BenchEndpoint,
    /// The prefix that the gateway puts before the names of the upstream's tools.
    pub(crate) prefix: String,
    _folder: TempDir,
}

impl PeerFile {
    /// # Errors
    /// When the file cannot be read or has an unknown key.
    pub(crate) fn read(file: &Path) -> anyhow::Result<Vec<PeerRecipe>> {
        let text = fs::read_to_string(file).with_context(|| format!("read {}", file.display()))?;
        let peers: Self = toml::from_str(&text).with_context(|| format!("read {}", file.display()))?;
        Ok(peers.peer)
    }
}

impl PeerRecipe {
    /// Starts the gateway in front of the upstream and waits until it lists a tool of that name;
    /// `None` if the gateway is not installed.
    ///
    /// # Errors
    /// When the gateway is installed and does not serve.
    pub(crate) async fn start(&self, upstream: &str, tool: &str) -> anyhow::Result<Option<RunningPeer>> {
        let program = self.command.first().context("a command without a program")?;
        if !on_path(program) {
            eprintln!("{} is not installed: not measured", self.name);
            return Ok(None);
        }
        let folder = tempfile::tempdir().context("create a folder")?;
        let port = free_port()?;
        let filled = |text: &str| {
            let text = text.replace("{upstream}", upstream).replace("{port}", &port.to_string());
            text.replace("{folder}", &folder.path().to_string_lossy())
        };
        for (name, text) in &self.files {
            fs::write(folder.path().join(name), filled(text)).with_context(|| format!("write {name}"))?;
        }
        let mut command = Command::new(program);
        command.args(self.command.iter().skip(1).map(|argument| filled(argument))).current_dir(folder.path());
        let mut server = ServerProcess::start(command.stdout(Stdio::null()).stderr(Stdio::null()))?;
        let target = BenchEndpoint::new(&format!("http://127.0.0.1:{port}{}", self.path), None)?;
        let deadline = Instant::now() + READY;
        loop {
            let problem = match tokio::time::timeout(READY, prefix_of(&target, tool)).await.context("no answer") {
                Ok(Ok(prefix)) => return Ok(Some(RunningPeer { server, target, prefix, _folder: folder })),
                Ok(Err(error)) | Err(error) => error,
            };
            ensure!(server.ended().is_none(), "it ended: {problem:#}");
            ensure!(Instant::now() < deadline, "it does not serve after {READY:?}: {problem:#}");
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
    }
}

/// Lists the tools of a target and returns the prefix before a tool's own name.
async fn prefix_of(target: &BenchEndpoint, tool: &str) -> anyhow::Result<String> {
    let mut connection = BenchConnection::open(&target.authority).await?;
    let session = LoadSession::open(target.clone(), LoadEra::Legacy, &mut connection).await?;
    let names = session.names_of_tools(&mut connection, 1).await?;
    let prefix = names.iter().find_map(|name| name.strip_suffix(tool));
    Ok(prefix.with_context(|| format!("no tool {tool} among {names:?}"))?.to_owned())
}
