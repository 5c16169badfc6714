//! Tests of servers and hosts that write messages against the protocol. A message with one possible
//! reading is read so, and counted for servers; an unreadable one ends its request at once and is
//! named.

use std::time::Duration;

use serde_json::{Value, json};

use crate::stage::harness::status_of;
use crate::stage::harness::{Gateway, GatewaySetup};
use crate::stage::http;
use crate::stage::mcp::{ClientEra, Mcp, names};
use crate::stage::now;
use crate::stage::old_client::OldClient;
use crate::stage::process::{eventually, said, within};
use crate::stage::upstream::{Fake, Listening};

/// Far less than the time limit of a call or a start.
const SOON: Duration = Duration::from_secs(20);

/// Returns a server of each era on each transport, over HTTP with JSON and with event streams.
fn everywhere() -> [Fake; 6] {
    let streams = Fake::http("legacy").with("--answers", "sse");
    [Fake::stdio("legacy"), Fake::stdio("modern"), Fake::http("legacy"), Fake::http("modern"), streams, Fake::sse()]
}

fn before(fake: &Fake) -> (Gateway, Option<Listening>) {
    let setup = GatewaySetup::new();
    if fake.command().contains("\"stdio\"") {
        return (setup.fake("fx", fake).start(), None);
    }
    let server = fake.spawn();
    (setup.url("fx", &server.url).start(), Some(server))
}

/// Returns the message flaws of the server in `headend status`.
fn flaws(gateway: &Gateway) -> String {
    status_of(gateway, "fx")["message-flaws"].to_string()
}

fn logs(gateway: &Gateway) -> String {
    said(&gateway.run(&["logs", "fx"]))
}

#[test]
fn a_message_with_one_reading_is_read_so_and_counted() {
    for (slip, line) in [
        ("text-id", "came back as a text or a fraction"),
        ("fraction-id", "came back as a text or a fraction"),
        ("nulls", "was `null`"),
        ("array", "in an array"),
        ("optional-nulls", "an optional member of a message was `null`"),
    ] {
        for fake in everywhere() {
            let command = fake.command();
            let (gateway, _server) = before(&fake.with("--slip", slip));
            gateway.wait_for_tools_within(SOON, &["fx__echo"]);
            for era in ClientEra::BOTH {
                let mut client = gateway.client(era);
                let answer = client.call("fx__echo", json!({"text": "hi"}));
                assert_eq!(answer.text(), "hi", "{slip}, {command}: {}", answer.raw);
                let prompt = client.request("prompts/get", json!({"name": "fx__p"}));
                assert!(prompt.message.get("result").is_some(), "{slip}, {command}: {}", prompt.raw);
                let resource = client.request("resources/read", json!({"uri": "fx+fx://doc/1"}));
                let plain = client.request("resources/read", json!({"uri": "fx://doc/1"}));
                let is_read = [&resource, &plain].iter().any(|answer| answer.message.get("result").is_some());
                assert!(is_read, "{slip}, {command}: {} {}", resource.raw, plain.raw);
            }
            assert!(flaws(&gateway).contains(line), "{slip}, {command}: {}", flaws(&gateway));
            let shown = said(&gateway.run(&["status", "fx"]));
            assert!(shown.contains(line), "{slip}, {command}: {shown}");
        }
    }
}

#[test]
fn no_client_gets_a_null_for_an_absent_member() {
    for fake in everywhere() {
        let command = fake.command();
        let (gateway, _server) = before(&fake.with("--slip", "optional-nulls"));
        gateway.wait_for_tools_within(SOON, &["fx__echo"]);
        for era in ClientEra::BOTH {
            let mut client = gateway.client(era);
            for (method, params) in [
                ("tools/list", json!({})),
                ("prompts/list", json!({})),
                ("resources/list", json!({})),
                ("resources/templates/list", json!({})),
                ("tools/call", json!({"name": "fx__echo", "arguments": {"text": "hi"}})),
                ("prompts/get", json!({"name": "fx__p"})),
                ("resources/read", json!({"uri": "fx://doc/1"})),
                ("resources/read", json!({"uri": "fx+fx://doc/1"})),
            ] {
                let answer = client.request(method, params);
                assert!(!answer.raw.contains(":null"), "{method}, {command}: {}", answer.raw);
            }
        }
    }
}

