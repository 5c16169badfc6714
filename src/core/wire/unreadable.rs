//! Describes bytes of an upstream that are no message: the reason, and how they begin, for the
//! operator.

use std::borrow::Cow;
use std::fmt;
use std::fmt::Write as _;

use crate::wire::foreign;
use crate::wire::json::raw::RawJson;
use crate::wire::message::Response;

/// The number of bytes that the operator sees.
const SHOWN: usize = 200;
/// The longest word that is quoted as invalid JSON, in bytes.
const WORD: usize = 12;

/// A description of bytes that are no message.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UnreadableBytes {
    /// The reason, for the operator.
    pub why: String,
    /// The first bytes, in one line.
    pub start: String,
    /// True if the bytes begin like a message. A program that logs to standard output writes other
    /// bytes.
    pub is_meant: bool,
}

impl UnreadableBytes {
    /// Describes bytes that are no JSON-RPC message; `why` is the reason.
    pub fn new(bytes: &[u8], why: impl Into<String>) -> Self {
        let is_meant = plain_text(bytes).trim_ascii_start().first().is_some_and(|first| matches!(first, b'{' | b'['));
        Self { why: why.into(), start: start(bytes), is_meant }
    }

    /// Describes a response that no request waits for.
    pub fn unasked(response: &Response, why: &str) -> Self {
        let (Ok(body) | Err(body)) = &response.outcome;
        let id = response.id.as_ref().map_or(Cow::Borrowed("no id"), RawJson::text);
        Self { is_meant: false, ..Self::new(body.bytes(), format!("{why} ({})", foreign::short(&id, 40))) }
    }

    /// Describes bytes that are no JSON, with the reason that their content suggests.
    pub fn no_json(bytes: &[u8]) -> Self {
        Self::new(bytes, reason(bytes))
    }
}

impl Response {
    /// Returns why the response to a call cannot be read, with its beginning; `None` if it can be.
    /// Not for lists, which are judged item by item.
    pub fn unreadable(&self) -> Option<UnreadableBytes> {
        let (Ok(body) | Err(body)) = &self.outcome;
        match self.broken {
            Some(broken) => Some(UnreadableBytes::new(body.bytes(), broken.to_string())),
            None if self.outcome.is_ok() && !body.is_object() => Some(UnreadableBytes {
                is_meant: true,
                ..UnreadableBytes::new(body.bytes(), "a result that is no object")
            }),
            None => None,
        }
    }
}

impl fmt::Display for UnreadableBytes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.why, self.start)
    }
}

/// Reports whether every other byte of the beginning is NUL, as in UTF-16 text of ASCII letters.
fn is_utf16(bytes: &[u8]) -> bool {
    let half = |from: usize| bytes.get(from..).unwrap_or_default().iter().step_by(2).take(8);
    bytes.len() > 3 && [0, 1].into_iter().any(|from| half(from).all(|byte| *byte == 0))
}

/// Removes the byte order mark, and the NUL bytes of UTF-16 text of ASCII letters; other bytes
/// stay.
pub fn plain_text(bytes: &[u8]) -> Cow<'_, [u8]> {
    let bytes = bytes.strip_prefix(b"\xff\xfe").or_else(|| bytes.strip_prefix(b"\xfe\xff")).unwrap_or(bytes);
    match is_utf16(bytes) {
        true => bytes.iter().copied().filter(|byte| *byte != 0).collect(),
        false => Cow::Borrowed(bytes),
    }
}

/// Returns the most likely reason why bytes are no message, with its remedy.
fn reason(bytes: &[u8]) -> String {
    let marked = bytes.starts_with(b"\xff\xfe") || bytes.starts_with(b"\xfe\xff");
    if marked || is_utf16(bytes) {
        return "UTF-16 text; the protocol is UTF-8".to_owned();
    }
    let json = match std::str::from_utf8(bytes) {
        Err(error) => return format!("not UTF-8 from byte {} on", error.valid_up_to() + 1),
        Ok(text) => text.trim_start_matches(['\u{feff}', ' ', '\t', '\r', '\n']),
    };
    if json.get(..15).is_some_and(|head| head.eq_ignore_ascii_case("content-length:")) {
        return "a header with a length, as in LSP; MCP over stdio has one message on each line, without headers"
            .to_owned();
    }
    if !json.starts_with(['{', '[']) {
        return "no JSON; a server's log belongs on its standard error".to_owned();
    }
    match serde_json::from_str::<serde::de::IgnoredAny>(json) {
        Ok(_) => "not a JSON-RPC 2.0 message".to_owned(),
        Err(error) => from_invalid_json(json, &error),
    }
}

