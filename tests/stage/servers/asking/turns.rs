//! Tests of questions of a process or session that several clients of one caller share: what
//! happens to them, and to calls meanwhile.

use std::io::ErrorKind;
use std::time::Duration;

use rustix::process::Signal;
use serde_json::{Map, Value, json};

use super::talks::{AskingToolCall, ClientWork, TURN, in_turn};
use super::{
    AskingGateway, AskingTransport, accept, answered, asked, converse, everything, form, going_on, inquire, question,
};
use crate::stage::mcp::{ClientEra, Mcp, OpenCall};
use crate::stage::process::eventually;
use crate::stage::{now, pass};

/// Transports on which nothing says which call a question belongs to.
const SHARED: [AskingTransport; 3] = [AskingTransport::Stdio, AskingTransport::Session, AskingTransport::Sse];

/// Starts a stage whose clients share a process or a session.
fn shared(way: AskingTransport, upstream: &str) -> AskingGateway {
    let instance = if way == AskingTransport::Stdio { "" } else { "instance = \"per-caller\"\n" };
    AskingGateway::new(way, &format!("{instance}{upstream}"))
}

fn text(response: &Value) -> &Value {
    &response["result"]["content"][0]["text"]
}

fn open(client: &mut Mcp, tool: &str, arguments: &Value) -> OpenCall {
    client.open("tools/call", json!({"name": format!("fx__{tool}"), "arguments": arguments}))
}

/// Makes a call that asks, and answers with this name. Returns the answers that the server reports.
fn converses(client: &mut Mcp, era: ClientEra, arguments: &Value, name: &str) -> Vec<Value> {
    AskingToolCall::begin(client, era, arguments, accept(name)).end(client)
}

#[test]
fn a_question_waits_for_the_other_calls_and_new_calls_wait_for_it() {
    for way in SHARED {
        for era in ClientEra::BOTH {
            let stage = shared(way, "");
            let [mut asker, mut other, mut third] =
                [era, ClientEra::LEGACY, era].map(|era| stage.client(era, everything()));
            let mut busy = open(&mut other, "linger", &json!({"ms": 2500, "tag": "busy"}));
            eventually("it runs", || stage.calls("busy") == 1);
            let arguments = way.asks("t", json!([[form("Which?")]]));
            let label = format!("{way:?} {era:?}");
            let asks = AskingToolCall::begin(&mut asker, era, &arguments, accept("me"));
            eventually("it runs", || stage.calls("t") == 1);
            pass(Duration::from_millis(150));
            let mut new = open(&mut third, "echo", &json!({"text": "new", "tag": "new"}));
            pass(Duration::from_millis(150));
            assert_eq!(stage.calls("new"), 0, "{label}: a new call waits");
            assert!(stage.answers("t/1").is_empty(), "{label}: two calls run");
            let answers = asks.end(&mut asker);
            assert_eq!(answers[0]["result"], accept("me"), "{label}: {answers:?}");
            assert_eq!(text(&new.response()), "new", "{label}");
            assert!(busy.response().get("result").is_some(), "{label}");
            let status = stage.gateway.run(&["status", "--json"]);
            let status: Value = serde_json::from_slice(&status.stdout).unwrap();
            assert_eq!(status["upstreams"][0]["one-at-a-time"], json!(["inquire"]), "{label}: {status}");
        }
    }
}

#[test]
fn a_call_that_waits_for_a_question_goes_on_where_the_process_that_asked_dies() {
    let stage = shared(AskingTransport::Stdio, "attribution-timeout = \"60s\"\nqueue-timeout = \"60s\"");
    let [mut asker, mut other, mut third] = [(); 3].map(|()| stage.client(ClientEra::LEGACY, everything()));
    let mut busy = open(&mut other, "linger", &json!({"ms": 60_000, "tag": "busy"}));
    eventually("it runs", || stage.calls("busy") == 1);
    let mut call = inquire(&mut asker, &AskingTransport::Stdio.asks("t", json!([[form("Which?")]])));
    eventually("it runs", || stage.calls("t") == 1);
    pass(Duration::from_millis(150));
    let mut new = open(&mut third, "echo", &json!({"text": "new", "tag": "new"}));
    pass(Duration::from_millis(150));
    assert_eq!(stage.calls("new"), 0, "it waits");
    assert_eq!(stage.gateway.kill("fx", Signal::KILL), 1);
    assert_eq!(text(&new.response()), "new");
    assert_eq!(stage.calls("new"), 1);
    for ended in [busy.response(), call.response()] {
        assert_eq!(ended["result"]["isError"], true, "{ended}");
    }
}

