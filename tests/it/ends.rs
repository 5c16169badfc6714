//! How headend ends: within its time, with everything that it started, whatever an upstream, a host or a daemon does.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Stdio};
use std::time::{Duration, Instant};

use rustix::process::Signal;
use serde_json::{Value, json};

use crate::harness::{Gateway, Setup, World, headend};
use crate::mcp::{Era, Mcp};
use crate::process::{alive, descendants, eventually, wait, within};
use crate::stdio::Pipe;
use crate::upstream::{Fake, Log, toml_array};

/// How long `headend stdio` may take to end.
const STDIO: Duration = Duration::from_secs(5);

/// An upstream behind a shell that ignores SIGTERM and stays when the server has ended.
fn stubborn(fake: &Fake) -> String {
    let words: Vec<String> = serde_json::from_str(&fake.command()).unwrap();
    let script = format!("trap '' TERM\n{}\nsleep 60", words.join(" "));
    toml_array(["sh", "-c", &script])
}

/// An upstream that leaves a process behind which has left its group, ignores signals and holds stderr; its pid is in the file.
fn leaving(fake: &Fake, file: &Path) -> String {
    let words: Vec<String> = serde_json::from_str(&fake.command()).unwrap();
    let left = format!("trap \"\" TERM HUP INT; echo $$ > {}; exec sleep 30", file.display());
    let script = format!("(setsid sh -c '{left}' < /dev/null > /dev/null &)\nexec {}", words.join(" "));
    toml_array(["sh", "-c", &script])
}

/// The pid in a file, once it is there.
fn pid_in(file: &Path) -> u32 {
    let read = || fs::read_to_string(file).ok().and_then(|text| text.trim().parse().ok());
    eventually("the process left behind has started", || read().is_some());
    read().unwrap()
}

fn with_command(name: &str, command: &str) -> Setup {
    Setup::new().toml(&format!("[upstreams.{name}]\ncommand = {command}"))
}

/// Starts `headend stdio` alone, or attached to a daemon.
fn stdio(setup: Setup, attached: bool) -> (Option<Gateway>, World, PathBuf, Mcp) {
    let gateway;
    let (world, config) = if attached {
        let started = setup.start();
        let place = (started.world.clone(), started.config.clone());
        gateway = Some(started);
        place
    } else {
        gateway = None;
        setup.write()
    };
    let args: &[&str] = if attached { &[] } else { &["--no-daemon"] };
    let mut client = Mcp::stdio(Pipe::start(&world, &config, args), Era::LEGACY);
    eventually("echo is listed", || client.tool_names().iter().any(|name| name == "fx__echo"));
    (gateway, world, config, client)
}

fn assert_gone(pids: &[u32]) {
    for pid in pids {
        within(Duration::from_secs(2), &format!("process {pid} is gone"), || !alive(*pid));
    }
}

