//! Tests of `headend stdio` and the commands with only those variables that hosts, cron and `su`
//! pass: they find the daemon of their user and start no server twice, also while the daemon
//! restarts or does not answer.

use std::fs::{self, DirBuilder, File};
use std::os::unix::fs::{DirBuilderExt as _, PermissionsExt as _};
use std::path::PathBuf;
use std::process::{Command, Output, Stdio};
use std::time::Duration;

use rustix::process::Signal;
use serde_json::{Value, json};

use crate::tools::harness::{Gateway, GatewaySetup, TestHome, headend};
use crate::tools::mcp::{ClientEra, Mcp, McpAnswer};
use crate::tools::process::{eventually, output_within, said};
use crate::tools::stdio::Pipe;
use crate::tools::upstream::{Fake, toml_array};

/// The variables that Codex and clients built on the SDKs pass to a server.
const HOST: &[&str] = &["HOME", "LOGNAME", "PATH", "SHELL", "TERM", "USER"];
const CRON: &[&str] = &["HOME", "LOGNAME", "PATH", "SHELL"];
const BARE: &[&str] = &["HOME", "PATH"];
const BOUND: Duration = Duration::from_secs(30);

/// A user with one server, which counts its starts.
struct LoneUser {
    world: TestHome,
    config: PathBuf,
    state: PathBuf,
    starts: PathBuf,
    /// Variables of the daemon.
    session: Vec<(String, String)>,
}

impl LoneUser {
    /// Creates a user. Configuration and state are in their default places, or in places that
    /// variables of the session name.
    fn new(is_moved: bool) -> Self {
        Self::with(is_moved, "")
    }

    fn with(is_moved: bool, tables: &str) -> Self {
        let setup = GatewaySetup::new().server("auth.mode = \"none\"");
        let world = setup.world.clone();
        let starts = world.path("work/starts");
        let words: Vec<String> = serde_json::from_str(&Fake::stdio("legacy").command()).unwrap();
        let script = format!("echo started >> {}\nexec {}", starts.display(), words.join(" "));
        let server = format!("[upstreams.fx]\ncommand = {}\n{tables}", toml_array(["sh", "-c", &script]));
        let (config, state) = if is_moved {
            ("config/headend", "state/headend")
        } else {
            ("home/.config/headend", "home/.local/state/headend")
        };
        DirBuilder::new().recursive(true).mode(0o700).create(world.path(config)).unwrap();
        let config = world.write(&format!("{config}/headend.toml"), &setup.toml(&server).text());
        let mut session = world.environment();
        session.retain(|(name, _)| is_moved || !["XDG_CONFIG_HOME", "XDG_STATE_HOME"].contains(&name.as_str()));
        let state = world.path(state);
        Self { world, config, state, starts, session }
    }

    fn daemon(&self) -> Gateway {
        let mut command = self.world.command(headend());
        command.env_clear();
        Gateway::start_by(command, self.world.clone(), None, &["serve"], &self.session)
    }

    /// Creates a command with these variables and no others.
    fn command(&self, variables: &[&str], args: &[&str]) -> Command {
        let home = self.world.path("home").display().to_string();
        let path = std::env::var("PATH").unwrap_or_default();
        let mut command = Command::new(headend());
        command.env_clear().args(args).current_dir(self.world.path("work"));
        for name in variables {
            let value = match *name {
                "HOME" => &home,
                "PATH" => &path,
                "SHELL" => "/bin/sh",
                "TERM" => "xterm",
                _ => "user",
            };
            command.env(name, value);
        }
        command
    }

    fn run(&self, variables: &[&str], args: &[&str]) -> Output {
        let mut command = self.command(variables, args);
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        output_within(command.spawn().unwrap(), BOUND, &format!("headend {args:?}"))
    }

    fn client(&self, variables: &[&str], args: &[&str], era: ClientEra) -> Mcp {
        Mcp::stdio(Pipe::of(self.command(variables, args)), era)
    }

    /// Returns how often the server was started.
    fn starts(&self) -> usize {
        fs::read_to_string(&self.starts).unwrap_or_default().lines().count()
    }

