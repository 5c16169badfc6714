use serde_json::{Value, json};

use super::schema::with_nulls;
use super::*;
use crate::catalog::inventory::{ListBounds, ListReading, ReadingStep};
use crate::mcp::definition::item::Definition;
use crate::mcp::method::ItemList;
use crate::mcp::voice::{UpstreamMessage, UpstreamReader};
use crate::wire::frame::{Frame, JsonBounds};
use crate::wire::message::{Message, Notification, Request, Response};
use crate::wire::quirk::Quirk;

fn raw(value: &Value) -> RawJson {
    RawJson::trusted(value.to_string())
}

fn value(raw: &RawJson) -> Value {
    raw.parse().unwrap()
}

fn blocks() -> Value {
    json!([
        {"type": "text", "text": "null"},
        {"type": "text", "text": "t", "annotations": {}},
        {"type": "image", "data": "AA==", "mimeType": "image/png"},
        {"type": "resource_link", "name": "n", "uri": "x:/1", "icons": [{"src": "https://a.example/i"}]},
        {"type": "resource", "resource": {"uri": "x:/1", "text": "t"}},
        {"type": "resource", "resource": {"uri": "x:/1", "blob": "AA=="}},
    ])
}

#[test]
fn a_result_with_nulls_is_the_result_without_them() {
    let contents = json!([{"uri": "x:/1", "text": "t"}, {"uri": "x:/2", "blob": "AA=="}]);
    let messages = json!(
        blocks().as_array().unwrap().iter().map(|block| json!({"role": "user", "content": block})).collect::<Vec<_>>()
    );
    for (method, name, whole) in [
        (Method::ToolsCall, "CallToolResult", json!({"resultType": "complete", "content": blocks()})),
        (Method::PromptsGet, "GetPromptResult", json!({"resultType": "complete", "messages": messages})),
        (
            Method::ResourcesRead,
            "ReadResourceResult",
            json!({"resultType": "complete", "ttlMs": 0, "cacheScope": "private", "contents": contents}),
        ),
        (Method::Complete, "CompleteResult", json!({"resultType": "complete", "completion": {"values": []}})),
    ] {
        assert_eq!(remove_nulls_of_result(method, &raw(&whole)), None, "{name}");
        for (label, nulls) in with_nulls(name, &whole) {
            // Only legacy servers may have it removed, see `project::without_null_content`.
            let mut whole = whole.clone();
            if nulls.get("structuredContent").is_some() {
                whole["structuredContent"] = Value::Null;
            }
            let read = remove_nulls_of_result(method, &raw(&nulls)).unwrap_or_else(|| raw(&nulls));
            assert_eq!(value(&read), whole, "{label}");
        }
    }
}

