//! Files of the state directory for values that must not stand in the configuration.

use std::fs::{self, DirBuilder, OpenOptions};
use std::io::Write as _;
use std::os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};

use crate::cli::exit::CONFIG;
use crate::cli::reach::source::environment;
use crate::cli::setup::import::SecretText;
use crate::cli::words::output::CommandFailure;
use crate::config::source::guard;
use crate::config::state_dir;

/// The secrets of one upstream. They are removed on drop unless they are kept.
#[derive(Debug)]
pub(super) struct SecretFiles {
    upstream: String,
    folder: PathBuf,
    texts: Vec<SecretText>,
    written: Vec<PathBuf>,
}

impl SecretFiles {
    /// Finds the folder of the secrets, without making it.
    ///
    /// # Errors
    /// 78 if the environment names no state directory.
    pub(super) fn new(upstream: &str) -> Result<Self, CommandFailure> {
        let folder =
            folder().ok_or_else(|| CommandFailure::new(CONFIG, "no state directory: set $XDG_STATE_HOME or $HOME"))?;
        Ok(Self { upstream: upstream.to_owned(), folder, texts: Vec::new(), written: Vec::new() })
    }

    /// Returns the file for the value of a variable or header.
    pub(super) fn path(&self, name: &str) -> PathBuf {
        let fit = |c: char| if c.is_ascii_alphanumeric() || c == '-' { c } else { '_' };
        self.folder.join(format!("{}.{}", self.upstream, name.chars().map(fit).collect::<String>()))
    }

    /// Adds a secret that is to be written.
    pub(super) fn extend(&mut self, text: Option<SecretText>) {
        self.texts.extend(text);
    }

    /// Writes the files, for our user alone. The name is free, so a file of it is a remnant.
    ///
    /// # Errors
    /// The path that cannot be written, and why.
    pub(super) fn write(&mut self) -> Result<(), String> {
        for SecretText { path, text } in &self.texts {
            let failed = |error: std::io::Error| format!("{}: {error}", path.display());
            DirBuilder::new().recursive(true).mode(0o700).create(&self.folder).map_err(failed)?;
            guard::check_directory(&self.folder, false).map_err(|why| format!("{}: {why}", self.folder.display()))?;
            drop(fs::remove_file(path));
            let mut file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(path).map_err(failed)?;
            self.written.push(path.clone());
            file.write_all(text.as_bytes()).and_then(|()| file.sync_all()).map_err(failed)?;
        }
        Ok(())
    }

    /// Leaves the files where they are.
    pub(super) fn keep(&mut self) {
        self.written.clear();
    }
}

impl Drop for SecretFiles {
    fn drop(&mut self) {
        remove(&self.written);
    }
}

/// Returns the folder of the secrets.
fn folder() -> Option<PathBuf> {
    state_dir(&environment).map(|state| state.join("secrets"))
}

/// Lists the files of an upstream's secrets that its table refers to.
pub(in crate::cli::setup) fn files_of(upstream: &str, table: &toml::Value) -> Vec<PathBuf> {
    let values =
        ["env", "headers"].into_iter().filter_map(|key| table.get(key)?.as_table()).flat_map(toml::Table::values);
    let files = values.filter_map(|value| value.get("file")?.as_str()).map(PathBuf::from);
    let prefix = format!("{upstream}.");
    let is_own = |path: &PathBuf| {
        let name = path.file_name().and_then(|name| name.to_str());
        path.parent().map(Path::to_owned) == folder() && name.is_some_and(|name| name.starts_with(&prefix))
    };
    files.filter(is_own).collect()
}

/// Removes files; one that is gone already is no failure.
pub(in crate::cli::setup) fn remove(files: &[PathBuf]) {
    for file in files {
        drop(fs::remove_file(file));
    }
}
