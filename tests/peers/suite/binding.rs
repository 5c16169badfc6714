//! A consent over the rounds of one call, before the reference server.

use serde_json::{Value, json};

use crate::harness::Setup;
use crate::mcp::{Answer, Era, Mcp};

/// A client that can show forms.
fn forms() -> Value {
    json!({"elicitation": {}})
}

/// Our question in a modern answer, and the state to continue with.
fn asked(answer: &Answer) -> (Value, Value) {
    let result = answer.result();
    assert_eq!(result["resultType"], "input_required", "{}", answer.raw);
    let requests = result["inputRequests"].as_object().unwrap();
    assert_eq!(requests.len(), 1, "{}", answer.raw);
    let question = requests["gw.consent"].clone();
    assert_eq!(question["method"], "elicitation/create", "{}", answer.raw);
    (question["params"].clone(), result["requestState"].clone())
}

/// The same call with a person's answer.
fn go_on(client: &mut Mcp, name: &str, arguments: &Value, state: &Value, response: &Value) -> Answer {
    let params = json!({"name": name, "arguments": arguments, "requestState": state,
        "inputResponses": {"gw.consent": response}});
    client.request("tools/call", params)
}

fn allow(how: &str) -> Value {
    json!({"action": "accept", "content": {"decision": how}})
}

#[test]
fn one_consent_is_good_for_all_rounds_of_one_call_and_for_no_second_one() {
    let arguments = ["http", "--listen", "127.0.0.1:0", "--era", "modern"].map(str::to_owned);
    let server = crate::upstream::Listening::spawn(&crate::upstream::example("conformance-fixture"), &arguments);
    let gateway =
        Setup::new().policy("default = \"ask\"").toml(&format!("[upstreams.fx]\nurl = \"{}\"", server.url)).start();
    let name = "fx__test_input_required_result_elicitation";
    gateway.wait_for_tools(&[name]);
    let mut client = Mcp::http_at(gateway.address, gateway.token(), Era::Modern, "/mcp", forms());
    let (_, state) = asked(&client.call(name, json!({})));
    let theirs = go_on(&mut client, name, &json!({}), &state, &allow("once"));
    let requests = theirs.result()["inputRequests"].as_object().unwrap();
    let (key, question) = requests.iter().next().unwrap();
    assert!(question["params"]["message"].as_str().unwrap().starts_with("[fx] "), "{}", theirs.raw);
    let response = json!({"action": "accept", "content": {"name": "Ada"}});
    let params = json!({"name": name, "arguments": {}, "requestState": theirs.result()["requestState"],
        "inputResponses": {key: response}});
    let done = client.request("tools/call", params.clone());
    assert!(!done.is_error() && done.result()["resultType"] == "complete", "{}", done.raw);
    // The state proved that one permit. Sent again, it is a call like any other.
    let replayed = client.request("tools/call", params);
    let (question, _) = asked(&replayed);
    assert!(question["message"].as_str().unwrap().starts_with("headend asks"), "{}", replayed.raw);
}
