//! Changes of headend's own configuration files, which are all in force or are all taken back.

use std::path::PathBuf;

use crate::cli::exit::TEMPFAIL;
use crate::cli::reach::daemon::DaemonConnection;
use crate::cli::reach::exchange::exchange;
use crate::cli::setup::edit::FileEdit;
use crate::cli::setup::import::ImportTarget;
use crate::cli::setup::switch::{record, switched};
use crate::cli::words::options::CommonOptions;
use crate::cli::words::output::CommandFailure;
use crate::operator::request::ReloadParams;

/// A configuration file with its text before and after a change.
#[derive(Clone, Debug)]
pub(super) struct ConfigChange {
    pub(super) path: PathBuf,
    /// `None` if the change makes the file.
    pub(super) before: Option<String>,
    pub(super) after: String,
}

/// The upstreams that a command enables or disables.
#[derive(Clone, Debug, Default)]
pub(super) struct SwitchedUpstreams {
    pub(super) names: Vec<String>,
    pub(super) on: bool,
}

/// Returns the changes that add a text to headend's file and switch upstreams, wherever their
/// tables are.
///
/// # Errors
/// The reason why a file cannot be edited.
pub(super) fn plan(
    target: &ImportTarget,
    addition: &str,
    switches: &SwitchedUpstreams,
) -> Result<Vec<ConfigChange>, String> {
    let names: Vec<&str> = switches.names.iter().map(String::as_str).collect();
    let main = if addition.is_empty() { target.text.clone() } else { Some(target.with_addition(addition)?) };
    let main = main.map(|after| (&target.path, target.text.clone(), after));
    let also = target.also.iter().map(|(path, text)| (path, Some(text.clone()), text.clone()));
    let mut changes = Vec::new();
    for (path, before, after) in main.into_iter().chain(also) {
        let after = switched(&after, &names, switches.on)?;
        if before.as_ref() != Some(&after) {
            changes.push(ConfigChange { path: path.clone(), before, after });
        }
    }
    Ok(changes)
}

/// Writes the changes, and lets the daemon read them once. Returns the effect behind a semicolon.
///
/// # Errors
/// The reason why all files are as before.
pub(super) fn put_in_force(
    common: &CommonOptions,
    target: &ImportTarget,
    changes: &[ConfigChange],
    mut daemon: Option<DaemonConnection>,
    switches: &SwitchedUpstreams,
) -> Result<String, CommandFailure> {
    target.make_folder().map_err(|why| CommandFailure::new(TEMPFAIL, why))?;
    // The record of the daemon names one upstream at most; its plan names all.
    let action = if switches.on { "enable" } else { "disable" };
    let params = match switches.names.as_slice() {
        [name] => {
            Some(ReloadParams { action: Some(action.to_owned()), name: Some(name.clone()), ..ReloadParams::default() })
        }
        _ => None,
    };
    let mut plan = String::new();
    for (at, ConfigChange { path, before, after }) in changes.iter().enumerate() {
        let is_last = at + 1 == changes.len();
        let edit = FileEdit { main: &target.path, path, before: before.as_deref(), after };
        let record_all = |outcome: Result<&str, &str>| {
            let names: Vec<&str> = switches.names.iter().filter(|_| is_last).map(String::as_str).collect();
            record(common, &names, switches.on, outcome);
        };
        let daemon = if is_last { daemon.take() } else { None };
        plan = edit.put_in_force(daemon, params.clone().filter(|_| is_last), record_all).inspect_err(|_| {
            for ConfigChange { path, before, after } in changes.iter().take(at) {
                // The first error is returned; a failure here leaves the file that the error names.
                drop(exchange(path, Some(after.as_str()), before.as_deref().unwrap_or_default()));
            }
        })?;
    }
    Ok(plan)
}
