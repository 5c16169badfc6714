//! JSON values that stay text: a validated slice of a frame ([`RawJson`]), and a one-level view of
//! an object that can be edited ([`RawObject`]).
//!
//! Objects are split by the scanner, since the grammar of a [`RawJson`] was checked when its
//! message was parsed; unchecked text enters by [`RawJson::checked`]. `serde_json` splits arrays,
//! and objects that are plain text.

use std::borrow::Cow;
use std::fmt;
use std::sync::Arc;

use bytes::{BufMut, Bytes, BytesMut};
use memchr::memchr2;
use serde::de::{Deserialize, Deserializer, MapAccess, Visitor};
use serde::ser::{Serialize, Serializer};
use serde_json::value::RawValue;

use crate::wire::json::plain::is_plain;
use crate::wire::json::tokens::{JsonToken, JsonTokens, TokenKind, unescaped, unquoted};

/// The number of keys up to which comparing all pairs is faster than sorting.
const FEW: usize = 8;
/// The initial capacity of an object: enough members for most, with one or two that are set later.
const MEMBERS: usize = 6;

/// A valid JSON value, as the bytes in which it was received or written.
#[derive(Clone, PartialEq, Eq)]
pub struct RawJson(Bytes);

impl RawJson {
    /// The text `{}`.
    pub const EMPTY_OBJECT: Self = Self(Bytes::from_static(b"{}"));

    /// Wraps text that this program wrote itself and that is JSON by construction. Checks nothing.
    pub fn trusted(text: impl Into<Bytes>) -> Self {
        Self(text.into())
    }

    /// Like [`Self::trusted`], for a constant.
    pub const fn of_static(text: &'static str) -> Self {
        Self(Bytes::from_static(text.as_bytes()))
    }

    /// Takes text that this program may not have written.
    ///
    /// # Errors
    /// Fails if the text is not one JSON value.
    pub fn checked(text: impl Into<Bytes>) -> Result<Self, serde_json::Error> {
        let text = text.into();
        serde_json::from_slice::<&RawValue>(&text)?;
        Ok(Self(text))
    }

    /// Returns the slice of `frame` that `raw` borrows, without a copy.
    pub(crate) fn slice_of(frame: &Bytes, raw: &RawValue) -> Self {
        Self(frame.slice_ref(raw.get().as_bytes()))
    }

    /// Writes a string as JSON.
    pub fn string(text: &str) -> Self {
        if is_plain(text) {
            let mut out = BytesMut::with_capacity(text.len() + 2);
            out.put_u8(b'"');
            out.put_slice(text.as_bytes());
            out.put_u8(b'"');
            return Self(out.freeze());
        }
        // Serialising a string cannot fail; the fallback keeps the value valid JSON even so.
        Self(serde_json::to_vec(text).map_or_else(|_| Bytes::from_static(b"\"\""), Bytes::from))
    }

    pub fn number(value: impl fmt::Display) -> Self {
        Self::trusted(value.to_string())
    }

    pub fn boolean(value: bool) -> Self {
        Self::trusted(if value { "true" } else { "false" })
    }

    /// Shares a text that is JSON, without a copy.
    pub fn shared(text: &Arc<str>) -> Self {
        struct Shared(Arc<str>);
        impl AsRef<[u8]> for Shared {
            fn as_ref(&self) -> &[u8] {
                self.0.as_bytes()
            }
        }
        Self(Bytes::from_owner(Shared(Arc::clone(text))))
    }

    /// Writes an array of these values.
    pub fn list(items: impl IntoIterator<Item = Self>) -> Self {
        let mut out = BytesMut::from(&b"["[..]);
        for item in items {
            if out.len() > 1 {
                out.put_u8(b',');
            }
            out.put_slice(&item.0);
        }
        out.put_u8(b']');
        Self(out.freeze())
    }

    pub fn bytes(&self) -> &Bytes {
        &self.0
    }

    pub fn into_bytes(self) -> Bytes {
        self.0
    }

    pub fn is_object(&self) -> bool {
        self.0.first() == Some(&b'{')
    }

    pub fn is_null(&self) -> bool {
        *self.0 == *b"null"
    }

    pub fn is_string(&self) -> bool {
        self.0.first() == Some(&b'"')
    }

    /// Returns the content of a string without escapes, as most are; `None` for any other value.
    fn plain(&self) -> Option<&str> {
        let text = self.0.strip_prefix(b"\"")?.strip_suffix(b"\"")?;
        let is_plain = memchr2(b'\\', b'"', text).is_none() && text.iter().all(|byte| *byte >= b' ');
        std::str::from_utf8(text).ok().filter(|_| is_plain)
    }

