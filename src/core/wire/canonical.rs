//! Writes equal JSON values as one text, so that equal values have one digest: the JSON
//! Canonicalization Scheme (RFC 8785), with one exception.
//!
//! Members are sorted by the UTF-16 units of their keys, strings are written with the fewest
//! escapes, white space is dropped, and numbers are written as ECMAScript writes them. The
//! exception: a number that a double cannot hold exactly as it is written (more than 15 digits,
//! integers beyond 2^53) keeps its spelling. RFC 8785 rounds such a number, so two numbers that
//! some readers tell apart would share a digest. With two digests headend may refuse what it could
//! have allowed, and never the reverse.

use std::borrow::Cow;

use serde_json::value::RawValue;

use crate::wire::json::raw::{RawJson, no_text};
use crate::wire::json::tokens::{JsonTokens, TokenKind, unescaped};

mod settled;

/// The number of significant digits that every double keeps.
const SAFE_DIGITS: usize = 15;
/// A bound on the decimal exponent that is well within the range of a double.
const SAFE_EXPONENT: i32 = 290;
/// 2^53: up to here a double holds every integer exactly.
const SAFE_INTEGER: u64 = 1 << 53;

/// Returns the canonical text of a value; borrows the text if it is canonical already. Nesting
/// costs no stack, and the time grows with the length of the text alone.
///
/// # Errors
/// Fails if the text is not JSON, or an object has a key twice.
pub fn canonicalize(value: &RawJson) -> Result<Cow<'_, [u8]>, serde_json::Error> {
    if settled::is_canonical(value.bytes()) {
        return Ok(Cow::Borrowed(value.bytes()));
    }
    rewrite(value).map(Cow::Owned)
}

/// Writes the canonical text of a value anew.
fn rewrite(value: &RawJson) -> Result<Vec<u8>, serde_json::Error> {
    JsonTree::read(value)?.write(|scalar, out| {
        match scalar.first() {
            // A string without an escape is minimal already: JSON requires one where one is needed.
            Some(b'"') if memchr::memchr(b'\\', scalar).is_some() => {
                serde_json::to_writer(out, &serde_json::from_slice::<String>(scalar)?)?;
            }
            Some(b'-' | b'0'..=b'9') => {
                let written = std::str::from_utf8(scalar).ok().and_then(format_number);
                out.extend_from_slice(written.as_ref().map_or(scalar, String::as_bytes));
            }
            _ => out.extend_from_slice(scalar),
        }
        Ok(())
    })
}

/// Returns the text of a value with its members sorted and its white space dropped. Scalars and
/// keys keep their spelling: `1` is not `1.0` here, and an escape is not its letter.
///
/// # Errors
/// Fails if the text is not JSON, or an object has a key twice.
pub fn sort_members(value: &RawJson) -> Result<Cow<'_, [u8]>, serde_json::Error> {
    if settled::is_canonical(value.bytes()) {
        return Ok(Cow::Borrowed(value.bytes()));
    }
    let written = JsonTree::read(value)?.write(|scalar, out| {
        out.extend_from_slice(scalar);
        Ok(())
    });
    written.map(Cow::Owned)
}

/// A value of the tree, with its key if it is a member of an object.
struct TreeNode<'a> {
    /// The key, quotes included; empty in an array and at the root.
    key: &'a [u8],
    value: TreeValue<'a>,
}

/// The content of a node.
enum TreeValue<'a> {
    /// The literal, without white space around it.
    Scalar(&'a [u8]),
    /// The range of the children's indices in [`JsonTree::order`].
    Array(usize, usize),
    Object(usize, usize),
}

/// All values of a text in a flat list, each after the values inside it.
struct JsonTree<'a> {
    text: &'a [u8],
    nodes: Vec<TreeNode<'a>>,
    /// Indices of children. The children of one container are adjacent; members are sorted by key.
    order: Vec<usize>,
}

/// A container whose end has not been read.
struct OpenTreeNode<'a> {
    key: &'a [u8],
    is_object: bool,
    /// The index of its first child in the list of values without a container.
    children: usize,
}

impl<'a> JsonTree<'a> {
    /// Reads a text into a tree.
    fn read(value: &'a RawJson) -> Result<Self, serde_json::Error> {
        // serde checks the grammar, so the walk below need not.
        let text = value.parse::<&RawValue>()?.get().as_bytes();
        let mut tree = Self { text, nodes: Vec::new(), order: Vec::new() };
        let mut open: Vec<OpenTreeNode<'a>> = Vec::new();
        let mut loose: Vec<usize> = Vec::new();
        let mut key: &[u8] = b"";
        let mut tokens = JsonTokens::of(text);
        while let Some(token) = tokens.next() {
            match token.kind {
                TokenKind::Object | TokenKind::Array => {
                    let is_object = token.kind == TokenKind::Object;
                    open.push(OpenTreeNode { key: std::mem::take(&mut key), is_object, children: loose.len() });
                }
                TokenKind::ObjectEnd | TokenKind::ArrayEnd => {
                    let Some(container) = open.pop() else { continue };
                    let value = tree.close(&container, &mut loose)?;
                    tree.add(container.key, value, &mut loose);
                }
                TokenKind::Comma => {}
                TokenKind::Key => key = tokens.literal(token),
                TokenKind::String | TokenKind::Scalar => {
                    tree.add(std::mem::take(&mut key), TreeValue::Scalar(tokens.literal(token)), &mut loose);
                }
            }
        }
        Ok(tree)
    }

