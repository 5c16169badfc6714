//! Tests of `headend serve --take-over`: a new daemon takes the sockets, the approvals and the
//! upstreams of the running one, and a failure before that leaves the old one as it was.

use std::collections::HashSet;
use std::fs;
use std::io::{BufRead as _, BufReader, Write as _};
use std::net::SocketAddr;
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::process::Stdio;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use rustix::process::Signal;
use serde_json::{Value, json};

use crate::tools::harness::{Gateway, GatewaySetup, headend};
use crate::tools::http::{self, TestConnection};
use crate::tools::mcp::{ClientEra, Mcp, McpAnswer, dressed};
use crate::tools::process::{eventually, output_within, said, within};
use crate::tools::socket::Socket;
use crate::tools::stdio::Pipe;
use crate::tools::steps::revive::{asks_for_approval, going_on, state_of};
use crate::tools::upstream::{Fake, InputLog, toml_array};

/// Time for the end of a daemon that has been taken over, on a busy machine.
const END: Duration = Duration::from_secs(60);

/// An upstream whose processes note their pids in a file, and whether the one before still lives.
struct Witness(PathBuf);

impl Witness {
    fn new(setup: &GatewaySetup) -> Self {
        Self(setup.world.path("work").join("witness"))
    }

    /// Returns the command of the server behind a shell that makes the note.
    fn command(&self, fake: &Fake) -> String {
        let words: Vec<String> = serde_json::from_str(&fake.command()).unwrap();
        let file = self.0.display();
        let script = format!(
            "if [ -s {file} ] && kill -0 $(tail -n 1 {file}) 2>/dev/null; then echo overlap >> {file}; fi; \
             echo $$ >> {file}; exec {}",
            words.join(" ")
        );
        toml_array(["sh", "-c", &script])
    }

    /// Returns the number of processes so far, after a check that no two lived at once.
    fn processes(&self) -> usize {
        let text = fs::read_to_string(&self.0).unwrap_or_default();
        assert!(!text.contains("overlap"), "two processes at once:\n{text}");
        text.lines().count()
    }
}

/// Starts a daemon that takes over from this one, and waits until the old one has ended.
pub(super) fn take_over(mut old: Gateway) -> Gateway {
    let new = begin_to_take_over(&old);
    assert!(old.wait(END).is_some_and(|status| status.success()), "{}", old.story());
    new
}

/// Starts a daemon that takes over from this one, and waits until it serves.
pub(super) fn begin_to_take_over(old: &Gateway) -> Gateway {
    let (world, path) = (old.world.clone(), old.config.clone());
    let new = Gateway::start(world, Some(path), &["serve", "--take-over"], &[]);
    assert_eq!(new.address, old.address, "{}", new.story());
    assert_eq!(new.metrics, old.metrics);
    new
}

/// Makes a call on a connection of its own.
fn call(gateway: &Gateway, client: &mut Mcp, arguments: Value) -> String {
    client.follow(gateway.address);
    client.call("fx__echo", arguments).text()
}

#[test]
fn clients_go_on_and_no_two_processes_of_an_upstream_run_at_once() {
    let setup = GatewaySetup::new();
    let witness = Witness::new(&setup);
    let command = witness.command(&Fake::stdio("legacy"));
    let mut gateway = setup.toml(&format!("[upstreams.fx]\ncommand = {command}")).start();
    gateway.wait_for_tools(&["fx__echo"]);
    let mut clients = [
        gateway.legacy(),
        gateway.modern(),
        Mcp::stdio(Pipe::start(&gateway.world, &gateway.config, &[]), ClientEra::LEGACY),
    ];
    let times: usize = std::env::var("HEADEND_TEST_HANDOVERS").map_or(4, |times| times.parse().unwrap());
    for n in 0..times {
        for (k, client) in clients.iter_mut().enumerate() {
            let said = format!("{n}-{k}");
            assert!(call(&gateway, client, json!({"text": said})).contains(&said), "{}", gateway.story());
        }
        gateway = take_over(gateway);
        within(END, "the upstream has another process", || witness.processes() == n + 2);
    }
    let audit = gateway.run(&["audit", "verify"]);
    assert!(audit.status.success(), "{}", said(&audit));
}

