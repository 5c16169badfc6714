//! Tests of the operator's commands: check, status, call, import.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::process::Output;
use std::time::Duration;

use rustix::process::Signal;
use serde_json::{Value, json};

use crate::stage::harness::{Gateway, GatewaySetup, TestHome};
use crate::stage::now;
use crate::stage::process::said;
use crate::stage::upstream::Fake;

#[test]
fn the_commands_answer_from_the_running_daemon() {
    let gateway = GatewaySetup::new().fake("fx", &Fake::stdio("both")).start();
    gateway.wait_for_tools(&["fx__echo"]);
    let status: Value = serde_json::from_slice(&ok(&gateway, &["status", "--json"]).stdout).unwrap();
    assert!(status.to_string().contains("\"fx\""), "{status}");
    assert!(!ok(&gateway, &["status"]).stdout.is_empty());
    let tools: Value = serde_json::from_slice(&ok(&gateway, &["tools", "--json"]).stdout).unwrap();
    assert!(tools.to_string().contains("fx__echo"), "{tools}");
    let called = ok(&gateway, &["call", "fx__echo", r#"{"text":"by hand"}"#]);
    assert!(String::from_utf8_lossy(&called.stdout).contains("by hand"));
    assert_eq!(gateway.run(&["call", "fx__fail"]).status.code(), Some(1));
    assert!(!gateway.run(&["call", "fx__nope"]).status.success());
    for args in [&["tools"][..], &["status"], &["reload"]] {
        ok(&gateway, args);
    }
}

#[test]
fn the_token_is_made_once_and_only_its_owner_reads_it() {
    let mut gateway = GatewaySetup::new().start();
    let token = gateway.token().unwrap();
    assert!(token.len() >= 20, "{} characters", token.len());
    let path = gateway.world.path("state/headend/token");
    assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
    gateway.signal(Signal::TERM);
    assert!(gateway.wait(Duration::from_secs(60)).is_some());
    let again = Gateway::start(gateway.world.clone(), Some(gateway.config.clone()), &["serve"], &[]);
    assert_eq!(again.token(), Some(token));
    assert!(again.modern().tool_names().is_empty(), "the old token is good for the new daemon");
}

#[test]
fn check_prints_every_problem_at_once_and_exits_with_78() {
    let (world, _) = GatewaySetup::new().write();
    let path =
        world.write("bad.toml", "[upstreams.Bad]\ncommand = []\n[upstreams.ok]\nurl = \"ftp://x\"\nnonsense = 1\n");
    let refused = world.run(&["check", "--config", path.to_str().unwrap()]);
    assert_eq!(refused.status.code(), Some(78), "{}", said(&refused));
    let serve = world.run(&["serve", "--config", path.to_str().unwrap()]);
    assert_eq!(serve.status.code(), Some(78), "{}", said(&serve));

    let secret = GatewaySetup::new()
        .toml("[upstreams.docs]\nurl = \"https://docs.example.com/mcp\"\nheaders = { Authorization = { env = \"DOCS_AUTH\" } }");
    let (world, path) = secret.write();
    let variables = [("DOCS_AUTH".to_owned(), "Bearer canary-4711".to_owned())];
    let good = world.run_in(&["check", "--resolved", "--config", path.to_str().unwrap()], &variables);
    assert!(good.status.success(), "{}", said(&good));
    assert!(String::from_utf8_lossy(&good.stdout).contains("docs.example.com"), "{}", said(&good));
    assert!(!said(&good).contains("canary-4711"), "secrets are redacted");
}

#[test]
fn configurations_of_known_hosts_import_to_files_that_check_accepts() {
    const SAMPLES: &[(&str, &str, &[&str])] = &[
        (
            "claude_desktop_config.json",
            r#"{"mcpServers":{"files":{"command":"npx","args":["-y","@modelcontextprotocol/server-filesystem@1","/srv"],"env":{"A":"b"}}}}"#,
            &["upstreams.files", "server-filesystem"],
        ),
        (
            ".mcp.json",
            r#"{"mcpServers":{"docs":{"type":"http","url":"https://docs.example.com/mcp","headers":{"Authorization":"Bearer ${DOCS_TOKEN}"}},"time":{"type":"stdio","command":"mcp-server-time","args":[]}}}"#,
            &["upstreams.docs", "https://docs.example.com/mcp", "upstreams.time"],
        ),
        ("cursor-mcp.json", r#"{"mcpServers":{"web":{"url":"https://web.example.com/mcp"}}}"#, &["upstreams.web"]),
        (
            "vscode-mcp.json",
            "{\n  // a comment\n  \"servers\": {\"git\": {\"type\": \"stdio\", \"command\": \"uvx\", \"args\": [\"mcp-server-git\"]},},\n  \"inputs\": []\n}",
            &["upstreams.git", "mcp-server-git"],
        ),
        (
            "zed-settings.json",
            r#"{"context_servers":{"pg":{"command":"pg-mcp","args":["--ro"],"env":{}}}}"#,
            &["upstreams.pg", "--ro"],
        ),
    ];
    let world = TestHome::new();
    let mut inputs: Vec<(String, Vec<String>)> = Vec::new();
    for (name, text, wanted) in SAMPLES {
        let path = world.write(&format!("work/{name}"), text);
        inputs.push((path.to_str().unwrap().to_owned(), wanted.iter().map(|&w| w.to_owned()).collect()));
    }
    let shipped = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data/import");
    for entry in fs::read_dir(shipped).into_iter().flatten().flatten() {
        if entry.path().extension().is_some_and(|extension| extension == "json") {
            inputs.push((entry.path().to_str().unwrap().to_owned(), Vec::new()));
        }
    }
    for (path, wanted) in inputs {
        let imported = world.run(&["import", &path]);
        assert!(imported.status.success(), "{path}: {}", said(&imported));
        let toml = String::from_utf8(imported.stdout).unwrap();
        assert!(wanted.iter().all(|text| toml.contains(text.as_str())), "{path}: {wanted:?} in\n{toml}");
        let file = world.write("imported.toml", &toml);
        let variables = [("DOCS_TOKEN".to_owned(), "x".to_owned())];
        let checked = world.run_in(&["check", "--config", file.to_str().unwrap()], &variables);
        assert!(checked.status.success(), "{path}: {}\n{toml}", said(&checked));
    }
}

#[test]
fn it_serves_before_any_upstream_has_answered() {
    let setup = GatewaySetup::new().fake("slow", &Fake::stdio("legacy").behaving("never-answer"));
    let begun = now();
    let gateway = setup.start();
    let answer = gateway.modern().request("server/discover", json!({}));
    assert!(answer.message.get("result").is_some(), "{}", answer.raw);
    // The handshake, which is given up after two minutes, delays nothing.
    assert!(now() - begun < Duration::from_secs(2), "{:?}", now() - begun);
}

fn ok(gateway: &Gateway, args: &[&str]) -> Output {
    let output = gateway.run(args);
    assert!(output.status.success(), "headend {args:?}: {}", said(&output));
    output
}
