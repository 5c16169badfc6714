//! Finds a member of a JSON object in its text.

use std::ops::Range;

use crate::wire::json::tokens::{JsonTokens, TokenKind};

/// The position of a member in the text of its object.
pub(super) struct MemberRange {
    /// The whole member, with the comma to remove together with it.
    pub(super) whole: Range<usize>,
    pub(super) value: Range<usize>,
    /// True if the object has no other member.
    pub(super) is_alone: bool,
}

/// Finds the first member of that name.
pub(super) fn find_member(text: &[u8], name: &str) -> Option<MemberRange> {
    let mut tokens = JsonTokens::of(text);
    let mut comma = None;
    loop {
        let token = tokens.next()?;
        if tokens.depth() != 1 {
            continue;
        }
        match token.kind {
            TokenKind::Comma => comma = Some(token.start),
            TokenKind::Key if tokens.unquoted(token).is_some_and(|key| key == name.as_bytes()) => {
                let first = tokens.next()?;
                let mut value = first.start..first.end;
                while tokens.depth() > 1 {
                    value.end = tokens.next()?.end;
                }
                let next = tokens.next()?;
                let is_last = next.kind != TokenKind::Comma;
                let whole = match comma {
                    _ if !is_last => token.start..next.end,
                    Some(comma) => comma..value.end,
                    None => token.start..value.end,
                };
                return Some(MemberRange { whole, value, is_alone: is_last && comma.is_none() });
            }
            TokenKind::Key
            | TokenKind::Object
            | TokenKind::Array
            | TokenKind::ObjectEnd
            | TokenKind::ArrayEnd
            | TokenKind::String
            | TokenKind::Scalar => {}
        }
    }
}