#[test]
fn a_list_that_is_null_is_empty_and_an_empty_cursor_behind_the_last_page_is_none() {
    let answer = |result: Value| json!({"jsonrpc": "2.0", "id": "ID", "result": result}).to_string();
    let answer = |result: Value| answer(result).replace("\"ID\"", "${ID}");
    let tool = json!({"name": "echo", "inputSchema": {"type": "object", "properties": null, "required": null}});
    let lines = json!({
        "tools/list": [answer(json!({"tools": [tool], "nextCursor": ""}))],
        "prompts/list": [answer(json!({"prompts": null}))],
        "resources/list": [answer(json!({"resources": [], "nextCursor": 7}))],
    });
    for fake in everywhere() {
        let command = fake.command();
        let setup = GatewaySetup::new();
        let path = setup.world.write("script.json", &lines.to_string());
        let (gateway, _server) = before(&fake.with("--script", path.to_str().unwrap()));
        gateway.wait_for_tools_within(SOON, &["fx__echo"]);
        assert_eq!(gateway.modern().call("fx__echo", json!({"text": "hi"})).text(), "hi", "{command}");
        eventually("all lists are read", || flaws(&gateway).contains("a list was `null`"));
        let told = flaws(&gateway);
        assert!(told.contains("`nextCursor` was an empty text behind the last page"), "{command}: {told}");
        let status = status_of(&gateway, "fx").to_string();
        assert!(status.contains("`nextCursor` of its answer is neither a text nor left out"), "{command}: {status}");
    }
}