/// Describes a JSON error with its position and the word there.
fn from_invalid_json(json: &str, error: &serde_json::Error) -> String {
    if error.is_eof() {
        return "JSON without its end; one message stands on one line".to_owned();
    }
    let text = error.to_string();
    let what = text.split(" at line ").next().unwrap_or_default();
    // The parser reports a position inside the word or after it.
    let is_word = |byte: &u8| byte.is_ascii_alphanumeric() || *byte == b'-';
    let at = error.column().saturating_sub(1);
    let before = json.as_bytes().get(..at).unwrap_or_default().iter().rev().take_while(|byte| is_word(byte)).count();
    let after = json.as_bytes().get(at..).unwrap_or_default().iter().take_while(|byte| is_word(byte)).count();
    let word = json.get(at - before..at + after).filter(|word| (1..=WORD).contains(&word.len()));
    let word = word.map(|word| format!(": `{word}`")).unwrap_or_default();
    format!("not valid JSON at byte {}: {what}{word}", error.column())
}

/// Returns the first bytes in one line, with hidden characters and invalid bytes spelled out.
fn start(bytes: &[u8]) -> String {
    // Twice as many, since every other byte of UTF-16 text is removed.
    let text = plain_text(bytes.get(..2 * SHOWN).unwrap_or(bytes));
    let mut end = text.len().min(SHOWN);
    while end > 0 && text.get(end).is_some_and(|byte| byte & 0xc0 == 0x80) {
        end -= 1;
    }
    let mut out = String::with_capacity(end);
    for chunk in text.get(..end).unwrap_or_default().utf8_chunks() {
        out.push_str(&foreign::line(chunk.valid()));
        for byte in chunk.invalid() {
            // Writing to a string cannot fail.
            let _written = write!(out, "\\x{byte:02x}");
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    fn utf16(text: &str) -> Vec<u8> {
        text.encode_utf16().flat_map(u16::to_le_bytes).collect()
    }

    #[test]
    fn the_reason_names_what_is_wrong() {
        let cases: Vec<(Vec<u8>, &str)> = vec![
            (br#"{"a":NaN}"#.into(), "`NaN`"),
            (br#"{"a":-Infinity}"#.into(), "`-Infinity`"),
            (br#"{"a":True}"#.into(), "`True`"),
            (b"{\"a\":\"\x01\"}".into(), "control character"),
            (b"{\"a\":\"caf\xe9\"}".into(), "not UTF-8 from byte 10 on"),
            (utf16(r#"{"a":1}"#), "UTF-16"),
            (b"\n".iter().chain(&utf16(r#"{"a":1}"#)).skip(1).copied().collect(), "UTF-16"),
            (b"Content-Length: 52".into(), "as in LSP"),
            (b"listening on stdio".into(), "belongs on its standard error"),
            (br#"{"jsonrpc": "2.0","#.into(), "without its end"),
            (b"{".into(), "without its end"),
        ];
        for (bytes, want) in cases {
            let told = UnreadableBytes::no_json(&bytes);
            assert!(told.why.contains(want), "{}: {told}", String::from_utf8_lossy(&bytes));
        }
    }

    #[test]
    fn the_start_is_one_line_of_two_hundred_bytes() {
        let told = |bytes: &[u8]| UnreadableBytes::no_json(bytes);
        assert_eq!(told(b"a\tb\x1b[0m\xe9\"").start, "a\\tb\\u{1b}[0m\\xe9\"");
        assert_eq!(told("é".repeat(300).as_bytes()).start, "é".repeat(100));
        assert_eq!(told(format!("x{}", "é".repeat(300)).as_bytes()).start, format!("x{}", "é".repeat(99)));
        assert_eq!(told(&utf16(&format!("{{{}", "a".repeat(500)))).start.len(), 200);
        assert!(told(b" {\"a\":1").is_meant && told(&utf16("{\"a\":1}")).is_meant && !told(b"hello {").is_meant);
    }
}
