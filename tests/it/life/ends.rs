//! Tests of how headend ends: within its time and with everything that it started, for all
//! behaviour of upstreams, hosts and daemons.

use std::fs::{self, File};
use std::io::{PipeReader, Write as _};
use std::path::{Path, PathBuf};
use std::process::{Child, Stdio};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};
use serde_json::{Value, json};

use crate::tools::harness::{Gateway, GatewaySetup, TestHome, headend};
use crate::tools::mcp::{ClientEra, Mcp};
use crate::tools::process::{alive, descendants, end, eventually, said, wait, within};
use crate::tools::stdio::Pipe;
use crate::tools::upstream::{Fake, InputLog, toml_array};

/// Four times the documented limit for the end of `headend stdio` and of processes that upstreams
/// leave behind: the machine may be busy.
const STDIO: Duration = Duration::from_secs(20);
/// The time that the shipped units wait for the daemon.
const UNIT: Duration = Duration::from_secs(45);

/// Returns the command of an upstream behind a shell that ignores SIGTERM and stays after the
/// server has ended.
fn stubborn(fake: &Fake) -> String {
    let words: Vec<String> = serde_json::from_str(&fake.command()).unwrap();
    let script = format!("trap '' TERM\n{}\nsleep 60", words.join(" "));
    toml_array(["sh", "-c", &script])
}

/// Returns the command of an upstream that leaves a process behind which has left its group,
/// ignores signals and holds stderr. Its pid is written to the file.
fn leaving(fake: &Fake, file: &Path) -> String {
    let words: Vec<String> = serde_json::from_str(&fake.command()).unwrap();
    let left = format!("trap \"\" TERM HUP INT; echo $$ > {}; exec sleep 30", file.display());
    let script = format!("(setsid sh -c '{left}' < /dev/null > /dev/null &)\nexec {}", words.join(" "));
    toml_array(["sh", "-c", &script])
}

/// Waits for the pid in a file.
fn pid_in(file: &Path) -> u32 {
    let read = || fs::read_to_string(file).ok().and_then(|text| text.trim().parse().ok());
    eventually("the process left behind has started", || read().is_some());
    read().unwrap()
}

fn with_command(name: &str, command: &str) -> GatewaySetup {
    GatewaySetup::new().toml(&format!("[upstreams.{name}]\ncommand = {command}"))
}

/// Starts `headend stdio` alone, or attached to a daemon.
fn stdio(setup: GatewaySetup, attached: bool) -> (Option<Gateway>, TestHome, PathBuf, Mcp) {
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
    let mut client = Mcp::stdio(Pipe::start(&world, &config, args), ClientEra::LEGACY);
    eventually("echo is listed", || client.tool_names().iter().any(|name| name == "fx__echo"));
    (gateway, world, config, client)
}

fn assert_gone(pids: &[u32]) {
    for pid in pids {
        within(STDIO, &format!("process {pid} is gone"), || !alive(*pid));
    }
}

