//! Tests of many reloads: damaged configurations change nothing, and reloads of one upstream do not
//! affect calls of others.

use std::fs;
use std::io::{BufRead as _, BufReader, Write as _};
use std::os::unix::net::UnixStream;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread;

use serde_json::{Value, json};

use super::fx;
use crate::tools::harness::{Gateway, GatewaySetup};
use crate::tools::mcp::ClientEra;
use crate::tools::upstream::Fake;
use crate::traffic::faces::upstream_pid;

/// A connection of the operator to the admin socket.
struct AdminConnection {
    stream: UnixStream,
    reader: BufReader<UnixStream>,
}

impl AdminConnection {
    fn connect(gateway: &Gateway) -> Self {
        let stream = UnixStream::connect(gateway.world.path("run/headend.sock")).unwrap();
        let mut operator = Self { reader: BufReader::new(stream.try_clone().unwrap()), stream };
        operator.say(&json!({"headend": 1, "want": "admin"}));
        operator
    }

    fn say(&mut self, message: &Value) -> Value {
        self.stream.write_all(format!("{message}\n").as_bytes()).unwrap();
        let mut line = String::new();
        self.reader.read_line(&mut line).unwrap();
        serde_json::from_str(&line).unwrap_or_else(|error| panic!("{error}: {line:?}"))
    }

    fn ask(&mut self, method: &str) -> Value {
        self.say(&json!({"jsonrpc": "2.0", "id": 1, "method": method}))
    }
}

/// Replaces the configuration atomically, so that it is never read half.
fn exchange(gateway: &Gateway, text: &str) {
    let fresh = gateway.world.write("headend.toml.next", text);
    fs::rename(fresh, &gateway.config).unwrap();
}

/// A generator of numbers that a seed repeats.
struct Random(u64);

impl Random {
    fn below(&mut self, most: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 % most as u64) as usize
    }

    fn one_of<'t, T>(&mut self, items: &'t [T]) -> &'t T {
        let at = self.below(items.len());
        &items[at]
    }
}

/// Returns a configuration that must not be accepted, and what is wrong with it.
fn damaged(text: &str, random: &mut Random) -> (&'static str, String) {
    let lines: Vec<&str> = text.lines().collect();
    let with = |at: usize, line: String| {
        let mut lines: Vec<String> = lines.iter().map(ToString::to_string).collect();
        lines[at] = line;
        lines.join("\n") + "\n"
    };
    let keys: Vec<usize> = (0..lines.len()).filter(|at| lines[*at].contains(" = ")).collect();
    let tables: Vec<usize> = (0..lines.len()).filter(|at| lines[*at].starts_with('[')).collect();
    let (key, table) = (*random.one_of(&keys), *random.one_of(&tables));
    let (name, value) = lines[key].split_once(" = ").unwrap();
    match random.below(8) {
        0 => {
            let quotes: Vec<usize> = text.match_indices('"').map(|(at, _)| at).collect();
            // Every other quote opens a string.
            let open = quotes[2 * random.below(quotes.len() / 2)];
            ("a string without its end", text[..=open].to_owned())
        }
        1 => ("an unknown key", with(table, format!("{}\nnonsense-{} = 1", lines[table], random.below(1000)))),
        2 => ("a value of no type that is expected", with(key, format!("{name} = 1979-05-27"))),
        3 => ("a key that stands twice", with(key, format!("{0}\n{0}", lines[key]))),
        4 => ("two signs", with(key, format!("{name} = = {value}"))),
        5 => ("a character that is none", with(key, format!("\u{1}{}", lines[key]))),
        6 => {
            let rule = "[[policy.rules]]\nid = \"lost\"\neffect = \"allow\"\ntools = [\"nowhere__x\"]\n";
            ("a rule about nothing", format!("{text}{rule}"))
        }
        _ => ("a key that needs a restart", text.replacen("[server]\n", "[server]\nendpoint = \"/other\"\n", 1)),
    }
}

