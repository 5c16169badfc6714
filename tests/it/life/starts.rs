//! Tests of starts that fail, of what ends the wait after them, and of the reports to the operator.

use std::fs;
use std::io::{BufRead as _, BufReader};
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::process::{Child, Stdio};
use std::time::Duration;

use serde_json::json;

use crate::tools::browser::Browser;
use crate::tools::harness::{Gateway, GatewaySetup, TestHome, left_out};
use crate::tools::mcp::ClientEra;
use crate::tools::process::{alive, eventually, installed, said, within};
use crate::tools::upstream::{Fake, InputLog};
use crate::traffic::faces::upstream_pid;
use crate::traffic::failures::status_of;

/// Far less than the wait of a misconfigured upstream, which is half a minute at least.
const SOON: Duration = Duration::from_secs(15);

/// Writes a program that becomes this server.
fn write_program(path: &Path, fake: &Fake) {
    let words: Vec<String> = serde_json::from_str(&fake.command()).unwrap();
    let quoted: Vec<String> = words.iter().map(|word| format!("'{word}'")).collect();
    let fresh = path.with_extension("new");
    fs::write(&fresh, format!("#!/bin/sh\nexec {}\n", quoted.join(" "))).unwrap();
    fs::set_permissions(&fresh, fs::Permissions::from_mode(0o700)).unwrap();
    fs::rename(fresh, path).unwrap();
}

/// Waits until the upstream is in this state, and returns its last error.
fn wait_for_state(gateway: &Gateway, name: &str, state: &str) -> String {
    eventually(&format!("{name} is {state}"), || status_of(gateway, name)["state"] == state);
    status_of(gateway, name)["last-error"].as_str().unwrap_or_default().to_owned()
}

fn in_state(gateway: &Gateway, name: &str, state: &str) -> bool {
    let page = gateway.scrape();
    page.contains(&format!("headend_upstream_state{{state=\"{state}\",upstream=\"{name}\"}} 1"))
}

#[test]
fn a_missing_program_is_a_state_of_its_own_and_starts_when_it_appears() {
    let setup = GatewaySetup::new();
    let (program, script) = (setup.world.path("work/server"), setup.world.path("work/later"));
    let gateway = setup
        .toml(&format!(
            "[upstreams.program]\ncommand = [{:?}]\n[upstreams.word]\ncommand = [\"later\"]\nenv = {{ PATH = {:?} }}",
            program.display().to_string(),
            script.parent().unwrap().display().to_string(),
        ))
        .start();
    let why = wait_for_state(&gateway, "program", "misconfigured");
    assert!(why.contains("work/server` is not there"), "{why}");
    let why = wait_for_state(&gateway, "word", "misconfigured");
    assert!(why.contains("`later` not found in PATH (") && why.contains("/work)"), "{why}");
    for name in ["program", "word"] {
        assert!(in_state(&gateway, name, "misconfigured") && !in_state(&gateway, name, "down"));
    }
    write_program(&program, &Fake::stdio("both"));
    write_program(&script, &Fake::stdio("both"));
    gateway.wait_for_tools_within(SOON, &["program__echo", "word__echo"]);
}

#[test]
fn a_missing_script_and_directory_are_named_and_looked_for() {
    let setup = GatewaySetup::new();
    let folder = setup.world.path("work/folder");
    let command = Fake::stdio("both").command();
    let gateway = setup.toml(&format!("[upstreams.fx]\ncommand = {command}\ncwd = {folder:?}")).start();
    let why = wait_for_state(&gateway, "fx", "misconfigured");
    assert!(why.contains("work/folder` is not there"), "{why}");
    fs::create_dir(&folder).unwrap();
    gateway.wait_for_tools_within(SOON, &["fx__echo"]);
}

