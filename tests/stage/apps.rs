//! Tests of MCP Apps: clients that declared them see the apps of servers and call tools by bare
//! names, for all others there are ordinary tools alone.

use std::fs;

use serde_json::{Value, json};

use crate::stage::browser::Browser;
use crate::stage::harness::{Gateway, GatewaySetup};
use crate::stage::mcp::{ClientEra, Mcp};
use crate::stage::process::eventually;
use crate::stage::steps::{abuse, approvals, consent};
use crate::stage::upstream::{Fake, InputLog, Patch};

mod attacks;
mod handed;
mod views;

const UI: &str = "io.modelcontextprotocol/ui";
const TASKS: &str = "io.modelcontextprotocol/tasks";
/// A member of the host's settings that no other party writes.
const MARK: &str = "\"x-host\":1";

/// Returns the capabilities of a host that declares Apps, with forms if `forms`.
fn host(forms: bool) -> Value {
    let settings = json!({"mimeTypes": ["text/html;profile=mcp-app"], "x-host": 1});
    let mut capabilities = json!({"extensions": {UI: settings}});
    if forms {
        capabilities["elicitation"] = json!({});
    }
    capabilities
}

/// Returns a server's lists: a tool for apps alone, one with a view, and one for models alone.
fn lists() -> Value {
    json!({
        "extensions": {UI: {}},
        "extra_0000": {"_meta": {"ui": {"visibility": ["app"]}}},
        "extra_0001": {"_meta": {"ui": {"resourceUri": "ui://v/1"}, "ui/resourceUri": "ui://v/1", "x": 1}},
        "write": {"_meta": {"ui": {"visibility": ["model"]}}},
    })
}

/// Writes a server's lists to a file of its own, and returns the server with it.
fn patched(setup: &GatewaySetup, name: &str, fake: Fake, lists: &Value) -> Fake {
    let file = setup.world.write(&format!("work/{name}.json"), &lists.to_string());
    fake.with("--patch", file.to_str().unwrap())
}

fn client(gateway: &Gateway, era: ClientEra, capabilities: Value) -> Mcp {
    Mcp::http_at(gateway.address, gateway.token(), era, "/mcp", capabilities)
}

/// Returns the `_meta` of a tool in a client's list; `None` if the tool is not in it.
fn meta(client: &mut Mcp, tool: &str) -> Option<Value> {
    let tools = client.list("tools/list", "tools");
    tools.into_iter().find(|listed| listed["name"] == tool).map(|listed| listed["_meta"].clone())
}

/// Returns the extensions that the gateway declares to a client, and the scope of a modern answer.
fn declared(client: &mut Mcp, era: ClientEra) -> (Value, Value) {
    let result = match era {
        ClientEra::Modern => client.request("server/discover", json!({})).result().clone(),
        ClientEra::Legacy(_) => client.greeting.clone(),
    };
    (result["capabilities"]["extensions"].clone(), result["cacheScope"].clone())
}

/// Makes calls as a host and as a client without Apps, and checks what each sees.
fn sees_its_own(gateway: &Gateway, era: ClientEra, over_pipe: bool) {
    let connect = |capabilities| match over_pipe {
        true => Mcp::stdio_with(gateway.pipe(), era, capabilities),
        false => client(gateway, era, capabilities),
    };
    let (mut with, mut without) = (connect(host(false)), connect(json!({})));
    let (extensions, scope) = declared(&mut with, era);
    assert_eq!(extensions[UI], json!({}), "{era:?}");
    assert!(era != ClientEra::Modern || scope == "private", "{scope}");
    assert!(declared(&mut without, era).0[UI].is_null(), "{era:?}");
    for tool in ["extra_0000", "extra_0001", "write"] {
        assert_eq!(meta(&mut with, &format!("fx__{tool}")), Some(lists()[tool]["_meta"].clone()), "{era:?} {tool}");
    }
    assert_eq!(with.call("fx__extra_0000", json!({})).text(), "extra_0000");
    assert_eq!(meta(&mut without, "fx__extra_0000"), None);
    let keeps_meta = era != ClientEra::Legacy("2024-11-05");
    let rest = if keeps_meta { json!({"x": 1}) } else { Value::Null };
    assert_eq!(meta(&mut without, "fx__extra_0001"), Some(rest));
    assert_eq!(meta(&mut without, "fx__write"), Some(Value::Null));
    let refused = without.call("fx__extra_0000", json!({}));
    let unknown = without.call("fx__extra_9999", json!({}));
    let error = refused.message["error"].to_string().replace("0000", "9999");
    assert_eq!(error, unknown.message["error"].to_string(), "{era:?}");
    assert_eq!(without.call("extra_0000", json!({})).code(), Some(-32602), "a bare name");
    assert_eq!(without.call("fx__extra_0001", json!({})).text(), "extra_0001");
    assert_eq!(with.request("ui/initialize", json!({})).code(), Some(-32601));
}

