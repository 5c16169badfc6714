//! The table of hosts: programs that start MCP servers, with the files in which they keep them and
//! the form of an entry for headend. `import`, `connect`, `disconnect` and `doctor` use it.

use std::path::{Path, PathBuf};

use crate::cli::reach::source::environment;

/// A program that keeps a list of MCP servers in a file.
#[derive(Clone, Copy, Debug)]
pub(super) struct KnownHost {
    /// Name on the command line.
    pub(super) id: &'static str,
    /// Name in texts.
    pub(super) title: &'static str,
    /// Files of the user, relative to the home directory, for Linux and macOS. The first one that
    /// exists gets the entry.
    files: &'static [&'static str],
    /// Further files of the user that have servers.
    also: &'static [&'static str],
    /// Files of a project, relative to its directory.
    project: &'static [&'static str],
    /// Variable that names another directory for the first file.
    moved_by: Option<&'static str>,
    /// Keys that lead to the list of servers.
    pub(super) list: &'static [&'static str],
    /// Members of an entry in order: `command` or `cmd` is the program, `args` its arguments,
    /// `words` both, and `NAME=VALUE` a text.
    pub(super) form: &'static str,
    /// True if headend edits the file; otherwise it only prints the entry.
    pub(super) is_edited: bool,
    /// True if the host locks its file by a directory with the suffix `.lock`.
    pub(super) has_lock: bool,
}

/// Form of an entry with the type of its transport.
const STDIO: &str = "type=stdio command args";

/// All hosts; those that headend edits come first.
#[rustfmt::skip]
pub(super) const HOSTS: &[KnownHost] = &[
    edited("claude-code", "Claude Code", &[".claude.json"]).project(&[".mcp.json"]).form(STDIO)
        .moved_by("CLAUDE_CONFIG_DIR").locked(),
    edited("claude-desktop", "Claude Desktop",
        &[".config/Claude/claude_desktop_config.json", "Library/Application Support/Claude/claude_desktop_config.json"]),
    edited("codex", "Codex", &[".codex/config.toml"]).project(&[".codex/config.toml"]).list(&["mcp_servers"])
        .moved_by("CODEX_HOME"),
    edited("cursor", "Cursor", &[".cursor/mcp.json"]).project(&[".cursor/mcp.json"]),
    edited("vscode", "VS Code", &[".config/Code/User/mcp.json", "Library/Application Support/Code/User/mcp.json"])
        .also(&[".config/Code/User/settings.json", "Library/Application Support/Code/User/settings.json"])
        .project(&[".vscode/mcp.json"]).list(&["servers"]).form(STDIO),
    edited("gemini", "Gemini CLI", &[".gemini/settings.json"]).project(&[".gemini/settings.json"]),
    edited("opencode", "opencode", &[".config/opencode/opencode.json", ".config/opencode/opencode.jsonc"])
        .project(&["opencode.json", "opencode.jsonc"]).list(&["mcp"]).form("type=local words"),
    edited("zed", "Zed", &[".config/zed/settings.json"]).project(&[".zed/settings.json"]).list(&["context_servers"])
        .form("source=custom command args"),
    edited("copilot", "Copilot CLI", &[".copilot/mcp-config.json"]).form("type=local command args tools"),
    edited("lmstudio", "LM Studio", &[".lmstudio/mcp.json"]),
    host("windsurf", "Windsurf", &[".codeium/windsurf/mcp_config.json"]),
    host("vscode-insiders", "VS Code Insiders", &[".config/Code - Insiders/User/mcp.json"]).list(&["servers"]).form(STDIO),
    host("vscodium", "VSCodium", &[".config/VSCodium/User/mcp.json"]).list(&["servers"]).form(STDIO),
    host("cline", "Cline", &[
        ".config/Code/User/globalStorage/saoudrizwan.claude-dev/settings/cline_mcp_settings.json",
        ".cline/data/settings/cline_mcp_settings.json",
    ]),
    host("roo", "Roo Code",
        &[".config/Code/User/globalStorage/rooveterinaryinc.roo-cline/settings/mcp_settings.json"]).project(&[".roo/mcp.json"]),
    host("kilo", "Kilo Code",
        &[".config/Code/User/globalStorage/kilocode.kilo-code/settings/mcp_settings.json"]).project(&[".kilocode/mcp.json"]),
    host("qwen", "Qwen Code", &[".qwen/settings.json"]),
    host("continue", "Continue", &[".continue/config.yaml"]).also(&[".continue/config.json"])
        .form("name=headend command args"),
    host("goose", "Goose", &[".config/goose/config.yaml"]).list(&["extensions"])
        .form("name=headend type=stdio enabled cmd args"),
    host("crush", "Crush", &[".config/crush/crush.json"]).project(&[".crush.json", "crush.json"]).list(&["mcp"]).form(STDIO),
    host("kiro", "Kiro", &[".kiro/settings/mcp.json"]),
    host("amazonq", "Amazon Q", &[".aws/amazonq/mcp.json"]),
    host("shared", "the shared list of servers", &[".config/mcp/mcp.json"]),
];

const fn host(id: &'static str, title: &'static str, files: &'static [&'static str]) -> KnownHost {
    let (list, form): (&[&str], _) = (&["mcpServers"], "command args");
    let (is_edited, has_lock) = (false, false);
    KnownHost { id, title, files, also: &[], project: &[], moved_by: None, list, form, is_edited, has_lock }
}

const fn edited(id: &'static str, title: &'static str, files: &'static [&'static str]) -> KnownHost {
    KnownHost { is_edited: true, ..host(id, title, files) }
}

