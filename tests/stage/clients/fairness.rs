//! Tests of one caller at its limits and the calls of another: over each client transport, in both
//! eras, in front of each kind of server.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use crate::stage::harness::{Gateway, GatewaySetup};
use crate::stage::http::{self, TestConnection};
use crate::stage::mcp::{ClientEra, Mcp, OpenCall};
use crate::stage::now;
use crate::stage::old_client::OldClient;
use crate::stage::process::{eventually, within};
use crate::stage::upstream::{Fake, InputLog, Listening};

/// Token of the caller that is at its limits; the other one is our own user.
const TOKEN: &str = "token-of-the-greedy-caller-0123456789";
/// Number of calls that one caller may have at once, more than a program takes.
const CROWD: usize = 32;
const MOMENT: Duration = Duration::from_millis(1);

/// Connects a client of the greedy caller.
fn greedy(address: SocketAddr) -> Mcp {
    Mcp::http(address, Some(TOKEN.to_owned()), ClientEra::Modern)
}

/// Connects clients of our own user: over HTTP, on pipes, over HTTP+SSE.
fn others(gateway: &Gateway) -> Vec<(&'static str, OtherClient)> {
    let mut old = OldClient::connect(gateway, gateway.token(), "/sse");
    old.initialize("2024-11-05");
    vec![
        ("modern HTTP", OtherClient::Http(Box::new(gateway.modern()), None)),
        ("legacy HTTP", OtherClient::Http(Box::new(gateway.legacy()), None)),
        ("modern pipe", OtherClient::Pipe(Box::new(Mcp::stdio(gateway.pipe(), ClientEra::Modern)))),
        ("legacy pipe", OtherClient::Pipe(Box::new(Mcp::stdio(gateway.pipe(), ClientEra::LEGACY)))),
        ("HTTP+SSE", OtherClient::Old(Box::new(old))),
    ]
}

enum OtherClient {
    Http(Box<Mcp>, Option<OpenCall>),
    Pipe(Box<Mcp>),
    Old(Box<OldClient>),
}

impl OtherClient {
    fn send(&mut self, name: &str, arguments: &Value) {
        let params = json!({"name": name, "arguments": arguments});
        match self {
            Self::Http(client, call) => *call = Some(client.open("tools/call", params)),
            Self::Pipe(client) => {
                let params = client.dress(params);
                let call = json!({"jsonrpc": "2.0", "id": "call", "method": "tools/call", "params": params});
                client.pipe().send(call.to_string().as_bytes());
            }
            Self::Old(client) => client.send("tools/call", params),
        }
    }

    /// Waits for the result of the call; `None` if none came in time.
    fn result(&mut self, patience: Duration) -> Option<Value> {
        let message = match self {
            Self::Http(_, call) => call.as_mut().unwrap().next_within(patience).ok()?.unwrap(),
            Self::Pipe(client) => serde_json::from_str(&client.pipe().line(patience)?).unwrap(),
            Self::Old(client) => {
                client.stream.patience(patience);
                serde_json::from_str(&client.events.next(&mut client.stream).ok()??.data).unwrap()
            }
        };
        assert!(message["result"].is_object(), "{message}");
        Some(message["result"].clone())
    }

    /// Makes a call and returns its result.
    fn call(&mut self, name: &str, arguments: &Value) -> Value {
        self.send(name, arguments);
        self.result(http::PATIENCE).unwrap()
    }
}

/// A client that repeats its call without pause.
struct Greedy {
    client: Mcp,
    call: Option<OpenCall>,
    /// Time at which the call began, or the next one is due.
    at: Instant,
    slowest: Duration,
}

impl Greedy {
    fn new(address: SocketAddr) -> Self {
        Self { client: greedy(address), call: None, at: now(), slowest: Duration::ZERO }
    }

