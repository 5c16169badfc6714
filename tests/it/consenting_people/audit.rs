//! Tests of the audit log: it contains every decision, every change of it is detected, and an
//! action that cannot be recorded does not happen.

use std::fs;
use std::path::PathBuf;
use std::process::{Child, Stdio};
use std::thread;
use std::time::Duration;

use rustix::process::{Pid, Resource, Rlimit, Signal, prlimit};
use serde_json::{Value, json};

use crate::tools::harness::{Gateway, GatewaySetup, TestHome, headend};
use crate::tools::mcp::{ClientEra, Mcp};
use crate::tools::process::{Lines, end, eventually, said};
use crate::tools::stdio::Pipe;
use crate::tools::upstream::{Fake, InputLog};

/// Names and contents of the segments.
type SegmentFiles = Vec<(String, Vec<u8>)>;

#[test]
fn verify_names_the_first_bad_record_of_every_kind_of_damage() {
    let mut gateway =
        GatewaySetup::new().fake("fx", &Fake::stdio("both")).toml("[audit]\nmax-segment = \"64KiB\"").start();
    gateway.wait_for_tools(&["fx__echo"]);
    let mut client = gateway.modern();
    let mut early = SegmentFiles::new();
    while files(&gateway.world).len() < 4 {
        client.call("fx__echo", json!({"text": "x"}));
        let now = files(&gateway.world);
        if early.is_empty() && now.len() >= 2 && now.last().unwrap().1.ends_with(b"\n") {
            early = now;
        }
    }
    let running = gateway.run(&["audit", "verify"]);
    assert!(running.status.success(), "while it is written: {}", said(&running));
    stop(&mut gateway);
    let good = files(&gateway.world);
    // A writer that was delayed may fill several files at once.
    let (end, rolled) = (good.len() - 1, early.len() - 1);
    let (last, text) = good.last().unwrap().clone();
    let lines = text.iter().filter(|byte| **byte == b'\n').count();
    let first = seq(&text, 0);
    let rows: Vec<(&str, SegmentFiles, &str, usize, u64, &str)> = vec![
        ("a flipped bit", edited(&good, 1, |lines| lines[4][30] ^= 1), &good[1].0, 5, seq(&good[1].1, 4), "changed"),
        (
            "a deleted line",
            edited(&good, 2, |lines| drop(lines.remove(7))),
            &good[2].0,
            8,
            seq(&good[2].1, 8),
            "removed",
        ),
        ("swapped lines", edited(&good, 0, |lines| lines.swap(3, 9)), &good[0].0, 4, 10, "reordered"),
        ("a doubled line", edited(&good, 0, |lines| lines[3] = lines[2].clone()), &good[0].0, 4, 3, "duplicate"),
        ("a foreign line", edited(&good, 0, |lines| lines[3] = b"{}\n".to_vec()), &good[0].0, 4, 4, "not-a-record"),
        ("a removed middle segment", without(&good, 1), &good[2].0, 1, seq(&good[2].1, 0), "removed"),
        ("a removed first segment", without(&good, 0), &good[1].0, 1, seq(&good[1].1, 0), "removed"),
        (
            "a removed last segment",
            without(&good, end),
            &good[end - 1].0,
            1 + lines_of(&good[end - 1].1),
            first,
            "cut-off",
        ),
        ("a cut tail", edited(&good, end, |lines| drop(lines.pop())), &last, lines, seq(&text, lines - 1), "cut-off"),
        (
            "a tail cut in a line",
            edited(&good, end, |lines| lines.last_mut().unwrap().truncate(30)),
            &last,
            lines,
            seq(&text, lines - 1),
            "torn",
        ),
        (
            "a log rolled back to an earlier one",
            early.clone(),
            &early[rolled].0,
            1 + lines_of(&early[rolled].1),
            seq(&early[rolled].1, lines_of(&early[rolled].1) - 1) + 1,
            "cut-off",
        ),
        ("no log at all", SegmentFiles::new(), "audit-main-000001.jsonl", 1, 1, "cut-off"),
    ];
    for (label, damaged, file, line, seq, what) in rows {
        put(&gateway.world, &damaged);
        let verdict = gateway.run(&["audit", "verify", "--json"]);
        assert_eq!(verdict.status.code(), Some(1), "{label}: {}", said(&verdict));
        let report: Value = serde_json::from_slice(&verdict.stdout).unwrap();
        let path = folder(&gateway.world).join(file);
        let wanted = json!([path, line, seq, what]);
        assert_eq!(json!([report["file"], report["line"], report["seq"], report["what"]]), wanted, "{label}");
        let text = said(&gateway.run(&["audit", "verify"]));
        assert!(text.contains(&format!("{file}: line {line}: record {seq}: ")), "{label}: {text}");
    }
    put(&gateway.world, &good);
    let verdict = gateway.run(&["audit", "verify"]);
    assert!(verdict.status.success(), "{}", said(&verdict));
    put(&gateway.world, &without(&good, 0));
    let verdict = gateway.run(&["audit", "verify", "--archived"]);
    assert!(verdict.status.success(), "the oldest files are elsewhere: {}", said(&verdict));
}