#[test]
fn damaged_configurations_change_nothing() {
    let rules = "default = \"allow\"\n[[policy.rules]]\nid = \"no-write\"\neffect = \"deny\"\ntools = [\"fx__write\"]\n\
        [[policy.limits]]\nid = \"all\"\nrate = \"1000000/s\"\n";
    let more = "[profiles.few]\nupstreams = [\"fx\"]\n[audit]\nstrict = false\n[log]\nfilter = \"info\"\n";
    let setup = GatewaySetup::new().policy(rules).toml(&fx("fx")).toml(more);
    let text = setup.text();
    let gateway = setup.start();
    gateway.wait_for_tools(&["fx__echo"]);
    let pid = upstream_pid(&gateway, "fx");
    let mut operator = AdminConnection::connect(&gateway);
    let generation = |operator: &mut AdminConnection| operator.ask("status")["result"]["generation"].clone();
    let before = generation(&mut operator);
    let seed = std::env::var("HEADEND_FUZZ_SEED").ok().and_then(|seed| seed.parse().ok()).unwrap_or(20_261_122);
    let mut random = Random(seed);
    let mut client = gateway.modern();
    for round in 0..200 {
        let (label, damaged) = damaged(&text, &mut random);
        exchange(&gateway, &damaged);
        let answer = operator.ask("reload");
        assert!(answer["error"].is_object(), "round {round} of seed {seed}, {label}: {answer}\n{damaged}");
        if round % 20 == 0 {
            assert_eq!(client.call("fx__echo", json!({"text": label})).text(), label, "round {round}");
            assert!(client.call("fx__write", json!({"path": "a"})).message.get("error").is_some(), "round {round}");
        }
    }
    assert_eq!(generation(&mut operator), before, "clients see what they saw");
    assert_eq!(upstream_pid(&gateway, "fx"), pid);
    assert!(gateway.scrape().contains("headend_config_last_reload_successful 0"));
    exchange(&gateway, &text);
    assert_eq!(operator.ask("reload")["result"]["plan"], "nothing changed");
}

/// Makes 30 reloads, or as many as `HEADEND_TEST_RELOADS` says.
#[test]
fn reloads_of_another_upstream_fail_no_call() {
    let reloads = std::env::var("HEADEND_TEST_RELOADS").ok().and_then(|n| n.parse().ok()).unwrap_or(30);
    let fake = Fake::stdio("both");
    let base = || GatewaySetup::new().fake("fx", &fake);
    let texts = [base().fake("other", &Fake::stdio("both")).text(), base().text()];
    let gateway = base().start();
    gateway.wait_for_tools(&["fx__echo"]);
    let pid = upstream_pid(&gateway, "fx");
    let (over, calls) = (AtomicBool::new(false), AtomicUsize::new(0));
    thread::scope(|scope| {
        for worker in 0..4 {
            let (gateway, over, calls) = (&gateway, &over, &calls);
            scope.spawn(move || {
                let mut client = gateway.client(ClientEra::BOTH[worker % 2]);
                while !over.load(Ordering::Relaxed) {
                    let number = calls.fetch_add(1, Ordering::Relaxed);
                    let text = format!("{worker}-{number}");
                    let answer = if number % 16 == 0 {
                        client.call("fx__sleep", json!({"ms": 200}));
                        client.call("fx__echo", json!({"text": text}))
                    } else {
                        client.call("fx__echo", json!({"text": text}))
                    };
                    assert_eq!(answer.text(), text, "{}", answer.raw);
                }
            });
        }
        let mut operator = AdminConnection::connect(&gateway);
        let stop = StopAtEnd(&over);
        for round in 0..reloads {
            exchange(&gateway, &texts[round % 2]);
            let answer = operator.ask("reload");
            assert!(answer["result"]["plan"].is_string(), "round {round}: {answer}");
        }
        drop(stop);
    });
    assert_eq!(upstream_pid(&gateway, "fx"), pid);
    eprintln!("{} calls during {reloads} reloads, none failed", calls.load(Ordering::Relaxed));
}

/// Stops the workers when dropped, also if the test fails.
struct StopAtEnd<'a>(&'a AtomicBool);

impl Drop for StopAtEnd<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}