#[test]
fn a_call_and_a_reload_end_a_rest() {
    let setup = GatewaySetup::new();
    let program = setup.world.path("work/server");
    write_program(&program, &Fake::stdio("both"));
    let gateway = setup.toml(&format!("[upstreams.fx]\ncommand = [{:?}]", program.display().to_string())).start();
    gateway.wait_for_tools(&["fx__echo"]);
    // A file that no user may execute: only a start notices its change.
    let break_it = || {
        fs::set_permissions(&program, fs::Permissions::from_mode(0o600)).unwrap();
        gateway.modern().call("fx__exit", json!({}));
        wait_for_state(&gateway, "fx", "misconfigured");
        fs::set_permissions(&program, fs::Permissions::from_mode(0o700)).unwrap();
    };
    break_it();
    let answer = gateway.modern().call("fx__echo", json!({"text": "back"}));
    assert_eq!(answer.text(), "back", "{}", answer.raw);
    break_it();
    let plan = gateway.run(&["reload"]);
    assert!(plan.status.success(), "{}", said(&plan));
    within(SOON, "the reload starts it", || status_of(&gateway, "fx")["state"] == "ready");
}

#[test]
fn restart_ends_a_rest_and_says_what_came_of_it() {
    let setup = GatewaySetup::new();
    let program = setup.world.path("work/server");
    write_program(&program, &Fake::stdio("both"));
    fs::set_permissions(&program, fs::Permissions::from_mode(0o600)).unwrap();
    let gateway = setup.toml(&format!("[upstreams.fx]\ncommand = [{:?}]", program.display().to_string())).start();
    wait_for_state(&gateway, "fx", "misconfigured");
    let failed = gateway.run(&["restart", "fx"]);
    let text = said(&failed);
    assert!(failed.status.code() == Some(1) && text.contains("misconfigured") && text.contains("executable"), "{text}");
    fs::set_permissions(&program, fs::Permissions::from_mode(0o700)).unwrap();
    let restarted = gateway.run(&["restart", "fx"]);
    assert!(restarted.status.success() && said(&restarted).contains("fx: ready"), "{}", said(&restarted));
    gateway.wait_for_tools_within(SOON, &["fx__echo"]);
    let unknown = gateway.run(&["restart", "fy"]);
    assert!(unknown.status.code() == Some(1) && said(&unknown).contains("no upstream `fy`"), "{}", said(&unknown));
}

#[test]
fn restart_replaces_a_running_upstream_and_loses_no_call() {
    let setup = GatewaySetup::new();
    let record = InputLog::new(&setup.world.path("work"), "fx");
    let gateway = setup.fake("fx", &Fake::stdio("legacy").logging(&record)).start();
    gateway.wait_for_tools(&["fx__sleep", "fx__env"]);
    let before = upstream_pid(&gateway, "fx");
    let mut client = gateway.modern();
    let mut call = client.open("tools/call", json!({"name": "fx__sleep", "arguments": {"ms": 500}}));
    eventually("the call arrives", || record.lines_with(&["tools/call", "sleep"]).len() == 1);
    let restarted = gateway.run(&["restart", "fx"]);
    assert!(restarted.status.success(), "{}", said(&restarted));
    let response = call.response();
    assert!(response["result"].is_object() && response["result"]["isError"] != json!(true), "{response}");
    assert_ne!(upstream_pid(&gateway, "fx"), before);
    eventually("the old one ends", || !alive(before));
    assert!(in_state(&gateway, "fx", "ready"), "the end of the old one is not the new one's");
    assert_eq!(status_of(&gateway, "fx")["restarts"], 1);
}

#[test]
fn restart_starts_a_connection_to_a_url_anew_too() {
    let server = Fake::http("modern").spawn();
    let gateway = GatewaySetup::new().url("fx", &server.url).start();
    gateway.wait_for_tools(&["fx__echo"]);
    let restarted = gateway.run(&["restart", "fx"]);
    assert!(restarted.status.success() && said(&restarted).contains("fx: ready"), "{}", said(&restarted));
    drop(server);
    let failed = gateway.run(&["restart", "fx"]);
    assert!(failed.status.code() == Some(1) && said(&failed).contains("fx is down: "), "{}", said(&failed));
}

