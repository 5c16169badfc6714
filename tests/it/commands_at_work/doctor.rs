//! Tests of `headend doctor`: broken set-ups, each of which leads to its next step. With
//! `--nocapture` the transcripts are printed.

use std::fs;
use std::io::{Read as _, Write as _};
use std::net::TcpListener;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::{Output, Stdio};
use std::thread;
use std::time::Duration;

use serde_json::Value;

use crate::tools::harness::{Gateway, GatewaySetup, TestHome, headend};
use crate::tools::process::{free_port, installed, output_within, said};
use crate::tools::upstream::Fake;

/// Runs the command and prints its output.
fn consult(world: &TestHome, config: &Path, more: &[(&str, &str)]) -> Output {
    let mut command = world.command(headend());
    command.args(["doctor", "--config", config.to_str().unwrap()]).envs(more.iter().copied());
    told(command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap())
}

fn told(child: std::process::Child) -> Output {
    let output = output_within(child, Duration::from_secs(40), "headend doctor");
    eprintln!("$ headend doctor\n{}", said(&output));
    output
}

/// Returns the finding about this subject, and its next step.
fn finding(output: &Output, about: &str) -> String {
    let text = said(output);
    assert_eq!(output.status.code(), Some(1), "{text}");
    let start = text.find(&format!("PROBLEM  {about}: ")).unwrap_or_else(|| panic!("nothing about {about}: {text}"));
    let rest = &text[start..];
    let end =
        rest.match_indices('\n').map(|(at, _)| at).find(|at| !rest[at + 1..].starts_with(' ')).unwrap_or(rest.len());
    let finding = rest[..end].to_owned();
    assert!(finding.contains("      -> "), "no next step: {finding}");
    finding
}

fn program(world: &TestHome, path: &str, text: &str) -> PathBuf {
    fs::create_dir_all(world.path(path).parent().unwrap()).unwrap();
    let path = world.write(path, &format!("#!/bin/sh\n{text}\n"));
    fs::set_permissions(&path, fs::Permissions::from_mode(0o700)).unwrap();
    path
}

/// Creates a set-up with one upstream whose program is this script.
fn scripted(text: &str) -> (TestHome, PathBuf) {
    let setup = GatewaySetup::new();
    let script = program(&setup.world, "work/server", text);
    setup.toml(&format!("[upstreams.fx]\ncommand = [{script:?}]")).write()
}

/// Starts a server that gives the same answer to everything.
fn answering(head: &'static str) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    thread::spawn(move || {
        for stream in listener.incoming() {
            let Ok(mut stream) = stream else { return };
            // Each request gets one answer; its content does not matter.
            let _ignored = stream.read(&mut [0; 4096]);
            let _ignored = stream
                .write_all(format!("HTTP/1.1 {head}\r\nContent-Length: 0\r\nConnection: close\r\n\r\n").as_bytes());
        }
    });
    format!("http://{address}/mcp")
}

fn contains(text: &str, parts: &[&str]) {
    let flat = text.split_whitespace().collect::<Vec<_>>().join(" ");
    for part in parts {
        assert!(flat.contains(part), "{part:?} is not in: {text}");
    }
}

#[test]
fn a_program_that_path_does_not_have_leads_to_its_folder() {
    let setup = GatewaySetup::new();
    program(&setup.world, "home/.cargo/bin/some-mcp-server", "exit 0");
    let (world, config) = setup.toml("[upstreams.fx]\ncommand = [\"some-mcp-server\"]").write();
    let found = finding(&consult(&world, &config, &[]), "fx");
    contains(
        &found,
        &["`some-mcp-server` is in no folder of PATH", "/home/.cargo/bin: write `path = [", "[upstreams.fx]"],
    );
    // Checked once more for a daemon with another PATH.
    let gateway = Gateway::start(world, Some(config), &["serve"], &[]);
    let found = finding(&consult(&gateway.world, &gateway.config, &[]), "fx");
    contains(&found, &["write `path = ["]);
}

#[test]
fn npx_behind_a_certificate_leads_to_the_variable() {
    let (world, config) = scripted(
        "echo 'npm error code SELF_SIGNED_CERT_IN_CHAIN' >&2\necho 'npm error errno SELF_SIGNED_CERT_IN_CHAIN' >&2\nexit 1",
    );
    let found = finding(&consult(&world, &config, &[]), "fx");
    contains(&found, &["| npm error code SELF_SIGNED_CERT_IN_CHAIN", "NODE_EXTRA_CA_CERTS", "[upstreams.fx]"]);
}

#[test]
fn docker_that_does_not_run_leads_to_its_start() {
    let (world, config) = scripted(
        "echo 'docker: Cannot connect to the Docker daemon at unix:///var/run/docker.sock. Is the docker daemon running?' >&2\nexit 125",
    );
    contains(&finding(&consult(&world, &config, &[]), "fx"), &["systemctl start docker"]);
}

