//! Starts the real binary in a world of its own: configuration, state and runtime folders, free ports.

use std::fs;
use std::net::SocketAddr;
use std::os::unix::fs::PermissionsExt as _;
use std::os::unix::process::CommandExt as _;
use std::path::PathBuf;
use std::process::{Child, Command, ExitStatus, Output, Stdio};
use std::sync::{Arc, OnceLock};
use std::thread;
use std::time::{Duration, Instant};

use rustix::process::{Signal, kill_process};
use tempfile::TempDir;

use crate::mcp::{Era, Mcp};
use crate::process::{Lines, end, output_within, pid_of, resident, wait};
use crate::upstream::Fake;

/// How long the daemon may take until it listens.
const START: Duration = Duration::from_secs(60);

/// The program under test: the one just built, or the one named by `HEADEND_TEST_BINARY`.
pub(crate) fn headend() -> &'static str {
    static PATH: OnceLock<String> = OnceLock::new();
    PATH.get_or_init(|| {
        std::env::var("HEADEND_TEST_BINARY").unwrap_or_else(|_| env!("CARGO_BIN_EXE_headend").to_owned())
    })
}

/// A home for one daemon, with nothing but the test's own files.
#[derive(Debug, Clone)]
pub(crate) struct World {
    dir: Arc<TempDir>,
}

impl World {
    pub(crate) fn new() -> Self {
        let dir = tempfile::Builder::new().prefix("headend-it-").tempdir().unwrap();
        for name in ["home", "config", "state", "run", "work"] {
            let folder = dir.path().join(name);
            fs::create_dir(&folder).unwrap();
            fs::set_permissions(&folder, fs::Permissions::from_mode(0o700)).unwrap();
        }
        Self { dir: Arc::new(dir) }
    }

    /// A path inside.
    pub(crate) fn path(&self, relative: &str) -> PathBuf {
        self.dir.path().join(relative)
    }

    /// Writes a file that only we may write and gives its path.
    pub(crate) fn write(&self, relative: &str, text: &str) -> PathBuf {
        let path = self.path(relative);
        fs::write(&path, text).unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o600)).unwrap();
        path
    }

    /// Environment variables that make `headend` find its folders here and nowhere else.
    pub(crate) fn environment(&self) -> Vec<(String, String)> {
        let folder = |name: &str| self.path(name).to_str().unwrap().to_owned();
        let mut environment = vec![
            ("HOME".to_owned(), folder("home")),
            ("XDG_CONFIG_HOME".to_owned(), folder("config")),
            ("XDG_STATE_HOME".to_owned(), folder("state")),
            ("XDG_RUNTIME_DIR".to_owned(), folder("run")),
            ("LANG".to_owned(), "C.UTF-8".to_owned()),
        ];
        environment.extend(std::env::var("PATH").ok().map(|path| ("PATH".to_owned(), path)));
        environment
    }

    /// A command that sees this world only.
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

    /// The bearer token that the daemon made on its first start.
    pub(crate) fn token(&self) -> Option<String> {
        fs::read_to_string(self.path("state/headend/token")).ok().map(|token| token.trim().to_owned())
    }
}

/// A daemon about to be started.
#[derive(Debug)]
pub(crate) struct Setup {
    pub(crate) world: World,
    server: String,
    policy: String,
    rest: String,
    environment: Vec<(String, String)>,
}

impl Setup {
    /// Free ports, one generated token, metrics on, everything allowed, no upstream.
    pub(crate) fn new() -> Self {
        Self {
            world: World::new(),
            server: String::new(),
            policy: "default = \"allow\"".to_owned(),
            rest: String::new(),
            environment: Vec::new(),
        }
    }

    /// Lines for the table `[server]`.
    pub(crate) fn server(mut self, lines: &str) -> Self {
        self.server.push_str(lines);
        self.server.push('\n');
        self
    }

    /// A second caller, `second`. With two callers each has a rate, set here so high that no machine reaches it. Write
    /// other lines of these tables likewise, as dotted keys.
    pub(crate) fn second_caller(self, token: &str) -> Self {
        self.env("SECOND_TOKEN", token)
            .server("auth.tokens.second = { env = \"SECOND_TOKEN\" }")
            .server("limits.caller-rate = \"100000/s\"\nlimits.caller-burst = 100000")
    }

    /// The lines of the table `[policy]`.
    pub(crate) fn policy(mut self, lines: &str) -> Self {
        lines.clone_into(&mut self.policy);
        self
    }

    /// More tables.
    pub(crate) fn toml(mut self, tables: &str) -> Self {
        self.rest.push_str(tables);
        self.rest.push('\n');
        self
    }

    /// An upstream that the daemon starts.
    pub(crate) fn fake(self, name: &str, fake: &Fake) -> Self {
        let command = fake.command();
        self.toml(&format!("[upstreams.{name}]\ncommand = {command}"))
    }

