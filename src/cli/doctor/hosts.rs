//! Files of hosts on this machine: servers that a host still starts itself, and entries that lead to headend with a wrong token.

use std::collections::HashSet;
use std::path::{Path, PathBuf};

use serde_json::Value;

use super::finding::{Findings, variable};
use crate::config::{Auth, Config, Target, Template};

/// Files of hosts below a home, and below a project for those without a leading part.
const FILES: [&str; 11] = [
    ".claude.json",
    ".config/Claude/claude_desktop_config.json",
    "Library/Application Support/Claude/claude_desktop_config.json",
    ".cursor/mcp.json",
    ".config/Code/User/mcp.json",
    "Library/Application Support/Code/User/mcp.json",
    ".codeium/windsurf/mcp_config.json",
    ".config/zed/settings.json",
    ".gemini/settings.json",
    ".config/opencode/opencode.json",
    ".lmstudio/mcp.json",
];
const PROJECT: [&str; 3] = [".mcp.json", ".cursor/mcp.json", ".vscode/mcp.json"];
/// Members that hold a host's servers by name.
const LISTS: [&str; 4] = ["mcpServers", "servers", "context_servers", "mcp"];
/// A longer file is no host's, in bytes.
const MAX_FILE: u64 = 16 << 20;

pub(super) fn look(config: &Config, state: Option<&Path>, found: &mut Findings) {
    let home = variable("HOME").map(PathBuf::from);
    let of_home = home.iter().flat_map(|home| FILES.iter().map(move |file| home.join(file)));
    let here = std::env::current_dir().ok();
    let of_project = here.iter().flat_map(|folder| PROJECT.iter().map(move |file| folder.join(file)));
    let mut seen = HashSet::new();
    for path in of_home.chain(of_project).filter(|path| seen.insert(path.clone())) {
        let is_small = std::fs::metadata(&path).is_ok_and(|data| data.is_file() && data.len() <= MAX_FILE);
        let Some(text) = is_small.then(|| std::fs::read_to_string(&path).ok()).flatten() else { continue };
        let text = text.trim_start_matches('\u{feff}');
        // A file that is not as it should be is its host's affair.
        let Ok(Some(root)) = jsonc_parser::parse_to_serde_value(text, &jsonc_parser::ParseOptions::default()) else {
            continue;
        };
        for (name, server) in servers(&root) {
            judge(config, state, &path, name, server, found);
        }
    }
}

/// The servers of a file, those of its projects too.
fn servers(root: &Value) -> Vec<(&str, &Value)> {
    let projects = root.get("projects").and_then(Value::as_object);
    let roots =
        std::iter::once(root).chain(root.get("mcp")).chain(projects.into_iter().flat_map(|projects| projects.values()));
    let lists = roots.flat_map(|root| LISTS.iter().filter_map(move |list| root.get(*list)?.as_object()));
    let is_off = |server: &Value| {
        server.get("disabled") == Some(&Value::Bool(true)) || server.get("enabled") == Some(&Value::Bool(false))
    };
    let servers = lists.flatten().map(|(name, server)| (name.as_str(), server));
    servers.filter(|(_, server)| server.is_object() && !is_off(server)).collect()
}

fn judge(config: &Config, state: Option<&Path>, path: &Path, name: &str, server: &Value, found: &mut Findings) {
    let file = path.display();
    let text = |member: &str| server.get(member).and_then(Value::as_str);
    if let Some(url) = text("url").or_else(|| text("serverUrl")).or_else(|| text("httpUrl")) {
        let same = |target: &Target| matches!(target, Target::Http { url: own, .. } if own.as_str().trim_end_matches('/') == url.trim_end_matches('/'));
        if let Some(spec) = config.upstreams.iter().find(|spec| same(&spec.target)) {
            return bypasses(&file.to_string(), name, spec.name.as_str(), found);
        }
        if leads_here(config, url) && refuses(config, state, server) {
            let token = state.map(|dir| dir.join("token").display().to_string()).unwrap_or_default();
            let what = format!("the entry {name:?} of {file} sends headend a token that it does not know");
            let next = format!(
                "write `Authorization: Bearer` and the content of {token} (`cat {token}`) into that entry's headers"
            );
            return found.problem("host", what, next);
        }
        return;
    }
    let Some(command) = text("command") else { return };
    let args = server.get("args").and_then(Value::as_array).into_iter().flatten().filter_map(Value::as_str);
    let theirs: Vec<&str> = std::iter::once(command).chain(args).collect();
    let same = |target: &Target| match target {
        Target::Stdio { command, .. } => is_same(&command.iter().map(Template::expose).collect::<Vec<_>>(), &theirs),
        Target::Http { .. } => false,
    };
    if let Some(spec) = config.upstreams.iter().find(|spec| same(&spec.target)) {
        bypasses(&file.to_string(), name, spec.name.as_str(), found);
    }
}