#[test]
fn a_question_that_is_not_clear_in_time_is_refused_and_calls_go_on() {
    for way in SHARED {
        let stage = shared(way, "attribution-timeout = \"300ms\"");
        let [mut asker, mut other, mut third] = [(); 3].map(|()| stage.client(ClientEra::LEGACY, everything()));
        let mut busy = open(&mut other, "linger", &json!({"ms": 3000, "tag": "busy"}));
        eventually("it runs", || stage.calls("busy") == 1);
        let mut call = inquire(&mut asker, &way.asks("t", json!([[form("Which?")]])));
        eventually("it runs", || stage.calls("t") == 1);
        pass(Duration::from_millis(100));
        assert_eq!(third.call("fx__echo", json!({"text": "new"})).text(), "new", "{way:?}");
        let (asked, response) = converse(&mut asker, &mut call, |_| accept("me"));
        assert!(asked.is_empty(), "{way:?}: {asked:?}");
        assert_eq!(answered(&response)[0]["error"]["code"], -32602, "{way:?}: {response}");
        assert!(busy.response().get("result").is_some(), "{way:?}");
    }
}

/// Returns a client's calls as work: of other tools, and of the tool that asks, one after the
/// other.
fn rounds(way: AskingTransport, n: usize, mut client: Mcp) -> ClientWork<'static> {
    const ROUNDS: usize = 6;
    let (era, name) = (ClientEra::BOTH[n % 2], format!("c{n}"));
    let steps = (0..ROUNDS).flat_map(|round| [(round, "linger"), (round, "inquire"), (round, "echo")]);
    let mut steps = steps.filter(move |(_, tool)| *tool != "linger" || n % 3 == 2).peekable();
    let (mut plain, mut talk) = (None::<OpenCall>, None::<AskingToolCall>);
    Box::new(move || {
        let Some(&(round, tool)) = steps.peek() else { return true };
        let tag = format!("{name}-{round}");
        match (&mut plain, &mut talk) {
            (None, None) if tool == "inquire" => {
                let arguments = way.asks(&tag, json!([[form(&tag)], [form(&tag)]]));
                talk = Some(AskingToolCall::begin(&mut client, era, &arguments, accept(&name)));
            }
            (None, None) => plain = Some(open(&mut client, tool, &json!({"ms": 20 * n, "text": tag}))),
            (Some(call), _) => match call.next_within(TURN) {
                Ok(message) => {
                    assert!(message.is_some_and(|message| message["result"].is_object()), "{way:?} {tag}");
                    (plain, _) = (None, steps.next());
                }
                Err(error) => assert_eq!(error.kind(), ErrorKind::TimedOut, "{error}"),
            },
            (None, Some(call)) => {
                if call.step(&mut client) {
                    let answers = call.answers();
                    assert_eq!(answers.len(), 2, "{way:?} {tag}");
                    let mine = answers.iter().all(|answer| answer["result"] == accept(&name));
                    // At first the gateway does not know which item asks.
                    assert!(mine || round == 0, "{way:?} {tag}: {answers:?}");
                    (talk, _) = (None, steps.next());
                }
            }
        }
        false
    })
}