#[test]
fn restart_without_a_daemon_says_what_to_do() {
    let output = TestHome::new().run(&["restart", "fx"]);
    assert_eq!(output.status.code(), Some(69), "{}", said(&output));
    assert!(said(&output).contains("headend serve"), "{}", said(&output));
}

#[test]
fn a_start_takes_its_time_and_no_more_and_has_more_the_next_time() {
    let slow = Fake::stdio("legacy").behaving("slow-start=1500").command();
    let silent = Fake::stdio("legacy").behaving("never-answer").command();
    let gateway = GatewaySetup::new()
        .toml(&format!("[upstreams.slow]\ncommand = {slow}\nstart-timeout = \"1s\""))
        .toml(&format!("[upstreams.silent]\ncommand = {silent}\nstart-timeout = \"1s\""))
        .start();
    let told = |lines: &[String]| {
        let words = ["WARN", "silent", "not ready within its `start-timeout` of 1s, the next start has 2s"];
        lines.iter().any(|line| words.iter().all(|word| line.contains(word))).then_some(())
    };
    // A process that gets the end of its input has five more seconds to end. Eleven seconds were
    // needed when era detection was added to that.
    gateway.stderr.wait_for(Duration::from_secs(9), told).expect("the first start is given up");
    gateway.wait_for_tools_within(SOON, &["slow__echo"]);
}

#[test]
fn a_call_waits_for_a_start_with_progress() {
    let gateway = GatewaySetup::new().fake("fx", &Fake::stdio("legacy").behaving("slow-start=3000")).start();
    gateway.wait_for_tools(&["fx__echo"]);
    for era in ClientEra::BOTH {
        gateway.modern().call("fx__exit", json!({}));
        let params = json!({"name": "fx__echo", "arguments": {"text": "late"}, "_meta": {"progressToken": "mine"}});
        let answer = gateway.client(era).request("tools/call", params);
        assert_eq!(answer.text(), "late", "{era:?}: {}", answer.raw);
        let told = &answer.notices[0];
        assert_eq!(told["method"], "notifications/progress", "{era:?}: {told}");
        assert_eq!(told["params"]["progressToken"], "mine", "{era:?}: {told}");
        assert!(told["params"]["message"].as_str().unwrap().contains("`fx` to start"), "{era:?}: {told}");
    }
}

#[test]
fn calls_beyond_the_slots_wait_for_a_start_too() {
    let command = Fake::stdio("legacy").behaving("slow-start=1500").command();
    let keys = "max-in-flight = 1\nqueue-timeout = \"500ms\"";
    let gateway = GatewaySetup::new().toml(&format!("[upstreams.fx]\ncommand = {command}\n{keys}")).start();
    gateway.wait_for_tools(&["fx__echo"]);
    gateway.modern().call("fx__exit", json!({}));
    std::thread::scope(|scope| {
        let call = || gateway.modern().call("fx__echo", json!({"text": "late"}));
        for call in [scope.spawn(call), scope.spawn(call), scope.spawn(call)] {
            let answer = call.join().unwrap();
            assert_eq!(answer.text(), "late", "{}", answer.raw);
        }
    });
}

