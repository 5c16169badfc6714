//! The servers, the gateway between, and the command of each kind of client.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use rmcp::model::{CallToolRequestParams, ProtocolVersion};
use rmcp::{ClientLifecycleMode, RoleClient, serve_client_with_lifecycle};
use serde_json::{Value, json};

use super::turn::TestTurn;
use super::{ClientFace, ClientScript};
use crate::harness::{Gateway, GatewaySetup, headend, left_out};
use crate::process::output_within;
use crate::upstream::{InputLog, Listening, example, toml_array};

/// A longer start time: on a busy machine a runtime and its program take longer to start than a
/// call waits for them.
const SLOW: &str = "start-wait = \"120s\"\n";

/// Longest time of one client program; a loaded machine starts Node in seconds.
const CLIENT: Duration = Duration::from_secs(240);

/// One call of each upstream, and a text that its answer must contain.
#[derive(Debug)]
pub(super) struct ProbeCall {
    pub(super) name: &'static str,
    pub(super) arguments: Value,
    pub(super) wanted: &'static str,
}

/// Folders of the installed peers, and a turn with them.
#[derive(Debug, Clone)]
pub(crate) struct PeerFolders {
    root: PathBuf,
    _turn: Arc<TestTurn>,
}

impl PeerFolders {
    /// Returns the folder named by the environment, else the one that the gate fills. Waits for its
    /// turn.
    pub(crate) fn find() -> Option<Self> {
        let test = std::env::current_exe().unwrap();
        let target = test.ancestors().nth(3).unwrap().join("peers");
        let root = std::env::var_os("HEADEND_TEST_PEERS").map_or(target, PathBuf::from);
        let peers = Self { root, _turn: Arc::new(TestTurn::wait()) };
        let needed = [peers.node(), peers.package("sdk"), peers.package("server-everything"), peers.python("python")];
        if let Some(missing) = needed.iter().find(|path| !path.exists()) {
            left_out(
                "real peers",
                &format!("{} is missing; tests/README.md says how to install them", missing.display()),
            );
            return None;
        }
        Some(peers)
    }

    pub(crate) fn root(&self) -> &Path {
        &self.root
    }

    /// Returns the path of a Node that is new enough for all peers.
    pub(crate) fn node(&self) -> PathBuf {
        self.root.join("node/node_modules/.bin/node")
    }

    /// Returns the folder that holds the installed packages.
    pub(crate) fn folder(&self) -> PathBuf {
        self.root.join("node")
    }

    pub(crate) fn package(&self, name: &str) -> PathBuf {
        self.root.join("node/node_modules/@modelcontextprotocol").join(name)
    }

    /// Returns the browser's program; prints that the test `what` is left out if the browser or its
    /// driver is missing.
    pub(crate) fn browser(&self, what: &str) -> Option<PathBuf> {
        let names = ["chromium-headless-shell", "chromium", "google-chrome"];
        let paths = std::env::var_os("PATH").unwrap_or_default();
        let found = names
            .iter()
            .find_map(|name| std::env::split_paths(&paths).map(|folder| folder.join(name)).find(|path| path.exists()));
        let browser = std::env::var_os("HEADEND_TEST_BROWSER").map(PathBuf::from).or(found);
        let has_driver = self.folder().join("node_modules/playwright-core").exists();
        if browser.is_none() || !has_driver {
            left_out(what, "no browser, or playwright-core is not installed");
        }
        browser.filter(|_| has_driver)
    }

    pub(crate) fn python(&self, program: &str) -> PathBuf {
        self.root.join("venv/bin").join(program)
    }
}

/// Six servers, one gateway.
#[derive(Debug)]
pub(super) struct Bench {
    peers: PeerFolders,
    pub(super) gateway: Gateway,
    pub(super) calls: Vec<ProbeCall>,
    /// Number of runs of the inspector so far.
    inspections: AtomicUsize,
    /// The listening servers, which end when this is dropped.
    _listening: Vec<Listening>,
}

