//! Tests of whether an upstream is started at all, and of its program's environment: variables,
//! search directories, texts with variables.

use std::fs;
use std::os::unix::fs::{PermissionsExt as _, symlink};
use std::path::Path;
use std::time::Duration;

use ring::digest::{SHA256, digest};
use rusqlite::{Connection, params};
use rustix::process::Signal;
use serde_json::{Value, json};

use crate::tools::harness::{Gateway, GatewaySetup, TestHome, headend};
use crate::tools::process::{eventually, said};
use crate::tools::upstream::{Fake, example};

/// Returns the entry of an upstream in `status`.
fn status_of(gateway: &Gateway, name: &str) -> Value {
    let output = gateway.run(&["status", "--json"]);
    let status: Value = serde_json::from_slice(&output.stdout).unwrap_or_else(|_| panic!("{}", said(&output)));
    let found = status["upstreams"].as_array().unwrap().iter().find(|upstream| upstream["name"] == name);
    found.cloned().unwrap_or_default()
}

fn ok(gateway: &Gateway, args: &[&str]) -> String {
    let output = gateway.run(args);
    assert!(output.status.success(), "{args:?}: {}", said(&output));
    String::from_utf8_lossy(&output.stdout).into_owned()
}

#[test]
fn a_disabled_upstream_is_neither_started_nor_listed_and_keeps_what_was_approved() {
    let fake = Fake::stdio("both").command();
    let text = |enabled: bool| {
        let keys = format!("[upstreams.fx]\ncommand = {fake}\nenabled = {enabled}\ntrust = \"untrusted\"\n");
        GatewaySetup::new().toml(&keys).fake("other", &Fake::stdio("both")).text()
    };
    let gateway = GatewaySetup::new().fake("other", &Fake::stdio("both")).start();
    assert!(gateway.reload(&text(true)).status.success());
    eventually("it waits for approval", || {
        status_of(&gateway, "fx")["withheld"].as_u64().is_some_and(|count| count > 0)
    });
    ok(&gateway, &["pins", "approve", "fx", "--yes"]);
    gateway.wait_for_tools(&["fx__echo", "other__echo"]);

    let plan = gateway.reload(&text(false));
    assert!(plan.status.success(), "{}", said(&plan));
    eventually("its tools leave", || !gateway.modern().tool_names().iter().any(|name| name.starts_with("fx__")));
    assert_eq!(status_of(&gateway, "fx"), json!({"name": "fx", "state": "disabled"}));
    assert!(ok(&gateway, &["status"]).contains("disabled"));
    let restarted = gateway.run(&["restart", "fx"]);
    assert!(!restarted.status.success() && said(&restarted).contains("`fx` is disabled"), "{}", said(&restarted));

    assert!(gateway.reload(&text(true)).status.success());
    gateway.wait_for_tools(&["fx__echo"]);
    assert_eq!(status_of(&gateway, "fx")["withheld"], 0, "what was approved is not asked about again");
    assert_eq!(gateway.modern().call("fx__echo", json!({"text": "x"})).text(), "x");
}

/// Returns what the program of an upstream reports about itself.
fn about(gateway: &Gateway, name: &str) -> Value {
    let text = gateway.modern().call(&format!("{name}__env"), json!({})).text();
    serde_json::from_str(&text).unwrap_or_else(|_| panic!("{text}"))
}

fn environment(gateway: &Gateway, name: &str) -> Value {
    about(gateway, name)["env"].clone()
}

