//! Approvals of real SDK clients before three replicas, each request of which goes to the next one.

use serde_json::{Value, json};

use super::client::{ApprovingClient, Sdk};
use super::{FORMS, NOBODY};
use crate::consenting::TOKEN;
use crate::peers::PeerFolders;
use crate::postgres::ThreeReplicas;
use crate::process::{eventually, said};

/// Approvals of every call, which wait for a person.
const ASK: &str = "default = \"ask\"\n[policy.consent]\nhold = \"60s\"\nper-minute = 100";

fn client(peers: &PeerFolders, stage: &ThreeReplicas, sdk: Sdk, capabilities: &str) -> ApprovingClient {
    let target = json!({"url": stage.url(), "token": TOKEN});
    ApprovingClient::connect(peers, &stage.replicas[0], sdk, &target, capabilities)
}

/// Returns the open approvals as a replica lists them.
fn listed(stage: &ThreeReplicas, replica: usize) -> Vec<String> {
    let output = stage.replicas[replica].run(&["approvals", "list", "--json"]);
    assert!(output.status.success(), "{}", said(&output));
    let listed: Value = serde_json::from_slice(&output.stdout).unwrap();
    let ids = listed["approvals"].as_array().unwrap().iter();
    ids.map(|approval| approval["id"].as_str().unwrap().to_owned()).collect()
}

#[test]
fn people_approve_by_form_and_by_command_at_replicas_in_turn() {
    let Some(peers) = PeerFolders::find() else { return };
    let Some(stage) = ThreeReplicas::start(ASK) else { return };
    for sdk in [Sdk::TypeScript1, Sdk::TypeScript2, Sdk::Python] {
        let mut asked = client(&peers, &stage, sdk, FORMS);
        let mut unasked = client(&peers, &stage, sdk, NOBODY);
        for number in 0..3 {
            let text = format!("{sdk:?} by form {number}");
            let call = asked.begin("fx__echo", &json!({"text": text}), &["once"]);
            assert_eq!(asked.end(call).text(), text);
        }
        for replica in 0..3 {
            let text = format!("{sdk:?} at {replica}");
            let call = unasked.begin("fx__echo", &json!({"text": text}), &[]);
            let mut open = Vec::new();
            eventually("the approval is listed on every replica", || {
                open = listed(&stage, replica);
                !open.is_empty()
            });
            let approved = stage.replicas[replica].run(&["approve", &open[0], "--for", "once"]);
            assert!(approved.status.success(), "{}", said(&approved));
            assert_eq!(unasked.end(call).text(), text);
        }
    }
    assert_eq!(stage.log.count("tools/call"), 18, "each call is made once");
    stage.check_turns();
}
