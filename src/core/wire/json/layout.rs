//! Lays JSON text out for people, on one line or over indented lines. Strings, numbers and words
//! keep their spelling.

use crate::wire::json::tokens::{JsonTokens, TokenKind};

/// A line feed and the deepest indent. Deeper values get no more indent, so that the output does
/// not grow with the square of the nesting.
const LINE: &str = concat!(
    "\n",
    "                                                                ",
    "                                                                "
);

/// Passes the text to `put` in parts, over indented lines or on one: each token with its kind, and
/// the white space and colons between tokens with `None`.
pub(crate) fn lay_out<'t>(json: &'t str, lines: bool, put: &mut dyn FnMut(Option<TokenKind>, &'t str)) {
    let line = |depth: usize| if lines { LINE.get(..=2 * depth).unwrap_or(LINE) } else { "" };
    let mut tokens = JsonTokens::of(json.as_bytes());
    // True while the innermost open object or array has no content yet.
    let mut is_empty = false;
    while let Some(token) = tokens.next() {
        let opens = matches!(token.kind, TokenKind::Object | TokenKind::Array);
        let closes = matches!(token.kind, TokenKind::ObjectEnd | TokenKind::ArrayEnd);
        if is_empty != closes {
            put(None, line(tokens.depth() - usize::from(opens)));
        }
        put(Some(token.kind), json.get(token.start..token.end).unwrap_or_default());
        if token.kind == TokenKind::Key {
            put(None, if lines { ": " } else { ":" });
        } else if token.kind == TokenKind::Comma {
            put(None, line(tokens.depth()));
        }
        is_empty = opens;
    }
}

/// Returns the text over indented lines.
pub fn indented(json: &str) -> String {
    let mut out = String::with_capacity(json.len() * 2);
    lay_out(json, true, &mut |_, part| out.push_str(part));
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn json_gets_lines() {
        for (label, text, want) in [
            ("nothing in it", r#"{"a":[],"b":{ }}"#, "{\n  \"a\": [],\n  \"b\": {}\n}"),
            ("nested", r#"{"a":[1,{"b":2}]}"#, "{\n  \"a\": [\n    1,\n    {\n      \"b\": 2\n    }\n  ]\n}"),
            ("signs in a string", r#"["a,{}: \"b\\"]"#, "[\n  \"a,{}: \\\"b\\\\\"\n]"),
            ("lists in lists", "[[1]]", "[\n  [\n    1\n  ]\n]"),
        ] {
            assert_eq!(indented(text), want, "{label}");
        }
        let mut one_line = String::new();
        lay_out("{ \"a\" : [1, {}] }", false, &mut |_, part| one_line.push_str(part));
        assert_eq!(one_line, r#"{"a":[1,{}]}"#);
        assert!(indented(&"[".repeat(10_000)).len() < 10_000 * 140);
    }
}