#[test]
fn a_program_gets_the_usual_variables_and_those_that_are_named() {
    let fake = Fake::stdio("both").command();
    let text = format!(
        "[upstreams.plain]\ncommand = {fake}\n\
         [upstreams.named]\ncommand = {fake}\nenv-from = [\"SSH_AUTH_SOCK\", \"HTTPS_PROXY\", \"NOT_SET\", \"LC_TIME\"]\nenv = {{ LC_TIME = \"own\" }}\n\
         [upstreams.strange]\ncommand = {fake}\nenv-from = [\"NO_PROXY\"]\ntrust = \"untrusted\"\n"
    );
    let gateway = GatewaySetup::new()
        .toml(&text)
        .env("HTTPS_PROXY", "http://user:hunter2@proxy:3128")
        .env("NO_PROXY", "localhost")
        .env("NODE_EXTRA_CA_CERTS", "/ca.pem")
        .env("LC_TIME", "C")
        .env("SSH_AUTH_SOCK", "/run/agent")
        .env("DOCKER_HOST", "unix:///run/docker.sock")
        .env("GITHUB_TOKEN", "hunter2")
        .start();
    gateway.wait_for_tools(&["plain__env", "named__env"]);
    ok(&gateway, &["pins", "approve", "strange", "--yes"]);
    gateway.wait_for_tools(&["strange__env"]);
    let names = [
        "HTTPS_PROXY",
        "NO_PROXY",
        "NODE_EXTRA_CA_CERTS",
        "LC_TIME",
        "SSH_AUTH_SOCK",
        "DOCKER_HOST",
        "GITHUB_TOKEN",
        "NOT_SET",
    ];
    for (upstream, wanted) in [
        ("plain", json!(["http://proxy:3128", "localhost", "/ca.pem", "C", null, null, null, null])),
        (
            "named",
            json!(["http://user:hunter2@proxy:3128", "localhost", "/ca.pem", "own", "/run/agent", null, null, null]),
        ),
        ("strange", json!([null, "localhost", null, null, null, null, null, null])),
    ] {
        let environment = environment(&gateway, upstream);
        let found: Vec<Value> = names.iter().map(|name| environment[*name].clone()).collect();
        assert_eq!(Value::from(found), wanted, "{upstream}");
        assert!(environment["HOME"].is_string() && environment["PATH"].is_string(), "{upstream}");
    }
}

/// Puts a program into a directory as package managers do: a script whose interpreter is next to it
/// and in no other directory.
fn install(directory: &Path) {
    fs::create_dir_all(directory).unwrap();
    symlink("/bin/sh", directory.join("fx-node")).unwrap();
    let script = directory.join("fx-server");
    let server = example("fake-upstream");
    fs::write(&script, format!("#!/usr/bin/env fx-node\nexec {} stdio --era both\n", server.display())).unwrap();
    fs::set_permissions(&script, fs::Permissions::from_mode(0o755)).unwrap();
}

/// Starts a daemon as a desktop does: no variables but a home, and a PATH without the user's own
/// directories.
fn from_a_desktop(world: &TestHome, config: &Path, path: &str) -> Gateway {
    let mut command = world.command(headend());
    command.env_clear().env("HOME", world.path("home")).env("PATH", path);
    command.env("XDG_STATE_HOME", world.path("state")).env("XDG_RUNTIME_DIR", world.path("run"));
    Gateway::start_by(command, world.clone(), Some(config.to_owned()), &["serve"], &[])
}

fn stop(mut gateway: Gateway) {
    gateway.signal(Signal::TERM);
    assert!(gateway.wait(Duration::from_secs(60)).is_some());
}

/// Checks that no pin waits for an operator.
fn nothing_waits(gateway: &Gateway) {
    let pins: Value = serde_json::from_str(&ok(gateway, &["pins", "--json"])).unwrap();
    let waiting: Vec<&Value> = pins["pins"].as_array().unwrap().iter().filter(|pin| pin["state"] != "pinned").collect();
    assert!(waiting.is_empty(), "{waiting:?}");
}

const FX: &str = "[upstreams.fx]\ncommand = [\"fx-server\"]\ncwd = \"~\"\n";
const SYSTEM: &str = "/usr/bin:/bin";