impl Bench {
    pub(super) fn start() -> Option<Self> {
        let peers = PeerFolders::find()?;
        let setup = GatewaySetup::new();
        let folder = fs::canonicalize(setup.world.path("work")).unwrap();
        let note = setup.world.write("work/note.txt", "written for the test\n");
        let repository = folder.join("repository");
        let mut init = setup.world.command("git");
        init.args(["init", "-q", repository.to_str().unwrap()]);
        if !init.status().is_ok_and(|status| status.success()) {
            left_out("real peers", "git is not installed");
            return None;
        }
        let text = |path: &Path| path.to_str().unwrap().to_owned();
        let node = |package: &str, arguments: &[&str]| {
            let program = [text(&peers.node()), text(&peers.package(package).join("dist/index.js"))];
            toml_array(program.iter().map(String::as_str).chain(arguments.iter().copied()))
        };
        let python = |program: &str, arguments: &[&str]| {
            let program = text(&peers.python(program));
            toml_array([program.as_str()].into_iter().chain(arguments.iter().copied()))
        };
        let fixture = |era: &str| {
            let arguments = ["http", "--listen", "127.0.0.1:0", "--era", era].map(str::to_owned);
            Listening::spawn(&example("conformance-fixture"), &arguments)
        };
        let (old, new) = (fixture("legacy"), fixture("modern"));
        let repository = text(&repository);
        let gateway = setup
            .toml(&format!("[upstreams.every]\n{SLOW}command = {}", node("server-everything", &["stdio"])))
            .toml(&format!("[upstreams.files]\n{SLOW}command = {}", node("server-filesystem", &[&text(&folder)])))
            .toml(&format!("[upstreams.time]\n{SLOW}command = {}", python("mcp-server-time", &[])))
            .toml(&format!(
                "[upstreams.git]\n{SLOW}command = {}",
                python("mcp-server-git", &["--repository", &repository])
            ))
            .url("old", &old.url)
            .url("new", &new.url)
            .start();
        let note = text(&fs::canonicalize(note).unwrap());
        let call = |name, arguments, wanted| ProbeCall { name, arguments, wanted };
        let calls = vec![
            call("every__echo", json!({"message": "hello there"}), "hello there"),
            call("files__read_text_file", json!({"path": note}), "written for the test"),
            call("time__get_current_time", json!({"timezone": "UTC"}), "UTC"),
            call("git__git_status", json!({"repo_path": repository}), "Repository status"),
            call("old__test_simple_text", json!({}), ""),
            call("new__test_simple_text", json!({}), ""),
        ];
        let names: Vec<&str> = calls.iter().map(|call| call.name).collect();
        gateway.wait_for_tools_within(Duration::from_secs(240), &names);
        Some(Self { peers, gateway, calls, inspections: AtomicUsize::new(0), _listening: vec![old, new] })
    }

    /// Starts a gateway in front of `server-everything` alone; returns it with a record of the
    /// server's input.
    pub(super) fn everything() -> Option<(Gateway, InputLog)> {
        let peers = PeerFolders::find()?;
        let setup = GatewaySetup::new();
        let log = InputLog::new(&setup.world.path("work"), "everything");
        let server = peers.package("server-everything").join("dist/index.js");
        let line = format!("tee {} | {} {} stdio", log.path().display(), peers.node().display(), server.display());
        let gateway = setup.toml(&format!("[upstreams.every]\ncommand = {}", toml_array(["sh", "-c", &line]))).start();
        gateway.wait_for_tools_within(Duration::from_secs(60), &["every__trigger-long-running-operation"]);
        Some((gateway, log))
    }

    pub(super) fn url(&self) -> String {
        format!("http://{}/mcp", self.gateway.address)
    }

    /// Returns the command line of a face over stdio.
    pub(super) fn command(&self, face: ClientFace) -> Vec<String> {
        face_command(&self.gateway, face)
    }

    fn environment(&self) -> Value {
        face_environment(&self.gateway)
    }

