//! Tests of the privileges of upstreams' processes: no new privileges, and the umask of the
//! configuration.

use std::fs;
use std::process::Command;

use crate::tools::harness::{Gateway, GatewaySetup, headend};
use crate::tools::mcp::{ClientEra, Mcp};
use crate::tools::process::{alive, descendants, eventually, said};
use crate::tools::stdio::Pipe;
use crate::tools::upstream::{Fake, toml_array};

/// Returns a line of the system's status of a process.
fn status(pid: u32, name: &str) -> String {
    let text = fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
    let line = text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'));
    line.unwrap_or_default().trim().to_owned()
}

/// Returns the processes below this one that play an upstream of that name.
fn upstreams(pid: u32, name: &str) -> Vec<u32> {
    let mut found = descendants(pid);
    found.retain(|pid| {
        let words = fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
        let words: Vec<&[u8]> = words.split(|byte| *byte == 0).collect();
        words[0].ends_with(b"fake-upstream") && words.contains(&name.as_bytes())
    });
    found
}

fn upstream(pid: u32, name: &str) -> u32 {
    eventually("the upstream runs", || upstreams(pid, name).len() == 1);
    upstreams(pid, name)[0]
}

fn fake(name: &str, more: &str) -> String {
    let command = Fake::stdio("both").with("--name", name).command();
    format!("[upstreams.{name}]\ncommand = {command}\n{more}\n")
}

/// Starts a daemon that has this umask itself.
fn under(umask: &str, setup: GatewaySetup) -> Gateway {
    let (world, config) = setup.write();
    let mut command = world.command("sh");
    command.args(["-c", &format!("umask {umask}; exec \"$@\""), "sh", headend()]);
    Gateway::start_by(command, world, Some(config), &["serve"], &[])
}

/// Returns whether this process may gain privileges; otherwise none of its children can.
fn may_gain() -> bool {
    let may = status(std::process::id(), "NoNewPrivs") == "0";
    if !may {
        eprintln!("left out: children that may gain privileges: the tests themselves may not");
    }
    may
}

#[test]
fn no_program_gives_a_child_more_privileges_unless_the_operator_says_so() {
    let text = fake("plain", "") + &fake("free", "no-new-privileges = false");
    let gateway = GatewaySetup::new().toml(&text).start();
    gateway.wait_for_tools(&["plain__echo", "free__echo"]);
    let before = upstream(gateway.pid(), "plain");
    assert_eq!(status(before, "NoNewPrivs"), "1");
    if may_gain() {
        assert_eq!(status(upstream(gateway.pid(), "free"), "NoNewPrivs"), "0");
        assert_eq!(status(gateway.pid(), "NoNewPrivs"), "0", "it is the children's, not ours");
        // A reload restarts the process, with opposite settings, and leaves the other one alone.
        let text = fake("plain", "") + &fake("free", "");
        let config = fs::read_to_string(&gateway.config).unwrap();
        let (head, _) = config.split_once("[upstreams.").unwrap();
        let reloaded = gateway.reload(&format!("{head}{text}"));
        assert!(reloaded.status.success(), "{}", said(&reloaded));
        eventually("it is confined", || {
            upstreams(gateway.pid(), "free").iter().map(|pid| status(*pid, "NoNewPrivs")).eq(["1"])
        });
        assert_eq!(upstream(gateway.pid(), "plain"), before);
    }
}

#[test]
fn the_children_of_a_gateway_without_a_daemon_are_confined_too() {
    let (world, config) = GatewaySetup::new().toml(&fake("plain", "umask = \"031\"")).write();
    let pipe = Pipe::start(&world, &config, &["--no-daemon"]);
    let pid = pipe.pid();
    let mut client = Mcp::stdio(pipe, ClientEra::Modern);
    eventually("echo is listed", || client.tool_names().iter().any(|name| name == "plain__echo"));
    let child = upstream(pid, "plain");
    assert_eq!((status(child, "NoNewPrivs").as_str(), status(child, "Umask").as_str()), ("1", "0031"));
}

