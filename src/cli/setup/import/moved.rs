//! Converts the servers of one host's list for `headend connect --move`, each by itself, so that
//! one which cannot be moved stays in the host.

use std::path::{Path, PathBuf};

use super::entry::{BlockSource, UpstreamBlock};
use super::host::{self, HostFile, McpHost};
use super::names::ImportNames;
use super::policy::SilentDefault;
use super::secrets::{self, KnownSecrets};
use super::template::TemplateContext;
use super::{HostText, ImportTarget, ImportedServers, ServerDraft};
use super::{checked, comment, composed, drafts, is_headend, learn};
use crate::cli::reach::source;
use crate::wire::foreign;

/// The servers in a host's file, and the secrets in their texts.
#[derive(Debug, Default)]
pub(in crate::cli::setup) struct HostServers {
    file: Option<HostFile>,
    drafts: Vec<ServerDraft>,
    known: KnownSecrets,
    /// Words of command lines that have a secret in them.
    words: Vec<String>,
}

/// A server of a host that headend takes over, or has already.
#[derive(Clone, Debug)]
pub(in crate::cli::setup) struct MovableServer {
    /// The host's name for it.
    pub(in crate::cli::setup) name: String,
    pub(in crate::cli::setup) upstream: String,
    /// Whether the upstream is enabled; `None` if it is not in the configuration.
    pub(in crate::cli::setup) present: Option<bool>,
    /// Files to write, each with its secret.
    pub(in crate::cli::setup) secrets: Vec<(PathBuf, String)>,
    /// Environment variables that headend reads for it.
    pub(in crate::cli::setup) variables: Vec<String>,
    block: usize,
}

/// The servers of a host that can be moved, and the reasons why others stay.
#[derive(Debug, Default)]
pub(in crate::cli::setup) struct MovableServers {
    pub(in crate::cli::setup) moved: Vec<MovableServer>,
    /// A line for each server that stays, with the reason.
    pub(in crate::cli::setup) left: Vec<String>,
    blocks: Vec<(UpstreamBlock, String)>,
}

impl HostServers {
    /// Reads the servers in the text of a host's file. A text without a list has none.
    ///
    /// # Errors
    /// A settings file beside it cannot be read.
    pub(in crate::cli::setup) fn read(path: &Path, text: &str, home: &Path) -> Result<Self, String> {
        let home = home.to_str();
        let Ok(file) = host::read(path, text) else { return Ok(Self::default()) };
        let beside = if path.is_file() { HostText::read(path, home.map(Path::new))?.beside } else { Vec::new() };
        let given = HostText { path: path.to_owned(), text: text.to_owned(), beside };
        let drafts = drafts(&given, &file, 0, home).map_err(|error| error.to_string())?;
        let mut servers = Self::default();
        for draft in &drafts {
            learn(&draft.parts, &context(draft, file.host, home), &mut servers.known, &mut ImportNames::default());
            let found = draft.parts.words.iter().zip(secrets::in_words(&draft.parts.words));
            servers.words.extend(found.filter(|(_, spans)| !spans.is_empty()).map(|(word, _)| word.clone()));
        }
        servers.known.finish();
        Ok(Self { file: Some(file), drafts, ..servers })
    }

    /// Returns the servers of the list that the host reads in each project.
    fn of_user(&self) -> impl Iterator<Item = &ServerDraft> {
        let entries = self.file.iter().flat_map(|file| &file.servers);
        self.drafts.iter().zip(entries).filter(|(_, entry)| entry.project.is_none()).map(|(draft, _)| draft)
    }

    /// Returns the names of the entries that lead to headend.
    pub(in crate::cli::setup) fn of_headend(&self) -> impl Iterator<Item = &str> {
        let is_entry = |draft: &&ServerDraft| {
            let is_stdio = draft.parts.words.iter().any(|word| word == "stdio");
            is_headend(&draft.parts) && (is_stdio || draft.parts.url.is_some())
        };
        self.of_user().filter(is_entry).map(|draft| &*draft.name)
    }

    /// Returns the names of the servers that the host starts or reaches itself.
    pub(in crate::cli::setup) fn others(&self) -> impl Iterator<Item = &str> {
        let is_on = |draft: &&ServerDraft| draft.stated.off.is_none() && !is_headend(&draft.parts);
        self.drafts.iter().filter(is_on).map(|draft| &*draft.name)
    }

    /// Returns true if the entry of that name starts or reaches headend in any way.
    pub(in crate::cli::setup) fn leads_to_headend(&self, name: &str) -> bool {
        self.of_user().any(|draft| draft.name == name && is_headend(&draft.parts))
    }

    /// Replaces the secrets in the comments of a text by dots. A comment is what follows the first
    /// mark of one in a line, also within a string, and the lines up to the end of a block.
    pub(in crate::cli::setup) fn redact_comments(&self, text: &str) -> String {
        let (mut out, mut is_block) = (String::new(), false);
        for line in text.split_inclusive('\n') {
            let mark = ["//", "/*", "#"].iter().filter_map(|mark| line.find(mark)).min();
            let start = if is_block { 0 } else { mark.unwrap_or(line.len()) };
            is_block = match (line.rfind("/*"), line.rfind("*/")) {
                (None, None) => is_block,
                (opened, closed) => opened > closed,
            };
            let (mut at, comment) = (start, line.get(start..).unwrap_or_default());
            out.push_str(line.get(..start).unwrap_or_default());
            for span in self.known.and(comment, secrets::in_text(comment)) {
                out.push_str(line.get(at..start + span.range.start).unwrap_or_default());
                out.push_str("•••••");
                at = start + span.range.end;
            }
            out.push_str(line.get(at..).unwrap_or_default());
        }
        out
    }

