//! Tests of what `status`, `/readyz`, the metrics and the log report when an upstream is away and
//! when there is no room for a connection.

use std::fs;
use std::time::Duration;

use serde_json::json;

use crate::stage::harness::{Gateway, GatewaySetup, status_of};
use crate::stage::mcp::Mcp;
use crate::stage::now;
use crate::stage::process::{eventually, within};
use crate::stage::steps::health::{BACK, ask, is_degraded, is_well, readiness, told, works};
use crate::stage::upstream::{Fake, InputLog};

const SSE: &str = "HTTP+SSE";
/// How long it may take until the daemon tells that a server is down.
const DOWN: Duration = Duration::from_secs(5);

/// Starts a gateway in front of one upstream, whose calls do not wait for it.
fn before(url: &str) -> Gateway {
    before_within(url, "1s")
}

/// Like [`before`], with this limit on each call and on the time without a sign of life.
fn before_within(url: &str, time: &str) -> Gateway {
    let more = format!("queue-timeout = \"0s\"\ncall-timeout = \"{time}\"");
    let gateway = GatewaySetup::new().toml(&format!("[upstreams.fx]\nurl = \"{url}\"\n{more}")).start();
    gateway.wait_for_tools(&["fx__echo"]);
    assert!(is_ready(&gateway));
    gateway
}

