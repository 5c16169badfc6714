//! Ways in which real servers write their answers against the protocol, for all of them: `--slip
//! NAME`.

use clap::ValueEnum;
use serde_json::{Value, json};

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Slip {
    /// `"id": "1"` for `1`.
    TextId,
    /// `"id": 1.0` for `1`.
    FractionId,
    /// All members of the envelope, the unused ones `null`.
    Nulls,
    /// An array around each answer.
    Array,
    /// No `jsonrpc`.
    NoVersion,
    /// `NaN` in each result.
    Nan,
    /// Optional members of results and of listed items are `null`.
    OptionalNulls,
}

impl Slip {
    /// Returns the answer as a server with this fault writes it.
    pub(crate) fn of(self, answer: &str) -> String {
        let mut message: Value = serde_json::from_str(answer).unwrap();
        let id = message["id"].clone();
        match self {
            Self::TextId => message["id"] = json!(id.to_string()),
            Self::FractionId => message["id"] = json!(id.as_f64().unwrap()),
            Self::Nulls => {
                for member in ["method", "params", "result", "error"] {
                    let value = message[member].take();
                    message[member] = value;
                }
            }
            Self::Array => message = json!([message]),
            Self::NoVersion => drop(message.as_object_mut().unwrap().remove("jsonrpc")),
            Self::OptionalNulls => optional_nulls(&mut message["result"]),
            Self::Nan => {
                message["result"]["x"] = json!("NaN");
                return message.to_string().replace("\"NaN\"", "NaN");
            }
        }
        message.to_string()
    }
}

/// Writes `null` for members that a result of a list or a call lacks.
fn optional_nulls(result: &mut Value) {
    let Some(members) = result.as_object_mut() else { return };
    let put = |value: &mut Value, names: &[&str]| {
        let Some(object) = value.as_object_mut() else { return };
        for name in names {
            object.entry(*name).or_insert(Value::Null);
        }
    };
    for (name, nulls) in [
        ("tools", &["title", "annotations", "icons", "_meta"][..]),
        ("prompts", &["title", "arguments", "icons", "_meta"]),
        ("resources", &["title", "mimeType", "size", "annotations", "_meta"]),
        ("resourceTemplates", &["title", "mimeType", "annotations", "_meta"]),
        ("content", &["annotations", "_meta"]),
        ("contents", &["mimeType", "_meta"]),
    ] {
        members.get_mut(name).and_then(Value::as_array_mut).into_iter().flatten().for_each(|item| put(item, nulls));
    }
    let has = |name: &str| members.contains_key(name);
    let nulls: &[&str] = match () {
        () if has("content") => &["isError", "_meta"],
        () if has("contents") => &["_meta"],
        () if has("messages") => &["description", "_meta"],
        () if ["tools", "prompts", "resources", "resourceTemplates"].into_iter().any(has) => &["nextCursor", "_meta"],
        () => &[],
    };
    put(result, nulls);
}

/// Returns the bytes of a text in which U+E000 stands for the byte E9, an `é` of Latin-1: a script
/// is JSON and can hold no such byte.
pub(crate) fn bytes(text: &str) -> Vec<u8> {
    text.split('\u{e000}').map(str::as_bytes).collect::<Vec<_>>().join(&0xe9)
}
