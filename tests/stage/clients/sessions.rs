//! Tests of sessions that a server behind Streamable HTTP has forgotten: another is opened without
//! a client's help, and no call is made twice.

use std::fs;
use std::path::PathBuf;
use std::time::Duration;

use serde_json::{Value, json};

use crate::stage::harness::{Gateway, GatewaySetup};
use crate::stage::mcp::{ClientEra, Mcp, kinds_of_input};
use crate::stage::process::{eventually, within};
use crate::stage::upstream::{Fake, InputLog, Listening};

const SOON: Duration = Duration::from_secs(20);

/// Statuses and bodies with which servers say that they do not know a session.
const LOST: [&str; 7] = [
    "404",
    "404 no such session",
    r#"404 {"jsonrpc":"2.0","error":{"code":-32001,"message":"Session not found"},"id":null}"#,
    r#"400 {"jsonrpc":"2.0","error":{"code":-32000,"message":"Bad Request: No valid session ID provided"},"id":null}"#,
    r#"400 {"jsonrpc":"2.0","id":"server-error","error":{"code":-32600,"message":"Bad Request: No valid session ID provided"}}"#,
    r#"400 {"jsonrpc":"2.0","error":{"code":-32001,"message":"unknown"}}"#,
    r#"400 {"jsonrpc":"2.0","error":{"code":-32602,"message":"The session has expired"},"id":null}"#,
];

/// Refusals by common SDKs and servers that prove nothing: the server is then asked whether it
/// knows the session.
const DOUBTFUL: [&str; 8] = [
    "400 Invalid session ID",
    r#"400 {"jsonrpc":"2.0","id":${ID},"error":{"code":-32600,"message":"Invalid session ID"}}"#,
    "401 Unauthorized: Session not found",
    "401! Unauthorized: Session not found",
    r#"403 {"jsonrpc":"2.0","id":null,"error":{"code":-32001,"message":"no"}}"#,
    "409 conflict",
    "410 gone",
    r#"422 {"detail":"unknown session"}"#,
];
/// Answers that mention the session and prove nothing: the method may have run.
const UNPROVEN: [&str; 4] = [
    r#"200 {"jsonrpc":"2.0","id":${ID},"error":{"code":-32001,"message":"Session not found"}}"#,
    r#"200 {"jsonrpc":"2.0","id":${ID},"error":{"code":-32603,"message":"unknown session"}}"#,
    "500 Session not found",
    "503 no such session",
];

/// A gateway in front of one legacy server over HTTP.
struct SessionGateway {
    gateway: Gateway,
    log: InputLog,
    fake: Fake,
    server: Listening,
    /// File with the numbers of sessions that the server has forgotten.
    forget: PathBuf,
}

impl SessionGateway {
    fn new(fake: Fake, keys: &str) -> Self {
        Self::of(GatewaySetup::new(), fake, keys)
    }

    fn of(setup: GatewaySetup, fake: Fake, keys: &str) -> Self {
        let log = InputLog::new(&setup.world.path("work"), "fx");
        let forget = setup.world.path("work/forget");
        let fake = fake.logging(&log).with("--forget", forget.to_str().unwrap());
        let server = fake.spawn();
        let gateway = setup.toml(&format!("[upstreams.fx]\nurl = \"{}\"\n{keys}", server.url)).start();
        gateway.wait_for_tools(&["fx__echo"]);
        Self { gateway, log, fake, server, forget }
    }

    /// Replaces the server by another process, which knows no session.
    fn restart(mut self, fake: impl FnOnce(Fake) -> Fake) -> Self {
        let address = self.server.address().to_owned();
        drop(self.server);
        self.server = fake(self.fake.clone()).at(&address).spawn();
        self
    }

    /// Connects a client that has a session of its own at the server.
    fn client(&self) -> Mcp {
        let capabilities = json!({"sampling": {}});
        Mcp::http_at(self.gateway.address, self.gateway.token(), ClientEra::LEGACY, "/mcp", capabilities)
    }

    /// Counts the sessions opened with these capabilities.
    fn opened(&self, capabilities: &Value) -> usize {
        let greetings = self.log.lines_with(&["\"method\":\"initialize\""]);
        let greetings = greetings.iter().map(|line| serde_json::from_str::<Value>(line).unwrap());
        greetings.filter(|greeting| kinds_of_input(&greeting["params"]["capabilities"]) == *capabilities).count()
    }

    /// Counts how often the call with that text was executed.
    fn executed(&self, text: &str) -> usize {
        self.log.lines_with(&["\"executed\"", &format!("\"{text}\"")]).len()
    }

    fn rejected(&self) -> usize {
        self.log.lines_with(&["\"rejected\""]).len()
    }
}

fn echo(client: &mut Mcp, text: &str) -> String {
    client.call("fx__echo", json!({"text": text})).text()
}

