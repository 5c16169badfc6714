//! The scanner of JSON text: one token at a time, and the bytes that it takes. Every reader of JSON text uses it.
//!
//! It knows where a token ends and not the grammar, so it needs one pass and no recursion, allocation or errors. `wire::grammar`,
//! or `serde_json`, checks the grammar of foreign text when its message is admitted or parsed. The tokens of a text that is not JSON mean nothing; they still
//! cover all of it but white space and the colons behind strings.
//!
//! The methods of a loop are always inlined, so that the place in the text stays in a register: admission costs a tenth more
//! instructions than by a loop of its own without that, and a tenth less with it.

use std::borrow::Cow;
use std::sync::LazyLock;

use memchr::memmem::Finder;
use memchr::{memchr, memchr2};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// `{`
    Object,
    /// `[`
    Array,
    /// `}`
    ObjectEnd,
    /// `]`
    ArrayEnd,
    Comma,
    /// A string with a colon behind it. The colon is stepped over and no part of the token.
    Key,
    String,
    /// A number or a word. Also what is no token of JSON.
    Scalar,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Token {
    pub kind: Kind,
    /// Its first byte: of a string the quote.
    pub start: usize,
    /// The byte behind its last.
    pub end: usize,
    /// It is a string with escapes.
    pub escaped: bool,
}

/// The tokens of a text that are still to come.
#[derive(Clone, Debug)]
pub struct Tokens<'t> {
    text: &'t [u8],
    at: usize,
    depth: usize,
}

impl<'t> Tokens<'t> {
    pub const fn of(text: &'t [u8]) -> Self {
        Self { text, at: 0, depth: 0 }
    }

    /// Objects and arrays that are open behind the last token.
    pub const fn depth(&self) -> usize {
        self.depth
    }

    /// Where the next token begins, behind a [`Self::peek`]; else where the last one ended.
    pub const fn at(&self) -> usize {
        self.at
    }

    /// The bytes of a token, with the quotes and escapes of a string.
    pub fn literal(&self, token: Token) -> &'t [u8] {
        self.text.get(token.start..token.end).unwrap_or_default()
    }

    /// The bytes of a string without its quotes and escapes; `None` like [`unquoted`].
    pub(crate) fn unquoted(&self, token: Token) -> Option<Cow<'t, [u8]>> {
        if token.escaped {
            return unquoted(self.literal(token));
        }
        self.text.get(token.start + 1..token.end - 1).map(Cow::Borrowed)
    }

    /// The first byte of the next token.
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

    /// Steps over the next value.
    pub(crate) fn skip_value(&mut self) {
        self.skip_to(self.depth);
    }

    /// Steps over tokens, one at least, until no more objects and arrays are open than these.
    pub(crate) fn skip_to(&mut self, depth: usize) {
        while self.next().is_some() && self.depth > depth {}
    }

    #[inline(always)]
    fn string(&mut self) -> Token {
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
            return Token { kind: Kind::Key, start, end, escaped };
        }
        self.at = end;
        Token { kind: Kind::String, start, end, escaped }
    }

    /// How long the number or word at hand is; one byte at least.
    fn scalar_len(&self) -> usize {
        let rest = self.text.get(self.at..).unwrap_or_default();
        let ends =
            |byte: &u8| matches!(byte, b',' | b':' | b'"' | b'{' | b'}' | b'[' | b']' | b' ' | b'\t' | b'\n' | b'\r');
        rest.iter().position(ends).unwrap_or(rest.len()).max(1)
    }
}

impl Iterator for Tokens<'_> {
    type Item = Token;

    #[inline(always)]
    fn next(&mut self) -> Option<Token> {
        let kind = match self.peek()? {
            b'"' => return Some(self.string()),
            b'{' => Kind::Object,
            b'[' => Kind::Array,
            b'}' => Kind::ObjectEnd,
            b']' => Kind::ArrayEnd,
            b',' => Kind::Comma,
            _ => Kind::Scalar,
        };
        let start = self.at;
        self.at += match kind {
            Kind::Scalar => self.scalar_len(),
            Kind::Object | Kind::Array => {
                self.depth += 1;
                1
            }
            Kind::ObjectEnd | Kind::ArrayEnd => {
                self.depth = self.depth.saturating_sub(1);
                1
            }
            Kind::Comma | Kind::Key | Kind::String => 1,
        };
        Some(Token { kind, start, end: self.at, escaped: false })
    }
}

/// The bytes of a string without its quotes and escapes. Nearly all have no escapes and are not copied. `None` where the escapes
/// are no text, such as half of a surrogate pair, or a quote is missing.
pub(crate) fn unquoted(literal: &[u8]) -> Option<Cow<'_, [u8]>> {
    if memchr(b'\\', literal).is_some() {
        return serde_json::from_slice::<String>(literal).ok().map(|text| Cow::Owned(text.into_bytes()));
    }
    if let [b'"', inner @ .., b'"'] = literal { Some(Cow::Borrowed(inner)) } else { None }
}

/// The same as text.
pub fn unescaped(literal: &[u8]) -> Option<Cow<'_, str>> {
    match unquoted(literal)? {
        Cow::Borrowed(bytes) => std::str::from_utf8(bytes).ok().map(Cow::Borrowed),
        Cow::Owned(bytes) => String::from_utf8(bytes).ok().map(Cow::Owned),
    }
}

/// Whether an escape in a text stands for one of these characters of ASCII. Programs escape markup, controls and text beyond
/// ASCII; a letter hardly ever, and a search for a name does not find it then.
pub fn spells(text: &[u8], one_of: impl Fn(u8) -> bool) -> bool {
    if memchr(b'\\', text).is_none() {
        return false;
    }
    // To prepare a search costs as much as to search most texts.
    static ESCAPE: LazyLock<Finder<'static>> = LazyLock::new(|| Finder::new("\\u00"));
    ESCAPE.find_iter(text).any(|at| {
        let digits = text.get(at + 4..at + 6).and_then(|digits| std::str::from_utf8(digits).ok());
        digits.and_then(|digits| u8::from_str_radix(digits, 16).ok()).is_some_and(&one_of)
    })
}

/// Shows each string of a text, keys and values alike, as it reads.
pub fn strings(text: &[u8], show: &mut dyn FnMut(&str)) {
    let mut tokens = Tokens::of(text);
    while let Some(token) = tokens.next() {
        if matches!(token.kind, Kind::Key | Kind::String) {
            // Nothing that can be read stands for what is no text.
            show(unescaped(tokens.literal(token)).as_deref().unwrap_or("\u{fffe}"));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> Vec<(Kind, &str)> {
        Tokens::of(text.as_bytes()).map(|token| (token.kind, text.get(token.start..token.end).unwrap())).collect()
    }

    #[test]
    fn a_text_is_taken_apart_where_its_tokens_end() {
        use Kind::{Array, ArrayEnd, Comma, Key, Object, ObjectEnd, Scalar, String};
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
            let mut tokens = Tokens::of(text.as_bytes());
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
        strings(br#"{"a":["\u0062",1,{"\ud800":null}]}"#, &mut |text| shown.push(text.to_owned()));
        assert_eq!(shown, ["a", "b", "\u{fffe}"]);
    }

    proptest::proptest! {
        #[test]
        fn tokens_take_all_but_blanks_and_colons(text in "[\\[\\]{},:\"\\\\ a0é\n]{0,40}") {
            let mut rest = 0;
            for token in Tokens::of(text.as_bytes()) {
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
