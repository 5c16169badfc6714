//! SDK clients that check what they are sent, behind a gateway whose upstream sends malformed
//! definitions.

use std::process::Command;

use serde_json::{Value, json};

use super::PeerFolders;
use super::bench::Bench;
use crate::malformed;

#[test]
fn strict_clients_read_every_list_though_some_definitions_are_malformed() {
    let Some(peers) = PeerFolders::find() else { return };
    let (gateway, _running) = malformed::stage("stdio", "legacy", "", "");
    gateway.wait_for_tools(&["fx__echo", "fx__extra_0000"]);
    let target = json!({"url": format!("http://{}/mcp", gateway.address), "token": gateway.token()});
    let echo = json!({"name": "fx__echo", "arguments": {"text": "hello"}});
    let mut wrong = Vec::new();
    for (script, era) in [
        ("ts-v1.mjs", "legacy"),
        ("ts-v2.mjs", "legacy"),
        ("ts-v2.mjs", "modern"),
        ("python-sdk.py", "legacy"),
        ("python-sdk.py", "modern"),
    ] {
        let at = format!("{script} ({era})");
        let job = json!({"era": era, "target": target, "calls": [echo], "lists": true}).to_string();
        let program = if script.ends_with(".py") { peers.python("python") } else { peers.node() };
        let path = crate::ground::root().join("tests/peers").join(script);
        let output = Bench::run_client(&peers, &gateway, Command::new(program).arg(path).arg(job), &at);
        let last = String::from_utf8_lossy(&output.stdout).lines().next_back().map(serde_json::from_str::<Value>);
        let Some(Ok(report)) = last else {
            wrong.push(format!("{at}: no report\n{}", String::from_utf8_lossy(&output.stderr)));
            continue;
        };
        let listed: Vec<&str> = report["tools"].as_array().into_iter().flatten().filter_map(Value::as_str).collect();
        for (n, (members, is_listed)) in malformed::tools().iter().enumerate() {
            if listed.contains(&format!("fx__extra_{n:04}").as_str()) != *is_listed {
                wrong.push(format!("{at}: a tool with {members}: {listed:?}"));
            }
        }
        if report["lists"] != json!([1, 1, 1]) || report["calls"][0]["text"] != "hello" {
            wrong.push(format!("{at}: {report}"));
        }
    }
    assert!(wrong.is_empty(), "\n{}", wrong.join("\n"));
}
