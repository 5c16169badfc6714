//! A host's settings of a server apart from how to reach it: whether it is on, which tools are
//! offered, which calls run without approval, and how long they may take.

use std::time::Duration;

use super::host::{HostEntry, McpHost};
use super::value::FileValue;

/// A host's settings of one server.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct HostServerSettings {
    /// Reason why the host does not start the server.
    pub(super) off: Option<String>,
    /// The only tools that are offered; `None` for all.
    pub(super) include: Option<Vec<String>>,
    /// Tools that are not offered.
    pub(super) exclude: Vec<String>,
    /// Whether the host has any rule about which calls need approval.
    pub(super) says: bool,
    /// Whether every call runs without approval.
    pub(super) unasked_all: bool,
    /// Tools whose calls run without approval.
    pub(super) unasked: Vec<String>,
    pub(super) call_timeout: Option<Duration>,
    pub(super) start_timeout: Option<Duration>,
}

/// Keys of a server that are read here.
pub(super) const KEYS: &[&str] = &[
    "disabled",
    "enabled",
    "includeTools",
    "enabled_tools",
    "enabledTools",
    "available_tools",
    "excludeTools",
    "disabled_tools",
    "disabledTools",
    "tools",
    "autoApprove",
    "alwaysAllow",
    "trust",
    "default_tools_approval_mode",
    "timeout",
    "tool_timeout_sec",
    "startup_timeout_sec",
    "startup_timeout_ms",
    "connectionTimeout",
    "required",
];

/// A host's verdict on calls of a tool.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum HostVerdict {
    Allow,
    Ask,
    Deny,
}

/// A host's permission for tools of servers. `*` in a name matches any text.
#[derive(Debug)]
struct HostPermission {
    verdict: HostVerdict,
    /// Server, or a text that contains server and tool.
    server: String,
    /// Tool; empty if `server` contains it behind `__`, and `_` if `server` is a pattern over
    /// `server_tool`.
    tool: String,
}

/// A host's settings for all of its servers.
#[derive(Debug, Default)]
pub(super) struct HostSettings {
    /// Names of servers that are off, with the key that says so.
    off: Vec<(String, &'static str)>,
    /// The only servers that are on; `None` for all.
    only: Option<Vec<String>>,
    permissions: Vec<HostPermission>,
    /// Whether the host has any rule about which calls need approval.
    says: bool,
    /// Whether every call runs without approval.
    unasked_all: bool,
    /// Tools by server, from the active profile of Zed.
    profile: Option<FileValue>,
}

/// Reads a verdict; `None` for a value that is not a text. Unknown words need approval.
fn verdict(word: &FileValue) -> Option<HostVerdict> {
    Some(match word.as_str()? {
        "allow" => HostVerdict::Allow,
        "deny" => HostVerdict::Deny,
        _ => HostVerdict::Ask,
    })
}

impl HostSettings {
    /// Reads the settings in the file itself and in the files beside it. `project` is the directory
    /// of a project's file, or the project of the list.
    pub(super) fn of(host: McpHost, root: &FileValue, beside: &[FileValue], project: Option<&str>) -> Self {
        let mut settings = Self::default();
        for one in std::iter::once(root).chain(beside) {
            match host {
                McpHost::ClaudeCode => settings.claude_code(one, project),
                McpHost::Gemini => settings.gemini(one),
                McpHost::Goose => settings.goose(one),
                McpHost::OpenCode => settings.opencode(one),
                McpHost::Zed => settings.zed(one),
                McpHost::VsCode => settings.vs_code(one),
                McpHost::Cursor => settings.permitted(one.get("permissions")),
                McpHost::ClaudeDesktop
                | McpHost::Codex
                | McpHost::Cline
                | McpHost::Windsurf
                | McpHost::Continue
                | McpHost::Crush
                | McpHost::Package
                | McpHost::Other => {}
            }
        }
        settings
    }

    /// Switches servers off; `key` is the setting that says so.
    fn turn_off(&mut self, names: Option<&FileValue>, key: &'static str) {
        self.off.extend(names.map(FileValue::texts).unwrap_or_default().into_iter().map(|name| (name, key)));
    }

    /// Adds a permission.
    fn permit(&mut self, verdict: HostVerdict, server: &str, tool: &str) {
        self.permissions.push(HostPermission { verdict, server: server.to_owned(), tool: tool.to_owned() });
    }

