//! Starts the programs between the load and the upstream: the gateway with a configuration of its
//! own, and nginx.

use std::fmt::Write;
use std::fs::{self, File};
use std::net::TcpListener;
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

use anyhow::{Context, bail, ensure};
use tempfile::TempDir;

use crate::auth::{BenchAuth, BenchCredential};
use crate::http::BenchConnection;
use crate::process::ServerProcess;
use crate::scenario::{BenchEndpoint, LoadSession};
use crate::tls::CertificateFiles;

/// Longest start of a gateway, and the pause between two polls.
const READY: PollingLimit = PollingLimit { most: Duration::from_secs(20), pause: Duration::from_millis(1) };

/// [`READY`] for a gateway under callgrind, which is fifty times slower and also counts each poll.
const READY_COUNTED: PollingLimit = PollingLimit { most: Duration::from_secs(120), pause: Duration::from_millis(500) };

/// Lines of a gateway's log to show when it does not start.
const LOG_LINES: usize = 15;

#[derive(Clone, Copy, Debug)]
struct PollingLimit {
    most: Duration,
    pause: Duration,
}

/// A running gateway that has listed all of its tools.
#[derive(Debug)]
pub(crate) struct BenchGateway {
    pub(crate) server: ServerProcess,
    pub(crate) target: BenchEndpoint,
    /// Time from the gateway's start to a complete answer.
    pub(crate) ready_after: Duration,
}

/// Configuration of the gateway.
#[derive(Clone, Debug)]
pub(crate) struct BenchSetup {
    /// TOML: `url = "..."` or `command = [...]`. The only upstream's items keep their names; of
    /// several, `u0__`, `u1__` and so on precede them.
    upstreams: Vec<String>,
    /// Number of deny rules for other tools.
    pub(crate) rules: usize,
    /// Whether every call needs an approval.
    pub(crate) asks: bool,
    /// Number of tools in the complete list.
    pub(crate) tools: usize,
    pub(crate) auth: BenchAuth,
}

