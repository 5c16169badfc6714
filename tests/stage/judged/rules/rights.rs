//! Tests of the rights that credentials give: scopes, groups, and profiles for some callers.

use std::fs;
use std::sync::Arc;
use std::time::Duration;

use rustix::process::Signal;
use serde_json::{Value, json};

use crate::listener::callers::credentials::Credentials;
use crate::policy::{Caller, CallerRights, Groups, Scopes};
use crate::stage::harness::{Gateway, GatewaySetup};
use crate::stage::mcp::{ClientEra, Mcp, McpAnswer};
use crate::stage::old_client::{OldClient, ask};
use crate::stage::process::eventually;
use crate::stage::upstream::{Fake, InputLog};

const SCOPES: &str = r#"
legacy-sse = true
[server.auth.scopes]
"mcp:echo" = { tools = ["fx__echo"] }
"mcp:docs" = { prompts = ["fx__p"], resources = ["fx+fx://*"] }
"mcp:fx" = { upstreams = ["fx"] }
"#;

/// The only revision with batches.
const BATCHES: ClientEra = ClientEra::Legacy("2025-03-26");

/// A token with its caller, scopes and groups; `None` for all scopes and for unknown groups.
type Holder = (&'static str, &'static str, Option<&'static [&'static str]>, Option<&'static [&'static str]>);

const LOW: Holder = ("low", "corp:ann", Some(&["mcp:echo"]), Some(&[]));
const FULL: Holder = ("full", "corp:ann", Some(&["mcp:echo", "mcp:docs", "mcp:fx"]), Some(&["dev"]));
const BOB: Holder = ("bob", "corp:bob", None, Some(&["ops"]));
const CY: Holder = ("cy", "corp:cy", None, None);

fn boxed(texts: &[&str]) -> Box<[Box<str>]> {
    texts.iter().map(|text| Box::from(*text)).collect()
}

/// Makes the gateway accept these tokens and that of our own user.
fn accept(gateway: &Gateway, holders: &[Holder]) {
    let rights = |(token, caller, scopes, groups): &Holder| {
        let scopes = scopes.map_or(Scopes::All, |scopes| Scopes::Of(boxed(scopes)));
        let groups = groups.map_or(Groups::Unknown, |groups| Groups::Of(boxed(groups)));
        ((*token).to_owned(), Caller::named(caller), Arc::new(CallerRights { scopes, groups }))
    };
    let own = (gateway.token().unwrap(), Caller::local().clone(), CallerRights::all());
    let all: Vec<_> = holders.iter().map(rights).chain([own]).collect();
    let credentials = Credentials::with_rights(&all, &gateway.inner().service.giving_up);
    gateway.inner().first_front().credentials.store(Arc::new(credentials));
}

fn gateway(server: &str, more: &str) -> (Gateway, InputLog) {
    let setup = GatewaySetup::new();
    let log = InputLog::new(&setup.world.path("work"), "fx");
    let fake = Fake::stdio("both").with("--tools", "1100").logging(&log);
    // With several callers, each has limits.
    let setup = setup.env("SECOND_TOKEN", "token-of-the-second-caller-0123456789");
    let gateway = setup.server(server).fake("fx", &fake).toml(more).start();
    gateway.wait_for_tools(&["fx__echo"]);
    accept(&gateway, &[LOW, FULL, BOB, CY]);
    (gateway, log)
}

fn client(gateway: &Gateway, holder: Holder, era: ClientEra, path: &str) -> Mcp {
    Mcp::http_at(gateway.address, Some(holder.0.to_owned()), era, path, json!({}))
}

/// Ends the gateway and returns caller, item and rule of each denial in the audit log.
fn denials(mut gateway: Gateway) -> Vec<Value> {
    gateway.signal(Signal::TERM);
    assert!(gateway.wait(Duration::from_secs(60)).is_some(), "{}", gateway.story());
    let folder = gateway.world.path("state/headend/audit");
    let files = fs::read_dir(folder).unwrap().map(|entry| fs::read_to_string(entry.unwrap().path()).unwrap());
    let text: String = files.collect();
    let records = text.lines().filter_map(|line| serde_json::from_str::<Value>(line).ok());
    let denied = records.filter(|record| record["event"] == "decision" && record["result"] == "deny");
    denied.map(|record| json!([record["caller"], record["item"], record["rule"]])).collect()
}

fn assert_lacks(answer: &McpAnswer, scopes: &str, label: &str) {
    assert_eq!((answer.status, answer.code()), (403, Some(1001)), "{label}: {}", answer.raw);
    let challenge = format!("Bearer error=\"insufficient_scope\", scope=\"{scopes}\"");
    assert_eq!(answer.head.header("www-authenticate"), Some(&*challenge), "{label}");
    let data = &answer.message["error"]["data"];
    let scopes: Vec<&str> = scopes.split(' ').collect();
    assert_eq!((&data["reason"], &data["scopes"]), (&json!("insufficient_scope"), &json!(scopes)), "{label}");
}