impl KnownHost {
    const fn also(self, also: &'static [&'static str]) -> Self {
        Self { also, ..self }
    }

    const fn project(self, project: &'static [&'static str]) -> Self {
        Self { project, ..self }
    }

    const fn moved_by(self, variable: &'static str) -> Self {
        Self { moved_by: Some(variable), ..self }
    }

    const fn list(self, list: &'static [&'static str]) -> Self {
        Self { list, ..self }
    }

    const fn form(self, form: &'static str) -> Self {
        Self { form, ..self }
    }

    const fn locked(self) -> Self {
        Self { has_lock: true, ..self }
    }
}

/// The directories in which the files of hosts are looked for.
#[derive(Clone, Debug)]
pub(super) struct HostFolders {
    pub(super) home: PathBuf,
    /// Replaces `~/.config`.
    config: Option<PathBuf>,
    /// Directories of [`KnownHost::moved_by`], by variable.
    moved: Vec<(&'static str, PathBuf)>,
}

impl HostFolders {
    /// Reads the directories from the environment; `None` without a home directory.
    pub(super) fn from_environment() -> Option<Self> {
        let folder = |name: &str| environment(name).map(PathBuf::from).filter(|dir| dir.is_absolute());
        let moved = HOSTS.iter().filter_map(|host| host.moved_by).filter_map(|name| Some((name, folder(name)?)));
        Some(Self { home: folder("HOME")?, config: folder("XDG_CONFIG_HOME"), moved: moved.collect() })
    }

    #[cfg(test)]
    pub(super) const fn of_home(home: PathBuf) -> Self {
        Self { home, config: None, moved: Vec::new() }
    }

    /// Returns the directory that a file of the user must lie in after its links are followed.
    pub(super) fn root<'a>(&'a self, path: &'a Path) -> &'a Path {
        let others = self.config.iter().chain(self.moved.iter().map(|(_, dir)| dir));
        std::iter::once(&self.home).chain(others).find(|root| path.starts_with(root)).unwrap_or(&self.home)
    }

    /// Lists the files of the user's hosts that exist.
    pub(super) fn present(&self) -> Vec<PathBuf> {
        let mut found: Vec<PathBuf> = Vec::new();
        for path in HOSTS.iter().flat_map(|host| host.of_user(self)).filter(|path| path.is_file()) {
            if !found.contains(&path) {
                found.push(path);
            }
        }
        found
    }
}

/// Lists the host files of a project that exist. They may have come with the project from other
/// people.
pub(super) fn of_project(folder: &Path) -> Vec<PathBuf> {
    let files = HOSTS.iter().flat_map(|host| host.project).map(|file| folder.join(file));
    files.filter(|path| path.is_file()).collect()
}

impl KnownHost {
    /// Lists the possible files of the user, those that get an entry first.
    fn of_user(&self, folders: &HostFolders) -> Vec<PathBuf> {
        let moved = folders.moved.iter().find(|(name, _)| Some(*name) == self.moved_by).map(|(_, dir)| dir);
        let place = |(at, file): (usize, &&str)| match (moved, file.strip_prefix(".config/"), &folders.config) {
            (Some(dir), ..) if at == 0 => dir.join(Path::new(file).file_name().unwrap_or_default()),
            (_, Some(below), Some(config)) => config.join(below),
            _ => folders.home.join(file),
        };
        self.files.iter().chain(self.also).enumerate().map(place).collect()
    }

    /// Returns the file of the user that gets the entry: one that exists, else the usual one of
    /// this system.
    pub(super) fn user_file(&self, folders: &HostFolders) -> Option<PathBuf> {
        let mut files = self.of_user(folders);
        files.truncate(files.len() - self.also.len());
        let is_mac = |path: &PathBuf| path.starts_with(folders.home.join("Library"));
        let usual = files.iter().find(|path| is_mac(path) == cfg!(target_os = "macos")).or_else(|| files.first());
        files.iter().find(|path| path.is_file()).or(usual).cloned()
    }

    /// Returns the file of the project in a directory that gets the entry; `None` if the host has
    /// none.
    pub(super) fn project_file(&self, folder: &Path) -> Option<PathBuf> {
        let files = || self.project.iter().map(|file| folder.join(file));
        files().find(|path| path.is_file()).or_else(|| files().next())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_file_that_exists_gets_the_entry_and_a_variable_moves_it() {
        let home = tempfile::tempdir().unwrap();
        let folders = HostFolders::of_home(home.path().to_owned());
        let host = |id: &str| HOSTS.iter().find(|host| host.id == id).unwrap();
        let of = |id: &str, folders: &HostFolders| host(id).user_file(folders).unwrap();
        assert_eq!(of("opencode", &folders), home.path().join(".config/opencode/opencode.json"));
        let jsonc = home.path().join(".config/opencode/opencode.jsonc");
        std::fs::create_dir_all(jsonc.parent().unwrap()).unwrap();
        std::fs::write(&jsonc, "").unwrap();
        assert_eq!(of("opencode", &folders), jsonc);
        assert!(of("vscode", &folders).ends_with("Code/User/mcp.json"));
        let moved = vec![("CODEX_HOME", PathBuf::from("/else"))];
        let other = HostFolders { config: Some("/cfg".into()), moved, ..folders };
        assert_eq!(of("codex", &other), Path::new("/else/config.toml"));
        assert_eq!(of("zed", &other), Path::new("/cfg/zed/settings.json"));
        assert_eq!(
            (other.root(Path::new("/cfg/zed/settings.json")), other.root(&jsonc)),
            ("/cfg".as_ref(), home.path())
        );
        assert_eq!(host("lmstudio").project_file(home.path()), None);
        assert_eq!(HOSTS.iter().filter(|host| host.is_edited).count(), 10);
    }
}