#[test]
fn a_child_has_the_daemons_umask_or_its_own() {
    for (own, inherited) in [("022", "0022"), ("077", "0077")] {
        let text = fake("plain", "") + &fake("open", "umask = \"002\"") + &fake("shut", "umask = \"0777\"");
        let mut gateway = under(own, GatewaySetup::new().toml(&text));
        gateway.wait_for_tools(&["plain__echo", "open__echo", "shut__echo"]);
        for (name, umask) in [("plain", inherited), ("open", "0002"), ("shut", "0777")] {
            let child = upstream(gateway.pid(), name);
            assert_eq!(status(child, "Umask"), umask, "{name} under {own}");
            assert_eq!(status(child, "NoNewPrivs"), "1", "{name} under {own}");
            let group = rustix::process::getpgid(rustix::process::Pid::from_raw(child as i32)).unwrap();
            assert_eq!(group.as_raw_nonzero().get() as u32, child, "{name}: a group of its own");
        }
        assert_eq!(status(gateway.pid(), "Umask"), inherited, "ours stays");
        let children: Vec<u32> = ["plain", "open", "shut"].map(|name| upstream(gateway.pid(), name)).into();
        gateway.signal(rustix::process::Signal::TERM);
        assert!(gateway.wait(std::time::Duration::from_secs(60)).is_some());
        assert!(!children.iter().any(|pid| alive(*pid)), "they end with the daemon");
    }
}

#[test]
fn a_program_that_is_not_there_is_named_with_a_umask_too() {
    let text = "[upstreams.word]\ncommand = [\"no-such-program\"]\numask = \"022\"\n\
                [upstreams.path]\ncommand = [\"/no/such/program\"]\numask = \"022\"\n";
    let gateway = GatewaySetup::new().toml(text).start();
    let told = |words: &[&str]| gateway.stderr.all().iter().any(|line| words.iter().all(|word| line.contains(word)));
    eventually("it is told", || told(&["command `no-such-program` not found in PATH"]));
    eventually("it is told", || told(&["`/no/such/program` is not there"]));
}

#[test]
fn arguments_and_variables_of_a_child_are_not_taken_for_ours() {
    let setup = GatewaySetup::new();
    let file = setup.world.path("work/said");
    let script = format!("{{ printf '%s|' \"$0\" \"$@\" \"$HEADEND_LOG_FORMAT\"; umask; }} > {}", file.display());
    let command = toml_array(["/bin/sh", "-c", &script, "--version", "--help", "-x", "guard"]);
    let keys = "env = { HEADEND_LOG_FORMAT = \"nonsense\" }\numask = \"027\"";
    let _gateway = setup.toml(&format!("[upstreams.fx]\ncommand = {command}\n{keys}")).start();
    let read = || fs::read_to_string(&file).unwrap_or_default();
    eventually("it is written", || read().ends_with('\n'));
    assert_eq!(read().trim(), "--version|--help|-x|guard|nonsense|0027");
}

#[test]
fn a_guard_that_headend_did_not_start_says_so_and_does_nothing() {
    let mut command = Command::new(headend());
    let output = command.args(["guard", "fx"]).stdin(std::process::Stdio::null()).output().unwrap();
    assert_eq!(output.status.code(), Some(64), "{}", said(&output));
    assert!(String::from_utf8_lossy(&output.stderr).contains("is for headend's own use"), "{}", said(&output));
}

#[test]
fn how_a_child_ended_is_told_as_the_system_tells_it() {
    let row =
        |name: &str, script: &str| format!("[upstreams.{name}]\ncommand = {}\n", toml_array(["sh", "-c", script]));
    let text = row("code", "exit 3") + &row("signal", "kill -USR1 $$") + &row("wrapped", "sh -c 'exit 7'");
    let gateway = GatewaySetup::new().toml(&text).start();
    for (name, how) in [("code", "exit status: 3"), ("signal", "signal: 10"), ("wrapped", "exit status: 7")] {
        let told = || gateway.stderr.all().iter().any(|line| line.contains(name) && line.contains(how));
        eventually(&format!("{name}: {how}"), told);
    }
}

