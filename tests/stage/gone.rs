//! Tests of calls of tools that the client's own list showed and that are gone since.

use serde_json::{Value, json};

use crate::stage::harness::{Gateway, Setup};
use crate::stage::mcp::{Answer, Era, Mcp};
use crate::stage::process::{eventually, said};
use crate::stage::upstream::Patch;
use crate::stage::upstream::{Fake, Listening, Log};

/// Token of a second caller.
const TOKEN: &str = "token-of-the-second-caller-0123456789";

/// Returns a patch after which one tool is withheld, one is gone and another is new.
fn change() -> Value {
    json!({"echo": {"description": "Does something else."}, "fail": {"name": "failed"}})
}

fn lists(client: &mut Mcp, name: &str) -> bool {
    client.tool_names().iter().any(|listed| listed == name)
}

fn is_gone(answer: &Answer) -> bool {
    answer.is_error() && answer.text().contains("no longer offered; list the tools again")
}

/// Returns the answer to a call of an unknown tool, with its name masked.
fn unknown(answer: &Answer, name: &str) -> (u16, Option<i64>, String) {
    let message = answer.message["error"]["message"].as_str().unwrap_or_default().replace(name, "NAME");
    (answer.status, answer.code(), message)
}

struct Stage {
    gateway: Gateway,
    patch: Patch,
    log: Log,
    _server: Option<Listening>,
}

impl Stage {
    /// Starts a gateway. The watcher that waits for tools has a view of its own, so that it lists
    /// nothing for others.
    fn new(fake: Fake, over_http: bool) -> Self {
        let setup = Setup::new().second_caller(TOKEN).toml("[profiles.few]\ntools = { allow = [\"fx__s*\"] }");
        let (log, patch) = (Log::new(&setup.world.path("work"), "fx"), Patch::new(&setup));
        let fake = patch.of(fake.logging(&log));
        let server = over_http.then(|| fake.spawn());
        let setup = match &server {
            Some(server) => setup.url("fx", &server.url),
            None => setup.fake("fx", &fake),
        };
        let stage = Self { gateway: setup.start(), patch, log, _server: server };
        stage.until("the tools are listed", true);
        stage
    }

    /// Waits until the tool `echo` is listed or not, with a client whose lists no other client
    /// shares.
    fn until(&self, what: &str, echo: bool) {
        let mut client = self.gateway.legacy();
        eventually(what, || lists(&mut client, "fx__echo") == echo);
    }

    fn at(&self, era: Era, token: Option<String>, path: &str) -> Mcp {
        Mcp::http_at(self.gateway.address, token, era, path, json!({}))
    }

    fn local(&self, era: Era) -> Mcp {
        self.at(era, self.gateway.token(), "/mcp")
    }

    fn second(&self, era: Era) -> Mcp {
        self.at(era, Some(TOKEN.to_owned()), "/mcp")
    }

    fn pipe(&self, era: Era) -> Mcp {
        Mcp::stdio(self.gateway.pipe(), era)
    }

    fn change(&self) {
        self.patch.write(&change());
        assert_eq!(self.gateway.legacy().call("fx__mutate", json!({})).text(), "grown");
        self.until("the change is seen", false);
    }
}

#[test]
fn a_tool_that_a_clients_own_list_showed_is_no_longer_offered() {
    for (fake, over_http) in [(Fake::stdio("both"), false), (Fake::http("legacy"), true), (Fake::http("modern"), true)]
    {
        let stage = Stage::new(fake, over_http);
        let mut readers = vec![
            ("legacy", stage.local(Era::LEGACY)),
            ("modern", stage.local(Era::Modern)),
            ("legacy on a pipe", stage.pipe(Era::LEGACY)),
            ("modern on a pipe", stage.pipe(Era::Modern)),
        ];
        for (label, client) in &mut readers {
            assert!(lists(client, "fx__echo"), "{label}");
        }
        let mut others = vec![
            ("legacy", stage.local(Era::LEGACY)),
            ("legacy on a pipe", stage.pipe(Era::LEGACY)),
            ("modern on a pipe", stage.pipe(Era::Modern)),
            ("another caller", stage.second(Era::Modern)),
            ("another view", stage.at(Era::Modern, stage.gateway.token(), "/mcp/few")),
        ];
        assert!(lists(&mut others[4].1, "fx__sleep"));
        stage.change();
        for (label, client) in &mut readers {
            for name in ["fx__echo", "fx__fail"] {
                let answer = client.call(name, json!({"text": "x"}));
                assert!(is_gone(&answer) && answer.text().contains(name), "{label}: {}", answer.raw);
                let refusal = &answer.result()["_meta"]["headend/refusal"];
                let facts = [&refusal["reason"], &refusal["executed"], &refusal["retryable"]];
                assert_eq!(facts, [&json!("gone"), &json!("no"), &json!(false)], "{label}");
                assert_eq!(answer.status, 200, "{label}");
            }
        }
        for (label, client) in readers.iter_mut().chain(&mut others) {
            let want = unknown(&client.call("fx__nobody", json!({})), "fx__nobody");
            assert_eq!((want.1, want.2.as_str()), (Some(-32602), "Unknown tool: NAME"), "{label}");
        }
        for (label, client) in &mut others {
            let want = unknown(&client.call("fx__nobody", json!({})), "fx__nobody");
            for name in ["fx__echo", "fx__fail"] {
                assert_eq!(unknown(&client.call(name, json!({})), name), want, "{label}: {name}");
            }
        }
        let called = stage.log.lines_with(&["tools/call", "\"name\":\"echo\""]);
        assert!(called.is_empty(), "it was not forwarded: {called:?}");
        // Other kinds of lists reveal nothing about tools.
        let (_, modern) = &mut readers[1];
        assert_eq!(modern.request("prompts/get", json!({"name": "fx__echo"})).code(), Some(-32602));
        modern.tool_names();
        assert!(is_gone(&modern.call("fx__echo", json!({}))), "a later list takes nothing back");
        stage.patch.write(&json!({}));
        stage.gateway.legacy().call("fx__mutate", json!({}));
        stage.until("it is back", true);
        assert_eq!(modern.call("fx__echo", json!({"text": "again"})).text(), "again");
    }
}

