//! Tests of `headend import`: files in the real formats of two dozen hosts are imported, checked
//! and imported again.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;

use crate::tools::harness::{TestHome, headend};
use crate::tools::process::{output_within, said};
use crate::tools::terminal::Terminal;

/// Copies the hosts' files: files of a user into the home and configuration folders, files of a
/// project into the working directory.
fn hosts(world: &TestHome) -> Vec<PathBuf> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data/hosts");
    let mut files = Vec::new();
    for (from, to) in [("home", "home"), ("home/config", "config"), ("project", "work")] {
        copy(&root.join(from), &world.path(to), &mut files);
    }
    fs::remove_dir_all(world.path("home/config")).unwrap();
    files.retain(|file| file.exists());
    files
}

fn copy(from: &Path, to: &Path, files: &mut Vec<PathBuf>) {
    fs::create_dir_all(to).unwrap();
    for entry in fs::read_dir(from).unwrap().flatten() {
        let to = to.join(entry.file_name());
        if entry.path().is_dir() {
            copy(&entry.path(), &to, files);
        } else {
            fs::copy(entry.path(), &to).unwrap();
            files.push(to);
        }
    }
}

/// Runs `headend import` and checks that its output contains no secret of the files.
fn import(world: &TestHome, args: &[&str]) -> String {
    let output = world.run(&[&["import"], args].concat());
    let said = said(&output);
    assert!(output.status.success(), "{args:?}: {said}");
    assert!(!said.contains("canary"), "{args:?}: {said}");
    said
}

fn check(world: &TestHome) -> String {
    let mut command = world.command(headend());
    command.arg("check").stdout(Stdio::piped()).stderr(Stdio::piped());
    let checked = output_within(command.spawn().unwrap(), Duration::from_secs(30), "headend check");
    let said = said(&checked);
    assert!(checked.status.success(), "{said}");
    said
}

#[test]
fn files_of_many_hosts_become_one_configuration_without_secrets() {
    let world = TestHome::new();
    let files = hosts(&world);
    let secret = |file: &&PathBuf| fs::read_to_string(file).unwrap().contains("canary");
    assert!(files.iter().filter(secret).count() >= 20, "{files:?}");
    let config = world.path("config/headend/headend.toml");

    // A fresh machine: neither the folder nor the file is there.
    let said = import(&world, &["--write"]);
    let first = fs::read_to_string(&config).unwrap();
    let mode = |path: &Path| fs::metadata(path).unwrap().permissions().mode() & 0o777;
    assert_eq!((mode(&config), mode(config.parent().unwrap())), (0o600, 0o700));
    assert!(said.contains("Made ") && said.contains("Next: `headend check`"), "{said}");
    assert!(said.contains("not read, since a project's file may come from others"), "{said}");
    for variable in ["GITHUB_PERSONAL_ACCESS_TOKEN", "CONNECTION_STRING", "TAVILY_API_KEY", "GITLAB_TOKEN"] {
        assert!(said.contains(&format!("  {variable}\n")), "{variable}: {said}");
    }

    // A project's files, by name; the file is only added to.
    let project = [
        ".mcp.json",
        ".vscode/mcp.json",
        ".cursor/mcp.json",
        "opencode.json",
        "registry/server.json",
        "bundle/manifest.json",
    ];
    let args = [&["--write"], &project[..]].concat();
    let said = import(&world, &args);
    let second = fs::read_to_string(&config).unwrap();
    assert!(second.starts_with(&first) && second.len() > first.len(), "{said}");
    assert!(said.contains("Added to "), "{said}");

    // Nothing else was written: all other files belong to hosts or to this test.
    assert!(!second.contains("canary"), "{second}");
    let beside: Vec<_> =
        fs::read_dir(config.parent().unwrap()).unwrap().flatten().map(|entry| entry.file_name()).collect();
    assert_eq!(beside, ["headend.toml"]);

    // A second run changes nothing.
    for args in [&["--write"][..], &args] {
        assert!(import(&world, args).contains("Nothing to add"), "{args:?}");
        assert_eq!(fs::read_to_string(&config).unwrap(), second, "{args:?}");
    }

    let checked = check(&world);
    assert!(!checked.contains("canary"), "{checked}");
    let table: toml::Table = second.parse().unwrap();
    let upstreams = table["upstreams"].as_table().unwrap();
    let is_on = |name: &str| upstreams[name].get("enabled").is_none();
    let off: Vec<&String> = upstreams.keys().filter(|name| name.starts_with("off")).collect();
    assert!(off.len() >= 8 && off.iter().all(|name| !is_on(name)), "{off:?}\n{second}");
    for name in [
        "filesystem",
        "github",
        "linear",
        "sentry",
        "pg",
        "context7",
        "weather",
        "gh",
        "tavily",
        "search-2",
        "jira",
        "supabase",
        "exa",
        "notes",
    ] {
        assert!(upstreams.contains_key(name), "{name}: {second}");
    }
    assert!(!upstreams.contains_key("headend") && !upstreams.contains_key("developer"), "{second}");
    // Two hosts start the same server: one upstream with both as its source.
    assert!(!upstreams.contains_key("filesystem-2") && second.matches("# \"filesystem\" of ").count() == 2, "{second}");
    carried_over(&second);
}

