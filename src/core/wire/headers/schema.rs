//! Finds the `x-mcp-header` annotations of an input schema and validates them.
//!
//! Only the parts of the schema that can hold an annotation are parsed. Under `properties` a key is
//! the name of a property, never a keyword, and values such as `default` are data. Subschemas that
//! are not reached through `properties` alone must hold no annotation.

use std::borrow::Cow;

use memchr::memmem;
use serde_json::value::RawValue;

use super::error::HeaderError;
use crate::wire::json::raw;
use crate::wire::json::raw::has_duplicates;
use crate::wire::json::tokens::{has_escaped_ascii, unescaped};

const KEYWORD: &str = "x-mcp-header";

/// The deepest nesting of subschemas that is followed. A deeper subschema without an annotation is
/// accepted.
const MAX_DEPTH: usize = 64;

/// The limit of mirrored arguments per tool. Not in the specification: peers commonly refuse
/// requests with more than 100 headers.
const MAX_PARAMS: usize = 64;

/// An argument that its tool wants mirrored in a header.
pub(super) struct HeaderAnnotation {
    /// The header name without `Mcp-Param-`.
    pub(super) name: String,
    /// Property names from the arguments down to the value; never empty.
    pub(super) path: Vec<String>,
}

/// Returns the annotations of `input_schema`, in its order.
pub(super) fn annotations(input_schema: &str) -> Result<Vec<HeaderAnnotation>, HeaderError> {
    let mut walk = AnnotationWalk { found: Vec::new(), path: Vec::new() };
    walk.schema(input_schema.trim_ascii(), SubschemaPath::Root, 0)?;
    Ok(walk.found)
}

/// The way by which a subschema was reached.
#[derive(Clone, Copy, PartialEq, Eq)]
enum SubschemaPath {
    Root,
    /// Through `properties` only, so that a header can mirror its value.
    Property,
    Elsewhere,
}

/// The state of a walk over a schema.
struct AnnotationWalk {
    found: Vec<HeaderAnnotation>,
    /// The names of the properties from the root to the current subschema.
    path: Vec<String>,
}

impl AnnotationWalk {
    /// Walks one subschema; `place` is the way by which it was reached.
    fn schema(&mut self, json: &str, place: SubschemaPath, depth: usize) -> Result<(), HeaderError> {
        if !may_annotate(json) {
            return Ok(());
        }
        if depth > MAX_DEPTH {
            return Err(HeaderError::Depth { limit: MAX_DEPTH });
        }
        if json.starts_with('[') {
            let items: Vec<&RawValue> = serde_json::from_str(json).map_err(|_| HeaderError::Schema)?;
            return items.iter().try_for_each(|item| self.schema(item.get(), SubschemaPath::Elsewhere, depth + 1));
        }
        if !json.starts_with('{') {
            return Ok(());
        }
        let mut annotation = None;
        let mut kind = None;
        for (key, value) in members(json)? {
            match key.as_ref() {
                KEYWORD => annotation = Some(value),
                "type" => kind = Some(value),
                "properties" => self.properties(value, place, depth)?,
                // Keys are names here too, but a value below is not reachable.
                "patternProperties" | "$defs" | "definitions" | "dependentSchemas" | "dependencies" => {
                    self.properties(value, SubschemaPath::Elsewhere, depth)?;
                }
                // Data, not schemas.
                "default" | "const" | "enum" | "examples" => {}
                _ => self.schema(value, SubschemaPath::Elsewhere, depth + 1)?,
            }
        }
        annotation.map_or(Ok(()), |annotation| self.annotation(annotation, kind, place))
    }

    /// Walks an object that maps names to subschemas.
    fn properties(&mut self, json: &str, place: SubschemaPath, depth: usize) -> Result<(), HeaderError> {
        if !may_annotate(json) {
            return Ok(());
        }
        if !json.starts_with('{') {
            return self.schema(json, SubschemaPath::Elsewhere, depth + 1);
        }
        for (name, subschema) in members(json)? {
            if place == SubschemaPath::Elsewhere {
                self.schema(subschema, place, depth + 1)?;
            } else {
                self.path.push(name.into_owned());
                self.schema(subschema, SubschemaPath::Property, depth + 1)?;
                self.path.pop();
            }
        }
        Ok(())
    }

    /// Validates one annotation and stores it.
    fn annotation(&mut self, json: &str, kind: Option<&str>, place: SubschemaPath) -> Result<(), HeaderError> {
        if place != SubschemaPath::Property {
            return Err(HeaderError::Unreachable);
        }
        let name = unescaped(json.as_bytes()).filter(|name| is_token(name)).ok_or(HeaderError::Name)?;
        let kind = kind.and_then(|kind| unescaped(kind.as_bytes()));
        if !matches!(kind.as_deref(), Some("integer" | "string" | "boolean")) {
            return Err(HeaderError::Type);
        }
        if self.found.iter().any(|other| other.name.eq_ignore_ascii_case(&name)) {
            return Err(HeaderError::NameTaken { name: name.into_owned() });
        }
        if self.found.len() == MAX_PARAMS {
            return Err(HeaderError::TooMany { limit: MAX_PARAMS });
        }
        self.found.push(HeaderAnnotation { name: name.into_owned(), path: self.path.clone() });
        Ok(())
    }
}

/// Reports whether `json` can hold the keyword, literally or with one of its characters escaped.
fn may_annotate(json: &str) -> bool {
    memmem::find(json.as_bytes(), KEYWORD.as_bytes()).is_some()
        || has_escaped_ascii(json.as_bytes(), |c| KEYWORD.as_bytes().contains(&c))
}

/// Reports whether a name is a `token`. Source: RFC 9110, 5.6.2.
fn is_token(name: &str) -> bool {
    let is_tchar = |byte: u8| byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&byte);
    !name.is_empty() && name.bytes().all(is_tchar)
}

/// Returns the members of a JSON object; fails if a key occurs twice.
fn members(json: &str) -> Result<Vec<(Cow<'_, str>, &str)>, HeaderError> {
    let members = raw::members(json).map_err(|_| HeaderError::Schema)?;
    let mut keys: Vec<&str> = members.iter().map(|(key, _)| key.as_ref()).collect();
    if has_duplicates(&mut keys) { Err(HeaderError::SchemaKey) } else { Ok(members) }
}

#[cfg(test)]
mod tests;
