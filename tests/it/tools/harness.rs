//! Starts the real binary in a world of its own: configuration, state and runtime folders, free
//! ports.

use std::net::SocketAddr;
use std::os::unix::process::CommandExt as _;
use std::path::PathBuf;
use std::process::{Child, Command, ExitStatus, Output, Stdio};
use std::sync::OnceLock;
use std::thread;
use std::time::{Duration, Instant};

use super::mcp::{ClientEra, Mcp};
use super::process::{Lines, end, output_within, pid_of, resident, wait};
pub(crate) use super::setup::{GatewaySetup, TestHome};
use super::upstream::example;
use rustix::process::{Signal, kill_process};

/// Time limit for the daemon to start listening.
const START: Duration = Duration::from_secs(60);

/// Returns the program under test: the one just built, or the one named by `HEADEND_TEST_BINARY`.
pub(crate) fn headend() -> &'static str {
    static PATH: OnceLock<String> = OnceLock::new();
    PATH.get_or_init(|| {
        let built = || option_env!("CARGO_BIN_EXE_headend").map_or_else(beside, str::to_owned);
        std::env::var("HEADEND_TEST_BINARY").unwrap_or_else(|_| built())
    })
}

/// Returns the path of the program as built by `cargo build`, for tests of another package.
fn beside() -> String {
    let path = example("headend");
    path.to_str().unwrap().to_owned()
}

impl TestHome {
    /// Creates a command that sees only this world.
    pub(crate) fn command(&self, program: &str) -> Command {
        let mut command = Command::new(program);
        command.env_clear().envs(self.environment()).current_dir(self.path("work")).stdin(Stdio::null());
        command
    }

    /// Runs `headend` to its end.
    pub(crate) fn run(&self, args: &[&str]) -> Output {
        let mut command = self.command(headend());
        let child = command.args(args).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        output_within(child, Duration::from_secs(30), &format!("headend {args:?}"))
    }
}

impl GatewaySetup {
    /// Starts the daemon and waits until it prints where it listens.
    pub(crate) fn start(self) -> Gateway {
        let environment = self.environment.clone();
        let (world, config) = self.write();
        Gateway::start(world, Some(config), &["serve"], &environment)
    }
}

/// A running daemon.
#[derive(Debug)]
pub(crate) struct Gateway {
    pub(crate) world: TestHome,
    pub(crate) config: PathBuf,
    pub(crate) address: SocketAddr,
    pub(crate) metrics: Option<SocketAddr>,
    pub(crate) stdout: Lines,
    pub(crate) stderr: Lines,
    child: Child,
}

impl Gateway {
    /// Starts `headend ARGS [--config CONFIG]` in this world.
    pub(crate) fn start(world: TestHome, config: Option<PathBuf>, args: &[&str], more: &[(String, String)]) -> Self {
        let command = world.command(headend());
        Self::start_by(command, world, config, args, more)
    }

    /// Starts like [`Gateway::start`], by a command that runs the program with the added arguments.
    pub(crate) fn start_by(
        mut command: Command,
        world: TestHome,
        config: Option<PathBuf>,
        args: &[&str],
        more: &[(String, String)],
    ) -> Self {
        command.args(args).envs(more.iter().cloned()).process_group(0);
        if let Some(config) = &config {
            command.arg("--config").arg(config);
        }
        let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        let stdout = Lines::of(child.stdout.take().unwrap());
        let stderr = Lines::of(child.stderr.take().unwrap());
        let ready = |lines: &[String]| lines.iter().find_map(|line| listening(line));
        let Some((address, metrics)) = wait_ready(&mut child, &stdout, ready) else {
            let status = child.try_wait().unwrap();
            end(&mut child);
            panic!(
                "the daemon did not say where it listens (status {status:?})\nstdout: {:#?}\nstderr: {:#?}",
                stdout.all(),
                stderr.all()
            );
        };
        Self { world, config: config.unwrap_or_default(), address, metrics, stdout, stderr, child }
    }

    pub(crate) fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Returns the console's address as the daemon prints it, if the console is on.
    pub(crate) fn console_address(&self) -> Option<SocketAddr> {
        let line = self.stdout.all().into_iter().find(|line| line.starts_with("listening "))?;
        let (_, url) = line.split_once(" console http://")?;
        url.trim_end_matches('/').parse().ok()
    }