#[test]
fn each_client_sees_apps_as_it_declared_them_on_every_transport() {
    for (fake, is_program, era) in [
        (Fake::stdio("legacy"), true, "legacy"),
        (Fake::stdio("modern"), true, "modern"),
        (Fake::http("legacy"), false, "legacy"),
        (Fake::http("modern"), false, "modern"),
        (Fake::sse(), false, "legacy"),
    ] {
        let setup = GatewaySetup::new();
        let log = InputLog::new(&setup.world.path("work"), "fx");
        let fake = patched(&setup, "fx", fake.with("--tools", "2").logging(&log), &lists());
        let server = (!is_program).then(|| fake.spawn());
        let setup = match &server {
            Some(server) => setup.url("fx", &server.url),
            None => setup.fake("fx", &fake),
        };
        let gateway = setup.start();
        gateway.wait_for_tools(&["fx__extra_0001"]);
        for client in [ClientEra::Legacy("2024-11-05"), ClientEra::LEGACY, ClientEra::Modern] {
            sees_its_own(&gateway, client, false);
            sees_its_own(&gateway, client, true);
        }
        let own = "\"io.modelcontextprotocol/ui\":{\"mimeTypes\":[\"text/html;profile=mcp-app\"]}";
        let first = if era == "modern" { "tools/list" } else { "initialize" };
        assert!(!log.lines_with(&[first, own]).is_empty(), "the lists are read as a host reads them");
        assert!(log.lines_with(&["tools/list", MARK]).is_empty());
        let of_host = if era == "modern" { "tools/call" } else { "initialize" };
        // A program is told once, for all of its clients.
        assert_eq!(log.lines_with(&[of_host, MARK]).is_empty(), is_program && era == "legacy", "{fake:?}");
        let called = log.lines_with(&["\"method\":\"tools/call\"", "extra_0001"]);
        assert!(!called.is_empty() && called.iter().all(|line| !line.contains(UI)), "{called:#?}");
    }
}

#[test]
fn a_server_without_apps_by_the_configuration_has_ordinary_tools_alone() {
    let setup = GatewaySetup::new();
    let log = InputLog::new(&setup.world.path("work"), "fx");
    let fake = patched(&setup, "fx", Fake::stdio("modern").with("--tools", "2").logging(&log), &lists());
    let gateway = setup.fake("fx", &fake).toml("apps = \"off\"").start();
    gateway.wait_for_tools(&["fx__extra_0001"]);
    let mut with = client(&gateway, ClientEra::Modern, host(false));
    assert_eq!(meta(&mut with, "fx__extra_0001"), Some(json!({"x": 1})));
    assert_eq!(meta(&mut with, "fx__extra_0000"), None);
    assert_eq!(with.call("fx__extra_0000", json!({})).code(), Some(-32602));
    assert_eq!(with.call("fx__extra_0001", json!({})).text(), "extra_0001");
    assert_eq!(log.lines_with(&[UI]), Vec::<String>::new());
}

/// Starts a gateway before `a`, which has an app and tools of its own, and `b`, whose app copies
/// names of `a`.
fn two_servers(rules: &str) -> (Gateway, [InputLog; 2]) {
    let setup = GatewaySetup::new();
    let logs = ["a", "b"].map(|name| InputLog::new(&setup.world.path("work"), name));
    let of_b = json!({"echo": {"_meta": {"ui": {"resourceUri": "ui://v/1"}}}});
    let a = patched(&setup, "a", Fake::stdio("both").with("--tools", "4").logging(&logs[0]), &lists());
    let b = patched(&setup, "b", Fake::stdio("both").logging(&logs[1]), &of_b);
    let views = "[profiles.b]\nupstreams = [\"b\"]\ntransparent = true\n";
    let gateway = setup.fake("a", &a).fake("b", &b).toml(views).toml(rules).start();
    gateway.wait_for_tools(&["a__extra_0001", "b__echo"]);
    (gateway, logs)
}