#[test]
fn a_rolled_back_log_is_noticed_at_the_next_start_and_stays_bad() {
    let mut gateway = GatewaySetup::new().fake("fx", &Fake::stdio("both")).start();
    gateway.wait_for_tools(&["fx__echo"]);
    gateway.modern().call("fx__echo", json!({"text": "x"}));
    eventually("the first call is written", || decisions(&gateway.world) == 1);
    let early = files(&gateway.world);
    gateway.modern().call("fx__echo", json!({"text": "y"}));
    stop(&mut gateway);
    put(&gateway.world, &early);
    let mut again = Gateway::start(gateway.world.clone(), Some(gateway.config.clone()), &["serve"], &[]);
    again.wait_for_tools(&["fx__echo"]);
    let noticed =
        |lines: &[String]| lines.iter().any(|line| line.contains("cut, changed or rolled back")).then_some(());
    assert!(again.stderr.wait_for(Duration::from_secs(60), noticed).is_some(), "{}", again.story());
    again.modern().call("fx__echo", json!({"text": "z"}));
    stop(&mut again);
    let verdict = again.run(&["audit", "verify"]);
    let (next, gone) = (seq(&files(&again.world)[1].1, 0), lines_of(&early[0].1) + 1);
    let wanted = format!(
        "audit-main-000002.jsonl: line 1: record {next}: sequence gap: the records from {gone} on were removed"
    );
    assert_eq!(verdict.status.code(), Some(1), "{}", said(&verdict));
    assert!(said(&verdict).contains(&wanted), "{}", said(&verdict));
    assert_eq!(files(&again.world)[0], early[0], "what was found is left as it was");
}

#[test]
fn a_log_that_was_written_anew_does_not_fit_the_line_in_the_journal() {
    let mut gateway = GatewaySetup::new().fake("fx", &Fake::stdio("both")).start();
    gateway.wait_for_tools(&["fx__echo"]);
    gateway.modern().call("fx__echo", json!({"text": "x"}));
    stop(&mut gateway);
    let line = gateway.stderr.all().into_iter().find(|line| line.contains("checkpoint")).unwrap();
    let field = |name: &str| line.split(&format!("{name}=")).nth(1).unwrap().split(' ').next().unwrap().to_owned();
    let anchor = format!("{}:{}:{}", field("chain"), field("seq"), field("hash"));
    let good = gateway.run(&["audit", "verify", "--head", &anchor]);
    assert!(good.status.success(), "{}", said(&good));
    let copy = folder(&gateway.world);
    let copied = gateway.run(&["audit", "verify", "--dir", copy.to_str().unwrap(), "--head", &anchor]);
    assert!(copied.status.success(), "{}", said(&copied));
    let other = anchor.replace(&field("hash"), &"0".repeat(64));
    assert_eq!(gateway.run(&["audit", "verify", "--head", &other]).status.code(), Some(1));
    assert_eq!(gateway.run(&["audit", "verify", "--head", "main:x"]).status.code(), Some(64));
}

