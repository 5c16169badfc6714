//! Finds the directories of version managers, which put programs on the `PATH` of a login shell
//! only: nvm, mise, Volta, pyenv, and `~/.local/bin`. No shell is run.
//!
//! The search path gets them in user mode only: the programs of a machine's service must not come
//! from the home of an account that the servers themselves can write. A directory that another user
//! may write is left out.

use std::os::unix::fs::MetadataExt as _;
use std::path::{Component, Path, PathBuf};

use crate::source::guard;

/// The limit of nvm aliases that are followed, since an alias may lead to another.
const MAX_ALIASES: usize = 8;
/// The limit of versions of one program that are read.
const MAX_VERSIONS: usize = 256;

/// Directories of other installers below a home. They are not on the search path, since they hold
/// more than servers need.
const INSTALLERS: [&str; 7] = ["bin", ".asdf/shims", ".cargo/bin", ".bun/bin", ".deno/bin", "go/bin", ".rd/bin"];
/// Directories of a machine that the PATH of a service or a desktop may lack.
const MACHINE: [&str; 4] = ["/usr/local/bin", "/opt/homebrew/bin", "/home/linuxbrew/.linuxbrew/bin", "/snap/bin"];

/// The directories in which the managers keep what they install.
struct ManagerHomes {
    home: PathBuf,
    nvm: Vec<PathBuf>,
    mise: PathBuf,
    volta: PathBuf,
    pyenv: PathBuf,
    fnm: PathBuf,
}

impl ManagerHomes {
    /// Reads the directories from the environment; `None` in a service of the system, or without
    /// a home.
    fn of(env: &dyn Fn(&str) -> Option<String>) -> Option<Self> {
        let is_service = env("STATE_DIRECTORY").is_some_and(|directory| !directory.is_empty());
        if is_service { None } else { Self::of_user(env) }
    }

    fn of_user(env: &dyn Fn(&str) -> Option<String>) -> Option<Self> {
        let absolute = |name: &str| env(name).map(PathBuf::from).filter(|path| path.is_absolute());
        let home = absolute("HOME")?;
        let below = |name: &str, rest: &str| absolute(name).unwrap_or_else(|| home.join(rest));
        let nvm = absolute("NVM_DIR").map_or_else(
            || vec![home.join(".nvm"), below("XDG_CONFIG_HOME", ".config").join("nvm")],
            |root| vec![root],
        );
        let of_data = |name: &str, rest: &str| {
            absolute(name).unwrap_or_else(|| below("XDG_DATA_HOME", ".local/share").join(rest))
        };
        let (mise, fnm) = (of_data("MISE_DATA_DIR", "mise"), of_data("FNM_DIR", "fnm"));
        let (volta, pyenv) = (below("VOLTA_HOME", ".volta"), below("PYENV_ROOT", ".pyenv"));
        Some(Self { home, nvm, mise, volta, pyenv, fnm })
    }

    /// Returns the folders whose entries are versions of one program.
    fn versions(&self) -> Vec<PathBuf> {
        let mut folders: Vec<PathBuf> = self.nvm.iter().map(|root| root.join("versions/node")).collect();
        folders.push(self.pyenv.join("versions"));
        for tools in [self.mise.join("installs"), self.volta.join("tools/image")] {
            let entries = std::fs::read_dir(tools).into_iter().flatten().flatten();
            folders.extend(entries.map(|entry| entry.path()));
        }
        folders
    }
}

/// Returns existing directories with programs, in the order of the search. Leaves out directories
/// that the search path has already, and other versions of them: the shell that started us has
/// chosen one.
pub(crate) fn directories(env: &dyn Fn(&str) -> Option<String>, search_path: &[PathBuf]) -> Vec<PathBuf> {
    let Some(homes) = ManagerHomes::of(env) else { return Vec::new() };
    let nvm = homes.nvm.iter().find_map(|root| find_nvm_node(root));
    let has_mise = search_path.iter().any(|directory| directory.starts_with(homes.mise.join("installs")));
    let shims = (!has_mise).then(|| homes.mise.join("shims"));
    let all = [homes.home.join(".local/bin")].into_iter().chain(shims).chain([homes.volta.join("bin")]);
    let all = all.chain(nvm).chain([homes.pyenv.join("shims"), homes.pyenv.join("bin")]);
    let versions = homes.versions();
    let is_there = |directory: &PathBuf| {
        search_path.iter().any(|there| there == directory || is_same_place(there, directory, &versions))
    };
    all.filter(|directory| !is_there(directory) && is_ours(directory)).collect()
}

