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
}

impl Slip {
    /// The answer as such a server writes it.
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
            Self::Nan => {
                message["result"]["x"] = json!("NaN");
                return message.to_string().replace("\"NaN\"", "NaN");
            }
        }
        message.to_string()
    }
}

/// The bytes of a text in which U+E000 stands for the byte E9, an `é` of Latin-1: a script is JSON
/// and can hold none.
pub(crate) fn bytes(text: &str) -> Vec<u8> {
    text.split('\u{e000}').map(str::as_bytes).collect::<Vec<_>>().join(&0xe9)
}
