//! Runs daemons and commands of `headend` on a stage, in the process of the test.

use std::fs;
use std::net::SocketAddr;
use std::os::unix::process::ExitStatusExt as _;
use std::path::{Path, PathBuf};
use std::process::{ExitStatus, Output};
use std::sync::Arc;
use std::time::Duration;

use axum::serve::Listener as _;
use rustix::process::Signal;
use serde_json::Value;
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

use super::ground::Folder;
use super::mcp::{ClientEra, Mcp};
use super::net::Listener;
use super::process::{Lines, eventually, within};
pub(crate) use super::setup::{GatewaySetup, TestHome};
use super::stdio::Pipe;
use super::surroundings::Surroundings;
use super::{beside, block_on, pass, stage};
use crate::cli;
use crate::console;
use crate::daemon::gateway::RunningGateway as Daemon;
use crate::listener::address::Network;
use crate::listener::lobby::Lobby;
use crate::serve::http_server::serve_connection;
use crate::serve::pages;

impl TestHome {
    /// Runs a command of `headend` to its end in a thread of this process, and returns its output.
    pub(crate) fn run(&self, args: &[&str]) -> Output {
        self.run_in(args, &[])
    }

    /// Runs a command of `headend` as [`Self::run`] does, with these environment variables besides
    /// those of the world.
    pub(crate) fn run_in(&self, args: &[&str], more: &[(String, String)]) -> Output {
        let surroundings = Surroundings::of(self.environment().into_iter().chain(more.iter().cloned()));
        let words: Vec<_> = std::iter::once("headend").chain(args.iter().copied()).map(Into::into).collect();
        beside(move || {
            surroundings.enter();
            let code = cli::run_as(words.into_iter());
            let Surroundings { stdout, stderr, .. } = Surroundings::leave();
            // The code has no other way out.
            let code = format!("{code:?}").chars().filter(char::is_ascii_digit).collect::<String>();
            Output { status: ExitStatus::from_raw(code.parse::<i32>().unwrap() << 8), stdout, stderr }
        })
    }
}

impl GatewaySetup {
    /// Writes the world's files and starts the daemon on the stage.
    pub(crate) fn start(self) -> Gateway {
        let environment = self.environment.clone();
        let (world, config) = self.write();
        Gateway::start(world, Some(config), &["serve"], &environment)
    }
}

/// Returns the entry of an upstream in `headend status --json`.
pub(crate) fn status_of(gateway: &Gateway, name: &str) -> Value {
    let status = gateway.run(&["status", "--json"]);
    let status: Value = serde_json::from_slice(&status.stdout).unwrap();
    status["upstreams"].as_array().unwrap().iter().find(|one| one["name"] == name).unwrap().clone()
}

/// Returns the process number that the fake program of an upstream states, which a call of its tool
/// `env` reads.
pub(crate) fn upstream_pid(gateway: &Gateway, name: &str) -> u32 {
    let text = gateway.modern().call(&format!("{name}__env"), serde_json::json!({})).text();
    let said: Value = serde_json::from_str(&text).unwrap();
    u32::try_from(said["pid"].as_u64().unwrap()).unwrap()
}

/// A running daemon.
#[derive(Debug)]
pub(crate) struct Gateway {
    // The daemon ends before the stage of its world does.
    daemon: Option<Arc<Daemon>>,
    /// The task that stops the daemon, once it was told to stop.
    ending: Option<JoinHandle<()>>,
    /// Copy of the state directory at the moment of the kill.
    killed: Option<Folder>,
    pub(crate) world: TestHome,
    pub(crate) config: PathBuf,
    pub(crate) address: SocketAddr,
    pub(crate) metrics: Option<SocketAddr>,
    /// The console's address, if it is on.
    pub(crate) console: Option<SocketAddr>,
    pub(crate) stderr: Lines,
    environment: Vec<(String, String)>,
}

impl Gateway {
    /// Starts a daemon with that configuration file in that world, and serves its listeners. `more`
    /// is environment variables; the words are always `serve`. Panics if the daemon does not start.
    pub(crate) fn start(world: TestHome, config: Option<PathBuf>, words: &[&str], more: &[(String, String)]) -> Self {
        assert_eq!(words, ["serve"], "a stage has no other daemon");
        let config = config.unwrap();
        let environment: Vec<_> = world.environment().into_iter().chain(more.iter().cloned()).collect();
        Surroundings::of(environment.clone()).enter();
        let opened = block_on(cli::service::serve::open_on_stage(&config));
        let (daemon, addresses) = opened.unwrap_or_else(|(code, why)| panic!("exit {code}: {why}"));
        let address = addresses.endpoints[0].split_once("://").unwrap().1.split('/').next().unwrap();
        let address: SocketAddr = address.parse().unwrap();
        let console = addresses.console.as_ref().map(|base| base.strip_prefix("http://").unwrap());
        let console = console.map(|address| address.trim_end_matches('/').parse().unwrap());
        block_on(async { admit(&daemon, console) });
        let (metrics, stderr) = (addresses.metrics, stage().log.clone());
        Self {
            daemon: Some(daemon),
            ending: None,
            killed: None,
            world,
            config,
            address,
            metrics,
            console,
            stderr,
            environment,
        }
    }

