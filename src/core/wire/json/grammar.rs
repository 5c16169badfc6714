//! Checks the grammar of JSON (RFC 8259) in one pass, without recursion or allocation.
//!
//! Unlike [`JsonTokens`](crate::wire::json::tokens::JsonTokens) it refuses text that is not JSON,
//! and unlike `serde_json` it builds nothing: it reports positions to a [`TokenVisitor`]. It serves
//! the common case. Callers hand text that it refuses, including text that nests deeper than
//! [`DEEPEST`], to `serde_json`, which names the error. UTF-8 and the meaning of escapes are not
//! checked.

use crate::wire::json::plain::plain_len;

/// The deepest nesting that the walk follows, in levels: one bit of a `u64` for each.
pub(crate) const DEEPEST: u32 = 64;

/// The range of a token in a text, in bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct TokenRange {
    pub(crate) start: usize,
    pub(crate) end: usize,
}

impl TokenRange {
    /// Returns the bytes of the range.
    pub(crate) fn of(self, text: &[u8]) -> &[u8] {
        text.get(self.start..self.end).unwrap_or_default()
    }
}

/// A visitor that gets the position of each token. Returning `None` ends the walk.
pub(crate) trait TokenVisitor {
    /// Called when an object or an array begins at `at`.
    fn opens(&mut self, at: usize, is_object: bool) -> Option<()>;
    /// Called when the innermost container ends; `end` is the position after its bracket.
    fn closes(&mut self, end: usize, is_object: bool) -> Option<()>;
    /// Called for a key; `place` includes the quotes.
    fn key(&mut self, place: TokenRange, is_escaped: bool) -> Option<()>;
    /// Called for a string, a number, `true`, `false` or `null`.
    fn scalar(&mut self, place: TokenRange) -> Option<()>;
}

/// Walks over a text that has to be one JSON value. Returns `None` if it is not, if it nests too
/// deep, or if the visitor ended the walk.
pub(crate) fn walk(text: &[u8], visitor: &mut impl TokenVisitor) -> Option<()> {
    let mut at = GrammarWalk { text, at: 0 };
    // One bit per open container, the innermost lowest; the bit is set for an object.
    let (mut open, mut depth) = (0_u64, 0_u32);
    loop {
        let first = at.peek()?;
        let start = at.at;
        if matches!(first, b'{' | b'[') {
            if depth == DEEPEST {
                return None;
            }
            let is_object = first == b'{';
            open = open << 1 | u64::from(is_object);
            depth += 1;
            at.at += 1;
            visitor.opens(start, is_object)?;
            let is_empty = at.peek()? == if is_object { b'}' } else { b']' };
            if !is_empty {
                if is_object {
                    at.key(visitor)?;
                }
                continue;
            }
        } else {
            at.scalar(first)?;
            visitor.scalar(TokenRange { start, end: at.at })?;
        }
        // Here a value has ended, or an empty container is about to.
        loop {
            if depth == 0 {
                return at.peek().is_none().then_some(());
            }
            let is_object = open & 1 == 1;
            match at.peek()? {
                b',' => {
                    at.at += 1;
                    if is_object {
                        at.key(visitor)?;
                    }
                    break;
                }
                b'}' if is_object => {}
                b']' if !is_object => {}
                _ => return None,
            }
            at.at += 1;
            open >>= 1;
            depth -= 1;
            visitor.closes(at.at, is_object)?;
        }
    }
}

/// The position of a walk in its text.
struct GrammarWalk<'t> {
    text: &'t [u8],
    at: usize,
}

