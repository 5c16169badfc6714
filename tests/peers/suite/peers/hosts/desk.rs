//! A user's home with a running daemon and two servers, and the record of the servers.

use std::fs;
use std::os::unix::fs::{DirBuilderExt as _, symlink};
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;

use serde_json::Value;

use crate::harness::{Gateway, GatewaySetup, TestHome, headend};
use crate::process::output_within;
use crate::upstream::{Fake, toml_array};

/// Calls wait for an approval longer than any test takes.
const POLICY: &str = "default = \"ask\"\n[policy.consent]\nper-minute = 100\nhold = \"10m\"";
const REST: &str = r#"
[console]
listen = "127.0.0.1:0"

[[policy.rules]]
id = "reading"
effect = "allow"
tools = ["fx__env", "nx__echo"]
"#;

/// A daemon that runs in the login session of a user.
#[derive(Debug)]
pub(super) struct DesktopSession {
    pub(super) gateway: Gateway,
    /// File with the names of servers, a line for each start.
    starts: PathBuf,
    session: Vec<(String, String)>,
}

impl DesktopSession {
    /// Starts the daemon. Its configuration and its state are in the default directories below the
    /// home, or in those that `XDG_CONFIG_HOME` and `XDG_STATE_HOME` of the login session name.
    pub(super) fn new(is_moved: bool) -> Self {
        let setup = GatewaySetup::new();
        let world = setup.world.clone();
        if !is_moved {
            for (name, default) in [("config", "home/.config"), ("state", "home/.local/state")] {
                use_default(&world, name, default);
            }
        }
        let session = session(&world, is_moved);
        let starts = world.path("work/starts");
        let (legacy, modern) = (Fake::stdio("legacy"), Fake::stdio("modern"));
        let setup = setup.policy(POLICY).toml(REST);
        let setup = setup.toml(&server("fx", &legacy, &starts)).toml(&server("nx", &modern, &starts));
        let text = setup.text();
        fs::DirBuilder::new().mode(0o700).create(world.path("config/headend")).unwrap();
        world.write("config/headend/headend.toml", &text);
        let mut command = world.command(headend());
        command.env_clear();
        let gateway = Gateway::start_by(command, world, None, &["serve"], &session);
        gateway.wait_for_tools(&["fx__env", "nx__echo"]);
        Self { gateway, starts, session }
    }

    /// Returns the variables of the user's login session.
    pub(super) fn session(&self) -> &[(String, String)] {
        &self.session
    }

    /// Returns the command by which hosts reach the daemon, as it shows it.
    pub(super) fn host_line(&self) -> String {
        let mut command = self.gateway.world.command(headend());
        command.env_clear().envs(self.session.iter().cloned()).args(["status", "--json"]);
        command.stdout(Stdio::piped()).stderr(Stdio::piped());
        let shown = output_within(command.spawn().unwrap(), Duration::from_secs(30), "headend status");
        let shown: Value = serde_json::from_slice(&shown.stdout).unwrap();
        shown["host-command"].as_str().unwrap().to_owned()
    }

    /// Checks that neither the daemon nor a host started a server that ran already.
    pub(super) fn started_each_server_once(&self) {
        let text = fs::read_to_string(&self.starts).unwrap();
        let mut started: Vec<&str> = text.lines().collect();
        started.sort_unstable();
        assert_eq!(started, ["fx", "nx"], "each server is started once\n{}", self.gateway.story());
    }
}

/// Replaces a directory of the world by a link to its default place below the home, so that a
/// daemon without XDG variables and the commands of the test find the same files.
fn use_default(world: &TestHome, name: &str, default: &str) {
    let place = world.path(default);
    fs::DirBuilder::new().recursive(true).mode(0o700).create(&place).unwrap();
    fs::remove_dir(world.path(name)).unwrap();
    symlink(place, world.path(name)).unwrap();
}

/// Returns the variables of a login session.
fn session(world: &TestHome, is_moved: bool) -> Vec<(String, String)> {
    let mut session = world.environment();
    session.retain(|(name, _)| is_moved || !["XDG_CONFIG_HOME", "XDG_STATE_HOME"].contains(&name.as_str()));
    let temporary = world.path("work").to_str().unwrap().to_owned();
    let more = [("USER", "user"), ("LOGNAME", "user"), ("SHELL", "/bin/sh"), ("TERM", "xterm"), ("TMPDIR", &temporary)];
    session.extend(more.map(|(name, value)| (name.to_owned(), value.to_owned())));
    session
}

/// Returns the table of a server that adds its name to the file `starts` whenever it starts.
fn server(name: &str, fake: &Fake, starts: &Path) -> String {
    let words: Vec<String> = serde_json::from_str(&fake.command()).unwrap();
    let script = format!("echo {name} >> {}\nexec {}", starts.display(), words.join(" "));
    format!("[upstreams.{name}]\ncommand = {}", toml_array(["sh", "-c", &script]))
}