    pub(crate) fn inner(&self) -> &Arc<Daemon> {
        self.daemon.as_ref().unwrap()
    }

    /// The console's address, if it is on.
    pub(crate) fn console_address(&self) -> Option<SocketAddr> {
        self.console
    }

    /// Returns the bearer token of clients, if the world has one.
    pub(crate) fn token(&self) -> Option<String> {
        self.world.token()
    }

    /// Creates an HTTP client of that era.
    pub(crate) fn client(&self, era: ClientEra) -> Mcp {
        Mcp::http(self.address, self.token(), era)
    }

    /// Creates an HTTP client that speaks 2025-11-25.
    pub(crate) fn legacy(&self) -> Mcp {
        self.client(ClientEra::LEGACY)
    }

    /// Creates an HTTP client that speaks 2026-07-28.
    pub(crate) fn modern(&self) -> Mcp {
        self.client(ClientEra::Modern)
    }

    /// Creates a host that talks to `headend stdio` over pipes.
    pub(crate) fn pipe(&self) -> Pipe {
        Pipe::of(self)
    }

    /// Waits until all of these tools are listed.
    pub(crate) fn wait_for_tools(&self, names: &[&str]) {
        self.wait_for_tools_within(Duration::from_secs(60), names);
    }

    /// Waits for tools as [`Gateway::wait_for_tools`] does, but for as long as `patience`: for
    /// upstreams that are slow to start.
    pub(crate) fn wait_for_tools_within(&self, patience: Duration, names: &[&str]) {
        let mut client = self.modern();
        within(patience, &format!("all of {names:?} are listed"), || {
            let listed = client.tool_names();
            names.iter().all(|name| listed.iter().any(|listed| listed == name))
        });
    }

    /// Returns the seed and the log, for the message of a failure.
    pub(crate) fn story(&self) -> String {
        format!("HEADEND_STAGE_SEED={}\nlog of the daemon:\n{}", stage().seed, self.stderr.all().join("\n"))
    }

    /// Runs a command of `headend` against this daemon.
    pub(crate) fn run(&self, args: &[&str]) -> Output {
        self.world.run(args)
    }

    /// Writes another configuration over the file and asks for a reload.
    pub(crate) fn reload(&self, text: &str) -> Output {
        self.world.write("headend.toml", text);
        self.run(&["reload"])
    }

    /// Makes the database refuse writes, as a full disk does, or take them again.
    pub(crate) fn refuse_writes(&self, on: bool) {
        self.inner().service.approvals.db().unwrap().refuse_writes(on);
    }

    /// Reads the metrics page.
    pub(crate) fn scrape(&self) -> String {
        let address = self.metrics.expect("metrics are on");
        let answer = super::http::get(address, "/metrics").unwrap();
        assert_eq!(answer.head.status, 200);
        answer.text()
    }

    /// Does to the daemon what SIGTERM, SIGHUP or SIGKILL does, without waiting for its end. A
    /// killed daemon leaves the state directory as it is at that moment; its parts in memory end as
    /// after a second SIGTERM.
    pub(crate) fn signal(&mut self, signal: Signal) {
        let daemon = Arc::clone(self.inner());
        if signal == Signal::HUP {
            drop(block_on(daemon.reload("sighup", None)));
            return;
        }
        let hurry = CancellationToken::new();
        if signal == Signal::KILL {
            let folder = Folder::new();
            copy(&self.world.path("state"), &folder.path().join("state"));
            self.killed = Some(folder);
            hurry.cancel();
        } else {
            assert_eq!(signal, Signal::TERM, "a stage has no other signals");
        }
        self.ending = Some(stage().runtime.spawn(async move { daemon.shut_down(&hurry).await }));
    }

    /// Waits until the daemon that was told to stop has ended, at most that long; `None` if the
    /// time is over. After a kill, puts back the state directory of the moment of the kill.
    pub(crate) fn wait(&mut self, patience: Duration) -> Option<ExitStatus> {
        let ending = self.ending.as_mut().expect("it was told to end");
        let ended = block_on(async { tokio::time::timeout(patience, ending).await });
        ended.ok()?.unwrap();
        // Dropping the daemon may start tasks.
        let stage = stage();
        let entered = stage.runtime.enter();
        (self.ending, self.daemon) = (None, None);
        drop(entered);
        // Tasks that still hold a part of the daemon end meanwhile.
        pass(Duration::from_millis(50));
        if let Some(folder) = self.killed.take() {
            fs::remove_dir_all(self.world.path("state")).unwrap();
            copy(&folder.path().join("state"), &self.world.path("state"));
        }
        Some(ExitStatus::default())
    }

