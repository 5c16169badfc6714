//! Two people of one issuer at work at the same time, with equal ids: no session, state, cursor,
//! approval, grant, limit or record of one is ever the other's.

use std::collections::BTreeMap;
use std::fs;
use std::time::Duration;

use fastrand::Rng;
use serde_json::{Value, json};

use super::IssuerStage;
use crate::policy::AGAIN_RULE;
use crate::stage::harness::GatewaySetup;
use crate::stage::mcp::{ClientEra, Mcp, OpenCall};
use crate::stage::steps::consent::{allow, forms};
use crate::stage::upstream::{Fake, InputLog};
use crate::stage::{pass, stage};

/// The variable that sets the number of calls in each era.
const CALLS: &str = "HEADEND_TEST_CALLS";
const USUAL_CALLS: usize = 250;
/// Calls that the limit leaves each person.
const BURST: usize = 20;
/// Tools of the server, more than one page of a list.
const TOOLS: usize = 1010;
const NAMES: [&str; 2] = ["alice", "bob"];
/// Lifetime of the tokens, longer than any test.
const LIFE: u64 = 30 * 24 * 3600;

/// A person with one client.
struct Person {
    name: &'static str,
    era: ClientEra,
    client: Mcp,
    /// The number of the latest token.
    token: u32,
    /// Calls that reached the server, by tool.
    made: BTreeMap<String, usize>,
    /// Answers to approvals, by the word of the audit log.
    answers: BTreeMap<&'static str, usize>,
}

/// A question to a person in the middle of a call.
struct PersonQuestion {
    id: Value,
    tool: String,
    arguments: Value,
    open: OpenQuestion,
}

enum OpenQuestion {
    /// The key of the question, and the state to continue with.
    Modern(String, Value),
    /// The id of the question, and the stream of the call.
    Legacy(Value, OpenCall),
}

impl Person {
    fn begin(&self, id: &Value, tool: &str, arguments: &Value) -> OpenCall {
        self.client.open_as(id, "tools/call", json!({"name": tool, "arguments": arguments}))
    }

    fn count(&mut self, tool: &str) {
        *self.made.entry(tool.to_owned()).or_default() += 1;
    }

    /// Calls a tool, and reads the question that comes first.
    fn ask(&mut self, id: &Value, tool: &str, arguments: &Value) -> PersonQuestion {
        let mut call = self.begin(id, tool, arguments);
        let open = if self.era == ClientEra::Modern {
            let message = call.response();
            let (key, state) = question_of(&message);
            OpenQuestion::Modern(key, state)
        } else {
            let question = call.next().unwrap();
            assert_eq!(question["method"], "elicitation/create", "{}: {question}", self.name);
            OpenQuestion::Legacy(question["id"].clone(), call)
        };
        PersonQuestion { id: id.clone(), tool: tool.to_owned(), arguments: arguments.clone(), open }
    }

    /// Answers the question of a call, and returns the response to the call.
    fn answer(&mut self, question: PersonQuestion, answer: &Value) -> Value {
        match question.open {
            OpenQuestion::Modern(ref key, ref state) => {
                let params = going_on(&question, key, state, answer);
                self.client.request_as(&question.id, "tools/call", params).message
            }
            OpenQuestion::Legacy(id, mut call) => {
                self.client.respond(&id, answer.clone());
                call.response()
            }
        }
    }

    /// Answers an approval.
    fn decide(&mut self, question: PersonQuestion, how: &'static str) -> Value {
        *self.answers.entry(if how == "deny" { "denied" } else { "granted" }).or_default() += 1;
        if how != "deny" {
            self.count(&question.tool);
        }
        self.answer(question, &allow(how))
    }
}

/// Returns the key of the only question in a modern answer, and the state.
fn question_of(message: &Value) -> (String, Value) {
    let result = &message["result"];
    assert_eq!(result["resultType"], "input_required", "{message}");
    let requests = result["inputRequests"].as_object().unwrap();
    assert_eq!(requests.len(), 1, "{message}");
    (requests.keys().next().unwrap().clone(), result["requestState"].clone())
}