    /// Starts a daemon once, so that the server's lists are stored.
    fn list_once(&self) {
        let mut daemon = self.daemon();
        let mut client = self.client(HOST, &["stdio"], ClientEra::LEGACY);
        eventually("the tools are listed", || client.tool_names().iter().any(|name| name == "fx__echo"));
        drop(client);
        daemon.signal(Signal::TERM);
        assert!(daemon.wait(BOUND).is_some());
    }

    /// Holds the lock as a daemon that does not answer.
    fn hold(&self) -> File {
        let directory = File::open(&self.state).unwrap();
        directory.lock().unwrap();
        directory
    }
}

fn echo(client: &mut Mcp) -> McpAnswer {
    client.call("fx__echo", json!({"text": "x"}))
}

fn reason(answer: &McpAnswer) -> &Value {
    &answer.result()["_meta"]["headend/refusal"]["reason"]
}

#[test]
fn hosts_and_cron_use_the_daemon_and_start_no_server_again() {
    let user = LoneUser::new(false);
    let daemon = user.daemon();
    let file = user.state.join("socket.json");
    let data = fs::symlink_metadata(&file).unwrap();
    assert!(data.is_file() && data.permissions().mode() & 0o777 == 0o600, "{data:?}");
    for variables in [HOST, CRON, BARE] {
        for era in [ClientEra::LEGACY, ClientEra::Modern] {
            let mut client = user.client(variables, &["stdio"], era);
            eventually("the call is made", || !echo(&mut client).is_error());
        }
        let shown = user.run(variables, &["status"]);
        assert!(shown.status.success() && said(&shown).contains("fx"), "{}", said(&shown));
        assert!(!said(&shown).contains("hosts: "), "a host needs no paths: {}", said(&shown));
    }
    assert_eq!(user.starts(), 1, "{}", daemon.story());
    let mut daemon = daemon;
    daemon.signal(Signal::TERM);
    assert!(daemon.wait(BOUND).is_some());
    assert!(!file.exists());
}

#[test]
fn a_host_reaches_moved_directories_by_the_line_that_status_prints() {
    let user = LoneUser::new(true);
    let daemon = user.daemon();
    let mut status = user.command(BARE, &["status", "--json"]);
    status.envs(user.session.iter().cloned()).stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let shown = output_within(status.spawn().unwrap(), BOUND, "headend status");
    let shown: Value =
        serde_json::from_slice(&shown.stdout).unwrap_or_else(|error| panic!("{error}: {}", said(&shown)));
    let line = shown["host-command"].as_str().unwrap().to_owned();
    let (config, socket) = (user.config.display(), user.world.path("run/headend.sock"));
    assert_eq!(line, format!("headend stdio --config {config} --socket {}", socket.display()));
    let words: Vec<&str> = line.split(' ').skip(1).collect();
    let mut client = user.client(HOST, &words, ClientEra::LEGACY);
    eventually("the call is made", || !echo(&mut client).is_error());
    let mut by_socket = user.client(CRON, &["stdio", "--socket", socket.to_str().unwrap()], ClientEra::Modern);
    assert!(!echo(&mut by_socket).is_error(), "the socket alone leads to the daemon");
    assert_eq!(user.starts(), 1, "{}", daemon.story());
}

#[test]
fn the_address_of_a_killed_daemon_leads_nowhere_and_holds_nothing_up() {
    let user = LoneUser::new(false);
    let mut daemon = user.daemon();
    let mut client = user.client(HOST, &["stdio"], ClientEra::LEGACY);
    eventually("the call is made", || !echo(&mut client).is_error());
    drop(client);
    daemon.signal(Signal::KILL);
    assert!(daemon.wait(BOUND).is_some());
    assert!(user.state.join("socket.json").exists());
    let shown = user.run(BARE, &["status"]);
    assert!(shown.status.code() == Some(69) && said(&shown).contains("no daemon answers"), "{}", said(&shown));
    let mut alone = user.client(HOST, &["stdio"], ClientEra::LEGACY);
    assert!(alone.tool_names().iter().any(|name| name == "fx__echo"), "the kept lists are there at once");
    eventually("the call is made", || !echo(&mut alone).is_error());
    assert_eq!(user.starts(), 2);
    let pid = alone.pipe().pid();
    let shown = said(&user.run(BARE, &["status"]));
    assert!(shown.contains(&format!("`headend stdio` for it (pid {pid})")), "{shown}");
    let _daemon = user.daemon();
    let shown = said(&user.run(BARE, &["status"]));
    assert!(shown.contains("another gateway: `headend stdio` for it") && shown.contains(&pid.to_string()), "{shown}");
    let shown = said(&user.run(BARE, &["doctor"]));
    assert!(shown.contains(&format!("(pid {pid}) runs on this state directory")), "{shown}");
}

