//! Tests with clients that read nothing: their messages stay within `max-buffered`, and headend
//! serves other clients.

use std::io::{BufRead as _, BufReader, ErrorKind, Write as _};
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use crate::tools::harness::{Gateway, GatewaySetup, TestHome};
use crate::tools::http;
use crate::tools::http::TestConnection;
use crate::tools::mcp::{ClientEra, OpenCall, dressed};
use crate::tools::old_client::OldClient;
use crate::tools::upstream::{Fake, Listening};

const MIB: u64 = 1 << 20;
/// `max-buffered` of these tests.
const BUDGET: u64 = 32 * MIB;
/// Memory in bytes besides the budget: the process itself, memory that its allocator keeps (more on
/// a busy machine), and the buffers of some 140 connections on both sides. Without a budget,
/// several times as much would be needed.
const BESIDE: u64 = 128 * MIB;
/// Number of clients that read nothing, and the smaller number in slower tests.
const CROWD: usize = 140;
const SMALL_CROWD: usize = 40;
/// Size in bytes of one result: more than the kernel takes for a client that does not read.
const RESULT: u64 = 4 * MIB;

/// The kind of upstream to call.
#[derive(Clone, Copy, Debug)]
enum BufferedUpstream {
    Stdio(&'static str),
    /// Over HTTP: the era, and whether the server answers with streams.
    Http(&'static str, &'static str),
    Sse,
}

/// Starts a daemon with that budget in front of one upstream.
fn gateway(behind: BufferedUpstream, server: &str) -> (Gateway, Option<Listening>) {
    let limits = "[server.limits]\nmax-buffered = \"32MiB\"\nmax-result = \"5MiB\"\nmax-upstream-result = \"5MiB\"";
    let room = "max-in-flight = 256\ncall-timeout = \"5m\"\ncall-max = \"5m\"";
    let setup = GatewaySetup::new().server(&format!("{server}\n{limits}"));
    let listening = match behind {
        BufferedUpstream::Stdio(_) => None,
        BufferedUpstream::Http(era, answers) => Some(Fake::http(era).with("--answers", answers).spawn()),
        BufferedUpstream::Sse => Some(Fake::sse().spawn()),
    };
    let way = match (behind, &listening) {
        (BufferedUpstream::Stdio(era), _) => format!("command = {}", Fake::stdio(era).command()),
        (_, Some(server)) => format!("url = \"{}\"", server.url),
        (_, None) => unreachable!(),
    };
    let setup = setup.toml(&format!("[upstreams.fx]\n{way}\n{room}"));
    // Lines of one process arrive in turn, so the other client calls another process.
    let gateway = setup.fake("other", &Fake::stdio("both")).start();
    gateway.wait_for_tools(&["fx__raw", "other__echo"]);
    (gateway, listening)
}

/// Writes a file with a tool's result of this many bytes.
fn result_file(world: &TestHome, bytes: u64) -> PathBuf {
    let text = "x".repeat(usize::try_from(bytes).unwrap());
    world.write("work/result.json", &json!({"content": [{"type": "text", "text": text}]}).to_string())
}

/// Returns the parameters of a call whose answer is that file, after this many progress
/// notifications.
fn large(world: &TestHome, steps: u64, note_bytes: u64) -> Value {
    let file = result_file(world, RESULT);
    let arguments = json!({"file": file.to_str().unwrap(), "steps": steps, "note_bytes": note_bytes});
    json!({"name": "fx__raw", "arguments": arguments, "_meta": {"progressToken": 1}})
}

/// Returns the bytes of anonymous memory of the daemon's process.
fn anonymous(gateway: &Gateway) -> u64 {
    let status = std::fs::read_to_string(format!("/proc/{}/status", gateway.pid())).unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("RssAnon:")).unwrap();
    line.trim().trim_end_matches(" kB").trim().parse::<u64>().unwrap() * 1024
}

/// Returns the number of calls that have ended.
fn ended(gateway: &Gateway) -> u64 {
    let page = gateway.scrape();
    let calls = page.lines().filter(|line| line.starts_with("headend_calls_total{method=\"tools/call\""));
    calls.filter_map(|line| line.rsplit(' ').next()?.parse::<u64>().ok()).sum()
}

