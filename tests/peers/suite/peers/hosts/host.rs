//! The hosts: their configuration, their command lines, and one run of each.

use std::fs;
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use serde_json::{Value, json};

use super::desk::DesktopSession;
use crate::harness::{TestHome, headend, left_out};
use crate::peers::PeerFolders;
use crate::peers::logins::parts::EventPeer;
use crate::process::{Lines, end, output_within, said, wait};
use crate::upstream::toml_array;

/// Time for one run of a host; a loaded machine starts Node in seconds.
const RUN: Duration = Duration::from_secs(240);
const TASK: &str = "Go on.";

/// A host of npm.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum NpmHost {
    ClaudeCode,
    Codex,
    Gemini,
    OpenCode,
}

/// A host's command line and variables.
#[derive(Debug, Default)]
struct HostLaunch {
    arguments: Vec<String>,
    variables: Vec<(&'static str, String)>,
}

impl HostLaunch {
    fn new(arguments: &[&str], variables: &[(&'static str, &str)]) -> Self {
        Self {
            arguments: arguments.iter().map(|&argument| argument.to_owned()).collect(),
            variables: variables.iter().map(|&(name, value)| (name, value.to_owned())).collect(),
        }
    }
}

impl NpmHost {
    /// Returns the host's program, and says that a test is left out if it is not installed.
    pub(super) fn find(self, peers: &PeerFolders) -> Option<PathBuf> {
        let place = match self {
            Self::ClaudeCode => ".bin/claude",
            Self::Codex => ".bin/codex",
            Self::Gemini => ".bin/gemini",
            // The package of this platform is installed by name: a registry may lack the others.
            Self::OpenCode => "opencode-linux-x64-baseline/bin/opencode",
        };
        let program = peers.root().join("hosts/node_modules").join(place);
        if !program.exists() {
            let why = format!("{} is missing; tests/README.md says how to install it", program.display());
            left_out(&format!("{self:?}"), &why);
            return None;
        }
        Some(program)
    }

    /// Returns the host's name for `headend connect`, and its file in the world.
    pub(super) const fn own_file(self) -> (&'static str, &'static str) {
        match self {
            Self::ClaudeCode => ("claude-code", "home/.claude.json"),
            Self::Codex => ("codex", "home/.codex/config.toml"),
            Self::Gemini => ("gemini", "home/.gemini/settings.json"),
            Self::OpenCode => ("opencode", "config/opencode/opencode.json"),
        }
    }

    /// Replaces headend in the configuration by a server of the host's own, which starts `program`.
    /// Returns the arguments that the host needs to have headend's tools allowed.
    fn configure_own(self, world: &TestHome, program: &str) -> Vec<&'static str> {
        let file = world.path(self.own_file().1);
        let text = fs::read_to_string(&file).unwrap_or_default();
        let args = ["demo", "time"];
        let entry = json!({"command": program, "args": args});
        let text = match self {
            Self::Codex => {
                let (head, _) = text.split_once("[mcp_servers.headend]").unwrap();
                format!("{head}[mcp_servers.clock] # mine\ncommand = {program:?}\nargs = [\"demo\", \"time\"]\n")
            }
            Self::ClaudeCode => {
                format!(
                    "{:#}\n",
                    json!({"hasCompletedOnboarding": true, "numStartups": 3, "mcpServers": {"clock": entry}})
                )
            }
            Self::Gemini | Self::OpenCode => {
                let mut config: Value = serde_json::from_str(&text).unwrap();
                if self == Self::Gemini {
                    config["mcpServers"] = json!({"clock": entry});
                } else {
                    let words = [&[program][..], &args].concat();
                    config["mcp"] = json!({"clock": {"type": "local", "command": words}});
                }
                format!("// mine\n{config:#}")
            }
        };
        fs::create_dir_all(file.parent().unwrap()).unwrap();
        fs::write(&file, text).unwrap();
        match self {
            Self::ClaudeCode => vec!["-p", TASK, "--model", "scripted", "--allowedTools", "mcp__headend__*"],
            Self::Codex => {
                let allow = "mcp_servers.headend.default_tools_approval_mode=\"approve\"";
                vec!["exec", "--skip-git-repo-check", "-c", allow, TASK]
            }
            Self::Gemini | Self::OpenCode => Vec::new(),
        }
    }

    /// Writes the host's configuration: the model at `url`, headend as the only server, its tools
    /// allowed, and no traffic but with these two.
    fn configure(self, desk: &DesktopSession, url: &str) -> HostLaunch {
        let world = &desk.gateway.world;
        match self {
            Self::ClaudeCode => claude_code(world, url),
            Self::Codex => codex(desk, url),
            Self::Gemini => gemini(world, url),
            Self::OpenCode => opencode(world, url),
        }
    }
}

/// Writes a configuration file of a host, in a new folder, and returns its path.
fn write(world: &TestHome, folder: &str, name: &str, text: &str) -> String {
    fs::create_dir_all(world.path(folder)).unwrap();
    world.write(&format!("{folder}/{name}"), text).to_str().unwrap().to_owned()
}

fn claude_code(world: &TestHome, url: &str) -> HostLaunch {
    let servers = json!({"mcpServers": {"headend": {"command": headend(), "args": ["stdio"]}}});
    let file = write(world, "work", "mcp.json", &servers.to_string());
    let model = ["-p", TASK, "--model", "scripted"];
    let server = ["--strict-mcp-config", "--mcp-config", &file, "--allowedTools", "mcp__headend__*"];
    let variables = [
        ("ANTHROPIC_BASE_URL", url),
        ("ANTHROPIC_API_KEY", "unused"),
        ("CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC", "1"),
        ("DISABLE_AUTOUPDATER", "1"),
        ("DISABLE_ERROR_REPORTING", "1"),
        ("DISABLE_TELEMETRY", "1"),
        // By default the model has to search for the tools of servers before it sees them.
        ("ENABLE_TOOL_SEARCH", "false"),
    ];
    HostLaunch::new(&[&model[..], &server[..]].concat(), &variables)
}

/// Codex passes no variable of a login session, so it is given the line that the daemon shows for
/// hosts.
fn codex(desk: &DesktopSession, url: &str) -> HostLaunch {
    let line = desk.host_line();
    let arguments: Vec<&str> = line.split(' ').skip(1).collect();
    let config = format!(
        r#"model = "scripted"
model_provider = "scripted"
approval_policy = "never"
check_for_update_on_startup = false

[analytics]
enabled = false

[model_providers.scripted]
name = "scripted"
base_url = "{url}/v1"
wire_api = "responses"

[mcp_servers.headend]
command = "{}"
args = {}
required = true
default_tools_approval_mode = "approve"
"#,
        headend(),
        toml_array(arguments)
    );
    write(&desk.gateway.world, "home/.codex", "config.toml", &config);
    HostLaunch::new(&["exec", "--skip-git-repo-check", TASK], &[])
}

fn gemini(world: &TestHome, url: &str) -> HostLaunch {
    let settings = json!({
        "mcpServers": {"headend": {"command": headend(), "args": ["stdio"], "trust": true}},
        "security": {"auth": {"selectedType": "gemini-api-key"}},
        "privacy": {"usageStatisticsEnabled": false},
        "general": {"enableAutoUpdate": false, "enableAutoUpdateNotification": false},
    });
    write(world, "home/.gemini", "settings.json", &settings.to_string());
    // Without `-m` Gemini CLI asks a model which model to take.
    let arguments = ["--skip-trust", "--yolo", "-m", "gemini-2.5-flash", "-p", TASK];
    HostLaunch::new(&arguments, &[("GOOGLE_GEMINI_BASE_URL", url), ("GEMINI_API_KEY", "unused")])
}

fn opencode(world: &TestHome, url: &str) -> HostLaunch {
    let model = json!({"name": "scripted", "tool_call": true, "limit": {"context": 100_000, "output": 1_000}});
    let options = json!({"baseURL": format!("{url}/v1"), "apiKey": "unused"});
    let config = json!({
        "mcp": {"headend": {"type": "local", "command": [headend(), "stdio"]}},
        "provider": {"anthropic": {"options": options, "models": {"scripted": model}}},
        "enabled_providers": ["anthropic"],
        "model": "anthropic/scripted",
        "small_model": "anthropic/scripted",
        "autoupdate": false,
        "share": "disabled",
    });
    write(world, "config/opencode", "opencode.json", &config.to_string());
    let variables = [
        ("OPENCODE_DISABLE_AUTOUPDATE", "1"),
        ("OPENCODE_DISABLE_DEFAULT_PLUGINS", "1"),
        ("OPENCODE_DISABLE_LSP_DOWNLOAD", "1"),
        ("OPENCODE_DISABLE_MODELS_FETCH", "1"),
    ];
    HostLaunch::new(&["run", "--auto", TASK], &variables)
}

/// One run of a host with its model.
#[derive(Debug)]
pub(super) struct HostRun {
    host: NpmHost,
    child: Child,
    output: [Lines; 2],
    model: EventPeer,
    /// Names of the tools that the model calls, in order.
    calls: Vec<String>,
}

/// Returns the command of a host in the login session of the desk.
fn command(
    peers: &PeerFolders,
    desk: &DesktopSession,
    program: &Path,
    variables: &[(&'static str, String)],
) -> Command {
    let mut command = Command::new(program);
    command.env_clear().envs(desk.session().iter().cloned()).envs(variables.iter().cloned());
    // The launchers of hosts are scripts for Node.
    let path = std::env::var("PATH").unwrap_or_default();
    command.env("PATH", format!("{}:{path}", peers.node().parent().unwrap().display()));
    command.current_dir(desk.gateway.world.path("work")).process_group(0);
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    command
}

impl HostRun {
    /// Starts the host in the login session of the desk. `calls` are the tools that its model
    /// calls, with their arguments.
    pub(super) fn start(
        peers: &PeerFolders,
        desk: &DesktopSession,
        host: NpmHost,
        program: &Path,
        calls: &[(&str, Value)],
    ) -> Self {
        Self::start_with(peers, desk, host, program, calls, |_| ())
    }

    /// Starts the host with a server of its own in its file, after `connect` was run with the
    /// command for the host's programs.
    pub(super) fn start_connected(
        peers: &PeerFolders,
        desk: &DesktopSession,
        host: NpmHost,
        program: &Path,
        calls: &[(&str, Value)],
        connect: impl FnOnce(&dyn Fn(&[&str]) -> String),
    ) -> Self {
        Self::start_with(peers, desk, host, program, calls, |launch| {
            let server = desk.gateway.world.path("home/clock-server");
            std::os::unix::fs::symlink(headend(), &server).unwrap();
            let arguments = host.configure_own(&desk.gateway.world, server.to_str().unwrap());
            if !arguments.is_empty() {
                launch.arguments = arguments.into_iter().map(str::to_owned).collect();
            }
            connect(&|words: &[&str]| {
                let mut command = command(peers, desk, program, &launch.variables);
                let output = output_within(command.args(words).spawn().unwrap(), RUN, "the host's command");
                said(&output)
            });
        })
    }

    fn start_with(
        peers: &PeerFolders,
        desk: &DesktopSession,
        host: NpmHost,
        program: &Path,
        calls: &[(&str, Value)],
        prepare: impl FnOnce(&mut HostLaunch),
    ) -> Self {
        let world = &desk.gateway.world;
        let job: Vec<Value> =
            calls.iter().map(|(tool, arguments)| json!({"tool": tool, "arguments": arguments})).collect();
        let model = EventPeer::start(peers, world, "model.mjs", &[&Value::from(job).to_string()], &[]);
        let mut launch = host.configure(desk, &model.said("url"));
        prepare(&mut launch);
        let mut child = command(peers, desk, program, &launch.variables)
            .args(launch.arguments)
            .spawn()
            .unwrap_or_else(|error| panic!("{host:?}: {error}"));
        let output = [Lines::of(child.stdout.take().unwrap()), Lines::of(child.stderr.take().unwrap())];
        let calls = calls.iter().map(|&(tool, _)| tool.to_owned()).collect();
        Self { host, child, output, model, calls }
    }

    /// Checks that the host offers these tools to its model.
    pub(super) fn offers(&self, tools: &[&str]) {
        let last = self.model.events("offered").pop().unwrap_or_default();
        let names: Vec<&str> = last["names"].as_array().into_iter().flatten().filter_map(Value::as_str).collect();
        let missing: Vec<_> = tools.iter().filter(|tool| !names.iter().any(|name| name.ends_with(*tool))).collect();
        assert!(missing.is_empty(), "{missing:?} are not among {names:?}\n{}", self.story());
    }

    /// Returns the results that the host has given to its model so far.
    pub(super) fn results(&self) -> Vec<String> {
        let results = self.model.events("result").into_iter();
        results.map(|event| event["text"].as_str().unwrap().to_owned()).collect()
    }

    /// Waits until the host ends, and checks that its model got a result of each call.
    pub(super) fn wait_for_end(&mut self) {
        let status = wait(&mut self.child, RUN);
        assert!(status.is_some_and(|status| status.success()), "{status:?}\n{}", self.story());
        let called: Vec<Value> = self.model.events("called").iter().map(|event| event["tool"].clone()).collect();
        assert_eq!(called, self.calls, "{}", self.story());
        assert_eq!(self.results().len(), self.calls.len(), "{}", self.story());
    }

    pub(super) fn story(&self) -> String {
        let lines: Vec<String> = self.output.iter().flat_map(Lines::all).collect();
        format!("{:?}:\n{}", self.host, lines.join("\n"))
    }
}

impl Drop for HostRun {
    fn drop(&mut self) {
        end(&mut self.child);
    }
}
