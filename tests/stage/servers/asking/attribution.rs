//! Tests of the attribution of questions: several clients in front of one server that asks.

use std::cell::Cell;
use std::time::Duration;

use serde_json::{Value, json};

use super::talks::{AskingToolCall, ClientWork, in_turn};
use super::{AskingGateway, AskingTransport, accept, answered, converse, everything, form, inquire};
use crate::stage::mcp::{ClientEra, Mcp};
use crate::stage::pass;
use crate::stage::process::eventually;

#[test]
fn a_process_that_two_callers_share_may_ask_nothing() {
    let stage = AskingGateway::of_two_callers(AskingTransport::Stdio, "roots = \"client\"");
    assert_eq!(stage.declared(), [json!({})]);
    for era in ClientEra::BOTH {
        let mut client = stage.client(era, everything());
        let answer =
            client.call("fx__inquire", AskingTransport::Stdio.asks(&format!("{era:?}"), json!([[form("Which?")]])));
        assert_eq!(answered(&answer.message)[0]["error"]["code"], -32601, "{era:?}: {}", answer.raw);
        assert!(answer.notices.is_empty(), "{era:?}: {:?}", answer.notices);
    }
}

#[test]
fn a_question_of_an_ambiguous_moment_reaches_nobody_and_from_then_on_calls_take_turns() {
    let stage = AskingGateway::new(AskingTransport::Stdio, "");
    let mut clients = [stage.client(ClientEra::LEGACY, everything()), stage.client(ClientEra::LEGACY, everything())];
    meet(&mut clients);
    let asks = |n: usize| {
        AskingTransport::Stdio.asks(&format!("c{n}"), json!([[form(&format!("c{n}"))], [form(&format!("c{n}"))]]))
    };
    let begin =
        |n: usize, client: &mut Mcp| AskingToolCall::begin(client, ClientEra::LEGACY, &asks(n), accept(&n.to_string()));
    let mut calls: Vec<_> = clients.iter_mut().enumerate().map(|(n, client)| begin(n, client)).collect();
    let work =
        calls.iter_mut().zip(&mut clients).map(|(call, client)| Box::new(|| call.step(client)) as ClientWork<'_>);
    in_turn(work.collect());
    for (n, call) in calls.iter().enumerate() {
        let (asked, answers) = (&call.asked, call.answers());
        assert!(asked.iter().all(|params| params["message"] == format!("[fx] c{n} [fx]")), "{asked:?}");
        assert_eq!(asked.len(), 2, "{n}: {answers:?}");
        assert!(answers.iter().all(|answer| answer["result"] == accept(&n.to_string())));
    }
}

/// Makes two calls that ask while both are in progress.
fn meet(clients: &mut [Mcp; 2]) {
    let meeting = |tag: &str| {
        let mut arguments = AskingTransport::Stdio.asks(tag, json!([[form("Whose?")]]));
        arguments["meet"] = json!("both");
        arguments
    };
    let [first, second] = clients;
    let mut calls = [inquire(first, &meeting("a")), inquire(second, &meeting("b"))];
    // The second call to arrive makes both ask; the call that asks last may be alone by then.
    let mut refused = 0;
    for (client, call) in clients.iter_mut().zip(&mut calls) {
        let (asked, response) = converse(client, call, |_| json!({"action": "decline"}));
        let answers = answered(&response);
        refused += usize::from(answers[0]["error"]["code"] == -32602);
        assert_eq!(asked.is_empty(), answers[0]["error"].is_object(), "{response}");
    }
    assert!(refused >= 1, "two calls were in progress");
}

#[test]
fn a_question_about_a_call_that_was_cancelled_meanwhile_reaches_no_other_client_of_the_session() {
    let fake = AskingTransport::Session.fake().behaving("late-cancel=300");
    let stage = AskingGateway::with(crate::stage::harness::GatewaySetup::new(), fake, "instance = \"per-caller\"");
    let [mut one, mut two] = [(); 2].map(|()| stage.client(ClientEra::LEGACY, everything()));
    let waits = |tag: &str, door: &str| {
        let mut arguments = AskingTransport::Session.asks(tag, json!([[form("Mine?")]]));
        arguments["meet"] = json!(door);
        arguments
    };
    let cancelled = inquire(&mut one, &waits("one", "never"));
    let mut call = inquire(&mut two, &waits("two", "door"));
    eventually("both run in one session", || stage.calls("one") + stage.calls("two") == 2);
    assert_eq!(stage.declared().iter().filter(|declared| declared["elicitation"].is_object()).count(), 2);
    one.notify("notifications/cancelled", json!({"requestId": cancelled.id}));
    eventually("the stray question is refused", || stage.answers("stray").len() == 1);
    assert_eq!(stage.answers("stray")[0]["error"]["code"], -32602);
    eventually("the server has answered a ping since", || stage.log.count("ping") == 1);
    pass(Duration::from_millis(300));
    // The attribution is certain again, and the call asks on the session's stream like any other.
    stage.client(ClientEra::LEGACY, json!({})).call("fx__inquire", json!({"meet": "door"}));
    let (asked, response) = converse(&mut two, &mut call, |_| accept("two"));
    assert_eq!(asked.len(), 1, "its own question alone: {asked:?}");
    assert_eq!(answered(&response)[0]["result"], accept("two"), "{response}");
}

/// A client that gives its name in every answer.
struct NamingClient {
    name: &'static str,
    era: ClientEra,
    mcp: Mcp,
}

impl NamingClient {
    fn call(&mut self, way: AskingTransport, n: u64, rounds: u64) -> AskingToolCall {
        let tag = format!("{}-{n}", self.name);
        let questions: Vec<Value> = (0..rounds).map(|_| json!([form(&tag)])).collect();
        AskingToolCall::begin(&mut self.mcp, self.era, &way.asks(&tag, json!(questions)), accept(self.name))
    }

    /// Returns work that makes 30 calls, one after the other, and counts this client's answered
    /// questions and all of its questions.
    fn work(mut self, way: AskingTransport, seed: u64, count: &Cell<(usize, usize)>) -> ClientWork<'_> {
        const CALLS: u64 = 30;
        let (mut random, mut n) = (seed + 1, 0);
        let mut call: Option<(u64, AskingToolCall)> = None;
        Box::new(move || {
            let Some((rounds, talk)) = &mut call else {
                if n == CALLS {
                    return true;
                }
                random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
                let rounds = (random >> 33) % 3;
                call = Some((rounds, self.call(way, n, rounds)));
                return false;
            };
            if talk.step(&mut self.mcp) {
                let (mine, answers) = (format!("[fx] {}-{n} [fx]", self.name), talk.answers());
                assert!(talk.asked.iter().all(|params| params["message"] == mine), "{mine}: {:?}", talk.asked);
                assert_eq!(answers.len() as u64, *rounds, "{mine}");
                let (of, to) = count.get();
                let own = answers.iter().filter(|answer| answer["result"] == accept(self.name)).count();
                count.set((of + own, to + answers.len()));
                (call, n) = (None, n + 1);
            }
            false
        })
    }
}