fn bypasses(file: &str, name: &str, upstream: &str, found: &mut Findings) {
    let what = format!(
        "{file} still starts {name:?} itself, which is `{upstream}` here: those calls pass no policy and no log"
    );
    let next = format!(
        "take the entry {name:?} out of {file} and restart that host; it reaches the server by its entry for headend"
    );
    found.problem("host", what, next);
}

/// Whether two command lines start the same: a program by its name or by its path, and the same arguments, of which `-y` asks
/// nothing.
fn is_same(ours: &[&str], theirs: &[&str]) -> bool {
    let name = |word: &str| word.rsplit('/').next().unwrap_or(word).to_owned();
    let plain = |words: Vec<&str>| -> Vec<String> {
        let rest = words.iter().skip(1).filter(|word| !matches!(**word, "-y" | "--yes")).map(|word| (*word).to_owned());
        words.first().map(|first| name(first)).into_iter().chain(rest).collect()
    };
    plain(ours.to_vec()) == plain(theirs.to_vec())
}

/// Whether a URL is that of our own endpoint.
fn leads_here(config: &Config, url: &str) -> bool {
    let Ok(url) = url::Url::parse(url) else { return false };
    let is_here = matches!(url.host_str(), Some("localhost" | "127.0.0.1" | "[::1]"));
    is_here && config.server.listen.iter().any(|address| Some(address.port()) == url.port_or_known_default())
}

/// Whether an entry for headend has a bearer token that is none of ours. One that a host fills in is not judged.
fn refuses(config: &Config, state: Option<&Path>, server: &Value) -> bool {
    let Auth::Token { tokens } = &config.server.auth else { return false };
    let headers = server.get("headers").and_then(Value::as_object);
    let sent = headers.into_iter().flatten().find(|(name, _)| name.eq_ignore_ascii_case("authorization"));
    let sent = sent.and_then(|(_, value)| value.as_str()).unwrap_or_default();
    if sent.contains("${") || sent.contains("{env:") {
        return false;
    }
    let sent = sent.split_once(' ').map_or("", |(_, token)| token.trim());
    let own = state.and_then(|dir| std::fs::read_to_string(dir.join("token")).ok());
    // Before the first start there is no token to compare with.
    let Some(own) = own else { return false };
    sent != own.trim() && !tokens.iter().any(|(_, token)| token.expose() == sent)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_same_server_is_known_by_its_command() {
        let ours = ["npx", "-y", "server-files", "/srv"];
        assert!(is_same(&ours, &["/usr/bin/npx", "server-files", "/srv"]));
        assert!(!is_same(&ours, &["npx", "-y", "server-files", "/home"]));
        assert!(!is_same(&ours, &["uvx", "server-files", "/srv"]));
    }

    #[test]
    fn servers_are_found_in_lists_and_projects_unless_they_are_off() {
        let root = serde_json::json!({
            "mcpServers": {"a": {"command": "a"}, "off": {"command": "b", "disabled": true}},
            "projects": {"/p": {"mcpServers": {"c": {"command": "c"}}}},
            "mcp": {"servers": {"d": {"url": "http://x"}}},
        });
        let names: Vec<&str> = servers(&root).into_iter().map(|(name, _)| name).collect();
        assert!(["a", "c", "d"].iter().all(|name| names.contains(name)) && !names.contains(&"off"), "{names:?}");
    }
}
