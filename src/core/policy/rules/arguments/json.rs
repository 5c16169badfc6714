//! JSON values whose numbers are still text, so that no digit is lost before a matcher looks at it.

use std::borrow::Cow;

use crate::wire::json::tokens::{JsonToken, JsonTokens, TokenKind, unescaped};

/// Deepest value that is read. Frames have a lower bound already.
const MAX_DEPTH: usize = 128;

/// A JSON value, read without loss.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum LosslessJson<'a> {
    Null,
    Boolean(bool),
    /// A number as written.
    Number(&'a str),
    Text(Cow<'a, str>),
    List(Vec<Self>),
    /// Members in the order written. A key may occur twice here; frames refuse that.
    Object(Vec<(Cow<'a, str>, Self)>),
}

impl<'a> LosslessJson<'a> {
    /// Parses one value; returns `None` if the bytes are anything else.
    pub(super) fn read(bytes: &'a [u8]) -> Option<Self> {
        let mut reader = JsonParser { text: std::str::from_utf8(bytes).ok()?, tokens: JsonTokens::of(bytes) };
        let first = reader.tokens.next()?;
        let value = reader.value(first)?;
        reader.tokens.next().is_none().then_some(value)
    }

    pub(super) const fn as_number(&self) -> Option<&'a str> {
        if let Self::Number(text) = self { Some(text) } else { None }
    }

    pub(super) fn as_text(&self) -> Option<&str> {
        if let Self::Text(text) = self { Some(text) } else { None }
    }

    pub(super) fn as_list(&self) -> Option<&[Self]> {
        if let Self::List(items) = self { Some(items) } else { None }
    }
}

/// A recursive-descent parser. It checks the order of the tokens as well, because doubtful
/// arguments must count as unknown.
struct JsonParser<'a> {
    text: &'a str,
    tokens: JsonTokens<'a>,
}

impl<'a> JsonParser<'a> {
    /// Reads the value that begins with a token.
    fn value(&mut self, first: JsonToken) -> Option<LosslessJson<'a>> {
        if self.tokens.depth() > MAX_DEPTH {
            return None;
        }
        match first.kind {
            TokenKind::Object => self.object().map(LosslessJson::Object),
            TokenKind::Array => self.list().map(LosslessJson::List),
            TokenKind::String => unescaped(self.tokens.literal(first)).map(LosslessJson::Text),
            TokenKind::Scalar => match self.text.get(first.start..first.end)? {
                "null" => Some(LosslessJson::Null),
                "true" => Some(LosslessJson::Boolean(true)),
                "false" => Some(LosslessJson::Boolean(false)),
                text if text.bytes().all(|b| matches!(b, b'0'..=b'9' | b'-' | b'+' | b'.' | b'e' | b'E')) => {
                    Some(LosslessJson::Number(text))
                }
                _ => None,
            },
            TokenKind::ObjectEnd | TokenKind::ArrayEnd | TokenKind::Comma | TokenKind::Key => None,
        }
    }

    fn list(&mut self) -> Option<Vec<LosslessJson<'a>>> {
        let mut items = Vec::new();
        let mut token = self.tokens.next()?;
        if token.kind == TokenKind::ArrayEnd {
            return Some(items);
        }
        loop {
            items.push(self.value(token)?);
            let after = self.tokens.next()?.kind;
            if after != TokenKind::Comma {
                return (after == TokenKind::ArrayEnd).then_some(items);
            }
            token = self.tokens.next()?;
        }
    }

    fn object(&mut self) -> Option<Vec<(Cow<'a, str>, LosslessJson<'a>)>> {
        let mut members = Vec::new();
        let mut token = self.tokens.next()?;
        if token.kind == TokenKind::ObjectEnd {
            return Some(members);
        }
        loop {
            let key = unescaped(self.tokens.literal(token)).filter(|_| token.kind == TokenKind::Key)?;
            let first = self.tokens.next()?;
            members.push((key, self.value(first)?));
            let after = self.tokens.next()?.kind;
            if after != TokenKind::Comma {
                return (after == TokenKind::ObjectEnd).then_some(members);
            }
            token = self.tokens.next()?;
        }
    }
}

