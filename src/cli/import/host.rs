//! The JSON of hosts, in the order it is written.

use std::path::Path;

use jsonc_parser::ast::Value;
use jsonc_parser::common::Ranged as _;
use jsonc_parser::{CollectOptions, ParseOptions, parse_to_ast};

use super::ImportError;

/// JSON that keeps the order of its members.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Json {
    Null,
    Bool(bool),
    Number(String),
    String(String),
    Array(Vec<Self>),
    Object(Vec<(String, Self)>),
}

impl Json {
    fn new(value: &Value<'_>) -> Self {
        match value {
            Value::StringLit(text) => Self::String(text.value.to_string()),
            Value::NumberLit(number) => Self::Number(number.value.to_owned()),
            Value::BooleanLit(boolean) => Self::Bool(boolean.value),
            Value::NullKeyword(_) => Self::Null,
            Value::Array(array) => Self::Array(array.elements.iter().map(Self::new).collect()),
            Value::Object(object) => {
                let members = object.properties.iter();
                Self::Object(
                    members.map(|member| (member.name.as_str().to_owned(), Self::new(&member.value))).collect(),
                )
            }
        }
    }

    /// A member of an object; of two with one name the last, as hosts read it.
    pub(super) fn get(&self, key: &str) -> Option<&Self> {
        self.members().iter().rev().find(|(name, _)| name == key).map(|(_, value)| value)
    }

    pub(super) fn members(&self) -> &[(String, Self)] {
        if let Self::Object(members) = self { members } else { &[] }
    }

    pub(super) fn items(&self) -> &[Self] {
        if let Self::Array(items) = self { items } else { &[] }
    }

    pub(super) fn as_str(&self) -> Option<&str> {
        if let Self::String(text) = self { Some(text) } else { None }
    }

    /// A string, number or boolean as text.
    pub(super) fn scalar(&self) -> Option<String> {
        match self {
            Self::String(text) | Self::Number(text) => Some(text.clone()),
            Self::Bool(boolean) => Some(boolean.to_string()),
            Self::Null | Self::Array(_) | Self::Object(_) => None,
        }
    }
}

/// One entry of a list of servers.
#[derive(Debug)]
pub(super) struct Server {
    pub(super) name: String,
    pub(super) body: Json,
    /// Which of several lists it is from, to stand behind the file's name.
    pub(super) scope: String,
}

/// What one file has.
#[derive(Debug)]
pub(super) struct HostFile {
    pub(super) servers: Vec<Server>,
    /// What VS Code asks for: id and description.
    pub(super) inputs: Vec<(String, String)>,
}

/// Reads a file, whichever host it is of.
pub(super) fn read(path: &Path, text: &str) -> Result<HostFile, ImportError> {
    let text = text.strip_prefix('\u{feff}').unwrap_or(text);
    let parsed = parse_to_ast(text, &CollectOptions::default(), &ParseOptions::default()).map_err(|error| {
        ImportError::Json { path: path.to_owned(), line: error.line_display(), message: error.kind().to_string() }
    })?;
    let Some(value) = parsed.value.filter(|value| value.end() <= text.len()) else {
        return Err(ImportError::NoServers { path: path.to_owned() });
    };
    let root = Json::new(&value);
    let mut lists = Vec::new();
    for key in ["mcpServers", "servers", "context_servers"] {
        lists.extend(root.get(key).map(|list| (list, String::new())));
    }
    // VS Code's own settings, and the projects in Claude Code's.
    lists.extend(root.get("mcp").and_then(|mcp| mcp.get("servers")).map(|list| (list, String::new())));
    for (project, settings) in root.get("projects").map(Json::members).unwrap_or_default() {
        lists.extend(settings.get("mcpServers").map(|list| (list, format!(", project {project}"))));
    }
    if lists.is_empty() {
        return Err(ImportError::NoServers { path: path.to_owned() });
    }
    let mut servers: Vec<Server> = Vec::new();
    for (list, scope) in lists {
        for (at, (name, body)) in list.members().iter().enumerate() {
            let again = list.members().iter().skip(at + 1).any(|(other, _)| other == name);
            if !again {
                servers.push(Server { name: name.clone(), body: body.clone(), scope: scope.clone() });
            }
        }
    }
    let mcp = root.get("mcp").unwrap_or(&Json::Null);
    let inputs = [&root, mcp].into_iter().flat_map(|root| root.get("inputs").map(Json::items).unwrap_or_default());
    Ok(HostFile { servers, inputs: inputs.filter_map(input).collect() })
}

fn input(input: &Json) -> Option<(String, String)> {
    let id = input.get("id")?.as_str()?;
    Some((id.to_owned(), input.get("description").and_then(Json::as_str).unwrap_or(id).to_owned()))
}
