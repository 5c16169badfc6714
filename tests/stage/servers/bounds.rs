//! Tests of deeply nested messages of upstreams: each is an error of its own call, and the daemon
//! serves on.

use serde_json::{Value, json};

use crate::stage::harness::{Gateway, GatewaySetup};
use crate::stage::mcp::{ClientEra, Mcp};
use crate::stage::upstream::{Fake, Listening};

/// Depth of nesting: 16 KB, many times the depth at which recursion exhausts a thread's stack.
const LEVELS: usize = 8000;
const GOOD: &str =
    r#"{"jsonrpc":"2.0","id":${ID},"result":{"resultType":"complete","content":[{"type":"text","text":"good"}]}}"#;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum BoundTransport {
    Stdio,
    Http,
    Sse,
}

/// Lines that the upstream sends for a call of the tool `echo`.
#[derive(Debug)]
struct Hostile {
    label: &'static str,
    lines: Vec<String>,
    /// True if the call still gets its own answer.
    goes_on: bool,
}

fn deep() -> String {
    format!("{}{}", "[".repeat(LEVELS), "]".repeat(LEVELS))
}

fn hostile(era: ClientEra) -> Vec<Hostile> {
    let deep = deep();
    let question = |method: &str, params: &str| {
        vec![format!(r#"{{"jsonrpc":"2.0","id":"q","method":"{method}","params":{{{params}}}}}"#), GOOD.to_owned()]
    };
    let result = |members: &str| vec![format!(r#"{{"jsonrpc":"2.0","id":${{ID}},"result":{{{members}}}}}"#)];
    let error = |code: i64, data: &str| {
        vec![format!(r#"{{"jsonrpc":"2.0","id":${{ID}},"error":{{"code":{code},"message":"m","data":{data}}}}}"#)]
    };
    let form = format!(r#""message":"m","requestedSchema":{{"type":"object","properties":{{"a":{deep}}}}}"#);
    let mut all = Vec::new();
    if era == ClientEra::Modern {
        let asked = format!(r#""k":{{"method":"elicitation/create","params":{{{form}}}}}"#);
        let asked = format!(r#""resultType":"input_required","requestState":"s","inputRequests":{{{asked}}}"#);
        all.push(Hostile { label: "input_required", lines: result(&asked), goes_on: false });
    } else {
        all.push(Hostile { label: "form", lines: question("elicitation/create", &form), goes_on: true });
        let sample = format!(r#""messages":[{{"role":"user","content":{deep}}}],"maxTokens":1"#);
        all.push(Hostile { label: "sampling", lines: question("sampling/createMessage", &sample), goes_on: true });
    }
    all.extend([
        Hostile {
            label: "result",
            lines: result(&format!(r#""content":[],"structuredContent":{{"a":{deep}}}"#)),
            goes_on: false,
        },
        Hostile { label: "error", lines: error(-32603, &deep), goes_on: false },
        Hostile {
            label: "error -32042",
            lines: error(
                -32042,
                &format!(
                    r#"{{"elicitations":[{{"mode":"url","message":"m","elicitationId":"e","url":"https://example.com","x":{deep}}}]}}"#
                ),
            ),
            goes_on: false,
        },
        Hostile {
            label: "notification",
            lines: vec![
                format!(
                    r#"{{"jsonrpc":"2.0","method":"notifications/message","params":{{"level":"info","data":{deep}}}}}"#
                ),
                GOOD.to_owned(),
            ],
            goes_on: true,
        },
    ]);
    all
}

/// Starts a gateway in front of the server `bad`, which sends these lines, and a good one.
fn stage(way: BoundTransport, era: ClientEra, lines: &[String]) -> (Gateway, Option<Listening>) {
    let setup = GatewaySetup::new();
    let script = json!({"tools/call/echo": lines});
    let path = setup.world.write("work/script.json", &script.to_string());
    let eras = if era == ClientEra::Modern { "modern" } else { "legacy" };
    let bad = match way {
        BoundTransport::Stdio => Fake::stdio(eras),
        BoundTransport::Http => Fake::http(eras).with("--answers", "sse"),
        BoundTransport::Sse => Fake::sse(),
    };
    let bad = bad.with("--script", path.to_str().unwrap());
    let setup = setup.fake("fx", &Fake::stdio("both"));
    let (setup, listening) = if way == BoundTransport::Stdio {
        (setup.fake("bad", &bad), None)
    } else {
        let listening = bad.spawn();
        (setup.url("bad", &listening.url), Some(listening))
    };
    let gateway = setup.start();
    gateway.wait_for_tools(&["fx__echo", "bad__echo"]);
    (gateway, listening)
}

#[test]
fn endless_nesting_of_an_upstream_is_an_error_of_its_call_alone() {
    let clients = [
        (ClientEra::LEGACY, json!({})),
        (ClientEra::Modern, json!({})),
        (ClientEra::Modern, everything()),
        (ClientEra::LEGACY, everything()),
    ];
    for (way, era) in [
        (BoundTransport::Stdio, ClientEra::LEGACY),
        (BoundTransport::Stdio, ClientEra::Modern),
        (BoundTransport::Http, ClientEra::LEGACY),
        (BoundTransport::Http, ClientEra::Modern),
        (BoundTransport::Sse, ClientEra::LEGACY),
    ] {
        for hostile in hostile(era) {
            let (gateway, _server) = stage(way, era, &hostile.lines);
            for (client_era, capabilities) in &clients {
                let at = format!("{way:?} {era:?} {}: {client_era:?} {capabilities}", hostile.label);
                let mut client =
                    Mcp::http_at(gateway.address, gateway.token(), *client_era, "/mcp", capabilities.clone());
                let mut call = client.open("tools/call", json!({"name": "bad__echo", "arguments": {}}));
                let answer = loop {
                    let message = call.next().unwrap_or_else(|| panic!("{at}: no answer\n{}", gateway.story()));
                    assert_ne!(message["method"], "elicitation/create", "{at}");
                    if message.get("method").is_none() {
                        break message;
                    }
                };
                let failed = answer["error"].is_object() || answer["result"]["isError"] == true;
                assert_eq!(failed, !hostile.goes_on, "{at}: {answer}");
            }
            let mut client = gateway.modern();
            assert!(client.call("fx__sleep", json!({"ms": 0})).result()["isError"].is_null(), "{}", hostile.label);
            assert!(gateway.scrape().contains("headend_upstream_faults_total{fault=\"complex\",upstream=\"bad\"}"));
        }
    }
}

fn everything() -> Value {
    json!({"elicitation": {"form": {}, "url": {}}, "sampling": {}, "roots": {}})
}