#[test]
fn calls_are_refused_while_the_log_is_full_and_work_again_without_a_restart() {
    let setup = GatewaySetup::new();
    let log = InputLog::new(&setup.world.path("work"), "fx");
    let (world, config) = setup.fake("fx", &Fake::stdio("both").logging(&log)).write();
    // A limit on the size of files is a full disk that needs no root; the signal that comes with it
    // is ignored.
    let mut command = world.command("/bin/sh");
    command.args(["-c", "trap '' XFSZ; exec \"$0\" \"$@\"", headend()]);
    let mut gateway = Gateway::start_by(command, world, Some(config), &["serve"], &[]);
    gateway.wait_for_tools(&["fx__echo"]);
    let mut client = gateway.modern();
    let mut call = |text: &str| client.call("fx__echo", json!({"text": text})).is_error();
    assert!(!call("before"));
    eventually("it is written", || decisions(&gateway.world) == 1);
    // Room for less than a record: a partial record is cut off again.
    let length = files(&gateway.world)[0].1.len() as u64;
    limit(&gateway, Some(length + 100));
    eventually("calls are refused", || call("first"));
    let reached = log.work();
    for _ in 0..20 {
        assert!(call("full"), "{}", gateway.story());
    }
    assert_eq!(log.work(), reached, "no refused call reaches the server");
    assert!(log.lines_with(&["\"full\""]).is_empty());
    let verdict = gateway.run(&["audit", "verify"]);
    assert!(verdict.status.success(), "{}", said(&verdict));
    let page = gateway.scrape();
    let failures = page.lines().find_map(|line| line.strip_prefix("headend_audit_failures_total ")).unwrap();
    assert!(failures.parse::<u64>().unwrap() >= 20, "{failures}");
    limit(&gateway, None);
    eventually("calls work again", || !call("after"));
    assert!(!call("after"));
    stop(&mut gateway);
    let verdict = gateway.run(&["audit", "verify"]);
    assert!(verdict.status.success(), "{}", said(&verdict));
    let text = String::from_utf8(files(&gateway.world)[0].1.clone()).unwrap();
    assert!(text.contains("records before this one could not be written"), "{text}");
}

#[test]
fn calls_go_on_while_the_log_is_full_where_the_operator_says_so() {
    let (world, config) =
        GatewaySetup::new().fake("fx", &Fake::stdio("both")).toml("[audit]\non-failure = \"continue\"").write();
    let mut command = world.command("/bin/sh");
    command.args(["-c", "trap '' XFSZ; exec \"$0\" \"$@\"", headend()]);
    let gateway = Gateway::start_by(command, world, Some(config), &["serve"], &[]);
    gateway.wait_for_tools(&["fx__echo"]);
    limit(&gateway, Some(10));
    let mut client = gateway.modern();
    for _ in 0..10 {
        assert!(!client.call("fx__echo", json!({"text": "on"})).is_error());
    }
    let noted = |lines: &[String]| lines.iter().any(|line| line.contains("calls go on unrecorded")).then_some(());
    assert!(gateway.stderr.wait_for(Duration::from_secs(60), noted).is_some(), "{}", gateway.story());
}

