//! A JSON value whose numbers are still text, so that no digit is lost before it is looked at.

use std::borrow::Cow;

use memchr::memchr2;

/// Deeper values are not read. Frames have a lower bound already.
const MAX_DEPTH: usize = 128;

#[derive(Clone, Debug, PartialEq)]
pub(super) enum Json<'a> {
    Null,
    Boolean(bool),
    /// As written.
    Number(&'a str),
    Text(Cow<'a, str>),
    List(Vec<Self>),
    /// In the order written. A key may stand twice here; frames refuse that.
    Object(Vec<(Cow<'a, str>, Self)>),
}

impl<'a> Json<'a> {
    /// Reads one value; `None` for everything that is not one.
    pub(super) fn read(bytes: &'a [u8]) -> Option<Self> {
        let mut reader = Reader { text: std::str::from_utf8(bytes).ok()?, at: 0 };
        let value = reader.value(0)?;
        reader.space();
        (reader.at == bytes.len()).then_some(value)
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

struct Reader<'a> {
    text: &'a str,
    at: usize,
}

impl<'a> Reader<'a> {
    fn peek(&self) -> Option<u8> {
        self.text.as_bytes().get(self.at).copied()
    }

    fn space(&mut self) {
        while matches!(self.peek(), Some(b' ' | b'\t' | b'\n' | b'\r')) {
            self.at += 1;
        }
    }

    fn take(&mut self, wanted: u8) -> Option<()> {
        (self.peek()? == wanted).then(|| self.at += 1)
    }

    fn word(&mut self, word: &str, value: Json<'a>) -> Option<Json<'a>> {
        let rest = self.text.get(self.at..)?;
        rest.starts_with(word).then(|| {
            self.at += word.len();
            value
        })
    }

    fn value(&mut self, depth: usize) -> Option<Json<'a>> {
        if depth > MAX_DEPTH {
            return None;
        }
        self.space();
        match self.peek()? {
            b'"' => self.string().map(Json::Text),
            b'{' => self.object(depth),
            b'[' => self.list(depth),
            b't' => self.word("true", Json::Boolean(true)),
            b'f' => self.word("false", Json::Boolean(false)),
            b'n' => self.word("null", Json::Null),
            _ => self.number(),
        }
    }

    fn number(&mut self) -> Option<Json<'a>> {
        let start = self.at;
        while matches!(self.peek(), Some(b'0'..=b'9' | b'-' | b'+' | b'.' | b'e' | b'E')) {
            self.at += 1;
        }
        let text = self.text.get(start..self.at).filter(|text| !text.is_empty())?;
        Some(Json::Number(text))
    }

    fn string(&mut self) -> Option<Cow<'a, str>> {
        let start = self.at;
        self.take(b'"')?;
        let mut escaped = false;
        loop {
            let rest = self.text.as_bytes().get(self.at..)?;
            self.at += memchr2(b'"', b'\\', rest)?;
            if self.peek()? == b'"' {
                break;
            }
            escaped = true;
            self.at += 2;
        }
        self.at += 1;
        if escaped {
            return serde_json::from_str(self.text.get(start..self.at)?).ok().map(Cow::Owned);
        }
        self.text.get(start + 1..self.at - 1).map(Cow::Borrowed)
    }

    fn list(&mut self, depth: usize) -> Option<Json<'a>> {
        self.take(b'[')?;
        let mut items = Vec::new();
        self.space();
        if self.take(b']').is_some() {
            return Some(Json::List(items));
        }
        loop {
            items.push(self.value(depth + 1)?);
            self.space();
            if self.take(b',').is_none() {
                self.take(b']')?;
                return Some(Json::List(items));
            }
        }
    }

    fn object(&mut self, depth: usize) -> Option<Json<'a>> {
        self.take(b'{')?;
        let mut members = Vec::new();
        self.space();
        if self.take(b'}').is_some() {
            return Some(Json::Object(members));
        }
        loop {
            self.space();
            let key = self.string()?;
            self.space();
            self.take(b':')?;
            members.push((key, self.value(depth + 1)?));
            self.space();
            if self.take(b',').is_none() {
                self.take(b'}')?;
                return Some(Json::Object(members));
            }
        }
    }
}

/// A number that every JSON reader takes for the same: an integer up to 2^53, or a decimal that a double keeps as it stands.
pub(super) fn exact(text: &str) -> Option<f64> {
    const SAFE: i64 = 1 << 53;
    if is_integer(text) {
        let number: i64 = text.parse().ok().filter(|number| (-SAFE..=SAFE).contains(number))?;
        // Exact within these bounds, and so is what is written.
        return number.to_string().parse().ok();
    }
    let number: f64 = text.parse().ok().filter(|number: &f64| number.is_finite())?;
    // Plus zero, so that zero has one sign.
    (digits(text)? == digits(&format!("{number:e}"))?).then_some(number + 0.0)
}

/// Whether it has neither a fraction nor an exponent.
pub(super) fn is_integer(text: &str) -> bool {
    !text.contains(['.', 'e', 'E'])
}

/// A decimal's significant digits and the exponent of the last one, for comparison.
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
        let read = |text: &'static str| Json::read(text.as_bytes());
        let text = |text: &'static str| Json::Text(Cow::Borrowed(text));
        assert_eq!(
            read(" { \"a\\u0062\" : [ 1.50 , true,null, \"x\\\"y\" ] , \"c\":{} } "),
            Some(Json::Object(vec![
                ("ab".into(), Json::List(vec![Json::Number("1.50"), Json::Boolean(true), Json::Null, text("x\"y")])),
                ("c".into(), Json::Object(vec![])),
            ]))
        );
        for broken in ["", "{", "[1,]", "{\"a\"}", "\"a", "\"\\", "tru", "1 2", "{\"a\":1,}", "\"\\ud800\""] {
            assert_eq!(read(broken), None, "{broken}");
        }
        let deep = "[".repeat(200) + &"]".repeat(200);
        assert_eq!(Json::read(deep.as_bytes()), None);
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
            assert_eq!(exact(text), want, "{text}");
        }
    }
}
