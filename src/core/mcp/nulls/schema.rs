//! Generates values with a `null` for each optional member in the official schemas.

use std::collections::BTreeSet;

use serde_json::Value;

/// The official schema of every revision.
const SCHEMAS: [&str; 5] = [
    include_str!("../../../../tests/data/schema/2024-11-05.json"),
    include_str!("../../../../tests/data/schema/2025-03-26.json"),
    include_str!("../../../../tests/data/schema/2025-06-18.json"),
    include_str!("../../../../tests/data/schema/2025-11-25.json"),
    include_str!("../../../../tests/data/schema/2026-07-28.json"),
];

/// A position: the JSON pointer of an object, and the name of an optional member that it lacks.
type NullPosition = (String, String);

/// Returns copies of the value with one `null` more, one for each optional member that the type of
/// that name has in any revision, and at last a copy with all of them.
///
/// # Panics
/// If no revision knows the type.
pub(crate) fn with_nulls(name: &str, value: &Value) -> Vec<(String, Value)> {
    let mut places = BTreeSet::new();
    for text in SCHEMAS {
        let document: Value = serde_json::from_str(text).unwrap();
        let types = document.get("$defs").or_else(|| document.get("definitions")).unwrap();
        if let Some(schema) = types.get(name) {
            (SchemaTypes { types }).walk(schema, value, "", &mut places);
        }
    }
    assert!(!places.is_empty(), "{name}");
    let with = |places: &[&NullPosition]| {
        let mut value = value.clone();
        for (at, member) in places {
            value.pointer_mut(at).unwrap()[member] = Value::Null;
        }
        value
    };
    let mut all: Vec<(String, Value)> =
        places.iter().map(|place| (format!("{name}{}/{}", place.0, place.1), with(&[place]))).collect();
    all.push((format!("{name}, all"), with(&places.iter().collect::<Vec<_>>())));
    all
}

struct SchemaTypes<'a> {
    types: &'a Value,
}

impl<'a> SchemaTypes<'a> {
    fn resolved(&self, schema: &'a Value) -> &'a Value {
        match schema.get("$ref").and_then(Value::as_str) {
            Some(reference) => self.resolved(&self.types[reference.rsplit('/').next().unwrap()]),
            None => schema,
        }
    }

    fn walk(&self, schema: &'a Value, value: &Value, at: &str, places: &mut BTreeSet<NullPosition>) {
        let schema = self.resolved(schema);
        let list = |name: &str| schema.get(name).and_then(Value::as_array).into_iter().flatten();
        for one in list("anyOf").chain(list("oneOf")).filter(|one| self.fits(one, value)) {
            self.walk(one, value, at, places);
        }
        list("allOf").for_each(|one| self.walk(one, value, at, places));
        if let (Some(items), Some(elements)) = (schema.get("items"), value.as_array()) {
            let each = elements.iter().enumerate();
            each.for_each(|(n, element)| self.walk(items, element, &format!("{at}/{n}"), places));
        }
        let Some(object) = value.as_object() else { return };
        let properties = schema.get("properties").and_then(Value::as_object);
        let required: Vec<&str> = list("required").filter_map(Value::as_str).collect();
        for (name, property) in properties.into_iter().flatten() {
            match object.get(name) {
                Some(member) => self.walk(property, member, &format!("{at}/{}", name.replace('/', "~1")), places),
                None if required.contains(&name.as_str()) || self.takes_null(property) => {}
                None => drop(places.insert((at.to_owned(), name.clone()))),
            }
        }
        let Some(others) = schema.get("additionalProperties") else { return };
        let is_other = |name: &str| properties.is_none_or(|known| !known.contains_key(name));
        for (name, member) in object.iter().filter(|(name, _)| is_other(name)) {
            self.walk(others, member, &format!("{at}/{}", name.replace('/', "~1")), places);
        }
    }

    /// Reports whether a value fits an alternative, as far as constants and required members tell.
    fn fits(&self, schema: &'a Value, value: &Value) -> bool {
        let schema = self.resolved(schema);
        if let Some(alternatives) = schema.get("anyOf").and_then(Value::as_array) {
            return alternatives.iter().any(|one| self.fits(one, value));
        }
        let Some(object) = value.as_object() else { return value.is_array() == (schema["type"] == "array") };
        let has = |name: &Value| object.contains_key(name.as_str().unwrap());
        let is_whole = schema.get("required").and_then(Value::as_array).is_none_or(|names| names.iter().all(has));
        let constants = schema.get("properties").and_then(Value::as_object).into_iter().flatten();
        let is_said = |(name, property): (&String, &Value)| {
            let constant = property.get("const");
            constant.is_none_or(|constant| object.get(name).is_none_or(|said| said == constant))
        };
        is_whole && constants.into_iter().all(is_said)
    }

    fn takes_null(&self, schema: &'a Value) -> bool {
        let schema = self.resolved(schema);
        let takes =
            |kind: &Value| kind == "null" || kind.as_array().is_some_and(|kinds| kinds.contains(&"null".into()));
        let says_type =
            ["type", "anyOf", "oneOf", "allOf", "enum", "const"].iter().any(|name| schema.get(name).is_some());
        !says_type || schema.get("type").is_some_and(takes)
    }
}
