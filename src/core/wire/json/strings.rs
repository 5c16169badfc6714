//! Edits of the strings of a JSON text: everything else stays byte for byte.

use std::borrow::Cow;

use crate::wire::json::raw::RawJson;
use crate::wire::json::tokens::{JsonTokens, TokenKind};

/// Deepest nesting of arrays and objects: a schema of 32 levels, two for each (`properties` and the
/// property).
pub(crate) const MAX_DEPTH: usize = 64;
/// Most arrays and objects in one definition: 4096 subschemas, two for each.
pub(crate) const MAX_CONTAINERS: usize = 8192;

/// A string literal of a JSON text: its bytes, and whether it is a key or a key's value.
#[derive(Clone, Copy, Debug)]
pub(crate) struct StringPosition<'t> {
    /// The bytes of the literal, with its quotes and escapes.
    pub(crate) literal: &'t [u8],
    pub(crate) is_key: bool,
    /// True if the string is the value of the key before it, and no element of a list.
    pub(crate) follows_key: bool,
}

/// A decision about one string, given the literal of the last key: its new text, or `None` to keep
/// it.
pub(crate) type StringEdit<'e> = dyn FnMut(&[u8], StringPosition<'_>) -> Result<Option<String>, String> + 'e;

/// Calls `edit` for each string of a JSON text, keys too, and returns the text with the strings
/// that it replaces; everything else stays byte for byte. Borrowed if nothing is replaced.
///
/// # Errors
/// Errors of `edit`, and a sentence if the text exceeds [`MAX_DEPTH`] or [`MAX_CONTAINERS`].
pub(crate) fn rewritten<'r>(raw: &'r RawJson, edit: &mut StringEdit<'_>) -> Result<Cow<'r, RawJson>, String> {
    let text = raw.bytes();
    let mut tokens = JsonTokens::of(text);
    let mut out: Option<Vec<u8>> = None;
    let (mut copied, mut containers) = (0, 0);
    let (mut key, mut follows_key): (&[u8], bool) = (b"", false);
    while let Some(token) = tokens.next() {
        let (literal, is_key) = (tokens.literal(token), token.kind == TokenKind::Key);
        match token.kind {
            TokenKind::Object | TokenKind::Array => {
                containers += 1;
                if tokens.depth() > MAX_DEPTH || containers > MAX_CONTAINERS {
                    return Err("its schema is too deep or has too many parts".to_owned());
                }
            }
            TokenKind::Key | TokenKind::String => {
                if is_key {
                    key = literal;
                }
                if let Some(new) = edit(key, StringPosition { literal, is_key, follows_key })? {
                    let out = out.get_or_insert_default();
                    out.extend_from_slice(text.get(copied..token.start).unwrap_or_default());
                    out.extend_from_slice(RawJson::string(&new).bytes());
                    copied = token.end;
                }
            }
            TokenKind::ObjectEnd | TokenKind::ArrayEnd | TokenKind::Comma | TokenKind::Scalar => {}
        }
        follows_key = is_key;
    }
    let Some(mut out) = out else { return Ok(Cow::Borrowed(raw)) };
    out.extend_from_slice(text.get(copied..).unwrap_or_default());
    Ok(Cow::Owned(RawJson::trusted(out)))
}