#[test]
fn a_call_in_flight_is_answered_by_the_old_daemon_and_the_next_one_by_the_new() {
    let setup = GatewaySetup::new();
    let witness = Witness::new(&setup);
    let command = witness.command(&Fake::stdio("legacy"));
    let mut old = setup.toml(&format!("[upstreams.fx]\ncommand = {command}")).start();
    old.wait_for_tools(&["fx__sleep"]);
    let mut stdio = Mcp::stdio(Pipe::start(&old.world, &old.config, &[]), ClientEra::LEGACY);
    let (mut legacy, mut other) = (old.legacy(), old.modern());
    let slow = json!({"name": "fx__sleep", "arguments": {"ms": 3000}});
    let mut open = legacy.open("tools/call", slow.clone());
    stdio
        .pipe()
        .send(json!({"jsonrpc": "2.0", "id": "slow", "method": "tools/call", "params": slow}).to_string().as_bytes());
    std::thread::sleep(Duration::from_millis(300));
    let new = begin_to_take_over(&old);
    let after = Instant::now();
    assert!(call(&new, &mut other, json!({"text": "later"})).contains("later"), "{}", new.story());
    let waited = after.elapsed();
    let answer = open.response();
    assert!(answer.get("result").is_some(), "{answer}\n{}", old.story());
    let answer = stdio.pipe().answer(&json!("slow"), END);
    assert!(!answer.raw.contains("error"), "{}", answer.raw);
    assert!(old.wait(END).is_some_and(|status| status.success()), "{}", old.story());
    assert_eq!(witness.processes(), 2);
    eprintln!("a call waited {waited:?} for the process of the old daemon");
    assert!(call(&new, &mut stdio, json!({"text": "again"})).contains("again"));
}

/// Starts a daemon that asks for an approval of every call, in front of a modern server that
/// answers as a file says.
fn asking() -> (Gateway, InputLog) {
    let consent = "default = \"ask\"\n[policy.consent]\nper-minute = 100\nmax-open = 100\nhold = \"20s\"";
    let setup = GatewaySetup::new().policy(consent);
    let log = InputLog::new(&setup.world.path("work"), "fx");
    let gateway = setup.fake("fx", &Fake::stdio("modern").logging(&log)).start();
    gateway.wait_for_tools(&["fx__echo"]);
    (gateway, log)
}

/// Returns the parameters that repeat a call with the person's yes.
fn going_on_with(name: &str, arguments: &Value, first: &McpAnswer) -> Value {
    let mut again = going_on(arguments, &state_of(first));
    again["name"] = json!(name);
    again
}

/// Returns the ids of the open approvals.
fn approvals(gateway: &Gateway) -> Vec<String> {
    let listed = gateway.run(&["approvals", "--json"]);
    assert!(listed.status.success(), "{}", said(&listed));
    let listed: Value = serde_json::from_slice(&listed.stdout).unwrap();
    let rows = listed["approvals"].as_array().cloned().unwrap_or_default();
    rows.iter().map(|row| row["id"].as_str().unwrap().to_owned()).collect()
}

#[test]
fn an_approval_that_a_client_carries_stays_open_and_is_used_once() {
    let (gateway, log) = asking();
    let mut client =
        Mcp::http_at(gateway.address, gateway.token(), ClientEra::Modern, "/mcp", json!({"elicitation": {}}));
    let arguments = json!({"text": "carried"});
    let first = client.call("fx__echo", arguments.clone());
    assert!(asks_for_approval(&first), "{}", first.raw);
    let before = approvals(&gateway);
    let gateway = take_over(gateway);
    assert_eq!(approvals(&gateway), before, "{}", gateway.story());
    client.follow(gateway.address);
    let again = going_on_with("fx__echo", &arguments, &first);
    let second = client.request("tools/call", again.clone());
    assert_eq!(second.text(), "carried", "{}", second.raw);
    assert!(approvals(&gateway).is_empty());
    let third = client.request("tools/call", again);
    assert!(third.raw.contains("error") || asks_for_approval(&third), "{}", third.raw);
    assert_eq!(log.count("tools/call"), 1);
}

#[test]
fn a_held_call_is_told_to_come_back_and_its_repetition_uses_the_yes() {
    let (old, log) = asking();
    let mut client = old.modern();
    let call = json!({"name": "fx__echo", "arguments": {"text": "held"}});
    let mut open = client.open("tools/call", call.clone());
    eventually("the call is held", || approvals(&old).len() == 1);
    let gateway = take_over(old);
    let answer = open.response();
    assert!(answer.to_string().contains("awaiting_approval"), "{answer}");
    let [id] = approvals(&gateway).try_into().unwrap();
    let yes = gateway.run(&["approve", &id]);
    assert!(yes.status.success(), "{}\n{}", said(&yes), gateway.story());
    client.follow(gateway.address);
    let answer = client.request("tools/call", call);
    assert_eq!(answer.text(), "held", "{}", answer.raw);
    assert_eq!(log.count("tools/call"), 1);
}