#[test]
fn lists_that_have_to_be_there_are_empty_and_other_values_keep_their_bytes() {
    for (method, text, want) in [
        (Method::ToolsCall, r#"{"content" : null,"isError":null}"#, r#"{"content":[]}"#),
        (Method::PromptsGet, r#"{"messages":null}"#, r#"{"messages":[]}"#),
        (Method::ResourcesRead, r#"{"contents":null}"#, r#"{"contents":[]}"#),
        (Method::Complete, r#"{"completion":{"values":null,"total":null}}"#, r#"{"completion":{"values":[]}}"#),
        (
            Method::ToolsCall,
            r#"{"content":[{"type":"text","text":"a\u0062", "annotations":null}],"x":[ 1.50,null]}"#,
            r#"{"content":[{"type":"text","text":"a\u0062"}],"x":[ 1.50,null]}"#,
        ),
    ] {
        let read = remove_nulls_of_result(method, &RawJson::trusted(text)).unwrap();
        assert_eq!(read.text(), want);
    }
    for text in [
        r#"{"content":[],"structuredContent":{"a":null,"isError":null},"_meta":{"x":null}}"#,
        r#"{"content":[{"type":"text","text":null}]}"#,
        r#"{"isError":null,"isError":true,"content":[]}"#,
        r#"{"content":[{"type":"text","text":"t","_meta":null,"_meta":{}}]}"#,
        "null",
    ] {
        assert_eq!(remove_nulls_of_result(Method::ToolsCall, &RawJson::trusted(text)), None, "{text}");
    }
}

fn hear(message: &Value) -> UpstreamMessage {
    let frame = Frame::from_upstream(message.to_string().into()).unwrap();
    UpstreamReader::new("git", JsonBounds::CLIENT, |bytes| bytes).hear(&frame).unwrap()
}

fn params(heard: UpstreamMessage) -> Value {
    match heard.message {
        Message::Request(Request { params, .. }) | Message::Notification(Notification { params, .. }) => {
            params.as_ref().map_or(Value::Null, value)
        }
        Message::Response(Response { outcome, .. }) => value(&outcome.unwrap()),
    }
}

/// Returns questions and notifications of each kind: method, name of the type, and parameters.
fn questions() -> Vec<(&'static str, &'static str, Value)> {
    let fields = json!({
        "a": {"type": "string"},
        "b": {"type": "number"},
        "c": {"type": "boolean"},
        "d": {"type": "string", "enum": ["x"]},
        "e": {"type": "string", "oneOf": [{"const": "x", "title": "X"}]},
        "f": {"type": "array", "items": {"type": "string", "enum": ["x"]}},
    });
    let form = json!({"message": "Which?", "requestedSchema": {"type": "object", "properties": fields}});
    let page = json!({"mode": "url", "message": "Go", "url": "https://x.example/", "elicitationId": "1"});
    let content = json!({"type": "text", "text": "t"});
    let used = json!([{"type": "tool_result", "toolUseId": "1", "content": [content]}]);
    let sample = json!({
        "maxTokens": 9, "modelPreferences": {"hints": [{}]}, "toolChoice": {},
        "messages": [{"role": "user", "content": content}, {"role": "user", "content": used}],
    });
    vec![
        ("elicitation/create", "ElicitRequestFormParams", form),
        ("elicitation/create", "ElicitRequestURLParams", page),
        ("sampling/createMessage", "CreateMessageRequestParams", sample),
        ("notifications/progress", "ProgressNotificationParams", json!({"progressToken": 1, "progress": 1})),
        ("notifications/message", "LoggingMessageNotificationParams", json!({"level": "info", "data": null})),
        ("notifications/cancelled", "CancelledNotificationParams", json!({"requestId": 1})),
    ]
}

#[test]
fn a_question_or_a_notification_with_nulls_is_the_one_without_them() {
    for (method, name, whole) in questions() {
        let is_request = !method.starts_with("notifications/");
        for (label, nulls) in with_nulls(name, &whole) {
            // A default may be null. Tasks of servers are not taken up.
            let (want, mut nulls) = (&whole, nulls);
            nulls.as_object_mut().unwrap().remove("task");
            let fields = nulls.pointer_mut("/requestedSchema/properties").and_then(Value::as_object_mut);
            for (_, field) in fields.into_iter().flatten() {
                field.as_object_mut().unwrap().remove("default");
            }
            let is_odd = nulls != *want;
            let mut message = json!({"jsonrpc": "2.0", "method": method, "params": nulls});
            if is_request {
                message["id"] = json!(7);
            }
            let heard = hear(&message);
            assert_eq!(heard.quirk, is_odd.then_some(Quirk::NullOptional), "{label}");
            assert_eq!(params(heard), *want, "{label}");
            if !is_request {
                continue;
            }
            let asks = |params: &Value| {
                let requests = json!({"k": {"method": method, "params": params}});
                json!({"resultType": "input_required", "inputRequests": requests, "_meta": {"a": null}})
            };
            let mut result = asks(&nulls);
            result["requestState"] = Value::Null;
            let heard = hear(&json!({"jsonrpc": "2.0", "id": 7, "result": result}));
            assert_eq!(heard.quirk, Some(Quirk::NullOptional), "{label}");
            assert_eq!(params(heard), asks(want), "{label}");
        }
    }
}

#[test]
fn a_list_with_nulls_is_the_list_without_them() {
    for (list, name, item) in [
        (
            ItemList::Tools,
            "ListToolsResult",
            json!({"name": "n", "inputSchema": {"type": "object"}, "annotations": {}}),
        ),
        (ItemList::Prompts, "ListPromptsResult", json!({"name": "n", "arguments": [{"name": "a"}]})),
        (
            ItemList::Resources,
            "ListResourcesResult",
            json!({"uri": "x:/1", "name": "n", "annotations": {}, "icons": [{"src": "https://a.example/i"}]}),
        ),
        (ItemList::Templates, "ListResourceTemplatesResult", json!({"uriTemplate": "x:/{a}", "name": "n"})),
    ] {
        let whole = json!({list.member(): [item], "resultType": "complete", "ttlMs": 0, "cacheScope": "private"});
        let read = |page: &Value| {
            let mut reading = ListReading::new(list, ListBounds::default());
            let ReadingStep::Done { items, skipped, endless, .. } = reading.page(&raw(page)).unwrap() else {
                panic!("{page}")
            };
            assert_eq!((skipped.len(), endless), (0, None), "{page}");
            (items, reading.take_quirks())
        };
        let (wanted, quirks) = read(&whole);
        assert!(quirks.is_empty());
        for (label, nulls) in with_nulls(name, &whole) {
            let (items, quirks) = read(&nulls);
            let same = |one: &Definition, other: &Definition| {
                one.digest == other.digest && one.exact == other.exact && one.fault.is_none()
            };
            assert!(items.len() == 1 && same(&items[0], &wanted[0]), "{label}: {:?}", items[0].fault);
            // A null is counted as a repair of its item, or as a quirk of the page.
            assert!(!items[0].repairs.is_empty() || quirks == [Quirk::NullOptional], "{label}");
        }
    }
}