    fn target(&self, face: ClientFace) -> Value {
        match face {
            ClientFace::Http => json!({"url": self.url(), "token": self.gateway.token()}),
            ClientFace::Attached | ClientFace::Alone => {
                json!({"command": self.command(face), "env": self.environment()})
            }
        }
    }

    /// Returns the command line of one of the clients in `tests/peers`.
    pub(super) fn script(&self, face: ClientFace, (script, era, protocol): &ClientScript) -> Vec<String> {
        let at = format!("{script} ({era}) over {face:?}");
        let calls: Vec<Value> =
            self.calls.iter().map(|call| json!({"name": call.name, "arguments": call.arguments})).collect();
        let job = json!({"era": era, "target": self.target(face), "calls": calls}).to_string();
        let python = Path::new(script).extension().is_some_and(|extension| extension == "py");
        let program = if python { self.peers.python("python") } else { self.peers.node() };
        let path = crate::ground::root().join("tests/peers").join(script);
        let output = self.run(Command::new(program).arg(path).arg(job), &at);
        let report = String::from_utf8_lossy(&output.stdout).lines().next_back().map(serde_json::from_str::<Value>);
        let Some(Ok(report)) = report else {
            return vec![format!("{at}: no report\n{}", String::from_utf8_lossy(&output.stderr))];
        };
        let mut wrong = Vec::new();
        if let Some(protocol) = protocol
            && report["protocol"] != *protocol
        {
            wrong.push(format!("{at}: speaks {}", report["protocol"]));
        }
        for (call, result) in self.calls.iter().zip(report["calls"].as_array().cloned().unwrap_or_default()) {
            let good = result["isError"] == false && result["text"].as_str().is_some_and(|t| t.contains(call.wanted));
            if !good {
                wrong.push(format!("{at}: {} gave {result}", call.name));
            }
        }
        let listed: Vec<&str> = report["tools"].as_array().into_iter().flatten().filter_map(Value::as_str).collect();
        wrong.extend(self.unlisted(&listed, &at));
        wrong
    }

    /// Returns the Inspector's command line: one list or one call a run.
    pub(super) fn inspector(&self, face: ClientFace, era: &str, call: Option<&ProbeCall>) -> Vec<String> {
        let at = format!("inspector ({era}) over {face:?}: {}", call.map_or("tools/list", |call| call.name));
        let server = match face {
            ClientFace::Http => {
                let bearer = format!("Bearer {}", self.gateway.token().unwrap_or_default());
                json!({"type": "streamable-http", "url": self.url(), "headers": {"Authorization": bearer}})
            }
            ClientFace::Attached | ClientFace::Alone => {
                let command = self.command(face);
                json!({"command": command[0], "args": command[1..], "env": self.environment()})
            }
        };
        // One file for each run: two run at a time, and a rewritten file is empty for a moment.
        let run = self.inspections.fetch_add(1, Ordering::Relaxed);
        let file = format!("work/inspector-{run}.json");
        let file = self.gateway.world.write(&file, &json!({"mcpServers": {"gateway": server}}).to_string());
        let mut command = Command::new(self.peers.node());
        command.arg(self.peers.package("inspector").join("clients/launcher/build/index.js"));
        command.args(["--cli", "--server", "gateway", "--protocol-era", era, "--config"]).arg(file);
        match call {
            None => command.args(["--method", "tools/list"]),
            Some(call) => command
                .args(["--method", "tools/call", "--tool-name", call.name])
                .args(["--tool-args-json", &call.arguments.to_string()]),
        };
        let output = self.run(&mut command, &at);
        let answer: Value = serde_json::from_slice(&output.stdout).unwrap_or(Value::Null);
        let told = || format!("{at}: {:?} {answer}\n{}", output.status, String::from_utf8_lossy(&output.stderr));
        if !output.status.success() {
            return vec![told()];
        }
        match call {
            None => {
                let listed: Vec<&str> =
                    answer["tools"].as_array().into_iter().flatten().filter_map(|tool| tool["name"].as_str()).collect();
                self.unlisted(&listed, &at)
            }
            Some(call) => {
                let good = answer["isError"] != true && answer["content"].to_string().contains(call.wanted);
                if good { Vec::new() } else { vec![told()] }
            }
        }
    }

