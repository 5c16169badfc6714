//! Reading of hosts' files: recognizes the host, and lists the servers, each as one object of keys.

use std::collections::HashMap;
use std::path::Path;

use super::template::VariableSyntax;
use super::value::{self, FileValue, ImportError};

mod package;

/// The program that a file belongs to, as far as the meaning of its keys differs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum McpHost {
    ClaudeDesktop,
    ClaudeCode,
    Cursor,
    VsCode,
    Zed,
    Codex,
    /// Gemini CLI, and Qwen Code.
    Gemini,
    OpenCode,
    /// Cline, Roo Code and Kilo Code.
    Cline,
    Windsurf,
    Continue,
    Goose,
    Crush,
    /// A `server.json` of the registry, or the manifest of a bundle.
    Package,
    Other,
}

impl McpHost {
    /// Recognizes the host of a file by its path and content.
    fn of(path: &Path, root: &FileValue) -> Self {
        let name = |path: &Path| path.file_name().map(|name| name.to_string_lossy().to_lowercase()).unwrap_or_default();
        let folders: Vec<String> = path.ancestors().skip(1).map(name).collect();
        let file = name(path);
        let below = |folder: &str| folders.iter().any(|name| name == folder);
        let is_opencode =
            |server: &FileValue| matches!(server.get("type").and_then(FileValue::as_str), Some("local" | "remote"));
        let has = |key: &str| root.get(key).is_some();
        if has("mcp_servers") {
            Self::Codex
        } else if has("context_servers") {
            Self::Zed
        } else if has("manifest_version") || has("dxt_version") || package::is_registry(root) {
            Self::Package
        } else if has("extensions")
            && root.get("extensions").is_some_and(|list| !list.members().is_empty())
            && !has("mcpServers")
        {
            Self::Goose
        } else if matches!(root.get("mcpServers"), Some(FileValue::Array(_))) || below(".continue") {
            Self::Continue
        } else if file.starts_with("opencode")
            || root.get("mcp").is_some_and(|mcp| mcp.members().iter().any(|(_, server)| is_opencode(server)))
        {
            Self::OpenCode
        } else if has("servers") || root.at(&["mcp", "servers"]).is_some() {
            Self::VsCode
        } else if file.trim_start_matches('.') == "crush.json" || root.get("mcp").is_some_and(is_list) {
            Self::Crush
        } else if file == "claude_desktop_config.json" {
            Self::ClaudeDesktop
        } else if file == ".claude.json" || file == ".mcp.json" || has("projects") {
            Self::ClaudeCode
        } else if below(".cursor") {
            Self::Cursor
        } else if below(".gemini") || below(".qwen") {
            Self::Gemini
        } else if ["cline_mcp_settings.json", "mcp_settings.json"].contains(&file.as_str())
            || below(".roo")
            || below(".kilocode")
        {
            Self::Cline
        } else if below("windsurf") {
            Self::Windsurf
        } else {
            Self::Other
        }
    }

    /// Returns the notation of variables in the host's texts; for unknown programs, the most common
    /// one.
    pub(super) const fn syntax(self) -> VariableSyntax {
        match self {
            Self::ClaudeDesktop | Self::Codex | Self::Goose | Self::Zed => VariableSyntax::None,
            Self::Gemini | Self::Crush => VariableSyntax::Shell,
            Self::OpenCode => VariableSyntax::Curly,
            Self::Continue => VariableSyntax::Double,
            Self::ClaudeCode
            | Self::Cursor
            | Self::VsCode
            | Self::Cline
            | Self::Windsurf
            | Self::Package
            | Self::Other => VariableSyntax::Braces,
        }
    }
}

/// An entry in a host's list of servers.
#[derive(Debug)]
pub(super) struct HostEntry {
    pub(super) name: String,
    pub(super) body: FileValue,
    /// Suffix that names the list in messages, written behind the file's name.
    pub(super) scope: String,
    /// The project that the list belongs to, in a file of several projects.
    pub(super) project: Option<String>,
}

/// The content of a host's file.
#[derive(Debug)]
pub(super) struct HostFile {
    pub(super) host: McpHost,
    pub(super) root: FileValue,
    pub(super) servers: Vec<HostEntry>,
    /// Inputs that the host asks its user for: id and description.
    pub(super) inputs: Vec<(String, String)>,
}

/// Keys whose value is a list of servers.
const LISTS: &[&[&str]] = &[
    &["mcpServers"],
    &["servers"],
    &["context_servers"],
    &["mcp_servers"],
    &["amp.mcpServers"],
    // VS Code's own settings, and opencode since version 2.
    &["mcp", "servers"],
    &["experimental", "modelContextProtocolServers"],
];

