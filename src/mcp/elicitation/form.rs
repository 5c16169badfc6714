//! The form of a server: what it asks for, and the text in it.

use std::borrow::Cow;

use super::secret;
use super::text::{line, lines};
use crate::mcp::input::InputError;
use crate::mcp::item::{StringAt, rewritten};
use crate::wire::foreign;
use crate::wire::raw::{RawJson, RawObject, elements};

/// The only field of our own form, and its values.
pub(crate) const DECISION: &str = "decision";
pub(crate) const DENY: &str = "deny";
pub(crate) const ONCE: &str = "once";
pub(crate) const SESSION: &str = "session";
/// What our form shows for the value that allows one call.
pub(crate) const ALLOW_ONCE: &str = "Allow once";

/// Characters of a title or of the name of a choice.
const MAX_TITLE: usize = 200;
/// Lines and characters of a description.
const MAX_DESCRIPTION: (usize, usize) = (8, 1000);

/// The schema of a form with its texts escaped and bounded.
///
/// # Errors
/// [`InputError`]: it copies ours, asks for a secret, or has text that cannot be shown as it is.
pub(super) fn safe(schema: &RawJson, secrets: bool) -> Result<RawJson, InputError> {
    judge(schema, secrets)?;
    rewritten(schema, &mut shown).map(Cow::into_owned).map_err(|_| InputError::Unreadable)
}

/// A string of the schema as people are shown it; `None` where it stays.
fn shown(key: &[u8], string: StringAt<'_>) -> Result<Option<String>, String> {
    let text = || serde_json::from_slice::<Cow<'_, str>>(string.literal).map_err(|error| error.to_string());
    match key {
        b"\"title\"" if string.follows_key => titled(&text()?),
        b"\"enumNames\"" if !string.is_key => titled(&text()?),
        b"\"description\"" if string.follows_key => {
            let (text, (rows, chars)) = (text()?, MAX_DESCRIPTION);
            let shown = lines(&text, rows, chars);
            Ok((shown != text).then_some(shown))
        }
        _ => {
            // Names and values go back to the server as they are, so they have to be seen as they are. A text field may hold
            // several lines.
            let text = text()?;
            let breaks = text.contains(['\n', '\t']) && (string.is_key || key != b"\"default\"");
            if breaks || foreign::hidden_in(&text) > 0 { Err("hidden characters".to_owned()) } else { Ok(None) }
        }
    }
}

fn titled(text: &str) -> Result<Option<String>, String> {
    let shown = line(text, MAX_TITLE);
    Ok((shown != text).then_some(shown))
}

/// What a field is, as far as it matters here.
struct Field {
    format: Option<String>,
    title: Option<String>,
    is_text: bool,
    /// The values of a choice, and what people see of them.
    choices: Option<Vec<(String, String)>>,
}

fn judge(schema: &RawJson, secrets: bool) -> Result<(), InputError> {
    let schema = RawObject::parse(schema).map_err(|_| InputError::Malformed)?;
    let Some(properties) = schema.get("properties") else { return Ok(()) };
    let properties = RawObject::parse(properties).map_err(|_| InputError::Malformed)?;
    let fields = properties.into_sorted().map_err(|_| InputError::Malformed)?;
    let fields: Vec<(String, Field)> =
        fields.into_iter().map(|(name, field)| Ok((name, Field::read(&field)?))).collect::<Result<_, InputError>>()?;
    if fields.iter().any(|(_, field)| field.copies_ours()) {
        return Err(InputError::Imitates);
    }
    let mut choices = fields.iter().filter(|(_, field)| field.choices.is_some());
    if let (Some((name, _)), None) = (choices.next(), choices.next())
        && name.trim().eq_ignore_ascii_case(DECISION)
    {
        return Err(InputError::Imitates);
    }
    if !secrets && fields.iter().any(|(name, field)| field.is_secret(name)) {
        return Err(InputError::Secret);
    }
    Ok(())
}

impl Field {
    fn read(raw: &RawJson) -> Result<Self, InputError> {
        let field = RawObject::parse(raw).map_err(|_| InputError::Malformed)?;
        let kind = field.string("type");
        // Forms are flat: nothing is asked for where nobody looks.
        if kind.as_deref() == Some("object") || field.get("properties").is_some() {
            return Err(InputError::Malformed);
        }
        let items = field.get("items").and_then(|raw| RawObject::parse(raw).ok());
        let choices = choices(&field).or_else(|| items.as_ref().and_then(choices));
        let is_other = matches!(kind.as_deref(), Some("boolean" | "number" | "integer"));
        Ok(Self {
            format: field.string("format"),
            title: field.string("title"),
            is_text: !is_other && choices.is_none(),
            choices,
        })
    }

    fn copies_ours(&self) -> bool {
        let Some(choices) = &self.choices else { return false };
        let mut values: Vec<String> = choices.iter().map(|(value, _)| value.trim().to_ascii_lowercase()).collect();
        values.sort_unstable();
        let shows_ours = choices.iter().any(|(_, shown)| shown.trim().eq_ignore_ascii_case(ALLOW_ONCE));
        values == [DENY, ONCE, SESSION] || shows_ours
    }

    fn is_secret(&self, name: &str) -> bool {
        let is_password = self.format.as_deref().is_some_and(|format| format.trim().eq_ignore_ascii_case("password"));
        let is_named = |text: &str| secret::is_named(text);
        is_password || (self.is_text && (is_named(name) || self.title.as_deref().is_some_and(is_named)))
    }
}

/// The values of a choice and their titles: `enum` with `enumNames`, or `oneOf` and `anyOf` of constants.
fn choices(field: &RawObject) -> Option<Vec<(String, String)>> {
    let text = |raw: &RawJson| raw.parse::<String>().unwrap_or_else(|_| raw.text().into_owned());
    if let Some(values) = field.get("enum") {
        let values = elements(values).unwrap_or_default();
        let names = field.get("enumNames").and_then(|raw| elements(raw).ok()).unwrap_or_default();
        let shown = |(at, value): (usize, &RawJson)| (text(value), text(names.get(at).unwrap_or(value)));
        return Some(values.iter().enumerate().map(shown).collect());
    }
    let listed = field.get("oneOf").or_else(|| field.get("anyOf")).and_then(|raw| elements(raw).ok())?;
    let choice = |raw: &RawJson| {
        let choice = RawObject::parse(raw).ok()?;
        let value = choice.get("const").map(text)?;
        let shown = choice.string("title").unwrap_or_else(|| value.clone());
        Some((value, shown))
    };
    listed.iter().map(choice).collect()
}
