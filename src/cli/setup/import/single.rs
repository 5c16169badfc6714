//! One server that a command line or a `server.json` describes, for `headend add`.

use std::path::Path;

use super::entry::{BlockSource, UpstreamBlock};
use super::host::McpHost;
use super::names::ImportNames;
use super::parts::{GivenValue, LaunchParts};
use super::secrets::KnownSecrets;
use super::stated::HostServerSettings;
use super::template::{TemplateContext, VariableSyntax};
use super::{ImportTarget, checked, comment, host, learn, shown};
use crate::cli::setup::edit::MOST_SHOWN;
use crate::config::source::guard;
use crate::config::{unversioned_package, with_version};
use crate::wire::foreign;

/// Size limit of a `server.json`, in bytes; real ones have a few thousand.
const MOST_BYTES: u64 = 256 << 10;

/// The table of a server to add.
#[derive(Debug)]
pub(in crate::cli) struct SingleTable {
    pub(in crate::cli) text: String,
    /// Variables that headend reads at each start, with their descriptions.
    pub(in crate::cli) variables: Vec<(String, String)>,
}

/// A server to add.
#[derive(Clone, Debug)]
pub(in crate::cli) struct SingleServer {
    parts: LaunchParts,
    /// Inputs that a `server.json` asks for: id and description.
    inputs: Vec<(String, String)>,
    /// Name for the upstream, from a `server.json`.
    pub(in crate::cli) name: Option<String>,
    /// Place of the description, for the comment in the configuration.
    origin: String,
}

impl SingleServer {
    /// Describes a server that is a command line, or behind a URL.
    pub(in crate::cli) fn new(words: Vec<String>, url: Option<&str>) -> Self {
        let parts = LaunchParts { url: url.map(str::to_owned), ..LaunchParts::default() };
        let parts = if words.is_empty() { parts } else { LaunchParts::of_words(words) };
        Self { parts, inputs: Vec::new(), name: None, origin: "the command line".to_owned() }
    }

    /// Reads a `server.json`.
    ///
    /// # Errors
    /// The reason why the file describes no server that can be started or reached.
    pub(in crate::cli) fn of_file(path: &Path) -> Result<Self, String> {
        let path = std::path::absolute(path).unwrap_or_else(|_| path.to_owned());
        let text = guard::read_regular(&path, MOST_BYTES).map_err(|error| format!("{}: {error}", path.display()))?;
        let at = path.display();
        let file = host::read(&path, &text).map_err(|error| error.to_string())?;
        let server = file.servers.first().filter(|_| file.host == McpHost::Package).ok_or_else(|| {
            format!("{at} is no server.json of the registry; `headend import {at}` reads the lists of hosts")
        })?;
        let parts = LaunchParts::of(server);
        if parts.words.is_empty() && parts.url.is_none() {
            return Err(format!("{at}: it has neither a package that npx, uvx, dnx or docker starts nor an address"));
        }
        let name = Some(ImportNames::default().upstream(&server.name));
        Ok(Self { parts, inputs: file.inputs, name, origin: format!("{:?} of {at}", server.name) })
    }

    /// Returns the command line; empty for a server behind a URL.
    pub(in crate::cli) fn words(&self) -> &[String] {
        &self.parts.words
    }

    /// Sets the input of that name in all texts; if there is none, the variable of the program.
    ///
    /// # Errors
    /// Without an input and a program.
    pub(in crate::cli) fn set_variable(&mut self, name: &str, value: &str) -> Result<(), String> {
        let mut ids = self.inputs.iter().map(|(id, _)| id.as_str());
        let input = format!("${{input:{}}}", ids.find(|id| id.eq_ignore_ascii_case(name)).unwrap_or(name));
        let LaunchParts { words, url, env, headers, .. } = &mut self.parts;
        let given = env.iter_mut().chain(headers).filter_map(|(_, given)| match given {
            GivenValue::Text(text) => Some(text),
            GivenValue::Variable(..) => None,
        });
        let mut is_input = false;
        for text in words.iter_mut().chain(url).chain(given).filter(|text| text.contains(&input)) {
            *text = text.replace(&input, value);
            is_input = true;
        }
        if !is_input && self.parts.words.is_empty() {
            let name = foreign::short(name, MOST_SHOWN);
            return Err(format!("a server behind an address has no variable `{name}`; a credential is a --header"));
        }
        if !is_input {
            self.parts.env.retain(|(other, _)| other != name);
            self.parts.env.push((name.to_owned(), GivenValue::Text(value.to_owned())));
        }
        Ok(())
    }

    /// Sets a header.
    ///
    /// # Errors
    /// The server is a program.
    pub(in crate::cli) fn set_header(&mut self, name: &str, value: &str) -> Result<(), String> {
        if !self.parts.words.is_empty() {
            return Err("a program gets no header; write --env or --env-from".to_owned());
        }
        self.parts.headers.retain(|(other, _)| !other.eq_ignore_ascii_case(name));
        self.parts.headers.push((name.to_owned(), GivenValue::Text(value.to_owned())));
        Ok(())
    }

    /// Writes a version behind the package that has none.
    pub(in crate::cli) fn pin(&mut self, version: &str) {
        let words = &self.parts.words;
        let Some(package) = unversioned_package(words) else { return };
        // Another word may have the same text.
        let place = words.iter().position(|word| word.as_bytes().as_ptr_range().contains(&package.as_ptr()));
        let pinned = with_version(words, package, version);
        let package = package.to_owned();
        if let Some(word) = place.and_then(|at| self.parts.words.get_mut(at)) {
            *word = word.replace(&package, &pinned);
        }
    }

    /// Builds the table of the server under a name.
    ///
    /// # Errors
    /// The reasons why the configuration cannot have it.
    pub(in crate::cli) fn table(&self, name: &str, target: &ImportTarget) -> Result<SingleTable, String> {
        let home = std::env::var("HOME").ok().filter(|home| home.starts_with('/'));
        let folder = std::env::current_dir().ok();
        let place =
            TemplateContext { folder: folder.as_deref(), home: home.as_deref(), syntax: VariableSyntax::Braces };
        let (mut known, mut names) = (KnownSecrets::default(), target.names());
        learn(&self.parts, &place, &mut known, &mut names);
        known.finish();
        let stated = &HostServerSettings::default();
        let inputs = &self.inputs;
        let from = BlockSource { parts: &self.parts, stated, place, inputs, known: &known, secrets: None };
        let block = checked(UpstreamBlock::new(name, from, &mut names), &known);
        if block.name != name {
            let name = foreign::short(name, MOST_SHOWN);
            return Err(format!(
                "`{name}` cannot be a name: write at most 27 lower-case letters and digits, with single hyphens between"
            ));
        }
        if !block.reasons.is_empty() {
            return Err(known.redacted(&block.reasons.join("; ")));
        }
        let origin = comment(&format!("Added from {}.", known.redacted(&self.origin)));
        let about = |(name, about): &(String, String)| (name.clone(), known.redacted(about));
        Ok(SingleTable { text: origin + &shown(&block, &known), variables: block.exports.iter().map(about).collect() })
    }
}