fn going_on(question: &PersonQuestion, key: &str, state: &Value, answer: &Value) -> Value {
    json!({"name": question.tool, "arguments": question.arguments, "requestState": state,
        "inputResponses": {key: answer}})
}

fn text(message: &Value) -> &str {
    assert_ne!(message["result"]["isError"], true, "{message}");
    message["result"]["content"][0]["text"].as_str().unwrap_or_else(|| panic!("{message}"))
}

fn reason(message: &Value) -> &str {
    message["result"]["_meta"]["headend/refusal"]["reason"].as_str().unwrap_or_else(|| panic!("{message}"))
}

/// Two people at work.
struct PeopleAtWork {
    issuer: IssuerStage,
    log: InputLog,
    people: [Person; 2],
    rng: Rng,
    /// Calls so far; also the id of the next request of both.
    calls: usize,
    grants: usize,
    cancelled: usize,
    limited: [usize; 2],
}

impl PeopleAtWork {
    fn new(era: ClientEra) -> Self {
        let setup = GatewaySetup::new();
        let log = InputLog::new(&setup.world.path("work"), "fx");
        let fake = Fake::http("legacy").with("--answers", "sse").with("--tools", TOOLS.to_string()).behaving("asks");
        let server = fake.logging(&log).spawn();
        let setup = setup
            .server("limits.caller-rate = \"1000000/s\"\nlimits.caller-burst = 1000000")
            .policy("default = \"allow\"\n[policy.consent]\nper-minute = 100\nmax-open = 100")
            .toml("[audit]\ncapture-arguments = \"full\"")
            .toml("[[policy.rules]]\nid = \"ask\"\neffect = \"ask\"\ntools = [\"fx__ask\", \"fx__extra_*\"]")
            .toml(&format!(
                "[[policy.limits]]\nid = \"few\"\ntools = [\"fx__progress\"]\nkey = [\"caller\"]\nrate = \"1/h\"\nburst = {BURST}"
            ))
            .url("fx", &server.url);
        let issuer = IssuerStage { server: Some(server), ..IssuerStage::with(setup) };
        let people = NAMES.map(|name| Person {
            name,
            era,
            client: Mcp::http_at(
                issuer.gateway.address,
                Some(issuer.token(name, "/mcp", LIFE, 0)),
                era,
                "/mcp",
                forms(),
            ),
            token: 0,
            made: BTreeMap::new(),
            answers: BTreeMap::new(),
        });
        let rng = Rng::with_seed(stage().seed);
        Self { issuer, log, people, rng, calls: 0, grants: 0, cancelled: 0, limited: [0; 2] }
    }

    /// Returns the id of the next request of both people.
    fn id(&mut self) -> Value {
        self.calls += 2;
        json!(self.calls)
    }

    /// Lets a random one of the two be the first.
    fn shuffle(&mut self) {
        if self.rng.bool() {
            self.people.swap(0, 1);
            self.limited.swap(0, 1);
        }
    }

    fn step(&mut self) {
        self.shuffle();
        match self.rng.u8(..10) {
            0..3 => self.echo(),
            3 => self.cancel(),
            4 => self.approve(),
            5 => self.grant(),
            6 => self.limit(),
            7 => self.park(),
            8 => self.intrude(),
            _ => self.renew(),
        }
    }

    /// Both call at once, each with its own text.
    fn echo(&mut self) {
        let (id, n) = (self.id(), self.calls);
        let arguments = |one: &Person| json!({"text": format!("{} {n}", one.name)});
        let calls = self.people.each_ref().map(|one| one.begin(&id, "fx__echo", &arguments(one)));
        for (one, mut call) in self.people.iter_mut().zip(calls) {
            assert_eq!(text(&call.response()), format!("{} {n}", one.name));
            one.count("fx__echo");
        }
    }

    /// Both call at once, and the first one cancels its call.
    fn cancel(&mut self) {
        let id = self.id();
        let arguments = |one: &Person| json!({"ms": 100, "who": one.name});
        let [gone, mut stays] = self.people.each_ref().map(|one| one.begin(&id, "fx__sleep", &arguments(one)));
        pass(Duration::from_millis(20));
        let [first, _] = &mut self.people;
        if first.era != ClientEra::Modern {
            first.client.notify("notifications/cancelled", json!({"requestId": id}));
        }
        drop(gone);
        assert_eq!(text(&stays.response()), "slept");
        self.people.iter_mut().for_each(|one| one.count("fx__sleep"));
        self.cancelled += 1;
    }