#[test]
fn calls_after_a_restart_of_the_server_open_one_session_and_are_made_once() {
    for lost in LOST.into_iter().chain(DOUBTFUL) {
        for instance in ["auto", "shared"] {
            calls_after_a_restart(lost, instance);
        }
    }
}

fn calls_after_a_restart(lost: &str, instance: &str) {
    let at = format!("{lost}, instance {instance}");
    let stage = SessionGateway::new(Fake::http("legacy").with("--lost", lost), &format!("instance = \"{instance}\""));
    let (mut legacy, mut modern) = (stage.client(), stage.gateway.modern());
    assert_eq!((echo(&mut legacy, "l0"), echo(&mut modern, "m0")), ("l0".into(), "m0".into()), "{at}");
    let capabilities = if instance == "shared" { json!({}) } else { json!({"sampling": {}}) };
    assert_eq!(stage.opened(&capabilities), 1, "{at}");
    let stage = stage.restart(|fake| fake);
    let calls = [1, 2, 3, 4, 5, 6].map(|n| {
        let text = format!("l{n}");
        let call = legacy.open("tools/call", json!({"name": "fx__echo", "arguments": {"text": text}}));
        (text, call)
    });
    for (text, mut call) in calls {
        let answer = call.response();
        assert_eq!(answer["result"]["content"][0]["text"], text, "{at}: {answer}");
    }
    assert_eq!(echo(&mut modern, "m1"), "m1", "{at}");
    for text in ["l1", "l2", "l3", "l4", "l5", "l6", "m1"] {
        assert_eq!(stage.executed(text), 1, "{at}: {text}");
    }
    assert_eq!(stage.opened(&capabilities), 2, "{at}: one more session for all");
    assert_eq!(echo(&mut legacy, "after"), "after", "{at}");
}

#[test]
fn a_call_whose_answer_proves_nothing_is_not_repeated_and_the_next_one_has_a_new_session() {
    for lost in UNPROVEN {
        for prompts in [false, true] {
            let stage = SessionGateway::new(Fake::http("legacy").with("--lost", lost), "");
            let (mut legacy, mut modern) = (stage.client(), stage.gateway.modern());
            assert_eq!((echo(&mut legacy, "l0"), echo(&mut modern, "m0")), ("l0".into(), "m0".into()), "{lost}");
            let stage = stage.restart(|fake| fake);
            if prompts {
                let first = legacy.request("prompts/get", json!({"name": "fx__p", "arguments": {"a": "x"}}));
                assert!(first.message.get("error").is_some(), "{lost}: {}", first.raw);
            } else {
                let first = legacy.call("fx__echo", json!({"text": "l1"}));
                assert!(first.is_error() || first.code().is_some(), "{lost}: {}", first.raw);
            }
            assert_eq!(echo(&mut legacy, "l2"), "l2", "{lost}: the next call");
            // The session that all modern clients share may be replaced before this, by reading the
            // lists.
            let first = modern.call("fx__echo", json!({"text": "m1"}));
            assert_eq!(echo(&mut modern, "m2"), "m2", "{lost}: the next call of a modern client {}", first.raw);
            assert_eq!((stage.executed("l1"), stage.executed("l2"), stage.executed("m2")), (0, 1, 1), "{lost}");
            assert!(stage.executed("m1") < 2, "{lost}");
        }
    }
}

#[test]
fn a_restarted_server_is_read_again_without_any_call() {
    for lost in LOST.into_iter().chain(DOUBTFUL).chain(UNPROVEN) {
        let stage = SessionGateway::new(Fake::http("legacy").with("--lost", lost), "");
        let mut client = stage.client();
        assert_eq!(echo(&mut client, "a"), "a", "{lost}");
        let stage = stage.restart(|fake| fake.with("--tools", "1"));
        stage.gateway.wait_for_tools_within(SOON, &["fx__extra_0000"]);
        let own = json!({"sampling": {}});
        assert_eq!(echo(&mut client, "b"), "b", "{lost}");
        assert_eq!(stage.executed("b"), 1, "{lost}");
        // After an error as answer to a list, the lists are read as each kind of client.
        let opened = stage.opened(&own);
        assert!(opened == 2 || UNPROVEN.contains(&lost), "{lost}: {opened}");
    }
}

#[test]
fn a_server_without_streams_is_read_again_after_a_call_has_found_it_restarted() {
    let fake = Fake::http("legacy").behaving("no-changes").with("--lost", LOST[3]);
    let stage = SessionGateway::new(fake, "");
    let mut client = stage.client();
    assert_eq!(echo(&mut client, "a"), "a");
    let stage = stage.restart(|fake| fake.with("--tools", "1"));
    assert_eq!(echo(&mut client, "b"), "b");
    stage.gateway.wait_for_tools_within(SOON, &["fx__extra_0000"]);
}

