//! Cases about our own approval forms, which need a state that was really issued, or an approval
//! that is really open.

use serde_json::{Value, json};

use super::case::Case;
use super::stage::CorpusGateway;
use crate::tools::mcp::{ClientEra, Mcp, OpenCall};

/// The tables of a daemon that asks for approval of the tool in these cases.
pub(super) const RULES: &str = r#"
[[policy.rules]]
id = "corpus-ask"
effect = "ask"
tools = ["fx__ask"]
"#;
/// The corpus's name for our key among the responses, and the real one.
const KEY: (&str, &str) = ("mgw:consent", "gw.consent");
/// The corpus declares no capabilities. A client that can be asked gets further, so it is the
/// harder case.
const CAPABILITIES: (&str, &str) = (r#"clientCapabilities": {}"#, r#"clientCapabilities": {"elicitation": {}}"#);

/// Returns whether the case needs a daemon that asks.
pub(super) fn concerns(case: &Case) -> bool {
    case.mentions("${STATE") || case.mentions("${ELICIT_ID_B}")
}

/// Our open question, which the case must leave open.
#[derive(Debug)]
pub(super) enum HeldApproval {
    /// Put to a modern client, which continues with this state.
    Modern { client: Box<Mcp>, state: Value },
    /// Put to a legacy client, on its call's stream.
    Legacy { client: Box<Mcp>, call: OpenCall, id: Value },
}

/// Returns the placeholders of the case, and the question that it is about.
pub(super) fn prepare(stage: &CorpusGateway, case: &Case) -> (Vec<(String, String)>, Option<HeldApproval>) {
    let mut fill: Vec<(String, String)> =
        [KEY, CAPABILITIES].iter().map(|(from, to)| ((*from).to_owned(), (*to).to_owned())).collect();
    let text = |value: &Value| value.as_str().expect("a text").to_owned();
    if case.mentions("${ELICIT_ID_B}") {
        let mut client = stage.second_with(ClientEra::Legacy(case.revision()), forms());
        let mut call = client.open("tools/call", one());
        let question = call.next().expect("a question");
        assert_eq!(question["method"], "elicitation/create", "{question}");
        let id = question["id"].clone();
        fill.push(("${ELICIT_ID_B}".to_owned(), text(&id)));
        return (fill, Some(HeldApproval::Legacy { client: Box::new(client), call, id }));
    }
    let (name, mut client) = match case.mentions("${STATE_B}") {
        true => ("${STATE_B}", stage.second_with(ClientEra::Modern, forms())),
        false => ("${STATE}", stage.first_with(ClientEra::Modern, forms())),
    };
    let asked = client.request("tools/call", one());
    let state = asked.result()["requestState"].clone();
    assert!(asked.result()["inputRequests"][KEY.1].is_object(), "{}", asked.raw);
    fill.push((name.to_owned(), text(&state)));
    let mut asked = HeldApproval::Modern { client: Box::new(client), state };
    if case.text("setup") == "state already consumed" {
        assert_eq!(asked.look(), None, "the state is good once");
        return (fill, None);
    }
    (fill, Some(asked))
}

impl HeldApproval {
    /// Lets the question's own client answer it after the case. Returns the failure if it was no
    /// longer open.
    pub(super) fn look(&mut self) -> Option<String> {
        match self {
            Self::Modern { client, state } => {
                let mut params = one();
                params["requestState"] = state.clone();
                params["inputResponses"] = json!({KEY.1: {"action": "accept", "content": {"decision": "once"}}});
                let answer = client.request("tools/call", params);
                let done = answer.message.pointer("/result/content/0/text") == Some(&json!("ask"));
                (!done).then(|| format!("the question was not open any more: {}", answer.raw))
            }
            Self::Legacy { client, call, id } => {
                client.respond(id, json!({"action": "accept", "content": {"decision": "once"}}));
                let response = call.response();
                let done = response.pointer("/result/content/0/text") == Some(&json!("ask"));
                (!done).then(|| format!("the question was not open any more: {response}"))
            }
        }
    }
}

fn forms() -> Value {
    json!({"elicitation": {}})
}

/// Returns the parameters of the call in all these cases.
fn one() -> Value {
    json!({"name": "fx__ask", "arguments": {"x": 1}})
}