    /// Starts a call that is due, or takes the response to the current one.
    fn go_on(&mut self, arguments: &Value) {
        let Some(call) = &mut self.call else {
            if now() >= self.at {
                self.at = now();
                self.call = Some(self.client.open("tools/call", json!({"name": "fx__sleep", "arguments": arguments})));
            }
            return;
        };
        let Ok(response) = call.next_within(MOMENT) else { return };
        let result = response.unwrap()["result"].clone();
        if result["_meta"]["headend/refusal"]["reason"] == "busy" {
            // Waits, as a client does that was told to retry.
            self.at = now() + Duration::from_millis(100);
        } else {
            assert_eq!(result["content"][0]["text"], "slept", "{result}");
            self.slowest = self.slowest.max(now() - self.at);
            self.at = now();
        }
        self.call = None;
    }
}

#[test]
fn beside_a_caller_at_its_limits_calls_of_another_end_within_twice_the_time_of_one() {
    let setup = GatewaySetup::new().second_caller(TOKEN).server("legacy-sse = true");
    let log = InputLog::new(&setup.world.path("work"), "fx");
    let fake = Fake::stdio("both").logging(&log).command();
    // A call takes longer than the queue lasts.
    let time = Duration::from_secs(3);
    let gateway = setup.toml(&format!("[upstreams.fx]\ncommand = {fake}\nqueue-timeout = \"500ms\"")).start();
    gateway.wait_for_tools(&["fx__sleep", "fx__echo"]);
    let arguments = json!({"ms": time.as_millis() as u64});
    let mut waiting = others(&gateway);
    let mut crowd: Vec<Greedy> = (0..CROWD).map(|_| Greedy::new(gateway.address)).collect();
    within(Duration::from_secs(60), "every slot of the program is taken", || {
        crowd.iter_mut().for_each(|greedy| greedy.go_on(&arguments));
        log.count("tools/call") >= 16
    });
    let begun = now();
    waiting.iter_mut().for_each(|(label, client)| client.send("fx__echo", &json!({"text": label})));
    let mut ends = Vec::new();
    while !waiting.is_empty() || crowd.iter().all(|greedy| greedy.slowest.is_zero()) {
        assert!(now() - begun < Duration::from_secs(60), "{ends:?}");
        crowd.iter_mut().for_each(|greedy| greedy.go_on(&arguments));
        waiting.retain_mut(|(label, client)| {
            let Some(result) = client.result(MOMENT) else { return true };
            assert_eq!(result["content"][0]["text"], *label, "{result}");
            ends.push((*label, now() - begun));
            false
        });
    }
    let most = time.max(crowd.iter().map(|greedy| greedy.slowest).max().unwrap()) * 2;
    assert!(ends.iter().all(|(_, took)| *took <= most), "{ends:?} of {most:?}");
    let operator = gateway.run(&["call", "fx__echo", r#"{"text": "operator"}"#]);
    assert!(String::from_utf8_lossy(&operator.stdout).contains("operator"), "{operator:?}");
}

/// Sends `count` requests whose bodies of `bytes` bytes lack their end.
fn endless_bodies(gateway: &Gateway, count: usize, bytes: usize) -> Vec<TestConnection> {
    let client = greedy(gateway.address);
    let params = client.dress(json!({"name": "stdio__echo", "arguments": {"text": "x".repeat(bytes)}}));
    let headers = client.headers("tools/call", &params);
    let body = json!({"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params}).to_string();
    let request = http::request("POST", "/mcp", &headers, body.as_bytes());
    let part = &request[..request.len() - 16];
    let mut crowd: Vec<TestConnection> = (0..count).map(|_| TestConnection::open(gateway.address).unwrap()).collect();
    // headend closes refused connections, some of them before so much was sent.
    crowd.iter_mut().for_each(|conn| drop(conn.send(part)));
    crowd
}

const MIB: u64 = 1 << 20;

/// Returns the number of buffered bytes in the metrics.
fn buffered(gateway: &Gateway) -> u64 {
    let page = gateway.scrape();
    let line = page.lines().find_map(|line| line.strip_prefix("headend_buffered_bytes ")).map(str::to_owned);
    line.and_then(|number| number.parse().ok()).unwrap()
}

/// A tool of each kind of server; each returns a file as its result.
const TOOLS: [&str; 4] = ["stdio__raw", "json__raw", "events__raw", "old__raw"];

/// Starts a daemon with little room for messages, in front of servers of each kind.
fn narrow() -> (Gateway, [Listening; 3]) {
    let servers =
        [Fake::http("legacy").spawn(), Fake::http("modern").with("--answers", "sse").spawn(), Fake::sse().spawn()];
    let setup = GatewaySetup::new().second_caller(TOKEN).server(
        "legacy-sse = true\nlimits.max-buffered = \"32MiB\"\nlimits.body-timeout = \"10m\"\n\
         limits.max-result = \"8MiB\"\nlimits.max-upstream-result = \"8MiB\"",
    );
    let [json, events, old] = &servers;
    let setup = setup.url("json", &json.url).url("events", &events.url).url("old", &old.url);
    let gateway = setup.fake("stdio", &Fake::stdio("both")).start();
    gateway.wait_for_tools(&TOOLS);
    (gateway, servers)
}

/// Writes a file with a result of `bytes` bytes.
fn result_file(gateway: &Gateway, bytes: usize) -> PathBuf {
    let text = "x".repeat(bytes);
    let result = json!({"content": [{"type": "text", "text": text}]}).to_string();
    gateway.world.write(&format!("work/{bytes}.json"), &result)
}

/// Asserts that calls of each server, by each client, get results of 100 KB.
fn all_results_arrive(gateway: &Gateway, clients: &mut [(&'static str, OtherClient)]) {
    let file = result_file(gateway, 100_000);
    for (label, client) in clients {
        for tool in TOOLS {
            let result = client.call(tool, &json!({"file": file.to_str().unwrap()}));
            let text = result["content"][0]["text"].as_str().unwrap_or_default();
            assert_eq!(text.len(), 100_000, "{label} of {tool}: {}", cut(&result));
        }
    }
}

#[test]
fn no_result_is_lost_for_want_of_room_that_bodies_of_another_caller_hold() {
    let (gateway, _servers) = narrow();
    let mut clients = others(&gateway);
    // Small bodies take the room that large ones leave.
    let _bodies = [endless_bodies(&gateway, 24, 3 << 20), endless_bodies(&gateway, 40, 60_000)];
    eventually("the bodies take room", || buffered(&gateway) > 3 * MIB);
    all_results_arrive(&gateway, &mut clients);
    let held = buffered(&gateway);
    assert!(held <= 12 * MIB, "a quarter, and what was read at the same moment: {held}");
}

#[test]
fn no_result_is_lost_for_want_of_room_that_unread_results_of_another_caller_hold() {
    let (gateway, _servers) = narrow();
    let mut clients = others(&gateway);
    let file = result_file(&gateway, 6 << 20);
    let mut hoarder = greedy(gateway.address);
    let mut call = |n: usize| {
        let arguments = json!({"file": file.to_str().unwrap()});
        hoarder.open("tools/call", json!({"name": TOOLS[n % TOOLS.len()], "arguments": arguments}))
    };
    let _results: Vec<_> = (0..24).map(&mut call).collect();
    eventually("the results take room", || buffered(&gateway) > 5 * MIB);
    all_results_arrive(&gateway, &mut clients);
}

fn cut(result: &Value) -> String {
    result.to_string().chars().take(300).collect()
}

#[test]
fn our_own_user_leaves_connections_to_other_callers() {
    let gateway = GatewaySetup::new().second_caller(TOKEN).server("limits.max-connections = 8").start();
    let open = |token: Option<String>| {
        let client = Mcp::http(gateway.address, token, ClientEra::Modern);
        let params = client.dress(json!({}));
        let headers = client.headers("server/discover", &params);
        let body = json!({"jsonrpc": "2.0", "id": 1, "method": "server/discover", "params": params}).to_string();
        let mut conn = TestConnection::open(gateway.address).unwrap();
        conn.send(&http::request("POST", "/mcp", &headers, body.as_bytes())).unwrap();
        let status = conn.response().unwrap().head.status;
        (status, conn)
    };
    let own: Vec<_> = (0..8).map(|_| open(gateway.token())).collect();
    let statuses: Vec<u16> = own.iter().map(|(status, _)| *status).collect();
    assert_eq!(statuses, [200, 200, 200, 200, 200, 200, 503, 503]);
    let theirs: Vec<_> = (0..2).map(|_| open(Some(TOKEN.to_owned()))).collect();
    assert!(theirs.iter().all(|(status, _)| *status == 200));
}
