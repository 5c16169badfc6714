//! Checks the form of an elicitation: its fields, their choices and their texts.

use std::borrow::Cow;

use super::secret;
use super::text::{line, lines};
use crate::mcp::asking::input_error::InputError;
use crate::mcp::lookalike::reads_as;
use crate::wire::foreign;
use crate::wire::json::raw::{RawJson, RawObject, elements};
use crate::wire::json::strings::{StringPosition, rewritten};
use crate::wire::json::tokens::unescaped;

/// The name of the only field in headend's own approval form, and its values.
pub const DECISION: &str = "decision";
pub const DENY: &str = "deny";
pub const ONCE: &str = "once";
pub const SESSION: &str = "session";
/// The title of that field, and the title of the value that allows one call.
pub const ALLOW_TITLE: &str = "Allow this call?";
pub const YES_ONCE: &str = "Yes, once";
/// The console's label for that value; earlier releases used it in the form too.
const ALLOW_ONCE: &str = "Allow once";

/// The limit in characters for a title, the name of a field, and a choice (its value and its
/// title).
const MAX_TITLE: usize = 200;
/// The limits in lines and in characters for a description.
const MAX_DESCRIPTION: (usize, usize) = (8, 1000);
/// The limit in characters for any other text: a default, a pattern.
const MAX_OTHER: usize = 4096;
/// The limit of fields in a form.
const MAX_FIELDS: usize = 64;

/// The members of a form that reach a client: the ones that are checked here. The protocol names no
/// others. Source: MCP 2025-06-18, 2025-11-25 and 2026-07-28, schema, `ElicitRequestFormParams` and
/// `PrimitiveSchemaDefinition`.
const FORM: &[&str] = &["$schema", "type", "properties", "required", "title", "description"];
/// The members of a field that reach a client.
#[rustfmt::skip]
const FIELD: &[&str] = &[
    "type", "title", "description", "format", "minLength", "maxLength", "pattern", "minimum", "maximum", "minItems", "maxItems",
    "default", "enum", "enumNames", "oneOf", "anyOf", "items",
];
/// The members of a field's `items` that reach a client.
const ITEMS: &[&str] = &["type", "enum", "oneOf", "anyOf"];
/// The members of a choice that reach a client. Some servers write the type beside a constant.
const CHOICE: &[&str] = &["const", "title", "type"];
/// Members that include fields from elsewhere. A form has another meaning without them, so they are
/// refused, not removed.
const ELSEWHERE: [&str; 3] = ["$ref", "$dynamicRef", "allOf"];
/// Members that list the values of a choice. With several of them, clients differ on which one they
/// read.
const LISTS: [&str; 3] = ["enum", "oneOf", "anyOf"];
/// Members whose value is a string.
const TEXTS: [&str; 5] = ["$schema", "title", "description", "format", "pattern"];

/// Checks the schema of a form; returns it with its texts escaped and cut, and without unchecked
/// members.
///
/// # Errors
/// [`InputError`]: the form copies headend's own, asks for a secret, is malformed, or has text that
/// cannot be shown as it is.
pub(super) fn check_form(schema: &RawJson, message: &str, secrets: bool) -> Result<RawJson, InputError> {
    judge(schema, message, secrets)?;
    let schema = retain_checked_members(schema)?;
    rewritten(&schema, &mut escape_string).map(Cow::into_owned).map_err(|_| InputError::Unreadable)
}

/// Returns a string of the schema as people see it; `None` if it stays as it is. Fails for a string
/// that must not be changed and cannot be shown.
fn escape_string(key: &[u8], string: StringPosition<'_>) -> Result<Option<String>, String> {
    let text = |literal| unescaped(literal).ok_or_else(|| "half of a surrogate pair".to_owned());
    let (key, text) = (text(key)?, text(string.literal)?);
    match &*key {
        "title" if string.follows_key => Ok(escape_title(&text)),
        "enumNames" if !string.is_key => Ok(escape_title(&text)),
        "description" if string.follows_key => {
            let (rows, chars) = MAX_DESCRIPTION;
            let shown = lines(&text, rows, chars);
            Ok((shown != text).then_some(shown))
        }
        _ => {
            // Names and values go back to the server unchanged, so people have to see them
            // unchanged. The default of a text field may have several lines.
            let breaks = text.contains(['\n', '\t']) && (string.is_key || key != "default");
            if breaks || foreign::count_hidden(&text) > 0 {
                return Err("hidden characters".to_owned());
            }
            if is_longer(&text, MAX_OTHER) { Err("too long".to_owned()) } else { Ok(None) }
        }
    }
}

/// Returns a title as people see it; `None` if it stays as it is.
fn escape_title(text: &str) -> Option<String> {
    let shown = line(text, MAX_TITLE);
    (shown != text).then_some(shown)
}

/// Reports whether a text has more than `chars` characters.
fn is_longer(text: &str, chars: usize) -> bool {
    text.chars().nth(chars).is_some()
}

