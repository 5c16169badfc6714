//! Finds files: the configuration, the state directory, the programs of upstreams.

use std::io;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};

use super::surroundings::{EnvironmentLookup, search_path};
use crate::model::{Config, UpstreamTarget};
use crate::source::expand::VariableText;

/// The configuration of the whole machine.
pub const SYSTEM: &str = "/etc/headend/headend.toml";

/// The search path if the environment has no `PATH`.
const DEFAULT_PATH: &str = "/usr/local/bin:/usr/bin:/bin";

/// The location of the configuration.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ConfigLocation {
    File(PathBuf),
    /// No file: the embedded default applies.
    Embedded,
}

/// Finds the configuration: `explicit`, `$HEADEND_CONFIG`, `$XDG_CONFIG_HOME/headend/headend.toml`
/// (`~/.config/..`), `/etc/headend/headend.toml`.
///
/// A path that the user named is not checked for existence, so that a typing error never leads to
/// another configuration.
pub fn locate(explicit: Option<&Path>, env: &dyn Fn(&str) -> Option<String>) -> ConfigLocation {
    // A file that cannot be examined counts as present: loading it reports why.
    locate_among(explicit, env, &|path| path.try_exists().unwrap_or(true))
}

fn locate_among(
    explicit: Option<&Path>,
    env: &dyn Fn(&str) -> Option<String>,
    exists: &dyn Fn(&Path) -> bool,
) -> ConfigLocation {
    let named = explicit.map(Path::to_owned).or_else(|| variable(env, "HEADEND_CONFIG").map(PathBuf::from));
    if let Some(path) = named {
        return ConfigLocation::File(path);
    }
    let found = user_file(env).into_iter().chain([PathBuf::from(SYSTEM)]).find(|path| exists(path));
    found.map_or(ConfigLocation::Embedded, ConfigLocation::File)
}

/// Returns the path of the user's configuration: `$XDG_CONFIG_HOME/headend/headend.toml`
/// (`~/.config/..`). `None` if the environment names no directory.
pub fn user_file(env: &dyn Fn(&str) -> Option<String>) -> Option<PathBuf> {
    base_dir(env, "XDG_CONFIG_HOME", ".config").map(|dir| dir.join("headend/headend.toml"))
}

/// Returns the state directory: `$STATE_DIRECTORY`, else `$XDG_STATE_HOME/headend`
/// (`~/.local/state/headend`). `None` if the environment names no directory.
pub fn state_dir(env: &dyn Fn(&str) -> Option<String>) -> Option<PathBuf> {
    if let Some(dirs) = variable(env, "STATE_DIRECTORY") {
        // systemd separates several with colons; the first is ours.
        return dirs.split(':').next().map(PathBuf::from);
    }
    base_dir(env, "XDG_STATE_HOME", ".local/state").map(|dir| dir.join("headend"))
}

/// Returns a variable that is set and not empty.
fn variable(env: &dyn Fn(&str) -> Option<String>, name: &str) -> Option<String> {
    env(name).filter(|value| !value.is_empty())
}

/// Returns an XDG base directory. The specification says to ignore a relative one.
fn base_dir(env: &dyn Fn(&str) -> Option<String>, name: &str, below_home: &str) -> Option<PathBuf> {
    let stated = variable(env, name).map(PathBuf::from).filter(|dir| dir.is_absolute());
    stated.or_else(|| variable(env, "HOME").map(|home| Path::new(&home).join(below_home)))
}

/// Returns a variable of the environment; `None` if it is unset or not UTF-8.
#[cfg(not(any(test, feature = "testing")))]
pub fn environment(name: &str) -> Option<String> {
    std::env::var(name).ok()
}

/// Returns a variable of the environment that a stage plays, or of the real one.
#[cfg(any(test, feature = "testing"))]
pub fn environment(name: &str) -> Option<String> {
    crate::machine::played::variable(name)
}

/// Describes why a configuration file was not read, to follow its name in a message.
pub(crate) fn describe_read_error(error: &io::Error) -> String {
    // Errors of `guard` are sentences already; the system's are not.
    let is_ours = error.kind() == io::ErrorKind::PermissionDenied && error.raw_os_error().is_none();
    if is_ours { error.to_string() } else { format!("cannot be read: {error}") }
}

/// Reports whether there is an executable file at a path.
pub fn is_program(path: &Path) -> bool {
    std::fs::metadata(path).is_ok_and(|data| data.is_file() && data.permissions().mode() & 0o111 != 0)
}

/// Returns warnings of `check` about programs and directories that do not exist. They are no
/// problems: `check` may run on another machine than `serve`.
pub fn preflight(config: &Config) -> Vec<String> {
    let env = |name: &str| std::env::var_os(name).or_else(|| (name == "PATH").then(|| DEFAULT_PATH.into()));
    find_missing(config, &env, &is_program, &|path| path.is_dir())
}

/// Does what [`preflight`] does, with the environment and the file system as functions.
fn find_missing(
    config: &Config,
    env: &EnvironmentLookup<'_>,
    is_program: &dyn Fn(&Path) -> bool,
    is_dir: &dyn Fn(&Path) -> bool,
) -> Vec<String> {
    let mut warnings = Vec::new();
    for upstream in &config.upstreams {
        let UpstreamTarget::Stdio { command, cwd, .. } = &upstream.target else { continue };
        let at = format!("upstreams.{}", upstream.name);
        let path = search_path(upstream, true, env).map(|path| path.to_string_lossy().into_owned()).unwrap_or_default();
        // A variable that is not set has its own warning already.
        let is_told = |text: &&VariableText| !upstream.lacks.is_empty() && text.expose().contains("${");
        let named =
            |shown: String, text: &VariableText| if text.is_expanded() { text.written().to_owned() } else { shown };
        let word = |shown: String| command.first().map_or_else(String::new, |word| named(shown, word));
        match command.first().filter(|word| !is_told(word)).map(VariableText::expose) {
            Some(program) if program.contains('/') => {
                let full = Path::new(cwd.as_ref().map_or("", VariableText::expose)).join(program);
                if !is_program(&full) {
                    let is_plain = cwd.as_ref().is_none_or(|cwd| !cwd.is_expanded());
                    let shown = if is_plain { full.display().to_string() } else { program.to_owned() };
                    warnings.push(format!("{at}.command: no program at `{}`", word(shown)));
                }
            }
            Some(program) if !path.split(':').any(|dir| is_program(&Path::new(dir).join(program))) => {
                // A PATH may have values of variables too.
                let hidden = upstream.expanded.iter().filter(|(_, value)| value.expose().len() > 3);
                let path = hidden.fold(path, |path, (name, value)| path.replace(value.expose(), &format!("${name}")));
                warnings.push(format!("{at}.command: `{}` not found in PATH ({path})", word(program.to_owned())));
            }
            Some(_) | None => {}
        }
        if let Some(cwd) = cwd.as_ref().filter(|cwd| !is_told(cwd) && !is_dir(Path::new(cwd.expose()))) {
            warnings.push(format!("{at}.cwd: no directory at `{}`", cwd.written()));
        }
    }
    warnings
}

#[cfg(test)]
mod tests;
