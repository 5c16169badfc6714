//! Values of hosts' files: JSON with comments, TOML and YAML, read into one tree in the order of
//! the file.

use std::collections::HashMap;
use std::path::{Path, PathBuf};

use jsonc_parser::ast::Value;
use jsonc_parser::common::Ranged as _;
use jsonc_parser::tokens::Token;
use jsonc_parser::{CollectOptions, ParseOptions, Scanner, parse_to_ast};
use saphyr_parser::{Event, Parser, ScalarStyle};

/// The reason why an import failed. It contains no text of a file, which could be a secret.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ImportError {
    #[error("{}:{line}: not {format}: {message}", path.display())]
    Syntax { path: PathBuf, line: usize, format: &'static str, message: String },
    #[error(
        "{}: no list of servers is in it: neither `mcpServers` nor `servers`, `context_servers`, `mcp_servers`, `mcp` or `extensions`",
        path.display()
    )]
    NoServers { path: PathBuf },
}

/// A value that keeps the order of its members.
#[derive(Clone, Debug, PartialEq)]
pub(in crate::cli::setup) enum FileValue {
    Null,
    Bool(bool),
    Number(String),
    String(String),
    Array(Vec<Self>),
    Object(Vec<(String, Self)>),
}

impl FileValue {
    /// Returns a member of an object; of equal names, the last one, as in hosts.
    pub(in crate::cli::setup) fn get(&self, key: &str) -> Option<&Self> {
        self.members().iter().rev().find(|(name, _)| name == key).map(|(_, value)| value)
    }

    /// Returns the member at the end of a path of keys.
    pub(in crate::cli::setup) fn at(&self, keys: &[&str]) -> Option<&Self> {
        keys.iter().try_fold(self, |value, key| value.get(key))
    }

    pub(in crate::cli::setup) fn members(&self) -> &[(String, Self)] {
        if let Self::Object(members) = self { members } else { &[] }
    }

    pub(in crate::cli::setup) fn items(&self) -> &[Self] {
        if let Self::Array(items) = self { items } else { &[] }
    }

    pub(in crate::cli::setup) fn as_str(&self) -> Option<&str> {
        if let Self::String(text) = self { Some(text) } else { None }
    }

    /// Returns a string, number or boolean as text; `None` for any other value.
    pub(in crate::cli::setup) fn scalar(&self) -> Option<String> {
        match self {
            Self::String(text) | Self::Number(text) => Some(text.clone()),
            Self::Bool(boolean) => Some(boolean.to_string()),
            Self::Null | Self::Array(_) | Self::Object(_) => None,
        }
    }

    /// Returns the strings, numbers and booleans of a list as texts, or a single string. Empty for
    /// any other value.
    pub(in crate::cli::setup) fn texts(&self) -> Vec<String> {
        let one = self.as_str().map(str::to_owned);
        one.into_iter().chain(self.items().iter().filter_map(Self::scalar)).collect()
    }

    /// Removes the members of an object that are null: some programs write that for a missing one.
    pub(super) fn without_nulls(mut self) -> Self {
        let names = self.members().iter().map(|(name, _)| name.clone());
        let absent: Vec<String> = names.filter(|name| self.get(name) == Some(&Self::Null)).collect();
        if let Self::Object(members) = &mut self {
            members.retain(|(name, _)| !absent.contains(name));
        }
        self
    }

    /// Returns true unless the value is null.
    pub(super) fn is_stated(&self) -> bool {
        *self != Self::Null
    }
}

/// Most nested brackets. Real files stay below ten, and the libraries parse nested ones by
/// recursion.
const MAX_DEPTH: usize = 100;
/// Most values of one YAML file, including those of its aliases.
const MAX_VALUES: usize = 1_000_000;

/// Parses the text of a file by the extension of its name: `.toml`, `.yaml` and `.yml`, else JSON
/// with comments.
///
/// # Errors
/// [`ImportError::Syntax`], with the line of the mistake.
pub(in crate::cli::setup) fn read(path: &Path, text: &str) -> Result<FileValue, ImportError> {
    let text = text.strip_prefix('\u{feff}').unwrap_or(text);
    let ending = path.extension().and_then(|ending| ending.to_str()).unwrap_or_default().to_ascii_lowercase();
    let (format, read) = match ending.as_str() {
        "toml" => ("TOML", toml(text)),
        "yaml" | "yml" => ("YAML", yaml(text)),
        _ => ("JSON", json(text)),
    };
    read.map_err(|(line, message)| ImportError::Syntax { path: path.to_owned(), line, format, message })
}