#[test]
fn a_port_that_is_taken_leads_to_its_holder_and_its_key() {
    let holder = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = holder.local_addr().unwrap();
    let world = TestHome::new();
    let text = format!(
        "[server]\nlisten = [\"{address}\"]\n[metrics]\nlisten = \"127.0.0.1:0\"\n[policy]\ndefault = \"ask\"\n"
    );
    let config = world.write("headend.toml", &text);
    let found = finding(&consult(&world, &config, &[]), "port");
    contains(&found, &[&address.to_string(), "[server] listen", &format!("ss -ltnp 'sport = :{}'", address.port())]);
}

#[test]
fn a_missing_variable_leads_to_its_name() {
    let upstream = "[upstreams.fx]\ncommand = [\"/bin/cat\"]\nenv = { TOKEN = { env = \"NOT_EXPORTED_TOKEN\" } }";
    let (world, config) = GatewaySetup::new().toml(upstream).write();
    let output = consult(&world, &config, &[]);
    let text = said(&output);
    assert_eq!(output.status.code(), Some(1), "{text}");
    contains(&text, &["`NOT_EXPORTED_TOKEN` is not set", "-> export that variable where headend runs"]);
}

#[test]
fn a_state_directory_that_cannot_be_written_leads_to_its_mode() {
    let (world, config) = GatewaySetup::new().write();
    let state = world.path("state");
    for folder in ["", "home", "work", "run"] {
        fs::set_permissions(world.path(folder), fs::Permissions::from_mode(0o755)).unwrap();
    }
    fs::set_permissions(&state, fs::Permissions::from_mode(0o555)).unwrap();
    fs::set_permissions(&config, fs::Permissions::from_mode(0o644)).unwrap();
    let is_root = rustix::process::getuid().is_root();
    if is_root && !installed("setpriv") {
        return eprintln!("left out: root writes everywhere, and there is no setpriv to become another user");
    }
    let mut command = world.command(if is_root { "setpriv" } else { headend() });
    if is_root {
        command.args(["--reuid=65534", "--regid=65534", "--clear-groups", headend()]);
    }
    command.args(["doctor", "--config", config.to_str().unwrap()]).stdout(Stdio::piped()).stderr(Stdio::piped());
    let output = told(command.spawn().unwrap());
    fs::set_permissions(&state, fs::Permissions::from_mode(0o700)).unwrap();
    let state = state.to_str().unwrap();
    contains(&finding(&output, "state"), &[state, "may not be written", &format!("chmod u+w {state}")]);
}

#[test]
fn a_wrong_token_of_a_host_leads_to_the_right_one() {
    let (world, port) = (TestHome::new(), free_port());
    let text = format!(
        "[server]\nlisten = [\"127.0.0.1:{port}\"]\n[metrics]\nlisten = \"127.0.0.1:0\"\n[policy]\ndefault = \"ask\"\n"
    );
    let config = world.write("headend.toml", &text);
    let gateway = Gateway::start(world, Some(config), &["serve"], &[]);
    let host = |token: &str| {
        fs::create_dir_all(gateway.world.path("home/.cursor")).unwrap();
        let entry = format!(
            r#"{{"mcpServers": {{"headend": {{"url": "http://127.0.0.1:{port}/mcp", "headers": {{"Authorization": "Bearer {token}"}}}}}}}}"#
        );
        gateway.world.write("home/.cursor/mcp.json", &entry);
        consult(&gateway.world, &gateway.config, &[])
    };
    let found = finding(&host("hdnd_of-another-machine"), "host");
    contains(&found, &["/.cursor/mcp.json", "does not know", "state/headend/token"]);
    let right = host(&gateway.token().unwrap());
    assert!(right.status.success(), "{}", said(&right));
}

#[test]
fn a_dead_url_leads_to_the_server_and_its_address() {
    let url = format!("http://127.0.0.1:{}/mcp", free_port());
    let (world, config) = GatewaySetup::new().url("docs", &url).write();
    let found = finding(&consult(&world, &config, &[]), "docs");
    contains(&found, &["refused", "start that server, or correct the address in [upstreams.docs]"]);
}

#[test]
fn a_refused_credential_leads_to_the_headers() {
    let (world, config) = GatewaySetup::new().url("docs", &answering("401 Unauthorized")).write();
    contains(
        &finding(&consult(&world, &config, &[]), "docs"),
        &["401", "`headers` of [upstreams.docs]", "headend reload"],
    );
}

#[test]
fn a_banner_on_stdout_leads_to_stderr() {
    let (world, config) = scripted("echo 'Welcome to the example server!'\nexit 0");
    contains(
        &finding(&consult(&world, &config, &[]), "fx"),
        &["the program ended", "a banner belongs to stderr", "headend restart fx"],
    );
}

#[test]
fn a_clock_that_is_off_leads_to_its_setting() {
    let url = answering("405 Method Not Allowed\r\nDate: Tue, 07 Sep 1999 09:00:00 GMT");
    let (world, config) = GatewaySetup::new().url("docs", &url).write();
    contains(
        &finding(&consult(&world, &config, &[]), "clock"),
        &["days off the clock of `docs`", "timedatectl set-ntp true"],
    );
}