/// Checks that settings of hosts about tools, approvals and time-outs are carried over.
fn carried_over(text: &str) {
    for wanted in [
        // The bridge is gone, and its header with it.
        "[upstreams.linear]\nurl = \"https://mcp.linear.example.com/sse\"\nheaders = { Authorization = { env = ",
        "\"-e\", \"GITHUB_PERSONAL_ACCESS_TOKEN\", \"ghcr.io/github/github-mcp-server\"]",
        "env = { GITHUB_PERSONAL_ACCESS_TOKEN = { env = \"GITHUB_PERSONAL_ACCESS_TOKEN\" } }",
        "X-Trace = { env = \"TRACE_ID\" }, Authorization = { env = \"GITLAB_TOKEN\", prefix = \"Bearer \" } }",
        "tools = { deny = [\"delete_project\"] }",
        "tools = { deny = [\"execute_sql\", \"apply?migration\"] }",
        "tools = { allow = [\"one\", \"two\"] }",
        "tools = { deny = [\"*\"] }",
        "tools = { allow = [\"resolve-library-id\", \"get-library-docs\"] }",
        "call-timeout = \"90500ms\"\nstart-timeout = \"20s\"",
        "call-timeout = \"300s\"",
        "start-timeout = \"8s\"",
        "default = \"ask\"",
        "claims = { read-only = true, open-world = false }",
        "tools = [\"firecrawl__firecrawl_search\"]",
        "tools = [\"context7__get-library-docs\"]",
        "tools = [\"tavily__tavily_search\"]",
        "tools = [\"pg__query\"]",
        "upstreams = [\"weather\"]",
        "upstreams = [\"playwright\"]",
        "upstreams = [\"aws-docs\"]",
    ] {
        assert!(text.contains(wanted), "{wanted}\n{text}");
    }
}

#[test]
fn import_adds_to_a_file_and_leaves_the_rest_as_it_is() {
    let world = TestHome::new();
    fs::create_dir(world.path("config/headend")).unwrap();
    let before =
        "# mine\r\n[upstreams.git]\r\ncommand = [\"/bin/git-mcp\"] # by hand\r\nenv = { TOKEN = { env = \"TOKEN\" } }";
    let config = world.write("config/headend/headend.toml", before);
    let json = r#"{"mcpServers":{"git":{"command":"/bin/other","env":{"TOKEN":"canary"},"autoApprove":["log"]}}}"#;
    world.write("work/mcp.json", json);
    let told = import(&world, &["--write", "mcp.json"]);
    let after = fs::read_to_string(&config).unwrap();
    let added = after.strip_prefix(before).unwrap().replace("\r\n", "\n");
    // Another server, so another name and another variable; the default of a file without a policy
    // stays.
    assert!(
        added.contains("[upstreams.git-2]\ncommand = [\"/bin/other\"]\nenv = { TOKEN = { env = \"GIT_2_TOKEN\" } }"),
        "{added}"
    );
    assert!(!added.contains("[policy]") && added.contains("tools = [\"git-2__log\"]"), "{added}");
    assert!(told.contains("the policy that is there stays (default = \"ask\")"), "{told}");
    check(&world);

    // Nothing is written beside a mistake, nor where the addition would not fit.
    for (broken, why) in [
        ("[upstreams.git]\ncommand = 1\n", "mend the configuration first"),
        ("upstreams = {}\n", "nothing was written"),
    ] {
        world.write("config/headend/headend.toml", broken);
        let refused = world.run(&["import", "--write", "mcp.json"]);
        assert!(!refused.status.success() && said(&refused).contains(why), "{}", said(&refused));
        assert_eq!(fs::read_to_string(&config).unwrap(), broken);
    }
}