/// Runs a test with a server of each kind. Some of them send nothing outside of calls.
fn with_each(play: impl Fn(&str, Fake)) {
    let silent = |era| Fake::http(era).behaving("no-changes");
    let servers = [
        ("modern", Fake::http("modern")),
        ("modern without changes", silent("modern")),
        ("legacy", Fake::http("legacy")),
        ("legacy without a stream", silent("legacy")),
        (SSE, Fake::sse()),
    ];
    for (kind, fake) in servers {
        let play = &play;
        play(kind, fake);
    }
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

#[test]
fn a_server_that_is_gone_is_down_from_the_first_call_on_and_ready_when_it_is_back() {
    with_each(|kind, fake| {
        let server = fake.spawn();
        let gateway = before(&server.url);
        let (mut modern, mut legacy) = (gateway.modern(), gateway.legacy());
        within(BACK, "both work", || works(&mut modern) && works(&mut legacy));
        let back = || told(&gateway, "upstream ready") + told(&gateway, "upstream answers again");
        // The log is read a moment after it is written.
        within(BACK, "the log says so", || back() > 0);
        let (address, before) = (server.address().to_owned(), back());
        drop(server);
        assert!(!works(&mut modern), "{kind}");
        within(DOWN, &format!("{kind} is down"), || is_down(&gateway));
        for _ in 0..4 {
            assert!(!works(&mut modern) && !works(&mut legacy), "{kind}");
            assert!(is_down(&gateway), "{kind}: {}", status_of(&gateway, "fx"));
        }
        let error = status_of(&gateway, "fx")["last-error"].to_string();
        assert!(error.contains("refused") || kind == SSE, "{kind}: {error}");
        within(BACK, "the log says so", || told(&gateway, "upstream down") > 0);
        assert_eq!(told(&gateway, "upstream down"), 1, "{kind}: {}", gateway.story());
        let server = fake.at(&address).spawn();
        within(BACK, &format!("{kind} is back"), || is_ready(&gateway));
        within(BACK, "both work", || works(&mut modern) && works(&mut legacy));
        within(BACK, "the log says so", || back() > before);
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
        within(DOWN, &format!("{kind} is down"), || is_down(&gateway));
        assert!(!works(&mut client), "{kind}");
        server.thaw();
        within(BACK, &format!("{kind} is back"), || is_ready(&gateway));
        within(BACK, &format!("{kind} works"), || works(&mut client));
        within(BACK, "the log says so", || told(&gateway, "upstream down") > 0);
        assert_eq!(told(&gateway, "upstream down"), 1, "{kind}: {}", gateway.story());
    });
}

#[test]
fn a_slow_tool_does_not_make_its_server_look_dead() {
    with_each(|kind, fake| {
        let server = fake.spawn();
        let gateway = before_within(&server.url, "3s");
        let mut client = gateway.modern();
        for _ in 0..2 {
            assert!(client.call("fx__sleep", json!({"ms": 12_000})).is_error(), "{kind}");
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
        let setup = GatewaySetup::new();
        let (sick, log) = (setup.world.path("work/sick"), InputLog::new(&setup.world.path("work"), "fx"));
        let server = fake.with("--sick", sick.to_str().unwrap()).logging(&log).spawn();
        let gateway = before(&server.url);
        let mut client = gateway.modern();
        within(BACK, "it works", || works(&mut client));
        // A session that cannot begin is more than a failure of a call. Two sessions read the
        // lists, and one is the caller's.
        let sessions = if kind.starts_with("modern") { 0 } else { 3 };
        within(BACK, "all sessions have begun", || log.count("initialize") == sessions);
        fs::write(&sick, "").unwrap();
        assert!(!works(&mut client), "{kind}");
        fs::remove_file(&sick).unwrap();
        assert!(works(&mut client) && told(&gateway, "upstream down") == 0, "{kind}: {}", gateway.story());
        fs::write(&sick, "").unwrap();
        within(DOWN, &format!("{kind} is down"), || !works(&mut client) && is_down(&gateway));
        let error = status_of(&gateway, "fx")["last-error"].to_string();
        assert!(error.contains("503"), "{kind}: {error}");
        fs::remove_file(&sick).unwrap();
        within(BACK, &format!("{kind} is back"), || is_ready(&gateway));
        within(BACK, "it works", || works(&mut client));
        assert!(told(&gateway, "upstream down") <= 2, "{kind}: {}", gateway.story());
    });
}

#[test]
fn a_post_that_fails_over_http_sse_ends_its_call_alone() {
    let setup = GatewaySetup::new();
    let (sick, log) = (setup.world.path("work/sick"), InputLog::new(&setup.world.path("work"), "fx"));
    let server = Fake::sse().with("--sick", sick.to_str().unwrap()).logging(&log).spawn();
    let gateway = setup.toml(&format!("[upstreams.fx]\nurl = \"{}\"", server.url)).start();
    gateway.wait_for_tools(&["fx__echo"]);
    let mut client = gateway.modern();
    let mut slow = gateway.modern().open("tools/call", json!({"name": "fx__sleep", "arguments": {"ms": 1500}}));
    eventually("it is there", || log.count("tools/call") == 1);
    // Two sessions read the lists, one as all clients see them and one as clients that can be asked
    // do; one is the caller's.
    eventually("all sessions have begun", || log.count("initialize") == 3);
    fs::write(&sick, "").unwrap();
    let refused = client.call("fx__echo", json!({"text": "x"}));
    assert!(refused.is_error() && refused.text().contains("overloaded"), "{}", refused.raw);
    fs::remove_file(&sick).unwrap();
    assert!(works(&mut client));
    let answer = slow.response();
    assert!(answer["result"]["isError"] != true && answer["result"]["content"].is_array(), "{answer}");
    assert_eq!(log.count("initialize"), 3, "no session began again");
}

#[test]
fn a_server_that_forgets_its_sessions_all_the_time_does_not_fill_the_log() {
    let server = Fake::http("legacy").behaving("drop-session-after=2").spawn();
    let gateway = GatewaySetup::new().url("fx", &server.url).start();
    gateway.wait_for_tools(&["fx__echo"]);
    let mut client = gateway.legacy();
    let begun = now();
    for n in 0..60 {
        assert!(works(&mut client), "call {n}: {}", gateway.story());
    }
    let lines = told(&gateway, "upstream session opened anew");
    // Five lines a minute.
    let most = 5 * (1 + usize::try_from((now() - begun).as_secs()).unwrap() / 60);
    assert!((1..=most).contains(&lines), "{lines} lines\n{}", gateway.story());
}

#[test]
fn one_upstream_that_is_away_degrades_the_gateway_and_all_of_them_stop_it() {
    let fakes = [Fake::http("modern"), Fake::http("legacy")];
    let servers = fakes.each_ref().map(Fake::spawn);
    let [one, other] = servers.each_ref().map(|server| server.url.clone());
    let gateway = GatewaySetup::new().url("one", &one).url("other", &other).start();
    gateway.wait_for_tools(&["one__echo", "other__echo"]);
    within(BACK, "all is well", || is_well(&gateway));
    let [first, second] = servers;
    let address = second.address().to_owned();
    drop(second);
    let mut client = gateway.modern();
    assert!(client.call("other__echo", json!({"text": "x"})).is_error());
    within(BACK, "one is away", || is_degraded(&gateway, 200, "upstreams"));
    let (_, text) = readiness(&gateway);
    assert!(text.contains("1 of 2 servers is down: other\n"), "{text}");
    assert_eq!(client.call("one__echo", json!({"text": "x"})).text(), "x");
    drop(first);
    assert!(client.call("one__echo", json!({"text": "x"})).is_error());
    within(BACK, "all are away", || is_degraded(&gateway, 503, "upstreams"));
    let _back = fakes[1].clone().at(&address).spawn();
    within(BACK, "one is back", || is_degraded(&gateway, 200, "upstreams"));
}

#[test]
fn a_full_house_is_told() {
    let gateway = GatewaySetup::new().server("limits.max-connections = 2").fake("fx", &Fake::stdio("both")).start();
    gateway.wait_for_tools(&["fx__echo"]);
    let mut held: Vec<Mcp> = (0..2).map(|_| gateway.modern()).collect();
    // The connection that waited for the tools may still have a place.
    let is_served = |client: &mut Mcp| client.call("fx__echo", json!({})).status == 200;
    within(BACK, "both have a place", || held.iter_mut().all(is_served));
    // The condition lasts for a while after each refusal.
    within(BACK, "it is told", || {
        assert_eq!(ask(&gateway).1.head.status, 503);
        is_degraded(&gateway, 200, "connections")
    });
    assert!(held.iter_mut().all(works));
    drop(held);
    within(BACK, "all is well", || is_well(&gateway));
}
