//! Detection of strings that a person cannot read: encoded bytes, and text full of control
//! characters.

use crate::wire::digest::Digest;
use crate::wire::foreign::marked::MarkedText;

/// Shortest string that can look binary, in bytes. A shorter one is always shown.
const LEAST: usize = 256;
/// Bytes of the beginning that are shown.
const BEGINNING: usize = 48;
/// Longest head of a `data:` URL, in bytes.
const MAX_HEAD: usize = 128;

/// The summary of a string that looks binary.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BinaryText {
    /// Size of the string as received, in bytes.
    pub bytes: usize,
    /// SHA-256 of the string as received, in hexadecimal.
    pub digest: String,
    pub beginning: MarkedText,
}

impl BinaryText {
    /// Summarizes a string that looks binary; `None` for a readable one.
    pub(super) fn of(text: &str) -> Option<Self> {
        if text.len() < LEAST || !(is_encoded(without_head(text)) || is_raw(text)) {
            return None;
        }
        let digest = Digest::of(text.as_bytes()).hex();
        Some(Self { bytes: text.len(), digest, beginning: MarkedText::beginning(text, BEGINNING).0 })
    }
}

/// Returns the content of a `data:` URL, or the text itself.
fn without_head(text: &str) -> &str {
    let head = text.strip_prefix("data:").and_then(|rest| rest.split_once(";base64,"));
    head.filter(|(head, _)| head.len() <= MAX_HEAD).map_or(text, |(_, content)| content)
}

/// Whether a text is base64 or hexadecimal: it has letters of both cases and digits in the usual
/// shares, no blanks, and no line as short as a line of words.
fn is_encoded(text: &str) -> bool {
    let (mut upper, mut lower, mut digits, mut others) = (0_usize, 0_usize, 0_usize, 0_usize);
    for byte in text.bytes() {
        match byte {
            b'A'..=b'Z' => upper += 1,
            b'a'..=b'z' => lower += 1,
            b'0'..=b'9' => digits += 1,
            b'+' | b'/' | b'=' | b'-' | b'_' => others += 1,
            b'\r' | b'\n' => {}
            _ => return false,
        }
    }
    let all = upper + lower + digits + others;
    let is_hex = others == 0
        && digits * 3 > all
        && text.bytes().all(|byte| byte.is_ascii_hexdigit() || byte.is_ascii_whitespace());
    let is_base64 = upper * 6 > all && lower * 6 > all && digits * 20 > all && others * 8 < all;
    let last = text.lines().count().saturating_sub(1);
    let is_broken_like_words = text.lines().enumerate().any(|(at, line)| line.len() < 40 && at < last);
    all >= LEAST / 2 && (is_hex || is_base64) && !is_broken_like_words
}

/// Whether more than a tenth of the characters are control characters or replacement characters.
fn is_raw(text: &str) -> bool {
    let is_odd = |c: &char| (c.is_control() && !matches!(c, '\n' | '\r' | '\t')) || *c == '\u{fffd}';
    text.chars().filter(is_odd).count() * 10 > text.chars().count()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_nobody_reads_is_told_from_text() {
        let byte = |n: u32| n.wrapping_mul(2_654_435_761).to_be_bytes()[1];
        let bytes: Vec<u8> = (0..999).map(byte).collect();
        let base64 = data_encoding::BASE64.encode(&bytes);
        let lines: String = base64.as_bytes().chunks(76).map(|line| String::from_utf8_lossy(line) + "\r\n").collect();
        for (label, text, want) in [
            ("base64", base64.clone(), true),
            ("for URLs", data_encoding::BASE64URL_NOPAD.encode(&bytes), true),
            ("in lines", lines, true),
            ("hexadecimal", data_encoding::HEXLOWER.encode(&bytes), true),
            ("a picture", format!("data:image/png;base64,{base64}"), true),
            ("bytes", "\0\u{1}PNG\u{fffd}\n".repeat(60), true),
            ("short", base64[..200].to_owned(), false),
            ("with a blank", format!("{base64} rm"), false),
            ("a sentence", "Plain words and 12 numbers. ".repeat(20), false),
            ("names", "src/policy_consent/View2\n".repeat(20), false),
            ("a long name", "a_long_name_of_words/".repeat(20), false),
            ("letters", "x".repeat(999), false),
            ("German", "Größe über alles ".repeat(30), false),
            ("a row of digits", "0".repeat(20), false),
        ] {
            assert_eq!(BinaryText::of(&text).is_some(), want, "{label}");
        }
        let binary = BinaryText::of(&base64).unwrap();
        assert_eq!((binary.bytes, binary.digest.len()), (base64.len(), 64));
        assert_eq!(binary.beginning.to_string(), base64[..BEGINNING]);
    }
}