#[test]
fn programs_of_a_version_manager_start_without_a_login_shell_and_another_version_asks_nothing() {
    let (world, config) = GatewaySetup::new().toml(FX).write();
    let version = |name: &str| world.path("home/.nvm/versions/node").join(name);
    install(&version("v20.1.0").join("bin"));
    let gateway = from_a_desktop(&world, &config, SYSTEM);
    gateway.wait_for_tools(&["fx__env"]);
    let found = about(&gateway, "fx");
    let path = format!("{}:{SYSTEM}", version("v20.1.0").join("bin").display());
    assert_eq!(found["env"]["PATH"], path);
    assert_eq!(
        fs::read_link(format!("/proc/{}/cwd", found["pid"])).unwrap(),
        world.path("home").canonicalize().unwrap()
    );

    install(&version("v22.0.0").join("bin"));
    fs::remove_dir_all(version("v20.1.0")).unwrap();
    ok(&gateway, &["restart", "fx"]);
    eventually("the other version runs", || {
        environment(&gateway, "fx")["PATH"].as_str().is_some_and(|path| path.contains("v22"))
    });
    nothing_waits(&gateway);
    stop(gateway);
    install(&version("v24.0.0").join("bin"));
    let gateway = from_a_desktop(&world, &config, SYSTEM);
    gateway.wait_for_tools(&["fx__env"]);
    assert!(environment(&gateway, "fx")["PATH"].as_str().unwrap().contains("v24.0.0"));
    nothing_waits(&gateway);
    let tools = ok(&gateway, &["tools"]);
    assert!(!tools.contains("new"), "it is the same launch: {tools}");
}

#[test]
fn an_approved_program_stays_where_a_version_manager_has_another_one() {
    let (world, config) = GatewaySetup::new().toml(FX).write();
    let (first, local) = (world.path("work/first"), world.path("home/.local/bin"));
    install(&first);
    let path = format!("{}:{SYSTEM}", first.display());
    let gateway = from_a_desktop(&world, &config, &path);
    gateway.wait_for_tools(&["fx__env"]);
    stop(gateway);
    install(&local);
    let gateway = from_a_desktop(&world, &config, &path);
    gateway.wait_for_tools(&["fx__env"]);
    assert_eq!(environment(&gateway, "fx")["PATH"], path, "as it was approved");
    nothing_waits(&gateway);

    let text = fs::read_to_string(&config).unwrap();
    let reloaded = gateway.reload(&text.replace("cwd = \"~\"", "path = [\"~/.local/bin\"]"));
    assert!(reloaded.status.success(), "{}", said(&reloaded));
    eventually("the one that is named waits", || ok(&gateway, &["status"]).contains("launch changed"));
    ok(&gateway, &["pins", "approve", "fx", "--launch"]);
    gateway.wait_for_tools(&["fx__env"]);
    assert_eq!(environment(&gateway, "fx")["PATH"], format!("{}:{path}", local.display()));
}

#[test]
fn variables_are_put_in_and_their_values_are_shown_nowhere() {
    let fake = Fake::stdio("both").command();
    let setup = GatewaySetup::new();
    let work = setup.world.path("work").display().to_string();
    let text = format!(
        "[upstreams.fx]\ncommand = {fake}\nenv = {{ DSN = \"x://me:${{FX_KEY}}@db\", MODE = \"${{FX_MODE:-plain}}\" }}\ncwd = \"${{FX_WORK}}/deep\"\n\
         [upstreams.dies]\nexpand = true\ncommand = [\"sh\", \"-c\", \"echo key $0 is bad >&2; exit 3\", \"${{FX_KEY}}\"]\n\
         [upstreams.gone]\nexpand = true\ncommand = [\"${{FX_KEY}}/server\"]\n\
         [upstreams.unset]\nurl = \"http://127.0.0.1:9/mcp\"\nheaders = {{ Authorization = \"Bearer ${{FX_NONE}}\" }}\n"
    );
    fs::create_dir(setup.world.path("work/deep")).unwrap();
    let variables = [("FX_KEY", "/hunter2/secret"), ("FX_WORK", work.as_str())];
    let gateway = variables.iter().fold(setup.toml(&text), |setup, (name, value)| setup.env(name, value)).start();
    gateway.wait_for_tools(&["fx__env"]);
    let found = about(&gateway, "fx");
    assert_eq!((&found["env"]["DSN"], &found["env"]["MODE"]), (&json!("x://me:/hunter2/secret@db"), &json!("plain")));
    assert!(fs::read_link(format!("/proc/{}/cwd", found["pid"])).unwrap().ends_with("work/deep"));

    let error = |name: &str| status_of(&gateway, name)["last-error"].as_str().unwrap_or_default().to_owned();
    eventually("it has died", || error("dies").contains("key $FX_KEY is bad"));
    eventually("it is not there", || error("gone").contains("`${FX_KEY}/server` is not there"));
    eventually("it is not started", || {
        error("unset").contains(
            "headers.Authorization: the environment variable `FX_NONE` is not set; set it where headend is started",
        )
    });
    let mut command = gateway.world.command(headend());
    command.envs(variables).args(["check", "--config"]).arg(&gateway.config);
    let check = command.output().unwrap();
    assert!(check.status.success(), "{}", said(&check));
    assert!(said(&check).contains("upstreams.dies.command[3]: every user of this machine"), "{}", said(&check));
    let mut shown = said(&check) + &gateway.stderr.all().join("\n");
    for command in [&["status"][..], &["status", "--json"], &["pins"], &["pins", "--json"], &["pins", "diff", "gone"]] {
        shown += &said(&gateway.run(command));
    }
    assert!(!shown.contains("hunter2"), "{shown}");
    assert_eq!(gateway.modern().call("fx__echo", json!({"text": "x"})).text(), "x", "the others go on");
}