#[test]
fn a_bare_name_leads_to_the_one_tool_that_is_meant_and_to_no_copy() {
    const RULE: &str = "[[policy.rules]]\nid = \"no\"\neffect = \"deny\"\ntools = [\"a__extra_0002\"]\n";
    for era in ClientEra::BOTH {
        let (gateway, logs) = two_servers(RULE);
        let mut with = client(&gateway, era, host(false));
        assert_eq!(with.call("extra_0000", json!({})).text(), "extra_0000", "{era:?}");
        for (name, why) in [
            ("write", "for models alone, and copied"),
            ("echo", "two have it"),
            ("extra_0002", "denied"),
            ("extra_9999", "unknown"),
        ] {
            let answer = with.call(name, json!({}));
            assert_eq!(answer.code(), Some(-32602), "{era:?} {why}: {}", answer.raw);
            assert!(answer.raw.contains(&format!("Unknown tool: {name}")), "{}", answer.raw);
            let bodies = |log: &InputLog| log.lines_with(&["tools/call", name]).len();
            assert_eq!(logs.each_ref().map(bodies), [0, 0], "{era:?} {why}");
        }
        eventually("the operator is told", || gateway.story().contains("a__write, b__write"));
        assert!(gateway.story().contains("a bare tool name is unknown"), "{}", gateway.story());
        let mut own = Mcp::http_at(gateway.address, gateway.token(), era, "/mcp/b", host(false));
        assert_eq!(own.call("echo", json!({"text": "x"})).text(), "x", "{era:?}: in its own view");
    }
}

#[test]
fn a_call_by_a_bare_name_is_asked_about_and_recorded_under_its_canonical_name() {
    let rule = "[[policy.rules]]\nid = \"ask\"\neffect = \"ask\"\ntools = [\"a__extra_0000\"]\n";
    let (gateway, logs) = two_servers(&format!("[console]\nlisten = \"127.0.0.1:0\"\n{rule}"));
    let mut with = client(&gateway, ClientEra::Modern, host(false));
    assert_eq!(consent::reason(&with.call("extra_0000", json!({}))), "awaiting_approval");
    assert_eq!(logs[0].count("tools/call"), 0);
    let open = approvals::open(&gateway.world);
    assert_eq!((open.len(), &open[0]["item"]), (1, &json!("a__extra_0000")), "{open:?}");
    let message = open[0]["message"].as_str().unwrap();
    assert!(message.contains("WARNING:   called by its bare name \"extra_0000\", as an app does"), "{message}");
    abuse::approve(&gateway, open[0]["id"].as_str().unwrap());
    assert_eq!(with.call("extra_0000", json!({})).text(), "extra_0000");
    let records = || -> String {
        let files = fs::read_dir(gateway.world.path("state/headend/audit")).unwrap();
        files.map(|file| fs::read_to_string(file.unwrap().path()).unwrap_or_default()).collect()
    };
    eventually("the records", || {
        let bare = |line: &&str| line.contains("called by its bare name") && line.contains("\"a__extra_0000\"");
        records().lines().filter(bare).filter(|line| line.contains("\"decision\"")).count() >= 2
    });
    let page = Browser::signed_in(&gateway).get("/decisions").text();
    assert!(page.contains("rule matches; called by its bare name"), "{page}");
    // By its exposed name it is a call like any other.
    consent::reason(&with.call("a__extra_0000", json!({"n": 2})));
    let open = approvals::open(&gateway.world);
    assert!(!open[0]["message"].as_str().unwrap().contains("bare name"), "{open:?}");
}