    fn claude_code(&mut self, one: &FileValue, project: Option<&str>) {
        // In `~/.claude.json` the project has an entry of its own; other files have the settings at
        // the top.
        let own = project.and_then(|project| one.get("projects")?.get(project));
        for one in [Some(one), own].into_iter().flatten() {
            for key in ["disabledMcpServers", "disabledMcpjsonServers"] {
                self.turn_off(one.get(key), key);
            }
            for denied in one.get("deniedMcpServers").map(FileValue::items).unwrap_or_default() {
                self.turn_off(denied.get("serverName"), "deniedMcpServers");
            }
            self.permitted(one.get("permissions"));
            self.permissions_of(HostVerdict::Allow, one.get("allowedTools"));
            if one.at(&["permissions", "defaultMode"]).and_then(FileValue::as_str) == Some("bypassPermissions") {
                (self.says, self.unasked_all) = (true, true);
            }
        }
    }

    /// Reads `{ allow, ask, deny }` of Claude Code and of Cursor's command line.
    fn permitted(&mut self, permissions: Option<&FileValue>) {
        for (key, verdict) in [("allow", HostVerdict::Allow), ("ask", HostVerdict::Ask), ("deny", HostVerdict::Deny)] {
            self.permissions_of(verdict, permissions.and_then(|permissions| permissions.get(key)));
        }
    }

    /// Reads `mcp__server`, `mcp__server__tool` and `Mcp(server:tool)`; other entries are about the
    /// host's own tools.
    fn permissions_of(&mut self, verdict: HostVerdict, entries: Option<&FileValue>) {
        for entry in entries.map(FileValue::texts).unwrap_or_default() {
            if let Some(inside) = entry.strip_prefix("Mcp(").and_then(|rest| rest.strip_suffix(')')) {
                let (server, tool) = inside.split_once(':').unwrap_or((inside, "*"));
                self.permit(verdict, server, tool);
            } else if let Some(name) =
                entry.strip_prefix("mcp__").filter(|name| verdict != HostVerdict::Allow || !name.contains('('))
            {
                let name = name.split('(').next().unwrap_or(name);
                // A server's name may contain `__` too, so the tool is split off later, for each
                // server.
                self.permit(verdict, name, "");
            }
        }
    }

    fn gemini(&mut self, one: &FileValue) {
        for keys in [&["mcp", "excluded"][..], &["excludeMCPServers"]] {
            self.turn_off(one.at(keys), "mcp.excluded");
        }
        for keys in [&["mcp", "allowed"][..], &["allowMCPServers"]] {
            if let Some(only) = one.at(keys).filter(|only| only.is_stated()) {
                self.only = Some(only.texts());
            }
        }
        // `mcp-server-enablement.json` has a switch for each server.
        for (name, state) in one.members() {
            if state.get("enabled") == Some(&FileValue::Bool(false)) && state.members().len() == 1 {
                self.off.push((name.clone(), "mcp-server-enablement.json"));
            }
        }
    }

    fn goose(&mut self, one: &FileValue) {
        if let Some(mode) = one.get("GOOSE_MODE").and_then(FileValue::as_str) {
            (self.says, self.unasked_all) = (true, mode == "auto");
        }
        let lists = [
            ("always_allow", HostVerdict::Allow),
            ("ask_before", HostVerdict::Ask),
            ("never_allow", HostVerdict::Deny),
        ];
        for (key, verdict) in lists {
            for name in one.at(&["user", key]).map(FileValue::texts).unwrap_or_default() {
                self.permit(verdict, &name, "");
            }
        }
    }

    fn opencode(&mut self, one: &FileValue) {
        for (pattern, on) in one.get("tools").map(FileValue::members).unwrap_or_default() {
            if *on == FileValue::Bool(false) {
                self.permit(HostVerdict::Deny, pattern, "_");
            }
        }
        let permission = one.get("permission").unwrap_or(&FileValue::Null);
        let whole = permission.as_str().map(|word| ("*".to_owned(), FileValue::String(word.to_owned())));
        for (pattern, word) in permission.members().iter().chain(&whole) {
            // Other values are rules by argument, for the host's own tools.
            let Some(verdict) = verdict(word) else { continue };
            self.says |= pattern == "*";
            self.unasked_all |= pattern == "*" && verdict == HostVerdict::Allow;
            if pattern != "*" || verdict == HostVerdict::Deny {
                self.permit(verdict, pattern, "_");
            }
        }
    }

    fn zed(&mut self, one: &FileValue) {
        for agent in ["agent", "assistant"] {
            if let Some(always) = one.at(&[agent, "always_allow_tool_actions"]) {
                (self.says, self.unasked_all) = (true, *always == FileValue::Bool(true));
            }
        }
        let permissions = one.at(&["agent", "tool_permissions"]).unwrap_or(&FileValue::Null);
        if let Some(verdict) = permissions.get("default").and_then(verdict) {
            (self.says, self.unasked_all) = (true, verdict == HostVerdict::Allow);
        }
        for (name, tool) in permissions.get("tools").map(FileValue::members).unwrap_or_default() {
            let named = name.strip_prefix("mcp:").and_then(|name| name.split_once(':'));
            if let (Some((server, name)), Some(verdict)) = (named, tool.get("default").and_then(verdict)) {
                self.permit(verdict, server, name);
            }
        }
        let profile = one.at(&["agent", "default_profile"]).and_then(FileValue::as_str).unwrap_or("write");
        self.profile = one.at(&["agent", "profiles", profile]).cloned().or_else(|| self.profile.take());
    }

