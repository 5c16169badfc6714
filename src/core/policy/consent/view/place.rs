//! The places of values in arguments, as text: `path`, `edits[0].oldText`, `["a key with
//! blanks"].x`.

use std::borrow::Cow;

use crate::wire::foreign;
use crate::wire::foreign::marked::MarkedText;

/// Longest key that is written in full, in bytes.
const MAX_KEY: usize = 120;

/// One step from the arguments to a value.
pub(super) enum PlaceStep<'t> {
    /// Into an object whose first key is not read yet.
    Nothing,
    Member(Cow<'t, str>),
    Element(usize),
}

/// Writes the place that these steps lead to.
pub(super) fn place(path: &[PlaceStep<'_>]) -> MarkedText {
    let mut out = MarkedText::default();
    for step in path {
        match step {
            PlaceStep::Nothing => {}
            PlaceStep::Element(at) => out.push_own(&format!("[{at}]")),
            PlaceStep::Member(key) if is_plain(key) => {
                out.push_own(if out.is_empty() { "" } else { "." });
                out.push_own(key);
            }
            PlaceStep::Member(key) => {
                out.push_own("[");
                push_key(&mut out, key);
                out.push_own("]");
            }
        }
    }
    out
}

/// Whether a key can be written in a place without quotes.
fn is_plain(key: &str) -> bool {
    !key.is_empty() && key.len() <= MAX_KEY && key.chars().all(is_plain_in_key)
}

fn is_plain_in_key(c: char) -> bool {
    matches!(c, '_' | '-' | '$') || (c.is_alphanumeric() && !foreign::is_hidden(c))
}

/// Writes the name of a member by itself.
pub(super) fn name(key: &str) -> MarkedText {
    let mut out = MarkedText::default();
    if is_plain(key) {
        out.push_own(key)
    } else {
        push_key(&mut out, key)
    }
    out
}

/// Writes a key between quotes, cut if it is long.
fn push_key(out: &mut MarkedText, key: &str) {
    if key.len() <= MAX_KEY {
        return out.push_quoted(key);
    }
    let head: String = key.chars().take(MAX_KEY / 4).collect();
    out.push_quoted(&head);
    out.push_own(&format!(".. ({} bytes)", key.len()));
}