#[test]
fn the_guard_holds_no_pipe_of_its_child() {
    let gateway = GatewaySetup::new().toml(&(fake("plain", "") + &fake("open", "umask = \"002\""))).start();
    gateway.wait_for_tools(&["plain__echo", "open__echo"]);
    for name in ["plain", "open"] {
        let pid = upstream(gateway.pid(), name);
        let kind = |n: u32| fs::read_link(format!("/proc/{pid}/fd/{n}")).unwrap().display().to_string();
        let kinds: Vec<String> = (0..3).map(kind).collect();
        assert!(kinds.iter().all(|kind| kind.starts_with("pipe:")), "{name}: {kinds:?}");
        let guard = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap();
        let guard: u32 = guard.rsplit(')').next().unwrap().split_whitespace().nth(1).unwrap().parse().unwrap();
        for file in fs::read_dir(format!("/proc/{guard}/fd")).unwrap().flatten() {
            let kind = fs::read_link(file.path()).unwrap().display().to_string();
            assert!(!kinds.contains(&kind), "{name}: the guard holds a pipe of the child");
        }
    }
}

/// Returns the environment of a process at its start.
fn environment(pid: u32) -> Vec<String> {
    let text = fs::read(format!("/proc/{pid}/environ")).unwrap_or_default();
    text.split(|byte| *byte == 0).map(|entry| String::from_utf8_lossy(entry).into_owned()).collect()
}

#[test]
fn the_package_caches_of_the_unit_reach_children_that_are_not_untrusted() {
    let unit =
        fs::read_to_string(std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("systemd/headend.service")).unwrap();
    let words = unit.lines().filter_map(|line| line.strip_prefix("Environment=")).flat_map(str::split_whitespace);
    let caches: Vec<(&str, &str)> =
        words.filter_map(|word| word.split_once('=')).filter(|(name, _)| *name != "HOME").collect();
    assert_eq!(caches.len(), 2, "{caches:?}");
    let text = fake("plain", "") + &fake("masked", "umask = \"022\"") + &fake("stranger", "trust = \"untrusted\"");
    let text = text + &fake("own", "env = { UV_CACHE_DIR = \"/its/own\" }");
    let setup = caches.iter().fold(GatewaySetup::new().toml(&text), |setup, (name, value)| setup.env(name, value));
    let gateway = setup.env("AWS_SECRET_ACCESS_KEY", "canary-4711").start();
    gateway.wait_for_tools(&["plain__echo", "masked__echo", "own__echo"]);
    for (name, wanted) in [("plain", true), ("masked", true), ("stranger", false)] {
        let environment = environment(upstream(gateway.pid(), name));
        assert!(!environment.is_empty() && !environment.iter().any(|entry| entry.contains("canary-4711")), "{name}");
        for (variable, value) in &caches {
            assert_eq!(
                environment.contains(&format!("{variable}={value}")),
                wanted,
                "{variable} of {name}: {environment:?}"
            );
        }
    }
    let own = environment(upstream(gateway.pid(), "own"));
    assert!(own.contains(&"UV_CACHE_DIR=/its/own".to_owned()), "the configuration goes first: {own:?}");
}

#[test]
fn the_shipped_units_confine_what_they_start() {
    for unit in ["systemd/headend.service", "systemd/headend-user.service"] {
        let text = fs::read_to_string(std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join(unit)).unwrap();
        for line in ["UMask=0077", "NoNewPrivileges=yes", "StartLimitIntervalSec=0", "RestartPreventExitStatus=78"] {
            assert!(text.lines().any(|found| found == line), "{unit}: {line}");
        }
    }
}