/// The properties of a field that the checks need.
struct FormField {
    /// The format of the field, and of its items.
    formats: [Option<String>; 2],
    title: Option<String>,
    description: Option<String>,
    /// True if a person writes the value: a text or a number.
    is_open: bool,
    /// The values of a choice, each with the text that people see.
    choices: Option<Vec<(String, String)>>,
}

fn object(raw: &RawJson) -> Result<RawObject, InputError> {
    RawObject::parse(raw).map_err(|_| InputError::Malformed)
}

/// Checks a form for imitation of headend's own and for secrets; `secrets` allows the latter.
fn judge(schema: &RawJson, message: &str, secrets: bool) -> Result<(), InputError> {
    let form = object(schema)?;
    let texts = [Some(message.to_owned()), form.string("title"), form.string("description")];
    if texts.iter().skip(1).flatten().any(|text| reads_as(text, ALLOW_TITLE)) {
        return Err(InputError::Imitates);
    }
    let Some(properties) = form.get("properties").cloned() else { return Ok(()) };
    let fields = object(&properties)?.into_sorted().map_err(|_| InputError::Malformed)?;
    if fields.len() > MAX_FIELDS || fields.iter().any(|(name, _)| is_longer(name, MAX_TITLE)) {
        return Err(InputError::Malformed);
    }
    let fields: Vec<(String, FormField)> = fields
        .into_iter()
        .map(|(name, field)| Ok((name, FormField::read(&field)?)))
        .collect::<Result<_, InputError>>()?;
    if fields.iter().any(|(name, field)| field.copies_ours(name)) {
        return Err(InputError::Imitates);
    }
    let mut choices = fields.iter().filter(|(_, field)| field.choices.is_some());
    if let (Some((name, _)), None) = (choices.next(), choices.next())
        && reads_as(name, DECISION)
    {
        return Err(InputError::Imitates);
    }
    let is_asked_for = || {
        let can_be_given = fields.iter().any(|(_, field)| field.is_open);
        can_be_given && texts.iter().flatten().any(|text| secret::is_asked_for(text))
    };
    if !secrets && (fields.iter().any(|(name, field)| field.is_secret(name)) || is_asked_for()) {
        return Err(InputError::Secret);
    }
    Ok(())
}

/// Returns the form with the checked members only.
fn retain_checked_members(schema: &RawJson) -> Result<RawJson, InputError> {
    let mut form = members(schema, FORM)?;
    change(&mut form, "properties", |properties| {
        let mut properties = object(properties)?;
        properties.try_map(known_field)?;
        Ok(properties.encode())
    })?;
    Ok(form.encode())
}

/// Returns a field with the checked members only.
fn known_field(raw: &RawJson) -> Result<RawJson, InputError> {
    let mut field = members(raw, FIELD)?;
    if field.string("type").as_deref() != Some("array") {
        field.remove("items");
    }
    change(&mut field, "items", |items| {
        let mut items = members(items, ITEMS)?;
        known_choices(&mut items)?;
        Ok(items.encode())
    })?;
    known_choices(&mut field)?;
    Ok(field.encode())
}

/// Reduces each choice of a list to the checked members.
fn known_choices(field: &mut RawObject) -> Result<(), InputError> {
    for name in ["oneOf", "anyOf"] {
        change(field, name, |listed| {
            let listed = elements(listed).map_err(|_| InputError::Malformed)?;
            let listed = listed.iter().map(|choice| Ok(members(choice, CHOICE)?.encode().text().into_owned()));
            let listed = listed.collect::<Result<Vec<String>, InputError>>()?;
            Ok(RawJson::trusted(format!("[{}]", listed.join(","))))
        })?;
    }
    Ok(())
}

/// Replaces a member if it exists.
fn change(
    object: &mut RawObject,
    name: &str,
    into: impl FnOnce(&RawJson) -> Result<RawJson, InputError>,
) -> Result<(), InputError> {
    if let Some(value) = object.get(name).map(into).transpose()? {
        object.set(name, value);
    }
    Ok(())
}

/// Returns an object with these members only. Fails if it includes fields from elsewhere, or if a
/// member without subschemas holds something else than text, scalars and lists of scalars.
fn members(raw: &RawJson, names: &[&str]) -> Result<RawObject, InputError> {
    let mut object = object(raw)?;
    let has = |name: &&str| object.get(name).is_some();
    if ELSEWHERE.iter().any(has) {
        return Err(InputError::Malformed);
    }
    object.retain(|name| names.contains(&name));
    let is_good = |name: &str| match (name, object.get(name)) {
        (_, None) | ("properties" | "items" | "oneOf" | "anyOf", _) => true,
        (_, Some(value)) if TEXTS.contains(&name) => value.is_string(),
        (_, Some(value)) => is_scalar(value) || elements(value).is_ok_and(|elements| elements.iter().all(is_scalar)),
    };
    if names.iter().all(|name| is_good(name)) { Ok(object) } else { Err(InputError::Malformed) }
}

