//! The daemon, its configuration, and the servers behind it.

use std::fs::{self, File};
use std::net::{SocketAddr, TcpListener};
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::{ExitStatus, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context as _, bail, ensure};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;
use tokio::io::{AsyncBufReadExt as _, AsyncWriteExt as _, BufReader};
use tokio::net::UnixStream;
use tokio::process::{Child, Command};
use tokio::sync::RwLock;
use tokio::time::{sleep, timeout};

use crate::SoakOptions;
use crate::ledger::Ledger;
use crate::link::{SoakClient, SoakEra, SoakTransport};
use crate::wire::SoakWire;

/// Servers that always behave: both eras on pipes and Streamable HTTP, and HTTP+SSE.
pub(crate) const STEADY: &[&str] = &["oldpipe", "newpipe", "oldweb", "newweb", "oldsse"];
/// Servers of the legacy era that ask in the middle of a call.
pub(crate) const ASKERS: &[&str] = &["askpipe", "askweb"];
/// Servers that die, cut connections, or lie; the last one is replaced by each reload.
pub(crate) const MORTALS: &[&str] = &["mortalpipe", "mortalweb", "cutweb", "damaged", "guest"];
/// The resource that clients subscribe to.
pub(crate) const WATCHED: &str = "test://watched-resource";
/// A guest that behaves.
pub(crate) const PLAIN: &[&str] = &["stdio", "--era", "both"];

/// Longest time of a request. A call may wait for a slot and for its turn, and then for its server.
const PATIENCE: Duration = Duration::from_secs(120);
/// Calls that the demo server takes at once, less those that it has not noticed to be cancelled.
const LAB_PLACES: usize = 40;
/// Longest time until the daemon serves all of its servers' tools.
const START: Duration = Duration::from_secs(120);
const END: Duration = Duration::from_secs(60);
/// A question to a client without a session is open for ten minutes.
const QUESTION: Duration = Duration::from_secs(600);
/// Lines of the daemon's log to show when something failed.
const LOG_LINES: usize = 15;

/// The facts that all clients share: addresses, token, ledger and state of the daemon.
#[derive(Debug)]
pub(crate) struct SoakFacts {
    pub(crate) address: SocketAddr,
    pub(crate) metrics: SocketAddr,
    pub(crate) socket: PathBuf,
    pub(crate) ledger: Ledger,
    pub(crate) patience: Duration,
    /// Number of starts of the daemon.
    pub(crate) life: AtomicU64,
    /// Locked for writing while the configuration is a refused one.
    pub(crate) file: RwLock<()>,
    down: AtomicBool,
    stop: AtomicBool,
    load_ends: Instant,
    binary: PathBuf,
    folder: PathBuf,
    token: String,
}

impl SoakFacts {
    pub(crate) fn token(&self) -> &str {
        &self.token
    }

    /// Returns whether the daemon with this number was stopped.
    pub(crate) fn is_restarting(&self, life: u64) -> bool {
        self.down.load(Ordering::SeqCst) || self.life.load(Ordering::SeqCst) != life
    }

    pub(crate) fn is_down(&self) -> bool {
        self.down.load(Ordering::SeqCst)
    }

    pub(crate) fn stopping(&self) -> bool {
        self.stop.load(Ordering::SeqCst)
    }

    pub(crate) fn stop(&self) {
        self.stop.store(true, Ordering::SeqCst);
    }

    /// Returns whether a question that is left open now is over before the load is.
    pub(crate) fn may_abandon(&self) -> bool {
        Instant::now() + QUESTION < self.load_ends
    }

    /// Returns a command `headend` with these words, for this daemon.
    pub(crate) fn command(&self, words: &[&str]) -> Command {
        let mut command = Command::new(&self.binary);
        let state = self.folder.join("state");
        command.args(words).arg("--config").arg(self.config()).arg("--log").arg("warn").env_clear();
        command.env("PATH", std::env::var_os("PATH").unwrap_or_default()).env("HOME", &self.folder);
        command.env("STATE_DIRECTORY", state).env("RUNTIME_DIRECTORY", &self.folder);
        command.env("HEADEND_SOCKET", &self.socket).stdin(Stdio::null());
        command
    }

