//! The scanner of JSON text, on which every reader here is built: returns one token at a time with
//! its range of bytes.
//!
//! It knows where a token ends but not the grammar, so it needs one pass and no recursion,
//! allocation or errors. `wire::grammar` or `serde_json` checks the grammar of foreign text when
//! its message is admitted or parsed. The tokens of text that is not JSON mean nothing, but cover
//! all of it except white space and the colons after keys.
//!
//! The methods of the inner loop are always inlined, so that the position stays in a register:
//! without that, admission takes a tenth more instructions than with a loop of its own; with it, a
//! tenth less.

use std::borrow::Cow;
use std::sync::LazyLock;

use memchr::memmem::Finder;
use memchr::{memchr, memchr2};

/// The kind of a token.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TokenKind {
    /// `{`
    Object,
    /// `[`
    Array,
    /// `}`
    ObjectEnd,
    /// `]`
    ArrayEnd,
    Comma,
    /// A string with a colon after it. The colon is consumed and is no part of the token.
    Key,
    String,
    /// A number or a word; also bytes that are no token of JSON.
    Scalar,
}

/// A token and its range in the text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct JsonToken {
    pub kind: TokenKind,
    /// The position of its first byte: for a string, the quote.
    pub start: usize,
    /// The position after its last byte.
    pub end: usize,
    /// True if it is a string with escapes.
    pub escaped: bool,
}

/// An iterator over the tokens of a text.
#[derive(Clone, Debug)]
pub struct JsonTokens<'t> {
    text: &'t [u8],
    at: usize,
    depth: usize,
}

impl<'t> JsonTokens<'t> {
    pub const fn of(text: &'t [u8]) -> Self {
        Self { text, at: 0, depth: 0 }
    }

    /// Returns how many objects and arrays are open after the last token.
    pub const fn depth(&self) -> usize {
        self.depth
    }

    /// Returns the position of the next token after a [`Self::peek`]; else the end of the last
    /// token.
    pub const fn at(&self) -> usize {
        self.at
    }

    /// Returns the bytes of a token, with the quotes and escapes of a string.
    pub fn literal(&self, token: JsonToken) -> &'t [u8] {
        self.text.get(token.start..token.end).unwrap_or_default()
    }

    /// Returns the content of a string token, without quotes and escapes; `None` as in
    /// [`unquoted`].
    pub(crate) fn unquoted(&self, token: JsonToken) -> Option<Cow<'t, [u8]>> {
        if token.escaped {
            return unquoted(self.literal(token));
        }
        self.text.get(token.start + 1..token.end - 1).map(Cow::Borrowed)
    }

    /// Skips white space and returns the first byte of the next token without consuming it.
    #[inline(always)]
    pub fn peek(&mut self) -> Option<u8> {
        loop {
            let byte = *self.text.get(self.at)?;
            if !matches!(byte, b' ' | b'\t' | b'\n' | b'\r') {
                return Some(byte);
            }
            self.at += 1;
        }
    }

    /// Skips the next value.
    pub(crate) fn skip_value(&mut self) {
        self.skip_to(self.depth);
    }

    /// Skips at least one token, and further ones until at most `depth` objects and arrays are
    /// open.
    pub(crate) fn skip_to(&mut self, depth: usize) {
        while self.next().is_some() && self.depth > depth {}
    }

    /// Scans a string, and the colon after it if there is one.
    #[inline(always)]
    fn string(&mut self) -> JsonToken {
        let start = self.at;
        let (mut end, mut escaped) = (start + 1, false);
        loop {
            let rest = self.text.get(end..).unwrap_or_default();
            match memchr2(b'"', b'\\', rest) {
                Some(n) if rest.get(n) == Some(&b'\\') => {
                    end += n + 2;
                    escaped = true;
                }
                Some(n) => {
                    end += n + 1;
                    break;
                }
                None => {
                    end = self.text.len();
                    break;
                }
            }
        }
        self.at = end;
        if self.peek() == Some(b':') {
            self.at += 1;
            return JsonToken { kind: TokenKind::Key, start, end, escaped };
        }
        self.at = end;
        JsonToken { kind: TokenKind::String, start, end, escaped }
    }

    /// Returns the length of the number or word at the current position; at least one byte.
    fn scalar_len(&self) -> usize {
        let rest = self.text.get(self.at..).unwrap_or_default();
        let ends =
            |byte: &u8| matches!(byte, b',' | b':' | b'"' | b'{' | b'}' | b'[' | b']' | b' ' | b'\t' | b'\n' | b'\r');
        rest.iter().position(ends).unwrap_or(rest.len()).max(1)
    }
}

impl Iterator for JsonTokens<'_> {
    type Item = JsonToken;

    #[inline(always)]
    fn next(&mut self) -> Option<JsonToken> {
        let kind = match self.peek()? {
            b'"' => return Some(self.string()),
            b'{' => TokenKind::Object,
            b'[' => TokenKind::Array,
            b'}' => TokenKind::ObjectEnd,
            b']' => TokenKind::ArrayEnd,
            b',' => TokenKind::Comma,
            _ => TokenKind::Scalar,
        };
        let start = self.at;
        self.at += match kind {
            TokenKind::Scalar => self.scalar_len(),
            TokenKind::Object | TokenKind::Array => {
                self.depth += 1;
                1
            }
            TokenKind::ObjectEnd | TokenKind::ArrayEnd => {
                self.depth = self.depth.saturating_sub(1);
                1
            }
            TokenKind::Comma | TokenKind::Key | TokenKind::String => 1,
        };
        Some(JsonToken { kind, start, end: self.at, escaped: false })
    }
}

