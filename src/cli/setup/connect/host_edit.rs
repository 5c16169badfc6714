//! A host's file while a command edits it: read with what headend keeps of it, shown, and asked
//! about.

use std::fs::File;
use std::path::{Path, PathBuf};

use super::config_edit::ConfigChange;
use super::diff;
use super::edit::{ListText, redacted};
use super::file::EditedFile;
use super::record::{ConnectRecord, ConnectRecords, MovedServer};
use crate::cli::exit::{NO, USAGE};
use crate::cli::setup::hosts::{HostFolders, KnownHost};
use crate::cli::setup::import::{HostServers, MovableServers};
use crate::cli::words::output::{CommandFailure, follow};
use crate::cli::words::screen::Screen;
use crate::cli::words::terminal;
use crate::wire::foreign;

/// A host's file that is connected or disconnected.
pub(super) struct HostEdit {
    pub(super) host: &'static KnownHost,
    pub(super) home: PathBuf,
    pub(super) file: EditedFile,
    pub(super) list: ListText,
    pub(super) servers: HostServers,
    pub(super) records: ConnectRecords,
    /// The changes of an earlier `connect`, and the text of the file before it.
    pub(super) record: Option<(ConnectRecord, Option<String>)>,
    /// Name of the entry for headend; `None` if the file has none.
    pub(super) entry: Option<String>,
}

