//! Properties of the console's pages that hold for any text.
#![allow(clippy::panic, clippy::unwrap_used, reason = "a property fails by panicking")]

use super::route::{is_id, is_link, own_page};
use super::text::{ForeignPieceKind, block, diff, json, visible};
use crate::wire::foreign::{count_hidden, turns_direction};
use crate::wire::fuzz::{halves, value};
use crate::wire::json::layout::indented;

/// Checks that a page hides no character and links to no other site. The bytes are an old text, a
/// line feed and a new text.
pub(crate) fn text(data: &[u8]) {
    let text = String::from_utf8_lossy(data);
    let line = visible(&text);
    assert!(count_hidden(&line) == 0 && !line.contains(['\n', '\t']), "{line:?}");
    let spelled: String = block(&text).into_iter().map(|piece| piece.text).collect();
    assert!(count_hidden(&spelled) == 0, "{spelled:?}");
    let (old, new) = halves(data);
    let (old, new) = (String::from_utf8_lossy(old), String::from_utf8_lossy(new));
    for pieces in [block(&text), json(&text), diff(&old, &new)] {
        for piece in &pieces {
            assert!(!piece.text.is_empty());
            let leaks = |c: char| turns_direction(c) || (c.is_control() && !matches!(c, '\n' | '\t'));
            assert!(!piece.text.contains(leaks), "{piece:?}");
        }
    }
    if old == new {
        let changed =
            diff(&old, &new).into_iter().any(|p| matches!(p.kind, ForeignPieceKind::Added | ForeignPieceKind::Removed));
        assert!(!changed);
    }
    let page = own_page(&text);
    assert!(page.starts_with('/') && !page.starts_with("//") && !page.contains(['\\', '\r', '\n', ':']), "{page:?}");
    assert!(!is_id(&text) || text.bytes().all(|byte| byte.is_ascii_alphanumeric()));
    assert!(!is_link(&text) || !text.contains(['/', '.']));
    if let Some(value) = value(data)
        && let Ok(shown) = value.parse::<&serde_json::value::RawValue>()
    {
        let again = indented(shown.get());
        assert!(serde_json::from_str::<&serde_json::value::RawValue>(&again).is_ok(), "{again}");
    }
}
