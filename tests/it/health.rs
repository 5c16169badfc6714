//! What `status`, the metrics and the log say when an upstream is away, fails or hangs.

use std::fs;
use std::thread;
use std::time::Duration;

use serde_json::json;

use crate::failures::status_of;
use crate::harness::{Gateway, Setup};
use crate::mcp::Mcp;
use crate::process::within;
use crate::upstream::Fake;

const SSE: &str = "HTTP+SSE";
/// The longest time between two attempts to reach a server, and some for a slow machine.
const BACK: Duration = Duration::from_secs(20);

/// One upstream, whose calls do not wait for it.
fn before(url: &str) -> Gateway {
    let more = "queue-timeout = \"0s\"\ncall-timeout = \"1s\"";
    let gateway = Setup::new().toml(&format!("[upstreams.fx]\nurl = \"{url}\"\n{more}")).start();
    gateway.wait_for_tools(&["fx__echo"]);
    assert!(is_ready(&gateway));
    gateway
}

/// Plays it with a server of each kind at once. Some of them tell nothing outside of calls.
fn with_each(play: impl Fn(&str, Fake) + Sync) {
    let silent = |era| Fake::http(era).behaving("no-changes");
    let servers = [
        ("modern", Fake::http("modern")),
        ("modern without changes", silent("modern")),
        ("legacy", Fake::http("legacy")),
        ("legacy without a stream", silent("legacy")),
        (SSE, Fake::sse()),
    ];
    thread::scope(|scope| {
        for (kind, fake) in servers {
            let play = &play;
            scope.spawn(move || play(kind, fake));
        }
    });
}

fn shows(gateway: &Gateway, state: &str) -> bool {
    gateway.scrape().contains(&format!("headend_upstream_state{{state=\"{state}\",upstream=\"fx\"}} 1"))
}

fn is_ready(gateway: &Gateway) -> bool {
    status_of(gateway, "fx")["state"] == "ready" && shows(gateway, "ready")
}

fn is_down(gateway: &Gateway) -> bool {
    status_of(gateway, "fx")["state"] == "down" && shows(gateway, "down")
}

fn works(client: &mut Mcp) -> bool {
    client.call("fx__echo", json!({"text": "x"})).text() == "x"
}

/// Lines of the log from that level on which say that.
fn told(gateway: &Gateway, text: &str) -> usize {
    let is_told = |line: &&String| line.contains(text) && (line.contains("WARN") || line.contains("ERROR") || line.contains("INFO"));
    gateway.stderr.all().iter().filter(is_told).count()
}

#[test]
fn a_server_that_is_gone_is_down_from_the_first_call_on_and_ready_when_it_is_back() {
    with_each(|kind, fake| {
        let server = fake.spawn();
        let gateway = before(&server.url);
        let (mut modern, mut legacy) = (gateway.modern(), gateway.legacy());
        within(BACK, "both work", || works(&mut modern) && works(&mut legacy));
        let back = || told(&gateway, "upstream ready") + told(&gateway, "upstream answers again");
        let (address, before) = (server.address().to_owned(), back());
        drop(server);
        assert!(!works(&mut modern), "{kind}");
        within(Duration::from_secs(1), &format!("{kind} is down"), || is_down(&gateway));
        for _ in 0..10 {
            assert!(!works(&mut modern) && !works(&mut legacy), "{kind}");
            assert!(is_down(&gateway), "{kind}: {}", status_of(&gateway, "fx"));
        }
        let error = status_of(&gateway, "fx")["last-error"].to_string();
        assert!(error.contains("refused") || kind == SSE, "{kind}: {error}");
        assert_eq!(told(&gateway, "upstream down"), 1, "{kind}: {}", gateway.story());
        let server = fake.at(&address).spawn();
        within(BACK, &format!("{kind} is back"), || is_ready(&gateway));
        within(BACK, "both work", || works(&mut modern) && works(&mut legacy));
        assert_eq!(back() - before, 1, "{kind}: {}", gateway.story());
        drop(server);
    });
}

#[test]
fn a_server_that_answers_nothing_any_more_is_down_until_it_does() {
    with_each(|kind, fake| {
        let server = fake.spawn();
        let gateway = before(&server.url);
        let mut client = gateway.modern();
        within(BACK, "it works", || works(&mut client));
        server.freeze();
        assert!(!works(&mut client), "{kind}");
        within(Duration::from_secs(5), &format!("{kind} is down"), || is_down(&gateway));
        assert!(!works(&mut client), "{kind}");
        server.thaw();
        within(BACK, &format!("{kind} is back"), || is_ready(&gateway));
        within(BACK, &format!("{kind} works"), || works(&mut client));
        assert_eq!(told(&gateway, "upstream down"), 1, "{kind}: {}", gateway.story());
    });
}

#[test]
fn a_slow_tool_does_not_make_its_server_look_dead() {
    with_each(|kind, fake| {
        let server = fake.spawn();
        let gateway = before(&server.url);
        let mut client = gateway.modern();
        for _ in 0..2 {
            assert!(client.call("fx__sleep", json!({"ms": 5000})).is_error(), "{kind}");
            within(BACK, "it works", || works(&mut client));
            assert!(is_ready(&gateway), "{kind}");
        }
        let error = status_of(&gateway, "fx")["last-error"].to_string();
        assert!(error.contains("not answered in time"), "{kind}: {error}");
        assert_eq!(told(&gateway, "upstream down"), 0, "{kind}: {}", gateway.story());
    });
}

#[test]
fn a_server_that_fails_everything_is_down_and_one_failure_is_none() {
    with_each(|kind, fake| {
        let setup = Setup::new();
        let sick = setup.world.path("work/sick");
        let server = fake.with("--sick", sick.to_str().unwrap()).spawn();
        let gateway = before(&server.url);
        let mut client = gateway.modern();
        within(BACK, "it works", || works(&mut client));
        if kind != SSE {
            fs::write(&sick, "").unwrap();
            assert!(!works(&mut client), "{kind}");
            fs::remove_file(&sick).unwrap();
            assert!(works(&mut client) && told(&gateway, "upstream down") == 0, "{kind}: {}", gateway.story());
        }
        fs::write(&sick, "").unwrap();
        within(Duration::from_secs(5), &format!("{kind} is down"), || !works(&mut client) && is_down(&gateway));
        let error = status_of(&gateway, "fx")["last-error"].to_string();
        assert!(error.contains("503"), "{kind}: {error}");
        fs::remove_file(&sick).unwrap();
        within(BACK, &format!("{kind} is back"), || is_ready(&gateway));
        within(BACK, "it works", || works(&mut client));
        assert!(told(&gateway, "upstream down") <= 2, "{kind}: {}", gateway.story());
    });
}

#[test]
fn a_server_that_forgets_its_sessions_all_the_time_does_not_fill_the_log() {
    let server = Fake::http("legacy").behaving("drop-session-after=2").spawn();
    let gateway = Setup::new().url("fx", &server.url).start();
    gateway.wait_for_tools(&["fx__echo"]);
    let mut client = gateway.legacy();
    for n in 0..60 {
        assert!(works(&mut client), "call {n}: {}", gateway.story());
    }
    let lines = told(&gateway, "upstream session opened anew");
    assert!((1..=5).contains(&lines), "{lines} lines\n{}", gateway.story());
}