#[test]
fn a_daemon_that_restarts_is_waited_for() {
    let user = LoneUser::new(false);
    user.list_once();
    let started = user.starts();
    let lock = user.hold();
    let mut pipe = Pipe::of(user.command(HOST, &["stdio"]));
    pipe.send(json!({"jsonrpc": "2.0", "id": 1, "method": "ping"}).to_string().as_bytes());
    assert!(pipe.line(Duration::from_millis(500)).is_none(), "nothing answers yet");
    drop(lock);
    let daemon = user.daemon();
    assert!(pipe.line(BOUND).is_some(), "{}", pipe.story());
    let mut client = Mcp::stdio(pipe, ClientEra::Modern);
    eventually("the call is made", || !echo(&mut client).is_error());
    assert_eq!(user.starts(), started + 1, "{}", daemon.story());
}

#[test]
fn a_daemon_that_does_not_answer_is_stood_in_for_until_it_does() {
    let user = LoneUser::with(false, "[stdio]\nreconnect-timeout = \"1s\"\n");
    user.list_once();
    let started = user.starts();
    let lock = user.hold();
    let mut clients = [ClientEra::LEGACY, ClientEra::Modern].map(|era| user.client(HOST, &["stdio"], era));
    for client in &mut clients {
        assert!(client.tool_names().iter().any(|name| name == "fx__echo"));
        let answer = echo(client);
        assert!(answer.is_error() && reason(&answer) == "daemon_away", "{}", answer.raw);
        assert!(answer.text().contains("The daemon does not answer"), "{}", answer.raw);
    }
    assert_eq!(user.starts(), started, "it starts nothing");
    drop(lock);
    let daemon = user.daemon();
    for client in &mut clients {
        eventually("the call is made", || !echo(client).is_error());
    }
    assert_eq!(user.starts(), started + 1, "{}", daemon.story());
}

#[test]
fn a_named_socket_at_which_nothing_answers_starts_nothing() {
    let user = LoneUser::new(false);
    user.list_once();
    let started = user.starts();
    let socket = user.world.path("run/none.sock").display().to_string();
    let mut client = user.client(HOST, &["stdio", "--socket", &socket], ClientEra::LEGACY);
    assert!(client.tool_names().iter().any(|name| name == "fx__echo"));
    assert_eq!(reason(&echo(&mut client)), "daemon_away");
    for args in [&["status"][..], &["pins"], &["approvals"], &["disable", "fx"]] {
        let shown = user.run(HOST, &[args, &["--socket", socket.as_str()]].concat());
        assert!(shown.status.code() == Some(69), "{args:?}: {}", said(&shown));
    }
    assert_eq!(user.starts(), started);
}

#[test]
fn a_daemon_with_another_configuration_is_told_about() {
    let user = LoneUser::new(false);
    let daemon = user.daemon();
    let other = user.world.write("other.toml", "[policy]\ndefault = \"allow\"\n");
    let args = ["stdio", "--config", other.to_str().unwrap()];
    let mut client = user.client(HOST, &args, ClientEra::LEGACY);
    client.tool_names();
    let socket = user.world.path("run/headend.sock");
    let wanted = format!("headend stdio --config {} --socket {}", user.config.display(), socket.display());
    let told = client.pipe().story();
    assert!(told.contains("the daemon at") && told.contains(&wanted), "{told}");
    let shown = said(&user.run(HOST, &["doctor", "--config", other.to_str().unwrap()]));
    assert!(shown.contains("the daemon runs with another one"), "{shown}");
    drop(daemon);
}
