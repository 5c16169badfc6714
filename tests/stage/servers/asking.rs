//! Tests of legacy servers that ask their client in the middle of a call, for each stream on which
//! such a server can ask.

use serde_json::{Value, json};

use crate::engine::question::AWAY;
use crate::stage::harness::{Gateway, GatewaySetup};
use crate::stage::mcp::{ClientEra, Mcp, McpAnswer, OpenCall, kinds_of_input};
use crate::stage::pass;
use crate::stage::process::eventually;
use crate::stage::upstream::{Fake, InputLog, Listening};

mod attribution;
mod batches;
mod declined;
mod lanes;
mod pages;
mod parked;
mod shown;
mod talks;
mod turns;

/// Token of a second caller besides the local one.
const TOKEN: &str = "token-of-the-second-caller-0123456789";

/// The transport of the server, and the stream on which it asks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum AskingTransport {
    Stdio,
    /// Asks on the stream of the call's own POST.
    Post,
    /// Asks on the session's stream; calls are answered with plain JSON.
    Session,
    /// HTTP+SSE, which has one stream for everything.
    Sse,
}

impl AskingTransport {
    const ALL: [Self; 4] = [Self::Stdio, Self::Post, Self::Session, Self::Sse];
    const HTTP: [Self; 2] = [Self::Post, Self::Session];

    fn fake(self) -> Fake {
        let fake = match self {
            Self::Stdio => Fake::stdio("legacy"),
            Self::Post => Fake::http("legacy").with("--answers", "sse"),
            Self::Session => Fake::http("legacy"),
            Self::Sse => Fake::sse(),
        };
        fake.behaving("asks")
    }

    /// Returns arguments with which a call asks these questions, one list after the other.
    fn asks(self, tag: &str, rounds: Value) -> Value {
        let via = if self == Self::Session { "session" } else { "call" };
        json!({"tag": tag, "via": via, "rounds": rounds})
    }
}

/// A gateway in front of one server that asks, named `fx`.
#[derive(Debug)]
struct AskingGateway {
    gateway: Gateway,
    log: InputLog,
    _server: Option<Listening>,
}

impl AskingGateway {
    /// Starts a stage. `upstream` are lines of the upstream's section.
    fn new(way: AskingTransport, upstream: &str) -> Self {
        Self::with(GatewaySetup::new(), way.fake(), upstream)
    }

    /// Starts a stage with a second caller.
    fn of_two_callers(way: AskingTransport, upstream: &str) -> Self {
        let setup = GatewaySetup::new().second_caller(TOKEN);
        Self::with(setup, way.fake(), upstream)
    }

    fn with(setup: GatewaySetup, fake: Fake, upstream: &str) -> Self {
        let log = InputLog::new(&setup.world.path("work"), "fx");
        let fake = fake.logging(&log);
        let is_stdio = fake.command().contains("\"stdio\"");
        let (place, server) = if is_stdio {
            (format!("command = {}", fake.command()), None)
        } else {
            let server = fake.spawn();
            (format!("url = \"{}\"", server.url), Some(server))
        };
        let gateway = setup.toml(&format!("[upstreams.fx]\n{place}\nera = \"legacy\"\n{upstream}")).start();
        gateway.wait_for_tools(&["fx__inquire"]);
        Self { gateway, log, _server: server }
    }

    fn client(&self, era: ClientEra, capabilities: Value) -> Mcp {
        Mcp::http_at(self.gateway.address, self.gateway.token(), era, "/mcp", capabilities)
    }

    fn second(&self, era: ClientEra, capabilities: Value) -> Mcp {
        Mcp::http_at(self.gateway.address, Some(TOKEN.to_owned()), era, "/mcp", capabilities)
    }

    /// Returns the messages to the server that contain all of these texts.
    fn got(&self, needles: &[&str]) -> Vec<Value> {
        self.log.lines_with(needles).iter().filter_map(|line| serde_json::from_str(line).ok()).collect()
    }

