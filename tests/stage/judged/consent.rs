//! Tests of calls that need an approval, with clients of both eras that can and that cannot be
//! asked.

use std::sync::Arc;
use std::time::Duration;

use serde_json::{Value, json};
use tokio::task::JoinHandle;

use crate::stage::harness::{Gateway, GatewaySetup};
use crate::stage::mcp::{ClientEra, Mcp, McpAnswer, OpenCall};
use crate::stage::process::eventually;
use crate::stage::steps::consent::{allow, asked, forms, go_on, reason};
use crate::stage::upstream::{Fake, InputLog};
use crate::stage::{block_on, now, pass, stage};
use crate::store::approvals::OperatorAnswer;

mod abuse;
mod below;
mod binding;
mod completions;
mod denied;
mod hold;
mod legacy;
mod many;
mod namesakes;
pub(crate) mod operator;
mod stateless;
mod unattended;

/// Turns of the runtime after which a request, an answer or an end has surely been processed.
const TURNS: usize = 40;

async fn take_turns(turns: usize) {
    for _ in 0..turns {
        tokio::task::yield_now().await;
    }
}

/// Token of a second caller besides the local one.
pub(crate) const TOKEN: &str = "token-of-the-second-caller-0123456789";

/// A gateway in front of one server, `fx`, each call of which needs an approval.
#[derive(Debug)]
pub(crate) struct ConsentGateway {
    pub(crate) gateway: Gateway,
    log: InputLog,
}

impl ConsentGateway {
    pub(crate) fn new() -> Self {
        Self::with("", "")
    }

    /// Starts a stage. `consent` are lines of `[policy.consent]`, `more` further tables.
    pub(crate) fn with(consent: &str, more: &str) -> Self {
        Self::of(GatewaySetup::new(), consent, more)
    }

    /// Like [`ConsentGateway::with`], from a setup that may have lines of `[server]`.
    fn of(setup: GatewaySetup, consent: &str, more: &str) -> Self {
        let setup = setup
            .second_caller(TOKEN)
            .policy(&format!("default = \"ask\"\n[policy.consent]\nper-minute = 100\nmax-open = 100\n{consent}"));
        let log = InputLog::new(&setup.world.path("work"), "fx");
        let gateway = setup.fake("fx", &Fake::stdio("legacy").logging(&log)).toml(more).start();
        gateway.wait_for_tools(&["fx__echo"]);
        Self { gateway, log }
    }

    fn client(&self, era: ClientEra, capabilities: Value) -> Mcp {
        Mcp::http_at(self.gateway.address, self.gateway.token(), era, "/mcp", capabilities)
    }

    fn second(&self, era: ClientEra, capabilities: Value) -> Mcp {
        Mcp::http_at(self.gateway.address, Some(TOKEN.to_owned()), era, "/mcp", capabilities)
    }

    /// Returns the arguments of the calls that reached the server, in order.
    pub(crate) fn called(&self) -> Vec<Value> {
        let lines = self.log.lines_with(&["\"method\":\"tools/call\""]);
        let calls = lines.iter().filter_map(|line| serde_json::from_str::<Value>(line).ok());
        calls.map(|call| call["params"]["arguments"].clone()).collect()
    }

    /// Answers an approval as the operator does, after `turns` turns of the runtime. The task
    /// returns whether the answer counted.
    fn answer_after(&self, turns: usize, id: &str, wish: &str) -> JoinHandle<bool> {
        let daemon = Arc::clone(self.gateway.inner());
        let (id, wish) = (id.to_owned(), OperatorAnswer::parse(wish).unwrap());
        stage().runtime.spawn(async move {
            take_turns(turns).await;
            daemon.service.approvals.operator_answers(&id, None, wish, "test").await.is_ok()
        })
    }

