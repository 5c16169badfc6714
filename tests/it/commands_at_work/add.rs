//! Tests of `headend add` and `headend remove`: what they show, start and write, and that every
//! failure leaves the configuration as it was.

use std::fs;
use std::io::{Read as _, Write as _};
use std::net::TcpListener;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::process::{Output, Stdio};
use std::thread;
use std::time::Duration;

use crate::tools::harness::{GatewaySetup, TestHome, headend};
use crate::tools::process::{eventually, free_port, output_within, said};
use crate::tools::terminal::Terminal;
use crate::tools::upstream::Fake;

/// A configuration with comments, a lasting upstream and odd spaces.
const OWN: &str =
    "# Mine.\n\n[policy]\ndefault = \"allow\"   # all\n\n[upstreams.old]\ncommand = [\"/bin/true\"]\nenabled = false\n";

/// Runs `headend ARGS` with these variables and the programs of `work/bin` first in the PATH.
fn run(world: &TestHome, args: &[&str], variables: &[(&str, &str)]) -> Output {
    let mut command = world.command(headend());
    let path = format!("{}:{}", world.path("work/bin").display(), std::env::var("PATH").unwrap());
    command.args(args).env("PATH", path).envs(variables.iter().copied());
    let child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    output_within(child, Duration::from_secs(60), &format!("headend {args:?}"))
}

/// Writes a shell script into `work/bin`.
fn script(world: &TestHome, name: &str, text: &str) {
    fs::create_dir_all(world.path("work/bin")).unwrap();
    let path = world.path("work/bin").join(name);
    fs::write(&path, format!("#!/bin/sh\n{text}\n")).unwrap();
    fs::set_permissions(&path, fs::Permissions::from_mode(0o700)).unwrap();
}

fn mode(path: &Path) -> u32 {
    fs::metadata(path).unwrap().permissions().mode() & 0o777
}

#[test]
fn a_server_is_shown_started_and_added_and_its_removal_restores_the_file() {
    let world = TestHome::new();
    let config = world.path("config/headend/headend.toml");
    let words = ["add", "time", "--yes", "--", headend(), "demo", "time"];
    let added = world.run(&words);
    let told = said(&added);
    assert!(added.status.success(), "{told}");
    let command = format!("command = [{:?}, \"demo\", \"time\"]", headend());
    for part in [command.as_str(), "time has 2 tools", "now ", "added time to"] {
        assert!(told.contains(part), "{part}: {told}");
    }
    let written = fs::read_to_string(&config).unwrap();
    assert!(
        written.ends_with(&format!("[upstreams.time]\ncommand = [\"{}\", \"demo\", \"time\"]\n", headend())),
        "{written}"
    );
    assert_eq!((mode(&config), mode(config.parent().unwrap())), (0o600, 0o700));
    assert!(said(&world.run(&["check"])).contains("ok: 1 upstream"));

    let again = world.run(&words);
    assert_eq!(again.status.code(), Some(1), "{}", said(&again));
    assert!(said(&again).contains("is there already"), "{}", said(&again));
    assert_eq!(fs::read_to_string(&config).unwrap(), written);

    let removed = world.run(&["remove", "time", "--yes"]);
    assert!(removed.status.success(), "{}", said(&removed));
    let other = TestHome::new();
    other.run(&["init"]);
    let first = fs::read_to_string(other.path("config/headend/headend.toml")).unwrap();
    assert_eq!(fs::read_to_string(&config).unwrap(), first);
    let again = world.run(&["remove", "time", "--yes"]);
    assert!(again.status.code() == Some(1) && said(&again).contains("no configuration file has"), "{}", said(&again));
}