#[test]
fn servers_that_may_want_a_login_are_named_with_the_line_to_type() {
    let world = TestHome::new();
    let servers = [
        r#""docs":{"type":"http","url":"https://docs.example.com/mcp"}"#,
        r#""tracker":{"command":"npx","args":["-y","mcp-remote","https://tracker.example.com/sse"]}"#,
        r#""keyed":{"url":"https://keyed.example.com/mcp","headers":{"X-Api-Key":"canary-0123456789abcdef"}}"#,
        r#""in-url":{"url":"https://in-url.example.com/mcp?token=canary-0123456789abcdef"}"#,
        r#""off":{"url":"https://off.example.com/mcp","disabled":true}"#,
        r#""here":{"url":"http://127.0.0.1:9/mcp"}"#,
        r#""local":{"command":"/bin/local"}"#,
    ];
    world.write("work/mcp.json", &format!("{{\"mcpServers\":{{{}}}}}", servers.join(",")));
    let told = import(&world, &["--write", "mcp.json"]);
    let named: Vec<&str> = told.lines().filter_map(|line| line.trim().strip_prefix("headend login ")).collect();
    assert_eq!(named, ["docs", "tracker"], "{told}");
    assert!(told.contains("needs-login"), "{told}");
    let text = fs::read_to_string(world.path("config/headend/headend.toml")).unwrap();
    assert!(text.contains("[upstreams.tracker]\nurl = \"https://tracker.example.com/sse\""), "{text}");
}

#[test]
fn a_linked_configuration_stays_a_link() {
    let world = TestHome::new();
    fs::create_dir(world.path("config/headend")).unwrap();
    let real = world.write("work/dotfiles.toml", "[log]\nfilter = \"warn\"\n");
    let link = world.path("config/headend/headend.toml");
    std::os::unix::fs::symlink(&real, &link).unwrap();
    world.write("work/mcp.json", r#"{"mcpServers":{"a":{"command":"/bin/a"}}}"#);
    let said = import(&world, &["--write", "mcp.json"]);
    assert!(fs::symlink_metadata(&link).unwrap().is_symlink());
    let text = fs::read_to_string(&real).unwrap();
    assert!(
        text.starts_with("[log]") && text.contains("[upstreams.a]") && text.contains("default = \"ask\""),
        "{text}"
    );
    assert!(
        said.contains("your hosts' files do not say which tools of a may run unasked") && said.contains("--allow-all"),
        "{said}"
    );
}

#[test]
fn without_a_terminal_every_call_is_allowed_by_a_flag_alone() {
    let world = TestHome::new();
    world.write("work/mcp.json", r#"{"mcpServers":{"a":{"command":"/bin/a"}}}"#);
    let said = import(&world, &["--write", "--allow-all", "mcp.json"]);
    let text = fs::read_to_string(world.path("config/headend/headend.toml")).unwrap();
    assert!(text.contains("default = \"allow\""), "{text}");
    assert!(said.contains("every call is allowed"), "{said}");
}

#[test]
fn a_terminal_is_asked_what_the_hosts_leave_open() {
    for (answer, wanted) in [("y\r", "default = \"allow\""), ("\r", "default = \"ask\"")] {
        let world = TestHome::new();
        world.write("work/mcp.json", r#"{"mcpServers":{"a":{"command":"/bin/a"}}}"#);
        let mut terminal = Terminal::start(&world, &["import", "--write", "mcp.json"], "");
        terminal.wait_for("[y/N]");
        terminal.type_in(answer);
        let (code, screen) = terminal.end();
        assert_eq!(code, Some(0), "{screen}");
        let text = fs::read_to_string(world.path("config/headend/headend.toml")).unwrap();
        assert!(text.contains(wanted), "{text}\n{screen}");
    }
}

#[test]
fn without_files_of_hosts_import_says_what_to_do() {
    let world = TestHome::new();
    let refused = world.run(&["import", "--write"]);
    assert_eq!(refused.status.code(), Some(1));
    assert!(said(&refused).contains("headend import FILE"), "{}", said(&refused));
    assert!(!world.path("config/headend").exists());
}
