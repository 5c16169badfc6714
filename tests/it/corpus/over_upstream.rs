//! Plays a case in which the upstream misbehaves, and checks the effects that clients and the
//! upstream see.

use std::time::{Duration, Instant};

use serde_json::{Value, json};

use super::case::{Case, gzip_of_zeros};
use super::judge;
use super::over_stdio::peak;
use super::raw_server::{Canary, RawRequest, RawServer, dressed, response};
use crate::tools::harness::{Gateway, GatewaySetup};
use crate::tools::mcp::{ClientEra, Mcp, McpAnswer};
use crate::tools::process::{resident, within};
use crate::tools::upstream::{Fake, InputLog};

const MIB: usize = 1024 * 1024;
/// Most items of one kind that are offered: the default of `max-inventory`.
const OFFERED: usize = 10_000;
/// A correct answer, for scripts.
const GOOD: &str =
    r#"{"jsonrpc":"2.0","id":${ID},"result":{"resultType":"complete","content":[{"type":"text","text":"normal"}]}}"#;
const CHANGED: &str = r#"{"jsonrpc":"2.0","method":"notifications/tools/list_changed"}"#;

/// Plays the case with an upstream of each of its eras, and returns the differences.
pub(super) fn play(case: &Case) -> Vec<String> {
    let eras: &[&str] = match case.era.as_str() {
        "any" => &["legacy", "modern"],
        "2026-07-28" => &["modern"],
        _ => &["legacy"],
    };
    let over_http = case.transport == "upstream-http";
    let play = |era: &str| if over_http { answers_over_http(case, era) } else { over_stdio(case, era) };
    eras.iter().flat_map(|era| play(era).into_iter().map(move |why| format!("{era}: {why}"))).collect()
}

/// A flood may keep a busy machine for minutes.
const PATIENCE: &str = "start-timeout = \"10m\"\ncall-timeout = \"10m\"\ncall-max = \"10m\"";

/// A gateway with the upstream `bad`, and with `fx` beside it, which must not be affected.
struct BadUpstreamGateway {
    gateway: Gateway,
    log: InputLog,
}

impl BadUpstreamGateway {
    fn new(era: &str, script: &Value) -> Self {
        Self::of(era, script, |fake| fake)
    }

    fn of(era: &str, script: &Value, change: impl Fn(Fake) -> Fake) -> Self {
        let setup = GatewaySetup::new();
        let path = setup.world.write("work/script.json", &script.to_string());
        let log = InputLog::new(&setup.world.path("work"), "bad");
        let fake = change(Fake::stdio(era).with("--script", path.to_str().unwrap()).logging(&log));
        let setup = setup.fake("fx", &Fake::stdio("both")).fake("bad", &fake).toml(PATIENCE);
        let gateway = setup.start();
        gateway.wait_for_tools(&["fx__echo"]);
        Self { gateway, log }
    }

    /// Creates the upstream of the case, ready for calls.
    fn called(era: &str, script: &Value) -> Self {
        let scene = Self::new(era, script);
        scene.gateway.wait_for_tools(&["bad__echo"]);
        scene
    }

    fn client(&self) -> Mcp {
        self.gateway.modern()
    }

    fn call(&self) -> McpAnswer {
        self.client().call("bad__echo", json!({}))
    }

    /// Checks that the upstream is the same process as before and serves another call, and so does
    /// its neighbour.
    fn lives_on(&self) -> Vec<String> {
        let mut wrong = Vec::new();
        for tool in ["bad__sleep", "fx__sleep"] {
            let answer = self.client().call(tool, json!({"ms": 0}));
            if answer.message.pointer("/result/content/0/text") != Some(&json!("slept")) {
                wrong.push(format!("{tool} afterwards: {}", answer.raw));
            }
        }
        let scraped = self.gateway.scrape();
        let restarted = |line: &&str| line.starts_with("headend_upstream_restarts_total{upstream=\"bad\"}");
        wrong.extend(scraped.lines().find(restarted).filter(|line| !line.ends_with(" 0")).map(str::to_owned));
        wrong
    }

