//! Official servers behind one gateway, official clients in front of it, over HTTP and over stdio.
//!
//! The peers are not part of this project: `.ci/run` installs them below `target/peers`, or `HEADEND_TEST_PEERS` says
//! where they are. Without them these tests say what they leave out; on the gate (`CI=true`) that is a failure.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::Duration;

use rmcp::model::{CallToolRequestParams, ProtocolVersion};
use rmcp::transport::streamable_http_client::StreamableHttpClientTransportConfig;
use rmcp::transport::{StreamableHttpClientTransport, TokioChildProcess};
use rmcp::{ClientLifecycleMode, RoleClient, serve_client_with_lifecycle};
use serde_json::{Value, json};

use crate::harness::{Gateway, Setup, headend, left_out, output_within};
use crate::mcp::MODERN;
use crate::upstream::{Listening, example, toml_array};

/// How long one client program may take; a loaded machine starts Node in seconds.
const CLIENT: Duration = Duration::from_secs(90);

/// One call of each upstream, and what its answer must contain.
#[derive(Debug)]
struct Call {
    name: &'static str,
    arguments: Value,
    wanted: &'static str,
}

/// Which face of the gateway a client uses.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Face {
    Http,
    /// `headend stdio`, which attaches to the daemon.
    Attached,
    /// `headend stdio --no-daemon`, with upstreams of its own.
    Alone,
}

