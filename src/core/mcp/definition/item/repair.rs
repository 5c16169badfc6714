//! Checks definitions against the official schemas of all revisions and repairs them, since strict
//! clients refuse a whole list for one invalid definition. An invalid optional member is dropped; a
//! definition that stays invalid is withheld.
//!
//! - An invalid optional member, also of `annotations`, of an icon and of an argument, is dropped.
//! - An icon or argument that lacks a required member is dropped from its list.
//! - An invalid `outputSchema` is dropped as a whole.
//! - An `inputSchema` that is absent, `null` or has no `type` gets `"type":"object"`.
//! - `null` as `$schema`, `type`, `properties` or `required` of a schema's root is dropped.
//! - A whole number with a fraction of zero or an exponent is written without it.
//! - `true` or `false` as the schema of an argument becomes `{}` or `{"not":{}}`, which are
//!   equivalent; older revisions accept only objects.
//! - For any other invalid `inputSchema`, an invalid URI, or an invalid `name` of a resource or
//!   template, the item is withheld.
//!
//! A member that revisions describe differently is held to the strictest of them, unless headend
//! translates it.

use time::OffsetDateTime;
use time::format_description::well_known::Rfc3339;
use url::Url;

use crate::mcp::method::ItemList;
use crate::wire::json::raw::{RawJson, RawObject, elements};

/// 2^53: up to here a double holds every integer exactly.
const EXACT: f64 = 9_007_199_254_740_992.0;

/// A member that some revision defines.
struct MemberRule {
    name: &'static str,
    shape: ValueShape,
    required: bool,
}

/// The values of a member that are valid in every revision that defines it.
enum ValueShape {
    Text,
    Boolean,
    WholeNumber,
    /// A number from 0 to 1.
    Share,
    /// A point in time in the format of RFC 3339. The schemas demand a string only, the SDKs the
    /// format.
    Time,
    Word(&'static [&'static str]),
    Texts,
    Words(&'static [&'static str]),
    /// An object with any members.
    Object,
    Members(&'static [MemberRule]),
    /// A list of objects.
    List(&'static [MemberRule]),
}

impl ValueShape {
    /// Describes the valid values, for the operator.
    fn wanted(&self) -> &'static str {
        match self {
            Self::Text => "a text",
            Self::Boolean => "`true` or `false`",
            Self::WholeNumber => "a whole number",
            Self::Share => "a number from 0 to 1",
            Self::Time => "a time with its offset, such as 2025-01-12T15:00:58Z",
            Self::Word(_) => "a word of the protocol",
            Self::Texts => "a list of texts",
            Self::Words(_) => "a list of words of the protocol",
            Self::Object | Self::Members(_) => "an object",
            Self::List(_) => "a list",
        }
    }
}

/// Creates an optional member.
const fn optional_member(name: &'static str, shape: ValueShape) -> MemberRule {
    MemberRule { name, shape, required: false }
}

/// Creates a required member.
const fn required_member(name: &'static str, shape: ValueShape) -> MemberRule {
    MemberRule { name, shape, required: true }
}

const ICONS: ValueShape = ValueShape::List(&[
    required_member("src", ValueShape::Text),
    optional_member("mimeType", ValueShape::Text),
    optional_member("sizes", ValueShape::Texts),
    optional_member("theme", ValueShape::Word(&["dark", "light"])),
]);

const CONTENT_ANNOTATIONS: ValueShape = ValueShape::Members(&[
    optional_member("audience", ValueShape::Words(&["assistant", "user"])),
    optional_member("priority", ValueShape::Share),
    optional_member("lastModified", ValueShape::Time),
]);

/// The members of a tool, except `name`, which is its key, and the schemas, which have rules of
/// their own.
const TOOL: &[MemberRule] = &[
    optional_member("title", ValueShape::Text),
    optional_member("description", ValueShape::Text),
    optional_member(
        "annotations",
        ValueShape::Members(&[
            optional_member("title", ValueShape::Text),
            optional_member("readOnlyHint", ValueShape::Boolean),
            optional_member("destructiveHint", ValueShape::Boolean),
            optional_member("idempotentHint", ValueShape::Boolean),
            optional_member("openWorldHint", ValueShape::Boolean),
        ]),
    ),
    optional_member(
        "execution",
        ValueShape::Members(&[optional_member(
            "taskSupport",
            ValueShape::Word(&["forbidden", "optional", "required"]),
        )]),
    ),
    optional_member("icons", ICONS),
    optional_member("_meta", ValueShape::Object),
];

