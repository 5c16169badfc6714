//! Tests of calls to items that their caller cannot see: they are answered like unknown items, and
//! recorded.

use std::fs;
use std::time::Duration;

use serde_json::{Value, json};

use crate::tools::harness::{GatewaySetup, TestHome};
use crate::tools::mcp::{ClientEra, Mcp};
use crate::tools::stdio::Pipe;
use crate::tools::upstream::Fake;

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

/// Returns the records of these events in the audit logs of all processes.
fn records(world: &TestHome, events: &[&str]) -> Vec<Value> {
    let folder = world.path("state/headend/audit");
    let mut files: Vec<_> = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()).collect();
    files.sort();
    let text: String = files.iter().map(|file| fs::read_to_string(file).unwrap()).collect();
    let records = text.lines().filter_map(|line| serde_json::from_str::<Value>(line).ok());
    records.filter(|record| events.iter().any(|event| record["event"] == *event)).collect()
}

#[test]
fn a_client_on_pipes_leaves_the_same_records() {
    let (world, config) = GatewaySetup::new().fake("fx", &Fake::stdio("both")).toml(RULES).write();
    for (profile, name, rule) in [(&[][..], "fx__env", "no-tool"), (&["--profile", "few"][..], "fx__fail", "profile")] {
        for era in ClientEra::BOTH {
            let mut client = Mcp::stdio(Pipe::start(&world, &config, profile), era);
            assert_eq!(client.call("fx__nobody", json!({})).code(), Some(-32602));
            assert_eq!(client.call(name, json!({})).code(), Some(-32602), "{era:?}");
            assert_eq!(client.call(name, json!({})).code(), Some(-32602), "{era:?}");
            assert!(client.pipe().close(Duration::from_secs(60)).is_some());
            let last = |event: &str| {
                records(&world, &[event])
                    .into_iter()
                    .filter(|record| record["item"] == name || event != "decision")
                    .count()
            };
            let rules = records(&world, &["decision"]).iter().filter(|record| record["rule"] == rule).count();
            let sessions = if era == ClientEra::Modern { 2 } else { 1 };
            assert_eq!((last("decision"), rules), (sessions, sessions), "{era:?}, {name}");
        }
    }
    let summaries = records(&world, &["refusals"]);
    assert!(summaries.len() == 4 && summaries.iter().all(|record| record["count"] == 1), "{summaries:#?}");
}