/// Servers by name, with the [`HostEntry::scope`] and the [`HostEntry::project`] of all of them.
type HostEntryList = (Vec<(String, FileValue)>, String, Option<String>);

/// Reads a file of any host.
///
/// # Errors
/// [`ImportError`], if the file does not parse or has no list of servers.
pub(super) fn read(path: &Path, text: &str) -> Result<HostFile, ImportError> {
    let root = value::read(path, text)?;
    let host = McpHost::of(path, &root);
    let mut lists: Vec<HostEntryList> = Vec::new();
    let mut inputs: Vec<(String, String)> = Vec::new();
    if host == McpHost::Package {
        let (server, asked) = package::server(&root);
        lists.push((server.into_iter().collect(), String::new(), None));
        inputs = asked;
    } else {
        for list in LISTS.iter().filter_map(|keys| root.at(keys)) {
            lists.push((named(list), String::new(), None));
        }
        let other = if host == McpHost::Goose {
            root.get("extensions")
        } else {
            let is_there = matches!(host, McpHost::OpenCode | McpHost::Crush) && root.at(&["mcp", "servers"]).is_none();
            root.get("mcp").filter(|_| is_there)
        };
        lists.extend(other.map(|list| (named(list), String::new(), None)));
        for (project, settings) in root.get("projects").map(FileValue::members).unwrap_or_default() {
            let list = settings.get("mcpServers").map(named);
            lists.extend(list.map(|list| (list, format!(", project {project}"), Some(project.clone()))));
        }
    }
    if lists.is_empty() {
        return Err(ImportError::NoServers { path: path.to_owned() });
    }
    let mut servers: Vec<HostEntry> = Vec::new();
    for (list, scope, project) in lists {
        // If servers have equal names, the last one counts, as in hosts.
        let last: HashMap<&str, usize> = list.iter().enumerate().map(|(at, (name, _))| (&**name, at)).collect();
        for (_, (name, body)) in list.iter().enumerate().filter(|(at, (name, _))| last.get(&**name) == Some(at)) {
            let body = flat(body);
            // Goose's own extensions are parts of Goose; other programs cannot start them.
            let built_in = host == McpHost::Goose
                && matches!(
                    body.get("type").and_then(FileValue::as_str),
                    Some("builtin" | "platform" | "frontend" | "inline_python")
                );
            if !built_in {
                let body = body.without_nulls();
                servers.push(HostEntry { name: name.clone(), body, scope: scope.clone(), project: project.clone() });
            }
        }
    }
    let mcp = root.get("mcp").unwrap_or(&FileValue::Null);
    let asked = [&root, mcp].into_iter().flat_map(|root| root.get("inputs").map(FileValue::items).unwrap_or_default());
    inputs.extend(asked.filter_map(input));
    Ok(HostFile { host, root, servers, inputs })
}

/// Returns true if all members of an object are servers, and there is one.
fn is_list(list: &FileValue) -> bool {
    let is_server = |server: &FileValue| server.get("command").is_some() || server.get("url").is_some();
    !list.members().is_empty() && list.members().iter().all(|(_, server)| is_server(server))
}

/// Returns the members of an object, or the items of a list under their own names.
fn named(list: &FileValue) -> Vec<(String, FileValue)> {
    let own = |item: &FileValue| item.get("name").and_then(FileValue::as_str).unwrap_or("server").to_owned();
    // A list has no rule for equal names, so all of its items are kept, with numbers.
    let mut items: Vec<(String, FileValue)> = Vec::new();
    for item in list.items() {
        let name = own(item);
        let again = (2..).map(|number| format!("{name} {number}"));
        let free = std::iter::once(name.clone()).chain(again).find(|name| items.iter().all(|(other, _)| other != name));
        items.push((free.unwrap_or(name), item.clone()));
    }
    items.extend(list.members().iter().cloned());
    items
}

/// Merges the members of inner objects into a server: `transport` of Continue, `config` of Goose.
fn flat(body: &FileValue) -> FileValue {
    let FileValue::Object(members) = body else { return body.clone() };
    let mut out: Vec<(String, FileValue)> = Vec::new();
    for (name, value) in members {
        match (name.as_str(), value) {
            ("transport" | "config", FileValue::Object(inner)) => out.extend(inner.iter().cloned()),
            _ => out.push((name.clone(), value.clone())),
        }
    }
    FileValue::Object(out)
}

/// Reads the id and description of an input.
fn input(input: &FileValue) -> Option<(String, String)> {
    let id = input.get("id")?.as_str()?;
    Some((id.to_owned(), input.get("description").and_then(FileValue::as_str).unwrap_or(id).to_owned()))
}
