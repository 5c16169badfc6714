//! Tests that protocol violations and bursts of servers have the same effect on every transport.

use serde_json::{Value, json};

use crate::stage::harness::{Gateway, GatewaySetup};
use crate::stage::mcp::ClientEra;
use crate::stage::process::eventually;
use crate::stage::upstream::{Fake, Listening};

/// Starts a gateway in front of one server that answers these requests verbatim.
fn before(fake: Fake, script: &Value) -> (Gateway, Option<Listening>) {
    let setup = GatewaySetup::new();
    let script = setup.world.write("script.json", &script.to_string());
    let fake = fake.with("--script", script.to_str().unwrap());
    if fake.command().contains("\"stdio\"") {
        return (setup.fake("fx", &fake).start(), None);
    }
    let server = fake.spawn();
    (setup.url("fx", &server.url).start(), Some(server))
}

/// Returns a server of each era on each transport.
fn everywhere() -> [Fake; 5] {
    [Fake::stdio("legacy"), Fake::stdio("modern"), Fake::http("legacy"), Fake::http("modern"), Fake::sse()]
}

fn counted(gateway: &Gateway, fault: &str) -> u64 {
    let series = format!("headend_upstream_faults_total{{fault=\"{fault}\",upstream=\"fx\"}} ");
    let scraped = gateway.scrape();
    scraped.lines().find_map(|line| line.strip_prefix(&series)?.parse().ok()).unwrap_or_default()
}

#[test]
fn a_list_that_is_none_or_not_whole_is_counted_on_every_transport() {
    let answer = |result: Value| format!(r#"{{"jsonrpc":"2.0","id":${{ID}},"result":{result}}}"#);
    let resources = json!([{"uri": "fx://doc/1", "name": "doc 1"}, {"name": "without a URI"}]);
    for (label, script) in [
        ("no list", json!({"prompts/list": [answer(json!({"prompts": 7}))]})),
        ("a bad item", json!({"resources/list": [answer(json!({ "resources": resources }))]})),
    ] {
        for fake in everywhere() {
            let command = fake.command();
            let (gateway, _server) = before(fake, &script);
            gateway.wait_for_tools(&["fx__echo"]);
            eventually(&format!("{label} of {command} is counted"), || counted(&gateway, "bad_list") > 0);
        }
    }
}

/// A valid answer of a server of either era.
const GOOD: &str =
    r#"{"jsonrpc":"2.0","id":${ID},"result":{"resultType":"complete","content":[{"type":"text","text":"normal"}]}}"#;

#[test]
fn what_is_no_answer_is_counted_on_every_transport() {
    let both = r#"{"jsonrpc":"2.0","id":${ID},"result":{},"error":{"code":1,"message":"both"}}"#;
    let progress =
        r#"{"jsonrpc":"2.0","method":"notifications/progress","params":{"progressToken":99999,"progress":1}}"#;
    let script = json!({
        "tools/call/echo": ["this is {not JSON", GOOD],
        "tools/call/fail": [both],
        "tools/call/write": [r#"{"jsonrpc":"2.0","id":${ID},"result":7}"#],
        "tools/call/env": [r#"{"jsonrpc":"2.0","id":"another","result":{}}"#, GOOD],
        "tools/call/sleep": [progress, GOOD],
    });
    for fake in everywhere() {
        let command = fake.command();
        let (gateway, _server) = before(fake.with("--answers", "sse"), &script);
        gateway.wait_for_tools(&["fx__echo", "fx__sleep"]);
        let mut client = gateway.modern();
        for (tool, fault) in [
            ("echo", "garbage"),
            ("fail", "malformed_reply"),
            ("write", "malformed_reply"),
            ("env", "unknown_reply"),
            ("sleep", "bad_progress"),
        ] {
            let before = counted(&gateway, fault);
            client.call(&format!("fx__{tool}"), json!({}));
            eventually(&format!("{fault} of {tool} is counted, {command}"), || counted(&gateway, fault) > before);
        }
    }
}

#[test]
fn a_server_of_2025_03_26_may_speak_in_batches_on_every_transport() {
    let progress =
        r#"{"jsonrpc":"2.0","method":"notifications/progress","params":{"progressToken":${ID},"progress":1}}"#;
    let script = json!({"tools/call/echo": [format!("[{progress},{GOOD}]")]});
    let streams = Fake::http("legacy").with("--answers", "sse");
    for fake in [Fake::stdio("legacy"), Fake::http("legacy"), streams, Fake::sse()] {
        let command = fake.command();
        let (gateway, _server) = before(fake.with("--revision", "2025-03-26"), &script);
        gateway.wait_for_tools(&["fx__echo"]);
        for era in ClientEra::BOTH {
            let params = json!({"name": "fx__echo", "arguments": {}, "_meta": {"progressToken": "mine"}});
            let answer = gateway.client(era).request("tools/call", params);
            assert_eq!(answer.text(), "normal", "{era:?}, {command}: {}", answer.raw);
            assert_eq!(answer.notices.len(), 1, "{era:?}, {command}: {:?}", answer.notices);
        }
    }
}