    fn vs_code(&mut self, one: &FileValue) {
        for key in ["chat.tools.autoApprove", "chat.tools.global.autoApprove"] {
            if let Some(all) = one.get(key) {
                (self.says, self.unasked_all) = (true, *all == FileValue::Bool(true));
            }
        }
    }
}

impl HostServerSettings {
    /// Reads a host's settings of one server.
    pub(super) fn of(host: McpHost, server: &HostEntry, settings: &HostSettings) -> Self {
        let body = &server.body;
        let mut stated = Self { says: settings.says, unasked_all: settings.unasked_all, ..Self::default() };
        stated.switch(body, &server.name, settings);
        stated.lists(host, body);
        stated.approvals(body);
        stated.permissions(&server.name, settings);
        stated.profile(&server.name, settings);
        stated.times(host, body);
        stated
    }

    /// Finds out whether the server is off. Any value except a plain yes counts as off.
    fn switch(&mut self, body: &FileValue, name: &str, settings: &HostSettings) {
        let is_on =
            |key: &str, on: bool| body.get(key).is_none_or(|value| !value.is_stated() || *value == FileValue::Bool(on));
        if !is_on("disabled", false) || !is_on("enabled", true) {
            self.off = Some("the host has switched it off".to_owned());
        } else if let Some((_, key)) = settings.off.iter().find(|(off, _)| off == name) {
            self.off = Some(format!("the host has switched it off (`{key}`)"));
        } else if settings.only.as_ref().is_some_and(|only| !only.iter().any(|on| on == name)) {
            self.off = Some("it is not among the servers that the host allows (`mcp.allowed`)".to_owned());
        }
    }

    /// Reads the lists of tools that are offered and hidden.
    fn lists(&mut self, host: McpHost, body: &FileValue) {
        let list = |keys: &[&str]| keys.iter().filter_map(|key| body.get(key)).find(|list| list.is_stated()).cloned();
        let tools = body.get("tools").filter(|tools| matches!(tools, FileValue::Array(_))).cloned();
        let include = list(&["includeTools", "enabled_tools", "enabledTools", "available_tools"]).or(tools);
        self.include = include.map(|list| list.texts()).filter(|list| !list.iter().any(|name| name == "*"));
        if host == McpHost::Goose {
            // Goose treats an empty list as no list.
            self.include = self.include.take().filter(|list| !list.is_empty());
        }
        self.exclude =
            list(&["excludeTools", "disabled_tools", "disabledTools"]).map(|list| list.texts()).unwrap_or_default();
        // Some hosts have a switch for each tool.
        for (name, state) in body.get("tools").map(FileValue::members).unwrap_or_default() {
            let off = *state == FileValue::Bool(false) || state.get("enabled") == Some(&FileValue::Bool(false));
            self.exclude.extend(off.then(|| name.clone()));
        }
    }

    /// Reads which calls run without approval, from the server's own keys.
    fn approvals(&mut self, body: &FileValue) {
        for key in ["autoApprove", "alwaysAllow"] {
            let Some(list) = body.get(key).filter(|list| list.is_stated()) else { continue };
            self.says = true;
            self.unasked_all |= *list == FileValue::Bool(true) || list.texts().iter().any(|name| name == "*");
            self.unasked.extend(list.texts().into_iter().filter(|name| name != "*"));
        }
        if let Some(trust) = body.get("trust").filter(|trust| trust.is_stated()) {
            self.says = true;
            self.unasked_all |= *trust == FileValue::Bool(true);
        }
        let mode = |value: Option<&FileValue>| value.and_then(FileValue::as_str).map(|mode| mode == "approve");
        if let Some(all) = mode(body.get("default_tools_approval_mode")) {
            self.says = true;
            self.unasked_all |= all;
        }
        for (name, tool) in body.get("tools").map(FileValue::members).unwrap_or_default() {
            match mode(tool.get("approval_mode")) {
                Some(true) => self.unasked.push(name.clone()),
                // One tool of a server whose other tools need no approval.
                Some(false) => self.ask(name),
                None => continue,
            }
            self.says = true;
        }
    }

    /// Makes a tool need approval. No list of all tools is known, so the permission for all tools
    /// ends too.
    fn ask(&mut self, tool: &str) {
        self.says = true;
        self.unasked_all = false;
        self.unasked.retain(|name| !may_cover(tool, name));
    }