impl GrammarWalk<'_> {
    /// Skips white space and returns the next byte without consuming it.
    #[inline(always)]
    fn peek(&mut self) -> Option<u8> {
        loop {
            let byte = *self.text.get(self.at)?;
            if !matches!(byte, b' ' | b'\t' | b'\n' | b'\r') {
                return Some(byte);
            }
            self.at += 1;
        }
    }

    fn rest(&self) -> &[u8] {
        self.text.get(self.at..).unwrap_or_default()
    }

    /// Consumes a key and the colon after it, and passes the key to the visitor.
    #[inline(always)]
    fn key(&mut self, visitor: &mut impl TokenVisitor) -> Option<()> {
        if self.peek()? != b'"' {
            return None;
        }
        let start = self.at;
        let is_escaped = self.string()?;
        visitor.key(TokenRange { start, end: self.at }, is_escaped)?;
        if self.peek()? != b':' {
            return None;
        }
        self.at += 1;
        Some(())
    }

    fn scalar(&mut self, first: u8) -> Option<()> {
        match first {
            b'"' => self.string().map(drop),
            b'-' | b'0'..=b'9' => self.number(),
            b't' => self.word(b"true"),
            b'f' => self.word(b"false"),
            b'n' => self.word(b"null"),
            _ => None,
        }
    }

    fn word(&mut self, word: &[u8]) -> Option<()> {
        self.at += word.len();
        self.text.get(self.at - word.len()..self.at).is_some_and(|text| text == word).then_some(())
    }

    /// Consumes a string; returns whether it has escapes.
    fn string(&mut self) -> Option<bool> {
        self.at += 1;
        let mut is_escaped = false;
        loop {
            self.at += plain_len(self.rest());
            match *self.text.get(self.at)? {
                b'"' => {
                    self.at += 1;
                    return Some(is_escaped);
                }
                b'\\' => {
                    is_escaped = true;
                    self.at += match *self.text.get(self.at + 1)? {
                        b'"' | b'\\' | b'/' | b'b' | b'f' | b'n' | b'r' | b't' => 2,
                        b'u' => {
                            let digits = self.text.get(self.at + 2..self.at + 6)?;
                            digits.iter().all(u8::is_ascii_hexdigit).then_some(6)?
                        }
                        _ => return None,
                    };
                }
                _ => return None,
            }
        }
    }

    fn number(&mut self) -> Option<()> {
        if self.rest().first() == Some(&b'-') {
            self.at += 1;
        }
        let is_zero = self.rest().first() == Some(&b'0');
        let whole = self.digits();
        if whole == 0 || is_zero && whole > 1 {
            return None;
        }
        if self.rest().first() == Some(&b'.') {
            self.at += 1;
            if self.digits() == 0 {
                return None;
            }
        }
        if matches!(self.rest().first(), Some(b'e' | b'E')) {
            self.at += 1;
            if matches!(self.rest().first(), Some(b'+' | b'-')) {
                self.at += 1;
            }
            if self.digits() == 0 {
                return None;
            }
        }
        Some(())
    }

    /// Consumes digits and returns their number.
    fn digits(&mut self) -> usize {
        let count = self.rest().iter().take_while(|byte| byte.is_ascii_digit()).count();
        self.at += count;
        count
    }
}

#[cfg(test)]
pub(in crate::wire) mod tests {
    use super::*;
    use proptest::prelude::*;
    use serde_json::value::RawValue;

    /// Records every call of the visitor: kind, start, end.
    #[derive(Default)]
    struct RecordedTokens(Vec<(char, usize, usize)>);

    impl TokenVisitor for RecordedTokens {
        fn opens(&mut self, at: usize, is_object: bool) -> Option<()> {
            self.0.push((if is_object { '{' } else { '[' }, at, at + 1));
            Some(())
        }
        fn closes(&mut self, end: usize, is_object: bool) -> Option<()> {
            self.0.push((if is_object { '}' } else { ']' }, end - 1, end));
            Some(())
        }
        fn key(&mut self, place: TokenRange, is_escaped: bool) -> Option<()> {
            self.0.push((if is_escaped { 'K' } else { 'k' }, place.start, place.end));
            Some(())
        }
        fn scalar(&mut self, place: TokenRange) -> Option<()> {
            self.0.push(('s', place.start, place.end));
            Some(())
        }
    }

    fn heard(text: &[u8]) -> Option<Vec<(char, usize, usize)>> {
        let mut visitor = RecordedTokens::default();
        walk(text, &mut visitor).map(|()| visitor.0)
    }

    fn is_json(text: &[u8]) -> bool {
        serde_json::from_slice::<&RawValue>(text).is_ok()
    }