#[test]
fn every_failure_leaves_the_configuration_as_it_was() {
    let world = TestHome::new();
    fs::create_dir(world.path("config/headend")).unwrap();
    let config = world.write("config/headend/headend.toml", OWN);
    fs::set_permissions(&config, fs::Permissions::from_mode(0o640)).unwrap();
    script(&world, "fails", "echo no licence was found >&2; exit 3");
    script(&world, "npm", "echo 'npm error 404 not found' >&2; exit 1");
    script(&world, "npx", "exit 1");
    world.write(
        "work/empty.json",
        r#"{"name": "io.example/empty", "packages": [{"registryType": "mcpb", "identifier": "x"}]}"#,
    );
    world.write("work/hosts.json", r#"{"mcpServers": {"a": {"command": "a"}, "b": {"command": "b"}}}"#);
    world.write(
        "work/needs.json",
        r#"{"name": "io.example/needs", "version": "1.0.0", "packages": [{"registryType": "npm",
        "identifier": "needs", "version": "1.0.0", "environmentVariables": [{"name": "NEEDS_KEY", "isRequired": true,
        "isSecret": true, "description": "The key of the shop"}]}]}"#,
    );
    world.write(
        "work/option.json",
        r#"{"name": "io.example/option", "packages": [{"registryType": "npm", "identifier": "--registry=http://evil.example", "version": "1.0.0"},
            {"registryType": "npm", "identifier": "evil/repository", "version": "1.0.0"},
            {"registryType": "npm", "identifier": "range", "version": "^1.0.0"},
            {"registryType": "pypi", "identifier": "-e .", "version": "1.0.0"}]}"#,
    );
    world.write(
        "work/huge.json",
        &format!(r#"{{"name": "io.example/huge", "packages": [], "x": "{}"}}"#, "x".repeat(300_000)),
    );
    let long = "long".repeat(2_000);
    let dead = format!("http://127.0.0.1:{}/mcp", free_port());
    let secret = "ghp_0123456789abcdefghijklmnopqrstuvwxyz";
    let pair = format!("GITHUB_TOKEN={secret}");
    let cases: &[(&[&str], &str)] = &[
        (&["old", "--yes", "--", "fails"], "is there already"),
        (&["Bad_Name", "--yes", "--", "fails"], "cannot be a name"),
        (&[&long, "--yes", "--", "fails"], "cannot be a name"),
        (&["x", "--yes", &long], "neither an address nor a file"),
        (&["x\u{1b}[31m\u{202e}", "--yes", "--", "fails"], r"x\u{1b}[31m\u{202e}"),
        (&["x", "--yes", "--", "no-such-program"], "not found"),
        (&["x", "--yes", "--", "/"], "no program at"),
        (&["x", "--yes", "--header", "A: b", "--", "fails"], "a program gets no header"),
        (&["x", "--yes", "--env", "A=b", &dead], "has no variable `A`"),
        (&["x", "--yes", "--env-from", "A=/a}b", "--", "fails"], "must not contain `}`"),
        (&["x", "--yes", "https://me:ghp_0123456789abcdefghijklmnopqrstuvwxyz@a.example.com/"], "no user, password"),
        (&["x", "--yes", "--env", &pair, "--", "fails"], "GITHUB_TOKEN"),
        (&["x", "--yes", "--", "fails"], "no licence was found"),
        (&["x", "--yes", &dead], "it is down"),
        (&["x", "--yes", "http://server.example.com/mcp"], "https"),
        (&["x", "--yes", "fails"], "headend add NAME -- COMMAND"),
        (&["x", "--yes"], "headend add NAME -- COMMAND"),
        (&["x", "--yes", "https://a.example.com", "--", "fails"], "cannot be used with"),
        (&["x", "--", "fails"], "--yes answers the question"),
        (&["x", "--yes", "--env", "NAME", "--", "fails"], "write NAME=VALUE"),
        (&["x", "--yes", "--", "npx", "-y", "files"], "write one yourself, as in files@VERSION"),
        (&["empty.json", "--yes"], "neither a package that"),
        (&["hosts.json", "--yes"], "headend import"),
        (&["needs.json", "--yes"], "The key of the shop"),
        (&["needs.json", "--yes"], "--env-from NAME=FILE"),
        (&["option.json", "--yes"], "neither a package that"),
        (&["huge.json", "--yes"], "is larger than"),
        (&["x", "--dry-run", "--", "fails"], ""),
    ];
    for (args, part) in cases {
        let output = run(&world, &[&["add"], *args].concat(), &[]);
        let told = said(&output);
        assert_eq!(output.status.success(), part.is_empty(), "{args:?}: {told}");
        assert!(told.contains(part) && !told.contains(secret) && told.len() < 3_000, "{args:?}: {told}");
        assert_eq!((fs::read_to_string(&config).unwrap().as_str(), mode(&config)), (OWN, 0o640), "{args:?}: {told}");
        assert_eq!(fs::read_dir(config.parent().unwrap()).unwrap().count(), 1, "{args:?}");
    }
}