#[test]
fn what_was_sealed_for_a_host_does_not_open_without_apps() {
    let setup = GatewaySetup::new();
    let fake = patched(&setup, "fx", Fake::stdio("both").with("--tools", "1100"), &lists());
    let rule = "[[policy.rules]]\nid = \"ask\"\neffect = \"ask\"\ntools = [\"fx__extra_000*\"]\n";
    let gateway = setup.fake("fx", &fake).toml(rule).start();
    gateway.wait_for_tools(&["fx__extra_0001"]);
    for era in ClientEra::BOTH {
        let (mut with, mut without) = (client(&gateway, era, host(false)), client(&gateway, era, json!({})));
        let cursor = |client: &mut Mcp| client.request("tools/list", json!({})).result()["nextCursor"].clone();
        let [theirs, ours] = [cursor(&mut with), cursor(&mut without)];
        let opens = |client: &mut Mcp, cursor: &Value| client.request("tools/list", json!({"cursor": cursor})).code();
        assert_eq!((opens(&mut with, &theirs), opens(&mut without, &ours)), (None, None), "{era:?}");
        assert_eq!((opens(&mut with, &ours), opens(&mut without, &theirs)), (Some(-32602), Some(-32602)), "{era:?}");
    }
    let mut with = client(&gateway, ClientEra::Modern, host(true));
    let mut without = client(&gateway, ClientEra::Modern, consent::forms());
    for tool in ["fx__extra_0000", "fx__extra_0001"] {
        let (_, state) = consent::asked(&with.call(tool, json!({})));
        let refused = consent::go_on(&mut without, tool, &json!({}), &state, &consent::allow("once"));
        assert_eq!(refused.code(), Some(-32602), "{tool}: {}", refused.raw);
    }
}

#[test]
fn a_task_of_a_tool_for_apps_is_unknown_to_clients_without_them() {
    let setup = GatewaySetup::new();
    let capabilities = json!({"tools": {}, "extensions": {TASKS: {}, UI: {}}});
    let discovered = json!({"resultType": "complete", "supportedVersions": ["2026-07-28"], "ttlMs": 0,
        "cacheScope": "private", "capabilities": capabilities});
    let task = json!({"resultType": "task", "taskId": "t", "status": "working", "createdAt": "2026-01-01T00:00:00Z",
        "lastUpdatedAt": "2026-01-01T00:00:00Z", "ttlMs": 60000});
    let mut got = task.clone();
    got["resultType"] = json!("complete");
    let answer = |result: &Value| json!([format!(r#"{{"jsonrpc":"2.0","id":${{ID}},"result":{result}}}"#)]);
    let script = json!({"server/discover": answer(&discovered), "tools/call/extra_0000": answer(&task),
        "tasks/get": answer(&got)});
    let script = setup.world.write("work/script.json", &script.to_string());
    let fake = Fake::stdio("modern").with("--tools", "2").with("--script", script.to_str().unwrap());
    let fake = patched(&setup, "fx", fake, &lists());
    let gateway = setup.fake("fx", &fake).start();
    gateway.wait_for_tools(&["fx__extra_0001"]);
    let mut capabilities = host(false);
    capabilities["extensions"][TASKS] = json!({});
    let mut with = client(&gateway, ClientEra::Modern, capabilities);
    let mut without = client(&gateway, ClientEra::Modern, json!({"extensions": {TASKS: {}}}));
    let made = with.call("fx__extra_0000", json!({}));
    let id = json!({"taskId": made.result()["taskId"]});
    assert_eq!(with.request("tasks/get", id.clone()).result()["status"], "working", "{}", made.raw);
    assert_eq!(without.request("tasks/get", id).code(), Some(-32602));
}

#[test]
fn a_session_that_outlives_a_restart_keeps_its_apps() {
    let setup = GatewaySetup::new();
    let patch = Patch::new(&setup);
    patch.write(&lists());
    let gateway = setup.fake("fx", &patch.of(Fake::stdio("both").with("--tools", "2"))).start();
    gateway.wait_for_tools(&["fx__extra_0001"]);
    let mut clients = [host(false), json!({})].map(|capabilities| client(&gateway, ClientEra::LEGACY, capabilities));
    assert!(clients.iter().all(|client| client.session().unwrap().len() <= 128));
    let gateway = gateway.restart();
    let seen = clients.each_mut().map(|client| {
        client.follow(gateway.address);
        meta(client, "fx__extra_0000").is_some()
    });
    assert_eq!(seen, [true, false]);
}