    /// Returns the bearer token, if there is one.
    pub(crate) fn token(&self) -> Option<String> {
        self.world.token()
    }

    /// Creates a new client of this era.
    pub(crate) fn client(&self, era: ClientEra) -> Mcp {
        Mcp::http(self.address, self.token(), era)
    }

    /// Creates a client that speaks 2025-11-25.
    pub(crate) fn legacy(&self) -> Mcp {
        self.client(ClientEra::LEGACY)
    }

    /// Creates a client that speaks 2026-07-28.
    pub(crate) fn modern(&self) -> Mcp {
        self.client(ClientEra::Modern)
    }

    /// Waits until all of these tools are listed.
    pub(crate) fn wait_for_tools(&self, names: &[&str]) {
        self.wait_for_tools_within(Duration::from_secs(60), names);
    }

    /// Waits like [`Gateway::wait_for_tools`], for upstreams that are slow to start.
    pub(crate) fn wait_for_tools_within(&self, patience: Duration, names: &[&str]) {
        let mut client = self.modern();
        let mut last = Vec::new();
        let deadline = Instant::now() + patience;
        while Instant::now() < deadline {
            last = client.tool_names();
            if names.iter().all(|name| last.iter().any(|listed| listed == name)) {
                return;
            }
            thread::sleep(Duration::from_millis(20));
        }
        panic!("not all of {names:?} were listed, only {last:?}\n{}", self.story());
    }

    /// Returns the daemon's output, for the message of a failure.
    pub(crate) fn story(&self) -> String {
        format!("stderr of the daemon:\n{}", self.stderr.all().join("\n"))
    }

    /// Runs a command of `headend` against this daemon.
    pub(crate) fn run(&self, args: &[&str]) -> Output {
        self.world.run(args)
    }

    /// Overwrites the configuration file and asks for a reload.
    pub(crate) fn reload(&self, text: &str) -> Output {
        self.world.write("headend.toml", text);
        self.run(&["reload"])
    }

    pub(crate) fn signal(&self, signal: Signal) {
        kill_process(pid_of(&self.child), signal).unwrap();
    }

    /// Waits for the end of the daemon.
    pub(crate) fn wait(&mut self, patience: Duration) -> Option<ExitStatus> {
        wait(&mut self.child, patience)
    }

    /// Returns the metrics page.
    pub(crate) fn scrape(&self) -> String {
        let address = self.metrics.expect("metrics are on");
        let answer = super::http::get(address, "/metrics").unwrap();
        assert_eq!(answer.head.status, 200);
        answer.text()
    }

    /// Returns the resident memory of the daemon, in bytes.
    pub(crate) fn resident(&self) -> u64 {
        resident(self.pid())
    }
}

fn wait_ready<T>(child: &mut Child, stdout: &Lines, ready: impl Fn(&[String]) -> Option<T>) -> Option<T> {
    let deadline = Instant::now() + START;
    while Instant::now() < deadline {
        if let Some(found) = stdout.wait_for(Duration::from_millis(200), &ready) {
            return Some(found);
        }
        if child.try_wait().unwrap().is_some() {
            return stdout.wait_for(Duration::from_millis(200), &ready);
        }
    }
    None
}

/// Parses `listening http://ADDRESS/mcp [metrics http://ADDRESS/metrics]`.
fn listening(line: &str) -> Option<(SocketAddr, Option<SocketAddr>)> {
    let words: Vec<&str> = line.strip_prefix("listening ")?.split_whitespace().collect();
    let address = |url: &str| url.split_once("://")?.1.split('/').next()?.parse().ok();
    let metrics = words.iter().position(|word| *word == "metrics").and_then(|at| address(words.get(at + 1)?));
    Some((address(words.first()?)?, metrics))
}

impl Drop for Gateway {
    fn drop(&mut self) {
        end(&mut self.child);
        if thread::panicking() {
            eprintln!("{}", self.story());
        }
    }
}

/// Returns whether a missing tool must fail the test, because this run is the gate, which has all
/// of them.
pub(crate) fn gate() -> bool {
    std::env::var("CI").is_ok_and(|value| value == "true" || value == "1")
}

/// Prints that a test is left out; on the gate that is a failure.
pub(crate) fn left_out(what: &str, why: &str) {
    assert!(!gate(), "left out: {what}: {why}");
    eprintln!("left out: {what}: {why}");
}