#[test]
fn a_killed_daemon_leaves_a_sound_log_and_the_next_goes_on_with_it() {
    let (world, config) = GatewaySetup::new().fake("fx", &Fake::stdio("both")).write();
    let mut before = 0;
    for round in 0_u64..5 {
        let gateway = Gateway::start(world.clone(), Some(config.clone()), &["serve"], &[]);
        gateway.wait_for_tools(&["fx__echo"]);
        thread::scope(|scope| {
            let callers: Vec<_> = (0..3)
                .map(|_| {
                    let (address, token) = (gateway.address, gateway.token());
                    scope.spawn(move || call_until_it_is_gone(address, token))
                })
                .collect();
            eventually("calls are written", || decisions(&world) > before + 20);
            thread::sleep(Duration::from_millis(round * 37 % 50));
            gateway.signal(Signal::KILL);
            callers.into_iter().for_each(|caller| caller.join().unwrap());
        });
        drop(gateway);
        let verdict = world.run(&["audit", "verify"]);
        assert!(verdict.status.success(), "round {round}: {}", said(&verdict));
        before = decisions(&world);
    }
    let records = files(&world).iter().map(|(_, text)| lines_of(text)).sum::<usize>();
    assert!(records >= before + 5, "five starts, {before} decisions, {records} records");
}

#[test]
fn a_gateway_on_a_pipe_has_a_chain_of_its_own_beside_the_daemon() {
    let gateway = GatewaySetup::new().fake("fx", &Fake::stdio("both")).start();
    gateway.wait_for_tools(&["fx__echo"]);
    gateway.modern().call("fx__echo", json!({"text": "x"}));
    let mut pipe = Mcp::stdio(Pipe::start(&gateway.world, &gateway.config, &["--no-daemon"]), ClientEra::LEGACY);
    eventually("the server is up", || pipe.tool_names().iter().any(|name| name == "fx__echo"));
    pipe.call("fx__fail", json!({}));
    drop(pipe);
    eventually("both are written", || decisions(&gateway.world) == 2);
    let verdict = gateway.run(&["audit", "verify"]);
    let text = String::from_utf8_lossy(&verdict.stdout).into_owned();
    assert!(verdict.status.success() && text.contains("main: ok") && text.contains("\ns-"), "{}", said(&verdict));
    let tail = String::from_utf8(gateway.run(&["audit", "tail"]).stdout).unwrap();
    for text in ["started", "item=fx__echo", "item=fx__fail", "rule=default"] {
        assert!(tail.contains(text), "{text} in\n{tail}");
    }
}

#[test]
fn old_files_are_removed_by_size_and_verify_explains_the_gap_and_finds_any_other() {
    // Strict, so that a slow disk makes no file larger than it may be, and more than one is left.
    let keys = "[audit]\nstrict = true\nmax-segment = \"64KiB\"\nretain = { age = \"30d\", size = \"128KiB\" }";
    let mut gateway = GatewaySetup::new().fake("fx", &Fake::stdio("both")).toml(keys).start();
    gateway.wait_for_tools(&["fx__echo"]);
    let mut client = gateway.modern();
    let is_gone = |world: &TestHome| !folder(world).join("audit-main-000001.jsonl").exists();
    while !is_gone(&gateway.world) || fs::read_dir(folder(&gateway.world)).unwrap().count() < 2 {
        client.call("fx__echo", json!({"text": "x"}));
    }
    let running = gateway.run(&["audit", "verify"]);
    assert!(running.status.success(), "while it is written: {}", said(&running));
    stop(&mut gateway);
    let verdict = gateway.run(&["audit", "verify"]);
    let text = said(&verdict);
    assert!(verdict.status.success() && text.contains("retention removed ") && text.contains(" of 20"), "{text}");
    let verdict = gateway.run(&["audit", "verify", "--json"]);
    let report: Value = serde_json::from_slice(&verdict.stdout).unwrap();
    let good = files(&gateway.world);
    assert_eq!(report["removed"].as_u64().unwrap() + 1, seq(&good[0].1, 0), "{report}");
    let copied = gateway.run(&["audit", "verify", "--dir", folder(&gateway.world).to_str().unwrap()]);
    assert!(copied.status.success(), "a copy tells as much: {}", said(&copied));
    put(&gateway.world, &without(&good, 0));
    let verdict = gateway.run(&["audit", "verify"]);
    assert_eq!(verdict.status.code(), Some(1), "{}", said(&verdict));
    assert!(said(&verdict).contains("the records from 1 on were removed"), "{}", said(&verdict));
    put(&gateway.world, &good);
    let again = Gateway::start(gateway.world.clone(), Some(gateway.config.clone()), &["serve"], &[]);
    again.wait_for_tools(&["fx__echo"]);
    assert!(!again.stderr.all().iter().any(|line| line.contains("cut, changed or rolled back")), "{}", again.story());
}