/// A value, or the line of a mistake and its description.
type ReadValue = Result<FileValue, (usize, String)>;

/// Returns the line of a byte, from one.
fn line_of(text: &str, byte: usize) -> usize {
    1 + text.get(..byte).unwrap_or(text).matches('\n').count()
}

fn json(text: &str) -> ReadValue {
    if let Some(line) = too_deep(text) {
        return Err((line, format!("brackets are nested more than {MAX_DEPTH} deep")));
    }
    let parsed = parse_to_ast(text, &CollectOptions::default(), &ParseOptions::default())
        .map_err(|error| (error.line_display(), error.kind().to_string()))?;
    Ok(parsed.value.filter(|value| value.end() <= text.len()).map_or(FileValue::Null, |value| of_json(&value)))
}

/// Returns the first line with brackets nested more than [`MAX_DEPTH`] deep. Invalid JSON ends the
/// search, and is left to the parser.
fn too_deep(text: &str) -> Option<usize> {
    let mut scanner = Scanner::new(text);
    let mut depth = 0_usize;
    while let Ok(Some(token)) = scanner.scan() {
        if matches!(token, Token::OpenBrace | Token::OpenBracket) {
            depth += 1;
        } else if matches!(token, Token::CloseBrace | Token::CloseBracket) {
            depth = depth.saturating_sub(1);
        }
        if depth > MAX_DEPTH {
            return Some(line_of(text, scanner.token_start()));
        }
    }
    None
}

fn of_json(value: &Value<'_>) -> FileValue {
    match value {
        Value::StringLit(text) => FileValue::String(text.value.to_string()),
        Value::NumberLit(number) => FileValue::Number(number.value.to_owned()),
        Value::BooleanLit(boolean) => FileValue::Bool(boolean.value),
        Value::NullKeyword(_) => FileValue::Null,
        Value::Array(array) => FileValue::Array(array.elements.iter().map(of_json).collect()),
        Value::Object(object) => {
            let members = object.properties.iter();
            FileValue::Object(members.map(|member| (member.name.as_str().to_owned(), of_json(&member.value))).collect())
        }
    }
}

fn toml(text: &str) -> ReadValue {
    // The library's error text quotes the line, so it is not used.
    let table = text.parse::<toml::Table>().map_err(|error| {
        (error.span().map_or(1, |span| line_of(text, span.start)), "a key or value is wrong".to_owned())
    })?;
    Ok(of_toml(toml::Value::Table(table)))
}

fn of_toml(value: toml::Value) -> FileValue {
    match value {
        toml::Value::String(text) => FileValue::String(text),
        toml::Value::Integer(number) => FileValue::Number(number.to_string()),
        toml::Value::Float(number) => FileValue::Number(number.to_string()),
        toml::Value::Boolean(boolean) => FileValue::Bool(boolean),
        toml::Value::Datetime(time) => FileValue::String(time.to_string()),
        toml::Value::Array(items) => FileValue::Array(items.into_iter().map(of_toml).collect()),
        toml::Value::Table(table) => {
            FileValue::Object(table.into_iter().map(|(name, value)| (name, of_toml(value))).collect())
        }
    }
}

/// A list or object that is still being read.
enum OpenContainer {
    List(Vec<FileValue>),
    /// The members so far, and the name whose value comes next.
    Object(Vec<(String, FileValue)>, Option<String>),
}

