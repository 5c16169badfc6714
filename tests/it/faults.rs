//! What servers say wrongly is counted, whatever the transport on which they say it.

use serde_json::json;

use crate::harness::{Gateway, Setup};
use crate::process::eventually;
use crate::upstream::{Fake, Listening};

/// A gateway before one server, which answers these requests word for word.
fn before(fake: Fake, script: &serde_json::Value) -> (Gateway, Option<Listening>) {
    let setup = Setup::new();
    let script = setup.world.write("script.json", &script.to_string());
    let fake = fake.with("--script", script.to_str().unwrap());
    if fake.command().contains("\"stdio\"") {
        return (setup.fake("fx", &fake).start(), None);
    }
    let server = fake.spawn();
    (setup.url("fx", &server.url).start(), Some(server))
}

/// A server of each era on each transport.
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
    let answer = |result: serde_json::Value| format!(r#"{{"jsonrpc":"2.0","id":${{ID}},"result":{result}}}"#);
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
