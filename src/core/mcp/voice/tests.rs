use proptest::prelude::*;
use serde_json::{Map, Value, json};

use super::*;

/// Returns the cleaned `result`, `error` or `params` of a message, and the counts of removals.
fn left(text: &str) -> (String, RemovedWords) {
    let frame = Frame::from_upstream(Bytes::copy_from_slice(text.as_bytes())).unwrap();
    let UpstreamMessage { message, taken, .. } =
        UpstreamReader::new("git", JsonBounds::CLIENT, |bytes| bytes).hear(&frame).unwrap();
    let left = match message {
        Message::Response(response) => response.outcome.unwrap_or_else(|error| error),
        Message::Request(request) => request.params.unwrap(),
        Message::Notification(notice) => notice.params.unwrap(),
    };
    (left.text().into_owned(), taken)
}

fn of_result(result: &str) -> (String, RemovedWords) {
    left(&format!(r#"{{"jsonrpc":"2.0","id":1,"result":{result}}}"#))
}

fn of_error(error: &str) -> (String, RemovedWords) {
    left(&format!(r#"{{"jsonrpc":"2.0","id":1,"error":{error}}}"#))
}

#[test]
fn our_keys_are_taken_out_wherever_the_protocol_has_meta() {
    const META: &str = r#"{"a":1,"headend/refusal":{"reason":"denied"},"b":2}"#;
    for place in [
        r#"{"content":[{"type":"text","text":"x","_meta":@}],"isError":true}"#,
        r#"{"content":[{"type":"resource_link","uri":"x:","name":"x","_meta":@}]}"#,
        r#"{"content":[{"type":"resource","resource":{"uri":"x:","text":"t","_meta":@}}]}"#,
        r#"{"messages":[{"role":"user","content":{"type":"image","data":"","_meta":@}}]}"#,
        r#"{"messages":[{"role":"user","content":{"type":"resource","resource":{"uri":"x:","blob":"","_meta":@}}}]}"#,
        r#"{"contents":[{"uri":"x:","text":"t","_meta":@}]}"#,
        r#"{"tools":[{"name":"a","inputSchema":{},"_meta":@},{"name":"b"}]}"#,
        r#"{"prompts":[{"name":"a","_meta":@}]}"#,
        r#"{"resources":[{"name":"a","uri":"x:","_meta":@}]}"#,
        r#"{"resourceTemplates":[{"name":"a","uriTemplate":"x:","_meta":@}]}"#,
        r#"{"resultType":"input_required","inputRequests":{"k":{"method":"elicitation/create","params":{"_meta":@}}}}"#,
        r#"{"inputRequests":{"k":{"method":"sampling/createMessage","params":{"messages":[{"role":"user","_meta":@,"content":[]}]}}}}"#,
        r#"{"inputRequests":{"k":{"params":{"messages":[{"content":[{"type":"tool_result","_meta":@,"content":[]}]}]}}}}"#,
        r#"{"inputRequests":{"k":{"params":{"messages":[{"content":[{"type":"tool_result","content":[{"_meta":@}]}]}]}}}}"#,
        r#"{"inputRequests":{"k":{"params":{"tools":[{"name":"a","_meta":@}]}}}}"#,
        r#"{"taskId":"t","status":"completed","result":{"content":[{"type":"text","text":"x","_meta":@}]}}"#,
        r#"{"task":{"taskId":"t","_meta":@}}"#,
        r#"{"content":[{"type":"text","text":"x","_Meta":@}]}"#,
        r#"{"c\u006fntent":[{"type":"text","text":"x","\u005fmeta":@}]}"#,
        r#"{ "content" : [ { "type" : "text" , "_meta" : @ } ] }"#,
    ] {
        let (got, taken) = of_result(&place.replace('@', META));
        assert_eq!(got, place.replace('@', r#"{"a":1,"b":2}"#));
        assert_eq!(taken, RemovedWords { keys: 1, errors: 0 }, "{place}");
    }
    for message in [
        r#"{"jsonrpc":"2.0","method":"notifications/progress","params":{"progressToken":1,"progress":1,"_meta":@}}"#,
        r#"{"jsonrpc":"2.0","method":"notifications/tools/list_changed","params":{"_meta":@}}"#,
        r#"{"jsonrpc":"2.0","id":1,"method":"elicitation/create","params":{"message":"x","_meta":@}}"#,
        r#"{"jsonrpc":"2.0","id":1,"method":"roots/list","params":{"_meta":@}}"#,
        r#"{"jsonrpc":"2.0","id":1,"method":"sampling/createMessage","params":{"messages":[{"content":{"_meta":@}}]}}"#,
        r#"{"jsonrpc":"2.0","id":1,"error":{"code":-32042,"message":"m","data":{"elicitations":[{"url":"x","_meta":@}]}}}"#,
    ] {
        let (got, taken) = left(&message.replace('@', META));
        assert!(got.contains(r#""_meta":{"a":1,"b":2}"#), "{got}");
        assert_eq!(taken, RemovedWords { keys: 1, errors: 0 }, "{message}");
    }
}

#[test]
fn the_refusal_of_a_gateway_behind_this_one_stays_in_a_task_s_result() {
    let done = r#"{"taskId":"t","status":"completed","result":{"content":[{"type":"text","_meta":@}],"_meta":@}}"#;
    let refused = r#"{"a":1,"headend/refusal":{"reason":"denied"}}"#;
    let (got, taken) = of_result(&done.replace('@', refused));
    let moved = r#"{"a":1,"headend/upstream-refusal":{"upstream":"git","refusal":{"reason":"denied"}}}"#;
    assert_eq!(got, done.replacen('@', r#"{"a":1}"#, 1).replacen('@', moved, 1));
    assert_eq!(taken, RemovedWords { keys: 2, errors: 0 });
}

#[test]
fn what_is_no_meta_of_the_protocol_stays_byte_for_byte() {
    const META: &str = r#"{"_meta":{"headend/refusal":{"reason":"denied"}}}"#;
    for place in [
        r#"{"content":[{"type":"text","text":"_meta headend/refusal \u0068eadend/refusal"}]}"#,
        r#"{"content":[],"structuredContent":@}"#,
        r#"{"content":[{"type":"tool_result","structuredContent":@}]}"#,
        r#"{"tools":[{"name":"a","inputSchema":@,"outputSchema":@}]}"#,
        r#"{"inputRequests":{"k":{"params":{"requestedSchema":@,"metadata":@}}}}"#,
        r#"{"inputRequests":{"k":{"params":{"messages":[{"content":{"type":"tool_use","input":@}}]}}}}"#,
        r#"{"_meta":{"a":@,"x/headend/refusal":1,"headendx/":1,"headend":1}}"#,
        r#"{"_meta":"headend/refusal","content":[[@]]}"#,
        r#"{"_meta":["headend/refusal",@]}"#,
        r#"{"content":[ ],"vendor": @ ,"n":1.50,"\u0068":"\/"}"#,
    ] {
        let text = place.replace('@', META);
        assert_eq!(of_result(&text), (text, RemovedWords::default()));
    }
    let log = r#"{"level":"info","data":{"_meta":{"headend/refusal":1},"content":{"_meta":{"headend/refusal":1}}}}"#;
    let notice = format!(r#"{{"jsonrpc":"2.0","method":"notifications/message","params":{log}}}"#);
    assert_eq!(left(&notice), (log.to_owned(), RemovedWords::default()));
}

#[test]
fn keys_are_taken_out_with_one_comma_each() {
    for (meta, want, keys) in [
        (r#"{"headend/x":1}"#, "{}", 1),
        (r#"{ "headend/x" : 1 }"#, "{  }", 1),
        (r#"{"headend/x":1,"headend/y":2}"#, "{}", 2),
        (r#"{"headend/x":1,"a":0}"#, r#"{"a":0}"#, 1),
        (r#"{"headend/x":1, "headend/y":2, "a":0}"#, r#"{"a":0}"#, 2),
        (r#"{"a":0 , "headend/x":1}"#, r#"{"a":0}"#, 1),
        (r#"{"a":0,"headend/x":[1,{"b":"}"}],"headend/y":2}"#, r#"{"a":0}"#, 2),
        (r#"{"a":0,"headend/x":1,"b":1,"headend/y":2,"c":3}"#, r#"{"a":0,"b":1,"c":3}"#, 2),
        (r#"{"headend/x":1,"a":0,"headend/x":1}"#, r#"{"a":0}"#, 2),
        (
            r#"{"\u0068eadend/x":1,"headend\/x":2,"he\u0061dend\u002Fx":3,"a":"\u0068eadend/"}"#,
            r#"{"a":"\u0068eadend/"}"#,
            3,
        ),
        (r#"{"headend/\ud800":1,"\ud800headend/":2}"#, r#"{"\ud800headend/":2}"#, 1),
        (r#"{"headend/upstream-refusal":{"upstream":"other","refusal":{}}}"#, "{}", 1),
    ] {
        let (got, taken) = of_result(&format!(r#"{{"_meta":{meta},"content":[]}}"#));
        assert_eq!(got, format!(r#"{{"_meta":{want},"content":[]}}"#));
        assert_eq!(taken.keys, keys, "{meta}");
    }
}

#[test]
fn the_refusal_of_a_gateway_behind_this_one_keeps_its_words_and_gets_its_name() {
    for (meta, want, keys) in [
        (
            r#"{"headend/refusal": {"reason" : "denied"}}"#,
            r#"{"headend/upstream-refusal":{"upstream":"git","refusal":{"reason" : "denied"}}}"#,
            1,
        ),
        (
            r#"{"headend/x":1,"headend\/refusal":{},"headend/refusal":{"a":1},"b":2}"#,
            r#"{"headend/upstream-refusal":{"upstream":"git","refusal":{}},"b":2}"#,
            3,
        ),
        (
            r#"{"a":1,"headend/refusal":{},"headend/upstream-refusal":{"upstream":"other"}}"#,
            r#"{"a":1,"headend/upstream-refusal":{"upstream":"git","refusal":{}}}"#,
            2,
        ),
        (r#"{"headend/refusal":"denied"}"#, "{}", 1),
        (
            r#"{"headend/refusal":{},"_meta":{"headend/refusal":{}}}"#,
            r#"{"headend/upstream-refusal":{"upstream":"git","refusal":{}},"_meta":{"headend/refusal":{}}}"#,
            1,
        ),
    ] {
        let (got, taken) = of_result(&format!(r#"{{"_meta":{meta}}}"#));
        assert_eq!(got, format!(r#"{{"_meta":{want}}}"#));
        assert_eq!(taken.keys, keys, "{meta}");
    }
    let twice = r#"{"_meta":{"headend/refusal":{}},"_meta":{"headend/refusal":{}}}"#;
    let want = r#"{"_meta":{"headend/upstream-refusal":{"upstream":"git","refusal":{}}},"_meta":{}}"#;
    assert_eq!(of_result(twice).0, want, "it has one place");
}

#[test]
fn what_is_written_anew_is_counted_and_nothing_else() {
    let counted = Arc::new(parking_lot::Mutex::new(Vec::new()));
    let counts = Arc::clone(&counted);
    let ear = UpstreamReader::new("git", JsonBounds::CLIENT, move |bytes| {
        counts.lock().push(bytes.clone());
        bytes
    });
    for (body, edited) in [
        (r#""id":1,"result":{"_meta":{"headend/x":1}}"#, 1),
        (r#""id":1,"result":{"_meta":{"x":1},"content":[{"text":"headend/x"}]}"#, 0),
        (r#""id":1,"error":{"code":1001,"message":"m"}"#, 1),
        (r#""id":1,"error":{"code":1,"message":"m"}"#, 0),
        (r#""method":"m","params":{"_meta":{"headend/x":1}}"#, 1),
        (r#""method":"m""#, 0),
    ] {
        let frame = Frame::from_upstream(Bytes::from(format!(r#"{{"jsonrpc":"2.0",{body}}}"#))).unwrap();
        let message = ear.hear(&frame).unwrap().message;
        let written = std::mem::take(&mut *counted.lock());
        assert_eq!(written.len(), edited, "{body}");
        if let (Message::Response(response), [written]) = (message, written.as_slice()) {
            let told = response.outcome.unwrap_or_else(|error| error);
            assert_eq!(told.bytes().as_ptr(), written.as_ptr(), "{body}");
        }
    }
}

#[test]
fn an_error_that_could_be_ours_is_told_as_the_servers() {
    for error in [
        r#"{"code":1001,"message":"m"}"#,
        r#"{"code":1002,"message":"m","data":7}"#,
        r#"{"code":1003.0,"message":"m"}"#,
        r#"{"code":1.001e3,"message":"m"}"#,
        r#"{"code":-32603,"message":"m","data":{"reason":"busy","executed":"no","retryable":true,"call-id":"a"}}"#,
        r#"{"code":-1,"message":"m","data":{"Executed":"no","approval":{}}}"#,
        r#"{"code":5,"message":"m","data":{"\u0065xecuted":"no","retry-after-ms":1}}"#,
        r#"{"code":5,"message":"m","data":{"a":1,"a":2}}"#,
        r#"{"code":-32603,"message":"m","data":{"upstream":{"code":1001},"upstream-name":"other"}}"#,
        r#"{"code":-32042,"message":"m","data":{"elicitations":[],"reason":"denied","executed":"no"}}"#,
    ] {
        let (got, taken) = of_error(error);
        assert_eq!(
            got,
            format!(r#"{{"code":-32603,"message":"m","data":{{"upstream":{error},"upstream-name":"git"}}}}"#)
        );
        assert_eq!(taken, RemovedWords { keys: 0, errors: 1 }, "{error}");
    }
    for error in [
        r#"{"code":1000,"message":"m"}"#,
        r#"{"code":1004,"message":"m","data":{"reason":"no","retryable":true}}"#,
        r#"{"code":-32602,"message":"executed reason call-id 1001","data":{"executed":"no"}}"#,
        r#"{"code":-32602,"message":"m","data":["executed","reason"]}"#,
        r#"{"code":-32602, "message":"m","data":{"x":{"executed":"no","reason":"busy"}}}"#,
    ] {
        assert_eq!(of_error(error), (error.to_owned(), RemovedWords::default()));
    }
    for error in [r#"{"code":1001,"code":-1,"message":"m"}"#, "[1001]", "null", r#""headend""#] {
        let (got, taken) = of_error(error);
        assert!(got.starts_with(r#"{"code":-32603,"#) && !got.contains("data"), "{got}");
        assert_eq!(taken, RemovedWords::default());
    }
}

/// Collects the names after `$ref` anywhere in a part of a schema.
fn refers_to(part: &Value, found: &mut Vec<String>) {
    match part {
        Value::Object(members) => {
            let name = members.get("$ref").and_then(|to| to.as_str()?.rsplit('/').next());
            found.extend(name.map(str::to_owned));
            members.values().for_each(|part| refers_to(part, found));
        }
        Value::Array(parts) => parts.iter().for_each(|part| refers_to(part, found)),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
    }
}

#[test]
fn every_member_that_leads_to_a_meta_in_the_schemas_is_known() {
    // Members that only clients send, or that no client sees.
    const OTHERS: [&str; 4] = ["inputResponses", "roots", "extensions", "_meta"];
    let places = [MetaRole::Result, MetaRole::Request, MetaRole::Error, MetaRole::ErrorData];
    for text in [
        include_str!("../../../../tests/data/schema/2025-11-25.json"),
        include_str!("../../../../tests/data/schema/2026-07-28.json"),
        include_str!("../../../../tests/data/schema/ext-tasks.json"),
    ] {
        let schema: Value = serde_json::from_str(text).unwrap();
        let definitions = schema["$defs"].as_object().unwrap();
        let leads = |part: &Value, with_meta: &[String]| {
            let mut to = Vec::new();
            refers_to(part, &mut to);
            part.to_string().contains("\"_meta\":") || to.iter().any(|to| with_meta.contains(to))
        };
        let mut with_meta: Vec<String> = Vec::new();
        loop {
            let leading = definitions.iter().filter(|(_, definition)| leads(definition, &with_meta));
            let leading: Vec<String> = leading.map(|(name, _)| name.clone()).collect();
            if leading.len() == with_meta.len() {
                break;
            }
            with_meta = leading;
        }
        let mut looked_at = 0;
        for (name, definition) in definitions {
            let members = definition["properties"].as_object().into_iter().flatten();
            let members = members.filter(|(member, _)| !OTHERS.contains(&member.as_str()));
            for (member, _) in members.filter(|(_, part)| leads(part, &with_meta)) {
                looked_at += 1;
                let is_known = places.iter().any(|place| place.of_member(member).is_some());
                assert!(is_known, "{name}.{member} leads to a `_meta`");
            }
        }
        assert!(looked_at > 5, "{looked_at}");
    }
}

#[test]
fn nesting_costs_no_stack() {
    let deep = 200_000;
    for (open, close) in [("[", "]"), (r#"{"content":"#, "}"), (r#"{"content":["#, "]}"), (r#"{"x":["#, "]}")] {
        let inner = r#"{"_meta":{"headend/x":1}}"#;
        let text = format!(r#"{{"content":{}{inner}{}}}"#, open.repeat(deep), close.repeat(deep));
        let raw = RawJson::trusted(text);
        let (_, keys) = remove_own_keys(&raw, MetaRole::Result, "git");
        assert_eq!(keys, usize::from(open.contains("content")), "{open}");
    }
}

/// Applies the same rules to a tree of values.
fn reference(value: &Value, place: Option<MetaRole>, in_list: bool, first: &mut bool) -> Value {
    match (value, place) {
        (Value::Array(parts), Some(_)) if !in_list => {
            parts.iter().map(|part| reference(part, place, true, first)).collect()
        }
        (Value::Object(members), Some(place)) => {
            let mut out = Map::new();
            for (key, value) in members {
                let new = match (key.as_str(), value) {
                    ("_meta", Value::Object(meta)) if matches!(place, MetaRole::Result | MetaRole::Open) => {
                        meta_reference(meta, place == MetaRole::Result, first)
                    }
                    (key, value) => reference(value, leads_to(place, key), false, first),
                };
                out.insert(key.clone(), new);
            }
            Value::Object(out)
        }
        _ => value.clone(),
    }
}

fn meta_reference(meta: &Map<String, Value>, of_result: bool, first: &mut bool) -> Value {
    let mut out = Map::new();
    for (key, value) in meta {
        if key == REFUSAL && of_result && value.is_object() && *first {
            *first = false;
            out.insert("headend/upstream-refusal".to_owned(), json!({"upstream": "git", "refusal": value}));
        } else if !key.starts_with("headend/") {
            out.insert(key.clone(), value.clone());
        }
    }
    Value::Object(out)
}

fn leads_to(place: MetaRole, key: &str) -> Option<MetaRole> {
    match (place, key) {
        (MetaRole::Result | MetaRole::Open, "content" | "resource" | "messages" | "tools") => Some(MetaRole::Open),
        (MetaRole::Result | MetaRole::Open, "inputRequests") => Some(MetaRole::Requests),
        (MetaRole::Requests, _) => Some(MetaRole::Request),
        (MetaRole::Request, "params") => Some(MetaRole::Open),
        _ => None,
    }
}

/// Writes a string literal in one of its spellings.
fn literal(text: &str, spelling: u8) -> String {
    let mut out = String::from("\"");
    for (n, c) in text.chars().enumerate() {
        match c {
            '/' if spelling == 1 => out.push_str("\\/"),
            c if spelling > 1 && n % usize::from(spelling) == 0 => out.push_str(&format!("\\u{:04x}", u32::from(c))),
            c => out.push(c),
        }
    }
    out + "\""
}

fn written(value: &Value, spelling: u8, space: &str, out: &mut String) {
    match value {
        Value::Array(parts) => {
            out.push('[');
            for (n, part) in parts.iter().enumerate() {
                out.push_str(if n > 0 { "," } else { "" });
                written(part, spelling, space, out);
                out.push_str(space);
            }
            out.push(']');
        }
        Value::Object(members) => {
            out.push('{');
            for (n, (key, value)) in members.iter().enumerate() {
                out.push_str(if n > 0 { "," } else { space });
                out.push_str(&format!("{space}{}{space}:{space}", literal(key, spelling)));
                written(value, spelling, space, out);
                out.push_str(space);
            }
            out.push('}');
        }
        Value::String(text) => out.push_str(&literal(text, spelling)),
        Value::Null | Value::Bool(_) | Value::Number(_) => out.push_str(&value.to_string()),
    }
}

fn any_value() -> impl Strategy<Value = Value> {
    let words = ["_meta", "headend/refusal", "headend/x", "headendx", "content", "resource", "messages", "tools"];
    let more = ["inputRequests", "params", "structuredContent", "a"];
    let key = prop::sample::select([&words[..], &more[..]].concat());
    let leaf = prop_oneof![Just(json!(1.5)), Just(json!(null)), key.clone().prop_map(|word| json!(word))];
    leaf.prop_recursive(6, 64, 6, move |inner| {
        let object = prop::collection::btree_map(key.clone(), inner.clone(), 0..6);
        prop_oneof![
            1 => prop::collection::vec(inner, 0..4).prop_map(Value::Array),
            4 => object.prop_map(|map| map.into_iter().map(|(key, value)| (key.to_owned(), value)).collect()),
        ]
    })
}

proptest! {
    #[test]
    fn any_result_comes_to_what_the_rule_says(value in any_value(), spelling in 0_u8..4, space in "[ \t]{0,2}") {
        let mut text = String::new();
        written(&json!({"content": value.clone(), "_meta": value}), spelling, &space, &mut text);
        let before: Value = serde_json::from_str(&text).unwrap();
        let want = reference(&before, Some(MetaRole::Result), false, &mut true);
        let (got, taken) = of_result(&text);
        prop_assert_eq!(serde_json::from_str::<Value>(&got).unwrap(), want);
        if taken == RemovedWords::default() {
            prop_assert_eq!(got, text);
        }
    }
}
