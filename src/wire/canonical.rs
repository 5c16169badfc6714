//! One text for equal JSON values, to take digests of.
//!
//! Members are sorted by key, strings are written with the fewest escapes, white space is dropped. Numbers stay as they were
//! written: two spellings of one number count as different, which refuses where it could have allowed and never the reverse.

use crate::wire::raw::{RawJson, RawObject, elements};

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
        Some(b'"') => serde_json::to_writer(&mut *out, &value.parse::<String>()?)?,
        _ => out.extend_from_slice(value.bytes()),
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(json: &'static str) -> String {
        String::from_utf8(canonical(&RawJson::trusted(json)).unwrap()).unwrap()
    }

    #[test]
    fn equal_values_have_one_text() {
        let want = r#"{"a":[1,{"x":null,"y":"é/"}],"b":1.0}"#;
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
        ] {
            assert_ne!(text(a), text(b));
        }
    }
}
