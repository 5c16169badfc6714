//! The keys `instructions` of upstreams and profiles: which texts of servers clients get in the
//! gateway's own instructions.

use serde::{Serialize, Serializer};

use crate::mcp::instructions::MAX_BYTES;
use crate::source::file::ConfigTable;
use crate::wire::foreign;

/// The instructions of an upstream, or of all upstreams of a profile, for clients.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum InstructionSetting {
    /// The server's own text, once its pin approves it.
    Pass,
    Drop,
    /// A text of the operator in place of the server's.
    Text(String),
}

impl Serialize for InstructionSetting {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(match self {
            Self::Pass => "pass",
            Self::Drop => "drop",
            Self::Text(text) => text,
        })
    }
}

/// Reads the key `instructions`; `None` without it.
pub(crate) fn read(table: &mut ConfigTable<'_>) -> Option<InstructionSetting> {
    let node = table.take("instructions")?;
    let text = node.string()?;
    Some(match text.as_str() {
        "pass" => InstructionSetting::Pass,
        "drop" => InstructionSetting::Drop,
        text => {
            if text.trim().is_empty() {
                node.problem("must be \"pass\", \"drop\" or a text; \"drop\" passes none");
            } else if text.len() > MAX_BYTES {
                node.problem(format!("must not be longer than {MAX_BYTES} bytes"));
            } else if foreign::count_hidden(text) > 0 {
                node.problem("has hidden characters");
            }
            InstructionSetting::Text(text.to_owned())
        }
    })
}
