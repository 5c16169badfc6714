//! `headend add` and `headend remove` with real servers: a package of npm, one of `PyPI`, an
//! address, and a `server.json`.

use std::fs;
use std::process::{Output, Stdio};
use std::time::Duration;

use serde_json::json;

use super::PeerFolders;
use crate::harness::{Gateway, TestHome, headend};
use crate::process::{output_within, said};
use crate::upstream::Listening;

/// Version of the official servers in `tests/peers/package.json`.
const VERSION: &str = "2026.8.31";

/// Runs `headend add ARGS --yes`.
fn add(world: &TestHome, args: &[&str]) -> Output {
    let mut command = world.command(headend());
    // No package is fetched: npx finds it in the `node_modules` of the working directory.
    command.args(["add", "--yes"]).args(args).env("npm_config_offline", "true");
    let child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    output_within(child, Duration::from_secs(120), &format!("headend add {args:?}"))
}

#[test]
fn real_servers_are_added_called_and_removed_one_by_one() {
    let Some(peers) = PeerFolders::find() else { return };
    let world = TestHome::new();
    let folder = peers.folder();
    std::os::unix::fs::symlink(folder.join("node_modules"), world.path("work/node_modules")).unwrap();
    let config = world.path("config/headend/headend.toml");
    let time = peers.python("mcp-server-time");
    let described = json!({"name": "io.example/described", "version": "1.0.0", "packages": [{
        "registryType": "npm", "identifier": "@modelcontextprotocol/server-everything", "version": VERSION,
        "transport": {"type": "stdio"}, "packageArguments": [{"type": "positional", "value": "stdio"}]}]});
    world.write("work/server.json", &described.to_string());
    let script = crate::ground::root().join("tests/peers/everything.mjs").to_str().unwrap().to_owned();
    let listening =
        Listening::spawn(&peers.node(), &[script, folder.to_str().unwrap().to_owned(), "streamableHttp".to_owned()]);

    let memory = format!("@modelcontextprotocol/server-memory@{VERSION}");
    let cases: [(&str, Vec<&str>, &str); 4] = [
        ("memory", vec!["memory", "--", "npx", "-y", &memory], "read_graph"),
        ("time", vec!["time", "--", time.to_str().unwrap(), "--local-timezone=UTC"], "get_current_time"),
        ("remote", vec!["remote", &listening.url], "echo"),
        ("described", vec!["server.json"], "echo"),
    ];
    for (name, args, tool) in &cases {
        let before = fs::read(&config).ok();
        let added = add(&world, args);
        assert!(added.status.success() && said(&added).contains(tool), "{name}: {}", said(&added));
        // A second one of that name, and one that fails, change nothing.
        let after = fs::read(&config).unwrap();
        assert_ne!(before, Some(after.clone()), "{name}");
        assert_eq!(add(&world, args).status.code(), Some(1), "{name}");
        assert_eq!(fs::read(&config).unwrap(), after, "{name}");
    }
    let before = fs::read(&config).unwrap();
    for args in [
        vec!["typo", "--", "npx", "-y", "@modelcontextprotocol/server-memroy@1.0.0"],
        // The variable also holds for npm, which is asked for the version.
        vec!["typo", "--env", "npm_config_offline=true", "--", "npx", "-y", "@modelcontextprotocol/server-memory"],
        vec!["typo", "http://127.0.0.1:9/mcp"],
        vec!["typo", "--", "/bin/false"],
    ] {
        let failed = add(&world, &args);
        assert_eq!(failed.status.code(), Some(1), "{args:?}: {}", said(&failed));
        assert_eq!(fs::read(&config).unwrap(), before, "{args:?}");
    }

    let own = fs::read_to_string(&config).unwrap().replace("default = \"ask\"", "default = \"allow\"");
    let ports = "\n[server]\nlisten = [\"127.0.0.1:0\"]\n[metrics]\nlisten = \"\"\n[console]\nlisten = \"\"\n";
    fs::write(&config, own + ports).unwrap();
    let gateway = Gateway::start(world, None, &["serve"], &[]);
    gateway.wait_for_tools(&["memory__read_graph", "time__get_current_time", "remote__echo", "described__echo"]);
    let read = gateway.run(&["call", "memory__read_graph", "{}"]);
    assert!(read.status.success(), "{}", said(&read));
    for (name, _, tool) in cases {
        let removed = gateway.run(&["remove", name, "--yes"]);
        assert!(removed.status.success(), "{name}: {}", said(&removed));
        assert!(!said(&gateway.run(&["tools"])).contains(&format!("{name}__{tool}")), "{name}");
    }
    let left = fs::read_to_string(&config).unwrap();
    assert!(!left.contains("\n[upstreams.") && left.ends_with(ports), "{left}");
}