#[test]
fn copies_of_several_logs_are_verified_one_by_one() {
    let gateways: Vec<Gateway> = (0..2)
        .map(|_| {
            let mut gateway = GatewaySetup::new().fake("fx", &Fake::stdio("both")).start();
            gateway.wait_for_tools(&["fx__echo"]);
            stop(&mut gateway);
            gateway
        })
        .collect();
    let [one, two] = [0, 1].map(|at: usize| folder(&gateways[at].world).display().to_string());
    let verify = |args: &[&str]| gateways[0].run(&[&["audit", "verify"], args].concat());
    let good = verify(&[&one, &format!("right={two}")]);
    assert!(good.status.success() && said(&good).matches("main: ok").count() == 2, "{}", said(&good));
    assert!(said(&good).contains(&format!("{two}: not compared with a store")), "{}", said(&good));
    let state = PathBuf::from(&one).parent().unwrap().display().to_string();
    let of_state = verify(&[&state]);
    assert!(of_state.status.success() && said(&of_state).contains("main: ok"), "{}", said(&of_state));
    put(&gateways[1].world, &edited(&files(&gateways[1].world), 0, |lines| lines[0][30] ^= 1));
    let bad = verify(&["--json", &one, &two]);
    assert_eq!(bad.status.code(), Some(1), "{}", said(&bad));
    let reports: Vec<Value> =
        bad.stdout.split(|byte| *byte == b'\n').filter_map(|line| serde_json::from_slice(line).ok()).collect();
    let shown: Vec<Value> = reports.iter().map(|report| json!([report["dir"], report["ok"]])).collect();
    assert_eq!(shown, [json!([one, true]), json!([two, false])]);
    put(&gateways[1].world, &SegmentFiles::new());
    let empty = verify(&[&one, &two]);
    assert!(empty.status.code() == Some(1) && said(&empty).contains("no records"), "{}", said(&empty));
    assert_eq!(verify(&["/nowhere"]).status.code(), Some(64));
}