    fn config(&self) -> PathBuf {
        self.folder.join("config/headend.toml")
    }

    /// Replaces the configuration and asks for a reload. The error is the daemon's.
    pub(crate) async fn reload(&self, text: &str) -> anyhow::Result<Result<String, String>> {
        let fresh = self.config().with_extension("new");
        fs::write(&fresh, text)?;
        fs::rename(&fresh, self.config())?;
        let answer = self.admin("reload").await?;
        Ok(match answer["error"]["message"].as_str() {
            Some(why) => Err(why.to_owned()),
            None => Ok(answer["result"]["plan"].as_str().unwrap_or_default().to_owned()),
        })
    }

    /// Makes one request of the operator.
    pub(crate) async fn admin(&self, method: &str) -> anyhow::Result<Value> {
        let asked = async {
            let (read, mut write) = UnixStream::connect(&self.socket).await?.into_split();
            let request = format!(r#"{{"jsonrpc":"2.0","id":1,"method":"{method}"}}"#);
            write.write_all(format!("{{\"headend\":1,\"want\":\"admin\"}}\n{request}\n").as_bytes()).await?;
            let mut lines = BufReader::new(read).lines();
            lines.next_line().await?;
            let line = lines.next_line().await?.context("the admin socket was closed")?;
            anyhow::Ok(serde_json::from_str(&line)?)
        };
        timeout(PATIENCE, asked).await.with_context(|| format!("admin method {method}"))?
    }

    /// Fetches a page of the metrics listener.
    pub(crate) async fn page(&self, path: &str) -> anyhow::Result<String> {
        let read = async {
            let mut conn = SoakWire::open(self.metrics).await?;
            conn.send(format!("GET {path} HTTP/1.1\r\nHost: {}\r\nConnection: close\r\n\r\n", self.metrics).as_bytes())
                .await?;
            conn.head().await?;
            anyhow::Ok(String::from_utf8(conn.body().await?)?)
        };
        timeout(Duration::from_secs(20), read).await.with_context(|| format!("GET {path}"))?
    }
}

/// A server on a port of its own.
#[derive(Debug)]
pub(crate) struct SoakServer {
    program: PathBuf,
    words: Vec<String>,
    child: Child,
    pub(crate) url: String,
}

impl SoakServer {
    async fn start(program: &Path, words: &[&str]) -> anyhow::Result<Self> {
        let words: Vec<String> = words.iter().map(|word| (*word).to_owned()).collect();
        let (child, url) = Self::spawn(program, &words, "127.0.0.1:0").await?;
        Ok(Self { program: program.to_owned(), words, child, url })
    }

    async fn spawn(program: &Path, words: &[String], listen: &str) -> anyhow::Result<(Child, String)> {
        let mut command = Command::new(program);
        command.args(words).args(["--listen", listen]).kill_on_drop(true);
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::null());
        let mut child = command.spawn().with_context(|| format!("start {}", program.display()))?;
        let mut line = String::new();
        let stdout = child.stdout.take().context("its stdout")?;
        BufReader::new(stdout).read_line(&mut line).await?;
        ensure!(line.starts_with("http://"), "{} {words:?} printed {line:?}", program.display());
        Ok((child, line.trim().to_owned()))
    }

    /// Kills the server and starts it again on its port, after a while.
    pub(crate) async fn restart(&mut self, after: Duration) -> anyhow::Result<()> {
        // The server may have ended by itself.
        let _killed = self.child.kill().await;
        sleep(after).await;
        let listen = self.url.trim_start_matches("http://").split('/').next().unwrap_or_default().to_owned();
        (self.child, self.url) = Self::spawn(&self.program, &self.words, &listen).await?;
        Ok(())
    }
}

/// The daemon's process.
#[derive(Debug)]
pub(crate) struct DaemonProcess {
    child: Child,
    pub(crate) pid: u32,
}