    /// Returns true if a string in the file must not be shown. `keys` lead to it.
    pub(in crate::cli::setup) fn hides(&self, keys: &[&str], value: &str) -> bool {
        let name = keys.last().copied().unwrap_or_default();
        let is_header = keys.iter().any(|key| key.to_lowercase().ends_with("headers"));
        let by_name = if is_header { secrets::is_secret_header(name, value) } else { secrets::is_secret(name, value) };
        by_name || self.words.iter().any(|word| word == value) || !self.known.spans(value).is_empty()
    }

    /// Converts each server. One whose secrets are not there at this moment stays, unless they can
    /// be kept in files below `secrets`.
    pub(in crate::cli::setup) fn convert(
        &self,
        home: &Path,
        target: &ImportTarget,
        secrets: Option<&Path>,
    ) -> MovableServers {
        let home = home.to_str();
        let (mut out, mut names) = (MovableServers::default(), target.names());
        let Some(file) = &self.file else { return out };
        for draft in self.of_user().filter(|draft| !is_headend(&draft.parts)) {
            let place = context(draft, file.host, home);
            let (parts, stated, known) = (&draft.parts, &draft.stated, &self.known);
            let from = BlockSource { parts, stated, place, inputs: &file.inputs, known, secrets };
            let block = |names: &mut ImportNames| checked(UpstreamBlock::new(&draft.name, from, names), known);
            let mut alone = ImportNames::default();
            let own = block(&mut alone);
            let taking = BlockSource { secrets: Some(secrets.unwrap_or(Path::new("/"))), ..from };
            let mut untaken = ImportNames::default();
            let left = UpstreamBlock::new(&draft.name, taking, &mut untaken).exports;
            let is_takable = left.iter().all(|(name, _)| untaken.secret_of(name).is_none());
            let present = target.same(&own);
            let origin = draft.sources.iter().map(|from| known.redacted(from)).collect::<String>();
            if present.is_none() && target.lines.contains(comment(&origin).trim_end()) {
                out.leave(&draft.name, "was imported before, and its table differs; remove one of them");
                continue;
            }
            let own = if present.is_some() { own } else { block(&mut names) };
            let names = if present.is_some() { &alone } else { &names };
            match reason_to_stay(&own, names, is_takable) {
                Some(why) => out.leave(&draft.name, &why),
                None => {
                    let secrets = own.taken.clone();
                    let variables = own.exports.iter().map(|(name, _)| name.clone()).collect();
                    let upstream = present.as_ref().map_or(&own.name, |(name, _)| name).clone();
                    let (name, block, present) = (draft.name.clone(), out.blocks.len(), present.map(|(_, on)| on));
                    out.moved.push(MovableServer { name, upstream, present, secrets, variables, block });
                    out.blocks.push((own, origin));
                }
            }
        }
        out
    }
}

impl MovableServers {
    /// Adds a server that stays in its host, with the reason.
    pub(in crate::cli::setup) fn leave(&mut self, name: &str, why: &str) {
        self.left.push(format!("\n  {}: {}", foreign::line(name), foreign::line(why)));
    }

    /// Returns the text that the configuration needs for the servers that it does not have, and
    /// remarks for the user.
    pub(in crate::cli::setup) fn addition(
        &self,
        servers: &HostServers,
        target: &ImportTarget,
    ) -> (String, Vec<String>) {
        let new: Vec<usize> = self.moved.iter().filter(|s| s.present.is_none()).map(|s| s.block).collect();
        if new.is_empty() {
            return (String::new(), Vec::new());
        }
        let mut imported = ImportedServers { known: servers.known.clone(), ..ImportedServers::default() };
        for (_, (block, origin)) in self.blocks.iter().enumerate().filter(|(at, _)| new.contains(at)) {
            imported.sources.push(vec![origin.clone()]);
            imported.blocks.push(block.clone());
        }
        let heading = if target.is_there() { "" } else { "# Made by `headend connect`.\n\n" };
        composed(&imported, SilentDefault::Ask, &target.present, heading)
    }
}

/// Returns the context in which a host replaces the variables of a server's texts.
fn context<'a>(draft: &'a ServerDraft, host: McpHost, home: Option<&'a str>) -> TemplateContext<'a> {
    TemplateContext { folder: draft.folder.as_deref(), home, syntax: host.syntax() }
}

/// Returns why headend could not start a block's server with what it has now. `is_takable`: whether
/// files could hold all of its secrets.
fn reason_to_stay(block: &UpstreamBlock, names: &ImportNames, is_takable: bool) -> Option<String> {
    if let Some(reason) = block.reasons.first() {
        return Some(reason.clone());
    }
    let is_input = |name: &str| names.secret_of(name).is_some_and(|secret| secret.starts_with("${input:"));
    let is_missing = |name: &&str| match (names.secret_of(name), source::environment(name)) {
        (Some(secret), value) => value.as_deref() != Some(secret),
        (None, value) => value.is_none(),
    };
    let missing: Vec<&str> = block.exports.iter().map(|(name, _)| name.as_str()).filter(is_missing).collect();
    let (first, all) = (missing.first()?, missing.join(", "));
    let has_secret = missing.iter().any(|name| names.secret_of(name).is_some());
    let again = format!("here (`export {first}=...`) and where headend runs, and run the command again");
    Some(if missing.iter().any(|name| is_input(name)) {
        "its host asks for an input, which headend cannot do".to_owned()
    } else if has_secret && is_takable {
        format!(
            "it has a secret ({all}) that headend does not have; --take-secrets keeps it in a file that only you can read"
        )
    } else if has_secret {
        format!("a secret in its arguments or address cannot be kept in a file; to move it, set {all} {again}")
    } else {
        format!("set {all} {again}")
    })
}