    /// Ends the daemon as SIGTERM does, and waits for its end; does nothing if it has ended.
    pub(crate) fn stop(&mut self) {
        if self.daemon.is_some() {
            if self.ending.is_none() {
                self.signal(Signal::TERM);
            }
            self.wait(Duration::from_secs(600)).expect("it ends");
        }
    }

    /// Ends the daemon and starts another one with the same file.
    pub(crate) fn restart(mut self) -> Self {
        self.stop();
        let (world, config, environment) = (self.world.clone(), self.config.clone(), self.environment.clone());
        drop(self);
        Self::start(world, Some(config), &["serve"], &environment)
    }

    /// Returns the number of programs of an upstream that run.
    pub(crate) fn programs(&self, upstream: &str) -> usize {
        super::program::number(upstream)
    }

    /// Ends the programs of an upstream with that signal. Returns their number.
    pub(crate) fn kill(&self, upstream: &str, signal: Signal) -> usize {
        super::program::kill(upstream, signal)
    }
}

impl Drop for Gateway {
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!("{}", self.story());
        }
        self.stop();
    }
}

/// Copies a folder with everything in it.
fn copy(from: &Path, to: &Path) {
    fs::create_dir(to).unwrap();
    fs::set_permissions(to, fs::metadata(from).unwrap().permissions()).unwrap();
    for entry in fs::read_dir(from).unwrap().map(Result::unwrap) {
        let to = to.join(entry.file_name());
        let kind = entry.file_type().unwrap();
        if kind.is_dir() {
            copy(&entry.path(), &to);
        } else if kind.is_file() {
            fs::copy(entry.path(), to).unwrap();
        }
    }
}

/// Serves connections of the stage to the daemon's listeners, as their accept loops do.
fn admit(daemon: &Arc<Daemon>, console: Option<SocketAddr>) {
    let peer = SocketAddr::from(([127, 0, 0, 1], 1));
    let front = daemon.first_front();
    let stop = daemon.service.draining.clone();
    let mut listener = Listener::bind(front.local.port());
    daemon.service.tasks.spawn("stage listener", async move {
        while let Some((stream, _)) = stop.run_until_cancelled(listener.accept()).await {
            let guest = front.lobby.let_in(Network::from(peer.ip())).await;
            serve_connection(&front, stream, peer, guest, &stop);
        }
    });
    if let Some(front) = daemon.peers_front() {
        let stop = front.service.giving_up.clone();
        let mut listener = Listener::bind(front.local.port());
        daemon.supervised.tasks.spawn("stage peers", async move {
            while let Some((stream, _)) = stop.run_until_cancelled(listener.accept()).await {
                let guest = front.lobby.let_in(Network::from(peer.ip())).await;
                serve_connection(&front, stream, peer, guest, &stop);
            }
        });
    }
    if let Some(local) = console {
        let (console, stop) = (Arc::clone(daemon.console.get().unwrap()), daemon.service.draining.clone());
        let lobby = Lobby::new("console", console::ANONYMOUS, Some(daemon.service.metrics.clone()));
        let (mut listener, tasks) = (Listener::bind(local.port()), daemon.service.tasks.clone());
        daemon.service.tasks.spawn("stage console", async move {
            while let Some((stream, _)) = stop.run_until_cancelled(listener.accept()).await {
                let guest = lobby.let_in(Network::from(peer.ip())).await;
                let console = Arc::clone(&console);
                tasks.spawn("console", async move { console::connection(&console, stream, guest).await });
            }
        });
    }
    let Some((local, served)) = daemon.pages() else { return };
    let (stop, tasks) = (daemon.service.giving_up.clone(), daemon.supervised.tasks.clone());
    let lobby = Lobby::for_operators("metrics", pages::CONNECTIONS, daemon.service.metrics.clone());
    let mut listener = Listener::bind(local.port());
    daemon.supervised.tasks.spawn("stage pages", async move {
        while let Some((stream, _)) = stop.run_until_cancelled(listener.accept()).await {
            let guest = lobby.let_in(Network::from(peer.ip())).await;
            let (served, stop) = (Arc::clone(&served), stop.clone());
            tasks.spawn("page", async move {
                Box::pin(stop.run_until_cancelled(pages::connection(&served, stream, guest, &stop))).await;
            });
        }
    });
}