    /// Returns the upstream's listed tools, once its lists have been read: something of each list
    /// is offered.
    fn listed(&self) -> Vec<Value> {
        let mut client = self.client();
        let mut tools = Vec::new();
        within(Duration::from_secs(600), "the lists of `bad` are read", || {
            let prompts = client.list("prompts/list", "prompts");
            tools = client.list("tools/list", "tools");
            tools.retain(|tool| tool["name"].as_str().is_some_and(|name| name.starts_with("bad__")));
            !tools.is_empty() && prompts.iter().any(|prompt| prompt["name"] == "bad__p")
        });
        tools
    }

    fn counted(&self, fault: &str) -> Option<String> {
        let line = format!("headend_upstream_faults_total{{fault=\"{fault}\",upstream=\"bad\"}}");
        (!self.gateway.scrape().contains(&line)).then(|| format!("{fault} was not counted"))
    }
}

fn over_stdio(case: &Case, era: &str) -> Vec<String> {
    match case.id.as_str() {
        "U01" | "U02" | "U11" | "U12" => noise(case, era),
        "U06" | "U07" => {
            let line = sent(case).replace("\"id\":1", "\"id\":${ID}");
            let scene = BadUpstreamGateway::called(era, &json!({"tools/call/echo": [line.trim_end()]}));
            let mut wrong = judge::rpc(case, &scene.call().message, false);
            wrong.extend(scene.lives_on());
            wrong
        }
        "U08" => too_much(case, era, &[json!({"unit": "x", "count": 50 * MIB})]),
        "U32" => too_much(case, era, &[long_text(10 * MIB), long_text(40 * MIB)]),
        "U13" => storm(case, era),
        "U14" | "U15" | "U16" | "U17" | "U18" | "U19" | "U20" | "U21" | "U34" => lists(case, era),
        "U27" => {
            let head = r#"{"jsonrpc":"2.0","id":${ID},"result":{"resultType":"input_required","requestState":""#;
            let line = json!({"head": head, "unit": "s", "count": 10 * MIB, "tail": "\"}}"});
            let scene = BadUpstreamGateway::called(era, &json!({"tools/call/echo": [line]}));
            let mut wrong = judge::rpc(case, &scene.call().message, false);
            wrong.extend(scene.lives_on());
            wrong
        }
        "U28" => foreign_state(case, era),
        "U36" => silent_at_discover(case, era),
        "U37" => speaks_nothing_known(era),
        other => panic!("{other}: the runner does not know how to play it"),
    }
}

fn sent(case: &Case) -> String {
    let bytes = data_encoding::BASE64.decode(case.text("upstream_sends_b64").as_bytes()).unwrap();
    String::from_utf8(bytes).unwrap()
}

/// Plays lines that belong to no call, before the answer to one and when none is in flight.
fn noise(case: &Case, era: &str) -> Vec<String> {
    let lines = sent(case);
    let scene =
        BadUpstreamGateway::called(era, &json!({"tools/call/echo": [lines.trim_end(), GOOD, lines.trim_end()]}));
    let mut client = scene.client();
    let params = json!({"name": "bad__echo", "arguments": {}, "_meta": {"progressToken": "mine"}});
    let answer = client.request("tools/call", params);
    let mut wrong = Vec::new();
    if answer.message.pointer("/result/content/0/text") != Some(&json!("normal")) || !answer.notices.is_empty() {
        wrong.push(format!("the client got {:?} {}", answer.notices, answer.raw));
    }
    wrong.extend(scene.lives_on());
    let fault = match case.id.as_str() {
        "U01" => "garbage",
        "U02" => "unknown_reply",
        "U11" => "refused_request",
        _ => "bad_progress",
    };
    wrong.extend(scene.counted(fault));
    let replies = scene.log.lines_with(&["\"error\""]);
    match case.expect("reply_to_upstream").map(Value::to_string) {
        Some(code) if replies.len() != 2 || !replies.iter().all(|reply| reply.contains(&code)) => {
            wrong.push(format!("the upstream was answered {replies:?}"));
        }
        None if !replies.is_empty() => wrong.push(format!("noise was answered {replies:?}")),
        Some(_) | None => {}
    }
    wrong
}

