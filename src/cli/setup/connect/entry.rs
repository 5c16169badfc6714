//! The entry that points a host at headend.

use std::env;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

use serde_json::json;

use super::edit::EntryMembers;
use crate::cli::exit::NO;
use crate::cli::reach::{daemon, source};
use crate::cli::setup::hosts::KnownHost;
use crate::cli::words::meant::suggest_names;
use crate::cli::words::options::CommonOptions;
use crate::cli::words::output::CommandFailure;
use crate::config::HostCommand;

/// Returns the command line by which hosts start headend: the absolute path of this program, and
/// the paths of the daemon's configuration and socket where a host would not find them.
///
/// # Errors
/// 1 if the configuration has no such profile.
pub(super) fn command_line(common: &CommonOptions, profile: Option<&str>) -> Result<Vec<String>, CommandFailure> {
    let config = source::load_quietly(common);
    if let (Some(profile), Some(config)) = (profile, &config) {
        let names = || config.profiles.iter().map(|known| known.name.to_string());
        if !names().any(|name| name == profile) {
            let meant = suggest_names(profile, names());
            return Err(CommandFailure::new(NO, format!("the configuration has no profile `{profile}`{meant}")));
        }
    }
    let command = match daemon::connect(common, "admin", None) {
        Ok(daemon) => {
            let (config, state) = (daemon.hello.config.map(PathBuf::from), daemon.hello.state.unwrap_or_default());
            let uid = rustix::process::getuid().as_raw();
            HostCommand::of(config.as_deref(), Path::new(&state), &daemon.socket, &source::environment, uid)
        }
        Err(_) => {
            let file = config.as_ref().and_then(|config| config.path.clone()).or_else(|| common.config.clone());
            let admin = config.map(|config| config.admin).unwrap_or_default();
            source::host_command(common, &admin, file.as_deref())
        }
    };
    let program = program().display().to_string();
    let profile = profile.into_iter().flat_map(|name| ["--profile".to_owned(), name.to_owned()]);
    Ok(std::iter::once(program).chain(command.arguments()).chain(profile).collect())
}

/// Returns the absolute path of this program: the one by which it was started, which an upgrade
/// keeps, or else the one behind all links.
fn program() -> PathBuf {
    let own = env::current_exe().unwrap_or_else(|_| PathBuf::from("headend"));
    let first = env::args_os().next().map(PathBuf::from).unwrap_or_default();
    let folders = if first.components().count() > 1 { None } else { env::var_os("PATH") };
    let found = folders.iter().flat_map(env::split_paths).map(|folder| folder.join(&first));
    let inode = |path: &Path| path.metadata().map(|data| (data.dev(), data.ino())).ok();
    let mut places = found.chain([first.clone()]).filter_map(|path| std::path::absolute(path).ok());
    places.find(|path| inode(path).is_some_and(|theirs| inode(&own) == Some(theirs))).unwrap_or(own)
}

/// Builds the entry in the form of a host.
pub(super) fn entry(host: &KnownHost, words: &[String]) -> EntryMembers {
    let (program, args) = words.split_first().map_or(("", words), |(program, args)| (program, args));
    let member = |word: &'static str| match word {
        "words" => ("command", json!(words)),
        "command" | "cmd" => (word, json!(program)),
        "args" => (word, json!(args)),
        "tools" => (word, json!(["*"])),
        "enabled" => (word, json!(true)),
        other => other.split_once('=').map_or((other, json!(null)), |(name, value)| (name, json!(value))),
    };
    EntryMembers(host.form.split(' ').map(member).collect())
}

/// Formats the entry within its list as YAML, of which JSON is a part. A list of Continue has
/// items, that of Goose has names.
pub(super) fn yaml(host: &KnownHost, entry: &EntryMembers) -> String {
    let lines: Vec<String> = entry.0.iter().map(|(key, value)| format!("{key}: {value}\n")).collect();
    let list = host.list.concat();
    if list == "extensions" {
        format!("{list}:\n  headend:\n    {}", lines.join("    "))
    } else {
        format!("{list}:\n  - {}", lines.join("    "))
    }
}