#[test]
fn a_call_that_has_waited_long_enough_is_told_how_long_the_start_takes() {
    let command = Fake::stdio("legacy").behaving("slow-start=6000").command();
    let gateway =
        GatewaySetup::new().toml(&format!("[upstreams.fx]\ncommand = {command}\nstart-wait = \"500ms\"")).start();
    gateway.wait_for_tools(&["fx__echo"]);
    gateway.modern().call("fx__exit", json!({}));
    eventually("it starts again", || status_of(&gateway, "fx")["state"] == "starting");
    for era in ClientEra::BOTH {
        let answer = gateway.client(era).call("fx__echo", json!({"text": "x"}));
        let refusal = &answer.result()["_meta"]["headend/refusal"];
        assert_eq!(
            (&refusal["reason"], &refusal["executed"]),
            (&json!("upstream_down"), &json!("no")),
            "{}",
            answer.raw
        );
        let seconds = answer
            .text()
            .split_once("the last start took ")
            .and_then(|(_, rest)| rest.split(' ').next()?.parse::<u64>().ok());
        // On a busy machine it took longer than the server waits.
        assert!(seconds.is_some_and(|seconds| (6..60).contains(&seconds)), "{}", answer.raw);
    }
}

/// Returns the table of an upstream whose program prints this many lines, one with its key, and
/// fails.
fn failing(lines: usize) -> String {
    let script = format!(
        "i=0; while [ $i -lt {lines} ]; do i=$((i+1)); echo \"line $i\" >&2; done; echo \"key $KEY\" >&2; exit 3"
    );
    let command = serde_json::to_string(&["/bin/sh", "-c", &script]).unwrap();
    format!("[upstreams.fx]\ncommand = {command}\nenv = {{ KEY = {{ env = \"GIVEN_KEY\" }} }}")
}

#[test]
fn the_last_lines_of_a_failed_start_are_told_without_its_secrets() {
    let setup = GatewaySetup::new().toml("[console]\nlisten = \"127.0.0.1:0\"").toml(&failing(30));
    let gateway = setup.env("GIVEN_KEY", "canary-4711").start();
    let why = wait_for_state(&gateway, "fx", "down");
    assert!(why.contains("exit status: 3") && why.contains("last line of stderr: key $KEY"), "{why}");
    let log = gateway.stderr.all();
    let line = log.iter().find(|line| line.contains("WARN") && line.contains("upstream down")).expect("a WARN");
    assert!(line.contains("line 30") && line.contains("line 12") && !line.contains("line 11"), "{line}");
    let shown = || String::from_utf8_lossy(&gateway.run(&["status", "fx"]).stdout).into_owned();
    // While it starts once more there is nothing to tell.
    let mut text = shown();
    eventually("status tells the lines", || {
        text = shown();
        text.contains("line 30") && text.contains("next-try")
    });
    for wanted in ["  line 12\n", "  line 30\n", "  key $KEY\n", "advice", "next-try", "headend restart fx"] {
        assert!(text.contains(wanted), "{wanted:?} is missing in\n{text}");
    }
    let unknown = gateway.run(&["status", "fy"]);
    assert!(unknown.status.code() == Some(1) && said(&unknown).contains("no upstream `fy`"), "{}", said(&unknown));
    let browser = Browser::signed_in(&gateway);
    eventually("the console tells them", || {
        let page = browser.get("/upstreams/fx").text();
        assert!(!page.contains("canary-4711"), "{page}");
        page.contains("line 30") && page.contains("key $KEY")
    });
    eventually("the table says what to do", || {
        let all = String::from_utf8_lossy(&gateway.run(&["status"]).stdout).into_owned();
        all.contains("NEXT TRY") && all.contains("fx: `headend restart fx` tries at once")
    });
    assert!(!gateway.story().contains("canary-4711"), "{}", gateway.story());
}

#[test]
fn a_program_that_ends_at_once_is_told_by_its_status_and_last_words() {
    // Either of its pipes may be found broken first.
    let command = serde_json::to_string(&["/bin/sh", "-c", "echo 'usage: it KEY' >&2; exit 64"]).unwrap();
    let names: Vec<String> = (0..6).map(|n| format!("fx{n}")).collect();
    let tables: String = names.iter().map(|name| format!("[upstreams.{name}]\ncommand = {command}\n")).collect();
    let gateway = GatewaySetup::new().toml(&tables).start();
    for name in names {
        let why = wait_for_state(&gateway, &name, "down");
        assert_eq!(why, "the program ended (exit status: 64); last line of stderr: usage: it KEY");
    }
}

