//! Tests of approvals that need a terminal, a process, a browser or a signal. The others run on the
//! stage.

use std::time::Duration;

use serde_json::{Value, json};

use crate::tools::harness::{Gateway, GatewaySetup};
use crate::tools::mcp::{ClientEra, Mcp, McpAnswer};
use crate::tools::process::eventually;
use crate::tools::steps::consent::{allow, asked, forms, go_on, reason};
use crate::tools::upstream::{Fake, InputLog};

pub(crate) use crate::tools::consenting::{ApprovalGateway, TOKEN};

mod abuse;
mod asked;
mod below;
mod notify;
pub(crate) mod operator;
mod proof;

/// A hold longer than any test: an answer that comes sooner did not wait for its end.
const LONG: &str = "hold = \"10m\"";

#[test]
fn a_question_is_logged_like_every_other_decision() {
    let stage = ApprovalGateway::with("", "[log]\nfilter = \"info,audit=debug\"");
    let mut client = stage.client(ClientEra::Modern, forms());
    let arguments = json!({"text": "secret words"});
    let (_, state) = asked(&client.call("fx__echo", arguments.clone()));
    assert_eq!(go_on(&mut client, "fx__echo", &arguments, &state, &allow("once")).text(), "secret words");
    let logged = |lines: &[String]| -> Option<Vec<String>> {
        let decisions: Vec<_> = lines.iter().filter(|line| line.contains("audit: decision")).cloned().collect();
        decisions.iter().any(|line| line.contains("allow")).then_some(decisions)
    };
    let lines = stage.gateway.stderr.wait_for(Duration::from_secs(60), logged);
    let lines = lines.unwrap_or_else(|| panic!("{}", stage.gateway.story()));
    assert!(lines[0].contains("ask") && lines[0].contains("fx__echo"), "{lines:#?}");
    assert!(lines.len() == 2 && !lines.concat().contains("secret words"), "{lines:#?}");
}
