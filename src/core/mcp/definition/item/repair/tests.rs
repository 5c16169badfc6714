use jsonschema::Validator;
use serde_json::{Value, json};

use super::super::Definition;
use super::*;
use crate::mcp::project;
use crate::mcp::version::Revision;

/// Every revision and its official schema.
const SCHEMAS: [(Revision, &str); 5] = [
    (Revision::V2024_11_05, include_str!("../../../../../../tests/data/schema/2024-11-05.json")),
    (Revision::V2025_03_26, include_str!("../../../../../../tests/data/schema/2025-03-26.json")),
    (Revision::V2025_06_18, include_str!("../../../../../../tests/data/schema/2025-06-18.json")),
    (Revision::V2025_11_25, include_str!("../../../../../../tests/data/schema/2025-11-25.json")),
    (Revision::V2026_07_28, include_str!("../../../../../../tests/data/schema/2026-07-28.json")),
];

fn named(list: ItemList) -> &'static str {
    match list {
        ItemList::Tools => "Tool",
        ItemList::Prompts => "Prompt",
        ItemList::Resources => "Resource",
        ItemList::Templates => "ResourceTemplate",
    }
}

/// Returns the schema of a definition in each revision, as text and compiled.
fn official(list: ItemList) -> Vec<(Revision, Value, Validator)> {
    let of = |(revision, text): &(Revision, &str)| {
        let document: Value = serde_json::from_str(text).unwrap();
        let place = if document.get("$defs").is_some() { "$defs" } else { "definitions" };
        let reference = format!("#/{place}/{}", named(list));
        let whole = json!({"$schema": document["$schema"], place: document[place], "$ref": reference});
        (*revision, document[place][named(list)].clone(), jsonschema::validator_for(&whole).unwrap())
    };
    SCHEMAS.iter().map(of).collect()
}

/// Returns a definition with all members.
fn whole(list: ItemList) -> Value {
    let icons = json!([{"src": "https://a.example/i.png", "mimeType": "image/png", "sizes": ["any"], "theme": "dark"}]);
    let content = json!({"audience": ["user"], "priority": 0.5, "lastModified": "2025-01-12T15:00:58Z"});
    match list {
        ItemList::Tools => {
            let schema = json!({
                "$schema": "https://json-schema.org/draft/2020-12/schema", "type": "object",
                "properties": {"a": {"type": "string"}}, "required": ["a"], "x": 1,
            });
            json!({
                "name": "n", "title": "t", "description": "d", "inputSchema": schema, "outputSchema": schema,
                "annotations": {
                    "title": "t", "readOnlyHint": true, "destructiveHint": false, "idempotentHint": true,
                    "openWorldHint": false, "x": 1,
                },
                "execution": {"taskSupport": "optional"}, "icons": icons, "_meta": {"x": 1}, "x": [1],
            })
        }
        ItemList::Prompts => json!({
            "name": "n", "title": "t", "description": "d", "icons": icons, "_meta": {}, "x": 1,
            "arguments": [{"name": "a", "title": "t", "description": "d", "required": true}, {"name": "b", "x": 1}],
        }),
        ItemList::Resources => json!({
            "uri": "fx://1", "name": "n", "title": "t", "description": "d", "mimeType": "text/plain", "size": 7,
            "annotations": content, "icons": icons, "_meta": {},
        }),
        ItemList::Templates => json!({
            "uriTemplate": "fx://{n}", "name": "n", "title": "t", "description": "d", "mimeType": "text/plain",
            "annotations": content, "icons": icons, "_meta": {},
        }),
    }
}

/// Collects the JSON pointers of all values below the root.
fn places(value: &Value, path: &str, all: &mut Vec<String>) {
    let parts: Vec<(String, &Value)> = match value {
        Value::Object(members) => members.iter().map(|(key, value)| (key.clone(), value)).collect(),
        Value::Array(items) => items.iter().enumerate().map(|(n, value)| (n.to_string(), value)).collect(),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => Vec::new(),
    };
    for (key, value) in parts {
        let place = format!("{path}/{}", key.replace('/', "~1"));
        all.push(place.clone());
        places(value, &place, all);
    }
}

