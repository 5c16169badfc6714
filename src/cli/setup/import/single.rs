//! One server that a command line or a `server.json` describes, for `headend add`.

use std::path::{Path, PathBuf};

use super::entry::{BlockSource, UpstreamBlock, split_scheme};
use super::host::McpHost;
use super::names::ImportNames;
use super::parts::{GivenValue, LaunchParts};
use super::secrets::{self, KnownSecrets};
use super::stated::HostServerSettings;
use super::template::{TemplateContext, VariableSyntax, variables};
use super::{HostText, ImportTarget, checked, comment, host, learn};
use crate::config::{unversioned_package, with_version};
use crate::wire::foreign;

/// A server to add, and what it needs.
#[derive(Clone, Debug)]
pub(in crate::cli) struct SingleServer {
    parts: LaunchParts,
    /// Inputs that a `server.json` asks for: id and description.
    inputs: Vec<(String, String)>,
    /// Name for the upstream, from a `server.json`.
    pub(in crate::cli) name: Option<String>,
    /// Place of the description, for the comment in the configuration.
    pub(in crate::cli) origin: String,
}

/// The table of a server in the configuration.
#[derive(Clone, Debug)]
pub(in crate::cli) struct ServerTable {
    pub(in crate::cli) text: String,
    /// Variables that headend needs in its environment, with their descriptions.
    pub(in crate::cli) needs: Vec<(String, String)>,
    /// Remarks for the user.
    pub(in crate::cli) notes: Vec<String>,
}

/// A value that must not stand in the configuration.
#[derive(Clone, Debug)]
pub(in crate::cli) struct SecretText {
    pub(in crate::cli) path: PathBuf,
    pub(in crate::cli) text: String,
}

impl SingleServer {
    /// Describes a server that is a command line.
    pub(in crate::cli) fn of_words(words: Vec<String>) -> Self {
        Self { parts: LaunchParts::of_words(words), ..Self::of_url("") }
    }

    /// Describes a server behind a URL.
    pub(in crate::cli) fn of_url(url: &str) -> Self {
        let parts = LaunchParts { url: Some(url.to_owned()), ..LaunchParts::default() };
        Self { parts, inputs: Vec::new(), name: None, origin: "the command line".to_owned() }
    }

    /// Reads a `server.json`.
    ///
    /// # Errors
    /// The reason why the file describes no server that can be started or reached.
    pub(in crate::cli) fn of_file(path: &Path) -> Result<Self, String> {
        let HostText { text, .. } = HostText::read(path, None)?;
        let shown = path.display();
        let file = host::read(path, &text).map_err(|error| error.to_string())?;
        let server = file.servers.first().filter(|_| file.host == McpHost::Package && file.servers.len() == 1);
        let server = server.ok_or_else(|| {
            format!("{shown} is no server.json of the registry; `headend import {shown}` reads the lists of hosts")
        })?;
        let parts = LaunchParts::of(server);
        if parts.words.is_empty() && parts.url.is_none() {
            return Err(format!(
                "{shown}: it has neither a package that npx, uvx, dnx or docker starts nor an address"
            ));
        }
        let origin = format!("{:?} of {shown}", server.name);
        Ok(Self { parts, inputs: file.inputs, name: Some(ImportNames::default().upstream(&server.name)), origin })
    }

    /// Returns the command line; empty for a server behind a URL.
    pub(in crate::cli) fn words(&self) -> &[String] {
        &self.parts.words
    }

    /// Sets a variable of the program, and the input of that name in all texts. A value that looks
    /// like a secret and is not made of variables is returned, to be written to `secret_file`.
    pub(in crate::cli) fn set_variable(&mut self, name: &str, value: &str, secret_file: PathBuf) -> Option<SecretText> {
        let input = format!("${{input:{name}}}");
        let is_input = self.inputs.iter().any(|(id, _)| id == name);
        for text in self.parts.words.iter_mut().chain(&mut self.parts.url) {
            *text = text.replace(&input, value);
        }
        let headers = self.parts.headers.iter().filter_map(|(header, given)| match given {
            GivenValue::Text(text) if text.contains(&input) => Some((header.clone(), text.replace(&input, value))),
            _ => None,
        });
        if let Some((header, text)) = headers.last() {
            return self.set_header(&header, &text, secret_file);
        }
        let is_there = self.parts.env.iter().any(|(other, _)| other == name);
        if is_input && !is_there {
            return None;
        }
        let secret = secrets::is_secret(name, value) && is_plain(value);
        let given = if secret { file(&secret_file, "") } else { GivenValue::Text(value.to_owned()) };
        self.set(name, given, false);
        secret.then(|| SecretText { path: secret_file, text: value.to_owned() })
    }

