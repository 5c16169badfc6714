//! Tests that the messages of a call reach that call's client and no other, byte for byte.

use std::fmt::Write as _;
use std::net::SocketAddr;
use std::time::Duration;

use serde_json::value::RawValue;
use serde_json::{Value, json};

use crate::stage::harness::GatewaySetup;
use crate::stage::mcp::{ClientEra, Mcp, McpAnswer};
use crate::stage::now;
use crate::stage::process::eventually;
use crate::stage::upstream::{Fake, InputLog, Listening};

#[test]
fn progress_reaches_the_call_that_asked_with_its_own_token() {
    for upstream in ["legacy", "modern"] {
        let gateway = GatewaySetup::new().fake("fx", &Fake::stdio(upstream)).start();
        gateway.wait_for_tools(&["fx__progress"]);
        for (era, token) in [
            (ClientEra::LEGACY, json!("mine")),
            (ClientEra::LEGACY, json!(7)),
            (ClientEra::Modern, json!("mine")),
            (ClientEra::Modern, json!(7)),
        ] {
            let answer = progress(&mut gateway.client(era), &token, 3);
            assert!(!answer.is_error(), "{}", answer.raw);
            assert!(!answer.notices.is_empty(), "{era:?} {upstream}: no progress came");
            assert_only_progress_of(&answer, &token, &format!("{era:?} {upstream}"));
        }
        let silent = gateway.modern().call("fx__progress", json!({"steps": 3, "delay_ms": 1}));
        assert!(silent.notices.is_empty(), "nobody asked: {:?}", silent.notices);
    }
}

#[test]
fn progress_of_an_http_upstream_arrives_while_the_call_runs() {
    let server = Fake::http("modern").with("--answers", "sse").spawn();
    let gateway = GatewaySetup::new().url("fx", &server.url).start();
    gateway.wait_for_tools(&["fx__progress"]);
    let params =
        json!({"name": "fx__progress", "arguments": {"steps": 3, "delay_ms": 300}, "_meta": {"progressToken": "t"}});
    let mut client = gateway.modern();
    let mut call = client.open("tools/call", params);
    let first = call.next().unwrap();
    assert_eq!(first["method"], "notifications/progress", "{first}");
    assert!(call.response()["result"].is_object());
}

#[test]
fn a_call_that_waits_in_line_is_refused_in_time_whatever_its_stream_says_meanwhile() {
    let setup = GatewaySetup::new().server("limits.keepalive = \"1s\"");
    let log = InputLog::new(&setup.world.path("work"), "fx");
    let fake = Fake::stdio("both").logging(&log).command();
    // The queue lasts longer than headend waits before it answers with a stream.
    let upstream = format!("[upstreams.fx]\ncommand = {fake}\nmax-in-flight = 1\nqueue-timeout = \"5500ms\"");
    let gateway = setup.toml(&upstream).start();
    gateway.wait_for_tools(&["fx__sleep"]);
    let params = json!({"name": "fx__sleep", "arguments": {"ms": 60_000}});
    let _holds_the_place = gateway.modern().open("tools/call", params);
    eventually("the call arrives", || log.count("tools/call") == 1);
    for era in ClientEra::BOTH {
        let gateway = &gateway;
        {
            let begun = now();
            let answer = gateway.client(era).call("fx__echo", json!({"text": "a"}));
            assert_eq!(answer.result()["_meta"]["headend/refusal"]["reason"], "busy", "{era:?}: {}", answer.raw);
            assert!(now() - begun < Duration::from_secs(20), "{era:?}: after {:?}", now() - begun);
        }
    }
}

#[test]
fn hanging_up_cancels_a_modern_call_upstream() {
    let log = GatewaySetup::new();
    let record = InputLog::new(&log.world.path("work"), "fx");
    let gateway = log.fake("fx", &Fake::stdio("legacy").logging(&record)).start();
    gateway.wait_for_tools(&["fx__sleep"]);
    let mut client = gateway.modern();
    let call = client.open("tools/call", json!({"name": "fx__sleep", "arguments": {"ms": 60_000}}));
    eventually("the call arrives", || record.count("tools/call") == 1);
    drop(call);
    eventually("the cancellation arrives", || record.count("notifications/cancelled") == 1);
    let asked = id_of(&record.lines_with(&["\"method\":\"tools/call\""])[0], "id");
    let cancelled = id_of(&record.lines_with(&["notifications/cancelled"])[0], "requestId");
    assert_eq!(asked, cancelled, "it names the call that was sent");
}