#[test]
fn a_restarted_server_that_offers_more_than_before_is_used_for_that() {
    let stage = SessionGateway::new(Fake::http("legacy"), "");
    let mut client = stage.client();
    assert_eq!(echo(&mut client, "a"), "a");
    let stage = stage.restart(|fake| fake.behaving("tasks"));
    assert_eq!(echo(&mut client, "b"), "b");
    assert_eq!(stage.executed("b"), 1);
    stage.gateway.wait_for_tools_within(SOON, &["fx__job"]);
    // The server accepts this call only as a task.
    within(SOON, "its tasks are used", || {
        let done = client.call("fx__job", json!({}));
        done.message.get("result").is_some() && !done.is_error() && stage.log.count("tasks/result") > 0
    });
}

#[test]
fn every_other_refusal_is_the_answer_and_ends_no_session() {
    let error = |status: u16, id: &str, code: i64, message: &str| {
        format!(r#"{status} {{"jsonrpc":"2.0","id":{id},"error":{{"code":{code},"message":"{message}"}}}}"#)
    };
    let rejects = [
        error(400, "${ID}", -32000, "no session here"),
        error(400, "${ID}", -32600, "no session here"),
        error(400, "null", -32602, "bad arguments"),
        error(400, "\"server-error\"", -32602, "bad arguments"),
        error(400, "null", -32603, "broken"),
        "400 no session here".to_owned(),
        error(403, "null", -32001, "no session here"),
        error(405, "null", -32000, "no session here"),
        error(409, "null", -32000, "no session here"),
        error(410, "null", -32001, "no session here"),
        error(422, "null", -32600, "no session here"),
        error(429, "null", -32000, "no session here"),
    ];
    for reject in &rejects {
        let stage = SessionGateway::new(Fake::http("legacy").with("--reject", reject), "");
        let mut client = stage.client();
        assert_eq!(echo(&mut client, "a"), "a", "{reject}");
        for n in 1..=2 {
            let answer = client.call("fx__denied", json!({}));
            assert!(answer.code().is_some() || answer.is_error(), "{reject}: {}", answer.raw);
            assert_eq!(stage.rejected(), n, "{reject}: once for each call");
            let is_an_error = reject.contains("bad arguments");
            assert!(!is_an_error || answer.raw.contains("bad arguments"), "{reject}: {}", answer.raw);
        }
        assert_eq!(echo(&mut client, "b"), "b", "{reject}");
        assert_eq!(stage.opened(&json!({"sampling": {}})), 1, "{reject}: the session lives");
        assert_eq!(stage.opened(&json!({})), 1, "{reject}: the main session too");
    }
}

#[test]
fn a_doubtful_refusal_in_a_session_that_lives_is_the_answer_after_one_question() {
    for reject in DOUBTFUL.into_iter().chain(UNPROVEN) {
        let stage = SessionGateway::new(Fake::http("legacy").with("--reject", reject), "");
        let mut client = stage.client();
        assert_eq!(echo(&mut client, "a"), "a", "{reject}");
        for n in 1..=2 {
            let answer = client.call("fx__denied", json!({}));
            assert!(answer.code().is_some() || answer.is_error(), "{reject}: {}", answer.raw);
            assert_eq!(stage.rejected(), n, "{reject}: once for each call");
        }
        assert_eq!(echo(&mut client, "b"), "b", "{reject}");
        let (own, pings) = (stage.opened(&json!({"sampling": {}})), stage.log.count("ping"));
        assert!(own == 1 && (1..=4).contains(&pings), "{reject}: {own} sessions, {pings} pings");
    }
}

#[test]
fn a_refusal_that_a_new_session_gets_as_well_is_the_answer() {
    for lost in LOST {
        let stage = SessionGateway::new(Fake::http("legacy").with("--reject", lost), "");
        let mut client = stage.client();
        assert_eq!(echo(&mut client, "a"), "a", "{lost}");
        let answer = client.call("fx__denied", json!({}));
        assert!(answer.code().is_some() || answer.is_error(), "{lost}: {}", answer.raw);
        assert_eq!(stage.rejected(), 2, "{lost}: once in each session");
        assert_eq!(stage.opened(&json!({"sampling": {}})), 2, "{lost}");
        assert_eq!(echo(&mut client, "b"), "b", "{lost}");
        assert_eq!(stage.opened(&json!({"sampling": {}})), 2, "{lost}");
    }
}

#[test]
fn a_modern_server_has_no_session_to_lose() {
    for lost in LOST {
        let stage = SessionGateway::new(Fake::http("modern").with("--reject", lost), "");
        let answer = stage.gateway.modern().call("fx__denied", json!({}));
        assert!(answer.code().is_some() || answer.is_error(), "{lost}: {}", answer.raw);
        assert_eq!((stage.rejected(), stage.log.count("initialize")), (1, 0), "{lost}");
    }
}

#[test]
fn after_the_main_session_the_others_are_looked_at_and_opened_anew_only_where_they_are_lost() {
    for lost in LOST {
        let stage = SessionGateway::new(Fake::http("legacy").with("--lost", lost), "");
        let own = json!({"sampling": {}});
        let mut client = stage.client();
        assert_eq!(echo(&mut client, "a"), "a", "{lost}");
        let pings = || stage.log.count("ping");
        assert_eq!(pings(), 0, "{lost}: there is no reason to look");
        // The main session is the first one; reading the changed list uses it.
        fs::write(&stage.forget, "1").unwrap();
        client.call("fx__mutate", json!({}));
        within(SOON, &format!("{lost}: the main session is opened anew"), || stage.opened(&json!({})) == 2);
        stage.gateway.wait_for_tools_within(SOON, &["fx__grown_0"]);
        for text in ["b", "c"] {
            assert_eq!(echo(&mut client, text), text, "{lost}");
            assert_eq!((pings(), stage.opened(&own)), (1, 1), "{lost}: it is looked at once and lives");
        }
        // All sessions open now, the client's among them.
        let all = stage.log.count("initialize");
        fs::write(&stage.forget, (1..=all).map(|n| n.to_string()).collect::<Vec<_>>().join(" ")).unwrap();
        let before = stage.opened(&json!({}));
        let other = json!({"elicitation": {}});
        let mut other = Mcp::http_at(stage.gateway.address, stage.gateway.token(), ClientEra::LEGACY, "/mcp", other);
        other.call("fx__mutate", json!({}));
        within(SOON, &format!("{lost}: the main session again"), || stage.opened(&json!({})) > before);
        assert_eq!(echo(&mut client, "d"), "d", "{lost}");
        assert_eq!((stage.executed("d"), stage.opened(&own)), (1, 2), "{lost}");
        eventually("its stream is open", || echo(&mut client, "e") == "e");
    }
}

/// Runs a call that has to wait for the server's answer to `method`, and denies its tool by a
/// reload meanwhile.
fn denied_while_it_waits(lost: &str, method: &str, era: ClientEra, prepare: impl FnOnce(&SessionGateway, &mut Mcp)) {
    let setup = GatewaySetup::new();
    let lists = setup.world.path("lists");
    let fake = Fake::http("legacy").with("--lost", lost).with("--reject", lost);
    let stage = SessionGateway::of(setup, fake.with("--lists", lists.to_str().unwrap()), "");
    let allowed = fs::read_to_string(&stage.gateway.config).unwrap();
    let capabilities = json!({"sampling": {}});
    let mut client = Mcp::http_at(stage.gateway.address, stage.gateway.token(), era, "/mcp", capabilities);
    assert_eq!(echo(&mut client, "a"), "a");
    fs::write(&lists, json!({method: {"after": 4000}}).to_string()).unwrap();
    let before = stage.log.count(method);
    prepare(&stage, &mut client);
    let mut call = client.open("tools/call", json!({"name": "fx__echo", "arguments": {"text": "late"}}));
    eventually("the server is asked first", || stage.log.count(method) > before);
    let deny = "[[policy.rules]]\nid = \"no\"\neffect = \"deny\"\ntools = [\"fx__echo\"]\n";
    assert!(stage.gateway.reload(&format!("{allowed}\n{deny}")).status.success());
    let answer = call.response();
    assert!(answer.to_string().contains("The policy does not allow this call any more."), "{lost}, {era:?}: {answer}");
    assert_eq!(stage.executed("late"), 0, "{lost}, {era:?}: it was denied before it was sent");
    assert!(stage.gateway.reload(&allowed).status.success());
    stage.gateway.wait_for_tools(&["fx__echo"]);
    assert_eq!(echo(&mut client, "b"), "b", "{lost}, {era:?}");
}

#[test]
fn a_call_that_is_denied_while_its_session_is_looked_at_is_not_sent() {
    for era in [ClientEra::LEGACY, ClientEra::Modern] {
        denied_while_it_waits(UNPROVEN[2], "ping", era, |_, client| {
            let answer = client.call("fx__denied", json!({}));
            assert!(answer.code().is_some() || answer.is_error(), "{}", answer.raw);
        });
    }
}

#[test]
fn a_call_that_is_denied_while_its_session_is_opened_anew_is_not_sent() {
    for era in [ClientEra::LEGACY, ClientEra::Modern] {
        denied_while_it_waits(LOST[0], "initialize", era, |stage, _| {
            let all = stage.log.count("initialize");
            fs::write(&stage.forget, (1..=all).map(|n| n.to_string()).collect::<Vec<_>>().join(" ")).unwrap();
        });
    }
}
