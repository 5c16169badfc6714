//! Tests of limits: many callers at once, restarts, reloads, days and calls in flight.

use serde_json::{Value, json};

use crate::stage::harness::GatewaySetup;
use crate::stage::mcp::{ClientEra, Mcp, McpAnswer};
use crate::stage::process::{eventually, said};
use crate::stage::steps::limits::{is_near_midnight, limited, refusal, to_midnight, use_up};
use crate::stage::upstream::{Fake, InputLog};

fn wait_ms(answer: &McpAnswer) -> u64 {
    refusal(answer).and_then(|refusal| refusal["retry-after-ms"].as_u64()).unwrap_or_else(|| panic!("{}", answer.raw))
}

#[test]
fn a_call_that_finds_its_server_busy_uses_no_limit_up() {
    let place = format!(
        "[upstreams.fx]\ncommand = {}\nmax-in-flight = 1\nqueue-timeout = \"1s\"",
        Fake::stdio("both").command()
    );
    let limit = "[[policy.limits]]\nid = \"few\"\ntools = [\"fx__echo\"]\nrate = \"1/h\"\nper-day = 1";
    let gateway = GatewaySetup::new().toml(&format!("{place}\n{limit}")).start();
    gateway.wait_for_tools(&["fx__echo"]);
    let (mut client, mut other) = (gateway.modern(), gateway.legacy());
    let mut slow = other.open("tools/call", json!({"name": "fx__sleep", "arguments": {"ms": 5000}}));
    eventually("the slow call runs", || gateway.scrape().contains("headend_calls_in_flight{upstream=\"fx\"} 1"));
    for n in 0..2 {
        let busy = client.call("fx__echo", json!({"text": "x"}));
        assert_eq!(busy.result()["_meta"]["headend/refusal"]["reason"], "busy", "{n}: {}", busy.raw);
    }
    slow.response();
    assert_eq!(use_up(&mut client, 3), 1);
}

#[test]
fn a_reload_refills_nothing() {
    let (gateway, record) = limited("[[policy.limits]]\nid = \"few\"\nrate = \"4/h\"\nper-day = 4");
    assert_eq!(use_up(&mut gateway.modern(), 3), 3);
    let before = std::fs::read_to_string(&gateway.config).unwrap();
    let more = "\n[[policy.limits]]\nid = \"other\"\nrate = \"100/s\"\nconcurrent = 50\n";
    let without = before.split("[[policy.limits]]").next().unwrap().to_owned();
    for (label, text, left) in [
        ("another limit", format!("{before}{more}"), None),
        ("without the limit", without, None),
        ("the limit is back", before.clone(), Some(1)),
        ("more a day", before.replace("per-day = 4", "per-day = 5").replace("rate = \"4/h\"\n", ""), Some(1)),
        ("fewer a day", before.replace("per-day = 4", "per-day = 2"), Some(0)),
    ] {
        let plan = gateway.reload(&text);
        assert!(plan.status.success(), "{label}: {}", said(&plan));
        if let Some(left) = left {
            assert_eq!(use_up(&mut gateway.modern(), 9), left, "{label}");
        }
    }
    assert_eq!(record.count("tools/call"), 5);
}

#[test]
fn a_day_has_its_quota_and_says_when_the_next_begins() {
    if is_near_midnight() {
        return;
    }
    let (gateway, record) = limited("[[policy.limits]]\nid = \"daily\"\nkey = [\"caller\", \"tool\"]\nper-day = 2");
    for era in ClientEra::BOTH {
        let mut client = gateway.client(era);
        assert_eq!(use_up(&mut client, 9), if era == ClientEra::LEGACY { 2 } else { 0 }, "{era:?}");
        let refused = client.call("fx__echo", json!({"text": "x"}));
        assert!(refused.is_error(), "{era:?}: {}", refused.raw);
        let (wait, left) = (wait_ms(&refused), to_midnight() * 1000);
        assert!(wait.abs_diff(left) < 60_000, "{era:?}: {wait} ms, and the day has {left} ms left");
        assert!(refusal(&client.call("fx__fail", json!({}))).is_none(), "{era:?}: another tool");
    }
    assert_eq!(record.lines_with(&["tools/call", "\"echo\""]).len(), 2);
    assert!(gateway.scrape().contains("headend_limit_hits_total{limit=\"daily\"}"));
}