    /// Both are asked about the same call; one says yes, the other no.
    fn approve(&mut self) {
        let (id, arguments) = (self.id(), json!({"n": self.calls}));
        let [first, second] = self.people.each_mut().map(|one| one.ask(&id, "fx__ask", &arguments));
        self.answer_for_another(&first, &allow("once"));
        let [yes, no] = &mut self.people;
        let denied = no.decide(second, "deny");
        assert_eq!(reason(&denied), "denied");
        // Denials count against a bound of all callers for ten minutes.
        pass(Duration::from_secs(1));
        assert_eq!(text(&yes.decide(first, "once")), "ask");
    }

    /// The second person answers the question of the first.
    fn answer_for_another(&mut self, question: &PersonQuestion, answer: &Value) {
        let [first, second] = &mut self.people;
        match &question.open {
            OpenQuestion::Modern(key, state) => {
                let params = going_on(question, key, state, answer);
                let refused = second.client.request_as(&question.id, "tools/call", params);
                assert_eq!(refused.code(), Some(-32602), "{}", refused.raw);
            }
            OpenQuestion::Legacy(id, _) => {
                let token = self.issuer.token(second.name, "/mcp", LIFE, second.token);
                let body = json!({"jsonrpc": "2.0", "id": id, "result": answer}).to_string();
                let session = first.client.session();
                let refused = self.issuer.send("POST", "/mcp", Some(&token), session.as_deref(), &body);
                assert_eq!(refused.head.status, 404, "{}", refused.text());
            }
        }
    }

    /// One gets a grant for a tool, and the other is still asked.
    fn grant(&mut self) {
        let tool = format!("fx__extra_{:04}", self.grants);
        if self.grants == TOOLS {
            return self.echo();
        }
        self.grants += 1;
        let id = self.id();
        let arguments = self.people.each_ref().map(|one| json!({"who": one.name}));
        let [owner, other] = &mut self.people;
        let question = owner.ask(&id, &tool, &arguments[0]);
        assert_eq!(text(&owner.decide(question, "session")), &tool[4..]);
        let question = other.ask(&id, &tool, &arguments[1]);
        assert_eq!(reason(&other.decide(question, "deny")), "denied");
        pass(Duration::from_secs(1));
        let again = json!({"who": owner.name, "again": true});
        assert_eq!(text(&owner.begin(&id, &tool, &again).response()), &tool[4..]);
        owner.count(&tool);
        self.calls += 1;
    }

    /// Each has its own share of the limit.
    fn limit(&mut self) {
        let id = self.id();
        // Now and then the first person calls more often than the second.
        let times = [1 + self.rng.usize(..3), 1];
        for (n, one) in self.people.iter_mut().enumerate() {
            for _ in 0..times[n] {
                let answer = one.begin(&id, "fx__progress", &json!({"steps": 0, "who": one.name})).response();
                if self.limited[n] < BURST {
                    self.limited[n] += 1;
                    assert_eq!(text(&answer), "done");
                    one.count("fx__progress");
                } else {
                    assert_eq!(reason(&answer), "limited", "{} {:?}: {answer}", one.name, self.limited);
                }
            }
        }
        self.calls += times[0] - 1;
    }

    /// The server asks both in the middle of their calls, with equal ids.
    fn park(&mut self) {
        let id = self.id();
        let schema = json!({"type": "object", "properties": {"who": {"type": "string"}}});
        let form = json!({"method": "elicitation/create", "params": {"message": "Who?", "requestedSchema": schema}});
        let arguments = json!({"tag": format!("t{}", self.calls), "via": "call", "rounds": [[form]]});
        let [first, second] = self.people.each_mut().map(|one| one.ask(&id, "fx__inquire", &arguments));
        let answer = |name: &str| json!({"action": "accept", "content": {"who": name}});
        self.answer_for_another(&first, &answer("nobody"));
        for (one, question) in self.people.iter_mut().zip([first, second]) {
            let response = one.answer(question, &answer(one.name));
            let answers: Value = serde_json::from_str(text(&response)).unwrap();
            assert_eq!(answers[0]["result"], answer(one.name), "{response}");
            one.count("fx__inquire");
        }
    }