fn long_text(length: usize) -> Value {
    let head = r#"{"jsonrpc":"2.0","id":${ID},"result":{"resultType":"complete","content":[{"type":"text","text":""#;
    json!({"head": head, "unit": "t", "count": length, "tail": "\"}]}}"})
}

/// Plays answers over a limit. The caller of a tool gets a result that says `result_too_large`,
/// other callers -32603.
fn too_much(case: &Case, era: &str, lines: &[Value]) -> Vec<String> {
    let mut wrong = Vec::new();
    for line in lines {
        let scene = BadUpstreamGateway::called(era, &json!({"tools/call/echo": [line], "prompts/get": [line]}));
        let before = resident(scene.gateway.pid());
        let refusal = |answer: &McpAnswer, place: &str| {
            let reason = answer.message.pointer(&format!("{place}/reason")).cloned();
            (reason != Some(json!("result_too_large")))
                .then(|| format!("the reason is {reason:?}: {:.300}", answer.raw))
        };
        let answer = scene.call();
        let grown = peak(scene.gateway.pid()).saturating_sub(before) / MIB as u64;
        wrong.extend(refusal(&answer, "/result/_meta/headend~1refusal"));
        let answer = scene.client().request("prompts/get", json!({"name": "bad__p"}));
        wrong.extend(refusal(&answer, "/error/data"));
        wrong.extend(judge::rpc(case, &answer.message, false));
        wrong.extend(scene.lives_on());
        let most = case.expect("rss_growth_mib").and_then(Value::as_u64);
        wrong.extend(most.filter(|most| grown > *most).map(|_| format!("grew by {grown} MiB")));
    }
    wrong
}