/// Returns the definition with a wrong value at each position, and with the value at each position
/// removed.
fn damaged(list: ItemList) -> Vec<(String, Value)> {
    let whole = whole(list);
    let mut all = Vec::new();
    places(&whole, "", &mut all);
    let wrong =
        json!([null, true, false, 7, -1, 1.5, 1e300, "text", "", [], [7], ["a"], [{}], {}, {"a": 7}, {"a": true}]);
    let mut out = vec![("nothing".to_owned(), whole.clone())];
    for place in all.iter().filter(|place| **place != format!("/{}", list.key())) {
        for value in wrong.as_array().unwrap() {
            let mut damaged = whole.clone();
            *damaged.pointer_mut(place).unwrap() = value.clone();
            out.push((format!("{place} = {value}"), damaged));
        }
        let (parent, key) = place.rsplit_once('/').unwrap();
        let mut damaged = whole.clone();
        match damaged.pointer_mut(parent).unwrap() {
            Value::Object(members) => drop(members.remove(key)),
            Value::Array(items) => drop(items.remove(key.parse().unwrap())),
            other @ (Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_)) => panic!("{other}"),
        }
        out.push((format!("{place} is gone"), damaged));
    }
    out
}

#[test]
fn what_is_listed_fits_the_schema_of_every_revision_and_what_fits_all_of_them_is_not_touched() {
    for list in ItemList::ALL {
        let official = official(list);
        let (mut repaired, mut withheld, mut untouched) = (0, 0, 0);
        for (label, damaged) in damaged(list) {
            let text = damaged.to_string();
            let item = Definition::read(list, &RawJson::trusted(text.clone())).unwrap();
            let shown = item.raw.encode();
            if official.iter().all(|(_, _, validator)| validator.is_valid(&damaged)) {
                // The SDKs parse times, and icons have rules of their own.
                if !label.contains("lastModified") {
                    assert_eq!((item.repairs.len(), item.fault), (0, None), "{label}: {:?}", item.repairs);
                    assert!(label.contains("/icons") || shown.text() == text, "{label}: {}", shown.text());
                }
                untouched += 1;
            }
            if item.fault.is_some() {
                let place = label.split(' ').next().unwrap();
                assert!(place.starts_with("/inputSchema") || ["/name", "/uri"].contains(&place), "{label}");
                withheld += 1;
                continue;
            }
            repaired += usize::from(!item.repairs.is_empty());
            for (revision, _, validator) in &official {
                let exposed = if list == ItemList::Resources { "up+fx://1" } else { "up__n" };
                let projected = project::project_definition(list, &item.raw, exposed, *revision, false).encode();
                let projected: Value = projected.parse().unwrap();
                let wrong: Vec<String> = validator.iter_errors(&projected).map(|error| error.to_string()).collect();
                assert!(wrong.is_empty(), "{label} for {revision}: {wrong:?} in {projected}");
            }
        }
        assert!(repaired > 50 && untouched > 10, "{list:?}: {repaired} repaired, {untouched} untouched");
        assert_eq!(withheld > 0, list != ItemList::Prompts, "{list:?}");
    }
}

#[test]
fn the_tables_name_every_member_that_a_revision_knows() {
    for (list, table) in [
        (ItemList::Tools, TOOL),
        (ItemList::Prompts, PROMPT),
        (ItemList::Resources, RESOURCE),
        (ItemList::Templates, TEMPLATE),
    ] {
        for (revision, schema, _) in official(list) {
            let known = schema["properties"].as_object().unwrap().keys();
            let apart = |name: &&String| ![list.key(), "inputSchema", "outputSchema"].contains(&name.as_str());
            for name in known.filter(apart) {
                assert!(table.iter().any(|member| member.name == name), "`{name}` of {revision} in {list:?}");
            }
            let required: Vec<&str> = schema["required"].as_array().unwrap().iter().filter_map(Value::as_str).collect();
            for member in table.iter().filter(|member| member.required) {
                assert!(required.contains(&member.name), "{} of {revision} in {list:?}", member.name);
            }
        }
    }
}

/// Returns the definition that clients get, the lines about its repairs, and the fault if it is
/// withheld.
fn read(list: ItemList, text: &'static str) -> (String, Vec<String>, Option<&'static str>) {
    let item = Definition::read(list, &RawJson::trusted(text)).unwrap();
    (item.raw.encode().text().into_owned(), item.repairs, item.fault)
}