#[test]
fn ctrl_c_and_a_no_leave_the_configuration_and_no_process() {
    let world = TestHome::new();
    fs::create_dir(world.path("config/headend")).unwrap();
    let config = world.write("config/headend/headend.toml", OWN);
    let pid = world.path("work/pid");
    script(&world, "deaf", &format!("echo warming up >&2; echo $$ > {}; exec sleep 1000", pid.display()));
    let deaf = world.path("work/bin/deaf");
    let words = ["add", "deaf", "--", deaf.to_str().unwrap()];

    let mut no = Terminal::start(&world, &words, "");
    no.wait_for("[y/N] ");
    no.type_in("n\n");
    let (code, screen) = no.end();
    assert!(code == Some(1) && screen.contains("nothing was changed") && !pid.exists(), "{screen}");

    let mut yes = Terminal::start(&world, &words, "");
    yes.wait_for("[y/N] ");
    yes.type_in("y\n");
    yes.wait_for("warming up");
    let (code, screen) = yes.interrupted();
    assert!(code == Some(1) && screen.contains("the configuration is as it was"), "{screen}");
    assert!(screen.lines().all(|line| line.len() <= 120), "{screen}");
    let pid = fs::read_to_string(pid).unwrap();
    eventually("the program has ended", || !Path::new(&format!("/proc/{}", pid.trim())).exists());
    assert_eq!(fs::read_to_string(&config).unwrap(), OWN);
}

#[test]
fn a_signal_ends_the_question_for_a_version_and_the_trial_and_adds_nothing() {
    let world = TestHome::new();
    let [asked, stops] = ["work/asked", "work/stops"].map(|name| world.path(name));
    script(&world, "npx", "exit 1");
    script(&world, "npm", &format!("sleep 1000 & echo $! > {}; wait", asked.display()));
    let path = format!("PATH={}:{}", world.path("work/bin").display(), std::env::var("PATH").unwrap());
    let words = [path.as_str(), headend(), "add", "x", "--yes", "--", "npx", "files"];
    let terminal = Terminal::by(&world, "env", &words);
    eventually("npm is asked", || fs::read_to_string(&asked).is_ok_and(|pid| pid.ends_with('\n')));
    let (code, screen) = terminal.interrupted();
    assert!(code != Some(0), "{screen}");
    let pid = fs::read_to_string(&asked).unwrap();
    eventually("npm has ended", || !Path::new(&format!("/proc/{}", pid.trim())).exists());

    // The server has shown its tools already, and takes its time to end.
    let fake = Fake::stdio("both").command().replace(['[', ']', ','], " ");
    script(&world, "slow", &format!("{fake}; touch {}; sleep 1000", stops.display()));
    let slow = world.path("work/bin/slow");
    let terminal = Terminal::start(&world, &["add", "x", "--yes", "--", slow.to_str().unwrap()], "");
    eventually("the server is ending", || stops.exists());
    let (code, screen) = terminal.interrupted();
    assert!(code == Some(1) && screen.contains("the configuration is as it was"), "{screen}");
    assert!(!world.path("config/headend/headend.toml").exists(), "{screen}");
}

#[test]
fn a_server_that_offers_nothing_is_not_waited_for() {
    let world = TestHome::new();
    let refused = r#"{"jsonrpc":"2.0","id":'$id',"error":{"code":-32601,"message":"unknown"}}"#;
    let begun = r#"{"jsonrpc":"2.0","id":'$id',"result":{"protocolVersion":"2025-06-18","capabilities":{},"serverInfo":{"name":"x","version":"1"}}}"#;
    let lines = format!(
        "while read -r line; do id=$(printf %s \"$line\" | sed -n 's/.*\"id\":\\([0-9]*\\).*/\\1/p'); case \"$line\" in\n\
         *'\"initialize\"'*) echo '{begun}'; (sleep 7; kill $$) & ;;\n\
         *'\"id\"'*) echo '{refused}' ;; esac; done"
    );
    script(&world, "empty", &lines);
    let added = run(&world, &["add", "x", "--yes", "--", "empty"], &[]);
    assert!(added.status.success() && said(&added).contains("x has 0 tools"), "{}", said(&added));
}

