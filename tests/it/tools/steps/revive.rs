//! Messages and states of clients whose gateway was replaced by another process.

use serde_json::{Value, json};

use super::super::harness::TestHome;
use super::super::mcp::McpAnswer;
use super::super::upstream::InputLog;

/// Writes the server's answer, which asks for input under this state or ends the call. Returns the
/// arguments that name its file.
pub(crate) fn server_says(world: &TestHome, state: Option<&str>) -> Value {
    let form =
        json!({"message": "Who?", "requestedSchema": {"type": "object", "properties": {"who": {"type": "string"}}}});
    let result = match state {
        Some(state) => json!({"resultType": "input_required", "requestState": state,
            "inputRequests": {"who": {"method": "elicitation/create", "params": form}}}),
        None => json!({"resultType": "complete", "content": [{"type": "text", "text": "done"}]}),
    };
    json!({"file": world.write("work/raw.json", &result.to_string())})
}

pub(crate) fn state_of(answer: &McpAnswer) -> Value {
    assert_eq!(answer.result()["resultType"], "input_required", "{}", answer.raw);
    answer.result()["requestState"].clone()
}

/// Returns whether the answer asks for our approval.
pub(crate) fn asks_for_approval(answer: &McpAnswer) -> bool {
    answer.result()["inputRequests"].get("gw.consent").is_some()
}

pub(crate) fn going_on(arguments: &Value, state: &Value) -> Value {
    let responses = json!({"gw.consent": {"action": "accept", "content": {"decision": "once"}},
        "who": {"action": "accept", "content": {"who": "me"}}});
    json!({"name": "fx__raw", "arguments": arguments, "requestState": state, "inputResponses": responses})
}

/// Counts how often the server got this state.
pub(crate) fn got(log: &InputLog, theirs: &str) -> usize {
    log.lines_with(&[&format!("\"requestState\":\"{theirs}\"")])
        .iter()
        .filter(|line| line.contains("tools/call"))
        .count()
}
