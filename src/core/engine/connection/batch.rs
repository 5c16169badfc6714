//! Splits the JSON-RPC batches of servers, which only MCP 2025-03-26 allows, into messages.
//!
//! `client::heard` reads the batches of clients and shares [`split_array`]. Source: MCP 2025-03-26,
//! basic, "Batching".

use crate::mcp::version::Revision;
use crate::wire::frame::Frame;
use crate::wire::json::raw::{RawJson, elements};
use crate::wire::quirk::Quirk;

/// Splits a frame of a server that holds a JSON array into its messages; `None` for a single
/// message and for invalid JSON.
///
/// In a revision without batches, or before one is agreed, an array around one message is read as
/// that message and reported as [`Quirk::Array`]; any other array gives `None`.
pub fn split(frame: &Frame, revision: Option<Revision>) -> Option<(Vec<Frame>, Option<Quirk>)> {
    let parts = split_array(frame)?;
    let quirk = match revision {
        Some(revision) if revision.features().batch => None,
        Some(_) | None if parts.len() == 1 => Some(Quirk::Array),
        Some(_) | None => return None,
    };
    let frames = parts.into_iter().filter_map(|part| Frame::from_upstream(part.into_bytes()).ok());
    Some((frames.collect(), quirk))
}

/// Returns the elements of a frame that holds a JSON array; `None` for any other frame, also for
/// invalid JSON.
pub(in crate::engine) fn split_array(frame: &Frame) -> Option<Vec<RawJson>> {
    let is_array = frame.bytes().iter().find(|byte| !byte.is_ascii_whitespace()) == Some(&b'[');
    is_array.then(|| elements(&RawJson::trusted(frame.bytes().clone())).ok()).flatten()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_array_is_a_batch_in_one_revision_and_a_message_in_the_others_if_it_holds_one() {
        let frame = |text: &'static str| Frame::from_upstream(text.into()).unwrap();
        for (label, text, revision, wanted) in [
            ("two", r#" [{"a":1}, {"b":[2]}]"#, Some(Revision::V2025_03_26), Some(vec![r#"{"a":1}"#, r#"{"b":[2]}"#])),
            ("one", r#"[{"a":1}]"#, Some(Revision::V2025_03_26), Some(vec![r#"{"a":1}"#])),
            ("none", "[]", Some(Revision::V2025_03_26), Some(vec![])),
            ("a message", r#"{"a":[1]}"#, Some(Revision::V2025_03_26), None),
            ("one, in a later revision", r#"[{"a":1}]"#, Some(Revision::V2025_06_18), Some(vec![r#"{"a":1}"#])),
            ("one, before anything is agreed", r#"[{"a":1}]"#, None, Some(vec![r#"{"a":1}"#])),
            ("two, in a later revision", r#"[{"a":1},{"a":1}]"#, Some(Revision::V2026_07_28), None),
            ("none, before anything is agreed", "[]", None, None),
        ] {
            let split = split(&frame(text), revision);
            let texts =
                split.as_ref().map(|(frames, _)| frames.iter().map(|frame| &frame.bytes()[..]).collect::<Vec<_>>());
            let wanted = wanted.map(|wanted| wanted.into_iter().map(str::as_bytes).collect::<Vec<_>>());
            assert_eq!(texts, wanted, "{label}");
            let quirk = split.and_then(|(_, quirk)| quirk);
            let is_odd = wanted.is_some() && revision != Some(Revision::V2025_03_26);
            assert_eq!(quirk, is_odd.then_some(Quirk::Array), "{label}");
        }
    }
}
