//! Recovers the id of a message whose rest was dropped or is no JSON, so that its request can still
//! be ended.

use bytes::Bytes;

use crate::wire::id::normalize_number;
use crate::wire::json::raw::{RawJson, RawObject};
use crate::wire::json::tokens::{JsonTokens, TokenKind, unquoted};
use crate::wire::unreadable::plain_text;

/// The information in the start of a message, as far as it was kept. Ids are JSON: a number, or a
/// string without escapes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MessageStart<'a> {
    /// A response to the request of that id.
    Answer(&'a [u8]),
    /// A request of that id.
    Request(&'a [u8]),
    /// A notification.
    Notifies,
    /// A request or notification whose id, if any, comes later.
    Asks,
    /// Anything else, or a response whose id comes later.
    Unknown,
}

/// Returns the id of the request to which a text is the response, although it is no JSON as a
/// whole; read from its start or its end. SDKs write the id first or last.
pub fn response_id(bytes: &[u8]) -> Option<&[u8]> {
    match MessageStart::of(bytes) {
        MessageStart::Answer(id) => Some(id),
        MessageStart::Request(_) | MessageStart::Notifies | MessageStart::Asks => None,
        MessageStart::Unknown => answered_at_end(bytes),
    }
}

/// Returns the number of headend's request to which a text is the response, although it is no
/// message: JSON of another shape, or no JSON. `None` for a request of the server, whose id is the
/// server's own.
pub fn own_response_id(bytes: &[u8]) -> Option<u64> {
    let object = RawJson::checked(Bytes::copy_from_slice(bytes)).and_then(|text| RawObject::parse(&text));
    if let Ok(object) = object {
        let is_answer = object.get("method").is_none() || object.get("result").is_some();
        let id = object.get("id").filter(|_| is_answer)?;
        return normalize_number(id).as_ref().unwrap_or(id).parse().ok();
    }
    let text = plain_text(bytes);
    let id = response_id(&text)?.trim_ascii();
    let id = id.strip_prefix(b"\"").and_then(|id| id.strip_suffix(b"\"")).unwrap_or(id);
    std::str::from_utf8(id).ok()?.parse().ok()
}

/// Finds the id at the end of the text: `"id"`, or `"id"` and `"jsonrpc"` in either order, after a
/// result or an error. An `"id"` elsewhere may belong to the result.
fn answered_at_end(bytes: &[u8]) -> Option<&[u8]> {
    let mut tokens = JsonTokens::of(bytes);
    tokens.next().filter(|first| first.kind == TokenKind::Object)?;
    let first = tokens.next()?;
    if !matches!(tokens.literal(first), b"\"result\"" | b"\"error\"") {
        return None;
    }
    let rest = before(bytes, b"}")?;
    match member_at_end(rest) {
        Some((b"\"id\"", id, rest)) if member_at_end(rest).is_some_and(|(name, ..)| name == b"\"jsonrpc\"") => Some(id),
        Some((b"\"jsonrpc\"", _, rest)) => {
            member_at_end(rest).filter(|(name, ..)| *name == b"\"id\"").map(|(_, id, _)| id)
        }
        _ => None,
    }
}

/// Returns the bytes before `end`, without white space around it.
fn before<'a>(bytes: &'a [u8], end: &[u8]) -> Option<&'a [u8]> {
    Some(bytes.trim_ascii_end().strip_suffix(end)?.trim_ascii_end())
}

/// Returns name and value of the last member, if both are plain, and the bytes before the comma in
/// front of it.
fn member_at_end(bytes: &[u8]) -> Option<(&[u8], &[u8], &[u8])> {
    let (rest, value) = value_at_end(bytes)?;
    let (rest, name) = value_at_end(before(rest, b":")?)?;
    Some((name, value, before(rest, b",")?))
}

/// Splits a plain string or a number of digits off the end; returns the bytes before it and the
/// value.
fn value_at_end(bytes: &[u8]) -> Option<(&[u8], &[u8])> {
    let begin = match bytes.strip_suffix(b"\"") {
        Some(inner) => inner.iter().rposition(|byte| *byte == b'"')?,
        None => bytes.iter().rposition(|byte| !byte.is_ascii_digit())? + 1,
    };
    let (rest, value) = bytes.split_at_checked(begin)?;
    (!value.is_empty() && !value.contains(&b'\\')).then_some((rest, value))
}

impl<'a> MessageStart<'a> {
    /// Reads the members of the envelope before the first large one. Stops at a name with escapes.
    pub fn of(bytes: &'a [u8]) -> Self {
        let (mut id, mut asks) = (None, false);
        let found = Self::read(bytes, &mut id, &mut asks);
        // The method may be the value that is too large.
        found.unwrap_or(if asks { id.map_or(Self::Asks, Self::Request) } else { Self::Unknown })
    }

