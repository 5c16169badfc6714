//! Questions for an approval, and their answers.

use serde_json::{Value, json};

use super::super::mcp::{Mcp, McpAnswer};

/// Returns the capabilities of a client that can show forms.
pub(crate) fn forms() -> Value {
    json!({"elicitation": {}})
}

/// Returns our question in a modern answer, and the state to continue with.
pub(crate) fn asked(answer: &McpAnswer) -> (Value, Value) {
    let result = answer.result();
    assert_eq!(result["resultType"], "input_required", "{}", answer.raw);
    let requests = result["inputRequests"].as_object().unwrap();
    assert_eq!(requests.len(), 1, "{}", answer.raw);
    let question = requests["gw.consent"].clone();
    assert_eq!(question["method"], "elicitation/create", "{}", answer.raw);
    (question["params"].clone(), result["requestState"].clone())
}

/// Makes the same call again with a person's answer.
pub(crate) fn go_on(client: &mut Mcp, name: &str, arguments: &Value, state: &Value, response: &Value) -> McpAnswer {
    let params = json!({"name": name, "arguments": arguments, "requestState": state,
        "inputResponses": {"gw.consent": response}});
    client.request("tools/call", params)
}

pub(crate) fn allow(how: &str) -> Value {
    json!({"action": "accept", "content": {"decision": how}})
}

/// Returns the reason in a refused call's result.
pub(crate) fn reason(answer: &McpAnswer) -> String {
    assert!(answer.is_error(), "{}", answer.raw);
    answer.result()["_meta"]["headend/refusal"]["reason"].as_str().unwrap_or_default().to_owned()
}