/// Waits until this many calls have ended, and checks the memory against the budget meanwhile.
/// Another client must be served; if the budget is used up at that moment, it calls again and gets
/// an answer in the end.
fn stays_within(gateway: &Gateway, calls: u64, what: &str) {
    let mut other = gateway.modern();
    let (mut most, mut said) = (0, 0);
    let deadline = Instant::now() + Duration::from_secs(300);
    while said == 0 || ended(gateway) < calls + said {
        most = most.max(anonymous(gateway));
        assert!(Instant::now() < deadline, "{what}: {} of {calls} calls ended", ended(gateway) - said);
        let answer = other.call("other__echo", json!({"text": "still here"}));
        if answer.message["error"]["message"] == "too many calls in flight" {
            continue;
        }
        assert_eq!(answer.message["result"]["content"][0]["text"], "still here", "{what}: {}", answer.raw);
        said += 1;
    }
    most = most.max(anonymous(gateway));
    let (most, bound) = (most / MIB, (BUDGET + BESIDE) / MIB);
    assert!(most <= bound, "{what}: {most} MiB, more than {bound}");
    eprintln!("{what}: {most} MiB of {bound}");
}

/// Opens calls over HTTP by clients that read nothing.
fn crowd(gateway: &Gateway, clients: usize, era: ClientEra, params: &Value) -> Vec<OpenCall> {
    (0..clients).map(|_| gateway.client(era).open("tools/call", params.clone())).collect()
}

fn over_http(behind: BufferedUpstream, clients: usize, era: ClientEra, (steps, note_bytes): (u64, u64)) {
    let (gateway, _listening) = gateway(behind, "");
    let params = large(&gateway.world, steps, note_bytes);
    let _crowd = crowd(&gateway, clients, era, &params);
    stays_within(&gateway, clients as u64, &format!("{behind:?} {era:?} {steps}"));
}

#[test]
fn json_answers_that_nobody_reads_stay_within_the_budget() {
    over_http(BufferedUpstream::Http("modern", "json"), CROWD, ClientEra::Modern, (0, 0));
}

#[test]
fn results_that_are_rewritten_for_their_client_stay_within_the_budget() {
    over_http(BufferedUpstream::Http("legacy", "json"), SMALL_CROWD, ClientEra::Modern, (0, 0));
}

#[test]
fn answers_of_a_process_that_nobody_reads_stay_within_the_budget() {
    over_http(BufferedUpstream::Stdio("legacy"), SMALL_CROWD, ClientEra::LEGACY, (0, 0));
}

#[test]
fn streams_that_nobody_reads_stay_within_the_budget() {
    over_http(BufferedUpstream::Http("modern", "sse"), SMALL_CROWD, ClientEra::Modern, (3, 100));
}

#[test]
fn recorded_streams_that_nobody_reads_stay_within_the_budget() {
    over_http(BufferedUpstream::Stdio("modern"), SMALL_CROWD, ClientEra::LEGACY, (64, 10_000));
}

#[test]
fn large_progress_that_nobody_reads_stays_within_the_budget() {
    over_http(BufferedUpstream::Sse, SMALL_CROWD, ClientEra::Modern, (16, 50_000));
}

#[test]
fn sessions_over_http_and_sse_that_nobody_reads_stay_within_the_budget() {
    let (gateway, _listening) = gateway(BufferedUpstream::Sse, "legacy-sse = true");
    let params = large(&gateway.world, 0, 0);
    let crowd: Vec<OldClient> = (0..SMALL_CROWD)
        .map(|_| {
            let mut client = OldClient::connect(&gateway, gateway.token(), "/sse");
            client.initialize("2024-11-05");
            client.send("tools/call", params.clone());
            client
        })
        .collect();
    stays_within(&gateway, SMALL_CROWD as u64, "HTTP+SSE");
    drop(crowd);
}

