//! One caller at its limits, and the calls of another one: on each face, in both eras, before each
//! kind of server.

use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use crate::harness::{Gateway, Setup, headend};
use crate::mcp::{Answer, Era, Mcp};
use crate::process::eventually;
use crate::sse::OldClient;
use crate::stdio::Pipe;
use crate::upstream::{Fake, Log};

/// The token of the caller that is at its limits; the other one is our own user.
const TOKEN: &str = "token-of-the-greedy-caller-0123456789";
/// Calls that one caller may have at once, and more than a program takes.
const CROWD: usize = 32;

/// A client of the greedy caller.
fn greedy(address: SocketAddr) -> Mcp {
    Mcp::http(address, Some(TOKEN.to_owned()), Era::Modern)
}

/// Clients of our own user: over HTTP, on the pipes of a relay, over HTTP+SSE.
fn others(gateway: &Gateway) -> Vec<(&'static str, Other)> {
    let relay = |era| {
        let mut command = gateway.world.command(headend());
        command.env("SECOND_TOKEN", TOKEN);
        Other::Mcp(Box::new(Mcp::stdio(Pipe::start_by(command, &gateway.config, &[]), era)))
    };
    let mut old = OldClient::connect(gateway, gateway.token(), "/sse");
    old.initialize("2024-11-05");
    vec![
        ("modern HTTP", Other::Mcp(Box::new(gateway.modern()))),
        ("legacy HTTP", Other::Mcp(Box::new(gateway.legacy()))),
        ("modern relay", relay(Era::Modern)),
        ("legacy relay", relay(Era::LEGACY)),
        ("HTTP+SSE", Other::Old(Box::new(old))),
    ]
}

enum Other {
    Mcp(Box<Mcp>),
    Old(Box<OldClient>),
}

impl Other {
    /// The result of a call.
    fn call(&mut self, name: &str, arguments: &Value) -> Value {
        let params = json!({"name": name, "arguments": arguments});
        match self {
            Self::Mcp(client) => client.request("tools/call", params).message["result"].clone(),
            Self::Old(client) => client.request("tools/call", params)["result"].clone(),
        }
    }
}

fn is_busy(answer: &Answer) -> bool {
    answer.message["result"]["_meta"]["headend/refusal"]["reason"] == "busy"
}

#[test]
fn beside_a_caller_at_its_limits_calls_of_another_end_within_twice_the_time_of_one() {
    let setup = Setup::new().second_caller(TOKEN).server("legacy-sse = true");
    let log = Log::new(&setup.world.path("work"), "fx");
    let fake = Fake::stdio("both").logging(&log).command();
    // A call takes longer than the queue lasts.
    let time = Duration::from_secs(3);
    let gateway = setup.toml(&format!("[upstreams.fx]\ncommand = {fake}\nqueue-timeout = \"500ms\"")).start();
    gateway.wait_for_tools(&["fx__sleep", "fx__echo"]);
    let (is_over, slowest) = (AtomicBool::new(false), AtomicUsize::new(0));
    let arguments = json!({"ms": time.as_millis() as u64});
    let clients = others(&gateway);
    thread::scope(|scope| {
        for _ in 0..CROWD {
            scope.spawn(|| {
                let mut client = greedy(gateway.address);
                while !is_over.load(Ordering::Relaxed) {
                    let begun = Instant::now();
                    let answer = client.call("fx__sleep", arguments.clone());
                    if is_busy(&answer) {
                        // As a client does that was told to come again.
                        thread::sleep(Duration::from_millis(100));
                    } else {
                        assert_eq!(answer.text(), "slept", "{}", answer.raw);
                        slowest.fetch_max(begun.elapsed().as_millis() as usize, Ordering::Relaxed);
                    }
                }
            });
        }
        eventually("every slot of the program is taken", || log.count("tools/call") >= 16);
        let calls: Vec<_> = clients
            .into_iter()
            .map(|(label, mut client)| {
                scope.spawn(move || {
                    let begun = Instant::now();
                    let result = client.call("fx__echo", &json!({"text": label}));
                    (label, result, begun.elapsed())
                })
            })
            .collect();
        let ends: Vec<_> = calls.into_iter().map(|call| call.join().unwrap()).collect();
        let operator = gateway.run(&["call", "fx__echo", r#"{"text": "operator"}"#]);
        is_over.store(true, Ordering::Relaxed);
        eventually("a call of the greedy caller has ended", || slowest.load(Ordering::Relaxed) > 0);
        let most = time.max(Duration::from_millis(slowest.load(Ordering::Relaxed) as u64)) * 2;
        for (label, result, took) in ends {
            assert_eq!(result["content"][0]["text"], label, "{result}");
            assert!(took <= most, "{label}: {took:?} of {most:?}");
        }
        assert!(String::from_utf8_lossy(&operator.stdout).contains("operator"), "{operator:?}");
    });
}