    /// Returns the client capabilities that the server learnt, in the order of its sessions.
    fn declared(&self) -> Vec<Value> {
        let greetings = self.got(&["\"method\":\"initialize\""]);
        greetings.iter().map(|message| kinds_of_input(&message["params"]["capabilities"])).collect()
    }

    /// Returns the answers to the question with that id.
    fn answers(&self, id: &str) -> Vec<Value> {
        let needle = format!("\"id\":\"{id}\"");
        let is_answer = |message: &Value| message.get("result").is_some() || message.get("error").is_some();
        self.got(&[&needle]).into_iter().filter(is_answer).collect()
    }

    /// Returns how often the call with that tag reached the server.
    fn calls(&self, tag: &str) -> usize {
        self.log.lines_with(&["\"method\":\"tools/call\"", &format!("\"tag\":\"{tag}\"")]).len()
    }
}

fn everything() -> Value {
    json!({"elicitation": {}, "sampling": {}, "roots": {}})
}

fn form(message: &str) -> Value {
    let schema = json!({"type": "object", "properties": {"who": {"type": "string"}}});
    json!({"method": "elicitation/create", "params": {"message": message, "requestedSchema": schema}})
}

fn sample() -> Value {
    let message = json!({"role": "user", "content": {"type": "text", "text": "2 + 2"}});
    json!({"method": "sampling/createMessage", "params": {"messages": [message], "maxTokens": 9}})
}

fn roots() -> Value {
    json!({"method": "roots/list"})
}

fn accept(who: &str) -> Value {
    json!({"action": "accept", "content": {"who": who}})
}

fn sampled() -> Value {
    json!({"role": "assistant", "model": "m", "content": {"type": "text", "text": "4"}})
}

fn has_roots() -> Value {
    json!({"roots": [{"uri": "file:///work", "name": "work"}]})
}

/// Returns a well-behaved client's answer to a question.
fn usual(question: &Value) -> Value {
    match question["method"].as_str().unwrap() {
        "elicitation/create" => accept("me"),
        "sampling/createMessage" => sampled(),
        "roots/list" => has_roots(),
        other => panic!("asked for {other}"),
    }
}

/// Starts a call of the tool that asks.
fn inquire(client: &mut Mcp, arguments: &Value) -> OpenCall {
    client.open("tools/call", json!({"name": "fx__inquire", "arguments": arguments}))
}

/// Waits for the next question to a legacy client; panics if the call ends instead.
fn question(call: &mut OpenCall) -> Value {
    let message = call.next().expect("a question");
    assert!(message.get("method").is_some() && message.get("id").is_some(), "not a question: {message}");
    message
}

/// Answers a legacy client's questions until its call is answered. Returns the questions and the
/// response.
fn converse(client: &mut Mcp, call: &mut OpenCall, answer: impl Fn(&Value) -> Value) -> (Vec<Value>, Value) {
    let mut asked = Vec::new();
    loop {
        let message = call.next().expect("the call is answered");
        if message.get("method").is_none() {
            return (asked, message);
        }
        client.respond(&message["id"], answer(&message));
        asked.push(message);
    }
}

/// Returns the answers that the tool reports: `[{id, result, error}]`.
fn answered(response: &Value) -> Vec<Value> {
    let text = response["result"]["content"][0]["text"].as_str();
    serde_json::from_str(text.unwrap_or_default()).unwrap_or_else(|error| panic!("{error} in {response}"))
}

/// Returns the questions by key and the state, from an answer that asks a modern client.
fn asked(answer: &McpAnswer) -> (serde_json::Map<String, Value>, Value) {
    assert_eq!(answer.result()["resultType"], "input_required", "{}", answer.raw);
    let requests = answer.result()["inputRequests"].as_object().cloned().unwrap_or_default();
    (requests, answer.result()["requestState"].clone())
}

/// Returns the parameters with which a modern client continues a call of the tool that asks.
fn going_on(arguments: &Value, responses: Value, state: &Value) -> Value {
    json!({"name": "fx__inquire", "arguments": arguments, "inputResponses": responses, "requestState": state})
}