/// Makes some hundred calls by several clients at once, and asserts that every answer to the server
/// is of the client whose call asked. Returns the numbers of answered and of all questions.
fn crowd(way: AskingTransport, stage: &AskingGateway, clients: Vec<NamingClient>) -> (usize, usize) {
    let count = Cell::new((0, 0));
    in_turn(clients.into_iter().zip(0..).map(|(who, seed)| who.work(way, seed, &count)).collect());
    let (answered, asked) = count.get();
    let mut checked = 0;
    let answers = stage.got(&["\"action\":\"accept\""]).into_iter().filter(|message| message.get("method").is_none());
    for message in answers {
        let (id, who) = (message["id"].as_str().unwrap(), message["result"]["content"]["who"].as_str().unwrap());
        assert!(id.starts_with(&format!("{who}-")), "{way:?}: {who} answered {id}");
        checked += 1;
    }
    assert_eq!(checked, answered, "{way:?}");
    (answered, asked)
}

#[test]
fn every_answer_is_of_the_client_whose_call_asked_where_clients_have_sessions_of_their_own() {
    for way in [AskingTransport::Post, AskingTransport::Session, AskingTransport::Sse] {
        let stage = AskingGateway::of_two_callers(way, "");
        let clients = vec![
            NamingClient { name: "ann", era: ClientEra::LEGACY, mcp: stage.client(ClientEra::LEGACY, everything()) },
            NamingClient { name: "bob", era: ClientEra::LEGACY, mcp: stage.client(ClientEra::LEGACY, everything()) },
            NamingClient { name: "cid", era: ClientEra::Modern, mcp: stage.client(ClientEra::Modern, everything()) },
            NamingClient { name: "dan", era: ClientEra::Modern, mcp: stage.second(ClientEra::Modern, everything()) },
        ];
        let (answered, asked) = crowd(way, &stage, clients);
        assert_eq!(answered, asked, "{way:?}: no doubt, so no refusal");
    }
}

#[test]
fn every_answer_is_of_the_client_whose_call_asked_where_clients_share_a_process() {
    let stage = AskingGateway::new(AskingTransport::Stdio, "");
    let clients = vec![
        NamingClient { name: "ann", era: ClientEra::LEGACY, mcp: stage.client(ClientEra::LEGACY, everything()) },
        NamingClient { name: "bob", era: ClientEra::LEGACY, mcp: stage.client(ClientEra::LEGACY, everything()) },
        NamingClient { name: "cid", era: ClientEra::Modern, mcp: stage.client(ClientEra::Modern, everything()) },
        NamingClient { name: "dan", era: ClientEra::Modern, mcp: stage.client(ClientEra::Modern, everything()) },
    ];
    meet(&mut [stage.client(ClientEra::LEGACY, everything()), stage.client(ClientEra::LEGACY, everything())]);
    let (answered, asked) = crowd(AskingTransport::Stdio, &stage, clients);
    assert_eq!(answered, asked, "calls take turns after the first doubt");
}