#[test]
fn an_invalid_member_is_dropped_and_the_rest_keeps_its_bytes() {
    const SCHEMA: &str = r#""inputSchema":{ "type" : "object" }"#;
    for (list, text, want, lines) in [
        (
            ItemList::Tools,
            r#"{"name":"a","description":7,"inputSchema":{ "type" : "object" },"x":[ 1 ]}"#,
            r#"{"name":"a",@,"x":[ 1 ]}"#,
            &["dropped `description`, which is not a text"][..],
        ),
        (
            ItemList::Tools,
            r#"{"name":"a","inputSchema":{ "type" : "object" },"annotations":"reads only"}"#,
            r#"{"name":"a",@}"#,
            &["dropped `annotations`, which is not an object"],
        ),
        (
            ItemList::Tools,
            r#"{"name":"a","inputSchema":{ "type" : "object" },"annotations":{"readOnlyHint":"yes","destructiveHint":false,"title":"\u0054"}}"#,
            r#"{"name":"a",@,"annotations":{"destructiveHint":false,"title":"\u0054"}}"#,
            &["dropped `annotations.readOnlyHint`, which is not `true` or `false`"],
        ),
        (
            ItemList::Tools,
            r#"{"name":"a","inputSchema":{ "type" : "object" },"outputSchema":{"type":"object","properties":[]},"title":null}"#,
            r#"{"name":"a",@}"#,
            &["dropped `title`, which is not a text", "dropped `outputSchema`, which is not a schema"],
        ),
        (
            ItemList::Tools,
            r#"{"name":"a","inputSchema":{ "type" : "object" },"outputSchema":{"type":["string","null"]}}"#,
            r#"{"name":"a",@,"outputSchema":{"type":["string","null"]}}"#,
            &[],
        ),
        (
            ItemList::Tools,
            r#"{"name":"a","inputSchema":{"properties":{ "x":{} }}}"#,
            r#"{"name":"a","inputSchema":{"properties":{ "x":{} },"type":"object"}}"#,
            &["added the `type` of `inputSchema`, which is \"object\""],
        ),
        (
            ItemList::Tools,
            r#"{"name":"a"}"#,
            r#"{"name":"a","inputSchema":{"type":"object"}}"#,
            &["added the `type` of `inputSchema`, which is \"object\""],
        ),
        (
            ItemList::Tools,
            r#"{"name":"a","inputSchema":{"type":"object","properties":{"x":true,"y":false,"z":{ }}}}"#,
            r#"{"name":"a","inputSchema":{"type":"object","properties":{"x":{},"y":{"not":{}},"z":{ }}}}"#,
            &["wrote `true` and `false` in `inputSchema.properties` as schemas that are objects"],
        ),
        (
            ItemList::Tools,
            r#"{"name":"a","inputSchema":null}"#,
            r#"{"name":"a","inputSchema":{"type":"object"}}"#,
            &["added the `type` of `inputSchema`, which is \"object\""],
        ),
        (
            ItemList::Tools,
            r#"{"name":"a","inputSchema":{"type":"object","properties":null,"required":null,"x":null},"outputSchema":{"required":null}}"#,
            r#"{"name":"a","inputSchema":{"type":"object","x":null},"outputSchema":{}}"#,
            &[
                "dropped `inputSchema.properties`, which is `null`",
                "dropped `inputSchema.required`, which is `null`",
                "dropped `outputSchema.required`, which is `null`",
            ],
        ),
        (
            ItemList::Resources,
            r#"{"uri":"x:","name":"a","size":12.0}"#,
            r#"{"uri":"x:","name":"a","size":12}"#,
            &["wrote `size` without a fraction"],
        ),
        (ItemList::Resources, r#"{"uri":"x:","name":"a","size":-0}"#, r#"{"uri":"x:","name":"a","size":-0}"#, &[]),
        (
            ItemList::Prompts,
            r#"{"name":"a","arguments":[{"name":"x", "required":"yes"},{"name":7},{"name":"y","required":"no"}]}"#,
            r#"{"name":"a","arguments":[{"name":"x"},{"name":"y"}]}"#,
            &[
                "dropped `arguments.required`, which is not `true` or `false`",
                "dropped an element of `arguments` that lacks what it must have",
            ],
        ),
        (
            ItemList::Resources,
            r#"{"uri":"x:","name":"a","size":"12","annotations":{"audience":["user","all"],"priority":2,"lastModified":"today"}}"#,
            r#"{"uri":"x:","name":"a","annotations":{}}"#,
            &[
                "dropped `size`, which is not a whole number",
                "dropped `annotations.audience`, which is not a list of words of the protocol",
                "dropped `annotations.priority`, which is not a number from 0 to 1",
                "dropped `annotations.lastModified`, which is not a time with its offset, such as 2025-01-12T15:00:58Z",
            ],
        ),
        (
            ItemList::Templates,
            r#"{"uriTemplate":"x:{a}","name":"a","icons":{},"_meta":[]}"#,
            r#"{"uriTemplate":"x:{a}","name":"a"}"#,
            &["dropped `icons`, which is not a list", "dropped `_meta`, which is not an object"],
        ),
        (
            ItemList::Tools,
            r#"{"name":"a","inputSchema":{ "type" : "object" },"icons":[{"src":"https://a.example/i","theme":"blue"},{"src":1}]}"#,
            r#"{"name":"a",@,"icons":[{"src":"https://a.example/i"}]}"#,
            &[
                "dropped `icons.theme`, which is not a word of the protocol",
                "dropped an element of `icons` that lacks what it must have",
            ],
        ),
    ] {
        let (shown, told, fault) = read(list, text);
        assert_eq!((shown, fault), (want.replace('@', SCHEMA), None), "{text}");
        let told: Vec<&str> = told.iter().map(String::as_str).collect();
        for line in lines {
            assert!(told.contains(line), "{line:?} in {told:?}");
        }
        assert_eq!(told.len(), lines.len(), "{told:?}");
    }
}

#[test]
fn what_cannot_be_repaired_is_withheld() {
    for (list, text, names) in [
        (ItemList::Tools, r#"{"name":"a","inputSchema":{"type":"string"}}"#, "`type`"),
        (ItemList::Tools, r#"{"name":"a","inputSchema":{"type":["object","null"]}}"#, "`type`"),
        (ItemList::Tools, r#"{"name":"a","inputSchema":{"type":"object","properties":[]}}"#, "`properties`"),
        (ItemList::Tools, r#"{"name":"a","inputSchema":{"properties":{"x":"string"}}}"#, "`properties`"),
        (ItemList::Tools, r#"{"name":"a","inputSchema":{"properties":{"x":null}}}"#, "`properties`"),
        (ItemList::Tools, r#"{"name":"a","inputSchema":{"type":"object","required":"x"}}"#, "`required`"),
        (ItemList::Tools, r#"{"name":"a","inputSchema":{"type":"object","required":[1]}}"#, "`required`"),
        (ItemList::Tools, r#"{"name":"a","inputSchema":{"type":"object","$schema":{}}}"#, "`$schema`"),
        (ItemList::Tools, r#"{"name":"a","inputSchema":7}"#, "`inputSchema`"),
        (ItemList::Tools, r#"{"name":"a","inputSchema":true}"#, "`inputSchema`"),
        (ItemList::Resources, r#"{"uri":"x:"}"#, "`name`"),
        (ItemList::Resources, r#"{"uri":"x:","name":7}"#, "`name`"),
        (ItemList::Resources, r#"{"uri":"notes/today","name":"a"}"#, "URI"),
        (ItemList::Resources, r#"{"uri":"http://[1","name":"a"}"#, "URI"),
        (ItemList::Templates, r#"{"uriTemplate":"x:{a}","name":null}"#, "`name`"),
    ] {
        let (_, _, fault) = read(list, text);
        assert!(fault.is_some_and(|fault| fault.contains(names)), "{text}: {fault:?}");
    }
}

#[test]
fn the_digest_is_that_of_the_repaired_definition() {
    let digest = |text: &'static str| Definition::read(ItemList::Tools, &RawJson::trusted(text)).unwrap().digest;
    let good = digest(r#"{"name":"a","inputSchema":{"type":"object"}}"#);
    assert_eq!(digest(r#"{"name":"a","inputSchema":{"type":"object"},"description":7,"annotations":"x"}"#), good);
    assert_eq!(digest(r#"{"name":"a","inputSchema":{}}"#), good);
    assert_ne!(digest(r#"{"name":"a","inputSchema":{"type":"object"},"description":"7"}"#), good);
}

#[test]
fn the_cost_grows_with_the_text_alone() {
    let icon = r#"{"src":"https://a.example/i","sizes":7,"theme":null},"#.repeat(4000);
    let text = format!(r#"{{"name":"a","icons":[{}],"inputSchema":{{}}}}"#, icon.trim_end_matches(','));
    let item = Definition::read(ItemList::Tools, &RawJson::trusted(text)).unwrap();
    assert_eq!(item.repairs.len(), 3, "{:?}", item.repairs);
}
