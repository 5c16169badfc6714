//! Messages as the simulated clients and servers read and write them: text, without a tree of JSON,
//! because a world reads hundreds of them.

use std::fmt::Write as _;

/// The members of a message, as JSON; a missing one is empty.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Words<'t> {
    pub(super) id: &'t str,
    pub(super) method: &'t str,
    pub(super) params: &'t str,
    pub(super) result: &'t str,
    pub(super) error: &'t str,
}

impl<'t> Words<'t> {
    /// Reads the outermost members of a message that the gateway wrote: compact JSON.
    pub(super) fn of(text: &'t str) -> Self {
        let mut words = Self::default();
        for (key, value) in members(text) {
            match key {
                "id" => words.id = value,
                "method" => words.method = value.trim_matches('"'),
                "params" => words.params = value,
                "result" => words.result = value,
                "error" => words.error = value,
                _ => {}
            }
        }
        words
    }

    /// Returns the id, if it is a number.
    pub(super) fn number(&self) -> Option<u64> {
        self.id.parse().ok()
    }
}

/// Returns the outermost members of an object.
pub(super) fn members(text: &str) -> Vec<(&str, &str)> {
    let bytes = text.as_bytes();
    let (mut at, mut depth, mut in_string) = (0, 0_u32, false);
    let (mut found, mut start, mut key) = (Vec::with_capacity(4), 0, "");
    while at < bytes.len() {
        let byte = bytes[at];
        if in_string {
            match byte {
                b'\\' => at += 1,
                b'"' => in_string = false,
                _ => {}
            }
        } else {
            match byte {
                b'"' => in_string = true,
                b'{' | b'[' => {
                    depth += 1;
                    if depth == 1 {
                        start = at + 1;
                    }
                }
                b':' if depth == 1 => {
                    key = text[start..at].trim_matches(|c: char| c == '"' || c == ' ');
                    start = at + 1;
                }
                b',' | b'}' | b']' => {
                    if depth == 1 && !key.is_empty() {
                        found.push((key, text[start..at].trim()));
                        (key, start) = ("", at + 1);
                    }
                    if byte != b',' {
                        depth = depth.saturating_sub(1);
                    }
                }
                _ => {}
            }
        }
        at += 1;
    }
    found
}

/// Returns the value of an outermost member.
pub(super) fn member<'t>(text: &'t str, name: &str) -> Option<&'t str> {
    members(text).into_iter().find(|(key, _)| *key == name).map(|(_, value)| value)
}

/// Returns the text behind a mark, up to the first character that is no letter, digit or dash.
pub(super) fn tag<'t>(text: &'t str, mark: &str) -> Option<&'t str> {
    let (bytes, mark) = (text.as_bytes(), mark.as_bytes());
    let mut at = 0;
    while at + mark.len() <= bytes.len() {
        if bytes[at] == mark[0] && &bytes[at..at + mark.len()] == mark {
            let from = at + mark.len();
            let mut end = from;
            while end < bytes.len() && (bytes[end].is_ascii_alphanumeric() || bytes[end] == b'-') {
                end += 1;
            }
            return Some(&text[from..end]);
        }
        at += 1;
    }
    None
}

/// Returns the number of the call that a text is about: the digits behind the mark.
pub(super) fn about(text: &str, mark: &str) -> Option<u64> {
    tag(text, mark)?.split('-').next()?.parse().ok()
}

/// Returns a plain text as a JSON string.
pub(super) fn quoted(text: &str) -> String {
    let mut out = String::with_capacity(text.len() + 2);
    write!(out, "\"{text}\"").unwrap();
    out
}

pub(super) fn request(id: &str, method: &str, params: &str) -> String {
    format!(r#"{{"jsonrpc":"2.0","id":{id},"method":"{method}","params":{params}}}"#)
}

pub(super) fn notification(method: &str, params: &str) -> String {
    format!(r#"{{"jsonrpc":"2.0","method":"{method}","params":{params}}}"#)
}

pub(super) fn result(id: &str, result: &str) -> String {
    format!(r#"{{"jsonrpc":"2.0","id":{id},"result":{result}}}"#)
}

pub(super) fn error(id: &str, error: &str) -> String {
    format!(r#"{{"jsonrpc":"2.0","id":{id},"error":{error}}}"#)
}

#[test]
fn members_are_those_of_the_outermost_object() {
    let text = r#"{"jsonrpc":"2.0","id":"a,}","method":"x","params":{"id":1,"a":[{"b":"\"}"}]}}"#;
    let words = Words::of(text);
    assert_eq!((words.id, words.method), (r#""a,}""#, "x"));
    assert_eq!(words.params, r#"{"id":1,"a":[{"b":"\"}"}]}"#);
    assert_eq!(member(words.params, "id"), Some("1"));
    assert_eq!((tag("[up] q-12-3. [up]", "q-"), about("[up] q-12-3. [up]", "q-")), (Some("12-3"), Some(12)));
}