#[test]
fn a_stdio_server_ends_on_a_signal_while_its_input_is_open_and_answers_first() {
    for (attached, signal) in [(false, Signal::TERM), (false, Signal::INT), (true, Signal::TERM), (true, Signal::INT)] {
        let setup = Setup::new();
        let record = Log::new(&setup.world.path("work"), "fx");
        let fake = Fake::stdio("legacy").logging(&record);
        let setup = setup.toml(&format!("[upstreams.fx]\ncommand = {}", stubborn(&fake)));
        let (_daemon, _world, _, mut client) = stdio(setup, attached);
        let pipe = client.pipe();
        let children = descendants(pipe.pid());
        assert_eq!(children.is_empty(), attached);
        pipe.send(br#"{"jsonrpc":"2.0","id":"open","method":"tools/call","params":{"name":"fx__sleep","arguments":{"ms":60000}}}"#);
        eventually("the call arrives", || record.count("tools/call") == 1);
        let begun = Instant::now();
        pipe.signal(signal);
        let answer = pipe.answer(&json!("open"), STDIO).message;
        let failed = answer.get("error").is_some() || answer["result"]["isError"] == json!(true);
        assert!(failed, "attached: {attached}: {answer}");
        let status = pipe.wait(STDIO.saturating_sub(begun.elapsed()));
        assert!(status.is_some(), "attached: {attached}, {signal:?}: {}", pipe.story());
        assert_gone(&children);
    }
}

/// `headend stdio` whose stdout is in the test's own hands.
fn with_stdout(world: &World, config: &Path, args: &[&str]) -> Child {
    let mut command = world.command(headend());
    command.arg("stdio").arg("--config").arg(config).args(args);
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap()
}

#[test]
fn a_stdio_server_ends_when_its_host_closes_stdout() {
    for attached in [false, true] {
        let fake = Fake::stdio("both");
        let (_daemon, world, config, _client) = stdio(with_command("fx", &stubborn(&fake)), attached);
        let args: &[&str] = if attached { &[] } else { &["--no-daemon"] };
        let mut child = with_stdout(&world, &config, args);
        if !attached {
            eventually("its upstream runs", || descendants(child.id()).len() >= 2);
        }
        let children = descendants(child.id());
        std::thread::sleep(Duration::from_millis(300));
        drop(child.stdout.take());
        assert!(wait(&mut child, STDIO).is_some(), "attached: {attached}");
        assert_gone(&children);
    }
}

#[test]
fn a_stdio_server_whose_host_reads_nothing_ends_on_a_signal_and_with_its_input() {
    for end_of_input in [false, true] {
        let (world, config) = Setup::new().fake("fx", &Fake::stdio("both")).write();
        let mut child = with_stdout(&world, &config, &["--no-daemon"]);
        let mut stdin = child.stdin.take().unwrap();
        let writer = std::thread::spawn(move || {
            use std::io::Write as _;
            let params = json!({"_meta": {"io.modelcontextprotocol/protocolVersion": "2026-07-28",
                "io.modelcontextprotocol/clientCapabilities": {}}});
            // Until the pipe of answers is full, and then that of requests.
            for id in 0..2000 {
                let line = json!({"jsonrpc": "2.0", "id": id, "method": "tools/list", "params": params});
                if writeln!(stdin, "{line}").is_err() {
                    return;
                }
                if end_of_input && id == 40 {
                    return;
                }
            }
        });
        eventually("its upstream runs", || !descendants(child.id()).is_empty());
        std::thread::sleep(Duration::from_millis(500));
        if !end_of_input {
            rustix::process::kill_process(crate::process::pid_of(&child), Signal::TERM).unwrap();
        }
        assert!(wait(&mut child, STDIO).is_some(), "end of its input: {end_of_input}");
        writer.join().unwrap();
    }
}

fn sleep(id: &str, ms: u32) -> String {
    let params = json!({"name": "fx__sleep", "arguments": {"ms": ms}});
    json!({"jsonrpc": "2.0", "id": id, "method": "tools/call", "params": params}).to_string()
}

fn executed(answer: &Value) -> &Value {
    &answer["error"]["data"]["executed"]
}

#[test]
fn a_stdio_server_waits_for_its_daemon_to_return() {
    let setup = Setup::new();
    let record = Log::new(&setup.world.path("work"), "fx");
    let setup = setup.fake("fx", &Fake::stdio("legacy").logging(&record));
    let (daemon, world, config, mut client) = stdio(setup, true);
    client.pipe().send(sleep("first", 60_000).as_bytes());
    eventually("the call arrives", || record.count("tools/call") == 1);
    daemon.iter().for_each(|daemon| daemon.signal(Signal::KILL));
    drop(daemon);
    let answer = client.pipe().answer(&json!("first"), STDIO).message;
    assert_eq!(executed(&answer), "unknown", "{answer}");
    client.pipe().send(sleep("second", 1).as_bytes());
    let _daemon = Gateway::start(world, Some(config), &["serve"], &[]);
    let answer = client.pipe().answer(&json!("second"), Duration::from_secs(60)).message;
    assert!(answer.get("result").is_some(), "{answer}");
}

#[test]
fn a_stdio_server_whose_daemon_stays_away_answers_what_it_gives_up() {
    let setup = Setup::new().fake("fx", &Fake::stdio("both")).toml("[stdio]\nreconnect-timeout = \"1s\"");
    let (daemon, _world, _, mut client) = stdio(setup, true);
    drop(daemon);
    let said = |lines: &[String]| lines.iter().any(|line| line.contains("the daemon went away")).then_some(());
    client.pipe().stderr.wait_for(STDIO, said).expect("the log says so");
    client.pipe().send(sleep("open", 1).as_bytes());
    let answer = client.pipe().answer(&json!("open"), STDIO).message;
    assert_eq!(executed(&answer), "no", "{answer}");
    let status = client.pipe().wait(STDIO);
    assert_eq!(status.and_then(|status| status.code()), Some(69), "{}", client.pipe().story());
    assert!(client.pipe().story().contains("did not come back in time"), "{}", client.pipe().story());
}

#[test]
fn a_process_that_holds_stderr_does_not_keep_the_daemon() {
    let setup = Setup::new();
    let file = setup.world.path("work/left");
    let mut gateway = setup.toml(&format!("[upstreams.fx]\ncommand = {}", leaving(&Fake::stdio("both"), &file))).start();
    gateway.wait_for_tools(&["fx__echo"]);
    pid_in(&file);
    gateway.signal(Signal::TERM);
    let status = gateway.wait(Duration::from_secs(15));
    assert_eq!(status.and_then(|status| status.code()), Some(0), "{}", gateway.story());
}