#[test]
fn a_legacy_client_gets_a_legacy_servers_questions_and_its_answers_go_back() {
    for way in AskingTransport::ALL {
        let stage = AskingGateway::new(way, "roots = \"client\"");
        let mut client = stage.client(ClientEra::LEGACY, everything());
        let mut call = inquire(&mut client, &way.asks("t", json!([[form("Which?"), sample()], [roots()]])));
        let (asked, response) = converse(&mut client, &mut call, usual);
        let methods: Vec<&str> = asked.iter().map(|message| message["method"].as_str().unwrap()).collect();
        assert_eq!(methods, ["elicitation/create", "sampling/createMessage", "roots/list"], "{way:?}");
        assert_eq!(asked[0]["params"]["message"], "[fx] Which? [fx]", "{way:?}: the server is named");
        assert!(asked.iter().all(|message| message["id"].is_string()), "{way:?}: ids of the gateway's own");
        let answers = answered(&response);
        for (n, want) in [accept("me"), sampled(), has_roots()].iter().enumerate() {
            let id = format!("t/{}", n + 1);
            assert_eq!((&answers[n]["id"], &answers[n]["result"]), (&json!(id), want), "{way:?}");
            assert_eq!(stage.answers(&id).len(), 1, "{way:?}: {id} is answered once");
        }
        assert_eq!(stage.calls("t"), 1, "{way:?}");
    }
}

#[test]
fn a_legacy_clients_errors_go_back_as_they_are() {
    for way in AskingTransport::ALL {
        let stage = AskingGateway::new(way, "");
        let mut client = stage.client(ClientEra::LEGACY, everything());
        let mut call = inquire(&mut client, &way.asks("t", json!([[sample()], [form("Sure?")]])));
        let first = question(&mut call);
        client.respond_with(&first["id"], "error", json!({"code": -1, "message": "User rejected", "data": {"n": 1}}));
        let second = question(&mut call);
        client.respond(&second["id"], json!({"action": "decline"}));
        let answers = answered(&call.response());
        assert_eq!(answers[0]["error"], json!({"code": -1, "message": "User rejected", "data": {"n": 1}}), "{way:?}");
        assert_eq!(answers[1]["result"], json!({"action": "decline"}), "{way:?}");
    }
}

#[test]
fn a_legacy_client_is_asked_to_open_pages_only_where_it_said_that_it_can() {
    let page = json!({"mode": "url", "message": "Go", "url": "https://x.example/?a=%2F", "elicitationId": "e1"});
    let page = json!({"method": "elicitation/create", "params": page});
    for way in AskingTransport::HTTP {
        let stage = AskingGateway::new(way, "");
        let mut client = stage.client(ClientEra::LEGACY, json!({"elicitation": {"url": {}}}));
        let mut call = inquire(&mut client, &way.asks("t", json!([[page], [form("Which?")]])));
        let (asked, response) = converse(&mut client, &mut call, |_| json!({"action": "accept"}));
        assert_eq!(asked.len(), 1, "{way:?}: no form was offered: {asked:?}");
        let params = &asked[0]["params"];
        assert_eq!(params["message"], "[fx] Go [fx]", "{way:?}");
        let same = ["mode", "url", "elicitationId"].map(|member| params[member].clone());
        assert_eq!(same, [json!("url"), json!("https://x.example/?a=%2F"), json!("e1")], "{way:?}");
        let answers = answered(&response);
        assert_eq!(answers[0]["result"], json!({"action": "accept"}), "{way:?}");
        assert_eq!(answers[1]["result"], json!({"action": "cancel"}), "{way:?}");
        assert!(stage.declared().contains(&json!({"elicitation": {"url": {}}})), "{way:?}: {:?}", stage.declared());
    }
    let stage = AskingGateway::new(AskingTransport::Stdio, "");
    let mut client = stage.client(ClientEra::LEGACY, everything());
    let mut call = inquire(&mut client, &AskingTransport::Stdio.asks("t", json!([[page]])));
    let (asked, response) = converse(&mut client, &mut call, usual);
    assert!(asked.is_empty(), "{asked:?}");
    assert_eq!(answered(&response)[0]["result"], json!({"action": "cancel"}));
}