/// The daemon and all servers of a run.
#[derive(Debug)]
pub(crate) struct SoakStage {
    pub(crate) facts: Arc<SoakFacts>,
    pub(crate) daemon: DaemonProcess,
    /// The server over HTTP that dies.
    pub(crate) mortal: Option<SoakServer>,
    pub(crate) recipe: Recipe,
    _others: Vec<SoakServer>,
    _folder: Option<tempfile::TempDir>,
}

/// The configuration, but for the guest.
#[derive(Clone, Debug)]
pub(crate) struct Recipe {
    text: String,
    fake: PathBuf,
}

impl Recipe {
    /// Returns the configuration with that guest, or none.
    pub(crate) fn with_guest(&self, words: Option<&[&str]>) -> String {
        let mut text = self.text.clone();
        if let Some(words) = words {
            text.push_str(&section("guest", &command(&self.fake, words)));
            text.push_str("call-timeout = \"2s\"\nstart-timeout = \"10s\"\n");
        }
        text
    }
}

fn command(program: &Path, words: &[&str]) -> String {
    let words: Vec<String> =
        std::iter::once(program.display().to_string()).chain(words.iter().map(|word| (*word).to_owned())).collect();
    // Strings of JSON are strings of TOML.
    format!("command = {}", Value::from(words))
}

fn section(name: &str, target: &str) -> String {
    let places = if name == "lab" { LAB_PLACES } else { 256 };
    format!("\n[upstreams.{name}]\n{target}\nmax-in-flight = {places}\nqueue = 1024\nqueue-timeout = \"30s\"\n")
}

impl SoakStage {
    /// Starts the servers, then the daemon, and waits until it lists all of their tools.
    pub(crate) async fn start(options: &SoakOptions) -> anyhow::Result<Self> {
        let own = std::env::current_exe().context("find this program")?;
        let examples = own.parent().context("the folder of this program")?;
        let build = examples.parent().context("the folder of the build")?;
        // The reference server is a program of the package with the peers.
        let (fake, fixture) = (examples.join("fake-upstream"), build.join("conformance-fixture"));
        let beside = build.join("headend");
        let binary = fs::canonicalize(options.binary.as_ref().unwrap_or(&beside))
            .context("the daemon; name it with --binary")?;
        for needed in [&fake, &fixture] {
            ensure!(
                needed.is_file(),
                "{} is missing: `cargo build --release --workspace --bins --examples` builds it",
                needed.display()
            );
        }
        let (folder, temporary) = match &options.folder {
            Some(folder) => (folder.clone(), None),
            None => {
                let temporary = tempfile::Builder::new().prefix("headend-soak-").tempdir()?;
                (temporary.path().to_owned(), Some(temporary))
            }
        };
        for name in ["config", "state"] {
            fs::create_dir_all(folder.join(name))?;
            fs::set_permissions(folder.join(name), fs::Permissions::from_mode(0o700))?;
        }
        let token = format!("hdnd_{:032x}", fastrand::u128(..));
        secret(&folder.join("state/token"), &token)?;
        let mut text = String::new();
        let mut others = Vec::new();
        for (name, words) in [
            ("oldweb", &["http", "--era", "legacy", "--answers", "sse"][..]),
            ("newweb", &["http", "--era", "modern", "--answers", "sse"]),
            ("oldsse", &["sse", "--era", "legacy"]),
            ("askweb", &["http", "--era", "legacy", "--answers", "sse", "--behaviour", "asks"]),
        ] {
            let server = SoakServer::start(&fake, words).await?;
            text.push_str(&section(name, &format!("url = \"{}\"", server.url)));
            others.push(server);
        }
        let watched = SoakServer::start(&fixture, &["http", "--era", "modern"]).await?;
        text.push_str(&section("watched", &format!("url = \"{}\"", watched.url)));
        others.push(watched);
        for (name, words) in [
            ("oldpipe", &["stdio", "--era", "legacy"][..]),
            ("newpipe", &["stdio", "--era", "modern"]),
            ("askpipe", &["stdio", "--era", "legacy", "--behaviour", "asks"]),
        ] {
            text.push_str(&section(name, &command(&fake, words)));
            if ASKERS.contains(&name) {
                // The server's calls take turns once it has asked in the middle of several.
                text.push_str("call-timeout = \"15s\"\n");
            }
        }
        text.push_str(&section("lab", &command(&binary, &["demo", "lab"])));
        let mut mortal = None;
        if !options.tame {
            let server = SoakServer::start(&fake, &["http", "--era", "both", "--answers", "sse"]).await?;
            text.push_str(&section("mortalweb", &format!("url = \"{}\"", server.url)));
            let cut = SoakServer::start(&fake, &["http", "--era", "both", "--behaviour", "http-cut"]).await?;
            text.push_str(&section("cutweb", &format!("url = \"{}\"", cut.url)));
            (mortal, others) = (Some(server), others.into_iter().chain([cut]).collect());
            let seed = options.seed.to_string();
            for (name, words) in [
                ("mortalpipe", vec!["stdio", "--era", "both", "--name", "mortalpipe"]),
                ("damaged", vec!["stdio", "--damage", &seed]),
            ] {
                text.push_str(&section(name, &command(&fake, &words)));
                text.push_str("call-timeout = \"3s\"\n");
            }
        }
        // The daemon's ports are chosen after the servers have theirs.
        let ports = free_ports()?;
        // Where nothing is judged by that, a machine that is too busy to send the next request in
        // time fails no run.
        text.insert_str(0, &head(ports, if options.settle < 60 { "10m" } else { "20s" }));
        let recipe = Recipe { text, fake };
        fs::write(folder.join("config/headend.toml"), recipe.with_guest(Some(PLAIN)))?;
        let at = |port| SocketAddr::from(([127, 0, 0, 1], port));
        let facts = Arc::new(SoakFacts {
            address: at(ports[0]),
            metrics: at(ports[1]),
            socket: folder.join("headend.sock"),
            ledger: Ledger::default(),
            patience: PATIENCE,
            life: AtomicU64::new(0),
            file: RwLock::new(()),
            down: AtomicBool::new(false),
            stop: AtomicBool::new(false),
            load_ends: Instant::now() + Duration::from_secs(options.seconds),
            binary,
            folder,
            token,
        });
        let daemon = DaemonProcess::start(&facts).await?;
        Ok(Self { facts, daemon, mortal, recipe, _others: others, _folder: temporary })
    }