/// Returns every directory in which version managers and installers put programs, searched or not:
/// where a missing program may be. Of several versions the newest comes first.
pub fn known_directories(env: &dyn Fn(&str) -> Option<String>) -> Vec<PathBuf> {
    let mut all = Vec::new();
    if let Some(homes) = ManagerHomes::of_user(env) {
        all.extend([homes.home.join(".local/bin"), homes.mise.join("shims"), homes.volta.join("bin")]);
        let newest_first = |folder: PathBuf| versions_in(&folder).into_iter().rev().map(|(_, path)| path);
        for root in &homes.nvm {
            all.extend(newest_first(root.join("versions/node")).map(|version| version.join("bin")));
        }
        all.extend(newest_first(homes.fnm.join("node-versions")).map(|version| version.join("installation/bin")));
        all.push(homes.pyenv.join("shims"));
        all.extend(INSTALLERS.iter().map(|directory| homes.home.join(directory)));
    }
    all.extend(MACHINE.iter().map(PathBuf::from));
    all
}

/// Returns the folders of versions: a program found in another version below one of them counts as
/// being at the same place.
pub fn version_folders(env: &dyn Fn(&str) -> Option<String>) -> Vec<PathBuf> {
    let folders = ManagerHomes::of(env).map(|homes| homes.versions()).unwrap_or_default();
    folders.into_iter().filter(|folder| is_ours(folder)).collect()
}

/// Reports whether only we and root can create files in a directory. The group with the number of
/// our own user has no other member.
fn is_ours(directory: &Path) -> bool {
    let Ok(data) = std::fs::metadata(directory) else { return false };
    let own = rustix::process::geteuid().as_raw();
    let is_own_group = data.uid() == own && data.gid() == own;
    let forbidden = if is_own_group { 0o002 } else { 0o022 };
    data.is_dir() && (data.uid() == own || data.uid() == 0) && data.mode() & forbidden == 0
}

/// Reports whether two paths are one program in two versions below one of the folders. Pure.
pub fn is_same_place(one: &Path, other: &Path, folders: &[PathBuf]) -> bool {
    folders.iter().any(|folder| {
        let (Some(one), Some(other)) = (path_below_version(one, folder), path_below_version(other, folder)) else {
            return false;
        };
        one == other
    })
}

/// Returns the path of a program relative to the version below a folder; `None` if it is not below
/// one.
fn path_below_version<'p>(program: &'p Path, folder: &Path) -> Option<&'p Path> {
    let rest = program.strip_prefix(folder).ok()?;
    let mut parts = rest.components();
    let Component::Normal(version) = parts.next()? else { return None };
    let version = version.to_str()?;
    let is_version = version.strip_prefix('v').unwrap_or(version).starts_with(|c: char| c.is_ascii_digit());
    let rest = parts.as_path();
    let goes_down = rest.components().all(|part| matches!(part, Component::Normal(_)));
    (is_version && goes_down && rest.components().next().is_some()).then_some(rest)
}

/// Returns the directory with the programs of the Node version that a new shell would use.
fn find_nvm_node(root: &Path) -> Option<PathBuf> {
    let installed = versions_in(&root.join("versions/node"));
    let wanted = resolve_nvm_alias(&root.join("alias"));
    let newest = |wanted: &[u32]| installed.iter().rev().find(|(version, _)| version.starts_with(wanted));
    let (_, version) = match wanted.as_deref() {
        None | Some("node" | "stable") => newest(&[])?,
        Some("system") => return None,
        Some(text) => newest(&numbers(text)?)?,
    };
    Some(version.join("bin"))
}

/// Returns the versions in a folder, the oldest first. Entries with other names are skipped.
fn versions_in(folder: &Path) -> Vec<(Vec<u32>, PathBuf)> {
    let entries = std::fs::read_dir(folder).into_iter().flatten().flatten().take(MAX_VERSIONS);
    let version = |entry: std::fs::DirEntry| Some((numbers(entry.file_name().to_str()?)?, entry.path()));
    let mut versions: Vec<(Vec<u32>, PathBuf)> = entries.filter_map(version).collect();
    versions.sort();
    versions
}

/// Returns the version to which the alias `default` leads; `None` if there is no such alias.
fn resolve_nvm_alias(folder: &Path) -> Option<String> {
    let mut name = "default".to_owned();
    for step in 0..MAX_ALIASES {
        let goes_down = Path::new(&name).components().all(|part| matches!(part, Component::Normal(_)));
        let read = goes_down.then(|| guard::read(&folder.join(&name)).ok()).flatten();
        match read {
            Some(text) => text.trim().clone_into(&mut name),
            None => return (step > 0).then_some(name),
        }
    }
    // The aliases lead to each other: no version has that name.
    Some(name)
}

/// Returns the numbers of `v22.4.1` or of its beginning.
fn numbers(version: &str) -> Option<Vec<u32>> {
    version.strip_prefix('v').unwrap_or(version).split('.').map(|part| part.parse().ok()).collect()
}

#[cfg(test)]
mod tests;
