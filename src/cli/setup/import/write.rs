//! The configuration that an import adds to: what it has already, and the replacement of its file
//! by a longer one.

use std::collections::{BTreeMap, HashSet};
use std::fs::{self, DirBuilder};
use std::os::unix::fs::DirBuilderExt as _;
use std::path::{Path, PathBuf};

use super::entry::UpstreamBlock;
use super::names::ImportNames;
use super::policy::ExistingPolicy;
use crate::cli::reach::exchange::exchange;
use crate::config;
use crate::config::source::guard;

/// A configuration file and the files of `conf.d` beside it, as they are now.
#[derive(Debug, Default)]
pub(in crate::cli) struct ImportTarget {
    pub(in crate::cli) path: PathBuf,
    /// Text of the file itself; `None` if there is no file.
    pub(in crate::cli) text: Option<String>,
    /// Files of `conf.d` with their texts.
    pub(in crate::cli) also: Vec<(PathBuf, String)>,
    /// Lines of all files, among them the comments that say where a table came from.
    pub(super) lines: HashSet<String>,
    pub(super) present: ExistingPolicy,
    /// Names of all upstreams.
    pub(in crate::cli) upstreams: Vec<String>,
    /// Tables of the upstreams, by name.
    tables: BTreeMap<String, toml::Table>,
    /// Environment variables that the files read.
    variables: HashSet<String>,
}

impl ImportTarget {
    /// Reads the configuration; a missing file counts as an empty one.
    ///
    /// # Errors
    /// The reason why nothing can be added to the file. It must be one that headend would load.
    pub(in crate::cli) fn read(path: PathBuf) -> Result<Self, String> {
        if !path.try_exists().unwrap_or(true) {
            return Ok(Self { path, ..Self::default() });
        }
        let loaded = config::load(&path).outcome;
        let (config, _) = loaded.map_err(|why| format!("{why}\nNothing was written: mend the configuration first."))?;
        let read = |path: &Path| guard::read(path).map_err(|error| format!("{}: {error}", path.display()));
        let text = read(&path)?;
        let also =
            config.also.iter().map(|path| Ok((path.clone(), read(path)?))).collect::<Result<Vec<_>, String>>()?;
        let mut target = Self { path, ..Self::default() };
        for text in std::iter::once(&text).chain(also.iter().map(|(_, text)| text)) {
            target.lines.extend(text.lines().map(|line| line.trim_end().to_owned()));
            if let Ok(table) = text.parse::<toml::Table>() {
                let upstreams = table.get("upstreams").and_then(toml::Value::as_table).into_iter().flatten();
                let tables = upstreams.filter_map(|(name, table)| Some((name.clone(), table.as_table()?.clone())));
                target.tables.extend(tables);
                variables(&toml::Value::Table(table), &mut target.variables);
            }
        }
        (target.text, target.also) = (Some(text), also);
        let upstreams = config.upstreams.iter().chain(&config.disabled);
        target.upstreams = upstreams.map(|upstream| upstream.name.to_string()).collect();
        target.present.rules = config.policy.rules.iter().map(|rule| rule.id.clone()).collect();
        // Without [policy] the default is in force too, for the upstreams that are there.
        let decides = config.policy_stated || !target.upstreams.is_empty();
        target.present.default = decides.then_some(config.policy.default);
        Ok(target)
    }

    /// Returns true if the file exists.
    pub(in crate::cli) const fn is_there(&self) -> bool {
        self.text.is_some()
    }

    /// Returns the names that are taken in the configuration.
    pub(super) fn names(&self) -> ImportNames {
        ImportNames::beside(self.upstreams.clone(), self.variables.clone())
    }

    /// Finds an upstream that starts or reaches the same server as a block; returns its name and
    /// whether it is enabled.
    pub(super) fn same(&self, block: &UpstreamBlock) -> Option<(String, bool)> {
        const LAUNCH: [&str; 7] = ["command", "env", "cwd", "url", "headers", "transport", "expand"];
        let text: toml::Table = block.text.parse().ok()?;
        let own = text.get("upstreams")?.get(&block.name)?;
        let is_kept = |(path, secret): &(PathBuf, String)| {
            guard::read(path).is_ok_and(|kept| kept.strip_suffix('\n') == Some(secret))
        };
        let is_same = |table: &toml::Table| LAUNCH.iter().all(|key| own.get(key) == table.get(*key));
        let (name, table) = self.tables.iter().find(|(_, table)| is_same(table) && block.taken.iter().all(is_kept))?;
        Some((name.clone(), table.get("enabled").and_then(toml::Value::as_bool).unwrap_or(true)))
    }

    /// Adds a text at the end of the file, which is replaced as a whole or not at all.
    ///
    /// # Errors
    /// The reason why nothing was written.
    pub(in crate::cli) fn add(&self, addition: &str) -> Result<(), String> {
        let text = self.with_addition(addition)?;
        exchange(&self.make_folder()?, self.text.as_deref(), &text)
            .map_err(|error| format!("{}: {error}; nothing was written", self.path.display()))
    }

    /// Returns the text of the file with a text added at its end, in its line ends.
    ///
    /// # Errors
    /// The file has a form to which no table can be added.
    pub(in crate::cli) fn with_addition(&self, addition: &str) -> Result<String, String> {
        let mut text = self.text.clone().unwrap_or_default();
        let addition = if text.contains("\r\n") { addition.replace('\n', "\r\n") } else { addition.to_owned() };
        if !text.is_empty() && !text.ends_with('\n') {
            text.push('\n');
        }
        text.push_str(&addition);
        // A table in one line, such as `upstreams = { .. }`, cannot be extended.
        text.parse::<toml::Table>().map_err(|error| {
            format!(
                "{}: tables cannot be added at its end ({}); nothing was written",
                self.path.display(),
                error.message()
            )
        })?;
        Ok(text)
    }

    /// Makes the folder of the file if it is missing, and returns the file with symbolic links
    /// followed.
    ///
    /// # Errors
    /// The folder cannot be made.
    pub(in crate::cli) fn make_folder(&self) -> Result<PathBuf, String> {
        let path = fs::canonicalize(&self.path).unwrap_or_else(|_| self.path.clone());
        let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
        DirBuilder::new()
            .recursive(true)
            .mode(0o700)
            .create(folder)
            .map_err(|error| format!("make the directory {}: {error}; nothing was written", folder.display()))?;
        Ok(path)
    }
}

/// Collects the names of environment variables that a configuration reads.
fn variables(value: &toml::Value, found: &mut HashSet<String>) {
    match value {
        toml::Value::Table(table) => {
            found.extend(table.get("env").and_then(toml::Value::as_str).map(str::to_owned));
            table.iter().for_each(|(_, value)| variables(value, found));
        }
        toml::Value::Array(items) => items.iter().for_each(|value| variables(value, found)),
        toml::Value::String(text) => {
            let inside = text.split("${").skip(1).filter_map(|rest| rest.split(['}', ':']).next());
            found.extend(inside.map(str::to_owned));
        }
        toml::Value::Integer(_) | toml::Value::Float(_) | toml::Value::Boolean(_) | toml::Value::Datetime(_) => {}
    }
}
