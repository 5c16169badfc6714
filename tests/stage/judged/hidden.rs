//! Tests of calls of items that their caller cannot see: answered like unknown ones, and recorded.

use std::fs;
use std::time::Duration;

use rustix::process::Signal;
use serde_json::{Value, json};

use crate::stage::harness::{Gateway, GatewaySetup, TestHome};
use crate::stage::mcp::{ClientEra, Mcp};
use crate::stage::process::{eventually, said};
use crate::stage::stdio::Pipe;
use crate::stage::upstream::{Fake, InputLog};

const TOKEN: &str = "token-of-the-second-caller-0123456789";
const RULES: &str = r#"
[[policy.rules]]
id = "no-tool"
effect = "deny"
tools = ["fx__env"]
[[policy.rules]]
id = "no-prompt"
effect = "deny"
prompts = ["fx__p"]
[[policy.rules]]
id = "no-docs"
effect = "deny"
resources = ["fx+fx://*"]
[profiles.few]
tools = { allow = ["fx__echo"] }
"#;

fn gateway() -> (Gateway, InputLog) {
    let setup = GatewaySetup::new();
    let log = InputLog::new(&setup.world.path("work"), "fx");
    let gateway = setup
        .env("SECOND_TOKEN", TOKEN)
        .server("[server.auth]\ntokens = { second = { env = \"SECOND_TOKEN\" } }")
        .fake("fx", &Fake::stdio("both").logging(&log))
        .toml(RULES)
        .start();
    gateway.wait_for_tools(&["fx__echo"]);
    (gateway, log)
}

/// Returns all audit records of these events, by any process.
fn records(world: &TestHome, events: &[&str]) -> Vec<Value> {
    let folder = world.path("state/headend/audit");
    let mut files: Vec<_> = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()).collect();
    files.sort();
    let text: String = files.iter().map(|file| fs::read_to_string(file).unwrap()).collect();
    let records = text.lines().filter_map(|line| serde_json::from_str::<Value>(line).ok());
    records.filter(|record| events.iter().any(|event| record["event"] == *event)).collect()
}

fn stop(gateway: &mut Gateway) {
    gateway.signal(Signal::TERM);
    assert!(gateway.wait(Duration::from_secs(60)).is_some(), "{}", gateway.story());
}

#[test]
fn every_way_to_a_hidden_item_is_recorded_and_none_to_an_unknown_one() {
    let complete = |reference: Value| json!({"ref": reference, "argument": {"name": "a", "value": "b"}});
    let rows = [
        ("tools/call", json!({"name": "fx__env", "arguments": {}}), "tool", "fx__env", "no-tool"),
        ("prompts/get", json!({"name": "fx__p"}), "prompt", "fx__p", "no-prompt"),
        ("resources/read", json!({"uri": "fx://doc/1"}), "resource", "fx+fx://doc/1", "no-docs"),
        ("resources/read", json!({"uri": "fx://doc/secret"}), "resource", "fx+fx://doc/{id}", "no-docs"),
        (
            "completion/complete",
            complete(json!({"type": "ref/prompt", "name": "fx__p"})),
            "completion",
            "fx__p",
            "no-prompt",
        ),
        (
            "completion/complete",
            complete(json!({"type": "ref/resource", "uri": "fx://doc/{id}"})),
            "completion",
            "fx+fx://doc/{id}",
            "no-docs",
        ),
        ("resources/subscribe", json!({"uri": "fx://doc/1"}), "subscription", "fx+fx://doc/1", "no-docs"),
    ];
    for era in ClientEra::BOTH {
        for (method, params, kind, item, rule) in &rows {
            if *method == "resources/subscribe" && era == ClientEra::Modern {
                continue;
            }
            // Each caller gets at most one record at once, so each row has a gateway of its own.
            let (mut gateway, log) = gateway();
            let mut client = gateway.client(era);
            let unknown: Value =
                serde_json::from_str(&params.to_string().replace("fx__", "fy__").replace("fx:", "fy:")).unwrap();
            assert!(client.request(method, unknown).code().is_some());
            assert!(client.request(method, params.clone()).code().is_some());
            eventually("the record", || !records(&gateway.world, &["decision"]).is_empty());
            stop(&mut gateway);
            let found = records(&gateway.world, &["decision", "refusals"]);
            let [record] = found.as_slice() else { panic!("{era:?}, {method}: {found:#?}") };
            let said =
                ["event", "result", "kind", "item", "rule", "caller", "upstream"].map(|name| record[name].clone());
            assert_eq!(json!(said), json!(["decision", "deny", kind, item, rule, "local", "fx"]), "{era:?}: {record}");
            assert_eq!(log.work(), 0, "{era:?}, {method}");
            let verified = gateway.run(&["audit", "verify"]);
            assert!(verified.status.success(), "{}", crate::stage::process::said(&verified));
        }
    }
}

