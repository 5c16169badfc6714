//! Estimates the share of a model's context that a tool takes. Hosts send name, description and
//! schema of each tool with every request.

use crate::wire::json::raw::RawObject;

/// The rough number of bytes per token in English text and JSON; models differ.
const BYTES_PER_TOKEN: usize = 4;

/// Returns the bytes of a tool as hosts hand it to a model: its name, its description and the
/// schema of its arguments.
pub fn bytes(name: &str, definition: &RawObject) -> usize {
    let mut sent = RawObject::of_strings(&[("name", name)]);
    for (name, member) in [("description", "description"), ("input_schema", "inputSchema")] {
        if let Some(value) = definition.get(member) {
            sent.set(name, value.clone());
        }
    }
    sent.encode().bytes().len()
}

/// Estimates the number of tokens for that many bytes.
pub const fn tokens(bytes: usize) -> usize {
    bytes.div_ceil(BYTES_PER_TOKEN)
}