#[test]
fn tail_shows_the_last_records_follows_and_chooses_callers() {
    let tokens = "auth = { tokens = { ci = \"ci-token-0123456789\" } }";
    let gateway = GatewaySetup::new()
        .server(tokens)
        .fake("fx", &Fake::stdio("both"))
        .toml("[audit]\nmax-segment = \"64KiB\"")
        .start();
    gateway.wait_for_tools(&["fx__echo"]);
    let mut ci = Mcp::http(gateway.address, Some("ci-token-0123456789".to_owned()), ClientEra::Modern);
    let mut local = gateway.modern();
    local.call("fx__echo", json!({"text": "x"}));
    ci.call("fx__fail", json!({}));
    eventually("both are written", || decisions(&gateway.world) == 2);
    let tail = |args: &[&str]| {
        let output = gateway.run(&[&["audit", "tail"], args].concat());
        assert!(output.status.success(), "{}", said(&output));
        String::from_utf8(output.stdout).unwrap()
    };
    assert_eq!(tail(&["-n", "1"]).lines().count(), 1);
    assert!(tail(&[]).lines().count() >= 3, "a start and two calls");
    let of_ci = tail(&["--caller", "ci", "--json"]);
    let decision = of_ci.lines().find(|line| line.contains(r#""event":"decision""#)).unwrap();
    let record: Value = serde_json::from_str(decision).unwrap();
    assert_eq!(json!([record["caller"], record["item"], record["result"]]), json!(["ci", "fx__fail", "allow"]));
    let mut command = gateway.world.command(headend());
    command.args(["audit", "tail", "-f", "-n", "0", "--caller", "local"]).arg("--config").arg(&gateway.config);
    let mut follower = FollowerProcess(command.stdout(Stdio::piped()).spawn().unwrap());
    let lines = Lines::of(follower.0.stdout.take().unwrap());
    // `tail -f` shows only later records, so the test repeats the call until one shows.
    eventually("the record is shown", || {
        local.call("fx__write", json!({}));
        lines.all().iter().any(|line| line.contains("item=fx__write"))
    });
    while files(&gateway.world).len() < 3 {
        local.call("fx__echo", json!({"text": "x"}));
    }
    local.call("fx__fail", json!({}));
    eventually("it follows to the next file", || lines.all().iter().any(|line| line.contains("item=fx__fail")));
    assert!(lines.all().iter().all(|line| line.contains("caller=local")));
}

/// A follower process that ends with its test.
struct FollowerProcess(Child);

impl Drop for FollowerProcess {
    fn drop(&mut self) {
        end(&mut self.0);
    }
}

fn call_until_it_is_gone(address: std::net::SocketAddr, token: Option<String>) {
    // The connection breaks when the daemon is killed, which ends the client by a panic.
    drop(thread::spawn(move || {
        let mut client = Mcp::http(address, token, ClientEra::Modern);
        while !client.call("fx__echo", json!({"text": "x"})).raw.is_empty() {}
    }));
}

/// Sets the file size limit of the daemon's process alone.
pub(crate) fn limit(gateway: &Gateway, bytes: Option<u64>) {
    let pid = Pid::from_raw(i32::try_from(gateway.pid()).unwrap());
    prlimit(pid, Resource::Fsize, Rlimit { current: bytes, maximum: None }).unwrap();
}

fn stop(gateway: &mut Gateway) {
    gateway.signal(Signal::TERM);
    assert!(gateway.wait(Duration::from_secs(60)).is_some(), "{}", gateway.story());
}

fn folder(world: &TestHome) -> PathBuf {
    world.path("state/headend/audit")
}

fn files(world: &TestHome) -> SegmentFiles {
    let mut files: SegmentFiles = fs::read_dir(folder(world))
        .unwrap()
        .map(|entry| entry.unwrap())
        .map(|entry| (entry.file_name().into_string().unwrap(), fs::read(entry.path()).unwrap()))
        .collect();
    files.sort();
    files
}

/// Replaces the files of the log by these.
fn put(world: &TestHome, files: &SegmentFiles) {
    fs::remove_dir_all(folder(world)).unwrap();
    fs::create_dir(folder(world)).unwrap();
    files.iter().for_each(|(name, text)| fs::write(folder(world).join(name), text).unwrap());
}

fn edited(files: &SegmentFiles, at: usize, edit: impl FnOnce(&mut Vec<Vec<u8>>)) -> SegmentFiles {
    let mut files = files.clone();
    let mut lines: Vec<Vec<u8>> = files[at].1.split_inclusive(|byte| *byte == b'\n').map(<[u8]>::to_vec).collect();
    edit(&mut lines);
    files[at].1 = lines.concat();
    files
}

fn without(files: &SegmentFiles, at: usize) -> SegmentFiles {
    let mut files = files.clone();
    files.remove(at);
    files
}

/// Returns the number in a line of a file.
fn seq(text: &[u8], line: usize) -> u64 {
    let line = text.split(|byte| *byte == b'\n').nth(line).unwrap();
    serde_json::from_slice::<Value>(line).unwrap()["seq"].as_u64().unwrap()
}

fn lines_of(text: &[u8]) -> usize {
    text.iter().filter(|byte| **byte == b'\n').count()
}

fn decisions(world: &TestHome) -> usize {
    let needle = r#""event":"decision""#;
    files(world).iter().map(|(_, text)| String::from_utf8_lossy(text).matches(needle).count()).sum()
}