const PROMPT: &[MemberRule] = &[
    optional_member("title", ValueShape::Text),
    optional_member("description", ValueShape::Text),
    optional_member(
        "arguments",
        ValueShape::List(&[
            required_member("name", ValueShape::Text),
            optional_member("title", ValueShape::Text),
            optional_member("description", ValueShape::Text),
            optional_member("required", ValueShape::Boolean),
        ]),
    ),
    optional_member("icons", ICONS),
    optional_member("_meta", ValueShape::Object),
];

const RESOURCE: &[MemberRule] = &[
    required_member("name", ValueShape::Text),
    optional_member("title", ValueShape::Text),
    optional_member("description", ValueShape::Text),
    optional_member("mimeType", ValueShape::Text),
    optional_member("size", ValueShape::WholeNumber),
    optional_member("annotations", CONTENT_ANNOTATIONS),
    optional_member("icons", ICONS),
    optional_member("_meta", ValueShape::Object),
];

const TEMPLATE: &[MemberRule] = &[
    required_member("name", ValueShape::Text),
    optional_member("title", ValueShape::Text),
    optional_member("description", ValueShape::Text),
    optional_member("mimeType", ValueShape::Text),
    optional_member("annotations", CONTENT_ANNOTATIONS),
    optional_member("icons", ICONS),
    optional_member("_meta", ValueShape::Object),
];

/// Repairs a definition in place, and adds a line to `repairs` for each change; everything else
/// keeps its bytes.
///
/// # Errors
/// The reason why the item is withheld, for the operator.
pub(super) fn repair_definition(
    list: ItemList,
    definition: &mut RawObject,
    repairs: &mut Vec<String>,
) -> Result<(), &'static str> {
    let table = match list {
        ItemList::Tools => TOOL,
        ItemList::Prompts => PROMPT,
        ItemList::Resources => RESOURCE,
        ItemList::Templates => TEMPLATE,
    };
    if !members(definition, table, "", repairs) {
        return Err("its `name` is absent or not a text");
    }
    match list {
        ItemList::Tools => {
            input_schema(definition, repairs)?;
            output_schema(definition, repairs);
        }
        // Clients that parse the URI would refuse the whole list.
        ItemList::Resources if definition.string("uri").is_none_or(|uri| Url::parse(&uri).is_err()) => {
            return Err("its URI is none: it has no scheme or is malformed");
        }
        ItemList::Prompts | ItemList::Resources | ItemList::Templates => {}
    }
    Ok(())
}

/// The verdict on a value: valid, valid after a repair, or invalid.
enum MemberVerdict {
    Valid,
    Repaired(RawJson),
    Invalid,
}

impl MemberVerdict {
    fn when(is_valid: bool) -> Self {
        if is_valid { Self::Valid } else { Self::Invalid }
    }
}

/// Drops the invalid optional members of an object, with a line in `repairs`; returns `false` if a
/// required one is invalid or absent. `path` leads to the object.
fn members(object: &mut RawObject, table: &[MemberRule], path: &str, repairs: &mut Vec<String>) -> bool {
    for MemberRule { name, shape, required } in table {
        let Some(value) = object.get(name) else {
            if *required {
                return false;
            }
            continue;
        };
        let place = || if path.is_empty() { (*name).to_owned() } else { format!("{path}.{name}") };
        match check_value(value, shape, place, repairs) {
            MemberVerdict::Valid => {}
            MemberVerdict::Repaired(value) => object.set(name, value),
            MemberVerdict::Invalid if *required => return false,
            MemberVerdict::Invalid => {
                object.remove(name);
                add_repair(repairs, format!("dropped `{}`, which is not {}", place(), shape.wanted()));
            }
        }
    }
    true
}

