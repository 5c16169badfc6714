//! Tests of `headend connect` and `disconnect` as a person runs them: at a terminal, in a project,
//! and without a terminal.

use std::fs;

use crate::tools::harness::{GatewaySetup, TestHome, headend};
use crate::tools::process::said;
use crate::tools::terminal::Terminal;

const CURSOR: &str = "{\n  // mine\n  \"mcpServers\": {\n    \"a\": { \"command\": \"/bin/a\" }\n  }\n}\n";

#[test]
fn the_change_is_shown_and_made_after_a_yes_alone() {
    let world = TestHome::new();
    fs::create_dir_all(world.path("home/.cursor")).unwrap();
    let file = world.write("home/.cursor/mcp.json", CURSOR);
    let refused = world.run(&["connect", "cursor"]);
    assert_eq!(refused.status.code(), Some(64), "{}", said(&refused));
    assert!(said(&refused).contains("--yes makes the change"), "{}", said(&refused));
    for (command, answer, code, is_connected) in [
        (&["connect", "cursor", "--move"][..], "n\n", 1, false),
        (&["connect", "cursor", "--move"], "y\n", 0, true),
        (&["disconnect", "cursor"], "\n", 1, true),
        (&["disconnect", "cursor"], "y\n", 0, false),
    ] {
        let mut terminal = Terminal::start(&world, command, "");
        terminal.wait_for("Make this change? [y/N]");
        terminal.type_in(answer);
        let (ended, screen) = terminal.end();
        assert_eq!(ended, Some(code), "{screen}");
        let text = fs::read_to_string(&file).unwrap();
        assert_eq!(text != CURSOR, is_connected, "{text}\n{screen}");
        assert_eq!(text.contains(headend()), is_connected, "the absolute path of the program: {text}");
        assert!(screen.contains("/bin/a"), "{screen}");
    }
}

#[test]
fn a_project_has_an_entry_of_its_own() {
    let world = TestHome::new();
    let own = world.path("config/own.toml");
    let upstream = "[upstreams.a]\ncommand = [\"/bin/a\"]\n[profiles.reading]\nupstreams = [\"a\"]\n";
    fs::write(&own, format!("[policy]\ndefault = \"ask\"\n{upstream}")).unwrap();
    let file = world.path("work/.mcp.json");
    let config = own.to_str().unwrap();
    let wrong = world.run(&["connect", "claude-code", "--profile", "readin", "--print", "--config", config]);
    assert!(said(&wrong).contains("no profile `readin`; did you mean `reading`?"), "{}", said(&wrong));
    let words = ["connect", "claude-code", "--scope", "project", "--profile", "reading", "--yes", "--config", config];
    let done = world.run(&words);
    assert!(done.status.success(), "{}", said(&done));
    let text: serde_json::Value = serde_json::from_str(&fs::read_to_string(&file).unwrap()).unwrap();
    let args = text["mcpServers"]["headend"]["args"].as_array().unwrap();
    let args: Vec<&str> = args.iter().filter_map(|arg| arg.as_str()).collect();
    assert_eq!((args[0], args[1], args[2]), ("stdio", "--config", config), "{args:?}");
    assert_eq!(args[args.len() - 2..], ["--profile", "reading"]);
    assert!(said(&world.run(&["connect"])).contains("claude-code (project)"), "it is listed");
    let undone = world.run(&["disconnect", "claude-code", "--scope", "project", "--yes"]);
    assert!(undone.status.success() && !file.exists(), "{}", said(&undone));
}

#[test]
fn a_running_daemon_takes_servers_whose_variables_it_has_by_one_reload() {
    let gateway = GatewaySetup::new().env("SHARED", "same").env("OTHER", "theirs").start();
    let world = &gateway.world;
    fs::create_dir_all(world.path("home/.cursor")).unwrap();
    let server = |name: &str, value: &str| {
        format!("\"{name}\": {{\"command\": \"/bin/cat\", \"args\": [\"{name}\"], \"env\": {{\"X\": \"{value}\"}}}}")
    };
    let variables = [("a", "${env:SHARED}"), ("b", "${env:OTHER}"), ("c", "${env:NONE}"), ("d", "d"), ("e", "e")];
    let servers = variables.map(|(name, value)| server(name, value)).join(", ");
    let file = world.write("home/.cursor/mcp.json", &format!("{{\"mcpServers\": {{{servers}}}}}"));
    let before = fs::read_to_string(&file).unwrap();
    let config = gateway.config.to_str().unwrap();
    let run = |words: &[&str]| {
        let mut command = world.command(headend());
        command.args(words).args(["--yes", "--config", config]);
        let output = command.envs([("SHARED", "same"), ("OTHER", "mine"), ("NONE", "mine")]).output().unwrap();
        assert!(output.status.success(), "{words:?}: {}", said(&output));
        said(&output).split_whitespace().collect::<Vec<_>>().join(" ")
    };
    let told = run(&["connect", "cursor", "--move"]);
    for name in ["b: the running daemon does not have OTHER", "c: the running daemon does not have NONE"] {
        assert!(told.contains(name), "{told}");
    }
    assert!(told.contains(": a, d, e;"), "{told}");
    let actions = || {
        let tail = said(&gateway.run(&["audit", "tail", "--json", "-n", "1000"]));
        tail.matches("\"action\":\"reload\"").count() + tail.matches("\"action\":\"disable\"").count()
    };
    let earlier = actions();
    let told = run(&["disconnect", "cursor"]);
    assert!(told.contains(": a, d, e;"), "{told}");
    assert_eq!(fs::read_to_string(&file).unwrap(), before);
    // The daemon watches its file, and may have read it before it was asked to.
    assert!((1..=2).contains(&(actions() - earlier)), "one reload for three servers");
}