    /// Reports whether the value is an object with a string member of that name. Of two members of
    /// one name the first counts.
    pub(crate) fn has_string(&self, name: &str) -> bool {
        let mut tokens = JsonTokens::of(&self.0);
        if tokens.next().map(|token| token.kind) != Some(TokenKind::Object) {
            return false;
        }
        while let Some(key) = tokens.next().filter(|key| key.kind == TokenKind::Key) {
            if tokens.unquoted(key).is_some_and(|key| *key == *name.as_bytes()) {
                return tokens.peek() == Some(b'"');
            }
            tokens.peek();
            tokens.skip_value();
            tokens.next();
        }
        false
    }

    /// Returns the content of a string, without a copy if it has no escapes; `None` for any other
    /// value.
    pub fn said(&self) -> Option<Cow<'_, str>> {
        match self.plain() {
            Some(plain) => Some(Cow::Borrowed(plain)),
            None => self.parse::<String>().ok().map(Cow::Owned),
        }
    }

    /// Parses the value into a type that may borrow from it.
    ///
    /// # Errors
    /// Fails if the value does not have the shape of `T`.
    pub fn parse<'a, T: Deserialize<'a>>(&'a self) -> Result<T, serde_json::Error> {
        serde_json::from_slice(&self.0)
    }

    /// Returns the text, for logs and for values known to be small. Validated JSON is always UTF-8.
    pub fn text(&self) -> Cow<'_, str> {
        String::from_utf8_lossy(&self.0)
    }
}

impl Serialize for RawJson {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        self.parse::<&RawValue>().map_err(serde::ser::Error::custom)?.serialize(serializer)
    }
}

impl<'de> Deserialize<'de> for RawJson {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        Box::<RawValue>::deserialize(deserializer).map(|raw| Self::trusted(String::from(Box::<str>::from(raw))))
    }
}

impl fmt::Debug for RawJson {
    /// Shows the size only: payloads do not belong in logs.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "RawJson({} bytes)", self.0.len())
    }
}

/// A member of an object: its key as written (quotes included) and its value.
#[derive(Clone, PartialEq, Eq)]
struct RawMember {
    key: Bytes,
    /// True if the key has escapes.
    escaped: bool,
    value: RawJson,
}

impl RawMember {
    fn of(name: &str, value: RawJson) -> Self {
        let key = RawJson::string(name).into_bytes();
        // Any escape is longer than its character.
        Self { escaped: key.len() > name.len() + 2, key, value }
    }

    fn is(&self, name: &str) -> bool {
        if self.escaped {
            return unquoted(&self.key).is_some_and(|key| *key == *name.as_bytes());
        }
        self.key.len() == name.len() + 2 && self.key.get(1..=name.len()) == Some(name.as_bytes())
    }
}

/// The members of an object in order, each value as unchanged text. No key occurs twice.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct RawObject {
    members: Vec<RawMember>,
}

impl fmt::Debug for RawObject {
    /// Shows the number of members only: payloads do not belong in logs.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "RawObject({} members)", self.members.len())
    }
}

impl RawObject {
    /// Splits an object into its members; values stay slices of `raw`.
    ///
    /// # Errors
    /// Fails if `raw` is no object, or if a key occurs twice, also in another spelling.
    pub fn parse(raw: &RawJson) -> Result<Self, serde_json::Error> {
        let mut tokens = JsonTokens::of(&raw.0);
        if tokens.next().map(|token| token.kind) != Some(TokenKind::Object) {
            return Err(serde::de::Error::custom("not an object"));
        }
        let mut members: Vec<RawMember> = Vec::with_capacity(MEMBERS);
        // True if any key has escapes: keys are then compared unescaped.
        let mut escaped = false;
        loop {
            let key = match tokens.next() {
                Some(key @ JsonToken { kind: TokenKind::Key, .. }) => key,
                Some(JsonToken { kind: TokenKind::ObjectEnd, .. }) if members.is_empty() => break,
                Some(_) | None => return Err(broken()),
            };
            escaped |= key.escaped;
            if !matches!(tokens.peek(), Some(first) if !matches!(first, b'}' | b']' | b',')) {
                return Err(broken());
            }
            let start = tokens.at();
            tokens.skip_value();
            let value = RawJson(raw.0.slice(start..tokens.at()));
            members.push(RawMember { key: raw.0.slice(key.start..key.end), escaped: key.escaped, value });
            match tokens.next().map(|token| token.kind) {
                Some(TokenKind::Comma) => {}
                Some(TokenKind::ObjectEnd) => break,
                Some(_) | None => return Err(broken()),
            }
        }
        if tokens.peek().is_some() {
            return Err(broken());
        }
        if has_duplicate_keys(&members, escaped)? {
            return Err(serde::de::Error::custom("duplicate key"));
        }
        Ok(Self { members })
    }