#[test]
fn roots_are_shown_as_the_operator_says() {
    let arguments = |way: AskingTransport| way.asks("t", json!([[roots()]]));
    for way in AskingTransport::ALL {
        let hidden = AskingGateway::new(way, "");
        let mut client = hidden.client(ClientEra::LEGACY, everything());
        let (asked, response) = {
            let mut call = inquire(&mut client, &arguments(way));
            converse(&mut client, &mut call, usual)
        };
        assert!(asked.is_empty(), "{way:?}: {asked:?}");
        assert_eq!(answered(&response)[0]["error"]["code"], -32601, "{way:?}: {response}");
        assert!(hidden.declared().iter().all(|declared| declared.get("roots").is_none()), "{way:?}");

        let fixed = AskingGateway::new(way, "roots = [\"file:///srv/work\"]");
        for capabilities in [everything(), json!({})] {
            let mut client = fixed.client(ClientEra::LEGACY, capabilities);
            let mut call = inquire(&mut client, &arguments(way));
            let (asked, response) = converse(&mut client, &mut call, usual);
            assert!(asked.is_empty(), "{way:?}: {asked:?}");
            let roots = json!({"roots": [{"uri": "file:///srv/work"}]});
            assert_eq!(answered(&response)[0]["result"], roots, "{way:?}: {response}");
        }
    }
}

#[test]
fn a_question_that_the_server_takes_back_is_taken_back_at_the_client() {
    for way in AskingTransport::ALL {
        let stage = AskingGateway::new(way, "");
        let mut client = stage.client(ClientEra::LEGACY, everything());
        let mut arguments = way.asks("t", json!([[form("This?"), form("Or this?")]]));
        arguments["withdraw"] = json!(true);
        // The call runs until another call opens the gate, so that its answer cannot overtake the
        // withdrawal.
        arguments["open"] = json!("door");
        let mut call = inquire(&mut client, &arguments);
        let (first, second) = (question(&mut call), question(&mut call));
        client.respond(&first["id"], accept("me"));
        let withdrawal = call.next().unwrap();
        assert_eq!(withdrawal["method"], "notifications/cancelled", "{way:?}: {withdrawal}");
        assert_eq!(withdrawal["params"]["requestId"], second["id"], "{way:?}");
        client.respond(&second["id"], accept("late"));
        client.call("fx__meet", json!({"name": "door"}));
        assert_eq!(answered(&call.response()).len(), 1, "{way:?}");
        assert!(stage.answers("t/2").is_empty(), "{way:?}: nobody wanted an answer");
    }
}

#[test]
fn a_call_that_ends_with_questions_open_closes_them_on_both_sides() {
    for way in AskingTransport::ALL {
        let stage = AskingGateway::new(way, "");
        let mut client = stage.client(ClientEra::LEGACY, everything());
        let mut arguments = way.asks("t", json!([[form("Well?")]]));
        arguments["hasty"] = json!(true);
        let mut call = inquire(&mut client, &arguments);
        let mut messages = Vec::new();
        while let Some(message) = call.next() {
            messages.push(message);
        }
        // The answer may overtake a question that came on another stream.
        if let Some(question) = messages.iter().find(|message| message["method"] == "elicitation/create") {
            let withdrawal = &messages[messages.len() - 2];
            assert_eq!(withdrawal["params"]["requestId"], question["id"], "{way:?}: {messages:?}");
        } else {
            assert!(way == AskingTransport::Session, "{way:?}: {messages:?}");
        }
        eventually("the server has an answer", || stage.answers("t/1").len() == 1);
    }
}