/// Returns the value of a number that every JSON reader reads alike: an integer up to 2^53, or a
/// decimal that a double holds exactly as written. Returns `None` for any other number.
pub(super) fn exact_number(text: &str) -> Option<f64> {
    const SAFE: i64 = 1 << 53;
    if is_integer(text) {
        let number: i64 = text.parse().ok().filter(|number| (-SAFE..=SAFE).contains(number))?;
        // The parse is exact within these bounds.
        return number.to_string().parse().ok();
    }
    let number: f64 = text.parse().ok().filter(|number: &f64| number.is_finite())?;
    // Adding zero gives zero one sign.
    (digits(text)? == digits(&format!("{number:e}"))?).then_some(number + 0.0)
}

/// Whether a number has neither a fraction nor an exponent.
pub(super) fn is_integer(text: &str) -> bool {
    !text.contains(['.', 'e', 'E'])
}

/// Returns a decimal's significant digits and the exponent of the last one, for comparison.
fn digits(text: &str) -> Option<(String, i64)> {
    let (mantissa, exponent) = text.split_once(['e', 'E']).unwrap_or((text, "0"));
    let mantissa = mantissa.trim_start_matches('-');
    let (whole, fraction) = mantissa.split_once('.').unwrap_or((mantissa, ""));
    let all = format!("{whole}{fraction}");
    let significant = all.trim_end_matches('0');
    let exponent: i64 = exponent.parse().ok()?;
    let dropped = i64::try_from(all.len() - significant.len()).ok()?;
    let exponent = exponent.checked_sub(i64::try_from(fraction.len()).ok()?)?.checked_add(dropped)?;
    let significant = significant.trim_start_matches('0').to_owned();
    Some(if significant.is_empty() { (significant, 0) } else { (significant, exponent) })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_are_read_as_they_stand() {
        let read = |text: &'static str| LosslessJson::read(text.as_bytes());
        let text = |text: &'static str| LosslessJson::Text(Cow::Borrowed(text));
        assert_eq!(
            read(" { \"a\\u0062\" : [ 1.50 , true,null, \"x\\\"y\" ] , \"c\":{} } "),
            Some(LosslessJson::Object(vec![
                (
                    "ab".into(),
                    LosslessJson::List(vec![
                        LosslessJson::Number("1.50"),
                        LosslessJson::Boolean(true),
                        LosslessJson::Null,
                        text("x\"y")
                    ])
                ),
                ("c".into(), LosslessJson::Object(vec![])),
            ]))
        );
        for broken in ["", "{", "[1,]", "{\"a\"}", "\"a", "\"\\", "tru", "1 2", "{\"a\":1,}", "\"\\ud800\""] {
            assert_eq!(read(broken), None, "{broken}");
        }
        let deep = "[".repeat(200) + &"]".repeat(200);
        assert_eq!(LosslessJson::read(deep.as_bytes()), None);
    }

    #[test]
    fn a_number_is_exact_or_nothing() {
        for (text, want) in [
            ("0", Some(0.0)),
            ("-0", Some(0.0)),
            ("-0.0", Some(0.0)),
            ("1.50", Some(1.5)),
            ("0.1", Some(0.1)),
            ("1e2", Some(100.0)),
            ("1.0E+2", Some(100.0)),
            ("9007199254740992", Some(9_007_199_254_740_992.0)),
            ("9007199254740993", None),
            ("18446744073709551616", None),
            ("0.10000000000000000001", None),
            ("1e400", None),
            ("1e-400", None),
            ("1e99999999999999999999", None),
            ("-", None),
            ("1-1", None),
        ] {
            assert_eq!(exact_number(text), want, "{text}");
        }
    }
}