/// Checks a value against a shape, and repairs its parts. `place` names the value in `repairs`.
fn check_value(
    value: &RawJson,
    shape: &ValueShape,
    place: impl Fn() -> String,
    repairs: &mut Vec<String>,
) -> MemberVerdict {
    MemberVerdict::when(match shape {
        ValueShape::Text => is_text(value),
        ValueShape::Boolean => matches!(&**value.bytes(), b"true" | b"false"),
        ValueShape::WholeNumber => return whole_number(value, place, repairs),
        ValueShape::Share => number(value).is_some_and(|number| (0.0..=1.0).contains(&number)),
        ValueShape::Time => value.parse::<String>().is_ok_and(|text| is_time(&text)),
        ValueShape::Word(words) => value.parse::<String>().is_ok_and(|text| words.contains(&text.as_str())),
        ValueShape::Texts => value.parse::<Vec<String>>().is_ok(),
        ValueShape::Words(words) => {
            value.parse::<Vec<String>>().is_ok_and(|texts| texts.iter().all(|text| words.contains(&text.as_str())))
        }
        ValueShape::Object => RawObject::parse(value).is_ok(),
        ValueShape::Members(table) => return check_object(value, table, &place(), repairs),
        ValueShape::List(table) => return check_list(value, table, &place(), repairs),
    })
}

/// Checks a whole number, and writes 7.0 as 7: readers with a type for integers refuse the former.
fn whole_number(value: &RawJson, place: impl Fn() -> String, repairs: &mut Vec<String>) -> MemberVerdict {
    let Some(number) = number(value).filter(|number| number.fract() == 0.0) else { return MemberVerdict::Invalid };
    let is_plain = value.bytes().iter().all(|byte| byte.is_ascii_digit() || *byte == b'-');
    if is_plain || number.abs() > EXACT {
        return MemberVerdict::Valid;
    }
    add_repair(repairs, format!("wrote `{}` without a fraction", place()));
    MemberVerdict::Repaired(RawJson::number(number))
}

/// Checks an object against a table of members, and repairs it.
fn check_object(value: &RawJson, table: &[MemberRule], place: &str, repairs: &mut Vec<String>) -> MemberVerdict {
    let Ok(mut object) = RawObject::parse(value) else { return MemberVerdict::Invalid };
    // Kept apart: the repairs of an element that is dropped are not reported.
    let mut own = Vec::new();
    if !members(&mut object, table, place, &mut own) {
        return MemberVerdict::Invalid;
    }
    let is_changed = !own.is_empty();
    own.into_iter().for_each(|line| add_repair(repairs, line));
    if is_changed { MemberVerdict::Repaired(object.encode()) } else { MemberVerdict::Valid }
}

/// Checks each object of a list against a table of members, repairs it, or drops it from the list.
fn check_list(value: &RawJson, table: &[MemberRule], place: &str, repairs: &mut Vec<String>) -> MemberVerdict {
    let Ok(listed) = elements(value) else { return MemberVerdict::Invalid };
    let mut kept = Vec::with_capacity(listed.len());
    let mut is_changed = false;
    for element in listed {
        match check_object(&element, table, place, repairs) {
            MemberVerdict::Valid => kept.push(element),
            MemberVerdict::Repaired(element) => {
                is_changed = true;
                kept.push(element);
            }
            MemberVerdict::Invalid => {
                is_changed = true;
                add_repair(repairs, format!("dropped an element of `{place}` that lacks what it must have"));
            }
        }
    }
    if is_changed { MemberVerdict::Repaired(RawJson::list(kept)) } else { MemberVerdict::Valid }
}

/// Adds a line unless it is there: one line for each kind of repair.
fn add_repair(repairs: &mut Vec<String>, line: String) {
    if !repairs.contains(&line) {
        repairs.push(line);
    }
}

/// Checks and repairs the input schema of a tool.
fn input_schema(definition: &mut RawObject, repairs: &mut Vec<String>) -> Result<(), &'static str> {
    let stated = definition.get("inputSchema").filter(|schema| !schema.is_null());
    let mut schema = match stated.map(RawObject::parse) {
        None => RawObject::default(),
        Some(Ok(schema)) => schema,
        Some(Err(_)) => return Err("its `inputSchema` is not an object"),
    };
    let nulls = drop_nulls(&mut schema, "inputSchema", repairs);
    let has_type = schema.get("type").is_some();
    if has_type && schema.string("type").as_deref() != Some("object") {
        return Err("the `type` of its `inputSchema` is not \"object\"");
    }
    let booleans = check_schema_root(&mut schema).map_err(|fault| match fault {
        SchemaFault::Dialect => "`$schema` of its `inputSchema` is not a text",
        SchemaFault::Properties => "`properties` of its `inputSchema` is not an object of schemas",
        SchemaFault::Required => "`required` of its `inputSchema` is not a list of names",
    })?;
    if !has_type {
        schema.set("type", RawJson::trusted("\"object\""));
        add_repair(repairs, "added the `type` of `inputSchema`, which is \"object\"".to_owned());
    }
    if booleans {
        add_repair(
            repairs,
            "wrote `true` and `false` in `inputSchema.properties` as schemas that are objects".to_owned(),
        );
    }
    if !has_type || booleans || nulls {
        definition.set("inputSchema", schema.encode());
    }
    Ok(())
}

