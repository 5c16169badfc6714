//! Tests of several approvals answered together, on a terminal among others.

use super::*;
pub(crate) use crate::tools::consenting::{headend, pending};
use crate::tools::terminal::Terminal;

#[test]
fn several_approvals_are_answered_together_on_the_command_line() {
    let stage = ApprovalGateway::new();
    let mut client = stage.client(ClientEra::Modern, json!({}));
    let arguments = |n: usize| json!({"text": format!("call {n}")});
    let mut id = |tool: &str, n: usize| {
        let refused = client.call(tool, arguments(n));
        refused.result()["_meta"]["headend/refusal"]["approval"]["id"].as_str().unwrap().to_owned()
    };
    let ids: Vec<String> = (0..5).map(|n| id("fx__echo", n)).collect();
    let other = id("fx__env", 0);
    let refused = |args: &[&str], code: i32, why: &str| {
        let output = stage.gateway.world.run(args);
        let text = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(output.status.code() == Some(code) && text.contains(why), "{args:?}: {:?} {text}", output.status);
    };
    refused(&["approve", &ids[0], &ids[1]], 64, "--yes");
    refused(&["deny", &ids[0], &ids[1]], 64, "--yes");
    refused(&["approve", &ids[0], &ids[1], "--yes", "--for", "1h"], 64, "one by one");
    refused(&["approve", &ids[0], &other, "--yes"], 1, "several callers or items");
    refused(&["approve", &ids[0], "zzzzzz", "--yes"], 1, "no open approval");
    assert_eq!(pending(&stage).len(), 6, "nothing was answered");

    let shown = headend(&stage, &["approve", &ids[0], &ids[1][..6], &ids[0], "--yes"]);
    assert!(shown.contains("call 0") && shown.contains("call 1") && !shown.contains("call 2"), "{shown}");
    assert!(shown.contains(&format!("{}: granted", ids[1])) && shown.matches(": granted").count() == 2, "{shown}");
    let denied = headend(&stage, &["approvals", "deny", &ids[2], &ids[3], "--yes", "--json"]);
    let denied: Value = serde_json::from_str(&denied).unwrap();
    assert_eq!(denied["answers"][1], json!({"id": ids[3], "outcome": "denied"}));

    let mut terminal = Terminal::start(&stage.gateway.world, &["approve", &ids[4], &other], "");
    assert_eq!(terminal.end().0, Some(1), "of two tools");
    let more = id("fx__echo", 5);
    for (keys, code, word) in [("n\n", 1, "nothing was answered"), ("y\n", 0, ": granted")] {
        terminal = Terminal::start(&stage.gateway.world, &["approve", &ids[4], &more], "");
        terminal.wait_for("[y/N]");
        terminal.type_in(keys);
        let (ended, screen) = terminal.end();
        assert_eq!(ended, Some(code), "{screen}");
        assert!(screen.contains("call 4") && screen.contains("call 5") && screen.contains(word), "{screen}");
    }
    let passed: Vec<usize> = (0..6).filter(|n| !client.call("fx__echo", arguments(*n)).is_error()).collect();
    assert_eq!(passed, [0, 1, 4, 5]);
    assert_eq!(stage.called().len(), 4, "each once");
}