#[test]
fn a_stdio_server_ends_on_a_signal_while_its_input_is_open_and_answers_first() {
    for (attached, signal) in [(false, Signal::TERM), (false, Signal::INT), (true, Signal::TERM), (true, Signal::INT)] {
        let setup = GatewaySetup::new();
        let record = InputLog::new(&setup.world.path("work"), "fx");
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

/// Starts `headend stdio` with a stdout that the test reads itself.
fn with_stdout(world: &TestHome, config: &Path, args: &[&str]) -> Child {
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
        let (world, config) = GatewaySetup::new().fake("fx", &Fake::stdio("both")).write();
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
            kill_process(crate::tools::process::pid_of(&child), Signal::TERM).unwrap();
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
    let setup = GatewaySetup::new();
    let record = InputLog::new(&setup.world.path("work"), "fx");
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
    let setup = GatewaySetup::new().fake("fx", &Fake::stdio("both")).toml("[stdio]\nreconnect-timeout = \"4s\"");
    let (daemon, _world, _, mut client) = stdio(setup, true);
    drop(daemon);
    let told = |lines: &[String]| lines.iter().any(|line| line.contains("the daemon went away")).then_some(());
    client.pipe().stderr.wait_for(STDIO, told).expect("the log says so");
    client.pipe().send(sleep("open", 1).as_bytes());
    let answer = client.pipe().answer(&json!("open"), STDIO).message;
    assert_eq!(executed(&answer), "no", "{answer}");
    let status = client.pipe().wait(STDIO);
    assert_eq!(status.and_then(|status| status.code()), Some(69), "{}", client.pipe().story());
    let told = client.pipe().stderr.to_end();
    assert!(told.iter().any(|line| line.contains("did not come back in time")), "{told:?}");
}

#[test]
fn a_process_that_holds_stderr_does_not_keep_the_daemon() {
    let setup = GatewaySetup::new();
    let file = setup.world.path("work/left");
    let mut gateway =
        setup.toml(&format!("[upstreams.fx]\ncommand = {}", leaving(&Fake::stdio("both"), &file))).start();
    gateway.wait_for_tools(&["fx__echo"]);
    pid_in(&file);
    gateway.signal(Signal::TERM);
    let status = gateway.wait(UNIT);
    assert_eq!(status.and_then(|status| status.code()), Some(0), "{status:?}: {}", gateway.story());
}

/// Starts a daemon that is stuck at the line that says where it listens, because its stdout pipe is
/// full.
fn stuck(world: &TestHome, config: &Path) -> (PipeReader, Child) {
    let (unread, mut stdout) = std::io::pipe().unwrap();
    stdout.write_all(&[b'x'; 65_536]).unwrap();
    let mut daemon = world.command(headend());
    let daemon = daemon.args(["serve", "--config"]).arg(config).stdout(stdout).stderr(Stdio::piped());
    let daemon = daemon.spawn().unwrap();
    eventually("it listens", || world.path("run/headend.sock").exists());
    (unread, daemon)
}

#[test]
fn a_signal_before_the_daemon_serves_is_kept() {
    let (world, config) = GatewaySetup::new().fake("fx", &Fake::stdio("both")).write();
    let (_unread, mut daemon) = stuck(&world, &config);
    for signal in [Signal::HUP, Signal::TERM] {
        kill_process(Pid::from_child(&daemon), signal).unwrap();
    }
    let status = wait(&mut daemon, UNIT);
    end(&mut daemon);
    assert_eq!(status.and_then(|status| status.code()), Some(0), "{status:?}");
}

#[test]
fn a_daemon_has_its_state_directory_as_long_as_it_lives() {
    let (world, config) = GatewaySetup::new().fake("fx", &Fake::stdio("both")).write();
    // The thread that cannot write to stdout may outlive everything else by a second.
    let (_unread, mut daemon) = stuck(&world, &config);
    let lock = File::open(world.path("state/headend/headend.lock")).unwrap();
    assert!(lock.try_lock().is_err());
    let fds = format!("/proc/{}/fd", daemon.id());
    let files = || fs::read_dir(&fds).map_or(0, |files| files.flatten().count());
    assert_ne!(files(), 0);
    kill_process(Pid::from_child(&daemon), Signal::TERM).unwrap();
    eventually("the lock is free", || lock.try_lock().is_ok());
    // A process that has ended has closed all its files by the time the lock is free.
    let left = files();
    end(&mut daemon);
    assert_eq!(left, 0);
}

#[test]
fn a_signal_ends_a_daemon_that_waits_for_the_state_directory() {
    let mut gateway = GatewaySetup::new().fake("fx", &Fake::stdio("both")).start();
    gateway.signal(Signal::TERM);
    assert!(gateway.wait(UNIT).is_some());
    let lock = File::open(gateway.world.path("state/headend/headend.lock")).unwrap();
    eventually("the lock is free", || lock.try_lock().is_ok());
    let mut daemon = gateway.world.command(headend());
    let mut daemon = daemon.args(["serve", "--config"]).arg(&gateway.config).spawn().unwrap();
    let status = format!("/proc/{}/status", daemon.id());
    eventually("it watches SIGTERM", || {
        let status = fs::read_to_string(&status).unwrap();
        let caught = status.lines().find_map(|line| line.strip_prefix("SigCgt:")).unwrap();
        u64::from_str_radix(caught.trim(), 16).unwrap() & (1 << (Signal::TERM.as_raw() - 1)) != 0
    });
    kill_process(Pid::from_child(&daemon), Signal::TERM).unwrap();
    let status = wait(&mut daemon, UNIT);
    end(&mut daemon);
    drop(lock);
    assert_eq!(status.and_then(|status| status.code()), Some(0), "{status:?}");
}

/// Writes a script that stands for a program such as `npx`: a shell that waits for another shell,
/// which waits for the server.
fn stand_in(world: &TestHome, name: &str, fake: &Fake) -> String {
    let words: Vec<String> = serde_json::from_str(&fake.command()).unwrap();
    let script = format!("#!/bin/sh\nsh -c '{}; true'\ntrue\n", words.join(" "));
    let path = world.write(name, &script);
    fs::set_permissions(&path, std::os::unix::fs::PermissionsExt::from_mode(0o700)).unwrap();
    toml_array([path.to_str().unwrap(), "-y", "server@1.2.3"])
}

/// Creates a setup with upstreams of every kind that is hard to end. Returns it with the file that
/// names a process left behind.
fn hard_to_end() -> (GatewaySetup, PathBuf) {
    let setup = GatewaySetup::new();
    let left = setup.world.path("work/left");
    let fake = Fake::stdio("both");
    let rows = [
        ("npx", stand_in(&setup.world, "npx", &fake)),
        ("uvx", stand_in(&setup.world, "uvx", &fake)),
        ("deaf", stubborn(&fake)),
        ("leaving", leaving(&fake, &left)),
    ];
    let text: String =
        rows.iter().map(|(name, command)| format!("[upstreams.{name}]\ncommand = {command}\n")).collect();
    (setup.toml(&text), left)
}

const HARD_TOOLS: [&str; 4] = ["npx__echo", "uvx__echo", "deaf__echo", "leaving__echo"];

#[test]
fn nothing_outlives_a_daemon_that_is_killed() {
    let (setup, left) = hard_to_end();
    let mut gateway = setup.start();
    gateway.wait_for_tools(&HARD_TOOLS);
    let left = pid_in(&left);
    let started = descendants(gateway.pid());
    // For the four upstreams: a guard, two shells and the server; the same; a guard, a shell and
    // the server; a guard, the server and the process it leaves.
    assert!(started.len() >= 14 && started.contains(&left), "{started:?}");
    gateway.signal(Signal::KILL);
    gateway.wait(STDIO);
    assert_gone(&started);
}

#[test]
fn nothing_outlives_a_daemon_that_ends_and_a_reload_that_removes_upstreams() {
    let (setup, left) = hard_to_end();
    let mut gateway = setup.start();
    gateway.wait_for_tools(&HARD_TOOLS);
    let left = pid_in(&left);
    let before = descendants(gateway.pid());
    assert!(before.contains(&left));
    let text = fs::read_to_string(&gateway.config).unwrap();
    let (kept, _) = text.split_once("[upstreams.leaving]").unwrap();
    let reloaded = gateway.reload(kept);
    assert!(reloaded.status.success());
    within(STDIO, "what a removed upstream left is gone", || !alive(left));
    let started = descendants(gateway.pid());
    assert!(started.len() < before.len() && started.len() >= 11, "{started:?}");
    gateway.signal(Signal::TERM);
    let status = gateway.wait(2 * STDIO);
    assert_eq!(status.and_then(|status| status.code()), Some(0), "{}", gateway.story());
    assert_gone(&started);
}

#[test]
fn a_child_whose_guard_is_killed_ends_and_is_started_again_with_another() {
    let setup = GatewaySetup::new();
    let left = setup.world.path("work/left");
    let gateway = setup.toml(&format!("[upstreams.fx]\ncommand = {}", leaving(&Fake::stdio("both"), &left))).start();
    gateway.wait_for_tools(&["fx__echo"]);
    let left = pid_in(&left);
    let started = descendants(gateway.pid());
    kill(started[0]);
    assert_gone(&[left]);
    assert_gone(&started);
    answers(&gateway);
}

fn kill(pid: u32) {
    let pid = Pid::from_raw(i32::try_from(pid).unwrap()).unwrap();
    kill_process(pid, Signal::KILL).unwrap();
}

#[test]
fn the_next_start_ends_what_a_dead_owner_left_and_nothing_of_one_that_lives() {
    let setup = GatewaySetup::new();
    let left = setup.world.path("work/left");
    let (world, config) =
        setup.toml(&format!("[upstreams.fx]\ncommand = {}", leaving(&Fake::stdio("both"), &left))).write();
    let start = || {
        drop(fs::remove_file(&left));
        let mut client = Mcp::stdio(Pipe::start(&world, &config, &["--no-daemon"]), ClientEra::LEGACY);
        eventually("echo is listed", || client.tool_names().iter().any(|name| name == "fx__echo"));
        let left = pid_in(&left);
        (client, left)
    };
    let (mut first, of_first) = start();
    let (mut second, of_second) = start();
    assert!(alive(of_first) && alive(of_second));
    // The guard is killed before it can do anything, and headend before it can notice.
    let guard = descendants(first.pipe().pid())[0];
    first.pipe().signal(Signal::STOP);
    kill(guard);
    first.pipe().signal(Signal::KILL);
    first.pipe().wait(STDIO);
    assert!(alive(of_first), "the test needs a process that is left");
    let (mut third, of_third) = start();
    assert!(!alive(of_first), "{}", third.pipe().story());
    eventually("the log says so", || third.pipe().story().contains("of an earlier run"));
    assert!(alive(of_second) && alive(of_third));
    assert_eq!(second.call("fx__echo", json!({"text": "here"})).text(), "here");
    drop((first, second, third));
    assert_gone(&[of_second, of_third]);
}

/// Writes a stand-in for `docker`: `run` stores the container's label in a file of the folder
/// `containers` and is the server itself; `ps` and `kill` work on these files. A container ends
/// with its client only if the client ends by itself.
fn docker(world: &TestHome, fake: &Fake) -> PathBuf {
    let words: Vec<String> = serde_json::from_str(&fake.command()).unwrap();
    let folder = world.path("containers");
    fs::create_dir_all(&folder).unwrap();
    let script = format!(
        "#!/bin/sh\ncd {}\n[ \"$1\" = --context ] && shift 2\necho \"$*\" >> ../asked\ncase \"$1\" in\n\
         run) echo \"$3\" > \"$(printf '%x' $$)\"\nexec {} ;;\n\
         ps) for id in *; do [ -f \"$id\" ] || continue\n\
         if [ \"$2\" = --quiet ]; then [ \"label=$(cat \"$id\")\" = \"$5\" ] && echo \"$id\"\n\
         else echo \"$id $(sed s/^[^=]*=// \"$id\")\"; fi; done; true ;;\n\
         kill) shift; for id in \"$@\"; do mv \"$id\" \"../killed-$id\"; done ;;\nesac\n",
        folder.display(),
        words.join(" ")
    );
    let path = world.write("docker", &script);
    fs::set_permissions(&path, std::os::unix::fs::PermissionsExt::from_mode(0o700)).unwrap();
    path
}

/// Checks that the upstream answers, because remembered lists do not show that it runs.
fn answers(gateway: &Gateway) {
    eventually("it answers", || gateway.modern().call("fx__echo", json!({"text": "here"})).text() == "here");
}

fn files(folder: &Path) -> Vec<PathBuf> {
    fs::read_dir(folder).unwrap().flatten().map(|entry| entry.path()).collect()
}

#[test]
fn a_container_ends_with_its_upstream_and_one_of_a_dead_owner_with_the_next_start() {
    let setup = GatewaySetup::new();
    let program = docker(&setup.world, &Fake::stdio("both"));
    let command = toml_array([program.to_str().unwrap(), "--context", "x", "run", "-i", "--rm", "--init", "mcp/x"]);
    let mut gateway = setup.toml(&format!("[upstreams.fx]\ncommand = {command}")).start();
    gateway.wait_for_tools(&["fx__echo"]);
    let (world, config) = (gateway.world.clone(), gateway.config.clone());
    let running = || files(&world.path("containers"));
    let [container] = running().try_into().unwrap();
    let label = fs::read_to_string(&container).unwrap();
    assert!(label.starts_with("headend.owner="), "{label}");
    gateway.signal(Signal::TERM);
    assert!(gateway.wait(STDIO).is_some());
    within(STDIO, "the container is killed", || running().is_empty());

    let mut gateway = Gateway::start(world.clone(), Some(config.clone()), &["serve"], &[]);
    answers(&gateway);
    gateway.signal(Signal::KILL);
    gateway.wait(STDIO);
    within(STDIO, "the container is killed by the guard", || running().is_empty());

    // As if the guard had been killed too.
    fs::write(&container, &label).unwrap();
    let theirs = world.path("containers/abc");
    fs::write(&theirs, "headend.owner=of-somebody-else\n").unwrap();
    let gateway = Gateway::start(world.clone(), Some(config), &["serve"], &[]);
    answers(&gateway);
    let left = running();
    assert!(left.len() == 2 && left.contains(&theirs) && !left.contains(&container), "{left:?}");
    let asked = fs::read_to_string(world.path("asked")).unwrap();
    assert!(asked.contains("ps --no-trunc --filter label=headend.owner"), "{asked}");
}

/// Returns the numbers of open files, tasks and processes of a daemon.
fn resources(gateway: &Gateway) -> (usize, usize, usize) {
    let files = fs::read_dir(format!("/proc/{}/fd", gateway.pid())).unwrap().count();
    let page = gateway.scrape();
    let tasks = page.lines().find_map(|line| line.strip_prefix("headend_tasks ")?.parse().ok()).unwrap();
    (files, tasks, descendants(gateway.pid()).len())
}

#[test]
fn descriptors_tasks_and_processes_return_after_a_hundred_additions_and_removals() {
    let server = Fake::http("both").spawn();
    let gateway = GatewaySetup::new().fake("kept", &Fake::stdio("both")).start();
    gateway.wait_for_tools(&["kept__echo"]);
    let bare = fs::read_to_string(&gateway.config).unwrap();
    let mut full = bare.clone();
    for n in 0..13 {
        full.push_str(&format!(
            "\n[upstreams.s{n}]\ncommand = {}\n",
            Fake::stdio("both").with("--name", format!("s{n}")).command()
        ));
        full.push_str(&format!("\n[upstreams.h{n}]\nurl = \"{}\"\nheaders = {{ X-N = \"{n}\" }}\n", server.url));
    }
    let reload = |text: &str| {
        let reloaded = gateway.reload(text);
        assert!(reloaded.status.success(), "{}", said(&reloaded));
    };
    let round = || {
        reload(&full);
        gateway.wait_for_tools(&["s12__echo", "h12__echo"]);
        reload(&bare);
    };
    // The first round opens resources that stay, such as the connection pool.
    round();
    within(2 * STDIO, "the first round is over", || resources(&gateway).2 == 2);
    std::thread::sleep(Duration::from_millis(300));
    let before = resources(&gateway);
    for _ in 0..4 {
        round();
    }
    // The pool keeps idle connections for a while, in varying numbers; they end with their server.
    drop(server);
    let mut last = before;
    let deadline = Instant::now() + 2 * STDIO;
    while Instant::now() < deadline {
        last = resources(&gateway);
        if last.0 <= before.0 && last.1 <= before.1 && last.2 <= before.2 {
            return;
        }
        std::thread::sleep(Duration::from_millis(50));
    }
    panic!("files, tasks and processes: {before:?} before, {last:?} after");
}
