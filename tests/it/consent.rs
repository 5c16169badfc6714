//! Approvals that need a terminal, a process of their own, a browser's page or a signal. The others
//! are tested on the stage.

use std::time::Duration;

use serde_json::{Value, json};

use crate::harness::{Gateway, Setup};
use crate::mcp::{Answer, Era, Mcp};
use crate::process::eventually;
use crate::upstream::{Fake, Log};

mod abuse;
mod asked;
mod below;
mod binding;
mod denied;
mod notify;
pub(crate) mod operator;
mod proof;

/// A second caller besides the local one.
pub(crate) const TOKEN: &str = "token-of-the-second-caller-0123456789";

/// Longer than any test: what comes sooner did not wait for the end of the hold.
const LONG: &str = "hold = \"10m\"";

/// A gateway whose every call of one server, `fx`, needs an approval.
#[derive(Debug)]
pub(crate) struct Stage {
    pub(crate) gateway: Gateway,
    log: Log,
}

impl Stage {
    pub(crate) fn new() -> Self {
        Self::with("", "")
    }

    /// `consent` are lines of `[policy.consent]`, `more` further tables.
    pub(crate) fn with(consent: &str, more: &str) -> Self {
        Self::of(Setup::new(), consent, more)
    }

    /// [`Stage::with`] further lines of `[server]` in the setup.
    fn of(setup: Setup, consent: &str, more: &str) -> Self {
        let setup = setup
            .second_caller(TOKEN)
            .policy(&format!("default = \"ask\"\n[policy.consent]\nper-minute = 100\nmax-open = 100\n{consent}"));
        let log = Log::new(&setup.world.path("work"), "fx");
        let gateway = setup.fake("fx", &Fake::stdio("legacy").logging(&log)).toml(more).start();
        gateway.wait_for_tools(&["fx__echo"]);
        Self { gateway, log }
    }

    fn client(&self, era: Era, capabilities: Value) -> Mcp {
        Mcp::http_at(self.gateway.address, self.gateway.token(), era, "/mcp", capabilities)
    }

    /// The arguments of the calls that reached the server, in order.
    pub(crate) fn called(&self) -> Vec<Value> {
        let lines = self.log.lines_with(&["\"method\":\"tools/call\""]);
        let calls = lines.iter().filter_map(|line| serde_json::from_str::<Value>(line).ok());
        calls.map(|call| call["params"]["arguments"].clone()).collect()
    }

    /// The audit log's records of that event, each as (result, item).
    pub(crate) fn audit(&self, event: &str) -> Vec<Value> {
        let read = || {
            let output = self.gateway.world.run(&["audit", "tail", "-n", "1000", "--json"]);
            assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
            let text = String::from_utf8_lossy(&output.stdout).into_owned();
            let records = text.lines().map(|line| serde_json::from_str::<Value>(line).unwrap());
            records.filter(|record| record["event"] == event).collect::<Vec<_>>()
        };
        read()
    }
}

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

/// The reason in a refused call's result.
fn reason(answer: &Answer) -> String {
    assert!(answer.is_error(), "{}", answer.raw);
    answer.result()["_meta"]["headend/refusal"]["reason"].as_str().unwrap_or_default().to_owned()
}

#[test]
fn a_question_is_logged_like_every_other_decision() {
    let stage = Stage::with("", "[log]\nfilter = \"info,audit=debug\"");
    let mut client = stage.client(Era::Modern, forms());
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