    /// Lets headend read a variable of the program at each start: from its own variable of that
    /// name, or from a file.
    pub(in crate::cli) fn read_variable(&mut self, name: &str, from: Option<&Path>) {
        let given = from.map_or_else(|| GivenValue::Variable(name.to_owned(), ""), |path| file(path, ""));
        self.set(name, given, false);
    }

    /// Sets a header, as [`Self::set_variable`] sets a variable. The name of a scheme stays in the
    /// configuration.
    pub(in crate::cli) fn set_header(&mut self, name: &str, value: &str, secret_file: PathBuf) -> Option<SecretText> {
        let secret = secrets::is_secret_header(name, value) && is_plain(value);
        let (prefix, text) = split_scheme(value);
        let given = if secret { file(&secret_file, prefix) } else { GivenValue::Text(value.to_owned()) };
        self.set(name, given, true);
        secret.then(|| SecretText { path: secret_file, text: text.to_owned() })
    }

    /// Sets the directory in which the program runs.
    pub(in crate::cli) fn set_folder(&mut self, folder: &Path) {
        self.parts.cwd = Some(folder.display().to_string());
    }

    fn set(&mut self, name: &str, given: GivenValue, is_header: bool) {
        let list = if is_header { &mut self.parts.headers } else { &mut self.parts.env };
        list.retain(|(other, _)| other != name && !(is_header && other.eq_ignore_ascii_case(name)));
        list.push((name.to_owned(), given));
    }

    /// Writes a version behind the package that has none.
    pub(in crate::cli) fn pin(&mut self, version: &str) {
        let Some(package) = unversioned_package(&self.parts.words).map(str::to_owned) else { return };
        let pinned = with_version(&self.parts.words, &package, version);
        let is_it = |word: &&mut String| **word == package || word.ends_with(&format!("={package}"));
        if let Some(word) = self.parts.words.iter_mut().find(is_it) {
            *word = word.replace(&package, &pinned);
        }
    }

    /// Builds the table of the server under a name.
    ///
    /// # Errors
    /// The reasons why the configuration cannot have it.
    pub(in crate::cli) fn table(&self, name: &str, target: &ImportTarget) -> Result<ServerTable, String> {
        let home = std::env::var("HOME").ok().filter(|home| home.starts_with('/'));
        let folder = std::env::current_dir().ok();
        let place =
            TemplateContext { folder: folder.as_deref(), home: home.as_deref(), syntax: VariableSyntax::Braces };
        let (mut known, mut names) = (KnownSecrets::default(), target.names());
        learn(&self.parts, &place, &mut known, &mut names);
        known.finish();
        let stated = HostServerSettings::default();
        let from = BlockSource { parts: &self.parts, stated: &stated, place, inputs: &self.inputs, known: &known };
        let block = checked(UpstreamBlock::new(name, from, &mut names), &known);
        let told = |text: &String| known.redacted(text);
        if block.name != name {
            return Err(format!(
                "`{}` cannot be a name: write at most 27 lower-case letters and digits, with single hyphens between them",
                foreign::line(name)
            ));
        }
        if !block.reasons.is_empty() {
            return Err(block.reasons.iter().map(told).collect::<Vec<_>>().join("; "));
        }
        let origin = comment(&format!("Added from {}.", known.redacted(&self.origin)));
        let needs = block.exports.iter().map(|(name, about)| (name.clone(), told(about))).collect();
        Ok(ServerTable { text: origin + &block.text, needs, notes: block.notes.iter().map(told).collect() })
    }
}

/// Refers to a file.
fn file(path: &Path, prefix: &'static str) -> GivenValue {
    GivenValue::File(path.display().to_string(), prefix)
}

/// Returns true if a value has no variables.
fn is_plain(value: &str) -> bool {
    variables(value, &TemplateContext { folder: None, home: None, syntax: VariableSyntax::Braces }).is_empty()
}