#[test]
fn what_a_client_never_saw_is_unknown_whatever_it_is() {
    let rule = "[[policy.rules]]\nid = \"no\"\neffect = \"deny\"\ntools = [\"fx__env\"]";
    let setup = Setup::new().toml(rule);
    let patch = Patch::new(&setup);
    let gateway = setup.fake("fx", &patch.of(Fake::stdio("both"))).start();
    gateway.wait_for_tools(&["fx__echo"]);
    let mut clients = [gateway.legacy(), gateway.modern()];
    for client in &mut clients {
        assert!(lists(client, "fx__echo") && !lists(client, "fx__env"));
    }
    // Still hidden when it is withheld too.
    patch.write(&json!({"env": {"description": "Does something else."}}));
    gateway.legacy().call("fx__mutate", json!({}));
    gateway.wait_for_tools(&["fx__grown_0"]);
    for client in &mut clients {
        let want = unknown(&client.call("fx__nobody", json!({})), "fx__nobody");
        assert_eq!(want.1, Some(-32602));
        assert_eq!(unknown(&client.call("fx__env", json!({})), "fx__env"), want);
    }
}

#[test]
fn a_rule_that_hides_a_tool_and_a_removed_server_look_the_same() {
    let (fx, old) = (Fake::stdio("both"), Fake::stdio("both"));
    let gateway = Setup::new().fake("fx", &fx).fake("old", &old).start();
    gateway.wait_for_tools(&["fx__echo", "old__echo"]);
    let mut clients = [gateway.legacy(), gateway.modern()];
    clients.iter_mut().for_each(|client| assert!(lists(client, "old__echo")));
    let rule = "[[policy.rules]]\nid = \"no\"\neffect = \"deny\"\ntools = [\"fx__echo\"]";
    let plan = gateway.reload(&Setup::new().fake("fx", &fx).toml(rule).text());
    assert!(plan.status.success(), "{}", said(&plan));
    for client in &mut clients {
        eventually("the tools have left", || !lists(client, "fx__echo") && !lists(client, "old__echo"));
        let plain = |answer: Answer, name: &str| {
            let mut result = answer.result().clone();
            assert!(is_gone(&answer), "{}", answer.raw);
            result["_meta"]["headend/refusal"]["call-id"] = Value::Null;
            result.to_string().replace(name, "NAME")
        };
        let hidden = plain(client.call("fx__echo", json!({})), "fx__echo");
        assert_eq!(hidden, plain(client.call("old__echo", json!({})), "old__echo"));
    }
    // A later client has seen neither.
    for name in ["fx__echo", "old__echo"] {
        assert_eq!(gateway.legacy().call(name, json!({})).code(), Some(-32602));
    }
}

#[test]
fn the_command_line_is_a_client_too() {
    let stage = Stage::new(Fake::stdio("both"), false);
    let run = |args: &[&str]| stage.gateway.run(args);
    assert!(run(&["tools"]).status.success());
    stage.change();
    let gone = run(&["call", "fx__fail"]);
    assert_eq!(gone.status.code(), Some(1), "{}", said(&gone));
    assert!(String::from_utf8_lossy(&gone.stdout).contains("no longer offered"), "{}", said(&gone));
    let never = run(&["call", "fx__nobody"]);
    assert!(never.status.code() == Some(1) && said(&never).contains("Unknown tool"), "{}", said(&never));
    let withheld = run(&["call", "fx__echo"]);
    assert_eq!(withheld.status.code(), Some(1));
    let told = String::from_utf8_lossy(&withheld.stderr).into_owned();
    assert!(told.contains("withheld: its definition changed"), "{told}");
    assert!(told.contains("headend pins diff fx__echo") && told.contains("headend pins approve fx__echo"), "{told}");
}