#[test]
fn a_server_that_ends_at_the_question_for_its_era_is_asked_in_the_old_way() {
    let fake = Fake::stdio("legacy").behaving("exit-on-discover");
    let gateway = GatewaySetup::new().fake("fx", &fake).start();
    gateway.wait_for_tools_within(SOON, &["fx__echo"]);
    let status = status_of(&gateway, "fx");
    assert_eq!(status["revision"], "2025-11-25", "{status}");
    assert_eq!(status["restarts"], 0, "that was no failure: {status}");
}

#[test]
fn a_slow_server_is_not_taken_for_a_legacy_one() {
    for era in ["modern", "both"] {
        // The program reads its first question when the time for that is over.
        let command = Fake::stdio(era).behaving("slow-start=3000").command();
        let toml = format!("[upstreams.fx]\ncommand = {command}\nstart-timeout = \"5s\"");
        let gateway = GatewaySetup::new().toml(&toml).start();
        gateway.wait_for_tools_within(SOON, &["fx__echo"]);
        let status = status_of(&gateway, "fx");
        assert_eq!(status["revision"], "2026-07-28", "{era}: {status}");
        assert_eq!(status["restarts"], 0, "{era}: {status}");
    }
}

#[test]
fn a_program_that_headend_ended_says_so() {
    // The program reacts to nothing, not even the end of its input, until it gets a signal.
    let command = serde_json::to_string(&["/bin/sh", "-c", "exec sleep 60"]).unwrap();
    let gateway =
        GatewaySetup::new().toml(&format!("[upstreams.fx]\ncommand = {command}\nstart-timeout = \"500ms\"")).start();
    let why = wait_for_state(&gateway, "fx", "down");
    assert!(why.contains("headend ended the program") && !why.contains("signal"), "{why}");
}

#[test]
fn programs_start_a_few_at_a_time_and_a_slow_one_is_told_and_passed() {
    let setup = GatewaySetup::new();
    let record = setup.world.path("work/starts");
    // Each program reports when it begins to start, and is ready a while later.
    let mut setup = setup.server("limits.max-starts = 1");
    let words: Vec<String> = serde_json::from_str(&Fake::stdio("both").command()).unwrap();
    let slow = |name: &str, wait: &str| {
        let script =
            format!("echo begin {name} >> {record:?}; sleep {wait}; echo end {name} >> {record:?}; exec \"$@\"");
        let words: Vec<&str> =
            ["/bin/sh", "-c", &script, "sh"].into_iter().chain(words.iter().map(String::as_str)).collect();
        format!("[upstreams.{name}]\ncommand = {}\nstart-timeout = \"4s\"", serde_json::to_string(&words).unwrap())
    };
    for name in ["a", "b", "c"] {
        setup = setup.toml(&slow(name, "0.3"));
    }
    let gateway = setup.start();
    gateway.wait_for_tools(&["a__echo", "b__echo", "c__echo"]);
    let told = fs::read_to_string(&record).unwrap();
    let lines: Vec<&str> = told.lines().collect();
    for pair in lines.chunks(2) {
        assert_eq!(pair[0].replace("begin", "end"), pair[1], "one after the other:\n{told}");
    }

    let setup = GatewaySetup::new().server("limits.max-starts = 1");
    let silent = Fake::stdio("legacy").behaving("never-answer").command();
    let silent = format!("[upstreams.silent]\ncommand = {silent}\nstart-timeout = \"3s\"");
    let gateway = setup.toml(&silent).fake("fx", &Fake::stdio("both")).start();
    gateway.wait_for_tools_within(SOON, &["fx__echo"]);
    let info = |lines: &[String]| {
        let is_told = |line: &&String| line.contains("INFO") && line.contains("still starting (1 s of 3 s)");
        lines.iter().find(is_told).filter(|line| line.contains("silent")).map(|_| ())
    };
    gateway.stderr.wait_for(SOON, info).expect("a line at INFO");
    assert_eq!(status_of(&gateway, "silent")["state"], "starting");
}