#[test]
fn each_caller_has_one_record_and_then_a_summary() {
    let (mut gateway, log) = gateway();
    let mut local = gateway.modern();
    let mut second = Mcp::http_at(gateway.address, Some(TOKEN.to_owned()), ClientEra::LEGACY, "/mcp", json!({}));
    for n in 0..20 {
        assert_eq!(local.call("fx__env", json!({})).code(), Some(-32602));
        assert_eq!(local.request("prompts/get", json!({"name": "fx__p"})).code(), Some(-32602));
        assert_eq!(local.call(&format!("fx__nothing{n}"), json!({})).code(), Some(-32602));
        assert_eq!(second.call("fx__env", json!({})).code(), Some(-32602));
    }
    // Items outside of the profile exist too.
    let mut few = Mcp::http_at(gateway.address, Some(TOKEN.to_owned()), ClientEra::Modern, "/mcp/few", json!({}));
    assert_eq!(few.call("fx__fail", json!({})).code(), Some(-32602));
    stop(&mut gateway);
    let decisions = records(&gateway.world, &["decision"]);
    let mut short: Vec<Value> =
        decisions.iter().map(|record| json!([record["caller"], record["item"], record["rule"]])).collect();
    short.sort_by_key(ToString::to_string);
    let wanted = [json!(["local", "fx__env", "no-tool"]), json!(["second", "fx__env", "no-tool"])];
    assert_eq!(short, wanted, "{decisions:#?}");
    let summaries = records(&gateway.world, &["refusals"]);
    let short: Vec<Value> =
        summaries.iter().map(|record| json!([record["caller"], record["result"], record["count"]])).collect();
    assert_eq!(short, [json!(["local", "deny", 39]), json!(["second", "deny", 20])], "{summaries:#?}");
    let why = summaries[0]["why"].as_str().unwrap();
    assert!(why.contains("fx__env") && why.contains("fx__p"), "{why}");
    assert_eq!(log.work(), 0);
    let verified = gateway.run(&["audit", "verify"]);
    assert!(verified.status.success(), "{}", said(&verified));
    let tail = said(&gateway.run(&["audit", "tail", "-n", "100"]));
    assert!(tail.contains("refusals") && tail.contains("count=39"), "{tail}");
}

#[test]
fn headers_that_a_hidden_tool_wants_do_not_tell_that_it_exists() {
    let gateway = GatewaySetup::new()
        .fake("fx", &Fake::stdio("modern"))
        .toml("[[policy.rules]]\nid = \"no-mirror\"\neffect = \"deny\"\ntools = [\"fx__region\"]")
        .start();
    gateway.wait_for_tools(&["fx__echo"]);
    let mut client = gateway.modern();
    let hidden = client.call("fx__region", json!({"region": "x"}));
    let unknown = client.call("fx__nobody", json!({"region": "x"}));
    assert_eq!((hidden.status, hidden.code()), (unknown.status, unknown.code()), "{}", hidden.raw);
}

#[test]
fn a_long_uri_that_a_template_covers_is_answered_like_an_unknown_one() {
    let rule = "[[policy.rules]]\nid = \"no\"\neffect = \"deny\"\nresources = [\"fx+fx://doc/secret*\"]";
    let gateway = GatewaySetup::new().fake("fx", &Fake::stdio("both")).toml(rule).start();
    gateway.wait_for_tools(&["fx__echo"]);
    for era in ClientEra::BOTH {
        let mut client = gateway.client(era);
        let mut told = |uri: String| {
            let answer = client.request("resources/read", json!({"uri": uri}));
            let message = answer.message["error"]["message"].as_str().unwrap().to_owned();
            (message.len(), answer.code())
        };
        let tail = "x".repeat(200);
        assert_eq!(told(format!("fx://doc/secret{tail}")), told(format!("fx://cod/secret{tail}")), "{era:?}");
    }
}