fn is_scalar(raw: &RawJson) -> bool {
    !matches!(raw.bytes().first(), Some(b'{' | b'['))
}

impl FormField {
    fn read(raw: &RawJson) -> Result<Self, InputError> {
        let field = object(raw)?;
        let kind = field.string("type");
        // Forms are flat: a nested field would pass unchecked.
        if kind.as_deref() == Some("object") || field.get("properties").is_some() {
            return Err(InputError::Malformed);
        }
        let items = field.get("items").map(object).transpose()?.unwrap_or_default();
        let own = choices(&field)?;
        let choices = match (kind.as_deref(), own) {
            (Some("array"), None) => choices(&items)?,
            // Clients differ on whether they show the items of a list or the list's own values.
            (Some("array"), Some(_)) => return Err(InputError::Malformed),
            (_, own) => own,
        };
        let has_list = LISTS.iter().any(|name| field.get(name).is_some());
        let is_other = kind.as_deref() == Some("boolean") && !has_list;
        Ok(Self {
            formats: [field.string("format"), items.string("format")],
            title: field.string("title"),
            description: field.string("description"),
            is_open: !is_other && choices.is_none(),
            choices,
        })
    }

    /// Reports whether a text of the field reads like headend's question, or its choices like
    /// headend's answers. `name` is the field's.
    fn copies_ours(&self, name: &str) -> bool {
        let texts = [Some(name), self.title.as_deref(), self.description.as_deref()];
        if texts.into_iter().flatten().any(|text| reads_as(text, ALLOW_TITLE)) {
            return true;
        }
        let Some(choices) = &self.choices else { return false };
        let has_value = |ours: &str| choices.iter().any(|(value, _)| reads_as(value, ours));
        let is_ours = |shown: &str| [YES_ONCE, ALLOW_ONCE].iter().any(|ours| reads_as(shown, ours));
        [DENY, ONCE, SESSION].into_iter().all(has_value) || choices.iter().any(|(_, shown)| is_ours(shown))
    }

    /// Reports whether the field asks for a secret. `name` is the field's.
    fn is_secret(&self, name: &str) -> bool {
        let is_password = self.formats.iter().flatten().any(|format| format.trim().eq_ignore_ascii_case("password"));
        let is_named = |text: &str| secret::is_named(text);
        let texts = [self.title.as_deref(), self.description.as_deref()];
        let is_asked_for = || texts.into_iter().flatten().any(secret::is_asked_for);
        is_password
            || (self.is_open && (is_named(name) || self.title.as_deref().is_some_and(is_named) || is_asked_for()))
    }
}

/// Returns the values of a choice and their titles: `enum` with `enumNames`, or `oneOf` or `anyOf`
/// of constants. `None` for a list without values, and for a list of bare types, with which some
/// servers say that a field may stay empty.
fn choices(field: &RawObject) -> Result<Option<Vec<(String, String)>>, InputError> {
    let mut lists = LISTS.iter().filter_map(|name| field.get(name).map(|raw| (*name, raw)));
    let Some((name, listed)) = lists.next() else { return Ok(None) };
    if lists.next().is_some() {
        return Err(InputError::Malformed);
    }
    let listed = elements(listed).map_err(|_| InputError::Malformed)?;
    let choices: Vec<(String, String)> = if name == "enum" {
        let names: Vec<String> =
            field.get("enumNames").map_or(Ok(Vec::new()), RawJson::parse).map_err(|_| InputError::Malformed)?;
        let values = listed.iter().map(value).collect::<Result<Vec<String>, InputError>>()?;
        let shown = |(at, value): (usize, String)| (value.clone(), names.get(at).cloned().unwrap_or(value));
        values.into_iter().enumerate().map(shown).collect()
    } else {
        let listed = listed.iter().map(object).collect::<Result<Vec<RawObject>, InputError>>()?;
        if listed.iter().all(is_bare_type) {
            return Ok(None);
        }
        let choice = |choice: &RawObject| {
            let value = choice.get("const").ok_or(InputError::Malformed).and_then(value)?;
            let shown = choice.string("title").unwrap_or_else(|| value.clone());
            Ok((value, shown))
        };
        listed.iter().map(choice).collect::<Result<_, InputError>>()?
    };
    Ok(Some(choices).filter(|choices| !choices.is_empty()))
}

/// Returns the value of a choice as text.
fn value(raw: &RawJson) -> Result<String, InputError> {
    let value = raw.parse::<String>().unwrap_or_else(|_| raw.text().into_owned());
    if is_scalar(raw) && !is_longer(&value, MAX_TITLE) { Ok(value) } else { Err(InputError::Malformed) }
}

/// Reports whether an alternative states the type of a field and nothing more.
fn is_bare_type(alternative: &RawObject) -> bool {
    let kind = alternative.string("type");
    let is_simple = matches!(kind.as_deref(), Some("string" | "number" | "integer" | "boolean" | "null"));
    let mut others = alternative.clone();
    others.remove("type");
    is_simple && others.is_empty()
}