    /// Returns the audit log's records of that event, each as (result, item).
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

#[test]
fn a_modern_client_is_asked_and_what_its_person_says_holds() {
    let stage = ConsentGateway::new();
    let mut client = stage.client(ClientEra::Modern, forms());
    let arguments = json!({"text": "one"});
    let (question, state) = asked(&client.call("fx__echo", arguments.clone()));
    let message = question["message"].as_str().unwrap();
    for part in
        ["headend needs your approval", "\"local\"", "\"fx\"", "fx__echo", "text: \"one\"", "says it is \"it 1\""]
    {
        assert!(message.contains(part), "{part}: {message}");
    }
    let choices = json!([{"const": "once", "title": "Yes, once"},
        {"const": "session", "title": "Yes, for a day, for all clients of this caller without a session"},
        {"const": "deny", "title": "No"}]);
    let decision = json!({"type": "string", "title": "Allow this call?", "oneOf": choices});
    let schema = json!({"type": "object", "properties": {"decision": decision}, "required": ["decision"]});
    assert_eq!(question["requestedSchema"], schema, "{question}");
    assert_eq!(stage.called().len(), 0);

    let answer = go_on(&mut client, "fx__echo", &arguments, &state, &allow("once"));
    assert_eq!(answer.text(), "one", "{}", answer.raw);
    assert_eq!(stage.called(), [json!({"text": "one"})]);

    // A once-grant is used up: the same call needs another approval, and so does the same answer.
    let (_, again) = asked(&client.call("fx__echo", arguments.clone()));
    let replayed = go_on(&mut client, "fx__echo", &arguments, &state, &allow("once"));
    asked(&replayed);
    let denied = go_on(&mut client, "fx__echo", &arguments, &again, &allow("deny"));
    assert_eq!(reason(&denied), "denied", "{}", denied.raw);
    assert_eq!(stage.called().len(), 1);
}

/// Lets the time pass that a person takes at least to answer a form.
pub(crate) fn read_form() {
    pass(Duration::from_millis(400));
}

#[test]
fn only_a_choice_denies_and_a_client_that_declines_refuses_this_call_alone() {
    let stage = ConsentGateway::with("hold = \"0s\"", "");
    let mut client = stage.client(ClientEra::Modern, forms());
    let answered = |client: &mut Mcp, text: &str, response: &Value| {
        let arguments = json!({"text": text});
        let (_, state) = asked(&client.call("fx__echo", arguments.clone()));
        read_form();
        go_on(client, "fx__echo", &arguments, &state, response)
    };
    assert_eq!(reason(&answered(&mut client, "denied", &allow("deny"))), "denied");
    let again = client.call("fx__echo", json!({"text": "denied"}));
    assert_eq!(reason(&again), "denied", "nobody is asked the same again at once");
    for (action, text) in [("decline", "The client declined this call."), ("cancel", "without an answer")] {
        let answer = answered(&mut client, action, &json!({"action": action}));
        assert_eq!(reason(&answer), "denied", "{action}");
        assert!(answer.text().contains(text), "{action}: {}", answer.raw);
        asked(&client.call("fx__echo", json!({"text": action})));
    }
    for response in [json!({"action": "accept"}), allow("always")] {
        let (_, state) = asked(&answered(&mut client, "no choice", &response));
        let arguments = json!({"text": "no choice"});
        let answer = go_on(&mut client, "fx__echo", &arguments, &state, &allow("once"));
        assert_eq!(answer.text(), "no choice", "it decided nothing: {}", answer.raw);
    }
    assert_eq!(stage.called(), [json!({"text": "no choice"}), json!({"text": "no choice"})]);
}

#[test]
fn an_allowance_for_the_session_covers_other_arguments_but_no_other_tool() {
    let stage = ConsentGateway::new();
    for era in ClientEra::BOTH {
        if era != ClientEra::Modern {
            continue;
        }
        let mut client = stage.client(era, forms());
        let arguments = json!({"text": "first"});
        let (_, state) = asked(&client.call("fx__echo", arguments.clone()));
        assert_eq!(go_on(&mut client, "fx__echo", &arguments, &state, &allow("session")).text(), "first");
        assert_eq!(client.call("fx__echo", json!({"text": "second"})).text(), "second");
        asked(&client.call("fx__env", json!({})));
        let mut other = stage.second(era, forms());
        asked(&other.call("fx__echo", json!({"text": "third"})));
    }
    assert_eq!(stage.called().len(), 2);
}

#[test]
fn every_step_leaves_its_record() {
    let stage = ConsentGateway::new();
    let mut client = stage.client(ClientEra::Modern, forms());
    let arguments = json!({"text": "secret words"});
    let (_, state) = asked(&client.call("fx__echo", arguments.clone()));
    assert_eq!(go_on(&mut client, "fx__echo", &arguments, &state, &allow("once")).text(), "secret words");
    let other = json!({"text": "not this"});
    let (_, state) = asked(&client.call("fx__echo", other.clone()));
    assert_eq!(reason(&go_on(&mut client, "fx__echo", &other, &state, &allow("deny"))), "denied");
    let all = || (stage.audit("decision"), stage.audit("prompt"), stage.audit("answer"), stage.audit("outcome"));
    eventually("the records", || stage.audit("answer").len() >= 2 && !stage.audit("outcome").is_empty());
    let (decisions, prompts, answers, outcomes) = all();
    let results = |records: &[Value]| -> Vec<String> {
        records.iter().map(|record| record["result"].as_str().unwrap_or_default().to_owned()).collect()
    };
    assert_eq!(results(&decisions), ["ask", "allow", "ask"], "{decisions:#?}");
    assert_eq!(prompts.len(), 2, "{prompts:#?}");
    assert_eq!(results(&answers), ["granted", "denied"], "{answers:#?}");
    assert_eq!(results(&outcomes), ["ok"], "{outcomes:#?}");
    let allowed = &decisions[1];
    assert_eq!(allowed["evidence"], "L1", "{allowed}");
    assert!(allowed["grant"].is_string() && allowed["args"].is_string(), "{allowed}");
    assert_eq!(allowed["by"], "client", "{allowed}");
    let text = serde_json::to_string(&[decisions, prompts, answers, outcomes]).unwrap();
    assert!(!text.contains("secret words"), "arguments are digests: {text}");
}
