//! The JSON of hosts, in the order of the file.

use std::collections::HashMap;
use std::path::{Path, PathBuf};

use jsonc_parser::ast::Value;
use jsonc_parser::common::Ranged as _;
use jsonc_parser::tokens::Token;
use jsonc_parser::{CollectOptions, ParseOptions, Scanner, parse_to_ast};

/// Why an import failed.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ImportError {
    #[error("{}:{line}: not JSON: {message}", path.display())]
    Json { path: PathBuf, line: usize, message: String },
    #[error("{}: neither `mcpServers` nor `servers` nor `context_servers` is in it", path.display())]
    NoServers { path: PathBuf },
}

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

    /// A member of an object; of equal names, the last counts, as in hosts.
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
    /// Name of the list that contains it, to follow the file's name in a message.
    pub(super) scope: String,
}

/// Content of one file.
#[derive(Debug)]
pub(super) struct HostFile {
    pub(super) servers: Vec<Server>,
    /// Inputs that VS Code prompts for: id and description.
    pub(super) inputs: Vec<(String, String)>,
}

/// Nesting of brackets. Real files stay below ten, and the library parses nested ones by recursion.
const MAX_DEPTH: usize = 100;

/// The line with too many nested brackets. Invalid JSON is left to the parser.
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
            return Some(1 + text.get(..scanner.token_start())?.matches('\n').count());
        }
    }
    None
}

/// Reads a file of any host.
pub(super) fn read(path: &Path, text: &str) -> Result<HostFile, ImportError> {
    let text = text.strip_prefix('\u{feff}').unwrap_or(text);
    if let Some(line) = too_deep(text) {
        let message = format!("brackets are nested more than {MAX_DEPTH} deep");
        return Err(ImportError::Json { path: path.to_owned(), line, message });
    }
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
        // Of servers with equal names, the last counts, as in hosts.
        let last: HashMap<&str, usize> =
            list.members().iter().enumerate().map(|(at, (name, _))| (&**name, at)).collect();
        for (at, (name, body)) in list.members().iter().enumerate() {
            if last.get(&**name) == Some(&at) {
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