/// Opens a connection to the admin socket and completes the hello.
fn attach(gateway: &Gateway, want: &str) -> UnixStream {
    let mut stream = UnixStream::connect(gateway.world.path("run/headend.sock")).unwrap();
    stream.set_read_timeout(Some(http::PATIENCE)).unwrap();
    stream.write_all(format!("{{\"headend\":1,\"want\":\"{want}\"}}\n").as_bytes()).unwrap();
    next_line(&stream);
    stream
}

/// Reads a line; empty at the end of the connection.
fn next_line(stream: &UnixStream) -> String {
    let mut line = String::new();
    BufReader::with_capacity(1, stream).read_line(&mut line).unwrap();
    line
}

/// Opens connections to the admin socket and makes this many calls on each.
fn attached(gateway: &Gateway, clients: usize, calls: usize, params: &Value) -> Vec<UnixStream> {
    let params = dressed(params.clone(), &json!({}));
    let attach = || {
        let mut stream = attach(gateway, "mcp");
        for id in 0..calls {
            let call = json!({"jsonrpc": "2.0", "id": id, "method": "tools/call", "params": params});
            stream.write_all(format!("{call}\n").as_bytes()).unwrap();
        }
        stream
    };
    (0..clients).map(|_| attach()).collect()
}

#[test]
fn attached_clients_that_read_nothing_stay_within_the_budget() {
    let (gateway, _listening) = gateway(BufferedUpstream::Http("modern", "json"), "");
    let params = large(&gateway.world, 0, 0);
    let _crowd = attached(&gateway, 4, 10, &params);
    stays_within(&gateway, 40, "attached");
}

#[test]
fn operators_that_read_nothing_stay_within_the_budget() {
    let (gateway, _listening) = gateway(BufferedUpstream::Http("modern", "json"), "");
    let file = result_file(&gateway.world, RESULT);
    let params = json!({"name": "fx__raw", "arguments": {"file": file.to_str().unwrap()}});
    let call = json!({"jsonrpc": "2.0", "id": 1, "method": "call", "params": params});
    let crowd: Vec<UnixStream> = (0..SMALL_CROWD)
        .map(|_| {
            let mut stream = attach(&gateway, "admin");
            stream.write_all(format!("{call}\n").as_bytes()).unwrap();
            stream
        })
        .collect();
    stays_within(&gateway, SMALL_CROWD as u64, "operators");
    drop(crowd);
}

#[test]
fn bodies_that_come_slowly_stay_within_the_budget() {
    let (gateway, _listening) = gateway(BufferedUpstream::Stdio("modern"), "");
    let client = gateway.modern();
    let params = client.dress(json!({"name": "other__echo", "arguments": {"text": "x".repeat(3 << 20)}}));
    let headers = client.headers("tools/call", &params);
    let body = json!({"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params}).to_string();
    let request = http::request("POST", "/mcp", &headers, body.as_bytes());
    // Everything but the end of the request. headend closes the connections of refused clients,
    // some before they have sent that much.
    let part = &request[..request.len() - 16];
    let mut crowd: Vec<TestConnection> = (0..CROWD).map(|_| TestConnection::open(gateway.address).unwrap()).collect();
    let sent = crowd.iter_mut().filter_map(|conn| conn.send(part).ok()).count();
    stays_within(&gateway, 0, &format!("slow bodies, {sent} of them"));
    let most = usize::try_from(BUDGET).unwrap() / part.len();
    // A busy machine handles some of them late.
    let deadline = Instant::now() + Duration::from_secs(60);
    while crowd.len() > 2 * most && Instant::now() < deadline {
        crowd.retain_mut(|conn| {
            conn.patience(Duration::from_millis(20));
            match conn.head() {
                Ok(head) => {
                    assert_eq!(head.status, 503, "{head:?}");
                    false
                }
                Err(error) => matches!(error.kind(), ErrorKind::TimedOut | ErrorKind::WouldBlock),
            }
        });
    }
    assert!(crowd.len() <= 2 * most, "{} of {CROWD} are not refused; {most} have room", crowd.len());
    stays_within(&gateway, 0, "slow bodies");
}