/// Plays twenty thousand changes in two seconds, each of them a real one.
fn storm(_case: &Case, era: &str) -> Vec<String> {
    let tool = |name: &str| json!({"name": name, "inputSchema": {"type": "object"}});
    let list = json!({"resultType": "complete", "ttlMs": 0, "cacheScope": "private",
        "tools": [tool("echo"), tool("sleep"), tool("t${N}")]});
    let list = format!(r#"{{"jsonrpc":"2.0","id":${{ID}},"result":{list}}}"#);
    let flood = json!({"storm": CHANGED, "count": 10_000});
    let scene = BadUpstreamGateway::called(era, &json!({"tools/call/echo": [flood, GOOD], "tools/list": [list]}));
    let mut client = scene.client();
    let wanted = json!({"notifications": {"toolsListChanged": true}});
    let mut stream = client.open("subscriptions/listen", wanted);
    stream.next();
    let before = scene.log.count("tools/list");
    let mut wrong = Vec::new();
    let answer = client.call("bad__echo", json!({}));
    if answer.message.pointer("/result/content/0/text") != Some(&json!("normal")) {
        wrong.push(format!("the call got {}", answer.raw));
    }
    // The first change comes when the machine gets to it.
    let mut told = usize::from(matches!(stream.next_within(Duration::from_secs(60)), Ok(Some(_))));
    let begun = Instant::now();
    while let Ok(Some(_)) = stream.next_within(Duration::from_secs(3).saturating_sub(begun.elapsed())) {
        told += 1;
    }
    let asked = scene.log.count("tools/list") - before;
    // One each second, and a few at once at the beginning.
    if told > 8 || asked > 8 {
        wrong.push(format!("{told} changes told, {asked} lists read"));
    }
    if told == 0 {
        wrong.push(format!("no change was told, {asked} lists were read"));
    }
    wrong.extend(scene.lives_on());
    wrong
}

/// Plays the case's list in place of the upstream's own tools, always with one good tool after it.
fn lists(case: &Case, era: &str) -> Vec<String> {
    let canary = Canary::new();
    let object = || json!({"type": "object"});
    let tool = |name: &str| json!({"name": name, "inputSchema": object()});
    let with = |name: &str, member: &str, value: Value| {
        let mut tool = tool(name);
        tool[member] = value;
        tool
    };
    let address = canary.address();
    let bad: Vec<Value> = match case.id.as_str() {
        "U14" => vec![tool("t${N}")],
        "U15" => (0..100_000).map(|n| tool(&format!("t{n}"))).collect(),
        "U16" => ["one", "another"].map(|text| with("twin", "description", json!(text))).into(),
        "U17" => ["x\n", "\u{202e}evil", "p\u{430}y", &"x".repeat(300), ""].map(tool).into(),
        "U18" => {
            let hidden = "a\u{1b}[8mb\u{e0041}\u{e0020}c\u{202e}d\u{2066}e\u{200b}f\u{7f}g\u{9b}h";
            let schema = json!({"type": "object", "properties": {"p": {"type": "string", "description": hidden}}});
            let mut tool = with("hiding", "description", json!(hidden));
            tool["title"] = json!(hidden);
            tool["inputSchema"] = schema;
            vec![tool]
        }
        "U19" => vec![with("talkative", "description", json!("d".repeat(MIB)))],
        "U20" => ["http://169.254.169.254/x".to_owned(), format!("http://{address}/x")]
            .map(|uri| with("fetch", "inputSchema", json!({"type": "object", "properties": {"p": {"$ref": uri}}})))
            .into(),
        "U21" => vec![
            with("wide", "inputSchema", json!({"type": "object", "anyOf": vec![json!({}); 100_000]})),
            with("deep", "inputSchema", json!("DEEP")),
        ],
        "U34" => {
            let icon = |src: &str| json!({"src": src, "mimeType": "image/png"});
            let picture = with(
                "picture",
                "icons",
                json!([
                    {"src": "data:image/svg+xml;base64,PHN2Zy8+", "mimeType": "image/svg+xml"},
                    icon("http://169.254.169.254/i.png"), icon(&format!("http://{address}/i.png")),
                ]),
            );
            vec![picture]
        }
        other => panic!("{other}: the runner does not know this list"),
    };
    let next = if case.id == "U14" { r#","nextCursor":"c${N}""# } else { "" };
    let tools = bad.into_iter().chain([tool("good"), tool("sleep")]).map(|tool| tool.to_string());
    let tools = tools.collect::<Vec<_>>().join(",");
    let tools = tools.replace("\"DEEP\"", &format!("{}{{}}{}", "{\"not\":".repeat(1000), "}".repeat(1000)));
    let list = format!(
        r#"{{"jsonrpc":"2.0","id":${{ID}},"result":{{"resultType":"complete","ttlMs":0,"cacheScope":"private","tools":[{tools}]{next}}}}}"#
    );
    let scene = BadUpstreamGateway::new(era, &json!({ "tools/list": [list] }));
    let listed = scene.listed();
    let names: Vec<&str> = listed.iter().filter_map(|tool| tool["name"].as_str()).collect();
    let mut wrong: Vec<String> = canary.touched().into_iter().collect();
    let all_but_these = |wanted: &[&str]| (names != wanted).then(|| format!("listed are {names:.200?}"));
    match case.id.as_str() {
        "U14" => {
            let asked = scene.log.count("tools/list");
            let pages = names.iter().filter(|name| name.starts_with("bad__t")).count();
            if pages > OFFERED || asked > OFFERED + 100 {
                wrong.push(format!("{pages} pages are listed, {asked} were read"));
            }
        }
        "U15" => {
            let first: Vec<String> = (0..OFFERED).map(|n| format!("bad__t{n}")).collect();
            wrong.extend((names != first).then(|| format!("listed are {} tools: {names:.200?}", names.len())));
        }
        "U18" => {
            let text = listed.iter().map(Value::to_string).collect::<String>();
            let bad = |c: &char| matches!(*c, '\u{1b}' | '\u{7f}'..='\u{9f}' | '\u{200b}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}' | '\u{e0000}'..='\u{e007f}');
            wrong.extend(text.chars().find(bad).map(|c| format!("the client sees {c:?} in {text:.300}")));
            if text.contains("\\u001b") {
                wrong.push("the client sees an escape character".to_owned());
            }
        }
        "U34" => {
            let icons: Vec<&Value> =
                listed.iter().flat_map(|tool| tool["icons"].as_array().into_iter().flatten()).collect();
            wrong.extend((!icons.is_empty()).then(|| format!("the client sees {icons:?}")));
            wrong.extend(all_but_these(&["bad__picture", "bad__good", "bad__sleep"]));
        }
        _ => wrong.extend(all_but_these(&["bad__good", "bad__sleep"])),
    }
    if scene.gateway.stderr.all().iter().any(|line| line.contains('\u{1b}')) {
        wrong.push("an escape character reached the log".to_owned());
    }
    if case.id != "U15" {
        wrong.extend(scene.lives_on());
    }
    wrong
}

/// Plays the state of one upstream, sent with the same call to another one.
fn foreign_state(case: &Case, era: &str) -> Vec<String> {
    let line = r#"{"jsonrpc":"2.0","id":${ID},"result":{"resultType":"input_required","requestState":"inner"}}"#;
    let scene = BadUpstreamGateway::called(era, &json!({"tools/call/echo": [line]}));
    let mut client = scene.client();
    let asked = client.call("bad__echo", json!({}));
    let state = asked.message.pointer("/result/requestState").cloned().unwrap_or_default();
    if !state.is_string() {
        return vec![format!("no state was given: {}", asked.raw)];
    }
    let echoed = json!({"name": "fx__echo", "arguments": {}, "requestState": state});
    let mut wrong = judge::rpc(case, &client.request("tools/call", echoed).message, false);
    wrong.extend(scene.lives_on());
    wrong
}

/// Checks that a probe without an answer delays no other upstream, and that the upstream is served
/// after it.
fn silent_at_discover(case: &Case, era: &str) -> Vec<String> {
    let era = if era == "modern" { "both" } else { era };
    let begun = Instant::now();
    let scene = BadUpstreamGateway::of(era, &json!({}), |fake| fake.behaving("silent-on-discover"));
    let first = scene.client().call("fx__echo", json!({"text": "at once"}));
    let mut wrong = Vec::new();
    if begun.elapsed() > Duration::from_secs(25) || first.text() != "at once" {
        wrong.push(format!("the other upstream answered after {:?}: {}", begun.elapsed(), first.raw));
    }
    let patience = Duration::from_millis(case.within_ms());
    scene.gateway.wait_for_tools_within(patience.saturating_sub(begun.elapsed()), &["bad__echo"]);
    wrong
}

fn speaks_nothing_known(era: &str) -> Vec<String> {
    let scene = BadUpstreamGateway::of(era, &json!({}), |fake| fake.with("--revision", "1.0.0"));
    within(Duration::from_secs(60), "it was greeted", || scene.log.count("initialize") > 0);
    within(Duration::from_secs(60), "it is given up", || {
        scene.gateway.scrape().contains("headend_upstream_state{state=\"down\",upstream=\"bad\"} 1")
    });
    let names = scene.client().tool_names();
    let mut wrong = Vec::new();
    if names.iter().any(|name| name.starts_with("bad__")) {
        wrong.push(format!("listed are {names:?}"));
    }
    if scene.log.count("tools/list") > 0 {
        wrong.push("it was asked for its tools".to_owned());
    }
    wrong
}

fn answers_over_http(case: &Case, era: &str) -> Vec<String> {
    let (canary, id) = (Canary::new(), case.id.clone());
    let target = canary.address();
    let server =
        RawServer::start(era == "modern", move |asked, calls| web_answer(&id, asked, calls, &target.to_string()));
    // One session for all clients, so that it can be counted.
    let bad = format!("[upstreams.bad]\nurl = \"{}\"\ninstance = \"shared\"", server.url);
    let gateway = GatewaySetup::new().fake("fx", &Fake::stdio("both")).toml(&bad).start();
    gateway.wait_for_tools(&["fx__echo", "bad__echo"]);
    let before = resident(gateway.pid());
    let mut wrong = Vec::new();
    let mut grown = None;
    let rounds = if matches!(case.id.as_str(), "U39" | "U40") { 2 } else { 1 };
    for client_era in ClientEra::BOTH {
        for _ in 0..rounds {
            let answer = gateway.client(client_era).call("bad__echo", json!({}));
            // The allocator gives memory of one call back only after a while, so the next one may
            // add to it.
            grown.get_or_insert_with(|| peak(gateway.pid()).saturating_sub(before) / MIB as u64);
            let good = match case.expect("tool_error") {
                Some(_) => answer.message.pointer("/result/isError") == Some(&json!(true)),
                None => answer.message.pointer("/result/content/0/text") == Some(&json!("normal")),
            };
            match case.expect("jsonrpc_code").and_then(Value::as_array) {
                Some(codes) if !codes.is_empty() => wrong.extend(judge::rpc(case, &answer.message, false)),
                Some(_) | None if !good => wrong.push(format!("the client got {}", answer.raw)),
                Some(_) | None => {}
            }
            let forbidden = case.expect("forbid_headers").and_then(Value::as_array).into_iter().flatten();
            let names = forbidden.filter_map(Value::as_str).chain(["X-Powered-By"]);
            let found = names.filter_map(|name| answer.head.header(name));
            wrong.extend(found.map(|value| format!("the client got the field of value {value}")));
        }
    }
    let most = case.expect("rss_growth_mib").and_then(Value::as_u64);
    wrong.extend(
        grown.filter(|grown| most.is_some_and(|most| *grown > most)).map(|grown| format!("grew by {grown} MiB")),
    );
    wrong.extend(canary.touched());
    if case.id == "U50" && (server.count("initialize"), server.count("tools/call")) != (2, 3) {
        let counts = (server.count("initialize"), server.count("tools/call"));
        wrong.push(format!("sessions and calls: {counts:?}"));
    }
    let fine = gateway.modern().call("bad__fine", json!({}));
    wrong.extend((fine.message.get("result").is_none()).then(|| format!("afterwards: {}", fine.raw)));
    wrong
}

fn web_answer(id: &str, asked: &RawRequest, calls: usize, target: &str) -> Vec<u8> {
    let first = calls % 2 == 1;
    let json = "Content-Type: application/json\r\n";
    let events = "Content-Type: text/event-stream\r\n";
    match id {
        "U38" => response("200 OK", "Content-Type: text/html\r\n", b"<html><body>It works!</body></html>"),
        "U39" if first => response("202 Accepted", "", b""),
        "U39" => response("204 No Content", "", b""),
        "U40" if first => response("302 Found", &format!("Location: http://{target}/\r\n"), b""),
        "U40" => response("307 Temporary Redirect", "Location: https://other.example/mcp\r\n", b""),
        "U41" => response("200 OK", &format!("{json}Content-Encoding: gzip\r\n"), &gzip_of_zeros(1_600_000_000)),
        "U42" => response("200 OK", events, &[b"data: ", &vec![b'x'; 50 * MIB][..]].concat()),
        "U45" => dressed(asked, events, "retry: 99999999999999\ndata: ", "\n\n"),
        "U50" if calls == 1 => response("404 Not Found", "", b""),
        "U51" => {
            let fields = "Set-Cookie: a=b\r\nWWW-Authenticate: Basic\r\nServer: raw\r\nX-Powered-By: raw\r\n";
            dressed(asked, &format!("{json}{fields}"), "", "")
        }
        _ => dressed(asked, json, "", ""),
    }
}
