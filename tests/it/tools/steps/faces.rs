//! One request of every kind, sent by a client of either era.

use serde_json::json;

use super::super::mcp::{ClientEra, MODERN, Mcp, names};

pub(crate) const TOOLS: &[&str] = &["fx__echo", "fx__fail", "fx__sleep"];

pub(crate) fn everything_works(client: &mut Mcp, era: ClientEra, http: bool, at: &str) {
    let at = format!("{era:?} at {at}");
    greets(client, era, http, &at);
    lists(client, &at);
    calls(client, era, &at);
    refuses(client, era, http, &at);
}

pub(crate) fn greets(client: &mut Mcp, era: ClientEra, http: bool, at: &str) {
    if era == ClientEra::Modern {
        let answer = client.request("server/discover", json!({}));
        let versions = answer.result()["supportedVersions"].as_array().cloned().unwrap_or_default();
        assert!(versions.contains(&json!(MODERN)), "{at}: {}", answer.raw);
        assert!(answer.result()["capabilities"]["tools"].is_object(), "{at}: {}", answer.raw);
        let ping = client.request("ping", json!({}));
        assert_eq!(ping.code(), Some(-32601), "{at}: {}", ping.raw);
        assert!(!http || ping.status == 404, "{at}: {}", ping.status);
    } else {
        assert_eq!(client.greeting["serverInfo"]["name"], "headend", "{at}: {}", client.greeting);
        assert!(client.greeting["capabilities"]["tools"].is_object(), "{at}: {}", client.greeting);
        assert_eq!(client.request("ping", json!({})).result(), &json!({}), "{at}");
    }
}

pub(crate) fn lists(client: &mut Mcp, at: &str) {
    let tools = client.tool_names();
    assert!(TOOLS.iter().all(|tool| tools.iter().any(|name| name == tool)), "{at}: {tools:?}");
    assert!(names(&client.list("prompts/list", "prompts")).contains(&"fx__p".to_owned()), "{at}");
    let resources = client.list("resources/list", "resources");
    assert!(resources.iter().any(|resource| resource["uri"] == "fx://doc/1"), "{at}: {resources:?}");
    let templates = client.list("resources/templates/list", "resourceTemplates");
    assert!(templates.iter().any(|template| template["uriTemplate"] == "fx://doc/{id}"), "{at}: {templates:?}");
}

pub(crate) fn calls(client: &mut Mcp, era: ClientEra, at: &str) {
    let echo = client.call("fx__echo", json!({"text": "grüße \"quoted\" \u{1f600}"}));
    assert_eq!(echo.text(), "grüße \"quoted\" \u{1f600}", "{at}");
    if era == ClientEra::Modern {
        assert_eq!(echo.result()["resultType"], "complete", "{at}: {}", echo.raw);
    }
    let failed = client.call("fx__fail", json!({}));
    assert!(failed.is_error(), "{at}: {}", failed.raw);
    let prompt = client.request("prompts/get", json!({"name": "fx__p", "arguments": {"a": "blue"}}));
    assert!(prompt.result()["messages"].to_string().contains("blue"), "{at}: {}", prompt.raw);
    for uri in ["fx://doc/1", "fx://doc/77"] {
        let read = client.request("resources/read", json!({"uri": uri}));
        assert_eq!(read.result()["contents"][0]["uri"], uri, "{at}: {}", read.raw);
    }
    let reference = json!({"ref": {"type": "ref/prompt", "name": "fx__p"}, "argument": {"name": "a", "value": "b"}});
    let completion = client.request("completion/complete", reference);
    assert!(completion.result()["completion"]["values"].is_array(), "{at}: {}", completion.raw);
}

pub(crate) fn refuses(client: &mut Mcp, era: ClientEra, http: bool, at: &str) {
    for (label, method, params) in [
        ("unknown tool", "tools/call", json!({"name": "fx__nope", "arguments": {}})),
        ("a tool by its upstream's name", "tools/call", json!({"name": "echo", "arguments": {}})),
        ("unknown prompt", "prompts/get", json!({"name": "fx__nope"})),
        ("no name", "tools/call", json!({"arguments": {}})),
    ] {
        assert_eq!(client.request(method, params).code(), Some(-32602), "{at}: {label}");
    }
    let unread = client.request("resources/read", json!({"uri": "nowhere://x"}));
    assert!(matches!(unread.code(), Some(-32002 | -32602)), "{at}: {}", unread.raw);
    let unknown = client.request("no/such/method", json!({}));
    assert_eq!(unknown.code(), Some(-32601), "{at}: {}", unknown.raw);
    if http {
        assert_eq!(unknown.status, if era == ClientEra::Modern { 404 } else { 200 }, "{at}");
    }
}