#[test]
fn an_unset_variable_takes_down_its_upstream_alone() {
    let server = Fake::http("modern").spawn();
    let setup = GatewaySetup::new().fake("good", &Fake::stdio("both")).toml(&failing(1)).toml(&format!(
        "[upstreams.url]\nurl = \"{}\"\nheaders = {{ Authorization = {{ env = \"UNSET_TOKEN\", prefix = \"Bearer \" }} }}",
        server.url
    ));
    let gateway = setup.start();
    gateway.wait_for_tools(&["good__echo"]);
    for (name, variable) in [("fx", "GIVEN_KEY"), ("url", "UNSET_TOKEN")] {
        let why = wait_for_state(&gateway, name, "misconfigured");
        assert!(why.contains(&format!("the environment variable `{variable}` is not set")), "{why}");
        let told = said(&gateway.run(&["status"])).split_whitespace().collect::<Vec<_>>().join(" ");
        assert!(told.contains(&format!("set {variable} where headend starts, then start headend again;")), "{told}");
        assert!(!told.contains(&format!("`headend restart {name}` tries at once")), "{told}");
    }
    let checked = gateway.run(&["check", "--config", gateway.config.to_str().unwrap()]);
    assert!(checked.status.success() && said(&checked).contains("`UNSET_TOKEN` is not set"), "{}", said(&checked));
}

/// A TLS server whose certificate no authority has issued.
struct UntrustedTlsServer(Child);

impl Drop for UntrustedTlsServer {
    fn drop(&mut self) {
        // It may have ended already.
        let _ignored = self.0.kill();
        let _ignored = self.0.wait();
    }
}

#[test]
fn a_refused_certificate_is_told_from_a_server_that_is_away() {
    if !installed("openssl") {
        left_out("a refused certificate", "openssl is not installed");
        return;
    }
    let setup = GatewaySetup::new();
    let (key, certificate) = (setup.world.path("work/key.pem"), setup.world.path("work/certificate.pem"));
    let words = "req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -days 2 -subj /CN=other.example -keyout";
    let mut made = setup.world.command("openssl");
    made.args(words.split(' ')).arg(&key).arg("-out").arg(&certificate);
    assert!(made.stderr(Stdio::null()).status().unwrap().success());
    let mut served = setup.world.command("openssl");
    served.args(["s_server", "-www", "-accept", "127.0.0.1:0", "-key"]).arg(&key).arg("-cert").arg(&certificate);
    let mut server = UntrustedTlsServer(served.stdout(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap());
    let mut lines = BufReader::new(server.0.stdout.take().unwrap()).lines();
    let port = lines.find_map(|line| line.unwrap().strip_prefix("ACCEPT ")?.rsplit(':').next()?.parse::<u16>().ok());
    let gateway = setup
        .url("crm", &format!("https://localhost:{}/mcp", port.unwrap()))
        .url("away", "http://127.0.0.1:9/mcp")
        .start();
    let why = wait_for_state(&gateway, "crm", "misconfigured");
    assert!(why.contains("certificate"), "{why}");
    let why = wait_for_state(&gateway, "away", "down");
    assert!(why.contains("connect"), "{why}");
    assert!(in_state(&gateway, "crm", "misconfigured") && in_state(&gateway, "away", "down"));
    let told = |name: &str, words: &str| {
        let lines = gateway.stderr.all();
        lines.iter().any(|line| line.contains(&format!("upstream.name={name}")) && line.contains(words))
    };
    assert!(told("crm", "correct `url`") && !told("away", "correct"), "{}", gateway.story());
}