#[test]
fn a_legacy_cancellation_reaches_the_upstream_under_our_id() {
    for upstream in ["legacy", "modern"] {
        let setup = GatewaySetup::new();
        let record = InputLog::new(&setup.world.path("work"), "fx");
        let gateway = setup.fake("fx", &Fake::stdio(upstream).logging(&record)).start();
        gateway.wait_for_tools(&["fx__sleep"]);
        let mut client = gateway.legacy();
        let call = client.open("tools/call", json!({"name": "fx__sleep", "arguments": {"ms": 60_000}}));
        eventually("the call arrives", || record.count("tools/call") == 1);
        client.notify("notifications/cancelled", json!({"requestId": call.id, "reason": "enough"}));
        eventually("the cancellation arrives", || record.count("notifications/cancelled") == 1);
        let asked = id_of(&record.lines_with(&["\"method\":\"tools/call\""])[0], "id");
        let cancelled = id_of(&record.lines_with(&["notifications/cancelled"])[0], "requestId");
        assert_eq!(asked, cancelled, "{upstream}");
        assert_eq!(gateway.legacy().call("fx__echo", json!({"text": "next"})).text(), "next", "{upstream}");
    }
}

#[test]
fn one_clients_cancellation_never_ends_anothers_call_of_the_same_id() {
    let setup = GatewaySetup::new();
    let record = InputLog::new(&setup.world.path("work"), "fx");
    let gateway = setup.fake("fx", &Fake::stdio("legacy").logging(&record)).start();
    gateway.wait_for_tools(&["fx__sleep"]);
    let (mut first, mut second) = (gateway.legacy(), gateway.legacy());
    let mut call = first.open("tools/call", json!({"name": "fx__sleep", "arguments": {"ms": 400}}));
    eventually("the call arrives", || record.count("tools/call") == 1);
    second.notify("notifications/cancelled", json!({"requestId": call.id}));
    assert!(call.response()["result"].is_object(), "the first client's call completes");
    assert_eq!(record.count("notifications/cancelled"), 0);
}