    /// Appends a value to the tree; its container comes later.
    fn add(&mut self, key: &'a [u8], value: TreeValue<'a>, loose: &mut Vec<usize>) {
        loose.push(self.nodes.len());
        self.nodes.push(TreeNode { key, value });
    }

    /// Takes the children of a container off `loose` and stores them side by side in
    /// [`JsonTree::order`]; fails if an object has a key twice.
    fn close(
        &mut self,
        container: &OpenTreeNode<'a>,
        loose: &mut Vec<usize>,
    ) -> Result<TreeValue<'a>, serde_json::Error> {
        let start = self.order.len();
        let children = loose.drain(container.children..);
        if !container.is_object {
            self.order.extend(children);
            return Ok(TreeValue::Array(start, self.order.len()));
        }
        let mut members = Vec::with_capacity(children.len());
        for child in children {
            let key = self.nodes.get(child).map_or(&[][..], |node| node.key);
            members.push((unescaped(key).ok_or_else(no_text)?, child));
        }
        // For keys beyond the basic plane, the order of bytes differs from the order of UTF-16
        // units.
        members.sort_unstable_by(|(a, _), (b, _)| a.encode_utf16().cmp(b.encode_utf16()));
        if members.windows(2).any(|pair| matches!(pair, [(a, _), (b, _)] if a == b)) {
            return Err(serde::de::Error::custom("duplicate key"));
        }
        self.order.extend(members.into_iter().map(|(_, child)| child));
        Ok(TreeValue::Object(start, self.order.len()))
    }

    /// Writes the text of the tree; `scalar` writes each scalar and each key.
    fn write(
        &self,
        scalar: impl Fn(&[u8], &mut Vec<u8>) -> Result<(), serde_json::Error>,
    ) -> Result<Vec<u8>, serde_json::Error> {
        let mut out = Vec::with_capacity(self.text.len());
        // Containers that are being written: the index of the next child, the end of the children,
        // and the closing bracket.
        let mut open: Vec<(usize, usize, u8)> = Vec::new();
        let mut next = self.nodes.last();
        loop {
            while let Some(node) = next.take() {
                if !node.key.is_empty() {
                    scalar(node.key, &mut out)?;
                    out.push(b':');
                }
                let (first, end, (opening, closing)) = match node.value {
                    TreeValue::Scalar(text) => {
                        scalar(text, &mut out)?;
                        break;
                    }
                    TreeValue::Array(first, end) => (first, end, (b'[', b']')),
                    TreeValue::Object(first, end) => (first, end, (b'{', b'}')),
                };
                out.push(opening);
                open.push((first + 1, end, closing));
                next = if first < end { self.child(first) } else { None };
            }
            match open.last_mut() {
                None => return Ok(out),
                Some((at, end, _)) if *at < *end => {
                    out.push(b',');
                    next = self.child(*at);
                    *at += 1;
                }
                Some((_, _, bracket)) => {
                    out.push(*bracket);
                    open.pop();
                }
            }
        }
    }

    /// Returns the node at an index of [`JsonTree::order`].
    fn child(&self, at: usize) -> Option<&TreeNode<'a>> {
        self.order.get(at).and_then(|child| self.nodes.get(*child))
    }
}

/// Writes a number as ECMAScript does; `None` if a double does not hold it exactly as written.
fn format_number(text: &str) -> Option<String> {
    if let Ok(integer) = text.parse::<i64>() {
        return (integer.unsigned_abs() <= SAFE_INTEGER).then(|| integer.to_string());
    }
    let (mantissa, exponent) = text.split_once(['e', 'E']).unwrap_or((text, "0"));
    let digits = mantissa.bytes().filter(u8::is_ascii_digit).skip_while(|digit| *digit == b'0').count();
    let exponent = exponent.parse::<i32>().ok()?;
    let point = mantissa.len().try_into().ok().and_then(|length: i32| length.checked_add(exponent.checked_abs()?))?;
    if digits > SAFE_DIGITS || point > SAFE_EXPONENT {
        return None;
    }
    let value = text.parse::<f64>().ok().filter(|value| value.is_finite())?;
    if value == 0.0 {
        return Some("0".to_owned());
    }
    // The shortest digits that parse to this double, in the form `d.ddde-7`.
    let shortest = format!("{:e}", value.abs());
    let (digits, exponent) = shortest.split_once('e')?;
    let digits: String = digits.chars().filter(char::is_ascii_digit).collect();
    let sign = if value < 0.0 { "-" } else { "" };
    Some(format!("{sign}{}", format_digits(&digits, exponent.parse::<i32>().ok()?)))
}