/// Returns the content of a string without its quotes and escapes; copies only if there are
/// escapes. `None` if the escapes form no text, such as half of a surrogate pair, or a quote is
/// missing.
pub(crate) fn unquoted(literal: &[u8]) -> Option<Cow<'_, [u8]>> {
    if memchr(b'\\', literal).is_some() {
        return serde_json::from_slice::<String>(literal).ok().map(|text| Cow::Owned(text.into_bytes()));
    }
    if let [b'"', inner @ .., b'"'] = literal { Some(Cow::Borrowed(inner)) } else { None }
}

/// Returns the content of a string as text; `None` also if it is not UTF-8.
pub fn unescaped(literal: &[u8]) -> Option<Cow<'_, str>> {
    match unquoted(literal)? {
        Cow::Borrowed(bytes) => std::str::from_utf8(bytes).ok().map(Cow::Borrowed),
        Cow::Owned(bytes) => String::from_utf8(bytes).ok().map(Cow::Owned),
    }
}

/// Reports whether an escape in a text stands for one of these ASCII characters. Programs escape
/// markup, controls and text beyond ASCII, but letters hardly ever; a search for a name does not
/// find an escaped one.
pub fn has_escaped_ascii(text: &[u8], one_of: impl Fn(u8) -> bool) -> bool {
    if memchr(b'\\', text).is_none() {
        return false;
    }
    // Prepared once: preparing a search costs as much as searching most texts.
    static ESCAPE: LazyLock<Finder<'static>> = LazyLock::new(|| Finder::new("\\u00"));
    ESCAPE.find_iter(text).any(|at| {
        let digits = text.get(at + 4..at + 6).and_then(|digits| std::str::from_utf8(digits).ok());
        digits.and_then(|digits| u8::from_str_radix(digits, 16).ok()).is_some_and(&one_of)
    })
}

/// Passes each string of a text, keys and values alike, to `show`, unescaped.
pub fn visit_strings(text: &[u8], show: &mut dyn FnMut(&str)) {
    let mut tokens = JsonTokens::of(text);
    while let Some(token) = tokens.next() {
        if matches!(token.kind, TokenKind::Key | TokenKind::String) {
            // A stand-in that no readable string contains.
            show(unescaped(tokens.literal(token)).as_deref().unwrap_or("\u{fffe}"));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> Vec<(TokenKind, &str)> {
        JsonTokens::of(text.as_bytes()).map(|token| (token.kind, text.get(token.start..token.end).unwrap())).collect()
    }

    #[test]
    fn a_text_is_taken_apart_where_its_tokens_end() {
        use TokenKind::{Array, ArrayEnd, Comma, Key, Object, ObjectEnd, Scalar, String};
        for (label, text, want) in [
            (
                "an object",
                " { \"a\" : 1.50 ,\"b\":null}\n",
                &[
                    (Object, "{"),
                    (Key, "\"a\""),
                    (Scalar, "1.50"),
                    (Comma, ","),
                    (Key, "\"b\""),
                    (Scalar, "null"),
                    (ObjectEnd, "}"),
                ][..],
            ),
            (
                "an array",
                "[\"a\",-1]",
                &[(Array, "["), (String, "\"a\""), (Comma, ","), (Scalar, "-1"), (ArrayEnd, "]")],
            ),
            ("escapes", r#""\"{\\" "\\\"," "#, &[(String, r#""\"{\\""#), (String, r#""\\\",""#)]),
            ("a string that is cut", r#"["a\"#, &[(Array, "["), (String, r#""a\"#)]),
            ("colons of nothing", "::1", &[(Scalar, ":"), (Scalar, ":"), (Scalar, "1")]),
            (
                "no blanks between",
                "1[2\"3\"{",
                &[(Scalar, "1"), (Array, "["), (Scalar, "2"), (String, "\"3\""), (Object, "{")],
            ),
            ("nothing", " \t", &[]),
        ] {
            assert_eq!(read(text), want, "{label}");
        }
    }

    #[test]
    fn a_value_is_stepped_over_whole() {
        for (text, rest) in
            [("[[1],{}] 2", " 2"), ("{\"a\":[\"]\"]},1", ",1"), ("7,8", ",8"), ("\"a\" ,1", " ,1"), ("[", "")]
        {
            let mut tokens = JsonTokens::of(text.as_bytes());
            tokens.skip_value();
            assert_eq!(text.get(tokens.at()..), Some(rest), "{text}");
            assert_eq!(tokens.depth(), usize::from(text == "["), "{text}");
        }
    }

    #[test]
    fn a_literal_reads_as_the_library_reads_it() {
        for literal in
            [r#""""#, r#""é""#, r#""\u00e9\n""#, r#""\ud83d\ude00""#, r#""\ud83d""#, "\"", "\"a", r#""a\""#, "a", ""]
        {
            let want = serde_json::from_str::<String>(literal).ok();
            assert_eq!(unescaped(literal.as_bytes()).map(Cow::into_owned), want, "{literal}");
        }
        let mut shown = Vec::new();
        visit_strings(br#"{"a":["\u0062",1,{"\ud800":null}]}"#, &mut |text| shown.push(text.to_owned()));
        assert_eq!(shown, ["a", "b", "\u{fffe}"]);
    }

    proptest::proptest! {
        #[test]
        fn tokens_take_all_but_blanks_and_colons(text in "[\\[\\]{},:\"\\\\ a0é\n]{0,40}") {
            let mut rest = 0;
            for token in JsonTokens::of(text.as_bytes()) {
                let between = text.get(rest..token.start).unwrap();
                proptest::prop_assert!(between.trim().is_empty() || between.trim() == ":", "{between:?}");
                proptest::prop_assert!(token.end > token.start);
                rest = token.end;
            }
            let after = text.get(rest..).unwrap().trim();
            proptest::prop_assert!(after.is_empty() || after == ":");
        }
    }
}