fn echo(text: &str) -> Value {
    json!({"name": "fx__echo", "arguments": {"text": text}})
}

#[test]
fn a_call_without_its_scopes_is_refused_with_403_and_all_of_them() {
    let rules = "[[policy.rules]]\nid = \"no\"\neffect = \"deny\"\ntools = [\"fx__env\"]\n\
                 [[policy.rules]]\nid = \"asks\"\neffect = \"ask\"\nprompts = [\"fx__p\"]";
    let (gateway, log) = gateway(SCOPES, rules);
    let complete = json!({"ref": {"type": "ref/prompt", "name": "fx__p"}, "argument": {"name": "a", "value": "b"}});
    let rows = [
        ("tools/call", echo("a"), "mcp:echo mcp:fx", json!(["corp:ann", "fx__echo", "scope:mcp:fx"])),
        ("prompts/get", json!({"name": "fx__p"}), "mcp:docs mcp:fx", json!(["corp:ann", "fx__p", "scope:mcp:docs"])),
        (
            "resources/read",
            json!({"uri": "fx://doc/1"}),
            "mcp:docs mcp:fx",
            json!(["corp:ann", "fx+fx://doc/1", "scope:mcp:docs"]),
        ),
        (
            "resources/read",
            json!({"uri": "fx://doc/77"}),
            "mcp:docs mcp:fx",
            json!(["corp:ann", "fx+fx://doc/{id}", "scope:mcp:docs"]),
        ),
        ("completion/complete", complete, "mcp:docs mcp:fx", json!(["corp:ann", "fx__p", "scope:mcp:docs"])),
        (
            "resources/subscribe",
            json!({"uri": "fx://doc/1"}),
            "mcp:docs mcp:fx",
            json!(["corp:ann", "fx+fx://doc/1", "scope:mcp:docs"]),
        ),
    ];
    let mut expected = Vec::new();
    for era in ClientEra::BOTH {
        let mut low = client(&gateway, LOW, era, "/mcp");
        let rows = rows.iter().filter(|row| era != ClientEra::Modern || row.0 != "resources/subscribe");
        for (method, params, scopes, record) in rows {
            assert_lacks(&low.request(method, params.clone()), scopes, &format!("{era:?} {method}"));
            expected.push(record.clone());
        }
        let hidden = low.call("fx__env", json!({}));
        assert_eq!((hidden.status, hidden.code()), (200, Some(-32602)), "{era:?}: a hidden item stays unknown");
        assert_eq!(client(&gateway, FULL, era, "/mcp").request("tools/call", echo("a")).text(), "a", "{era:?}");
    }
    assert_eq!(log.count("tools/call"), 2, "only the calls with their scopes");
    let denied: Vec<Value> = denials(gateway).into_iter().filter(|record| record[2] != "no").collect();
    assert_eq!(denied, expected, "one record for each refusal");
}

#[test]
fn a_batch_with_a_call_without_its_scopes_is_refused_as_a_whole() {
    let (gateway, log) = gateway(SCOPES, "");
    let mut low = client(&gateway, LOW, BATCHES, "/mcp");
    let request = |id: &str, method: &str, params: &Value| json!({"jsonrpc": "2.0", "id": id, "method": method, "params": params});
    let ping = request("p", "ping", &json!({}));
    let batch =
        json!([ping, request("a", "tools/call", &echo("a")), request("b", "prompts/get", &json!({"name": "fx__p"})),]);
    let headers = low.headers("", &json!({}));
    let refused = low.exchange(&Value::Null, &headers, &batch.to_string());
    assert_lacks(&refused, "mcp:docs mcp:echo mcp:fx", "a batch");
    let answers = low.exchange(&Value::Null, &headers, &json!([ping]).to_string());
    assert_eq!((answers.status, answers.message[0]["id"].as_str()), (200, Some("p")), "its ids are free again");
    // The session goes on with another credential of its caller.
    let mut full = client(&gateway, FULL, BATCHES, "/mcp");
    let answers = full.exchange(&Value::Null, &full.headers("", &json!({})), &batch.to_string());
    assert_eq!((answers.status, answers.message.as_array().map(Vec::len)), (200, Some(3)), "{}", answers.raw);
    assert_eq!(log.count("tools/call"), 1);
    let expected = [json!(["corp:ann", "fx__echo", "scope:mcp:fx"]), json!(["corp:ann", "fx__p", "scope:mcp:docs"])];
    assert_eq!(denials(gateway), expected);
}