/// Lays out digits by the rules of ECMAScript's `Number::toString`; `exponent` is the power of ten
/// of the first digit.
fn format_digits(digits: &str, exponent: i32) -> String {
    let zeros = |n: i32| "0".repeat(n.try_into().unwrap_or(0));
    let count = i32::try_from(digits.len()).unwrap_or(i32::MAX);
    match exponent {
        0..=20 if count <= exponent + 1 => format!("{digits}{}", zeros(exponent + 1 - count)),
        0..=20 => {
            let (whole, part) = digits.split_at(usize::try_from(exponent + 1).unwrap_or(0));
            format!("{whole}.{part}")
        }
        -6..=-1 => format!("0.{}{digits}", zeros(-exponent - 1)),
        _ => {
            let (first, rest) = digits.split_at(1.min(digits.len()));
            let point = if rest.is_empty() { "" } else { "." };
            let sign = if exponent > 0 { "+" } else { "" };
            format!("{first}{point}{rest}e{sign}{exponent}")
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(json: &'static str) -> String {
        String::from_utf8(canonicalize(&RawJson::trusted(json)).unwrap().into_owned()).unwrap()
    }

    #[test]
    fn equal_values_have_one_text() {
        let want = r#"{"a":[1,{"x":null,"y":"é/"}],"b":1}"#;
        for (label, json) in [
            ("sorted", want),
            ("other order and spaces", r#"{ "b" : 1.0, "a": [ 1, {"y":"é/", "x":null} ] }"#),
            ("escapes", r#"{"\u0061":[1,{"y":"\u00e9\/","x":null}],"b":1.0}"#),
        ] {
            assert_eq!(text(json), want, "{label}");
        }
    }

    #[test]
    fn depth_costs_no_stack() {
        let deep = |open: &str, close: &str| open.repeat(200_000) + "1" + &close.repeat(200_000);
        for json in [deep("[", "]"), deep("{\"a\":", "}")] {
            let value = RawJson::trusted(json.clone());
            assert_eq!(*canonicalize(&value).unwrap(), *json.as_bytes());
            assert_eq!(*sort_members(&value).unwrap(), *json.as_bytes());
        }
    }

    #[test]
    fn an_ordered_text_settles_order_and_white_space_alone() {
        let ordered = |json: &'static str| {
            String::from_utf8(sort_members(&RawJson::trusted(json)).unwrap().into_owned()).unwrap()
        };
        assert_eq!(
            ordered(r#" { "b" : 1.0, "a": [ 1, {"y":"\u00e9", "x":null}, {}, [ ] ] } "#),
            r#"{"a":[1,{"x":null,"y":"\u00e9"},{},[]],"b":1.0}"#
        );
        assert_eq!(ordered("1.0"), "1.0");
    }

    #[test]
    fn text_without_one_meaning_has_no_canonical_text() {
        for json in ["", "[1", "{\"a\":1,\"\\u0061\":2}", "[[[{\"a\":1,\"a\":1}]]]", "1 2", "{\"\\ud800\":1}"] {
            assert!(canonicalize(&RawJson::trusted(json)).is_err(), "{json}");
        }
    }

    #[test]
    fn different_values_have_different_texts() {
        for (a, b) in [
            (r#"{"a":1}"#, r#"{"a":"1"}"#),
            ("[1,2]", "[2,1]"),
            (r#"{"a":12345678901234567890}"#, r#"{"a":12345678901234567891}"#),
            ("0.1", "0.10000000000000001"),
            ("9007199254740993", "9007199254740992.0"),
        ] {
            assert_ne!(text(a), text(b));
        }
    }

    #[test]
    fn numbers_are_written_as_ecmascript_writes_them() {
        for (written, want) in [
            ("0", "0"),
            ("-0", "0"),
            ("-0.0", "0"),
            ("0e7", "0"),
            ("1.0", "1"),
            ("-1.50", "-1.5"),
            ("4.50", "4.5"),
            ("2e-3", "0.002"),
            ("1E30", "1e+30"),
            ("0.000001", "0.000001"),
            ("0.0000001", "1e-7"),
            ("1e21", "1e+21"),
            ("1e20", "100000000000000000000"),
            ("123e-20", "1.23e-18"),
            ("1234.5678e2", "123456.78"),
            ("9007199254740992", "9007199254740992"),
            // Doubles cannot tell these from their neighbours, so they keep their spelling.
            ("9007199254740993", "9007199254740993"),
            ("333333333.33333329", "333333333.33333329"),
            ("1e999", "1e999"),
            ("5e-324", "5e-324"),
        ] {
            assert_eq!(text(written), want, "{written}");
        }
    }

    #[test]
    fn keys_are_sorted_by_their_utf_16_units() {
        // The example of RFC 8785, section 3.2.3.
        let members = r#"{"\u20ac":1,"\r":2,"\ufb33":3,"1":4,"\ud83d\ude00":5,"\u0080":6,"\u00f6":7}"#;
        assert_eq!(text(members), "{\"\\r\":2,\"1\":4,\"\u{80}\":6,\"ö\":7,\"€\":1,\"😀\":5,\"\u{fb33}\":3}");
    }
}
