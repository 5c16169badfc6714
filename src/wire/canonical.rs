//! One text for equal JSON values, to take digests of: the JSON Canonicalization Scheme (RFC 8785), with one exception.
//!
//! Members are sorted by the UTF-16 units of their keys, strings are written with the fewest escapes, white space is dropped,
//! numbers are written as ECMAScript writes them. The exception: a number that a double cannot hold exactly as it is written
//! (more than 15 digits, integers beyond 2^53) stays as it was written. RFC 8785 rounds it, and then two numbers that some
//! readers tell apart would have one digest; this way they have two, which refuses where it could have allowed and never the
//! reverse.

use crate::wire::raw::{RawJson, RawObject, elements};

/// Digits that every double keeps, whatever they are.
const SAFE_DIGITS: usize = 15;
/// Powers of ten well within those of a double.
const SAFE_EXPONENT: i32 = 290;
/// The largest integer below which doubles hold all integers.
const SAFE_INTEGER: u64 = 1 << 53;

/// The canonical text of a value.
///
/// # Errors
/// Text that is not JSON, or an object with a key twice.
pub(crate) fn canonical(value: &RawJson) -> Result<Vec<u8>, serde_json::Error> {
    let mut out = Vec::with_capacity(value.bytes().len());
    write(value, &mut out)?;
    Ok(out)
}

fn write(value: &RawJson, out: &mut Vec<u8>) -> Result<(), serde_json::Error> {
    match value.bytes().first() {
        Some(b'{') => {
            let mut members = RawObject::parse(value)?.into_sorted()?;
            // Keys beyond the basic plane sort otherwise by bytes than by UTF-16 units.
            members.sort_by(|(a, _), (b, _)| a.encode_utf16().cmp(b.encode_utf16()));
            out.push(b'{');
            for (n, (key, value)) in members.drain(..).enumerate() {
                if n > 0 {
                    out.push(b',');
                }
                serde_json::to_writer(&mut *out, &key)?;
                out.push(b':');
                write(&value, out)?;
            }
            out.push(b'}');
        }
        Some(b'[') => {
            out.push(b'[');
            for (n, value) in elements(value)?.iter().enumerate() {
                if n > 0 {
                    out.push(b',');
                }
                write(value, out)?;
            }
            out.push(b']');
        }
        // Without an escape it has none too many: what needs one cannot stand in JSON without.
        Some(b'"') if memchr::memchr(b'\\', value.bytes()).is_none() => out.extend_from_slice(value.bytes()),
        Some(b'"') => serde_json::to_writer(&mut *out, &value.parse::<String>()?)?,
        Some(b'-' | b'0'..=b'9') => {
            let text = value.text();
            out.extend_from_slice(number(&text).as_deref().unwrap_or(&text).as_bytes());
        }
        _ => out.extend_from_slice(value.bytes()),
    }
    Ok(())
}

/// A number as ECMAScript writes it; `None` where a double would not hold it exactly as it is written.
fn number(text: &str) -> Option<String> {
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
    // The shortest digits that give the same double, as `d.ddde-7`.
    let shortest = format!("{:e}", value.abs());
    let (digits, exponent) = shortest.split_once('e')?;
    let digits: String = digits.chars().filter(char::is_ascii_digit).collect();
    let sign = if value < 0.0 { "-" } else { "" };
    Some(format!("{sign}{}", laid_out(&digits, exponent.parse::<i32>().ok()?)))
}

/// Digits and the power of ten of the first one, laid out by the rules of ECMAScript's `Number::toString`.
fn laid_out(digits: &str, exponent: i32) -> String {
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
        String::from_utf8(canonical(&RawJson::trusted(json)).unwrap()).unwrap()
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
            // Not to be told from their neighbours by a double: as they are.
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
