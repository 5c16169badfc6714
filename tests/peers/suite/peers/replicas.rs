//! Official SDK clients of both eras before three replicas, each request of which goes to the next
//! one.

use std::process::Command;

use serde_json::{Value, json};

use super::PeerFolders;
use super::bench::Bench;
use crate::consenting::TOKEN;
use crate::postgres::ThreeReplicas;

#[test]
fn official_sdk_clients_use_three_replicas_in_turn() {
    let Some(peers) = PeerFolders::find() else { return };
    let Some(stage) = ThreeReplicas::start("default = \"allow\"") else { return };
    let texts: Vec<String> = (0..7).map(|number| format!("call {number}")).collect();
    let calls: Vec<Value> = texts.iter().map(|text| json!({"name": "fx__echo", "arguments": {"text": text}})).collect();
    for (script, era) in
        [("ts-v1.mjs", "legacy"), ("ts-v2.mjs", "modern"), ("python-sdk.py", "legacy"), ("python-sdk.py", "modern")]
    {
        let job = json!({"era": era, "target": {"url": stage.url(), "token": TOKEN}, "calls": calls, "lists": true});
        let at = format!("{script}, {era}");
        let is_python = script.ends_with(".py");
        let mut command = Command::new(if is_python { peers.python("python") } else { peers.node() });
        command.arg(crate::ground::root().join("tests/peers").join(script)).arg(job.to_string());
        let output = Bench::run_client(&peers, &stage.replicas[0], &mut command, &at);
        let last = String::from_utf8_lossy(&output.stdout).lines().next_back().map(str::to_owned).unwrap_or_default();
        let report: Value = serde_json::from_str(&last)
            .unwrap_or_else(|_| panic!("{at}: no report\n{}", String::from_utf8_lossy(&output.stderr)));
        let said: Vec<&str> =
            report["calls"].as_array().unwrap().iter().map(|call| call["text"].as_str().unwrap()).collect();
        assert_eq!(said, texts, "{at}: {report}");
        assert!(report["tools"].as_array().unwrap().contains(&json!("fx__echo")), "{at}: {report}");
    }
    stage.check_turns();
}