#[test]
fn a_subscription_to_a_resource_without_its_scopes_is_refused_as_a_whole() {
    const ONE: Holder = ("one", "corp:ann", Some(&["one"]), Some(&[]));
    let scopes = "legacy-sse = true\n[server.auth.scopes]\none = { resources = [\"fx+fx://doc/1\"] }\n\
                  two = { resources = [\"fx+fx://doc/7\", \"fx+fx://doc/8\"] }";
    let (gateway, log) = gateway(scopes, "");
    accept(&gateway, &[ONE, FULL]);
    let wanted = |uris: &[&str]| json!({"notifications": {"toolsListChanged": true, "resourceSubscriptions": uris}});
    let all = wanted(&["fy://none", "fx://doc/1", "fx://doc/7", "fx://doc/8"]);
    let mut one = client(&gateway, ONE, ClientEra::Modern, "/mcp");
    assert_lacks(&one.request("subscriptions/listen", all), "one two", "a subscription");
    assert_eq!(log.lines_with(&["fx://doc/1"]), [""; 0], "nothing is watched");
    let mut listening = one.open("subscriptions/listen", wanted(&["fy://none", "fx://doc/1"]));
    assert_eq!(listening.next().unwrap()["method"], "notifications/subscriptions/acknowledged");
    drop(listening);
    let expected = [json!(["corp:ann", "fx+fx://doc/{id}", "scope:two"])];
    assert_eq!(denials(gateway), expected, "one record for each refusal");
}

#[test]
fn a_message_over_the_old_transport_has_the_rights_of_its_own_credential() {
    let (gateway, log) = gateway(SCOPES, "");
    let mut low = OldClient::connect(&gateway, Some(LOW.0.to_owned()), "/sse");
    low.initialize("2024-11-05");
    let refused = low.request("tools/call", echo("a"));
    assert_eq!(refused["error"]["data"]["scopes"], json!(["mcp:echo", "mcp:fx"]), "{refused}");
    let mut full = OldClient::connect(&gateway, Some(FULL.0.to_owned()), "/sse");
    full.initialize("2024-11-05");
    assert_eq!(full.request("tools/call", echo("a"))["result"]["content"][0]["text"], "a");
    let call = json!({"jsonrpc": "2.0", "id": 9, "method": "tools/call", "params": echo("b")}).to_string();
    assert_eq!(ask(gateway.address, Some(BOB.0), "POST", &full.endpoint, &call).0, 404, "another caller");
    assert_eq!(ask(gateway.address, Some(LOW.0), "POST", &full.endpoint, &call).0, 202);
    let refused = full.message();
    assert_eq!(refused["error"]["data"]["scopes"], json!(["mcp:echo", "mcp:fx"]), "{refused}");
    assert_eq!(log.count("tools/call"), 1);
    low.token = Some(FULL.0.to_owned());
    assert_eq!(low.request("tools/call", echo("c"))["result"]["content"][0]["text"], "c", "a token with more scopes");
}