    /// Plays the Rust SDK as a client, in this process.
    pub(super) async fn rmcp<T, E, A>(&self, transport: T, modern: bool, face: &str)
    where
        T: rmcp::transport::IntoTransport<RoleClient, E, A>,
        E: std::error::Error + Send + Sync + 'static,
    {
        let at = format!("rmcp (modern: {modern}) over {face}");
        let lifecycle = if modern {
            ClientLifecycleMode::Discover { preferred_versions: vec![ProtocolVersion::V_2026_07_28] }
        } else {
            ClientLifecycleMode::Initialize
        };
        let client = serve_client_with_lifecycle((), transport, lifecycle).await;
        let client = client.unwrap_or_else(|error| panic!("{at}: {error}\n{}", self.gateway.story()));
        let tools = client.list_all_tools().await.unwrap_or_else(|error| panic!("{at}: {error}"));
        let listed: Vec<&str> = tools.iter().map(|tool| tool.name.as_ref()).collect();
        assert_eq!(self.unlisted(&listed, &at), Vec::<String>::new());
        for call in &self.calls {
            let arguments = call.arguments.as_object().cloned().unwrap_or_default();
            let params = CallToolRequestParams::new(call.name).with_arguments(arguments);
            let result = client.call_tool(params).await.unwrap_or_else(|error| panic!("{at}: {}: {error}", call.name));
            let result = serde_json::to_value(&result).unwrap();
            assert!(result["isError"] != true, "{at}: {}: {result}", call.name);
            assert!(result["content"].to_string().contains(call.wanted), "{at}: {}: {result}", call.name);
        }
        client.cancel().await.unwrap();
    }

    fn unlisted(&self, listed: &[&str], at: &str) -> Vec<String> {
        let missing = self.calls.iter().filter(|call| !listed.contains(&call.name));
        missing.map(|call| format!("{at}: {} is not listed", call.name)).collect()
    }

    fn run(&self, command: &mut Command, at: &str) -> Output {
        Self::run_client(&self.peers, &self.gateway, command, at)
    }

    /// Runs a client program to its end.
    pub(super) fn run_client(peers: &PeerFolders, gateway: &Gateway, command: &mut Command, at: &str) -> Output {
        client_environment(peers, gateway, command);
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let child = command.spawn().unwrap_or_else(|error| panic!("{at}: {error}"));
        output_within(child, CLIENT, at)
    }
}

/// The environment of a client program: its packages, and a home of its own.
pub(super) fn client_environment(peers: &PeerFolders, gateway: &Gateway, command: &mut Command) {
    let path = std::env::var("PATH").unwrap_or_default();
    command
        .env_clear()
        .env("PATH", format!("{}:{path}", peers.root.join("node/node_modules/.bin").display()))
        .env("HOME", gateway.world.path("home"))
        .env("LANG", "C.UTF-8")
        .env("PEERS_NODE", peers.folder())
        .env("PYTHONDONTWRITEBYTECODE", "1")
        .env("MCP_INSPECTOR_SECRET_STORE", "memory");
}

/// Returns the command line of a face over stdio.
pub(super) fn face_command(gateway: &Gateway, face: ClientFace) -> Vec<String> {
    let mut words = [headend(), "stdio", "--config", gateway.config.to_str().unwrap()].map(str::to_owned).to_vec();
    if face == ClientFace::Alone {
        words.push("--no-daemon".to_owned());
    }
    words
}

/// Returns the environment of a client program.
pub(super) fn face_environment(gateway: &Gateway) -> Value {
    gateway.world.environment().into_iter().map(|(name, value)| (name, Value::String(value))).collect()
}