#[test]
fn other_methods_get_the_refusal_in_the_data_of_their_error() {
    let (gateway, _) =
        limited("[[policy.limits]]\nid = \"l\"\nupstreams = [\"fx\"]\nkey = [\"caller\"]\nrate = \"1/h\"");
    let get = |client: &mut Mcp| client.request("prompts/get", json!({"name": "fx__p", "arguments": {"a": "x"}}));
    assert!(get(&mut gateway.modern()).message["result"].is_object());
    for era in ClientEra::BOTH {
        let refused = get(&mut gateway.client(era));
        assert_eq!(refused.code(), Some(1002), "{era:?}: {}", refused.raw);
        assert!((1..=3_600_000).contains(&wait_ms(&refused)), "{era:?}: {}", refused.raw);
    }
}

#[test]
fn as_many_calls_run_at_once_as_there_are_places() {
    let (gateway, record) = limited(
        "[[policy.limits]]\nid = \"slow\"\ntools = [\"fx__sleep\"]\nkey = [\"tool\"]\nconcurrent = 2\nper-day = 5",
    );
    let sleep = |ms: u64| json!({"name": "fx__sleep", "arguments": {"ms": ms}});
    let (mut one, mut two, mut third) = (gateway.modern(), gateway.legacy(), gateway.modern());
    let mut first = one.open("tools/call", sleep(5_000));
    let second = two.open("tools/call", sleep(10_000));
    eventually("both run", || record.count("tools/call") == 2);
    for _ in 0..5 {
        let refused = third.request("tools/call", sleep(0));
        assert_eq!(wait_ms(&refused), 1_000, "{}", refused.raw);
    }
    assert!(refusal(&third.call("fx__echo", json!({"text": "x"}))).is_none(), "other tools are not concerned");
    assert!(first.response()["result"].is_object());
    // The answer was sent, so the slot is free at once.
    let again = one.open("tools/call", sleep(60_000));
    eventually("it runs", || record.lines_with(&["tools/call", "\"sleep\""]).len() == 3);
    drop(second);
    // A modern client that goes away cancels its call.
    drop(again);
    eventually("its place is free", || {
        let answer = third.request("tools/call", sleep(0));
        refusal(&answer).is_none()
    });
    assert_eq!(record.lines_with(&["tools/call", "\"sleep\""]).len(), 4, "refusals burnt nothing of the day");
}

#[test]
fn sixty_four_callers_at_once_get_what_the_limit_has_and_no_more() {
    const CALLERS: usize = 64;
    const QUOTA: usize = 40;
    let setup = GatewaySetup::new();
    let record = InputLog::new(&setup.world.path("work"), "fx");
    let tokens: Vec<String> = (0..CALLERS).map(|n| format!("c{n} = {{ env = \"TOKEN_{n}\" }}")).collect();
    let mut setup = setup
        .server(&format!(
            "[server.auth]\ntokens = {{ {} }}\n[server.limits]\nconnections-per-ip = 200",
            tokens.join(", ")
        ))
        .fake("fx", &Fake::stdio("both").logging(&record))
        .toml(&format!("[[policy.limits]]\nid = \"all\"\nkey = [\"upstream\"]\nrate = \"{QUOTA}/h\""));
    for n in 0..CALLERS {
        setup = setup.env(&format!("TOKEN_{n}"), &token(n));
    }
    let gateway = setup.start();
    gateway.wait_for_tools(&["fx__echo"]);
    let mut open = Vec::new();
    for _ in 0..3 {
        for n in 0..CALLERS {
            let mut client = Mcp::http(gateway.address, Some(token(n)), ClientEra::Modern);
            open.push(client.open("tools/call", json!({"name": "fx__echo", "arguments": {"text": "x"}})));
        }
    }
    let limited = |answer: &Value| answer["result"]["_meta"]["headend/refusal"].is_object();
    let admitted = open.iter_mut().filter_map(|call| (!limited(&call.response())).then_some(())).count();
    assert_eq!(admitted, QUOTA);
    assert_eq!(record.count("tools/call"), QUOTA);
}

fn token(n: usize) -> String {
    format!("token-of-the-caller-number-{n:04}-0123456789")
}