#[test]
fn two_credentials_of_one_caller_share_what_is_kept_for_it_and_another_caller_does_not() {
    let rules = "[[policy.rules]]\nid = \"asks\"\neffect = \"ask\"\ntools = [\"fx__echo\"]\n\
                 [[policy.limits]]\nid = \"few\"\ntools = [\"fx__mutate\"]\nper-day = 2";
    let (gateway, _log) = gateway("[server.auth.scopes]\nenv = { tools = [\"fx__env\"] }", rules);
    // A session.
    let mut low = client(&gateway, LOW, ClientEra::LEGACY, "/mcp");
    let session = low.session().unwrap();
    let with = |holder: Holder, body: &Value| {
        let mut other = client(&gateway, holder, ClientEra::LEGACY, "/mcp");
        let mut headers = other.headers("", &json!({}));
        headers.retain(|(name, _)| name != "Mcp-Session-Id");
        headers.push(("Mcp-Session-Id".to_owned(), session.clone()));
        other.exchange(&body["id"], &headers, &body.to_string())
    };
    let env =
        json!({"jsonrpc": "2.0", "id": 7, "method": "tools/call", "params": {"name": "fx__env", "arguments": {}}});
    accept(&gateway, &[LOW, ("full", "corp:ann", None, Some(&["dev"])), BOB]);
    assert_lacks(&low.call("fx__env", json!({})), "env", "the rights are those of the request");
    assert_eq!(with(FULL, &env).status, 200, "the session goes on, with the rights of the request");
    assert_lacks(&with(LOW, &env), "env", "and again");
    let foreign = with(BOB, &env);
    assert_eq!(foreign.status, 404, "another caller has no such session: {}", foreign.raw);
    // A cursor.
    let cursor =
        client(&gateway, LOW, ClientEra::Modern, "/mcp").request("tools/list", json!({})).result()["nextCursor"]
            .clone();
    assert!(cursor.is_string());
    let page =
        |holder| client(&gateway, holder, ClientEra::Modern, "/mcp").request("tools/list", json!({"cursor": cursor}));
    assert!(page(FULL).result()["tools"].as_array().is_some_and(|tools| !tools.is_empty()));
    assert_eq!(page(BOB).code(), Some(-32602));
    // A sealed state, and a grant.
    let capabilities = json!({"elicitation": {"form": {}}});
    let modern = |holder: Holder| {
        Mcp::http_at(gateway.address, Some(holder.0.to_owned()), ClientEra::Modern, "/mcp", capabilities.clone())
    };
    let asked = modern(LOW).request("tools/call", echo("a"));
    let (state, questions) = (&asked.result()["requestState"], &asked.result()["inputRequests"]);
    assert!(state.is_string(), "{}", asked.raw);
    let key = questions.as_object().unwrap().keys().next().unwrap().clone();
    let mut answered = echo("a");
    answered["requestState"] = state.clone();
    answered["inputResponses"] = json!({key: {"action": "accept", "content": {}}});
    let foreign = modern(BOB).request("tools/call", answered.clone());
    assert_ne!(foreign.message["result"]["content"][0]["text"], "a", "{}", foreign.raw);
    let approved = gateway.run(&["approvals", "--json"]);
    let listed: Value = serde_json::from_slice(&approved.stdout).unwrap();
    let id = listed["approvals"][0]["id"].as_str().unwrap().to_owned();
    assert!(gateway.run(&["approve", &id, "--for", "1h"]).status.success());
    assert_eq!(modern(FULL).request("tools/call", answered).text(), "a", "the state is the caller's");
    assert_eq!(modern(FULL).request("tools/call", echo("a")).text(), "a", "the grant is the caller's");
    assert_ne!(modern(BOB).request("tools/call", echo("a")).message["result"]["content"][0]["text"], "a");
    // A limit.
    let mutate = |holder| client(&gateway, holder, ClientEra::Modern, "/mcp").call("fx__mutate", json!({}));
    let refused = |answer: &McpAnswer| answer.raw.contains("headend/refusal");
    assert_eq!([LOW, FULL, LOW, BOB].map(|holder| refused(&mutate(holder))), [false, false, true, false]);
}

#[test]
fn a_profile_is_not_there_for_others() {
    let profiles = "[profiles.dev]\nupstreams = [\"fx\"]\ncallers = [\"corp:*\"]\ngroups = [\"dev\"]";
    let (gateway, _log) = gateway("legacy-sse = true", profiles);
    assert_eq!(client(&gateway, FULL, ClientEra::LEGACY, "/mcp/dev").request("tools/call", echo("a")).text(), "a");
    assert_eq!(client(&gateway, FULL, ClientEra::Modern, "/mcp/dev").request("tools/call", echo("a")).text(), "a");
    let own = gateway.token().unwrap();
    for token in [LOW.0, BOB.0, CY.0, &own] {
        for path in ["/mcp/dev", "/sse/dev"] {
            for method in ["GET", "POST"] {
                let answer = ask(gateway.address, Some(token), method, path, "{}");
                if path == "/sse/dev" && method == "POST" {
                    continue;
                }
                let unknown = ask(gateway.address, Some(token), method, &path.replace("dev", "dex"), "{}");
                assert_eq!((answer.0, &answer), (404, &unknown), "{token} {method} {path}");
            }
        }
    }
    assert_eq!(ask(gateway.address, Some(FULL.0), "GET", "/sse/dev", "").0, 200);
    // Once it is for others, a session ends to see its items.
    let mut session = client(&gateway, FULL, ClientEra::LEGACY, "/mcp/dev");
    let text = fs::read_to_string(&gateway.config).unwrap().replace("corp:*", "corp:bob");
    assert!(gateway.reload(&text).status.success());
    accept(&gateway, &[LOW, FULL, BOB, CY]);
    eventually("the profile is for another", || session.request("ping", json!({})).status == 404);
}

#[test]
fn a_list_is_that_of_the_groups_of_the_credential() {
    let rules = "[[policy.rules]]\nid = \"no\"\neffect = \"deny\"\ntools = [\"fx__echo\"]\ngroups = [\"ops\", \"dev\"]";
    let (gateway, _log) = gateway("", rules);
    for _ in 0..2 {
        for (holder, is_shown) in [(LOW, true), (FULL, false), (BOB, false), (CY, false)] {
            for era in ClientEra::BOTH {
                let mut client = client(&gateway, holder, era, "/mcp");
                assert_eq!(client.tool_names().iter().any(|name| name == "fx__echo"), is_shown, "{holder:?} {era:?}");
                let answer = client.request("tools/call", echo("a"));
                assert_eq!(answer.code().is_none(), is_shown, "{holder:?} {era:?}: {}", answer.raw);
            }
        }
    }
}