    /// The second person uses a session and a cursor of the first.
    fn intrude(&mut self) {
        let [owner, other] = &mut self.people;
        if let Some(session) = owner.client.session() {
            let token = self.issuer.token(other.name, "/mcp", LIFE, other.token);
            for method in ["GET", "DELETE", "POST"] {
                let body = if method == "POST" { r#"{"jsonrpc":"2.0","id":1,"method":"ping"}"# } else { "" };
                let refused = self.issuer.send(method, "/mcp", Some(&token), Some(&session), body);
                assert_eq!(refused.head.status, 404, "{method}: {}", refused.text());
            }
        }
        let page = owner.client.request("tools/list", json!({}));
        let cursor = json!({"cursor": page.result()["nextCursor"].as_str().unwrap()});
        let refused = other.client.request("tools/list", cursor.clone());
        assert_eq!(refused.code(), Some(-32602), "{}", refused.raw);
        assert!(!owner.client.request("tools/list", cursor).result()["tools"].as_array().unwrap().is_empty());
        self.echo();
    }

    /// The first person goes on with a fresh token.
    fn renew(&mut self) {
        let [first, _] = &mut self.people;
        first.token += 1;
        first.client.present(self.issuer.token(first.name, "/mcp", LIFE, first.token));
        self.echo();
    }

    /// Compares the server's log and the audit log with what the two have done.
    fn check_logs(&self) {
        let mut made: BTreeMap<&str, usize> = BTreeMap::new();
        for (tool, count) in self.people.iter().flat_map(|one| &one.made) {
            *made.entry(tool).or_default() += count;
        }
        let calls = self.log.lines_with(&["\"method\":\"tools/call\""]);
        assert_eq!(calls.len(), made.values().sum::<usize>(), "{made:?}");
        assert_eq!(self.log.count("notifications/cancelled"), self.cancelled);
        // Records of usual decisions are written within a second.
        pass(Duration::from_secs(3));
        let records = audit_records(&self.issuer.gateway.world.path("state/headend/audit"));
        for one in &self.people {
            let caller = format!("corp:{}", one.name);
            let own = || records.iter().filter(|record| record["caller"] == caller);
            let mut allowed: BTreeMap<String, usize> = BTreeMap::new();
            let is_first = |record: &&Value| record["rule"] != AGAIN_RULE;
            let decided = own().filter(|record| record["event"] == "decision" && record["result"] == "allow");
            for record in decided.filter(is_first) {
                *allowed.entry(record["item"].as_str().unwrap().to_owned()).or_default() += 1;
            }
            assert_eq!(allowed, one.made, "{caller}");
            for (result, count) in &one.answers {
                let told = own().filter(|record| record["event"] == "answer" && record["result"] == *result).count();
                assert_eq!(told, *count, "{caller}: {result}");
            }
            let other = NAMES.iter().find(|name| **name != one.name).unwrap();
            let foreign = own().find(|record| record["arguments"].to_string().contains(other));
            assert_eq!(foreign, None, "{caller}");
        }
    }
}

/// Reads all records of an audit log.
fn audit_records(folder: &std::path::Path) -> Vec<Value> {
    let files = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
    let files = files.filter(|path| path.extension().is_some_and(|extension| extension == "jsonl"));
    let lines = files.flat_map(|path| {
        let text = fs::read_to_string(path).unwrap();
        text.lines().map(|line| serde_json::from_str(line).unwrap()).collect::<Vec<Value>>()
    });
    lines.collect()
}

#[test]
fn nothing_of_one_person_is_ever_the_others() {
    let calls = std::env::var(CALLS).map_or(USUAL_CALLS, |calls| calls.parse().unwrap());
    for era in ClientEra::BOTH {
        let mut work = PeopleAtWork::new(era);
        while work.calls < calls {
            work.step();
        }
        work.check_logs();
        eprintln!("{era:?}: {} calls, {} grants, {} cancelled", work.calls, work.grants, work.cancelled);
    }
}