    /// Applies the host's permissions that are about this server.
    fn permissions(&mut self, name: &str, settings: &HostSettings) {
        let mine = settings.permissions.iter().filter_map(|one| Some((one.verdict, tool_of(one, name)?)));
        let mine: Vec<(HostVerdict, String)> = mine.collect();
        for (verdict, tool) in &mine {
            match verdict {
                HostVerdict::Allow if tool == "*" => self.unasked_all = true,
                HostVerdict::Allow => self.unasked.push(tool.clone()),
                HostVerdict::Deny if tool == "*" => {
                    let why = "the host denies all of its tools".to_owned();
                    self.off.get_or_insert(why);
                }
                HostVerdict::Deny => self.exclude.push(tool.clone()),
                HostVerdict::Ask => {}
            }
        }
        self.says |= mine.iter().any(|(verdict, _)| *verdict != HostVerdict::Deny);
        for (_, tool) in mine.iter().filter(|(verdict, _)| *verdict == HostVerdict::Ask) {
            self.ask(tool);
        }
    }

    /// Applies the tools that a profile of Zed switches on and off.
    fn profile(&mut self, name: &str, settings: &HostSettings) {
        let Some(profile) = &settings.profile else { return };
        let tools = profile.at(&["context_servers", name, "tools"]).map(FileValue::members).unwrap_or_default();
        let named = |on: bool| {
            tools.iter().filter(move |(_, state)| *state == FileValue::Bool(on)).map(|(name, _)| name.clone())
        };
        self.exclude.extend(named(false));
        if profile.get("enable_all_context_servers") == Some(&FileValue::Bool(false)) {
            self.include = Some(named(true).collect());
        }
    }

    /// Reads the time-outs, whose unit depends on the host.
    fn times(&mut self, host: McpHost, body: &FileValue) {
        let number = |key: &str| body.get(key).and_then(FileValue::scalar).and_then(|text| text.parse::<f64>().ok());
        let seconds = |key: &str| number(key).and_then(|seconds| Duration::try_from_secs_f64(seconds).ok());
        let millis = |key: &str| number(key).and_then(|millis| Duration::try_from_secs_f64(millis / 1000.0).ok());
        // For an unknown host, a number below 1000 is in seconds: no time-out of a call is below a
        // second.
        let in_seconds = matches!(host, McpHost::Cline | McpHost::Goose)
            || (host == McpHost::Other && number("timeout") < Some(1000.0));
        let timeout = if in_seconds { seconds("timeout") } else { millis("timeout") };
        let of_start = matches!(host, McpHost::OpenCode);
        self.call_timeout = seconds("tool_timeout_sec").or(timeout.filter(|_| !of_start));
        let start = seconds("startup_timeout_sec").or(millis("startup_timeout_ms")).or(millis("connectionTimeout"));
        self.start_timeout = start.or(timeout.filter(|_| of_start));
    }
}

/// Returns the tool that a permission is about if it is about this server; `*` for all of its
/// tools.
fn tool_of(permission: &HostPermission, server: &str) -> Option<String> {
    let HostPermission { verdict, server: stated, tool } = permission;
    let fitted = |keep: &[char]| -> String {
        server.chars().map(|c| if c.is_ascii_alphanumeric() || keep.contains(&c) { c } else { '_' }).collect()
    };
    match tool.as_str() {
        // `server`, `server__tool` or `server__*`; hosts replace other characters of the server's
        // name.
        "" => {
            let own = [server.to_owned(), fitted(&['_', '-'])];
            own.iter().find_map(|own| {
                let rest = stated.strip_prefix(own.as_str())?;
                if rest.is_empty() { Some("*".to_owned()) } else { rest.strip_prefix("__").map(str::to_owned) }
            })
        }
        // opencode: a pattern over `server_tool`.
        "_" => {
            let own = [format!("{server}_"), format!("{}_", fitted(&['_', '-']))];
            own.iter().find_map(|own| match stated.strip_prefix(own.as_str()) {
                Some(rest) => Some(rest.to_owned()),
                None if stated.strip_suffix('*').is_some_and(|start| own.starts_with(start)) => Some("*".to_owned()),
                // `*_delete` would become wider than stated, so this is not done for an allowance.
                None if *verdict != HostVerdict::Allow => {
                    stated.strip_prefix('*').map(|rest| format!("*{}", rest.trim_start_matches(['*', '_'])))
                }
                None => None,
            })
        }
        tool if *verdict == HostVerdict::Allow => (stated == server || stated == "*").then(|| tool.to_owned()),
        tool => may_cover(stated, server).then(|| tool.to_owned()),
    }
}

/// Returns true if a pattern may match a name: `*` stands for any text, and only the part before it
/// is compared.
fn may_cover(pattern: &str, name: &str) -> bool {
    match pattern.split_once('*') {
        None => pattern == name,
        Some((start, _)) => name.starts_with(start),
    }
}

#[cfg(test)]
mod tests;