#[test]
fn a_legacy_client_that_cancels_its_call_ends_the_questions_of_it() {
    for way in AskingTransport::ALL {
        let stage = AskingGateway::new(way, "");
        let mut client = stage.client(ClientEra::LEGACY, everything());
        let mut call = inquire(&mut client, &way.asks("t", json!([[form("Well?"), sample()]])));
        let (first, second) = (question(&mut call), question(&mut call));
        client.notify("notifications/cancelled", json!({"requestId": call.id}));
        eventually("the server has its answers and the cancellation", || {
            stage.answers("t/1").len() == 1
                && stage.answers("t/2").len() == 1
                && stage.log.count("notifications/cancelled") == 1
        });
        client.respond(&first["id"], accept("late"));
        client.respond(&second["id"], sampled());
        client.call("fx__echo", json!({"text": "after"}));
        assert_eq!(stage.answers("t/1")[0]["result"], json!({"action": "cancel"}), "{way:?}");
        assert_eq!(stage.answers("t/2")[0]["error"]["code"], -1, "{way:?}");
        assert_eq!(
            (stage.answers("t/1").len(), stage.answers("t/2").len()),
            (1, 1),
            "{way:?}: late answers are dropped"
        );
    }
}

#[test]
fn what_is_asked_after_a_legacy_client_has_gone_is_declined() {
    for way in AskingTransport::ALL {
        let stage = AskingGateway::new(way, "");
        // A client of a revision whose streams cannot be resumed.
        let mut client = stage.client(ClientEra::Legacy("2024-11-05"), everything());
        let mut call = inquire(&mut client, &way.asks("t", json!([[form("First?")], [form("Second?")]])));
        let first = question(&mut call);
        // The stream breaks, which is not a cancellation.
        drop(call);
        eventually("the gateway knows", || {
            stage.gateway.scrape().contains("headend_client_connections{transport=\"http\"} 1\n")
        });
        client.respond(&first["id"], accept("me"));
        eventually("both are answered", || stage.answers("t/2").len() == 1);
        assert_eq!(stage.answers("t/1")[0]["result"], accept("me"), "{way:?}");
        assert_eq!(stage.answers("t/2")[0]["result"], json!({"action": "cancel"}), "{way:?}");
        assert_eq!(stage.log.count("notifications/cancelled"), 0, "{way:?}");
    }
}

#[test]
fn a_question_before_a_client_that_went_away_is_closed_after_a_while() {
    // Streams of the first revision cannot be resumed, those of the second can.
    for (way, revision) in AskingTransport::ALL.into_iter().flat_map(|way| [(way, "2024-11-05"), (way, "2025-11-25")]) {
        let at = format!("{way:?} {revision}");
        let stage = AskingGateway::new(way, "");
        let mut client = stage.client(ClientEra::Legacy(revision), everything());
        let mut call = inquire(&mut client, &way.asks("t", json!([[form("Well?"), sample()]])));
        let (first, _) = (question(&mut call), question(&mut call));
        drop(call);
        pass(AWAY / 2);
        assert_eq!(stage.answers("t/1").len(), 0, "{at}: the client may still answer");
        pass(AWAY);
        assert_eq!((stage.answers("t/1").len(), stage.answers("t/2").len()), (1, 1), "{at}");
        assert_eq!(stage.answers("t/1")[0]["result"], json!({"action": "cancel"}), "{at}");
        client.respond(&first["id"], accept("late"));
        client.call("fx__echo", json!({"text": "after"}));
        assert_eq!(stage.answers("t/1").len(), 1, "{at}: a late answer is dropped");
        assert_eq!(stage.log.count("notifications/cancelled"), 0, "{at}: going away is no cancellation");
    }
}

#[test]
fn a_rule_keeps_a_server_from_asking_for_input() {
    let rule =
        "[[policy.rules]]\nid = \"no-forms\"\neffect = \"deny\"\nkinds = [\"elicitation\"]\nupstreams = [\"fx\"]";
    for way in [AskingTransport::Stdio, AskingTransport::Post] {
        let stage = AskingGateway::new(way, &format!("\n{rule}"));
        for era in ClientEra::BOTH {
            let mut client = stage.client(era, everything());
            let tag = format!("{way:?}-{era:?}");
            let answer = client.call("fx__inquire", way.asks(&tag, json!([[form("Who?")]])));
            assert_ne!(answer.result()["resultType"], "input_required", "{tag}: {}", answer.raw);
            let asked = answer.notices.iter().any(|notice| notice["method"] == "elicitation/create");
            assert!(!asked, "{tag}: {:?}", answer.notices);
        }
    }
}