#[test]
fn results_and_arguments_pass_byte_for_byte() {
    for (upstream, era) in [
        ("legacy", ClientEra::LEGACY),
        ("modern", ClientEra::Modern),
        ("legacy", ClientEra::Modern),
        ("modern", ClientEra::LEGACY),
    ] {
        let at = format!("{era:?} before {upstream}");
        let setup = GatewaySetup::new();
        let record = InputLog::new(&setup.world.path("work"), "fx");
        let content = r#"[ {"text":"a\u00e9\/\ud83d\ude00 \u0000","type":"text","x-vendor":{"z":1,"a":2}},{"type":"text","text":""}]"#;
        let structured = r#"{"z":12345678901234567890123,"a":1.0e+2,"$defs":{"b":{"$anchor":"b"},"a":{}},"neg":-0,"long":0.1000000000000000055511151231257827}"#;
        let kind = if upstream == "modern" { r#""resultType":"complete","# } else { "" };
        let result = format!("{{{kind}\"content\":{content},\"structuredContent\":{structured},\"x-unknown\":[1, 2]}}");
        let file = setup.world.write("work/result.json", &result);
        let gateway = setup.fake("fx", &Fake::stdio(upstream).logging(&record)).start();
        gateway.wait_for_tools(&["fx__raw"]);
        let mut client = gateway.client(era);

        let answer = client.call("fx__raw", json!({"file": file}));
        for part in [content, structured, "\"x-unknown\":[1, 2]"] {
            assert!(answer.raw.contains(part), "{at}: {part} is not in {}", answer.raw);
        }
        if matches!((upstream, era), ("legacy", ClientEra::Legacy(_))) {
            assert!(answer.raw.contains(&result), "{at}: the whole result passes: {}", answer.raw);
        }

        let arguments = r#"{"text":"\u00e9\/","z":12345678901234567890123,"a":{"b":-0.0,"a":1e2}}"#;
        let body = raw_call(&client, "fx__echo", arguments);
        let headers = client.headers("tools/call", &json!({"name": "fx__echo"}));
        let echoed = client.exchange(&json!(4711), &headers, &body);
        assert_eq!(echoed.message["id"], 4711, "{at}");
        assert_eq!(record.lines_with(&[arguments]).len(), 1, "{at}: the arguments arrive as they were written");
    }
}

#[test]
fn a_megabyte_passes_both_ways() {
    let setup = GatewaySetup::new();
    let blob = "QUJD".repeat(256 * 1024);
    let result = format!(r#"{{"content":[{{"type":"image","mimeType":"image/png","data":"{blob}"}}]}}"#);
    let file = setup.world.write("work/blob.json", &result);
    let server = Fake::http("both").spawn();
    let gateway = setup.fake("fx", &Fake::stdio("legacy")).url("web", &server.url).start();
    gateway.wait_for_tools(&["fx__raw", "web__raw"]);
    for (name, era) in
        [("fx", ClientEra::LEGACY), ("fx", ClientEra::Modern), ("web", ClientEra::LEGACY), ("web", ClientEra::Modern)]
    {
        let mut client = gateway.client(era);
        let down = client.call(&format!("{name}__raw"), json!({"file": file}));
        assert_eq!(down.result()["content"][0]["data"], blob.as_str(), "{name} {era:?}");
        let up = client.call(&format!("{name}__echo"), json!({"text": blob}));
        assert!(up.text() == blob, "{name} {era:?}: {} bytes came back", up.text().len());
    }
}

#[test]
fn definitions_differ_from_the_upstreams_own_by_their_name_only() {
    let server = Fake::http("legacy").spawn();
    let own = definitions(&mut direct(&server));
    let gateway = GatewaySetup::new().url("fx", &server.url).start();
    gateway.wait_for_tools(&["fx__echo"]);
    let exposed = definitions(&mut gateway.legacy());
    for (name, members) in own {
        let Some((_, shown)) = exposed.iter().find(|(shown, _)| *shown == format!("fx__{name}")) else {
            panic!("{name} is not exposed");
        };
        for (member, text) in members.iter().filter(|(member, _)| member != "name") {
            let found = shown.iter().find(|(name, _)| name == member).map(|(_, text)| text);
            assert_eq!(found, Some(text), "{name}.{member}");
        }
    }
}

#[test]
fn long_lists_are_read_to_their_last_page() {
    let fake = Fake::stdio("legacy").with("--tools", "250").with("--page-size", "7");
    let gateway = GatewaySetup::new().fake("fx", &fake).start();
    gateway.wait_for_tools(&["fx__echo"]);
    for era in ClientEra::BOTH {
        let listed = gateway.client(era).tool_names();
        let mut unique = listed.clone();
        unique.sort();
        unique.dedup();
        assert!(listed.len() >= 250, "{era:?}: {}", listed.len());
        assert_eq!(unique.len(), listed.len(), "{era:?}: nothing twice");
        assert_eq!(listed, gateway.client(era).tool_names(), "{era:?}: the order is stable");
    }
}

/// Returns the members of each tool's definition, as written.
fn definitions(client: &mut Mcp) -> Vec<(String, Vec<(String, String)>)> {
    #[derive(serde::Deserialize)]
    struct ToolListResponse {
        result: ToolListResult,
    }
    #[derive(serde::Deserialize)]
    struct ToolListResult {
        tools: Vec<std::collections::BTreeMap<String, Box<RawValue>>>,
    }
    let answer = client.request("tools/list", json!({}));
    let page: ToolListResponse = serde_json::from_str(&answer.raw).unwrap();
    let tool = |members: std::collections::BTreeMap<String, Box<RawValue>>| {
        let name = serde_json::from_str(members["name"].get()).unwrap();
        (name, members.into_iter().map(|(name, text)| (name, text.get().to_owned())).collect())
    };
    page.result.tools.into_iter().map(tool).collect()
}

/// Connects a client to the upstream directly.
fn direct(server: &Listening) -> Mcp {
    let address: SocketAddr = server.url.trim_start_matches("http://").split('/').next().unwrap().parse().unwrap();
    let path =
        server.url.trim_start_matches("http://").split_once('/').map_or(String::new(), |(_, path)| format!("/{path}"));
    Mcp::http_at(address, None, ClientEra::LEGACY, &path, json!({}))
}

fn progress(client: &mut Mcp, token: &Value, steps: u32) -> McpAnswer {
    let arguments = json!({"steps": steps, "delay_ms": 1});
    client.request(
        "tools/call",
        json!({"name": "fx__progress", "arguments": arguments, "_meta": {"progressToken": token}}),
    )
}

fn assert_only_progress_of(answer: &McpAnswer, token: &Value, at: &str) {
    let mut last = f64::MIN;
    for notice in &answer.notices {
        assert_eq!(notice["method"], "notifications/progress", "{at}: {notice}");
        assert_eq!(&notice["params"]["progressToken"], token, "{at}: {notice}");
        let progress = notice["params"]["progress"].as_f64().unwrap();
        assert!(progress > last, "{at}: progress grows: {notice}");
        last = progress;
    }
}

/// Returns the value of a member in a logged line, as text.
fn id_of(line: &str, member: &str) -> String {
    let rest = line.split(&format!("\"{member}\":")).nth(1).unwrap_or_else(|| panic!("no {member} in {line}"));
    rest.chars().take_while(|c| !matches!(c, ',' | '}')).collect()
}

/// Returns the body of a call with these arguments, verbatim.
fn raw_call(client: &Mcp, name: &str, arguments: &str) -> String {
    let mut params = client.dress(json!({"name": name}));
    params["arguments"] = json!("@@");
    let body = json!({"jsonrpc": "2.0", "id": 4711, "method": "tools/call", "params": params}).to_string();
    body.replace("\"@@\"", arguments)
}
