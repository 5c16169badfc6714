//! Additions to headend's own configuration file, which are in force or are taken back.

use std::path::{Path, PathBuf};

use crate::cli::exit::{CONFIG, NO, TEMPFAIL};
use crate::cli::reach::daemon;
use crate::cli::reach::exchange::FileVersion;
use crate::cli::setup::import::ImportTarget;
use crate::cli::words::options::CommonOptions;
use crate::cli::words::output::CommandFailure;
use crate::config;
use crate::config::source::guard;
use crate::operator::request::{ReloadParams, Request};
use crate::operator::views::ReloadView;
use crate::wire::foreign;

/// Adds a text to headend's file, and reloads the daemon if one runs. Returns what is to be said
/// about that, behind a semicolon.
///
/// # Errors
/// The file is as before: 1 if the daemon runs with another file or refuses, 75 if the file cannot
/// be written, 78 if the configuration is wrong.
pub(super) fn extend(common: &CommonOptions, target: &ImportTarget, text: &str) -> Result<String, CommandFailure> {
    let daemon = daemon::connect(common, "admin", None).ok();
    let whole = |path: &Path| path.canonicalize().unwrap_or_else(|_| path.to_owned());
    let theirs = daemon.as_ref().map(|daemon| daemon.hello.config.as_ref().map(PathBuf::from));
    let own = target.path.display();
    if let Some(Some(path)) =
        theirs.as_ref().filter(|path| path.as_ref().is_some_and(|path| whole(path) != whole(&target.path)))
    {
        let theirs = path.display();
        let text =
            format!("the daemon runs with {theirs}, and this command would edit {own}; name the daemon's by --config");
        return Err(CommandFailure::new(NO, text));
    }
    target.add(text).map_err(|why| CommandFailure::new(TEMPFAIL, why))?;
    let outcome = match daemon.filter(|_| theirs != Some(None)) {
        Some(mut daemon) => {
            let plan = daemon.ask(&Request::Reload(ReloadParams::default()));
            plan.map(|ReloadView { plan }| format!("; {}", foreign::line(&plan)))
        }
        None => {
            let restart = if theirs.is_some() { "; restart the daemon, which runs without this file" } else { "" };
            let loaded = config::load(&target.path).outcome;
            loaded.map(|_| restart.to_owned()).map_err(|why| CommandFailure::new(CONFIG, why))
        }
    };
    outcome.inspect_err(|_| {
        let written = FileVersion::read(&whole(&target.path), guard::MAX_CONFIG);
        let is_own = |now: &FileVersion| now.text.as_ref() == target.with_addition(text).ok().as_ref();
        if let Ok(now) = written
            && is_own(&now)
        {
            // The first error is returned; a failure here leaves the file that it names.
            drop(now.replace(&whole(&target.path), target.text(), guard::MAX_CONFIG));
        }
    })
}
