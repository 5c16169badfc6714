//! The files beside those of hosts, which say which servers are off, and the projects of files.

use std::path::{Path, PathBuf};

/// Returns the directory of the project that a file belongs to; `None` for a file of the user.
pub(super) fn folder(path: &Path, home: Option<&str>) -> Option<PathBuf> {
    const OWN: &[&str] =
        &[".vscode", ".cursor", ".zed", ".roo", ".kilocode", ".codex", ".gemini", ".qwen", ".continue"];
    let below = home.and_then(|home| path.strip_prefix(home).ok()).and_then(|below| below.iter().next());
    if below.is_some_and(|first| first.as_encoded_bytes().starts_with(b".") || first == "Library") {
        return None;
    }
    let dir = path.parent()?;
    let own = dir.file_name().is_some_and(|name| OWN.iter().any(|own| name == *own));
    let dir = if own { dir.parent()? } else { dir };
    dir.is_absolute().then(|| dir.to_owned())
}

/// Lists the existing files of the same host that say which servers are off and which tools run
/// without approval.
pub(super) fn beside(path: &Path, home: Option<&Path>) -> Vec<PathBuf> {
    let Some(dir) = path.parent() else { return Vec::new() };
    let file = path.file_name().and_then(|name| name.to_str()).unwrap_or_default();
    let of_home = |name: &str| home.map(|home| home.join(name));
    let below = |folder: &str| dir.ends_with(folder);
    let all: Vec<Option<PathBuf>> = match file {
        ".mcp.json" => vec![
            Some(dir.join(".claude/settings.json")),
            Some(dir.join(".claude/settings.local.json")),
            of_home(".claude/settings.json"),
            of_home(".claude.json"),
        ],
        ".claude.json" => vec![Some(dir.join(".claude/settings.json"))],
        "settings.json" if below(".gemini") || below(".qwen") => vec![
            Some(dir.join("mcp-server-enablement.json")),
            of_home(".gemini/settings.json").filter(|_| below(".gemini")),
            of_home(".gemini/mcp-server-enablement.json").filter(|_| below(".gemini")),
        ],
        "mcp.json" if below(".cursor") => {
            vec![Some(dir.join("cli.json")), Some(dir.join("cli-config.json")), of_home(".cursor/cli-config.json")]
        }
        "mcp.json" if below("User") || below(".vscode") => vec![Some(dir.join("settings.json"))],
        "config.yaml" if below("goose") => vec![Some(dir.join("permission.yaml"))],
        _ => Vec::new(),
    };
    let mut found: Vec<PathBuf> = Vec::new();
    for one in all.into_iter().flatten().filter(|one| one != path && one.is_file()) {
        if !found.contains(&one) {
            found.push(one);
        }
    }
    found
}