impl HostEdit {
    /// Reads a host's file and what an earlier `connect` did to it.
    ///
    /// # Errors
    /// 1 if the file is not edited: by its host, or since that would not be safe.
    pub(super) fn read(host: &'static KnownHost, path: &Path, root: &Path) -> Result<Self, CommandFailure> {
        if !host.is_edited {
            let KnownHost { id, title, .. } = host;
            let why =
                format!("headend does not edit the file of {title}; `headend connect {id} --print` prints the entry");
            return Err(refused(why));
        }
        let file = EditedFile::read(host, path, root).map_err(refused)?;
        let list = |keys: &[&'static str]| ListText::new(path, file.text(), keys);
        let mut keys = host.list.to_vec();
        // opencode since version 2, where `mcp` has other members beside the list.
        if host.list == ["mcp"]
            && list(&["mcp", "servers"])
                .is_ok_and(|list| !list.names().is_empty() && !list.names().contains(&"type".to_owned()))
        {
            keys.push("servers");
        }
        let list = list(&keys).map_err(refused)?;
        let home = folders()?.home;
        let servers = HostServers::read(path, file.text(), &home).map_err(refused)?;
        let records = ConnectRecords::find()?;
        let record = records.load(host.id, path)?;
        // The user may have renamed or changed the entry, or put a server of another kind in its
        // place.
        let recorded = record.as_ref().map(|(record, _)| &*record.entry).filter(|name| servers.leads_to_headend(name));
        let entry = recorded.or_else(|| servers.of_headend().next()).map(str::to_owned);
        Ok(Self { host, home, file, list, servers, records, record, entry })
    }

    /// Lists the servers that earlier commands moved.
    pub(super) fn moved(&self) -> &[MovedServer] {
        self.record.as_ref().map(|(record, _)| record.moved.as_slice()).unwrap_or_default()
    }

    /// Lists the moved servers whose names the file does not have.
    pub(super) fn absent(&self) -> impl Iterator<Item = &MovedServer> {
        self.moved().iter().filter(|server| !self.list.names().contains(&server.name))
    }

    /// Returns the text of the file as it would be without headend: the old one if nothing else
    /// has changed, else the present one without the entry and with the moved servers. `None` for
    /// no file.
    pub(super) fn without_headend(&self) -> Result<Option<String>, String> {
        let record = self.record.as_ref();
        if let Some((_, before)) = record.filter(|(record, _)| record.is_after(self.file.text())) {
            return Ok(before.clone());
        }
        if record.is_none() && self.entry.is_none() {
            return Ok(self.file.is_there().then(|| self.file.text().to_owned()));
        }
        let mut list = self.list.clone();
        for server in self.absent() {
            list.insert(&server.name, server.after.as_deref(), &server.text)?;
        }
        if let Some(entry) = &self.entry {
            list.remove(entry)?;
        }
        if record.is_some_and(|(record, _)| record.made_list) {
            list.remove_empty_list()?;
        }
        let after = list.finish()?;
        Ok((self.file.is_there() || !after.is_empty()).then_some(after))
    }

    /// Takes the servers out of the list, and leaves those that are not in it or cannot be taken
    /// out.
    pub(super) fn take_out(&self, servers: &mut MovableServers, list: &mut ListText) -> Vec<MovedServer> {
        let (records, names) = (self.records.all(), self.list.names());
        let mut taken = Vec::new();
        for server in std::mem::take(&mut servers.moved) {
            let text = list.remove(&server.name).and_then(|text| {
                text.ok_or_else(|| "it is in another list of the file, which headend does not edit".to_owned())
            });
            match text {
                Ok(text) => {
                    let at = names.iter().position(|name| *name == server.name).and_then(|at| at.checked_sub(1));
                    let after = at.and_then(|at| names.get(at).cloned());
                    let is_ours = records.iter().any(|record| record.has_brought(&server.upstream));
                    let was_on = server.present == Some(true) && !is_ours;
                    let (name, upstream) = (server.name.clone(), server.upstream.clone());
                    taken.push(MovedServer { name, upstream, was_on, text, after });
                    servers.moved.push(server);
                }
                Err(why) => servers.leave(&server.name, &why),
            }
        }
        taken
    }

    /// Waits for other commands, and checks that none has changed what this one has read.
    pub(super) fn lock(&self) -> Result<File, CommandFailure> {
        let lock = self.records.lock()?;
        if self.records.load(self.host.id, &self.file.shown)? != self.record {
            return Err(refused("another command changed the file in the meantime; run the command again"));
        }
        Ok(lock)
    }

    /// Formats a change without secrets. `hides` says which strings are secret, by their keys too.
    fn change(&self, path: &Path, old: &str, new: &str, hides: &dyn Fn(&[&str], &str) -> bool) -> String {
        let shown = |text| redacted(path, text, hides).map(|text| self.servers.redact_comments(&text));
        let change = match (shown(old), shown(new)) {
            (Some(old), Some(new)) => diff::text(Screen::of_stdout(), &old, &new),
            _ => "    (not shown, since it could hold a secret)\n".to_owned(),
        };
        format!("{}\n{change}\n", foreign::line(&path.display().to_string()))
    }

    /// Shows the changes of headend's files and of the host's file, and asks whether they are to be
    /// made; returns false for a dry run.
    pub(super) fn confirm(
        &self,
        own: &[ConfigChange],
        after: &str,
        dry_run: bool,
        yes: bool,
    ) -> Result<bool, CommandFailure> {
        for ConfigChange { path, before, after } in own {
            // In headend's own files the names of keys say nothing about what is secret.
            let hides = |_: &[&str], value: &str| self.servers.hides(&[], value);
            follow(&self.change(path, before.as_deref().unwrap_or_default(), after, &hides))?;
        }
        if after != self.file.text() {
            let hides = |keys: &[&str], value: &str| self.servers.hides(keys, value);
            follow(&self.change(&self.file.shown, self.file.text(), after, &hides))?;
        }
        if dry_run {
            return follow("Nothing was changed: this was a dry run.\n").map(|_| false);
        }
        if !yes && !terminal::is_here() {
            return Err(CommandFailure::new(USAGE, "nobody is at a terminal to answer; --yes makes the change"));
        }
        if yes || terminal::ask("Make this change?")? { Ok(true) } else { Err(refused("nothing was changed")) }
    }
}

/// Reads the directories of hosts' files.
pub(super) fn folders() -> Result<HostFolders, CommandFailure> {
    HostFolders::from_environment().ok_or_else(|| CommandFailure::new(USAGE, "$HOME is not set"))
}

/// Wraps the reason why nothing was changed.
pub(super) fn refused(why: impl std::fmt::Display) -> CommandFailure {
    CommandFailure::new(NO, why)
}