/// Runs `headend serve --take-over` to its end, which must be a failure with this text.
fn fails_to_take_over(gateway: &Gateway, args: &[&str], text: &str) {
    let mut command = gateway.world.command(headend());
    command.args(["serve", "--take-over"]).args(args).stdout(Stdio::piped()).stderr(Stdio::piped());
    let output = output_within(command.spawn().unwrap(), END, "headend serve --take-over");
    assert!(!output.status.success() && said(&output).contains(text), "{}", said(&output));
}

#[test]
fn a_failure_leaves_the_daemon_as_it_was() {
    let setup = GatewaySetup::new();
    let witness = Witness::new(&setup);
    let command = witness.command(&Fake::stdio("legacy"));
    let gateway = setup.toml(&format!("[upstreams.fx]\ncommand = {command}")).start();
    gateway.wait_for_tools(&["fx__echo"]);
    let bad = gateway.world.write("bad.toml", "[server]\nlisten = 1\n");
    fails_to_take_over(&gateway, &["--config", bad.to_str().unwrap()], "listen");
    let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = taken.local_addr().unwrap();
    let text = format!("[server]\nlisten = [\"{address}\"]\n");
    let bad = gateway.world.write("taken.toml", &text);
    fails_to_take_over(&gateway, &["--config", bad.to_str().unwrap()], "in use");
    assert_eq!(witness.processes(), 1);
    let audit = gateway.run(&["audit", "verify"]);
    assert!(audit.status.success(), "{}", said(&audit));
    drop(take_over(gateway));
}