    /// Reads the start until its meaning is certain. Notes the id, and whether there is a method,
    /// on the way.
    fn read(bytes: &'a [u8], id: &mut Option<&'a [u8]>, asks: &mut bool) -> Option<Self> {
        let mut tokens = JsonTokens::of(bytes);
        tokens.next().filter(|first| first.kind == TokenKind::Object)?;
        loop {
            let name = tokens.next().filter(|name| name.kind == TokenKind::Key)?;
            let name = tokens.literal(name);
            match name {
                b"\"result\"" | b"\"error\"" if !*asks => return id.map(Self::Answer),
                b"\"id\"" | b"\"jsonrpc\"" | b"\"method\"" => {}
                _ => return None,
            }
            let is_method = name == b"\"method\"";
            *asks |= is_method;
            let token = tokens.next()?;
            let value = tokens.literal(token);
            let is_number = token.kind == TokenKind::Scalar && value.iter().all(u8::is_ascii_digit);
            let is_plain = token.kind == TokenKind::String && !token.escaped && unquoted(value).is_some();
            if !is_number && !is_plain {
                return None;
            }
            if is_method && value.starts_with(b"\"notifications/") {
                return Some(Self::Notifies);
            }
            // A value that nothing follows may be cut.
            tokens.next().filter(|comma| comma.kind == TokenKind::Comma)?;
            if name == b"\"id\"" {
                *id = Some(value);
            }
            if let Some(id) = id.filter(|_| *asks) {
                return Some(Self::Request(id));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_text_that_is_no_json_names_the_request_that_it_answers_at_its_start_or_its_end() {
        for (text, id) in [
            (r#"{"jsonrpc":"2.0","id":7,"result":{"a":NaN}}"#, Some("7")),
            (r#"{"result":{"a":NaN},"jsonrpc":"2.0","id":7}"#, Some("7")),
            (r#"{"error":{"a":NaN}, "id" : 7 , "jsonrpc" : "2.0" } "#, Some("7")),
            (r#"{"result":{"a":NaN},"jsonrpc":"2.0","id":"7"}"#, Some("\"7\"")),
            // An id inside of the result, or of a request of the server.
            (r#"{"result":{"a":NaN,"id":7}}"#, None),
            (r#"{"result":{"a":NaN,"id":7}"#, None),
            (r#"{"jsonrpc":"2.0","method":"sampling/createMessage","params":{"a":NaN},"id":7}"#, None),
            (r#"{"params":{"a":NaN},"method":"x","jsonrpc":"2.0","id":7}"#, None),
            (r#"{"result":{},"jsonrpc":"2.0","id":7.5}"#, None),
            (r#"{"result":{},"jsonrpc":"2.0","id":}"#, None),
            ("log: {\"id\":7}", None),
            ("", None),
        ] {
            assert_eq!(response_id(text.as_bytes()), id.map(str::as_bytes), "{text}");
        }
    }

    #[test]
    fn a_text_that_is_no_message_names_the_number_that_it_answers() {
        for (text, number) in [
            (r#"{"type":"heartbeat"}"#, None),
            ("ping", None),
            (r#"{"id":7}"#, Some(7)),
            (r#"{"id":"7","result":{}}"#, Some(7)),
            (r#"{"id":7,"result":NaN}"#, Some(7)),
            (r#"{"id":7,"method":"ping"}"#, None),
            (r#"[{"id":7,"result":{}}]"#, None),
        ] {
            assert_eq!(own_response_id(text.as_bytes()), number, "{text}");
        }
    }

    #[test]
    fn the_start_of_a_message_names_its_request() {
        for (text, start) in [
            (r#"{"jsonrpc":"2.0","id":7,"result":{"content":["#, MessageStart::Answer(b"7")),
            (r#"{"id":7,"jsonrpc":"2.0","result":{"content":["#, MessageStart::Answer(b"7")),
            (" {\t\"id\" : 7 , \"error\" :", MessageStart::Answer(b"7")),
            (r#"{"jsonrpc":"2.0","id":"ask-7","result":"#, MessageStart::Answer(b"\"ask-7\"")),
            (r#"{"jsonrpc":"2.0","id":7,"method":"sampling/createMessage","params""#, MessageStart::Request(b"7")),
            (r#"{"method":"tools/call","jsonrpc":"2.0","id":"a b","params":"#, MessageStart::Request(b"\"a b\"")),
            (r#"{"method":"tools/call","params":{"id":7,"#, MessageStart::Asks),
            (r#"{"method":"tools/call","id":"\u0061","params":{"#, MessageStart::Asks),
            (r#"{"method":"tools/call","id":7"#, MessageStart::Asks),
            (r#"{"id":7,"method":"tools/aaaaaaaaaaaaaaaa"#, MessageStart::Request(b"7")),
            (r#"{"jsonrpc":"2.0","method":"notifications/message","params":{"id":7"#, MessageStart::Notifies),
            (r#"{"jsonrpc":"2.0","result":{"id":7},"id":"#, MessageStart::Unknown),
            (r#"{"jsonrpc":"2.0","id":7.5,"result":"#, MessageStart::Unknown),
            (r#"{"jsonrpc":"2.0","id":,"result":"#, MessageStart::Unknown),
            (r#"{"jsonrpc":"2.0","i\u0064":7,"result":"#, MessageStart::Unknown),
            (r#"{"x":1,"id":7,"result":"#, MessageStart::Unknown),
            (r#"{"id":7"#, MessageStart::Unknown),
            (r#"[{"id":7,"result":"#, MessageStart::Unknown),
            ("    ", MessageStart::Unknown),
            ("", MessageStart::Unknown),
        ] {
            assert_eq!(MessageStart::of(text.as_bytes()), start, "{text}");
        }
    }
}
