//! Finds the table of an upstream, and puts an edited configuration file in force or takes the edit
//! back.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use nix::sys::signal::{SigSet, Signal};

use crate::cli::exit::{CONFIG, NO, TEMPFAIL};
use crate::cli::reach::daemon::{self, DaemonConnection, DaemonUnavailable};
use crate::cli::reach::exchange::exchange;
use crate::cli::reach::source;
use crate::cli::words::meant::suggest_names;
use crate::cli::words::options::CommonOptions;
use crate::cli::words::output::CommandFailure;
use crate::config;
use crate::config::Config;
use crate::config::source::guard;
use crate::operator::request::{ReloadParams, Request};
use crate::operator::views::ReloadView;
use crate::wire::foreign;

/// A file of the configuration with its text before and after an edit.
#[derive(Clone, Copy, Debug)]
pub(super) struct FileEdit<'a> {
    /// The configuration file, which is the edited one or has it in its `conf.d`.
    pub(super) main: &'a Path,
    pub(super) path: &'a Path,
    /// `None` if the edit makes the file.
    pub(super) before: Option<&'a str>,
    pub(super) after: &'a str,
}

/// Connects to the daemon; `None` if none runs.
///
/// # Errors
/// 1 if the daemon runs with another configuration file, else as [`daemon::connect`].
pub(super) fn find_daemon(common: &CommonOptions, main: &Path) -> Result<Option<DaemonConnection>, CommandFailure> {
    let daemon = match daemon::connect(common, "admin", None) {
        Ok(daemon) => daemon,
        Err(DaemonUnavailable::Silent(failure))
            if failure.text.starts_with("no daemon answers") && common.socket.is_none() =>
        {
            return Ok(None);
        }
        Err(failure) => return Err(failure.into()),
    };
    let whole = |path: &Path| path.canonicalize().unwrap_or_else(|_| path.to_owned());
    if let Some(other) = daemon.hello.config.as_ref().map(PathBuf::from)
        && whole(&other) != whole(main)
    {
        let text = format!(
            "the daemon runs with {}, and this command would edit {}; name the daemon's by --config",
            other.display(),
            main.display()
        );
        return Err(CommandFailure::new(NO, text));
    }
    Ok(Some(daemon))
}

/// The file that has the table of an upstream.
pub(super) struct UpstreamFile {
    /// The configuration file, which is this one or has it in its `conf.d`.
    pub(super) main: PathBuf,
    pub(super) path: PathBuf,
    pub(super) text: String,
    pub(super) config: Config,
    pub(super) daemon: Option<DaemonConnection>,
}

impl UpstreamFile {
    /// Finds the file in the configuration in force.
    ///
    /// # Errors
    /// 1 if there is no such upstream, 78 if the configuration is wrong, else as [`find_daemon`].
    pub(super) fn find(common: &CommonOptions, name: &str) -> Result<Self, CommandFailure> {
        let config = source::load(common, &[])?.config;
        let none = || CommandFailure::new(NO, "there is no configuration file; `headend init` writes one");
        let main = config.path.clone().ok_or_else(none)?;
        let daemon = find_daemon(common, &main)?;
        let mut names = Vec::new();
        for path in std::iter::once(&main).chain(&config.also) {
            let failed =
                |error: &dyn std::fmt::Display| CommandFailure::new(CONFIG, format!("{}: {error}", path.display()));
            let text = guard::read(path).map_err(|error| failed(&error))?;
            let whole: toml::Table = text.parse().map_err(|error: toml::de::Error| failed(&error))?;
            let Some(upstreams) = whole.get("upstreams").and_then(toml::Value::as_table) else { continue };
            if upstreams.contains_key(name) {
                let path = path.clone();
                return Ok(Self { main, path, text, config, daemon });
            }
            names.extend(upstreams.keys().cloned());
        }
        let (shown, meant) = (foreign::short(name, MOST_SHOWN), suggest_names(name, names));
        Err(CommandFailure::new(NO, format!("no configuration file has an upstream `{shown}`{meant}")))
    }
}

/// Most characters of a wrong name or address in an error.
pub(in crate::cli) const MOST_SHOWN: usize = 100;

impl FileEdit<'_> {
    /// Writes the file, then lets the daemon read it or, without one, checks the configuration and
    /// passes the outcome to `record`. Returns the effect behind a semicolon, empty if there is
    /// nothing to tell. From its beginning to the end of the process, Ctrl-C and the like are held
    /// back: the file would be left without its check.
    ///
    /// # Errors
    /// The reason why the file is as before.
    pub(super) fn put_in_force(
        self,
        daemon: Option<DaemonConnection>,
        params: Option<ReloadParams>,
        record: impl FnOnce(Result<&str, &str>),
    ) -> Result<String, CommandFailure> {
        let written = |error: io::Error| {
            CommandFailure::new(TEMPFAIL, format!("{}: {error}; nothing was changed", self.path.display()))
        };
        // If the system does not hold signals back, only this protection is lost.
        [Signal::SIGINT, Signal::SIGTERM, Signal::SIGHUP].into_iter().collect::<SigSet>().thread_block().ok();
        exchange(self.path, self.before, self.after).map_err(written)?;
        let outcome = match daemon {
            Some(daemon) if daemon.hello.config.is_none() => {
                Ok("the daemon runs without a configuration file; end it and start it again".to_owned())
            }
            Some(mut daemon) => {
                daemon.ask(&Request::Reload(params.unwrap_or_default())).map(|ReloadView { plan }| plan)
            }
            None => {
                let checked = config::load(self.main).outcome;
                let checked = checked.map(|_| "no daemon runs, so it holds from its next start");
                record(checked.as_ref().copied().map_err(String::as_str));
                checked.map(str::to_owned).map_err(|why| CommandFailure::new(CONFIG, why))
            }
        };
        match outcome {
            // The daemon watches its files and may have reloaded already.
            Ok(plan) if plan == "nothing changed" => Ok(String::new()),
            Ok(plan) => Ok(format!("; {}", foreign::line(&plan))),
            Err(failure) => {
                let back = match self.before {
                    Some(before) => exchange(self.path, Some(self.after), before),
                    None => fs::remove_file(self.path),
                };
                let back = back.map_or_else(
                    |error| format!("the edit stays in {}: {error}", self.path.display()),
                    |()| "the file is as before".to_owned(),
                );
                Err(CommandFailure { text: format!("{}; {back}", failure.text), ..failure })
            }
        }
    }
}
