//! SHA-256 digests to which grants and pins are bound, taken over the canonical text of a value.

use std::fmt;

use data_encoding::HEXLOWER;
use ring::digest::{Context, SHA256, digest};
use serde::de::Error;
use serde::{Deserialize, Deserializer, Serialize, Serializer};

use crate::wire::canonical::{canonicalize, sort_members};
use crate::wire::json::raw::RawJson;

/// A SHA-256 digest. ring's digest always has these 32 bytes.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Digest([u8; 32]);

impl Digest {
    /// Takes the digest of bytes that have one spelling.
    pub fn of(bytes: &[u8]) -> Self {
        Self(digest(&SHA256, bytes).as_ref().first_chunk().copied().unwrap_or_default())
    }

    /// Takes the digest of several parts as if they were one text.
    pub(crate) fn of_parts(parts: &[&[u8]]) -> Self {
        let mut hash = Context::new(&SHA256);
        parts.iter().for_each(|part| hash.update(part));
        Self(hash.finish().as_ref().first_chunk().copied().unwrap_or_default())
    }

    /// Takes the digest of a JSON value; all spellings of a value have one digest. Text that is not
    /// JSON gets the digest of its bytes.
    pub fn of_json(value: &RawJson) -> Self {
        canonicalize(value).map_or_else(|_| Self::of(value.bytes()), |text| Self::of(&text))
    }

    /// Takes the digest of a call's arguments; no arguments and `{}` have one digest. The order of
    /// members does not matter, but the spelling of numbers and strings does: servers may
    /// distinguish `1` from `1.0`.
    pub(crate) fn of_arguments(arguments: Option<&RawJson>) -> Self {
        arguments.map_or_else(
            || Self::of(b"{}"),
            |value| sort_members(value).map_or_else(|_| Self::of(value.bytes()), |text| Self::of(&text)),
        )
    }

    pub const fn bytes(&self) -> &[u8; 32] {
        &self.0
    }

    /// Reads the bytes that [`Self::bytes`] returned.
    pub fn from_bytes(bytes: &[u8]) -> Option<Self> {
        bytes.try_into().ok().map(Self)
    }

    /// Returns all 64 hexadecimal digits, for storage.
    pub fn hex(&self) -> String {
        HEXLOWER.encode(&self.0)
    }

    /// Returns the digits of [`Self::hex`] without an allocation.
    pub(crate) fn digits(&self) -> [[u8; 2]; 32] {
        hexadecimal(self.0)
    }

    /// Reads the text that [`Self::hex`] wrote.
    pub fn from_hex(text: &str) -> Option<Self> {
        HEXLOWER.decode(text.as_bytes()).ok()?.try_into().ok().map(Self)
    }

    /// Returns the first eight digits, for people.
    pub fn short(&self) -> String {
        self.hex().chars().take(8).collect()
    }
}

/// Returns the two hexadecimal digits of each byte. Computed without a table, so that the compiler
/// can vectorise it.
pub(crate) fn hexadecimal<const BYTES: usize>(bytes: [u8; BYTES]) -> [[u8; 2]; BYTES] {
    let digit = |value: u8| value + if value < 10 { b'0' } else { b'a' - 10 };
    let mut out = [[0; 2]; BYTES];
    for (pair, byte) in out.iter_mut().zip(bytes) {
        *pair = [digit(byte >> 4), digit(byte & 15)];
    }
    out
}

impl Serialize for Digest {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(&self.hex())
    }
}

impl<'de> Deserialize<'de> for Digest {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        Self::from_hex(&text).ok_or_else(|| Error::custom("not a digest of 64 hexadecimal digits"))
    }
}

impl fmt::Debug for Digest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.short())
    }
}

impl fmt::Display for Digest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.hex())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_value_has_one_digest() {
        let of = |text: &'static str| Digest::of_json(&RawJson::trusted(text));
        assert_eq!(of(r#"{"a":1,"b":[2]}"#), of(r#"{ "b": [2], "a": 1 }"#));
        assert_ne!(of(r#"{"a":1}"#), of(r#"{"a":2}"#));
        assert_eq!(Digest::of_arguments(None), Digest::of_arguments(Some(&RawJson::trusted("{}"))));
        let arguments = |text: &'static str| Digest::of_arguments(Some(&RawJson::trusted(text)));
        assert_eq!(arguments(r#"{"a":1,"b":[2]}"#), arguments(r#"{ "b": [2], "a": 1 }"#));
        for other in [r#"{"a":1.0}"#, r#"{"a":1e0}"#, r#"{"a":"1"}"#, r#"{"\u0061":1}"#] {
            assert_ne!(arguments(r#"{"a":1}"#), arguments(other), "{other}");
        }
        assert_eq!(Digest::from_hex(&of("1").hex()), Some(of("1")));
        assert_eq!(of("1").digits().as_flattened(), of("1").hex().as_bytes());
        let all: [u8; 256] = std::array::from_fn(|n| u8::try_from(n).unwrap());
        assert_eq!(hexadecimal(all).as_flattened(), HEXLOWER.encode(&all).as_bytes());
        assert_eq!(Digest::from_hex("00"), None);
    }
}