impl BenchSetup {
    /// Returns a setup with HTTP upstreams at these addresses, with this many tools each.
    pub(crate) fn of(addresses: &[String], tools: usize) -> Self {
        let upstreams = addresses.iter().map(|address| format!(r#"url = "http://{address}/mcp""#)).collect();
        Self { upstreams, rules: 0, asks: false, tools: addresses.len() * tools, auth: BenchAuth::Anyone }
    }

    /// Returns a setup with an HTTPS upstream at this address, by the certificates of these files.
    pub(crate) fn over_tls(address: &str, files: &CertificateFiles, tools: usize) -> Self {
        let authority = files.authority();
        let upstream =
            format!("url = \"https://{address}/mcp\"\nauth = {{ ca = {{ file = \"{}\" }} }}", authority.display());
        Self { upstreams: vec![upstream], rules: 0, asks: false, tools, auth: BenchAuth::Anyone }
    }

    /// Returns a setup with this program as a stdio upstream.
    ///
    /// # Errors
    /// When the path of this program is unknown.
    pub(crate) fn stdio(tools: usize) -> anyhow::Result<Self> {
        let program = std::env::current_exe().context("find this program")?;
        let command = format!(r#"command = ["{}", "upstream", "--stdio", "--tools", "{tools}"]"#, program.display());
        Ok(Self { upstreams: vec![command], rules: 0, asks: false, tools, auth: BenchAuth::Anyone })
    }

    /// Returns the prefixes of the names of each upstream's tools.
    pub(crate) fn prefixes(&self) -> Vec<String> {
        match self.upstreams.len() {
            1 => Vec::new(),
            count => (0..count).map(|number| format!("u{number}__")).collect(),
        }
    }

    fn config(&self, port: u16, auth: &str) -> anyhow::Result<String> {
        let mut config = format!(
            "[server]\nlisten = [\"127.0.0.1:{port}\"]\n{auth}[metrics]\nlisten = \"\"\n[console]\nlisten = \"\"\n[policy]\ndefault = \"{}\"\n",
            if self.asks { "ask" } else { "allow" }
        );
        for rule in 0..self.rules {
            writeln!(
                config,
                "[[policy.rules]]\nid = \"rule-{rule}\"\neffect = \"deny\"\ntools = [\"u0__delete_{rule}_*\"]"
            )?;
        }
        for (number, upstream) in self.upstreams.iter().enumerate() {
            // The benchmark does not measure the concurrency limit.
            writeln!(config, "[upstreams.u{number}]\n{upstream}\nmax-in-flight = 256")?;
            if self.upstreams.len() == 1 {
                writeln!(config, "prefix = \"\"")?;
            }
        }
        Ok(config)
    }

    /// Starts `binary` with this setup and waits until it lists every tool. Its configuration,
    /// state and log are in `folder`.
    ///
    /// # Errors
    /// When it ends or does not list every tool within [`READY`]; says what it logged.
    pub(crate) async fn start(&self, binary: &Path, folder: &Path) -> anyhow::Result<BenchGateway> {
        self.serve(Command::new(binary), READY, folder).await
    }

    /// Starts the gateway under callgrind, which writes to the file `count` when the gateway ends.
    ///
    /// # Errors
    /// As for [`Self::start`].
    pub(crate) async fn start_counted(
        &self,
        binary: &Path,
        count: &Path,
        folder: &Path,
    ) -> anyhow::Result<BenchGateway> {
        let mut command = Command::new("valgrind");
        command.arg("--tool=callgrind").arg(format!("--callgrind-out-file={}", count.display()));
        command.args(["--compress-strings=no", "--compress-pos=no"]).arg(binary);
        self.serve(command, READY_COUNTED, folder).await
    }

    async fn serve(&self, mut command: Command, patience: PollingLimit, folder: &Path) -> anyhow::Result<BenchGateway> {
        let port = free_port()?;
        // A folder of its own: the gateway watches it for changes.
        let configs = folder.join("config");
        fs::create_dir_all(&configs).context("make the configuration's folder")?;
        let (config, log) = (configs.join("headend.toml"), folder.join("headend.log"));
        let credential = BenchCredential::create(self.auth, folder)?;
        fs::write(&config, self.config(port, &credential.settings)?).context("write the gateway's configuration")?;
        command.arg("serve").arg("--config").arg(&config);
        command.env("STATE_DIRECTORY", folder).env("RUNTIME_DIRECTORY", folder);
        command.env("HEADEND_SOCKET", folder.join("headend.sock"));
        let output = File::create(&log).context("create the gateway's log")?;
        command.stdout(output.try_clone().context("share the gateway's log")?).stderr(output);
        let url = format!("http://127.0.0.1:{port}/mcp");
        let target = BenchEndpoint::new(&url, credential.token_file.as_deref())?;
        let started = Instant::now();
        let mut server = ServerProcess::start(&mut command)?;
        match wait_for_tools(&mut server, &target, self.tools, patience).await {
            Ok(()) => Ok(BenchGateway { server, target, ready_after: started.elapsed() }),
            Err(error) => {
                let log = fs::read_to_string(&log).unwrap_or_default();
                let skipped = log.lines().count().saturating_sub(LOG_LINES);
                let tail: Vec<&str> = log.lines().skip(skipped).collect();
                let said = if tail.is_empty() { "nothing".to_owned() } else { tail.join("\n  ") };
                let program = command.get_program().display();
                Err(anyhow::anyhow!("{program} does not serve: {error:#}; it logged:\n  {said}"))
            }
        }
    }
}

/// Lets the operator allow a tool until it changes: makes a call that is refused, and approves it.
///
/// # Errors
/// When the call needs no approval, or cannot be approved.
pub(crate) fn consent(binary: &Path, folder: &Path, tool: &str) -> anyhow::Result<()> {
    let run = |args: &[&str]| {
        let socket = folder.join("headend.sock");
        let output = Command::new(binary).args(args).arg("--socket").arg(socket).output();
        output.with_context(|| format!("run `headend {}`", args.join(" ")))
    };
    run(&["call", tool, "{}"])?;
    let listed = run(&["approvals", "list", "--json"])?;
    let listed: serde_json::Value = serde_json::from_slice(&listed.stdout).context("read the open questions")?;
    let id = listed.pointer("/approvals/0/id").and_then(serde_json::Value::as_str).context("nothing is asked about")?;
    let approved = run(&["approve", id, "--for", "always"])?;
    ensure!(approved.status.success(), "not approved: {}", String::from_utf8_lossy(&approved.stderr));
    Ok(())
}

async fn wait_for_tools(
    server: &mut ServerProcess,
    target: &BenchEndpoint,
    tools: usize,
    PollingLimit { most, pause }: PollingLimit,
) -> anyhow::Result<()> {
    let deadline = Instant::now() + most;
    loop {
        let listed = tokio::time::timeout(most, list(target)).await.context("tools/list: no answer");
        let problem = match listed.and_then(|listed| listed) {
            Ok(listed) if listed == tools => return Ok(()),
            Ok(listed) => anyhow::anyhow!("{listed} of {tools} tools listed"),
            Err(error) => error,
        };
        if let Some(status) = server.ended() {
            bail!("it ended: {status}");
        }
        if Instant::now() > deadline {
            return Err(problem.context(format!("not ready after {most:?}")));
        }
        tokio::time::sleep(pause).await;
    }
}

async fn list(target: &BenchEndpoint) -> anyhow::Result<usize> {
    let mut connection = BenchConnection::open(&target.authority).await?;
    LoadSession::modern(target.clone()).count_tools(&mut connection, 1).await
}

/// nginx in front of one upstream.
#[derive(Debug)]
pub(crate) struct Nginx {
    pub(crate) server: ServerProcess,
    pub(crate) target: BenchEndpoint,
    _folder: TempDir,
}

impl Nginx {
    /// Starts nginx; `None` when it is not installed.
    ///
    /// # Errors
    /// When it is installed and does not accept connections.
    pub(crate) async fn start(upstream: &str) -> anyhow::Result<Option<Self>> {
        if !on_path("nginx") {
            return Ok(None);
        }
        let folder = tempfile::tempdir().context("create a folder for nginx")?;
        let port = free_port()?;
        let config = folder.path().join("nginx.conf");
        fs::write(&config, nginx_config(folder.path(), port, upstream)).context("write the configuration of nginx")?;
        let mut server =
            ServerProcess::start(Command::new("nginx").arg("-p").arg(folder.path()).arg("-c").arg(&config))?;
        let target = BenchEndpoint::new(&format!("http://127.0.0.1:{port}/mcp"), None)?;
        let deadline = Instant::now() + READY.most;
        while let Err(error) = BenchConnection::open(&target.authority).await {
            ensure!(server.ended().is_none() && Instant::now() < deadline, "nginx does not serve: {error:#}");
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        Ok(Some(Self { server, target, _folder: folder }))
    }
}

/// Returns the configuration of a plain reverse proxy for an MCP server: it keeps connections and
/// passes events as they arrive.
fn nginx_config(folder: &Path, port: u16, upstream: &str) -> String {
    let folder = folder.display();
    // Workers of a master that is root would otherwise be a user who cannot enter the folder.
    let user = if rustix::process::getuid().is_root() { "user root;" } else { "" };
    format!(
        "{user}
daemon off;
worker_processes 2;
pid {folder}/nginx.pid;
error_log {folder}/error.log;
events {{ worker_connections 8192; }}
http {{
  access_log off;
  tcp_nodelay on;
  keepalive_requests 1000000000;
  client_body_temp_path {folder}/body;
  proxy_temp_path {folder}/proxy;
  fastcgi_temp_path {folder}/fastcgi;
  uwsgi_temp_path {folder}/uwsgi;
  scgi_temp_path {folder}/scgi;
  client_max_body_size 8m;
  client_body_buffer_size 256k;
  upstream mcp {{ server {upstream}; keepalive 64; keepalive_requests 1000000000; }}
  server {{
    listen 127.0.0.1:{port};
    location / {{
      proxy_pass http://mcp;
      proxy_http_version 1.1;
      proxy_set_header Connection \"\";
      proxy_buffering off;
      proxy_buffer_size 64k;
      proxy_buffers 8 64k;
      proxy_read_timeout 1h;
    }}
  }}
}}
"
    )
}

/// Returns whether a program of this name can be started.
pub(crate) fn on_path(program: &str) -> bool {
    let path = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&path).any(|folder| folder.join(program).is_file())
}

/// Returns a port that was free a moment ago.
pub(crate) fn free_port() -> anyhow::Result<u16> {
    let listener = TcpListener::bind("127.0.0.1:0").context("find a free port")?;
    Ok(listener.local_addr().context("find a free port")?.port())
}