/// A client program, the era that it is told, and the revision that it must end up with when it says so.
type Script = (&'static str, &'static str, Option<&'static str>);

const SCRIPTS: &[Script] = &[
    ("ts-v1.mjs", "legacy", None),
    ("ts-v2.mjs", "legacy", Some("2025-11-25")),
    ("ts-v2.mjs", "auto", Some(MODERN)),
    ("ts-v2.mjs", "modern", Some(MODERN)),
    ("python-sdk.py", "legacy", Some("2025-11-25")),
    ("python-sdk.py", "auto", Some(MODERN)),
    ("python-sdk.py", "modern", Some(MODERN)),
    ("fastmcp-client.py", "legacy", None),
    ("fastmcp-client.py", "auto", None),
];

#[test]
fn official_sdk_clients_use_every_real_server_over_http() {
    every_script(Face::Http, SCRIPTS);
}

#[test]
fn official_sdk_clients_use_every_real_server_over_stdio_attached_to_the_daemon() {
    every_script(Face::Attached, SCRIPTS);
}

#[test]
fn official_sdk_clients_use_every_real_server_over_stdio_alone() {
    let few = [SCRIPTS[0], SCRIPTS[3], SCRIPTS[6]];
    every_script(Face::Alone, &few);
}

#[test]
fn the_inspector_uses_every_real_server_over_both_faces() {
    let Some(bench) = Bench::start() else { return };
    let mut jobs = Vec::new();
    for face in [Face::Http, Face::Attached] {
        for era in ["legacy", "modern"] {
            jobs.push((face, era, None));
            jobs.extend(bench.calls.iter().map(|call| (face, era, Some(call))));
        }
    }
    in_two_lanes(&jobs, |(face, era, call)| {
        bench.inspector(*face, era, *call)
    });
}

#[test]
fn the_official_rust_client_uses_every_real_server_over_both_faces() {
    let Some(bench) = Bench::start() else { return };
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .unwrap();
    for modern in [false, true] {
        let config = StreamableHttpClientTransportConfig::with_uri(bench.url())
            .auth_header(bench.gateway.token().unwrap_or_default());
        let http = || StreamableHttpClientTransport::from_config(config);
        runtime.block_on(Box::pin(async { bench.rmcp(http(), modern, "http").await }));
        let mut command = tokio::process::Command::new(headend());
        command
            .args(&bench.command(Face::Attached)[1..])
            .env_clear()
            .envs(bench.gateway.world.environment());
        let stdio = || TokioChildProcess::new(command).unwrap();
        runtime.block_on(Box::pin(async {
            bench.rmcp(stdio(), modern, "stdio").await
        }));
    }
}

fn every_script(face: Face, scripts: &[Script]) {
    let Some(bench) = Bench::start() else { return };
    in_two_lanes(scripts, |script| bench.script(face, script));
}

/// Runs each job; two at a time, because each is a runtime that starts.
fn in_two_lanes<T: Sync>(jobs: &[T], run: impl Fn(&T) -> Vec<String> + Sync) {
    let next = AtomicUsize::new(0);
    let wrong: Vec<String> = thread::scope(|scope| {
        let lane = || {
            let mut wrong = Vec::new();
            while let Some(job) = jobs.get(next.fetch_add(1, Ordering::SeqCst)) {
                wrong.extend(run(job));
            }
            wrong
        };
        let lanes = [scope.spawn(lane), scope.spawn(lane)];
        lanes
            .into_iter()
            .flat_map(|lane| lane.join().unwrap())
            .collect()
    });
    assert!(wrong.is_empty(), "\n{}", wrong.join("\n"));
}

/// Where the installed peers are.
#[derive(Debug, Clone)]
struct Peers {
    root: PathBuf,
}

impl Peers {
    /// The folder that is named by the environment, else the one that the gate fills.
    fn find() -> Option<Self> {
        let test = std::env::current_exe().unwrap();
        let target = test.ancestors().nth(3).unwrap().join("peers");
        let root = std::env::var_os("HEADEND_TEST_PEERS").map_or(target, PathBuf::from);
        let peers = Self { root };
        let needed = [
            peers.node(),
            peers.package("sdk"),
            peers.package("server-everything"),
            peers.python("python"),
        ];
        if let Some(missing) = needed.iter().find(|path| !path.exists()) {
            left_out(
                "real peers",
                &format!(
                    "{} is missing; tests/README.md says how to install them",
                    missing.display()
                ),
            );
            return None;
        }
        Some(peers)
    }

    /// A Node that is new enough for all of them.
    fn node(&self) -> PathBuf {
        self.root.join("node/node_modules/.bin/node")
    }

    fn package(&self, name: &str) -> PathBuf {
        self.root
            .join("node/node_modules/@modelcontextprotocol")
            .join(name)
    }

    fn python(&self, program: &str) -> PathBuf {
        self.root.join("venv/bin").join(program)
    }
}

/// Six servers, one gateway.
#[derive(Debug)]
struct Bench {
    peers: Peers,
    gateway: Gateway,
    calls: Vec<Call>,
    /// The servers that listen, which end with this.
    _listening: Vec<Listening>,
}

impl Bench {
    fn start() -> Option<Self> {
        let peers = Peers::find()?;
        let setup = Setup::new();
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
            let program = [
                text(&peers.node()),
                text(&peers.package(package).join("dist/index.js")),
            ];
            toml_array(
                program
                    .iter()
                    .map(String::as_str)
                    .chain(arguments.iter().copied()),
            )
        };
        let python = |program: &str, arguments: &[&str]| {
            let program = text(&peers.python(program));
            toml_array(
                [program.as_str()]
                    .into_iter()
                    .chain(arguments.iter().copied()),
            )
        };
        let fixture = |era: &str| {
            let arguments = ["http", "--listen", "127.0.0.1:0", "--era", era].map(str::to_owned);
            Listening::spawn(&example("conformance-fixture"), &arguments)
        };
        let (old, new) = (fixture("legacy"), fixture("modern"));
        let repository = text(&repository);
        let gateway = setup
            .toml(&format!(
                "[upstreams.every]\ncommand = {}",
                node("server-everything", &["stdio"])
            ))
            .toml(&format!(
                "[upstreams.files]\ncommand = {}",
                node("server-filesystem", &[&text(&folder)])
            ))
            .toml(&format!(
                "[upstreams.time]\ncommand = {}",
                python("mcp-server-time", &[])
            ))
            .toml(&format!(
                "[upstreams.git]\ncommand = {}",
                python("mcp-server-git", &["--repository", &repository])
            ))
            .url("old", &old.url)
            .url("new", &new.url)
            .start();
        let note = text(&fs::canonicalize(note).unwrap());
        let call = |name, arguments, wanted| Call {
            name,
            arguments,
            wanted,
        };
        let calls = vec![
            call(
                "every__echo",
                json!({"message": "hello there"}),
                "hello there",
            ),
            call(
                "files__read_text_file",
                json!({"path": note}),
                "written for the test",
            ),
            call("time__get_current_time", json!({"timezone": "UTC"}), "UTC"),
            call(
                "git__git_status",
                json!({"repo_path": repository}),
                "Repository status",
            ),
            call("old__test_simple_text", json!({}), ""),
            call("new__test_simple_text", json!({}), ""),
        ];
        let names: Vec<&str> = calls.iter().map(|call| call.name).collect();
        gateway.wait_for_tools_within(Duration::from_secs(90), &names);
        Some(Self {
            peers,
            gateway,
            calls,
            _listening: vec![old, new],
        })
    }

    fn url(&self) -> String {
        format!("http://{}/mcp", self.gateway.address)
    }

    /// The command line of a face over stdio.
    fn command(&self, face: Face) -> Vec<String> {
        let mut words = [
            headend(),
            "stdio",
            "--config",
            self.gateway.config.to_str().unwrap(),
        ]
        .map(str::to_owned)
        .to_vec();
        if face == Face::Alone {
            words.push("--no-daemon".to_owned());
        }
        words
    }

    fn environment(&self) -> Value {
        self.gateway
            .world
            .environment()
            .into_iter()
            .map(|(name, value)| (name, Value::String(value)))
            .collect()
    }

    fn target(&self, face: Face) -> Value {
        match face {
            Face::Http => json!({"url": self.url(), "token": self.gateway.token()}),
            Face::Attached | Face::Alone => {
                json!({"command": self.command(face), "env": self.environment()})
            }
        }
    }

    /// One of the clients in `tests/peers`.
    fn script(&self, face: Face, (script, era, protocol): &Script) -> Vec<String> {
        let at = format!("{script} ({era}) over {face:?}");
        let calls: Vec<Value> = self
            .calls
            .iter()
            .map(|call| json!({"name": call.name, "arguments": call.arguments}))
            .collect();
        let job = json!({"era": era, "target": self.target(face), "calls": calls}).to_string();
        let python = Path::new(script)
            .extension()
            .is_some_and(|extension| extension == "py");
        let program = if python {
            self.peers.python("python")
        } else {
            self.peers.node()
        };
        let path = Path::new(env!("CARGO_MANIFEST_DIR"))
            .join("tests/peers")
            .join(script);
        let output = self.run(Command::new(program).arg(path).arg(job), &at);
        let report = String::from_utf8_lossy(&output.stdout)
            .lines()
            .next_back()
            .map(serde_json::from_str::<Value>);
        let Some(Ok(report)) = report else {
            return vec![format!(
                "{at}: no report\n{}",
                String::from_utf8_lossy(&output.stderr)
            )];
        };
        let mut wrong = Vec::new();
        if let Some(protocol) = protocol
            && report["protocol"] != *protocol
        {
            wrong.push(format!("{at}: speaks {}", report["protocol"]));
        }
        for (call, result) in self
            .calls
            .iter()
            .zip(report["calls"].as_array().cloned().unwrap_or_default())
        {
            let good = result["isError"] == false
                && result["text"]
                    .as_str()
                    .is_some_and(|t| t.contains(call.wanted));
            if !good {
                wrong.push(format!("{at}: {} gave {result}", call.name));
            }
        }
        let listed: Vec<&str> = report["tools"]
            .as_array()
            .into_iter()
            .flatten()
            .filter_map(Value::as_str)
            .collect();
        wrong.extend(self.unlisted(&listed, &at));
        wrong
    }

    /// The Inspector's command line: one list or one call a run.
    fn inspector(&self, face: Face, era: &str, call: Option<&Call>) -> Vec<String> {
        let at = format!(
            "inspector ({era}) over {face:?}: {}",
            call.map_or("tools/list", |call| call.name)
        );
        let server = match face {
            Face::Http => {
                let bearer = format!("Bearer {}", self.gateway.token().unwrap_or_default());
                json!({"type": "streamable-http", "url": self.url(), "headers": {"Authorization": bearer}})
            }
            Face::Attached | Face::Alone => {
                let command = self.command(face);
                json!({"command": command[0], "args": command[1..], "env": self.environment()})
            }
        };
        let file = format!("work/inspector-{face:?}.json");
        let file = self.gateway.world.write(
            &file,
            &json!({"mcpServers": {"gateway": server}}).to_string(),
        );
        let mut command = Command::new(self.peers.node());
        command.arg(
            self.peers
                .package("inspector")
                .join("clients/launcher/build/index.js"),
        );
        command
            .args([
                "--cli",
                "--server",
                "gateway",
                "--protocol-era",
                era,
                "--config",
            ])
            .arg(file);
        match call {
            None => command.args(["--method", "tools/list"]),
            Some(call) => command
                .args(["--method", "tools/call", "--tool-name", call.name])
                .args(["--tool-args-json", &call.arguments.to_string()]),
        };
        let output = self.run(&mut command, &at);
        let answer: Value = serde_json::from_slice(&output.stdout).unwrap_or(Value::Null);
        let told = || {
            format!(
                "{at}: {:?} {answer}\n{}",
                output.status,
                String::from_utf8_lossy(&output.stderr)
            )
        };
        if !output.status.success() {
            return vec![told()];
        }
        match call {
            None => {
                let listed: Vec<&str> = answer["tools"]
                    .as_array()
                    .into_iter()
                    .flatten()
                    .filter_map(|tool| tool["name"].as_str())
                    .collect();
                self.unlisted(&listed, &at)
            }
            Some(call) => {
                let good = answer["isError"] != true
                    && answer["content"].to_string().contains(call.wanted);
                if good { Vec::new() } else { vec![told()] }
            }
        }
    }

    /// The Rust SDK, in this process.
    async fn rmcp<T, E, A>(&self, transport: T, modern: bool, face: &str)
    where
        T: rmcp::transport::IntoTransport<RoleClient, E, A>,
        E: std::error::Error + Send + Sync + 'static,
    {
        let at = format!("rmcp (modern: {modern}) over {face}");
        let lifecycle = if modern {
            ClientLifecycleMode::Discover {
                preferred_versions: vec![ProtocolVersion::V_2026_07_28],
            }
        } else {
            ClientLifecycleMode::Initialize
        };
        let client = serve_client_with_lifecycle((), transport, lifecycle).await;
        let client =
            client.unwrap_or_else(|error| panic!("{at}: {error}\n{}", self.gateway.story()));
        let tools = client
            .list_all_tools()
            .await
            .unwrap_or_else(|error| panic!("{at}: {error}"));
        let listed: Vec<&str> = tools.iter().map(|tool| tool.name.as_ref()).collect();
        assert_eq!(self.unlisted(&listed, &at), Vec::<String>::new());
        for call in &self.calls {
            let arguments = call.arguments.as_object().cloned().unwrap_or_default();
            let params = CallToolRequestParams::new(call.name).with_arguments(arguments);
            let result = client
                .call_tool(params)
                .await
                .unwrap_or_else(|error| panic!("{at}: {}: {error}", call.name));
            let result = serde_json::to_value(&result).unwrap();
            assert!(result["isError"] != true, "{at}: {}: {result}", call.name);
            assert!(
                result["content"].to_string().contains(call.wanted),
                "{at}: {}: {result}",
                call.name
            );
        }
        client.cancel().await.unwrap();
    }

    fn unlisted(&self, listed: &[&str], at: &str) -> Vec<String> {
        let missing = self
            .calls
            .iter()
            .filter(|call| !listed.contains(&call.name));
        missing
            .map(|call| format!("{at}: {} is not listed", call.name))
            .collect()
    }

    fn run(&self, command: &mut Command, at: &str) -> Output {
        let home = self.gateway.world.path("home");
        let path = std::env::var("PATH").unwrap_or_default();
        command
            .env_clear()
            .env(
                "PATH",
                format!(
                    "{}:{path}",
                    self.peers.root.join("node/node_modules/.bin").display()
                ),
            )
            .env("HOME", home)
            .env("LANG", "C.UTF-8")
            .env("PEERS_NODE", self.peers.root.join("node"))
            .env("PYTHONDONTWRITEBYTECODE", "1")
            .env("MCP_INSPECTOR_SECRET_STORE", "memory")
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        let child = command
            .spawn()
            .unwrap_or_else(|error| panic!("{at}: {error}"));
        output_within(child, CLIENT, at)
    }
}
