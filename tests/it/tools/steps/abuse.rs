//! Steps of tests that attack approvals.

use serde_json::json;

use super::super::harness::Gateway;
use super::super::mcp::McpAnswer;
use super::super::process::said;
use super::consent::reason;

/// Returns the approval that a refused call waits for.
pub(crate) fn waits_for(answer: &McpAnswer) -> String {
    assert_eq!(reason(answer), "awaiting_approval", "{}", answer.raw);
    let id = &answer.result()["_meta"]["headend/refusal"]["approval"]["id"];
    id.as_str().unwrap_or_else(|| panic!("no prompt: {}", answer.raw)).to_owned()
}

pub(crate) fn approve(gateway: &Gateway, id: &str) {
    let output = gateway.run(&["approve", id]);
    assert!(output.status.success(), "{}", said(&output));
}

/// Returns whether the tool `echo` was really executed.
pub(crate) fn echoed(answer: &McpAnswer, text: &str) -> bool {
    answer.message.pointer("/result/content/0/text") == Some(&json!(text)) && !answer.is_error()
}