#[test]
fn a_file_that_takes_no_table_is_told_before_the_server_starts() {
    let world = TestHome::new();
    fs::create_dir(world.path("config/headend")).unwrap();
    let inline =
        "policy = { default = \"allow\" }\nupstreams = { old = { command = [\"/bin/true\"], enabled = false } }\n";
    let config = world.write("config/headend/headend.toml", inline);
    let mark = world.path("work/started");
    script(&world, "marks", &format!("touch {}", mark.display()));
    let failed = run(&world, &["add", "x", "--yes", "--", "marks"], &[]);
    assert!(!failed.status.success() && said(&failed).contains("tables cannot be added"), "{}", said(&failed));
    assert!(!mark.exists() && fs::read_to_string(&config).unwrap() == inline);
}

#[test]
fn a_preview_warns_and_a_removal_shows_no_secret() {
    let world = TestHome::new();
    script(&world, "docker", "exit 1");
    let shown = run(&world, &["add", "x", "--dry-run", "--", "docker", "run", "-i", "--rm", "--init", "mcp/time"], &[]);
    assert!(said(&shown).contains("warning: the image `mcp/time` has no tag"), "{}", said(&shown));

    fs::create_dir(world.path("config/headend")).unwrap();
    let text = "[policy]\ndefault = \"allow\"\n\n[upstreams.x]\ncommand = [\"/bin/true\", \"--token=canary-one\"]\n\
                env = { API_KEY = \"canary-two\" }\n\n[upstreams.y]\nurl = \"https://a.example.com/?api_key=canary-three\"\n\
                headers = { Authorization = \"Bearer canary-four\" }\n";
    world.write("config/headend/headend.toml", text);
    for (name, part) in [("x", "/bin/true"), ("y", "https://a.example.com/")] {
        let removed = run(&world, &["remove", name, "--yes"], &[]);
        let told = said(&removed);
        assert!(removed.status.success() && told.contains(part) && !told.contains("canary"), "{told}");
    }
}