/// Checks and repairs the output schema of a tool, or drops it. The newest revision allows schemas
/// of any type here; older clients get those in a wrapping object.
fn output_schema(definition: &mut RawObject, repairs: &mut Vec<String>) {
    let Some(value) = definition.get("outputSchema") else { return };
    let mended = RawObject::parse(value).ok().and_then(|mut schema| {
        let nulls = drop_nulls(&mut schema, "outputSchema", repairs);
        let is_type = |kind: &RawJson| is_text(kind) || kind.parse::<Vec<String>>().is_ok();
        if !schema.get("type").is_none_or(is_type) {
            return None;
        }
        let booleans = check_schema_root(&mut schema).ok()?;
        if booleans {
            let line = "wrote `true` and `false` in `outputSchema.properties` as schemas that are objects";
            add_repair(repairs, line.to_owned());
        }
        Some((booleans || nulls).then(|| schema.encode()))
    });
    match mended {
        Some(None) => {}
        Some(Some(schema)) => definition.set("outputSchema", schema),
        None => {
            definition.remove("outputSchema");
            add_repair(repairs, "dropped `outputSchema`, which is not a schema".to_owned());
        }
    }
}

/// Drops members of a schema's root that are `null`; returns whether there was one.
fn drop_nulls(schema: &mut RawObject, place: &str, repairs: &mut Vec<String>) -> bool {
    let mut is_changed = false;
    for name in ["$schema", "type", "properties", "required"] {
        if schema.get(name).is_some_and(RawJson::is_null) {
            schema.remove(name);
            add_repair(repairs, format!("dropped `{place}.{name}`, which is `null`"));
            is_changed = true;
        }
    }
    is_changed
}

/// The member of a schema's root that is invalid.
enum SchemaFault {
    Dialect,
    Properties,
    Required,
}

/// Checks the root of a schema except its type, and rewrites schemas of properties that are `true`
/// or `false`. Returns whether any was rewritten.
fn check_schema_root(schema: &mut RawObject) -> Result<bool, SchemaFault> {
    if schema.get("$schema").is_some_and(|dialect| !is_text(dialect)) {
        return Err(SchemaFault::Dialect);
    }
    if let Some(names) = schema.get("required") {
        let names = elements(names).map_err(|_| SchemaFault::Required)?;
        if !names.iter().all(RawJson::is_string) {
            return Err(SchemaFault::Required);
        }
    }
    let Some(properties) = schema.get("properties") else { return Ok(false) };
    let mut properties = RawObject::parse(properties).map_err(|_| SchemaFault::Properties)?;
    let mut is_changed = false;
    properties.try_map(|property| match &**property.bytes() {
        [b'{', ..] => Ok(property.clone()),
        b"true" => {
            is_changed = true;
            Ok(RawJson::EMPTY_OBJECT)
        }
        b"false" => {
            is_changed = true;
            Ok(RawJson::trusted(r#"{"not":{}}"#))
        }
        _ => Err(SchemaFault::Properties),
    })?;
    if is_changed {
        schema.set("properties", properties.encode());
    }
    Ok(is_changed)
}

/// Reports whether a value is a string whose escapes form text; Python refuses others.
fn is_text(value: &RawJson) -> bool {
    value.is_string() && value.parse::<String>().is_ok()
}

fn number(value: &RawJson) -> Option<f64> {
    value.parse::<f64>().ok().filter(|number| number.is_finite())
}

/// Reports whether a text is a time that the SDKs can parse.
fn is_time(text: &str) -> bool {
    // The format allows small letters and leap seconds; the SDKs accept neither.
    let is_plain = text.get(10..11) == Some("T") && !text.ends_with('z') && text.get(17..19) != Some("60");
    is_plain && OffsetDateTime::parse(text, &Rfc3339).is_ok()
}

#[cfg(test)]
mod tests;