#[test]
fn a_host_that_starts_a_server_itself_leads_to_its_entry() {
    let setup = GatewaySetup::new();
    let fake = Fake::stdio("both");
    let words: Vec<String> = serde_json::from_str(&fake.command()).unwrap();
    let entry =
        serde_json::json!({"projects": {"/src": {"mcpServers": {"mine": {"command": words[0], "args": words[1..]}}}}});
    setup.world.write("home/.claude.json", &entry.to_string());
    let (world, config) = setup.fake("fx", &fake).write();
    let found = finding(&consult(&world, &config, &[]), "host");
    contains(
        &found,
        &["/.claude.json still starts \"mine\" itself, which is `fx` here", "take the entry \"mine\" out"],
    );
}

#[test]
fn hosts_are_read_in_every_format_and_what_is_off_there_is_no_finding() {
    let setup = GatewaySetup::new();
    let fake = Fake::stdio("both");
    let words: Vec<String> = serde_json::from_str(&fake.command()).unwrap();
    let (program, args) = (&words[0], serde_json::to_string(&words[1..]).unwrap());
    let write = |path: &str, text: &str| {
        fs::create_dir_all(setup.world.path(path).parent().unwrap()).unwrap();
        setup.world.write(path, text);
    };
    write(
        "home/.codex/config.toml",
        &format!(
            "[mcp_servers.toml]\ncommand = {program:?}\nargs = {args}\n\
             [mcp_servers.idle]\ncommand = {program:?}\nargs = {args}\nenabled = false\n"
        ),
    );
    // In the folder that $XDG_CONFIG_HOME names.
    write(
        "config/goose/config.yaml",
        &format!("extensions:\n  yaml:\n    type: stdio\n    enabled: true\n    cmd: {program}\n    args: {args}\n"),
    );
    let entry = |name: &str, words: Value| serde_json::json!({"mcpServers": {name: words}}).to_string();
    write(
        "home/.gemini/settings.json",
        &entry("gone", serde_json::json!({"command": program, "args": &words[1..]}))
            .replace("{\"mcpServers\"", "{\"mcp\": {\"excluded\": [\"gone\"]}, \"mcpServers\""),
    );
    let behind_env: Vec<&str> = std::iter::once("A=1").chain(words.iter().map(String::as_str)).collect();
    write("home/.lmstudio/mcp.json", &entry("behind", serde_json::json!({"command": "env", "args": behind_env})));
    let (world, config) = setup.fake("fx", &fake).write();
    let output = consult(&world, &config, &[]);
    let text = said(&output);
    for host in ["\"toml\"", "\"yaml\"", "\"behind\""] {
        assert!(text.contains(&format!("still starts {host} itself")), "{host}: {text}");
    }
    assert!(!text.contains("\"idle\"") && !text.contains("\"gone\""), "{text}");
}

#[test]
fn a_set_up_that_works_has_no_problems_with_a_daemon_and_without() {
    let (world, config) = GatewaySetup::new().fake("fx", &Fake::stdio("both")).write();
    let alone = consult(&world, &config, &[]);
    assert!(alone.status.success() && said(&alone).contains("upstreams: ready: fx"), "{}", said(&alone));
    let gateway = Gateway::start(world, Some(config), &["serve"], &[]);
    gateway.wait_for_tools(&["fx__echo"]);
    let mut command = gateway.world.command(headend());
    command.args(["doctor", "--json", "--config", gateway.config.to_str().unwrap()]);
    let output = command.output().unwrap();
    assert!(output.status.success(), "{}", said(&output));
    let json: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(json["problems"], 0, "{json}");
    let findings = json["findings"].as_array().unwrap();
    assert!(findings.iter().any(|finding| finding["about"] == "daemon" && finding["level"] == "ok"), "{json}");
}

#[test]
fn a_launch_that_waits_for_approval_is_not_started() {
    let setup = GatewaySetup::new();
    let (mark, script) = (setup.world.path("work/started"), setup.world.path("work/server"));
    program(&setup.world, "work/server", &format!("echo x >> {}", mark.display()));
    let upstream = |more: &str| format!("[upstreams.fx]\ncommand = [{script:?}]\ntrust = \"untrusted\"\n{more}");
    let text = setup.text();
    let (world, config) = setup.toml(&upstream("")).write();
    drop(consult(&world, &config, &[]));
    let starts = || fs::read_to_string(&mark).map_or(0, |text| text.lines().count());
    let before = starts();
    world.write(
        "headend.toml",
        &format!("{text}\n{}", upstream("env = { CHANGED = \"1\" }").replace("server\"]", "server\", \"--other\"]")),
    );
    let changed = consult(&world, &config, &[]);
    assert_eq!(starts(), before, "{}", said(&changed));
}
