//! Tests of pages that servers of 2025-11-25 ask to open: before a call (error -32042), and in the
//! middle of one.

use std::time::Duration;

use serde_json::{Value, json};

use super::{AskingGateway, AskingTransport, asked, converse, inquire};
use crate::stage::mcp::{ClientEra, Mcp, McpAnswer};

const URL: &str = r#"{"elicitation": {"url": {}}}"#;

fn with_url() -> Value {
    serde_json::from_str(URL).unwrap()
}

fn gate(client: &mut Mcp, key: &str) -> McpAnswer {
    client.call("fx__gate", json!({"key": key, "pages": 2}))
}

fn go_on(client: &mut Mcp, key: &str, responses: Value, state: &Value) -> McpAnswer {
    let arguments = json!({"key": key, "pages": 2});
    let params =
        json!({"name": "fx__gate", "arguments": arguments, "inputResponses": responses, "requestState": state});
    client.request("tools/call", params)
}

fn calls(stage: &AskingGateway, key: &str) -> usize {
    stage.log.lines_with(&["\"method\":\"tools/call\"", &format!("\"key\":\"{key}\"")]).len()
}

#[test]
fn a_modern_client_opens_the_pages_before_the_call_is_made() {
    for way in AskingTransport::HTTP {
        let stage = AskingGateway::new(way, "");
        let mut client = stage.client(ClientEra::Modern, with_url());
        let (requests, state) = asked(&gate(&mut client, "k"));
        assert_eq!(requests.len(), 2, "{way:?}: {requests:?}");
        for (n, (_, request)) in requests.iter().enumerate() {
            let url = format!("https://gate.example/k/{}", n + 1);
            let want = json!({"mode": "url", "message": "[fx] Log in [fx]", "url": url});
            assert_eq!(request, &json!({"method": "elicitation/create", "params": want}), "{way:?}");
        }
        assert_eq!(calls(&stage, "k"), 1, "{way:?}");
        let all = |action: &str| -> Value {
            requests
                .keys()
                .map(|key| (key.clone(), json!({"action": action})))
                .collect::<serde_json::Map<_, _>>()
                .into()
        };
        let half = json!({requests.keys().next().unwrap().clone(): {"action": "accept"}});
        for (label, responses) in [("declined", all("decline")), ("cancelled", all("cancel")), ("half", half)] {
            let answer = go_on(&mut client, "k", responses, &state);
            assert!(answer.is_error(), "{way:?} {label}: {}", answer.raw);
            assert_eq!(calls(&stage, "k"), 1, "{way:?} {label}: not called");
        }
        let answer = go_on(&mut client, "k", all("accept"), &state);
        assert_eq!((answer.text().as_str(), calls(&stage, "k")), ("through the gate", 2), "{way:?}: {}", answer.raw);
    }
}

#[test]
fn a_legacy_client_that_opens_pages_gets_the_error_itself_and_others_a_text() {
    for way in AskingTransport::HTTP {
        let stage = AskingGateway::new(way, "");
        let mut able = stage.client(ClientEra::LEGACY, with_url());
        let answer = gate(&mut able, "able");
        assert_eq!(answer.code(), Some(-32042), "{way:?}: {}", answer.raw);
        let pages = answer.message["error"]["data"]["elicitations"].as_array().cloned().unwrap_or_default();
        assert_eq!(pages.len(), 2, "{way:?}: {}", answer.raw);
        assert_eq!(pages[0]["url"], "https://gate.example/able/1", "{way:?}");
        for (label, era, capabilities) in [
            ("modern, forms only", ClientEra::Modern, json!({"elicitation": {}})),
            ("modern, nothing", ClientEra::Modern, json!({})),
            ("legacy, forms only", ClientEra::LEGACY, json!({"elicitation": {}})),
            ("older than the error", ClientEra::Legacy("2025-06-18"), with_url()),
        ] {
            let answer = gate(&mut stage.client(era, capabilities), &label.replace([' ', ','], "-"));
            assert!(answer.is_error(), "{way:?} {label}: {}", answer.raw);
            assert!(answer.text().contains("page"), "{way:?} {label}: {}", answer.raw);
        }
    }
}

#[test]
fn the_client_that_was_asked_is_told_that_a_page_is_done_and_no_other() {
    let page = json!({"mode": "url", "message": "Go", "url": "https://x.example/", "elicitationId": "e1"});
    let page = json!({"method": "elicitation/create", "params": page});
    for way in AskingTransport::ALL {
        let stage =
            AskingGateway::new(way, if way == AskingTransport::Stdio { "instance = \"per-session\"" } else { "" });
        let mut client = stage.client(ClientEra::LEGACY, with_url());
        let mut other = stage.client(ClientEra::LEGACY, with_url());
        let (mut stream, mut others) = (client.listen(), other.listen());
        assert_eq!(other.call("fx__echo", json!({"text": "has a session too"})).text(), "has a session too", "{way:?}");
        let mut arguments = way.asks("t", json!([[page]]));
        arguments["done"] = json!(["e1"]);
        let mut call = inquire(&mut client, &arguments);
        let (asked, _) = converse(&mut client, &mut call, |_| json!({"action": "accept"}));
        assert_eq!(asked.len(), 1, "{way:?}");
        let told = stream.next().expect("the stream stays open");
        let want = json!({"jsonrpc": "2.0", "method": "notifications/elicitation/complete", "params": {"elicitationId": "e1"}});
        assert_eq!(told, want, "{way:?}");
        assert!(others.next_within(Duration::from_millis(200)).is_err(), "{way:?}: another client is told nothing");
    }
}