#[test]
fn an_answer_that_is_too_large_too_deep_or_of_no_request_is_named() {
    let deep = format!("{}{}", "[".repeat(300), "]".repeat(300));
    let head = r#"{"jsonrpc":"2.0","id":${ID},"result":{"secret-x":"#;
    let lines = json!({
        "tools/call/echo": [{"head": format!("{head}\""), "unit": "x", "count": 100_000, "tail": "\"}}"}],
        "tools/call/fail": [format!("{head}{deep}}}}}")],
        "prompts/get": [r#"{"jsonrpc":"2.0","id":987654,"result":{"secret-x":1}}"#],
    });
    let limits = "limits.max-result = \"64KiB\"\nlimits.max-upstream-result = \"64KiB\"";
    for fake in everywhere() {
        let command = fake.command();
        let setup = GatewaySetup::new().server(limits);
        let path = setup.world.write("script.json", &lines.to_string());
        let fake = fake.with("--script", path.to_str().unwrap());
        let is_stdio = command.contains("\"stdio\"");
        let server = (!is_stdio).then(|| fake.spawn());
        let gateway = match &server {
            Some(server) => setup.toml(&format!("[upstreams.fx]\nurl = \"{}\"\ncall-timeout = \"2s\"", server.url)),
            None => setup.toml(&format!("[upstreams.fx]\ncommand = {}\ncall-timeout = \"2s\"", fake.command())),
        };
        let gateway = gateway.start();
        gateway.wait_for_tools_within(SOON, &["fx__echo", "fx__fail"]);
        let mut client = gateway.modern();
        client.call("fx__echo", json!({"text": "hi"}));
        client.call("fx__fail", json!({}));
        client.request("prompts/get", json!({"name": "fx__p"}));
        let logs = logs(&gateway);
        let is_large = ["over the size limit", "is larger than 65536 bytes"];
        assert!(is_large.iter().any(|why| logs.contains(&format!("{why}; it begins: "))), "{command}: {logs}");
        assert!(logs.contains("nested too deeply; it begins: "), "{command}: {logs}");
        let is_told = ["an answer to no request that is open", "the answer has another request's id (987654)"];
        assert!(is_told.iter().any(|why| logs.contains(why)), "{command}: {logs}");
        assert_eq!(logs.matches("secret-x").count(), 3, "{command}: {logs}");
        assert!(flaws(&gateway).contains("could not be read (messages: 3)"), "{command}: {}", flaws(&gateway));
    }
}

/// Returns a script in which a tool, a prompt and a resource answer with that text.
fn script(text: &str) -> String {
    json!({"tools/call/echo": [text], "prompts/get": [text], "resources/read": [text]}).to_string()
}

#[test]
fn an_answer_that_cannot_be_read_ends_its_request_at_once_and_is_named() {
    for (label, text, why) in [
        ("NaN", r#"{"jsonrpc":"2.0","id":${ID},"result":{"content":[],"secret-x":NaN}}"#, "`NaN`"),
        ("id last", r#"{"result":{"content":[],"secret-x":-Infinity},"jsonrpc":"2.0","id":${ID}}"#, "`-Infinity`"),
        ("cut", r#"{"jsonrpc":"2.0","id":${ID},"result":{"content":[],"secret-x":1"#, "without its end"),
        ("control", "{\"jsonrpc\":\"2.0\",\"id\":${ID},\"result\":{\"secret-x\":\"\u{1}\"}}", "control character"),
        ("Latin-1", "{\"jsonrpc\":\"2.0\",\"id\":${ID},\"result\":{\"secret-x\":\"caf\u{e000}\"}}", "not UTF-8"),
        ("version", r#"{"id":${ID},"result":{"content":[],"secret-x":1}}"#, "`jsonrpc` must be"),
    ] {
        for fake in everywhere() {
            let command = fake.command();
            let setup = GatewaySetup::new();
            let path = setup.world.write("script.json", &script(text));
            let (gateway, _server) = before(&fake.with("--script", path.to_str().unwrap()));
            gateway.wait_for_tools(&["fx__echo"]);
            let mut client = gateway.modern();
            let begun = now();
            let called = client.call("fx__echo", json!({"text": "hi"}));
            let prompt = client.request("prompts/get", json!({"name": "fx__p"}));
            assert!((now() - begun) < SOON, "{label}, {command}: {:?}", (now() - begun));
            assert!(called.raw.contains("upstream_protocol"), "{label}, {command}: {}", called.raw);
            assert!(prompt.raw.contains("upstream_protocol"), "{label}, {command}: {}", prompt.raw);
            let sleeps = client.call("fx__sleep", json!({"ms": 0}));
            assert_eq!(sleeps.text(), "slept", "{label}, {command}: others go on");
            let last = status_of(&gateway, "fx")["last-error"].to_string();
            for (place, shown) in [("logs", logs(&gateway)), ("last error", last), ("status", flaws(&gateway))] {
                assert!(shown.contains(why), "{label}, {command}, {place}: {shown}");
                assert!(shown.contains("secret-x"), "{label}, {command}, {place}: {shown}");
            }
            let story = gateway.story();
            assert!(!story.contains("secret-x"), "{label}, {command}: {story}");
        }
    }
}

#[test]
fn a_handshake_whose_answer_cannot_be_read_says_so() {
    let pretty = "{\n  \"jsonrpc\": \"2.0\",\n  \"id\": 1,\n  \"result\": {}\n}";
    let framed = "Content-Length: 40\r\n\r\n{\"jsonrpc\":\"2.0\",\"id\":1,\"result\":{}}";
    for (label, slip, text, why) in [
        ("no version", Some("no-version"), "", "`jsonrpc` must be"),
        ("NaN", Some("nan"), "", "`NaN`"),
        ("pretty", None, pretty, "without its end"),
        ("framed", None, framed, "as in LSP"),
    ] {
        let setup = GatewaySetup::new();
        let mut fake = Fake::stdio("legacy");
        if let Some(slip) = slip {
            fake = fake.with("--slip", slip);
        } else {
            let lines = json!({"initialize": [text], "server/discover": [text]});
            fake = fake.with("--script", setup.world.write("script.json", &lines.to_string()).to_str().unwrap());
        }
        let gateway = setup.fake("fx", &fake).toml("start-timeout = \"3s\"").start();
        within(SOON, &format!("{label} is named"), || {
            let last = status_of(&gateway, "fx")["last-error"].as_str().unwrap_or_default().to_owned();
            last.contains(why) && last.contains("no JSON-RPC message") && last.contains("begins")
        });
        assert!(logs(&gateway).contains(why), "{label}: {}", logs(&gateway));
    }
}

#[test]
fn the_time_of_a_start_is_not_waited_for_where_the_answer_is_there() {
    for fake in [Fake::stdio("legacy"), Fake::sse(), Fake::http("legacy")] {
        let command = fake.command();
        let (gateway, _server) = before(&fake.with("--slip", "no-version"));
        within(SOON, &format!("{command} is down"), || status_of(&gateway, "fx")["state"] == "down");
    }
}

#[test]
fn structured_content_that_is_null_is_absent_where_the_server_is_legacy() {
    let answer = |more: &str| {
        format!(
            r#"{{"jsonrpc":"2.0","id":${{ID}},"result":{{"content":[{{"type":"text","text":"answer 42"}}],"structuredContent":null{more}}}}}"#
        )
    };
    let lines = json!({"tools/call/echo": [answer("")], "tools/call/fail": [answer(",\"isError\":true")]});
    for fake in [Fake::stdio("legacy"), Fake::http("legacy"), Fake::sse()] {
        let command = fake.command();
        let setup = GatewaySetup::new();
        let path = setup.world.write("script.json", &lines.to_string());
        let (gateway, _server) = before(&fake.with("--script", path.to_str().unwrap()));
        gateway.wait_for_tools(&["fx__echo", "fx__fail"]);
        for era in
            [ClientEra::Modern, ClientEra::LEGACY, ClientEra::Legacy("2025-06-18"), ClientEra::Legacy("2025-03-26")]
        {
            for tool in ["fx__echo", "fx__fail"] {
                let answer = gateway.client(era).call(tool, json!({}));
                assert_eq!(answer.text(), "answer 42", "{era:?}, {command}: {}", answer.raw);
                let structured = answer.message["result"].get("structuredContent");
                assert_eq!(structured, None::<&Value>, "{era:?}, {tool}, {command}: {}", answer.raw);
            }
        }
        eventually("it is counted", || flaws(&gateway).contains("structuredContent"));
    }
}

#[test]
fn nulls_of_hosts_are_absent_on_every_face() {
    let gateway = GatewaySetup::new().server("legacy-sse = true").fake("fx", &Fake::stdio("both")).start();
    gateway.wait_for_tools(&["fx__echo", "fx__sleep"]);
    let nulls = json!({"name": "fx__sleep", "arguments": null, "_meta": null});
    let token = json!({"name": "fx__sleep", "arguments": {"ms": 0}, "_meta": {"progressToken": null}});
    let prompt = json!({"name": "fx__p", "arguments": null, "_meta": {"progressToken": null}});
    let asked = [
        ("ping", Value::Null),
        ("tools/list", Value::Null),
        ("prompts/list", Value::Null),
        ("tools/call", nulls),
        ("tools/call", token.clone()),
        ("prompts/get", prompt.clone()),
    ];
    let mut http = gateway.legacy();
    let mut pipe = Mcp::stdio(gateway.pipe(), ClientEra::LEGACY);
    let mut old = OldClient::connect(&gateway, gateway.token(), "/sse");
    old.initialize("2024-11-05");
    for (method, params) in asked {
        for (face, message) in [
            ("http", http.request(method, params.clone()).message),
            ("stdio", pipe.request(method, params.clone()).message),
            ("sse", old.request(method, params.clone())),
        ] {
            assert!(message.get("result").is_some(), "{face}: {method} {params}: {message}");
        }
    }
    for (method, mut params) in [("tools/call", token), ("prompts/get", prompt)] {
        params["arguments"] = Value::Null;
        let answer = gateway.modern().request(method, params);
        assert!(answer.message.get("result").is_some(), "{method}: {}", answer.raw);
    }
}

#[test]
fn a_slash_after_the_endpoint_or_its_profile_means_the_same() {
    let profile = "[profiles.few]\ntools = { allow = [\"fx__s*\"] }";
    let setup = GatewaySetup::new().server("legacy-sse = true").toml(profile);
    let gateway = setup.fake("fx", &Fake::stdio("both")).start();
    gateway.wait_for_tools(&["fx__echo", "fx__sleep"]);
    let shows = |path: &str| {
        let mut client = Mcp::http_at(gateway.address, gateway.token(), ClientEra::LEGACY, path, json!({}));
        names(&client.list("tools/list", "tools"))
    };
    assert_eq!(shows("/mcp/"), shows("/mcp"));
    assert_eq!(shows("/mcp/few/"), shows("/mcp/few"));
    assert_ne!(shows("/mcp/few/"), shows("/mcp/"));
    let mut modern = Mcp::http_at(gateway.address, gateway.token(), ClientEra::Modern, "/mcp/", json!({}));
    assert_eq!(modern.call("fx__echo", json!({"text": "hi"})).text(), "hi");
    OldClient::connect(&gateway, gateway.token(), "/sse/few/").initialize("2024-11-05");
    for path in ["/mcp//", "/mcp/few//", "/mcp//few", "/mcp/none/", "/mcpx/", "/"] {
        assert_eq!(http::get(gateway.address, path).unwrap().head.status, 404, "{path}");
    }
}
