//! Settles order that means nothing: the order of the lists `required`, `type` and `enum` of a
//! schema, and of the comma-separated words of a textual `default`. Servers that write these from
//! sets change the order at every start.
//!
//! A name counts as a keyword by its position: not as the name of a property, nor inside `default`,
//! `const`, `enum` or `examples`. `enum` keeps its order beside `enumNames`, and beside another
//! list of equal length, which may describe its values one by one.

use std::borrow::Cow;
use std::collections::HashMap;

use crate::wire::canonical::canonicalize;
use crate::wire::digest::Digest;
use crate::wire::json::raw::RawJson;
use crate::wire::json::tokens::{JsonToken, JsonTokens, TokenKind};

/// Keywords whose value is a schema.
const SCHEMA: [&[u8]; 12] = [
    b"additionalItems",
    b"additionalProperties",
    b"contains",
    b"contentSchema",
    b"else",
    b"if",
    b"items",
    b"not",
    b"propertyNames",
    b"then",
    b"unevaluatedItems",
    b"unevaluatedProperties",
];
/// Keywords whose value is a list of schemas.
const SCHEMA_LIST: [&[u8]; 5] = [b"allOf", b"anyOf", b"items", b"oneOf", b"prefixItems"];
/// Keywords whose value is an object of schemas.
const SCHEMAS: [&[u8]; 6] =
    [b"$defs", b"definitions", b"dependencies", b"dependentSchemas", b"patternProperties", b"properties"];

/// The role of a value in a definition, given by its position.
#[derive(Clone, Copy, PartialEq, Eq)]
enum SchemaRole {
    /// A tool's definition.
    Definition,
    Schema,
    /// An object of schemas.
    Schemas,
    SchemaList,
    /// The list of `required`, `type` or `enum`.
    Loose,
    /// Anything else; no name in it is a keyword.
    Value,
}

/// The range of a part in the text, in bytes.
#[derive(Clone, Copy, PartialEq, Eq)]
struct PartRange {
    start: usize,
    end: usize,
}

/// A list whose order means nothing.
struct UnorderedList<'t> {
    /// A digest of the path that leads to the list; `None` if the caller needs no paths.
    place: Option<Digest>,
    parts: Vec<PartRange>,
    /// For each part, a text that is equal for equal values.
    keys: Vec<Cow<'t, [u8]>>,
}

/// An object or array that is being read.
struct OpenSchemaNode<'t> {
    role: SchemaRole,
    is_object: bool,
    start: usize,
    /// A digest of the path to it.
    place: Option<Digest>,
    /// The key of the member that is being read.
    key: Cow<'t, [u8]>,
    /// The number of values that an array has so far.
    values: usize,
    /// The parts of a loose array.
    parts: Vec<PartRange>,
    members: SchemaMembers<'t>,
}

/// A keyword with its list: the path and the parts of the list.
type UnorderedKeyword<'t> = (Cow<'t, [u8]>, Option<Digest>, Vec<PartRange>);

/// The members of a schema that matter for its order.
#[derive(Default)]
struct SchemaMembers<'t> {
    loose: Vec<UnorderedKeyword<'t>>,
    default: Option<(Option<Digest>, PartRange)>,
    /// The lengths of all its lists.
    lengths: Vec<usize>,
    has_enum_names: bool,
}

impl<'t> OpenSchemaNode<'t> {
    fn new(role: SchemaRole, is_object: bool, start: usize, place: Option<Digest>) -> Self {
        let (key, members) = (Cow::Borrowed(&b""[..]), SchemaMembers::default());
        Self { role, is_object, start, place, key, values: 0, parts: Vec::new(), members }
    }

    /// Returns the digest of the path to the value that is being read.
    fn inner_place(&self) -> Option<Digest> {
        let own = self.place?;
        let number = self.values.to_le_bytes();
        let parts: [&[u8]; 3] =
            if self.is_object { [own.bytes(), b".", &self.key] } else { [own.bytes(), b"#", &number] };
        Some(Digest::of_parts(&parts))
    }

