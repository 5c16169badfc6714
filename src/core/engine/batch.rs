//! Batches of 2025-03-26, which may come on every transport: those of servers, and what those of clients share with them.
//!
//! Source: MCP 2025-03-26, basic, "Batching".

use crate::mcp::version::Revision;
use crate::wire::frame::Frame;
use crate::wire::raw::{RawJson, elements};

/// The messages of the batch that a frame of a server holds; `None` for a single message. What is no JSON in it is left out.
pub fn split(frame: &Frame, revision: Option<Revision>) -> Option<Vec<Frame>> {
    let parts = revision.filter(|revision| revision.features().batch).and_then(|_| parts(frame))?;
    Some(parts.into_iter().filter_map(|part| Frame::from_upstream(part.into_bytes()).ok()).collect())
}

/// The parts of a frame that holds an array; none where it is no valid JSON.
pub(super) fn parts(frame: &Frame) -> Option<Vec<RawJson>> {
    let is_array = frame.bytes().iter().find(|byte| !byte.is_ascii_whitespace()) == Some(&b'[');
    is_array.then(|| elements(&RawJson::trusted(frame.bytes().clone())).unwrap_or_default())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_revision_that_has_batches_is_taken_at_its_word() {
        let frame = |text: &'static str| Frame::from_upstream(text.into()).unwrap();
        for (label, text, revision, wanted) in [
            ("two", r#" [{"a":1}, {"b":[2]}]"#, Some(Revision::V2025_03_26), Some(vec![r#"{"a":1}"#, r#"{"b":[2]}"#])),
            ("none", "[]", Some(Revision::V2025_03_26), Some(vec![])),
            ("a message", r#"{"a":[1]}"#, Some(Revision::V2025_03_26), None),
            ("a later revision", r#"[{"a":1}]"#, Some(Revision::V2025_06_18), None),
            ("nothing agreed", r#"[{"a":1}]"#, None, None),
        ] {
            let frames = split(&frame(text), revision);
            let texts = frames.as_ref().map(|frames| frames.iter().map(|frame| &frame.bytes()[..]).collect::<Vec<_>>());
            let wanted = wanted.map(|wanted| wanted.into_iter().map(str::as_bytes).collect::<Vec<_>>());
            assert_eq!(texts, wanted, "{label}");
        }
    }
}
