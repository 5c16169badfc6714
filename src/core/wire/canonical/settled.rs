//! Recognises texts that are canonical already, as the arguments of most calls are, so that nothing
//! is written for them.

use crate::wire::json::grammar::{DEEPEST, TokenRange, TokenVisitor, walk};

/// The length in bytes up to which an integer literal is known to be canonical without parsing it.
const SHORT_NUMBER: usize = 15;

/// Reports whether a text is JSON and equal to its own canonical text. It may say no to a canonical
/// text, for instance one with fractions or with keys beyond ASCII.
pub(super) fn is_canonical(text: &[u8]) -> bool {
    let keys = [&b""[..]; DEEPEST as usize];
    let mut settled = CanonicalCheck { text, end: 0, gap: 0, depth: 0, keys };
    walk(text, &mut settled).is_some() && settled.end == text.len()
}

/// A walk over a text that stops at the first byte that is not canonical.
struct CanonicalCheck<'t> {
    text: &'t [u8],
    /// The end of the last token.
    end: usize,
    /// The number of bytes expected before the next token unless that closes a container: 1 for a
    /// comma or a colon, else 0.
    gap: usize,
    depth: usize,
    /// The last key of each open object, with its opening quote but without the closing one.
    keys: [&'t [u8]; DEEPEST as usize],
}

impl CanonicalCheck<'_> {
    /// Checks that a token begins right after the last one and `self.gap` bytes; then stores its
    /// end and the next gap.
    fn follows(&mut self, start: usize, end: usize, gap: usize) -> Option<()> {
        let follows = start == self.end + self.gap;
        (self.end, self.gap) = (end, gap);
        follows.then_some(())
    }
}

impl TokenVisitor for CanonicalCheck<'_> {
    fn opens(&mut self, at: usize, _: bool) -> Option<()> {
        *self.keys.get_mut(self.depth)? = b"";
        self.depth += 1;
        self.follows(at, at + 1, 0)
    }

    fn closes(&mut self, end: usize, _: bool) -> Option<()> {
        self.depth -= 1;
        let follows = end == self.end + 1;
        (self.end, self.gap) = (end, 1);
        follows.then_some(())
    }

    fn key(&mut self, place: TokenRange, is_escaped: bool) -> Option<()> {
        let key = place.of(self.text);
        let key = key.get(..key.len() - 1)?;
        // Beyond ASCII the order of bytes is not the order of UTF-16 units.
        if is_escaped || !key.is_ascii() {
            return None;
        }
        let before = self.keys.get_mut(self.depth.checked_sub(1)?)?;
        if *before >= key {
            return None;
        }
        *before = key;
        self.follows(place.start, place.end, 1)
    }

    fn scalar(&mut self, place: TokenRange) -> Option<()> {
        let text = place.of(self.text);
        let is_settled = match text.first()? {
            b'"' => memchr::memchr(b'\\', text).is_none(),
            b'-' | b'0'..=b'9' => {
                let digits = text.strip_prefix(b"-").unwrap_or(text);
                text.len() <= SHORT_NUMBER && text != b"-0" && digits.iter().all(u8::is_ascii_digit)
            }
            _ => true,
        };
        if !is_settled {
            return None;
        }
        self.follows(place.start, place.end, 1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::wire::canonical::rewrite;
    use crate::wire::json::grammar::tests::json;
    use crate::wire::json::raw::RawJson;
    use proptest::prelude::*;

    #[test]
    fn only_what_would_be_written_the_same_is_settled() {
        for (text, settled) in [
            (r#"{"text":"a bé"}"#, true),
            (r#"{"a":[1,-2,true,null,{}],"a!":{"b":[]},"ab":""}"#, true),
            ("[]", true),
            ("1", true),
            ("\"a\"", true),
            (r#"{"a":1,"a":2}"#, false),
            (r#"{"b":1,"a":2}"#, false),
            (r#"{"a": 1}"#, false),
            (r#"{"a" :1}"#, false),
            (r#"{"a":1 }"#, false),
            (r#"{"a":1} "#, false),
            (r#" {"a":1}"#, false),
            ("[1 ,2]", false),
            ("[ ]", false),
            (r#"{"a":1.0}"#, false),
            (r#"{"a":-0}"#, false),
            (r#"{"a":9007199254740993}"#, false),
            (r#"{"a":"\n"}"#, false),
            (r#"{"\u0061":1}"#, false),
            ("{\"\u{e9}\":1}", false),
            ("{\"a\":1", false),
            ("", false),
        ] {
            assert_eq!(is_canonical(text.as_bytes()), settled, "{text}");
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(2000))]

        #[test]
        fn what_is_settled_is_written_the_same(text in json()) {
            let short = text.replace(' ', "");
            for text in [text, short] {
                if is_canonical(text.as_bytes()) {
                    let written = rewrite(&RawJson::trusted(text.clone()));
                    prop_assert_eq!(written.unwrap(), text.into_bytes());
                }
            }
        }
    }
}