    /// Creates the container that opens in this one, with its role.
    fn child(&mut self, is_object: bool, start: usize) -> Self {
        let has = |names: &[&[u8]]| names.contains(&&*self.key);
        let role = match (self.role, is_object) {
            (SchemaRole::Definition, true) if has(&[b"inputSchema", b"outputSchema"]) => SchemaRole::Schema,
            (SchemaRole::Schemas | SchemaRole::SchemaList, true) => SchemaRole::Schema,
            (SchemaRole::Schema, true) if has(&SCHEMA) => SchemaRole::Schema,
            (SchemaRole::Schema, true) if has(&SCHEMAS) => SchemaRole::Schemas,
            (SchemaRole::Schema, false) if has(&SCHEMA_LIST) => SchemaRole::SchemaList,
            (SchemaRole::Schema, false) if has(&[b"required", b"type", b"enum"]) => SchemaRole::Loose,
            _ => SchemaRole::Value,
        };
        let place = self.inner_place();
        self.values += 1;
        Self::new(role, is_object, start, place)
    }

    /// Takes in a container in this one whose end is at `end`.
    fn close(&mut self, closed: Self, end: usize) {
        if self.role == SchemaRole::Loose {
            self.parts.push(PartRange { start: closed.start, end });
        }
        if self.role == SchemaRole::Schema && !closed.is_object {
            self.members.lengths.push(closed.values);
            if closed.role == SchemaRole::Loose {
                self.members.loose.push((self.key.clone(), closed.place, closed.parts));
            }
        }
    }

    /// Takes in a scalar of this container.
    fn scalar(&mut self, token: JsonToken) {
        let part = PartRange { start: token.start, end: token.end };
        if self.role == SchemaRole::Loose {
            self.parts.push(part);
        }
        if self.role == SchemaRole::Schema && token.kind == TokenKind::String && *self.key == *b"default" {
            self.members.default = Some((self.inner_place(), part));
        }
        self.values += 1;
    }
}

/// Returns the lists of a tool's definition whose order means nothing. `root` is the digest of the
/// empty path; without it no paths are computed.
fn loose_lists(text: &[u8], root: Option<Digest>) -> Vec<UnorderedList<'_>> {
    let mut found = Vec::new();
    let mut open: Vec<OpenSchemaNode<'_>> = Vec::new();
    let mut tokens = JsonTokens::of(text);
    while let Some(token) = tokens.next() {
        match token.kind {
            TokenKind::Comma => {}
            TokenKind::Object | TokenKind::Array => {
                let is_object = token.kind == TokenKind::Object;
                let inner = match open.last_mut() {
                    Some(outer) => outer.child(is_object, token.start),
                    None => OpenSchemaNode::new(SchemaRole::Definition, is_object, token.start, root),
                };
                open.push(inner);
            }
            TokenKind::ObjectEnd | TokenKind::ArrayEnd => {
                let Some(mut closed) = open.pop() else { break };
                collect_lists(text, std::mem::take(&mut closed.members), &mut found);
                if let Some(outer) = open.last_mut() {
                    outer.close(closed, token.end);
                }
            }
            TokenKind::Key => {
                if let Some(outer) = open.last_mut() {
                    outer.key = tokens.unquoted(token).unwrap_or_default();
                    outer.members.has_enum_names |= *outer.key == *b"enumNames";
                }
            }
            TokenKind::String | TokenKind::Scalar => {
                if let Some(outer) = open.last_mut() {
                    outer.scalar(token);
                }
            }
        }
    }
    found
}

/// Adds the loose lists of one schema whose members are all known.
fn collect_lists<'t>(text: &'t [u8], members: SchemaMembers<'t>, found: &mut Vec<UnorderedList<'t>>) {
    let SchemaMembers { loose, default, lengths, has_enum_names } = members;
    let at = |part: &PartRange| text.get(part.start..part.end).unwrap_or_default();
    for (key, place, parts) in loose {
        let is_free = if *key == *b"enum" {
            // The list itself has that length.
            !has_enum_names && lengths.iter().filter(|length| **length == parts.len()).count() == 1
        } else {
            parts.iter().all(|part| at(part).first() == Some(&b'"'))
        };
        if parts.len() > 1 && is_free {
            let keys = parts.iter().map(|part| comparison_key(at(part))).collect();
            found.push(UnorderedList { place, parts, keys });
        }
    }
    if let Some((place, part)) = default
        && let Some(parts) = words(at(&part), part.start)
    {
        let keys = parts.iter().map(|part| Cow::Borrowed(at(part))).collect();
        found.push(UnorderedList { place, parts, keys });
    }
}

