//! Changes of headend's own configuration files, which are made together or not at all.

use std::fs::{self, DirBuilder};
use std::os::unix::fs::DirBuilderExt as _;
use std::path::{Path, PathBuf};

use toml_edit::DocumentMut;

use crate::cli::exit::{CONFIG, NO, TEMPFAIL};
use crate::cli::reach::daemon::{self, DaemonConnection};
use crate::cli::reach::exchange::exchange;
use crate::cli::setup::import::ImportTarget;
use crate::cli::setup::switch::{lines_as_in, set_enabled};
use crate::cli::words::options::CommonOptions;
use crate::cli::words::output::CommandFailure;
use crate::config;
use crate::operator::request::{ReloadParams, Request};
use crate::operator::views::ReloadView;
use crate::wire::foreign;

/// New texts of headend's files.
#[derive(Debug, Default)]
pub(super) struct ConfigEdit {
    main: PathBuf,
    /// Path, text now (`None` for a missing file), and the new text.
    files: Vec<(PathBuf, Option<String>, String)>,
}

impl ConfigEdit {
    /// Adds a text to the main file, and enables or disables upstreams in the files that have them.
    ///
    /// # Errors
    /// 78 if a file cannot be edited.
    pub(super) fn new(target: &ImportTarget, addition: &str, names: &[&str], on: bool) -> Result<Self, CommandFailure> {
        let failed = |why: &dyn std::fmt::Display| CommandFailure::new(CONFIG, why);
        let mut edit = Self { main: target.path.clone(), files: Vec::new() };
        let mut texts = target.files.clone();
        if !addition.is_empty() {
            let extended = target.extended(addition).map_err(|why| failed(&why))?;
            match texts.first_mut() {
                Some((_, text)) => *text = extended,
                None => edit.files.push((target.path.clone(), None, extended)),
            }
        }
        for ((path, before), (_, text)) in target.files.iter().zip(texts) {
            let document: Result<DocumentMut, _> = text.parse();
            let mut document = document.map_err(|error| failed(&format!("{}: {}", path.display(), error.message())))?;
            let mut is_switched = false;
            for name in names {
                let upstreams = document.get_mut("upstreams").and_then(|item| item.as_table_like_mut());
                let table = upstreams.and_then(|list| list.get_mut(name)?.as_table_like_mut());
                let Some(table) = table else { continue };
                if table.get("enabled").and_then(|item| item.as_bool()).unwrap_or(true) != on {
                    set_enabled(table, on);
                    is_switched = true;
                }
            }
            let after = if is_switched { lines_as_in(&text, document.to_string()) } else { text };
            if after != *before {
                edit.files.push((path.clone(), Some(before.clone()), after));
            }
        }
        Ok(edit)
    }

    /// Lists the changes: path, text before and text after.
    pub(super) fn changes(&self) -> impl Iterator<Item = (&Path, &str, &str)> {
        self.files.iter().map(|(path, before, after)| (&**path, before.as_deref().unwrap_or_default(), &**after))
    }

    /// Writes the files and reloads the daemon, if one runs. Returns what is to be said about that,
    /// behind a semicolon.
    ///
    /// # Errors
    /// The files are as before: 1 if the daemon runs with another file or refuses, 75 if a file
    /// cannot be written, 78 if the configuration is wrong.
    pub(super) fn apply(&self, common: &CommonOptions) -> Result<String, CommandFailure> {
        if self.files.is_empty() {
            return Ok(String::new());
        }
        let mut daemon = daemon::connect(common, "admin", None).ok();
        let whole = |path: &Path| path.canonicalize().unwrap_or_else(|_| path.to_owned());
        let theirs = daemon.as_ref().map(|daemon| daemon.hello.config.as_ref().map(PathBuf::from));
        let is_embedded = theirs == Some(None);
        match theirs {
            Some(Some(path)) if whole(&path) != whole(&self.main) => {
                let (theirs, own) = (path.display(), self.main.display());
                let text = format!(
                    "the daemon runs with {theirs}, and this command would edit {own}; name the daemon's by --config"
                );
                return Err(CommandFailure::new(NO, text));
            }
            Some(None) => daemon = None,
            Some(Some(_)) | None => {}
        }
        let done = self.write().and_then(|()| self.reload(daemon.as_mut()));
        if done.is_err() {
            self.take_back();
        }
        let restart = if is_embedded { "; restart the daemon, which runs without this file" } else { "" };
        done.map(|plan| plan.map_or(restart.to_owned(), |plan| format!("; {}", foreign::line(&plan))))
    }

    fn write(&self) -> Result<(), CommandFailure> {
        let folder = self.main.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
        let made = DirBuilder::new().recursive(true).mode(0o700).create(folder);
        let written = made.and_then(|()| {
            self.files.iter().try_for_each(|(path, before, after)| exchange(path, before.as_deref(), after))
        });
        written.map_err(|error| CommandFailure::new(TEMPFAIL, format!("{}: {error}", self.main.display())))
    }

    fn reload(&self, daemon: Option<&mut DaemonConnection>) -> Result<Option<String>, CommandFailure> {
        match daemon {
            Some(daemon) => {
                let answer: ReloadView = daemon.ask(&Request::Reload(ReloadParams::default()))?;
                Ok(Some(answer.plan))
            }
            None => match config::load(&self.main).outcome {
                Ok(_) => Ok(None),
                Err(why) => Err(CommandFailure::new(CONFIG, why)),
            },
        }
    }

    /// Restores the files that were written. One that has changed since stays.
    fn take_back(&self) {
        for (path, before, after) in &self.files {
            match before {
                Some(before) => drop(exchange(path, Some(after), before)),
                None if fs::read_to_string(path).is_ok_and(|now| now == *after) => drop(fs::remove_file(path)),
                None => {}
            }
        }
    }
}