/// Creates a store as 0.1.0 left it, with an approved launch of a program.
fn store_of_0_1_0(world: &TestHome, words: &[&str], program: &Path) -> String {
    let folder = world.path("state/headend");
    fs::create_dir(&folder).unwrap();
    fs::set_permissions(&folder, fs::Permissions::from_mode(0o700)).unwrap();
    let old = Connection::open(folder.join("headend.db")).unwrap();
    old.execute_batch(include_str!("../../data/store/version-1.sql")).unwrap();
    old.execute_batch("DELETE FROM pins; DELETE FROM prompts; DELETE FROM audit_heads;").unwrap();
    let launch = format!(
        "{{\"command\":{},\"program\":{:?}}}",
        serde_json::to_string(words).unwrap(),
        program.display().to_string()
    );
    let hash: String = digest(&SHA256, launch.as_bytes()).as_ref().iter().map(|byte| format!("{byte:02x}")).collect();
    let row = "INSERT INTO pins (upstream, kind, name, state, approved, approved_digest, by, at) VALUES ('fx', 'launch', '', 'pinned', ?, ?, 'first sight', 1789999000)";
    old.execute(row, params![launch, hash]).unwrap();
    drop(old);
    fs::set_permissions(folder.join("headend.db"), fs::Permissions::from_mode(0o600)).unwrap();
    hash
}

/// Returns the pin of the launch: state, digest and time of the decision.
fn launch_of(gateway: &Gateway) -> Value {
    let pins: Value = serde_json::from_str(&ok(gateway, &["pins", "--json"])).unwrap();
    let launch = pins["pins"].as_array().unwrap().iter().find(|pin| pin["kind"] == "launch").cloned().unwrap();
    json!([launch["state"], launch["approved-digest"], launch["since"]])
}

#[test]
fn launches_of_a_store_of_0_1_0_start_without_a_question() {
    let words = ["fx-server", "${x}"];
    let text = "[upstreams.fx]\ncommand = [\"fx-server\", \"${x}\"]\nenv = { A = \"1\" }\n";
    for (label, approved, others) in [
        ("a program of the plain PATH, and a version manager has another", "work/first", &["home/.local/bin"][..]),
        (
            "a version of a manager that is gone",
            "home/.nvm/versions/node/v18.1.0/bin",
            &["home/.nvm/versions/node/v20.0.0/bin"],
        ),
    ] {
        let (world, config) = GatewaySetup::new().toml(text).write();
        let approved = world.path(approved);
        let hash = store_of_0_1_0(&world, &words, &approved.join("fx-server"));
        let is_gone = approved.starts_with(world.path("home"));
        if !is_gone {
            install(&approved);
        }
        others.iter().for_each(|other| install(&world.path(other)));
        let path = format!("{}:{SYSTEM}", approved.display());
        let gateway = from_a_desktop(&world, &config, if is_gone { SYSTEM } else { &path });
        gateway.wait_for_tools(&["fx__env"]);
        nothing_waits(&gateway);
        assert_eq!(launch_of(&gateway), json!(["pinned", hash, 1_789_999_000]), "{label}: it is the same pin");
    }
}