/// Asks for the daemon as a new process does, up to that step. Returns the connection.
fn ask_up_to(gateway: &Gateway, step: usize) -> UnixStream {
    let socket = gateway.world.path("run/headend.sock");
    let mut stream = UnixStream::connect(&socket).unwrap();
    let mut lines = BufReader::new(stream.try_clone().unwrap()).lines();
    let steps = [
        (r#"{"headend":1,"want":"take-over"}"#, "headend"),
        (r#""ask""#, "complete"),
        (r#"{"ready":{"pid":1,"version":"0"}}"#, "yours"),
        (r#"{"built":{"has_socket":true}}"#, "go"),
    ];
    for (says, hears) in steps.into_iter().take(step) {
        writeln!(stream, "{says}").unwrap();
        let heard = lines.by_ref().map(Result::unwrap).find(|line| line.contains(&format!("\"{hears}\"")));
        assert!(heard.is_some(), "{says}: {}", gateway.story());
    }
    stream
}

#[test]
fn a_process_that_goes_away_at_any_step_changes_nothing() {
    let (gateway, _) = asking();
    let mut client =
        Mcp::http_at(gateway.address, gateway.token(), ClientEra::Modern, "/mcp", json!({"elicitation": {}}));
    let arguments = json!({"text": "once"});
    let first = client.call("fx__echo", arguments.clone());
    let open = approvals(&gateway);
    assert_eq!(open.len(), 1);
    for step in 0..=4 {
        let asking = ask_up_to(&gateway, step);
        if step == 2 {
            fails_to_take_over(&gateway, &["--config", gateway.config.to_str().unwrap()], "being taken over");
        }
        drop(asking);
        within(END, "the approval is there", || approvals(&gateway) == open);
    }
    let answer = client.request("tools/call", going_on_with("fx__echo", &arguments, &first));
    assert_eq!(answer.text(), "once", "{}", answer.raw);
    let audit = gateway.run(&["audit", "verify"]);
    assert!(audit.status.success(), "{}", said(&audit));
    drop(take_over(gateway));
}

#[test]
fn after_kill_9_only_the_calls_in_flight_have_failed() {
    let setup = GatewaySetup::new();
    let witness = Witness::new(&setup);
    let command = witness.command(&Fake::stdio("legacy"));
    let mut old = setup.toml(&format!("[upstreams.fx]\ncommand = {command}")).start();
    old.wait_for_tools(&["fx__sleep"]);
    let (mut legacy, mut stdio) =
        (old.legacy(), Mcp::stdio(Pipe::start(&old.world, &old.config, &[]), ClientEra::LEGACY));
    let slow = json!({"name": "fx__sleep", "arguments": {"ms": 20000}});
    stdio
        .pipe()
        .send(json!({"jsonrpc": "2.0", "id": "slow", "method": "tools/call", "params": slow}).to_string().as_bytes());
    std::thread::sleep(Duration::from_millis(300));
    // While it is being taken over, the old one is killed.
    let new = begin_to_take_over(&old);
    old.signal(Signal::KILL);
    assert!(old.wait(END).is_some());
    let answer = stdio.pipe().answer(&json!("slow"), END);
    assert!(answer.raw.contains(r#""executed":"unknown""#), "{}", answer.raw);
    for client in [&mut legacy, &mut stdio] {
        assert!(call(&new, client, json!({"text": "on"})).contains("on"), "{}", new.story());
    }
    assert_eq!(witness.processes(), 2);
}

#[test]
fn without_a_daemon_it_starts_as_usual() {
    let (world, path) = GatewaySetup::new().write();
    let gateway = Gateway::start(world, Some(path), &["serve", "--take-over"], &[]);
    assert!(gateway.stderr.all().join("\n").contains("none to take over"), "{}", gateway.story());
}

#[test]
fn a_call_that_is_on_its_way_at_the_hand_over_finds_its_upstream_running() {
    let gateway = GatewaySetup::new().fake("fx", &Fake::stdio("legacy")).start();
    gateway.wait_for_tools(&["fx__echo"]);
    let call = |text: &str| {
        let params = dressed(json!({"name": "fx__echo", "arguments": {"text": text}}), &json!({}));
        json!({"jsonrpc": "2.0", "id": text, "method": "tools/call", "params": params})
    };
    let mut relay = Socket::relay(&gateway);
    let client = gateway.modern();
    let body = call("slow").to_string();
    let params = call("slow")["params"].clone();
    let request = http::request("POST", "/mcp", &client.headers("tools/call", &params), body.as_bytes());
    let (begin, rest) = request.split_at(request.len() - 10);
    let mut slow = TestConnection::open(gateway.address).unwrap();
    slow.send(begin).unwrap();
    let new = begin_to_take_over(&gateway);
    assert!(relay.line()["method"].as_str().is_some_and(|method| method.ends_with("/leaving")));
    // Upstreams that no call needs are looked for every 20 ms.
    std::thread::sleep(Duration::from_millis(500));
    slow.send(rest).unwrap();
    relay.send(&call("relayed"));
    relay.send(&json!({"jsonrpc": "2.0", "method": "notifications/headend/left"}));
    let answer = relay.line().to_string();
    assert!(answer.contains("relayed") && !answer.contains("isError\":true"), "{answer}");
    let answer = slow.response().unwrap().text();
    assert!(answer.contains("slow") && !answer.contains("isError\":true"), "{answer}");
    drop(new);
}

#[test]
fn an_answer_and_a_cancellation_for_the_old_daemon_reach_it() {
    let setup = GatewaySetup::new();
    let log = InputLog::new(&setup.world.path("work"), "fx");
    let gateway = setup.fake("fx", &Fake::stdio("legacy").behaving("asks").logging(&log)).start();
    gateway.wait_for_tools(&["fx__inquire"]);
    let capabilities = json!({"elicitation": {}});
    let mut client = Mcp::http_at(gateway.address, gateway.token(), ClientEra::LEGACY, "/mcp", capabilities);
    let schema = json!({"type": "object", "properties": {"name": {"type": "string"}}});
    let params = json!({"message": "Who?", "requestedSchema": schema});
    let asked = json!({"rounds": [[{"method": "elicitation/create", "params": params}]]});
    let mut call = client.open("tools/call", json!({"name": "fx__inquire", "arguments": asked}));
    let question = call.next().unwrap();
    let slow = client.open("tools/call", json!({"name": "fx__sleep", "arguments": {"ms": 20000}}));
    eventually("both calls are made", || log.count("tools/call") == 2);
    let mut old = gateway;
    let new = begin_to_take_over(&old);
    client.follow(new.address);
    client.notify("notifications/cancelled", json!({"requestId": slow.id}));
    eventually("the call is cancelled", || log.count("notifications/cancelled") == 1);
    client.respond(&question["id"], json!({"action": "accept", "content": {"name": "Ada"}}));
    let answer = call.response();
    assert!(answer.to_string().contains("Ada"), "{answer}\n{}", old.story());
    assert!(old.wait(END).is_some_and(|status| status.success()), "{}", old.story());
}

/// The outcomes of the calls of one client under load.
#[derive(Debug, Default)]
struct Tally {
    answered: usize,
    /// Answers other than the expected one.
    failed: Vec<String>,
    /// HTTP connections that ended before a byte of an answer.
    closed: usize,
    /// Longest time of a call over HTTP to the upstream that stays.
    slowest: Duration,
}

/// Makes a call over HTTP on the client's connection, or on a new one.
///
/// # Errors
/// The connection ended before a byte of an answer.
fn post(
    client: &Mcp,
    address: SocketAddr,
    connection: &mut Option<TestConnection>,
    params: Value,
) -> std::io::Result<String> {
    let params = client.dress(params);
    let headers = client.headers("tools/call", &params);
    let body = json!({"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params}).to_string();
    let mut conn = connection.take().map_or_else(|| TestConnection::open(address), Ok)?;
    conn.send(&http::request("POST", "/mcp", &headers, body.as_bytes()))?;
    let answer = conn.response()?;
    if answer.head.header("connection").is_none_or(|value| !value.eq_ignore_ascii_case("close")) {
        *connection = Some(conn);
    }
    Ok(answer.text())
}

/// Makes calls of both upstreams, one after the other, until `stop`.
fn call_until(stop: &AtomicBool, k: usize, mut client: Mcp, address: SocketAddr) -> Tally {
    let mut tally = Tally::default();
    let mut connection = None;
    for n in 0.. {
        if stop.load(Ordering::Relaxed) {
            break;
        }
        let text = format!("call-{k}-{n}.");
        let name = ["fx__echo", "web__echo"][n % 2];
        let params = json!({"name": name, "arguments": {"text": text}});
        let begun = Instant::now();
        let is_stdio = k.is_multiple_of(3);
        let answer = if is_stdio {
            Ok(client.request("tools/call", params).raw.to_string())
        } else {
            post(&client, address, &mut connection, params)
        };
        if n % 2 == 1 && !is_stdio {
            tally.slowest = tally.slowest.max(begun.elapsed());
        }
        match answer {
            Ok(answer) if answer.contains(&text) && !answer.contains("isError\":true") => tally.answered += 1,
            Ok(answer) => tally.failed.push(format!("{k}-{n}: {answer}")),
            Err(_) => tally.closed += 1,
        }
    }
    tally
}

#[test]
fn under_load_no_call_fails_and_none_is_made_twice() {
    let setup = GatewaySetup::new();
    let (witness, folder) = (Witness::new(&setup), setup.world.path("work"));
    let logs = [InputLog::new(&folder, "fx"), InputLog::new(&folder, "web")];
    let command = witness.command(&Fake::stdio("legacy").logging(&logs[0]));
    let web = Fake::http("modern").logging(&logs[1]).spawn();
    let setup = setup.toml(&format!("[upstreams.fx]\ncommand = {command}")).url("web", &web.url);
    let mut gateway = setup.start();
    gateway.wait_for_tools(&["fx__echo", "web__echo"]);
    let address = gateway.address;
    let clients: Vec<Mcp> = (0..16)
        .map(|k| match k % 3 {
            0 => Mcp::stdio(Pipe::start(&gateway.world, &gateway.config, &[]), ClientEra::LEGACY),
            1 => gateway.legacy(),
            _ => gateway.modern(),
        })
        .collect();
    let stop = AtomicBool::new(false);
    let times: usize = std::env::var("HEADEND_TEST_HANDOVERS").map_or(4, |times| times.parse().unwrap());
    let (gateway, tallies) = std::thread::scope(|scope| {
        let calling = |(k, client)| {
            let stop = &stop;
            scope.spawn(move || call_until(stop, k, client, address))
        };
        let calling: Vec<_> = clients.into_iter().enumerate().map(calling).collect();
        for n in 0..times {
            gateway = take_over(gateway);
            within(END, "the upstream has another process", || witness.processes() == n + 2);
        }
        stop.store(true, Ordering::Relaxed);
        let tallies: Vec<Tally> = calling.into_iter().map(|calling| calling.join().unwrap()).collect();
        (gateway, tallies)
    });
    let failed: Vec<&String> = tallies.iter().flat_map(|tally| &tally.failed).collect();
    let (answered, closed) = tallies.iter().fold((0, 0), |(a, c), tally| (a + tally.answered, c + tally.closed));
    let (slowest, lost) = (tallies.iter().map(|tally| tally.slowest).max().unwrap(), failed.len());
    eprintln!("{times} hand-overs: {answered} calls answered, {lost} failed, {closed} connections closed, {slowest:?}");
    assert!(failed.is_empty(), "{failed:#?}\n{}", gateway.story());
    assert!(tallies.iter().all(|tally| tally.answered > times), "{tallies:?}");
    let mut seen = HashSet::new();
    for line in logs.iter().flat_map(|log| log.lines_with(&["tools/call", "call-"])) {
        let (_, rest) = line.split_once("call-").unwrap();
        let text = rest.split_once('.').unwrap().0.to_owned();
        assert!(seen.insert(text), "a call was made twice: {line}");
    }
}