#[test]
fn a_package_gets_the_version_that_its_tool_names() {
    let world = TestHome::new();
    let fake = Fake::stdio("both").command().replace(['[', ']', ','], " ");
    let server = format!("exec {fake}");
    script(&world, "npx", &server);
    script(&world, "uvx", &server);
    script(
        &world,
        "npm",
        "case \"$1 $2 $3\" in 'view @x/files@latest version') echo 2026.8.31 ;;\n\
         'view ranged@^1.0.0 version') echo \"ranged@1.9.0 '1.9.0'\"; echo \"ranged@1.10.0 '1.10.0'\" ;; *) exit 1 ;; esac",
    );
    // Without --no-build, code of the package could run before the question.
    script(&world, "uv", "read name; [ \"$1 $2 $4\" = 'pip compile --no-build' ] && echo \"$name==1.4.0\"");
    for (name, line, pinned) in [
        ("files", "npx -y @x/files@latest /srv", r#"["npx", "-y", "@x/files@2026.8.31", "/srv"]"#),
        ("clock", "uvx mcp-server-time", r#"["uvx", "mcp-server-time==1.4.0"]"#),
        ("fixed", "npx -y files@1.0.0", r#"["npx", "-y", "files@1.0.0"]"#),
        ("range", "npx -y ranged@^1.0.0", r#"["npx", "-y", "ranged@1.10.0"]"#),
    ] {
        let words: Vec<&str> = ["add", name, "--yes", "--"].into_iter().chain(line.split(' ')).collect();
        let added = run(&world, &words, &[]);
        assert!(added.status.success(), "{line}: {}", said(&added));
        let written = fs::read_to_string(world.path("config/headend/headend.toml")).unwrap();
        assert!(written.contains(&format!("command = {pinned}\n")), "{line}: {written}");
    }
}

#[test]
fn a_server_json_is_added_with_its_values_and_without_its_secrets() {
    let world = TestHome::new();
    let fake = Fake::stdio("both").command().replace(['[', ']', ','], " ");
    script(&world, "npx", &format!("[ \"$SHOP_KEY\" = canary ] && [ \"$4\" = /srv ] && exec {fake}"));
    world.write(
        "work/server.json",
        r#"{"name": "io.example/shop", "version": "1.0.0", "packages": [
            {"registryType": "npm", "identifier": "http-only", "version": "1.0.0",
             "transport": {"type": "streamable-http", "url": "http://localhost:1/"}},
            {"registryType": "npm", "identifier": "@x/shop", "version": "1.0.0", "transport": {"type": "stdio"},
             "runtimeArguments": [{"type": "positional", "value": "-y"}],
             "packageArguments": [{"type": "positional", "value": "--folder"},
                {"type": "positional", "valueHint": "folder", "isRequired": true}],
             "environmentVariables": [{"name": "SHOP_KEY", "isRequired": true, "isSecret": true},
                {"name": "LEVEL", "default": "info"}]}]}"#,
    );
    let key = world.write("work/key", "canary\n");
    let from = "SHOP_KEY=key";
    let words = ["add", "server.json", "--yes", "--env-from", from, "--env", "FOLDER=/srv", "--trust", "untrusted"];
    let added = run(&world, &words, &[]);
    let told = said(&added);
    assert!(added.status.success() && !told.contains("canary"), "{told}");
    let written = fs::read_to_string(world.path("config/headend/headend.toml")).unwrap();
    for part in [
        format!("# Added from \"shop\" of {}.\n", world.path("work/server.json").display()),
        "[upstreams.shop]\ncommand = [\"npx\", \"-y\", \"@x/shop@1.0.0\", \"--folder\", \"/srv\"]\n".to_owned(),
        format!("SHOP_KEY = {{ file = {:?} }}", key.to_str().unwrap()),
        "LEVEL = \"info\"".to_owned(),
        "trust = \"untrusted\"\n".to_owned(),
    ] {
        assert!(
            written.contains(&part) && (part.starts_with('#') || told.contains(part.lines().next().unwrap())),
            "{part}: {written}\n{told}"
        );
    }
    assert!(told.contains("quarantined") || told.contains("withheld"), "{told}");
}

#[test]
fn an_address_is_added_with_its_header_and_one_that_wants_a_login_is_kept() {
    let world = TestHome::new();
    let server = Fake::http("both").spawn();
    let key = world.write("work/key", "canary-0123456789\n");
    let header = format!("Authorization: Bearer ${{file:{}}}", key.display());
    let added = run(&world, &["add", "remote", &server.url, "--yes", "--header", &header], &[]);
    assert!(added.status.success() && said(&added).contains("remote has "), "{}", said(&added));
    let config = world.path("config/headend/headend.toml");
    let written = fs::read_to_string(&config).unwrap();
    let header =
        format!("headers = {{ Authorization = {{ file = {:?}, prefix = \"Bearer \" }} }}", key.to_str().unwrap());
    assert!(written.contains(&header) && !written.contains("canary"), "{written}");

    for (name, challenge) in [("closed", "WWW-Authenticate: Bearer\r\n"), ("curt", "")] {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let url = format!("http://{}/mcp", listener.local_addr().unwrap());
        thread::spawn(move || {
            for stream in listener.incoming() {
                let mut stream = stream.unwrap();
                let mut bytes = [0; 4096];
                let _request = stream.read(&mut bytes);
                let answer =
                    format!("HTTP/1.1 401 Unauthorized\r\n{challenge}Content-Length: 0\r\nConnection: close\r\n\r\n");
                let _answered = stream.write_all(answer.as_bytes());
            }
        });
        let added = run(&world, &["add", name, &url, "--yes"], &[]);
        let told = said(&added);
        let login = format!("{name} needs a login: `headend login {name}`");
        assert!(added.status.success() && told.contains(&login), "{told}");
        assert!(fs::read_to_string(&config).unwrap().contains(&format!("[upstreams.{name}]\nurl = \"{url}\"")));
    }
}

#[test]
fn a_running_daemon_starts_what_is_added_and_a_removal_that_it_refuses_is_taken_back() {
    let gateway =
        GatewaySetup::new().fake("fx", &Fake::stdio("both")).toml("[profiles.few]\nupstreams = [\"fx\"]").start();
    let before = fs::read_to_string(&gateway.config).unwrap();
    let file = gateway.config.to_str().unwrap();
    let added = gateway.run(&["add", "time", "--yes", "--config", file, "--", headend(), "demo", "time"]);
    assert!(added.status.success(), "{}", said(&added));
    gateway.wait_for_tools(&["time__now", "fx__echo"]);
    let removed = gateway.run(&["remove", "time", "--yes", "--config", file]);
    assert!(removed.status.success(), "{}", said(&removed));
    assert_eq!(fs::read_to_string(&gateway.config).unwrap(), before);
    eventually("its tools are gone", || !said(&gateway.run(&["tools"])).contains("time__now"));
    let refused = gateway.run(&["remove", "fx", "--yes", "--config", file]);
    assert!(!refused.status.success() && said(&refused).contains("the file is as before"), "{}", said(&refused));
    assert_eq!(fs::read_to_string(&gateway.config).unwrap(), before);
}
