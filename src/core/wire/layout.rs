//! JSON text laid out anew for people: on one line, or over indented lines. Strings, numbers and words stay as they are.

use crate::wire::tokens::{Kind, Tokens};

/// A line feed and the deepest indent. Deeper values stand no further to the right, so that nesting does not cost its square.
const LINE: &str = concat!(
    "\n",
    "                                                                ",
    "                                                                "
);

/// Hands on the text in parts, over lines or on one: tokens with their kind, and what stands between them without one.
pub(crate) fn laid_out<'t>(json: &'t str, lines: bool, put: &mut dyn FnMut(Option<Kind>, &'t str)) {
    let line = |depth: usize| if lines { LINE.get(..=2 * depth).unwrap_or(LINE) } else { "" };
    let mut tokens = Tokens::of(json.as_bytes());
    // Whether nothing stands so far in the object or array that was opened last.
    let mut is_empty = false;
    while let Some(token) = tokens.next() {
        let opens = matches!(token.kind, Kind::Object | Kind::Array);
        let closes = matches!(token.kind, Kind::ObjectEnd | Kind::ArrayEnd);
        if is_empty != closes {
            put(None, line(tokens.depth() - usize::from(opens)));
        }
        put(Some(token.kind), json.get(token.start..token.end).unwrap_or_default());
        if token.kind == Kind::Key {
            put(None, if lines { ": " } else { ":" });
        } else if token.kind == Kind::Comma {
            put(None, line(tokens.depth()));
        }
        is_empty = opens;
    }
}

/// The text over indented lines.
pub fn indented(json: &str) -> String {
    let mut out = String::with_capacity(json.len() * 2);
    laid_out(json, true, &mut |_, part| out.push_str(part));
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
        laid_out("{ \"a\" : [1, {}] }", false, &mut |_, part| one_line.push_str(part));
        assert_eq!(one_line, r#"{"a":[1,{}]}"#);
        assert!(indented(&"[".repeat(10_000)).len() < 10_000 * 140);
    }
}