/// Parses the first document of a YAML file, with its aliases replaced by their values; a file
/// without a document is null. A member whose name is a list or object gets an empty name.
///
/// # Errors
/// The line of a mistake, or the line at which the file exceeds [`MAX_DEPTH`] or [`MAX_VALUES`].
fn yaml(text: &str) -> ReadValue {
    let mut open: Vec<(usize, OpenContainer)> = Vec::new();
    let mut anchors: HashMap<usize, (FileValue, usize)> = HashMap::new();
    let mut values = 0_usize;
    let mut root = None;
    for event in Parser::new_from_str(text) {
        let (event, span) = event.map_err(|error| (error.marker().line(), error.info().to_owned()))?;
        let line = span.start.line();
        let before = values;
        values += 1;
        let (anchor, done) = match event {
            Event::SequenceStart(anchor, _) => {
                open.push((anchor, OpenContainer::List(Vec::new())));
                (0, None)
            }
            Event::MappingStart(anchor, _) => {
                open.push((anchor, OpenContainer::Object(Vec::new(), None)));
                (0, None)
            }
            Event::SequenceEnd | Event::MappingEnd => match open.pop() {
                Some((anchor, OpenContainer::List(items))) => (anchor, Some(FileValue::Array(items))),
                Some((anchor, OpenContainer::Object(members, _))) => (anchor, Some(FileValue::Object(members))),
                None => (0, None),
            },
            Event::Scalar(text, style, anchor, _) => (anchor, Some(scalar(&text, style))),
            Event::Alias(anchor) => {
                let (value, size) = anchors.get(&anchor).cloned().unwrap_or((FileValue::Null, 0));
                values = values.saturating_add(size);
                (0, Some(value))
            }
            Event::DocumentEnd => break,
            Event::Nothing | Event::StreamStart | Event::StreamEnd | Event::DocumentStart(_) => (0, None),
        };
        if values > MAX_VALUES {
            return Err((line, format!("has more than {MAX_VALUES} values")));
        }
        if open.len() > MAX_DEPTH {
            return Err((line, format!("lists and objects are nested more than {MAX_DEPTH} deep")));
        }
        let Some(value) = done else { continue };
        if anchor != 0 {
            // For lists and objects this is an upper bound: all values read so far.
            let is_plain = matches!(value, FileValue::Array(_) | FileValue::Object(_));
            anchors.insert(anchor, (value.clone(), if is_plain { values } else { values - before }));
        }
        match open.last_mut() {
            None => root = Some(value),
            Some((_, OpenContainer::List(items))) => items.push(value),
            Some((_, OpenContainer::Object(members, name))) => match name.take() {
                Some(name) => members.push((name, value)),
                None => *name = Some(value.scalar().unwrap_or_default()),
            },
        }
    }
    Ok(root.unwrap_or(FileValue::Null))
}

/// Reads a scalar of YAML's core schema.
fn scalar(text: &str, style: ScalarStyle) -> FileValue {
    if style != ScalarStyle::Plain {
        return FileValue::String(text.to_owned());
    }
    match text {
        "" | "~" | "null" | "Null" | "NULL" => FileValue::Null,
        "true" | "True" | "TRUE" => FileValue::Bool(true),
        "false" | "False" | "FALSE" => FileValue::Bool(false),
        _ if text.parse::<f64>().is_ok_and(f64::is_finite) => FileValue::Number(text.to_owned()),
        _ => FileValue::String(text.to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(name: &str, text: &str) -> Result<FileValue, String> {
        read(Path::new(name), text).map_err(|error| error.to_string())
    }

    #[test]
    fn three_formats_give_one_tree() {
        let json = of("a.json", "\u{feff}{\"a\": [1, true, null, \"x\"], /* c */ \"b\": {\"c\": \"d\"},}").unwrap();
        let yaml = of("a.yaml", "\u{feff}a: [1, true, ~, x]\r\n# c\r\nb:\r\n  c: 'd'\r\n").unwrap();
        assert_eq!(json, yaml);
        let toml = of("a.toml", "\u{feff}a = [1, true, \"x\"]\r\n[b]\r\nc = \"d\" # c\r\n").unwrap();
        assert_eq!(toml.at(&["b", "c"]).and_then(FileValue::as_str), Some("d"));
        assert_eq!(toml.get("a").unwrap().texts(), ["1", "true", "x"]);
    }

    #[test]
    fn aliases_are_values_and_cannot_grow_without_end() {
        let yaml = of("a.yml", "a: &x [p, q]\nb: *x\nc: &y z\nd: *y").unwrap();
        assert_eq!((yaml.get("b"), yaml.get("d")), (yaml.get("a"), yaml.get("c")));
        let mut text = "a0: &a0 [x,x,x,x,x,x,x,x,x,x]\n".to_owned();
        for k in 1..12 {
            let before = k - 1;
            text.push_str(&format!("a{k}: &a{k} [{}]\n", vec![format!("*a{before}"); 10].join(",")));
        }
        assert!(of("a.yaml", &text).unwrap_err().contains("has more than"));
        for (name, text) in
            [("a.yaml", "[".repeat(1000)), ("a.json", "[".repeat(1000)), ("a.toml", format!("a={}", "[".repeat(1000)))]
        {
            assert!(of(name, &text).is_err(), "{name}");
        }
    }

    #[test]
    fn a_mistake_has_a_line_and_none_of_the_text() {
        for (name, text) in [
            ("a.json", "{\n \"a\": \"canary\" \"canary\"}"),
            ("a.toml", "b = 1\na = canary canary\n"),
            ("a.yaml", "b: 1\na: \"canary\" canary\n"),
        ] {
            let error = of(name, text).unwrap_err();
            assert!(error.starts_with(&format!("{name}:2: not ")) && !error.contains("canary"), "{error}");
        }
    }
}