    /// An upstream behind HTTP.
    pub(crate) fn url(self, name: &str, url: &str) -> Self {
        self.toml(&format!("[upstreams.{name}]\nurl = \"{url}\""))
    }

    /// A variable of the daemon's environment.
    pub(crate) fn env(mut self, name: &str, value: &str) -> Self {
        self.environment.push((name.to_owned(), value.to_owned()));
        self
    }

    /// The configuration file's text.
    pub(crate) fn text(&self) -> String {
        format!(
            "[server]\nlisten = [\"127.0.0.1:0\"]\n{}\n[metrics]\nlisten = \"127.0.0.1:0\"\n\n[policy]\n{}\n\n{}",
            self.server,
            self.unheld_policy(),
            self.rest
        )
    }

    /// The policy, under which calls that need an approval are refused at once unless the test says `hold` itself: most tests
    /// are about the refusal.
    fn unheld_policy(&self) -> String {
        const TABLE: &str = "[policy.consent]\n";
        match self.policy.split_once(TABLE) {
            Some((_, lines)) if lines.contains("hold = ") => self.policy.clone(),
            Some((before, lines)) => format!("{before}{TABLE}hold = \"0s\"\n{lines}"),
            None => format!("{}\n{TABLE}hold = \"0s\"", self.policy),
        }
    }

    /// Writes the file without starting anything.
    pub(crate) fn write(self) -> (World, PathBuf) {
        let text = self.text();
        let path = self.world.write("headend.toml", &text);
        (self.world, path)
    }

    /// Starts the daemon and waits until it says where it listens.
    pub(crate) fn start(self) -> Gateway {
        let environment = self.environment.clone();
        let (world, config) = self.write();
        Gateway::start(world, Some(config), &["serve"], &environment)
    }
}

/// A running daemon.
#[derive(Debug)]
pub(crate) struct Gateway {
    pub(crate) world: World,
    pub(crate) config: PathBuf,
    pub(crate) address: SocketAddr,
    pub(crate) metrics: Option<SocketAddr>,
    pub(crate) stdout: Lines,
    pub(crate) stderr: Lines,
    child: Child,
}

impl Gateway {
    /// Starts `headend ARGS [--config CONFIG]` in that world.
    pub(crate) fn start(world: World, config: Option<PathBuf>, args: &[&str], more: &[(String, String)]) -> Self {
        let command = world.command(headend());
        Self::start_by(command, world, config, args, more)
    }

    /// [`Gateway::start`] by a command that runs the program with the added arguments.
    pub(crate) fn start_by(
        mut command: Command,
        world: World,
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

    /// The bearer token, when there is one.
    pub(crate) fn token(&self) -> Option<String> {
        self.world.token()
    }

    /// A new client of that era.
    pub(crate) fn client(&self, era: Era) -> Mcp {
        Mcp::http(self.address, self.token(), era)
    }

    /// A client that speaks 2025-11-25.
    pub(crate) fn legacy(&self) -> Mcp {
        self.client(Era::LEGACY)
    }

    /// A client that speaks 2026-07-28.
    pub(crate) fn modern(&self) -> Mcp {
        self.client(Era::Modern)
    }

    /// Waits until all of these tools are listed.
    pub(crate) fn wait_for_tools(&self, names: &[&str]) {
        self.wait_for_tools_within(Duration::from_secs(60), names);
    }

    /// [`Gateway::wait_for_tools`] for upstreams that are slow to start.
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

    /// Its output, for a failure's message.
    pub(crate) fn story(&self) -> String {
        format!("stderr of the daemon:\n{}", self.stderr.all().join("\n"))
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

    pub(crate) fn signal(&self, signal: Signal) {
        kill_process(pid_of(&self.child), signal).unwrap();
    }

    /// Waits for its end.
    pub(crate) fn wait(&mut self, patience: Duration) -> Option<ExitStatus> {
        wait(&mut self.child, patience)
    }

    /// The metrics page.
    pub(crate) fn scrape(&self) -> String {
        let address = self.metrics.expect("metrics are on");
        let answer = crate::http::get(address, "/metrics").unwrap();
        assert_eq!(answer.head.status, 200);
        answer.text()
    }

    /// The resident memory of the daemon, in bytes.
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

/// Reads `listening http://ADDRESS/mcp [metrics http://ADDRESS/metrics]`.
fn listening(line: &str) -> Option<(SocketAddr, Option<SocketAddr>)> {
    let words: Vec<&str> = line.strip_prefix("listening ")?.split_whitespace().collect();
    let address = |url: &str| url.strip_prefix("http://")?.split('/').next()?.parse().ok();
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

/// Whether a missing tool must fail the test: the gate has all of them.
pub(crate) fn gate() -> bool {
    std::env::var("CI").is_ok_and(|value| value == "true" || value == "1")
}

/// Prints that a test is left out; on the gate that is a failure.
pub(crate) fn left_out(what: &str, why: &str) {
    assert!(!gate(), "left out: {what}: {why}");
    eprintln!("left out: {what}: {why}");
}