    #[test]
    fn the_library_takes_the_same_texts() {
        for text in [
            "",
            " ",
            "{",
            "}",
            "{}",
            " { } ",
            "[]",
            "[ ]",
            "[,]",
            "[1,]",
            "[1 2]",
            "{\"a\":1}",
            "{\"a\" : 1 , \"b\":[{}]}",
            "{\"a\"}",
            "{\"a\":}",
            "{\"a\":1,}",
            "{,}",
            "{1:2}",
            "{\"a\":1}}",
            "{\"a\":1]",
            "[1}",
            "{} {}",
            "1",
            "-1",
            "-",
            "0",
            "-0",
            "00",
            "01",
            "1.",
            "1.0",
            ".1",
            "1.e1",
            "1e",
            "1e1",
            "1E+1",
            "1e-1",
            "1e+",
            "1.5e300",
            "1e999",
            "+1",
            "0x1",
            "1a",
            "true",
            "false",
            "null",
            "tru",
            "truex",
            "nul",
            "\"a\"",
            "\"",
            "\"a",
            "\"\\\"",
            "\"\\\"\"",
            "\"\\u00e9\"",
            "\"\\u00g9\"",
            "\"\\u00\"",
            "\"\\x\"",
            "\"\\ud800\"",
            "\"\n\"",
            "\"\u{7f}é\"",
            "\"a\" \"b\"",
            "[\"a\":1]",
            "{\"a\":1:2}",
            "\u{feff}{}",
            "{\"\\ud800\":1}",
            "nan",
            "//",
            "[[[]]]",
            "'a'",
        ] {
            assert_eq!(heard(text.as_bytes()).is_some(), is_json(text.as_bytes()), "{text}");
        }
    }

    #[test]
    fn depth_is_followed_to_a_bound_and_no_further() {
        for (open, close) in [("[", "]"), ("{\"a\":", "}")] {
            let nested = |depth: usize| open.repeat(depth) + "1" + &close.repeat(depth);
            assert!(heard(nested(64).as_bytes()).is_some());
            assert!(heard(nested(65).as_bytes()).is_none());
            assert!(heard(nested(100_000).as_bytes()).is_none());
        }
    }

    /// Generates JSON of any shape, some of it with duplicate keys, and some text that only looks
    /// like JSON.
    pub(in crate::wire) fn json() -> impl Strategy<Value = String> {
        let leaf = prop_oneof!["-?[0-9]{1,3}(\\.[0-9]{1,2})?", "\"[a-c\\\\\"\\n ]{0,3}\"", "true|null|false"];
        leaf.prop_recursive(4, 24, 4, |inner| {
            prop_oneof![
                prop::collection::vec(inner.clone(), 0..4).prop_map(|items| format!("[{}]", items.join(" , "))),
                prop::collection::vec(("\"[a-c]{0,2}\"", inner), 0..4).prop_map(|members| {
                    let members: Vec<String> =
                        members.into_iter().map(|(key, value)| format!("{key}: {value}")).collect();
                    format!("{{{}}}", members.join(","))
                }),
            ]
        })
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(2000))]

        #[test]
        fn any_text_is_judged_as_the_library_judges_it(text in "[\\[\\]{},:\"\\\\ua01.eE+\\-truefalsn \n]{0,24}") {
            prop_assert_eq!(heard(text.as_bytes()).is_some(), is_json(text.as_bytes()));
        }

        #[test]
        fn json_with_a_byte_changed_is_judged_as_the_library_judges_it(
            text in json(), at in any::<prop::sample::Index>(), byte in 0_u8..128,
        ) {
            prop_assert_eq!(heard(text.as_bytes()).is_some(), is_json(text.as_bytes()), "{}", text);
            let mut text = text.into_bytes();
            let at = at.index(text.len());
            text[at] = byte;
            prop_assert_eq!(heard(&text).is_some(), is_json(&text), "{}", String::from_utf8_lossy(&text));
        }

        #[test]
        fn things_stand_where_the_scanner_finds_them(text in json()) {
            use crate::wire::json::tokens::{TokenKind, JsonTokens};
            let Some(heard) = heard(text.as_bytes()) else { return Ok(()) };
            let tokens = JsonTokens::of(text.as_bytes()).filter_map(|token| {
                let kind = match token.kind {
                    TokenKind::Object => '{',
                    TokenKind::Array => '[',
                    TokenKind::ObjectEnd => '}',
                    TokenKind::ArrayEnd => ']',
                    TokenKind::Comma => return None,
                    TokenKind::Key if token.escaped => 'K',
                    TokenKind::Key => 'k',
                    TokenKind::String | TokenKind::Scalar => 's',
                };
                Some((kind, token.start, token.end))
            });
            prop_assert_eq!(heard, tokens.collect::<Vec<_>>());
        }
    }
}