    /// Stops the daemon and starts it again.
    pub(crate) async fn restart(&mut self) -> anyhow::Result<()> {
        self.facts.down.store(true, Ordering::SeqCst);
        let status = self.daemon.stop().await?;
        ensure!(status.success(), "the daemon ended with {status}\n{}", self.log());
        self.daemon = DaemonProcess::start(&self.facts).await?;
        self.facts.life.fetch_add(1, Ordering::SeqCst);
        self.facts.down.store(false, Ordering::SeqCst);
        Ok(())
    }

    /// Returns the end of the daemon's log.
    pub(crate) fn log(&self) -> String {
        log(&self.facts)
    }

    /// Removes closed files of the audit log, which would fill the disk.
    pub(crate) fn trim_audit(&self) {
        let folder = self.facts.folder.join("state/audit");
        let mut files: Vec<PathBuf> =
            fs::read_dir(folder).into_iter().flatten().flatten().map(|entry| entry.path()).collect();
        files.sort();
        let open = files.len().saturating_sub(2);
        for closed in files.into_iter().take(open) {
            // Tried again at the next sample.
            let _removed = fs::remove_file(closed);
        }
    }
}

/// Writes a file that no other user may read.
fn secret(path: &Path, text: &str) -> anyhow::Result<()> {
    fs::write(path, text)?;
    fs::set_permissions(path, fs::Permissions::from_mode(0o600))?;
    Ok(())
}