#[test]
fn after_an_item_has_asked_once_its_questions_reach_their_clients_whatever_else_runs() {
    const CLIENTS: usize = 6;
    for way in SHARED {
        // The default is too short for a turn that a slow disk holds up.
        let stage = shared(way, "attribution-timeout = \"60s\"");
        in_turn((0..CLIENTS).map(|n| rounds(way, n, stage.client(ClientEra::BOTH[n % 2], everything()))).collect());
        for answer in stage.got(&["\"action\":\"accept\""]).iter().filter(|message| message.get("method").is_none()) {
            let (id, who) = (answer["id"].as_str().unwrap(), answer["result"]["content"]["who"].as_str().unwrap());
            assert!(id.starts_with(&format!("{who}-")), "{way:?}: {who} answered {id}");
        }
    }
}

#[test]
fn an_item_that_asks_after_its_call_has_ended_is_seen_and_gets_nothing_through() {
    for way in SHARED {
        let stage = shared(way, "");
        let [mut one, mut two] = [(); 2].map(|()| stage.client(ClientEra::LEGACY, everything()));
        let via = way.asks("x", json!([]))["via"].clone();
        let late = json!({"ms": 100, "id": "late", "via": via, "question": form("Late?")});
        one.call("fx__afterthought", late);
        eventually("it is refused", || stage.answers("late").len() == 1);
        let answers = stage.answers("late");
        assert_eq!(answers[0]["error"]["code"], -32601, "{way:?}: {answers:?}");
        eventually("the operator is told", || stage.gateway.story().contains("its questions are refused from now on"));
        // This question could be another late one.
        let answers = converses(&mut two, ClientEra::LEGACY, &way.asks("t", json!([[form("Mine?")]])), "two");
        assert_eq!(answers[0]["error"]["code"], -32602, "{way:?}: {answers:?}");
    }
}

#[test]
fn a_call_whose_client_went_away_with_a_question_open_is_in_nobodys_way() {
    for way in SHARED {
        let stage = shared(way, "attribution-timeout = \"300ms\"");
        let [mut gone, mut next] = [(); 2].map(|()| stage.client(ClientEra::Modern, everything()));
        let arguments = way.asks("gone", json!([[form("One?")], [form("Two?")]]));
        let (requests, state) = asked(&gone.call("fx__inquire", arguments.clone()));
        let responses: Map<_, _> = requests.keys().map(|key| (key.clone(), accept("gone"))).collect();
        let goes_on = gone.open("tools/call", going_on(&arguments, responses.into(), &state));
        eventually("the server goes on, and asks again", || stage.answers("gone/1").len() == 1);
        drop(goes_on);
        pass(Duration::from_millis(200));
        let answers = converses(&mut next, ClientEra::Modern, &way.asks("next", json!([[form("Mine?")]])), "next");
        assert_eq!(answers[0]["result"], accept("next"), "{way:?}: {answers:?}");
        assert!(stage.answers("gone/2").is_empty(), "{way:?}: it waits for its client");
    }
}

#[test]
fn a_call_that_goes_on_with_its_answer_does_not_wait_for_the_person_of_another_call() {
    let stage = shared(AskingTransport::Stdio, "attribution-timeout = \"300ms\"");
    let mut parked = stage.client(ClientEra::Modern, everything());
    let mut slow = stage.client(ClientEra::LEGACY, everything());
    let arguments = AskingTransport::Stdio.asks("parked", json!([[form("Which?")]]));
    let (requests, state) = asked(&parked.call("fx__inquire", arguments.clone()));
    let mut call = inquire(&mut slow, &AskingTransport::Stdio.asks("slow", json!([[form("Well?")]])));
    let open_question = question(&mut call);
    let begun = now();
    let responses: Map<_, _> = requests.keys().map(|key| (key.clone(), accept("me"))).collect();
    let answer = parked.request("tools/call", going_on(&arguments, responses.into(), &state));
    assert_eq!(answered(&answer.message)[0]["result"], accept("me"), "{}", answer.raw);
    assert!((now() - begun) < Duration::from_secs(4), "{:?}", (now() - begun));
    slow.respond(&open_question["id"], accept("slow"));
    assert_eq!(answered(&call.response())[0]["result"], accept("slow"));
}