    /// Creates an object of these members. The names must be distinct.
    pub fn of<const N: usize>(members: [(&str, RawJson); N]) -> Self {
        Self { members: members.into_iter().map(|(name, value)| RawMember::of(name, value)).collect() }
    }

    /// Creates an object of string members. The names must be distinct.
    pub fn of_strings(members: &[(&str, &str)]) -> Self {
        let member = |(name, text): &(&str, &str)| RawMember::of(name, RawJson::string(text));
        Self { members: members.iter().map(member).collect() }
    }

    pub fn get(&self, name: &str) -> Option<&RawJson> {
        self.members.iter().find(|member| member.is(name)).map(|member| &member.value)
    }

    /// Returns a string member, unescaped.
    pub fn string(&self, name: &str) -> Option<String> {
        self.said(name).map(Cow::into_owned)
    }

    /// Returns a string member, borrowed if it has no escapes.
    pub fn said(&self, name: &str) -> Option<Cow<'_, str>> {
        self.get(name)?.said()
    }

    /// Returns a member that is an object.
    pub fn object(&self, name: &str) -> Option<Self> {
        Self::parse(self.get(name)?).ok()
    }

    /// Returns the elements of a member that is an array.
    pub fn list(&self, name: &str) -> Option<Vec<RawJson>> {
        elements(self.get(name)?).ok()
    }

    pub fn is_true(&self, name: &str) -> bool {
        self.get(name).is_some_and(|value| *value.0 == *b"true")
    }

    pub(crate) fn has_null_member(&self) -> bool {
        self.members.iter().any(|member| member.value.is_null())
    }

    pub fn remove(&mut self, name: &str) -> Option<RawJson> {
        let at = self.members.iter().position(|member| member.is(name))?;
        Some(self.members.remove(at).value)
    }

    /// Appends a member whose key the object does not have yet. `quoted` is the key with its
    /// quotes, without escapes.
    pub(crate) fn append(&mut self, quoted: &'static str, value: RawJson) {
        self.members.push(RawMember { key: Bytes::from_static(quoted.as_bytes()), escaped: false, value });
    }

    /// Replaces a member in place, or appends it.
    pub fn set(&mut self, name: &str, value: RawJson) {
        if let Some(member) = self.members.iter_mut().find(|member| member.is(name)) {
            member.value = value;
        } else {
            self.members.push(RawMember::of(name, value));
        }
    }

    /// Sets a member if there is a value; `None` changes nothing.
    pub fn set_some(&mut self, name: &str, value: Option<RawJson>) {
        if let Some(value) = value {
            self.set(name, value);
        }
    }

    /// Returns the length of all keys and values in bytes.
    pub fn bytes(&self) -> usize {
        self.members.iter().map(|member| member.key.len() + member.value.bytes().len()).sum()
    }

    pub fn is_empty(&self) -> bool {
        self.members.is_empty()
    }

    /// Returns the number of members.
    pub fn len(&self) -> usize {
        self.members.len()
    }

    /// Returns the members with unescaped keys, sorted by the bytes of the keys.
    ///
    /// # Errors
    /// Fails if the escapes of a key form no text.
    pub(crate) fn into_sorted(self) -> Result<Vec<(String, RawJson)>, serde_json::Error> {
        let mut members = Vec::with_capacity(self.members.len());
        for RawMember { key, value, .. } in self.members {
            members.push((unescaped(&key).ok_or_else(no_text)?.into_owned(), value));
        }
        members.sort_unstable_by(|(a, _), (b, _)| a.cmp(b));
        Ok(members)
    }

    /// Replaces every value in place.
    ///
    /// # Errors
    /// The first error of `change`.
    pub(crate) fn try_map<E>(&mut self, mut change: impl FnMut(&RawJson) -> Result<RawJson, E>) -> Result<(), E> {
        for member in &mut self.members {
            member.value = change(&member.value)?;
        }
        Ok(())
    }

    /// Keeps the members whose unescaped name the test accepts. A member whose name is not valid
    /// text is removed.
    pub fn retain(&mut self, mut keep: impl FnMut(&str) -> bool) {
        self.members.retain(|m| unquoted(&m.key).is_some_and(|key| std::str::from_utf8(&key).is_ok_and(&mut keep)));
    }

    /// Appends the members whose name the test accepts to an object in `out` that begins at `start`
    /// and is not closed. The first member also writes the opening bracket.
    pub(crate) fn write_kept(&self, out: &mut Vec<u8>, start: usize, mut keep: impl FnMut(&str) -> bool) {
        for RawMember { key, value, .. } in &self.members {
            let name = unquoted(key);
            if name.is_some_and(|name| std::str::from_utf8(&name).is_ok_and(&mut keep)) {
                out.push(if out.len() == start { b'{' } else { b',' });
                out.extend_from_slice(key);
                out.push(b':');
                out.extend_from_slice(&value.0);
            }
        }
    }

    /// Returns the exact length of the encoded text, so that no spare memory is allocated for it.
    pub(crate) fn encoded_len(&self) -> usize {
        let members = self.members.iter().map(|m| m.key.len() + m.value.0.len() + 1).sum::<usize>();
        2 + members + self.members.len().saturating_sub(1)
    }

    /// Appends the object's text to `out`.
    pub(crate) fn write_to(&self, out: &mut Vec<u8>) {
        out.push(b'{');
        for (n, member) in self.members.iter().enumerate() {
            if n > 0 {
                out.push(b',');
            }
            out.extend_from_slice(&member.key);
            out.push(b':');
            out.extend_from_slice(&member.value.0);
        }
        out.push(b'}');
    }

    pub fn encode(&self) -> RawJson {
        let mut out = Vec::with_capacity(self.encoded_len());
        self.write_to(&mut out);
        RawJson(out.into())
    }
}