/// Returns the head of the configuration: limits that clients of one address stay below, and short
/// times until everything that a client left is given back.
fn head(ports: [u16; 2], session_idle: &str) -> String {
    format!(
        "[server]\nlisten = [\"127.0.0.1:{}\"]\nlegacy-sse = true\ndrain-timeout = \"10s\"\n\
         [server.limits]\nmax-connections = 4096\nanonymous-connections = 2048\nconnections-per-ip = 2048\n\
         max-in-flight = 2048\nqueue = 1024\nqueue-timeout = \"30s\"\nmax-sessions = 16384\n\
         session-idle = \"{session_idle}\"\n\
         first-byte-timeout = \"20s\"\nhead-timeout = \"20s\"\n\
         write-timeout = \"20s\"\n\
         [metrics]\nlisten = \"127.0.0.1:{}\"\n[console]\nlisten = \"\"\n[policy]\ndefault = \"allow\"\n\
         [audit]\nmax-segment = \"16MiB\"\n",
        ports[0], ports[1]
    )
}

/// Returns ports that are free now. They stay fixed, since clients have to find the daemon again
/// after a restart.
fn free_ports() -> anyhow::Result<[u16; 2]> {
    let listeners = [TcpListener::bind("127.0.0.1:0")?, TcpListener::bind("127.0.0.1:0")?];
    Ok([listeners[0].local_addr()?.port(), listeners[1].local_addr()?.port()])
}

fn log(facts: &SoakFacts) -> String {
    let text = fs::read_to_string(facts.folder.join("headend.log")).unwrap_or_default();
    let lines: Vec<&str> = text.lines().collect();
    lines[lines.len().saturating_sub(LOG_LINES)..].join("\n")
}

impl DaemonProcess {
    async fn start(facts: &Arc<SoakFacts>) -> anyhow::Result<Self> {
        let log_file = File::options().create(true).append(true).open(facts.folder.join("headend.log"))?;
        let mut command = facts.command(&["serve"]);
        command.stdout(log_file.try_clone()?).stderr(log_file).kill_on_drop(true);
        let mut child = command.spawn().context("start the daemon")?;
        let pid = child.id().context("the daemon's process id")?;
        let deadline = Instant::now() + START;
        loop {
            if let Some(status) = child.try_wait()? {
                bail!("the daemon ended with {status}\n{}", log(facts));
            }
            let listed = timeout(Duration::from_secs(5), tools(facts)).await;
            let listed = listed.map_err(anyhow::Error::from).and_then(|listed| listed).unwrap_or_default();
            let wanted = STEADY.iter().chain(ASKERS).chain(&["lab"]);
            let missing: Vec<&&str> = wanted.filter(|name| !listed.contains(&format!("{name}__echo"))).collect();
            if missing.is_empty() && listed.contains("watched__") {
                return Ok(Self { child, pid });
            }
            ensure!(Instant::now() < deadline, "the daemon does not list the tools of {missing:?}\n{}", log(facts));
            sleep(Duration::from_millis(100)).await;
        }
    }

    /// Ends the daemon by SIGTERM.
    pub(crate) async fn stop(&mut self) -> anyhow::Result<ExitStatus> {
        let pid = i32::try_from(self.pid).ok().and_then(Pid::from_raw).context("the daemon's process id")?;
        kill_process(pid, Signal::TERM)?;
        Ok(timeout(END, self.child.wait()).await.context("the daemon did not end within a minute of SIGTERM")??)
    }

    /// Returns the status of a daemon that has ended by itself.
    pub(crate) fn ended(&mut self) -> Option<ExitStatus> {
        self.child.try_wait().ok().flatten()
    }
}

/// Reads all pages of the list of tools, as text.
async fn tools(facts: &Arc<SoakFacts>) -> anyhow::Result<String> {
    let gone = |_| anyhow::anyhow!("no connection");
    let mut client = SoakClient::connect(facts, SoakEra::Modern, SoakTransport::Http, false, 0).await.map_err(gone)?;
    let (mut text, mut params) = (String::new(), serde_json::json!({}));
    loop {
        let bytes = client.bytes("tools/list", params);
        let mut conn = SoakWire::open(facts.address).await?;
        conn.send(&bytes).await?;
        conn.head().await?;
        let answer: Value = serde_json::from_slice(&conn.body().await?)?;
        text.push_str(&answer["result"]["tools"].to_string());
        match answer["result"]["nextCursor"].as_str() {
            Some(cursor) => params = serde_json::json!({"cursor": cursor}),
            None => return Ok(text),
        }
    }
}