/// Returns a text that is equal for equal values.
fn comparison_key(value: &[u8]) -> Cow<'_, [u8]> {
    if value.first() == Some(&b'"') && memchr::memchr(b'\\', value).is_none() {
        return Cow::Borrowed(value);
    }
    canonicalize(&RawJson::trusted(value.to_vec())).map_or(Cow::Borrowed(value), |text| Cow::Owned(text.into_owned()))
}

/// Returns the words of a string literal that begins at `start`; `None` unless it is only words and
/// commas. Spaces beside a comma are part of no word, and stay in place.
fn words(literal: &[u8], start: usize) -> Option<Vec<PartRange>> {
    let text = literal.strip_prefix(b"\"")?.strip_suffix(b"\"")?;
    // Positions in a text with escapes are not known.
    let text = std::str::from_utf8(text).ok().filter(|text| text.contains(',') && !text.contains('\\'))?;
    let mut parts = Vec::new();
    let mut at = start + 1;
    for piece in text.split(',') {
        let word = piece.trim_matches(' ');
        if word.is_empty() || word.contains(|c: char| c.is_whitespace() || c.is_control()) {
            return None;
        }
        let before = piece.len() - piece.trim_start_matches(' ').len();
        parts.push(PartRange { start: at + before, end: at + before + word.len() });
        at += piece.len() + 1;
    }
    Some(parts)
}

/// Writes a text in which the first part of each edit is replaced by the second, a part of the same
/// text.
fn replace_parts(text: &[u8], mut edits: Vec<(PartRange, PartRange)>) -> RawJson {
    edits.sort_unstable_by_key(|(place, _)| place.start);
    let mut out = Vec::with_capacity(text.len());
    let mut copied = 0;
    for (place, part) in edits {
        out.extend_from_slice(text.get(copied..place.start).unwrap_or_default());
        out.extend_from_slice(text.get(part.start..part.end).unwrap_or_default());
        copied = place.end;
    }
    out.extend_from_slice(text.get(copied..).unwrap_or_default());
    RawJson::trusted(out)
}

/// Returns the definition with its loose lists sorted, so that all orders give one text. The digest
/// is taken of it.
pub(super) fn sort_unordered_lists(definition: &RawJson) -> Cow<'_, RawJson> {
    let mut edits = Vec::new();
    for UnorderedList { parts, keys, .. } in loose_lists(definition.bytes(), None) {
        let mut sorted: Vec<_> = keys.iter().zip(&parts).collect();
        sorted.sort_by_key(|(key, _)| *key);
        let sorted = sorted.into_iter().map(|(_, part)| *part);
        edits.extend(parts.iter().copied().zip(sorted).filter(|(place, part)| place != part));
    }
    if edits.is_empty() { Cow::Borrowed(definition) } else { Cow::Owned(replace_parts(definition.bytes(), edits)) }
}

/// Returns the definition with its loose lists in the order of `like`, another text of it; `None`
/// if they have it. Everything else keeps its bytes.
pub(super) fn arrange_like(definition: &RawJson, like: &RawJson) -> Option<RawJson> {
    let root = Some(Digest::of(b""));
    let wanted: HashMap<Option<Digest>, Vec<Cow<'_, [u8]>>> =
        loose_lists(like.bytes(), root).into_iter().map(|list| (list.place, list.keys)).collect();
    let mut edits = Vec::new();
    for UnorderedList { place, parts, keys } in loose_lists(definition.bytes(), root) {
        let Some(wanted) = wanted.get(&place).filter(|wanted| wanted.len() == keys.len() && **wanted != keys) else {
            continue;
        };
        let mut left: HashMap<&[u8], Vec<PartRange>> = HashMap::new();
        for (key, part) in keys.iter().zip(&parts).rev() {
            left.entry(&**key).or_default().push(*part);
        }
        let row: Option<Vec<PartRange>> = wanted.iter().map(|key| left.get_mut(&**key)?.pop()).collect();
        let row = row.unwrap_or_default();
        edits.extend(parts.iter().copied().zip(row).filter(|(place, part)| place != part));
    }
    (!edits.is_empty()).then(|| replace_parts(definition.bytes(), edits))
}

#[cfg(test)]
mod tests;