/// The key and value texts of an object, borrowed.
struct RawPairs<'a>(Vec<(&'a RawValue, &'a RawValue)>);

impl<'de: 'a, 'a> Deserialize<'de> for RawPairs<'a> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct PairsVisitor;
        impl<'de> Visitor<'de> for PairsVisitor {
            type Value = RawPairs<'de>;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an object")
            }
            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
                let mut pairs = Vec::new();
                while let Some(pair) = map.next_entry::<&'de RawValue, &'de RawValue>()? {
                    pairs.push(pair);
                }
                Ok(RawPairs(pairs))
            }
        }
        deserializer.deserialize_map(PairsVisitor)
    }
}

/// Creates the error for text that is no JSON or is incomplete.
fn broken() -> serde_json::Error {
    serde::de::Error::custom("not JSON")
}

pub(in crate::wire) fn no_text() -> serde_json::Error {
    serde::de::Error::custom("a key is no text")
}

/// Returns the members of an object in order, keys unescaped. Duplicate keys are not refused.
///
/// # Errors
/// Fails if it is no object, or if the escapes of a key form no text.
pub(in crate::wire) fn members(object: &str) -> Result<Vec<(Cow<'_, str>, &str)>, serde_json::Error> {
    let RawPairs(pairs) = serde_json::from_str(object)?;
    let pairs = pairs.into_iter().map(|(key, value)| (unescaped(key.get().as_bytes()), value.get()));
    pairs.map(|(key, value)| Ok((key.ok_or_else(no_text)?, value))).collect()
}

/// Reports whether a key occurs twice, also in another spelling. `escaped`: some key has escapes.
fn has_duplicate_keys(members: &[RawMember], escaped: bool) -> Result<bool, serde_json::Error> {
    if !escaped && members.len() <= FEW {
        let mut before = members.iter().enumerate();
        return Ok(before.any(|(n, member)| members.iter().take(n).any(|other| other.key == member.key)));
    }
    let mut keys = Vec::with_capacity(members.len());
    for member in members {
        keys.push(unquoted(&member.key).ok_or_else(no_text)?);
    }
    Ok(has_duplicates(&mut keys))
}

/// Reports whether two of the keys are equal; may sort them. A few keys are compared pairwise,
/// which is fastest; many must not cost the square of their number.
pub(in crate::wire) fn has_duplicates<T: Ord>(keys: &mut [T]) -> bool {
    if keys.len() <= FEW {
        return keys.iter().enumerate().any(|(n, key)| keys.iter().take(n).any(|other| other == key));
    }
    keys.sort_unstable();
    keys.windows(2).any(|pair| matches!(pair, [a, b] if a == b))
}

/// Returns the elements of an array, each as unchanged text.
///
/// # Errors
/// Fails if `raw` is no array.
pub fn elements(raw: &RawJson) -> Result<Vec<RawJson>, serde_json::Error> {
    let parts: Vec<&RawValue> = raw.parse()?;
    Ok(parts.into_iter().map(|part| RawJson::slice_of(&raw.0, part)).collect())
}

#[cfg(test)]
mod tests;
