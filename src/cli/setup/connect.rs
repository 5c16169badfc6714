//! The commands `headend connect` and `headend disconnect`: put the one entry for headend into a
//! host's file, take the host's servers over, and undo both.
//!
//! The host's file belongs to its user. It is edited in place, after a look at the change, and is
//! replaced as a whole or not at all. While servers move, headend's file is written first, so that
//! at each moment every server is in one of the two files.

use std::path::{Path, PathBuf};

use clap::{Args, ValueEnum};

use crate::cli::exit::{CONFIG, NO, OK, TEMPFAIL, USAGE};
use crate::cli::reach::source;
use crate::cli::setup::hosts::{HOSTS, HostFolders, KnownHost};
use crate::cli::setup::import::{HostServers, ImportTarget, MovableServers};
use crate::cli::setup::switch;
use crate::cli::words::meant::suggest_names;
use crate::cli::words::options::CommonOptions;
use crate::cli::words::output::{CommandFailure, complain, follow, print};
use crate::cli::words::screen::{Column, Screen};
use crate::cli::words::terminal;
use crate::wire::digest::Digest;
use crate::wire::foreign;

mod config_edit;
mod diff;
mod edit;
mod entry;
mod file;
mod record;
#[cfg(test)]
mod tests;

use self::edit::{EntryMembers, ListText, redacted};
use self::file::EditedFile;
use self::record::{ConnectRecord, ConnectRecords, MovedServer};

/// Name of the entry in hosts.
const ENTRY: &str = "headend";

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub(in crate::cli) enum ConnectScope {
    /// The file of the user, for all projects.
    #[default]
    User,
    /// The file of the project in the working directory.
    Project,
}

#[derive(Clone, Debug, Default, Args)]
pub(in crate::cli) struct ConnectArgs {
    /// The host, such as claude-code or codex; without it, list the hosts on this machine.
    host: Option<String>,
    /// The file that gets the entry.
    #[arg(long, value_enum, default_value_t)]
    scope: ConnectScope,
    /// Serve this profile to the host.
    #[arg(long)]
    profile: Option<String>,
    /// Take the host's own servers over: add them to headend's file, and remove them from the
    /// host's.
    #[arg(long = "move")]
    moves: bool,
    /// Move servers whose secrets the host's file has too: keep each secret in a file that only you
    /// can read.
    #[arg(long, requires = "moves")]
    take_secrets: bool,
    /// Show the change, and make none.
    #[arg(long)]
    dry_run: bool,
    /// Print the entry, and say where it goes.
    #[arg(long, conflicts_with_all = ["moves", "dry_run"])]
    print: bool,
    /// Make the change without a question.
    #[arg(long, short)]
    yes: bool,
}

#[derive(Clone, Debug, Default, Args)]
pub(in crate::cli) struct DisconnectArgs {
    /// The host, as `headend connect` lists it.
    host: String,
    /// The file that has the entry.
    #[arg(long, value_enum, default_value_t)]
    scope: ConnectScope,
    /// Show the change, and make none.
    #[arg(long)]
    dry_run: bool,
    /// Make the change without a question.
    #[arg(long, short)]
    yes: bool,
}

/// A host's file that is connected or disconnected.
struct HostEdit {
    host: &'static KnownHost,
    home: PathBuf,
    keys: Vec<&'static str>,
    file: EditedFile,
    servers: HostServers,
    records: ConnectRecords,
    /// What an earlier `connect` did, and the text of the file before it.
    record: Option<(ConnectRecord, Option<String>)>,
    /// Name of the entry for headend.
    entry: String,
}

/// Runs `headend connect`.
pub(in crate::cli) fn run(common: &CommonOptions, args: &ConnectArgs) -> Result<u8, CommandFailure> {
    let Some(name) = &args.host else { return list() };
    let host = find(name)?;
    let words = entry::command_line(common, args.profile.as_deref())?;
    let members = entry::entry(host, &words);
    let (path, root) = place(host, args.scope)?;
    if args.print {
        return print_entry(host, &path, &members);
    }
    connect(common, args, &HostEdit::read(host, &path, &root)?, &members)
}

/// Finds a host that a command names.
fn find(name: &str) -> Result<&'static KnownHost, CommandFailure> {
    HOSTS.iter().find(|host| host.id == name).ok_or_else(|| {
        let meant = suggest_names(name, HOSTS.iter().map(|host| host.id.to_owned()));
        let known = HOSTS.iter().map(|host| host.id).collect::<Vec<_>>().join(", ");
        CommandFailure::new(USAGE, format!("no host `{}` is known{meant}\nKnown are: {known}", foreign::line(name)))
    })
}

/// Reads the directories of hosts' files.
fn folders() -> Result<HostFolders, CommandFailure> {
    HostFolders::from_environment().ok_or_else(|| CommandFailure::new(USAGE, "$HOME is not set"))
}

/// Wraps the reason why nothing was changed.
fn refused(why: impl std::fmt::Display) -> CommandFailure {
    CommandFailure::new(NO, why)
}

/// Returns the file of a host, and the directory that it must lie in.
fn place(host: &KnownHost, scope: ConnectScope) -> Result<(PathBuf, PathBuf), CommandFailure> {
    let folders = folders()?;
    let here = std::env::current_dir().map_err(|error| CommandFailure::new(TEMPFAIL, error))?;
    let found = match scope {
        ConnectScope::User => host.user_file(&folders).map(|path| (path.clone(), folders.root(&path).to_owned())),
        ConnectScope::Project => host.project_file(&here).map(|path| (path, here)),
    };
    let none = || format!("{} has no file for projects; leave --scope out", host.title);
    found.ok_or_else(|| CommandFailure::new(USAGE, none()))
}

/// Prints the entry within its list, and where it goes.
fn print_entry(host: &KnownHost, path: &Path, members: &EntryMembers) -> Result<u8, CommandFailure> {
    let text = if path.extension().is_some_and(|ending| ending == "yaml") {
        entry::yaml(host, members)
    } else {
        let list = ListText::new(path, "", host.list);
        list.and_then(|mut list| list.put(ENTRY, members).and_then(|()| list.finish())).map_err(refused)?
    };
    complain(&format!("this goes into {}", path.display()));
    print(&text)
}

/// Lists the hosts on this machine, whether they are connected, and which servers they start
/// themselves.
fn list() -> Result<u8, CommandFailure> {
    let folders = folders()?;
    let here = std::env::current_dir().ok().filter(|here| *here != folders.home);
    let is_here =
        |path: &PathBuf| path.is_file() || path.parent().is_some_and(|dir| dir != folders.home && dir.is_dir());
    let (mut rows, mut notes) = (Vec::new(), Vec::new());
    for host in HOSTS {
        let user = host.user_file(&folders).filter(is_here);
        let user = user.map(|path| (folders.root(&path).to_owned(), path, ""));
        let project = here.as_ref().and_then(|here| Some((here.clone(), host.project_file(here)?, " (project)")));
        for (root, path, scope) in user.into_iter().chain(project.filter(|(_, path, _)| path.is_file())) {
            let file = EditedFile::read(host, &path, &root);
            let servers = file.and_then(|file| HostServers::read(&path, file.text(), &folders.home));
            let (connected, own, note) = servers.map_or_else(
                |why| ("?", 0, why),
                |servers| {
                    let own: Vec<&str> = servers.others().collect();
                    (if servers.of_headend().next().is_some() { "yes" } else { "no" }, own.len(), own.join(", "))
                },
            );
            let name = format!("{}{scope}{}", host.id, if host.is_edited { "" } else { " (--print)" });
            rows.push(vec![name, connected.to_owned(), own.to_string(), path.display().to_string()]);
            notes.push(note);
        }
    }
    if rows.is_empty() {
        return Err(refused("no host was found on this machine; `headend connect HOST` makes its file"));
    }
    let columns = [("HOST", 0), ("CONNECTED", 0), ("SERVERS OF ITS OWN", 0), ("FILE", 1)];
    let columns = columns.map(|(head, rank)| Column { head, rank });
    let (screen, note) = (Screen::of_stdout(), |at: usize| notes.get(at).filter(|note| !note.is_empty()).cloned());
    let table = screen.table(&columns, &rows, |_, _| None, note);
    let next = "Next: `headend connect HOST --move` gives a host headend in the place of its own servers.";
    print(&format!("{table}\n{}", screen.paragraph(next)))
}

impl HostEdit {
    /// Reads a host's file and what an earlier `connect` did to it.
    ///
    /// # Errors
    /// 1 if the file is not edited: by its host, or since that would not be safe.
    fn read(host: &'static KnownHost, path: &Path, root: &Path) -> Result<Self, CommandFailure> {
        if !host.is_edited {
            let KnownHost { id, title, .. } = host;
            let why =
                format!("headend does not edit the file of {title}; `headend connect {id} --print` prints the entry");
            return Err(refused(why));
        }
        let file = EditedFile::read(host, path, root).map_err(refused)?;
        let mut keys = host.list.to_vec();
        // opencode since version 2, where `mcp` has other members beside the list.
        let names = ListText::new(path, file.text(), &["mcp", "servers"]).and_then(|list| list.names());
        if host.list == ["mcp"] && names.is_ok_and(|names| !names.is_empty() && !names.contains(&"type".to_owned())) {
            keys.push("servers");
        }
        ListText::new(path, file.text(), &keys).map_err(refused)?;
        let home = folders()?.home;
        let servers = HostServers::read(path, file.text(), &home).map_err(refused)?;
        let records = ConnectRecords::find()?;
        let record = records.load(host.id, path)?;
        let entry = servers.of_headend().next().unwrap_or(ENTRY).to_owned();
        Ok(Self { host, home, keys, file, servers, records, record, entry })
    }

    /// Begins to edit the list in the file.
    fn list(&self) -> Result<ListText<'_>, CommandFailure> {
        ListText::new(&self.file.shown, self.file.text(), &self.keys).map_err(refused)
    }

    fn moved(&self) -> &[MovedServer] {
        self.record.as_ref().map(|(record, _)| record.moved.as_slice()).unwrap_or_default()
    }

    /// Returns the text of the file as it would be without headend: the old one if nothing else
    /// has changed, else the present one without the entry and with the moved servers. `None` for
    /// no file.
    fn without_headend(&self) -> Result<Option<String>, String> {
        let record = self.record.as_ref();
        if let Some((_, before)) = record.filter(|(record, _)| record.is_after(self.file.text())) {
            return Ok(before.clone());
        }
        let mut list = ListText::new(&self.file.shown, self.file.text(), &self.keys)?;
        let names = list.names()?;
        for server in self.moved().iter().filter(|server| !names.contains(&server.name)) {
            list.insert(&server.name, server.after.as_deref(), &server.text)?;
        }
        list.remove(record.map_or(&self.entry, |(record, _)| &record.entry))?;
        if record.is_some_and(|(record, _)| record.made_list) {
            list.remove_empty_list()?;
        }
        let after = list.finish()?;
        Ok(self.file.is_there().then_some(after))
    }

    /// Shows the changes of headend's file and of the host's file without secrets, and asks whether
    /// they are to be made; returns false for a dry run.
    fn confirm(&self, changes: &[(&Path, &str, &str)], dry_run: bool, yes: bool) -> Result<bool, CommandFailure> {
        for (path, old, new) in changes.iter().filter(|(_, old, new)| old != new) {
            // In headend's own file the names of keys say nothing about what is secret.
            let is_host = *path == self.file.shown;
            let hides = |keys: &[&str], value: &str| self.servers.hides(if is_host { keys } else { &[] }, value);
            let change = match (redacted(path, old, &hides), redacted(path, new, &hides)) {
                (Some(old), Some(new)) => diff::text(Screen::of_stdout(), &old, &new),
                _ => "    (not shown, since it could hold a secret)\n".to_owned(),
            };
            follow(&format!("{}\n{change}\n", foreign::line(&path.display().to_string())))?;
        }
        if !dry_run && !yes && !terminal::is_here() {
            return Err(CommandFailure::new(USAGE, "nobody is at a terminal to answer; --yes makes the change"));
        }
        let is_wanted = dry_run || yes || terminal::ask("Make this change?")?;
        if is_wanted { Ok(!dry_run) } else { Err(refused("nothing was changed")) }
    }
}

/// Puts the entry into the host's file, and moves its servers if asked to.
fn connect(
    common: &CommonOptions,
    args: &ConnectArgs,
    edit: &HostEdit,
    members: &EntryMembers,
) -> Result<u8, CommandFailure> {
    let shown = edit.file.shown.display();
    let target = if args.moves { read_target(common)? } else { ImportTarget::default() };
    let folder = args.take_secrets.then(|| edit.records.secrets());
    let convert = || edit.servers.convert(&edit.home, &target, folder.as_deref());
    let mut servers = if args.moves { convert() } else { MovableServers::default() };
    let mut list = edit.list()?;
    let names = list.names().map_err(refused)?;
    list.put(&edit.entry, members).map_err(refused)?;
    let mut moved: Vec<MovedServer> = edit.moved().iter().filter(|old| !names.contains(&old.name)).cloned().collect();
    let count = moved.len();
    while let Some(server) = servers.moved.get(moved.len() - count).cloned() {
        match list.remove(&server.name) {
            Ok(text) => {
                let at = names.iter().position(|name| *name == server.name).and_then(|at| at.checked_sub(1));
                let after = at.and_then(|at| names.get(at).cloned());
                let (upstream, was_on) = (server.upstream, server.present == Some(true));
                moved.push(MovedServer { name: server.name, upstream, was_on, text: text.unwrap_or_default(), after });
            }
            Err(why) => servers.leave_at(moved.len() - count, &why),
        }
    }
    let after = list.finish().map_err(refused)?;
    let (addition, told) = servers.addition(&edit.servers, &target);
    let extended = if addition.is_empty() { None } else { Some(target.with_addition(&addition).map_err(refused)?) };
    if !servers.left.is_empty() {
        complain(&format!("these servers stay in {shown}:{}", servers.left.concat()));
    }
    let KnownHost { id, title, .. } = edit.host;
    if after == edit.file.text() && servers.moved.is_empty() {
        return print(&format!("{title} is connected already: {shown}\n"));
    }
    let before = target.text().unwrap_or_default();
    let own = (&*target.path, before, extended.as_deref().unwrap_or(before));
    if !edit.confirm(&[own, (&*edit.file.shown, edit.file.text(), &*after)], args.dry_run, args.yes)? {
        return Ok(OK);
    }
    let had_list = edit.list()?.has_list();
    let record = ConnectRecord {
        file: edit.file.shown.clone(),
        entry: edit.entry.clone(),
        after: Digest::of(after.as_bytes()).hex(),
        made_list: edit.record.as_ref().map_or(!had_list, |(record, _)| record.made_list),
        moved,
        config: Some(target.path.clone())
            .filter(|_| args.moves)
            .or_else(|| edit.record.as_ref().and_then(|(record, _)| record.config.clone())),
    };
    for (path, secret) in servers.moved.iter().flat_map(|server| &server.secrets) {
        record::write(path, Some(&format!("{secret}\n")))?;
    }
    edit.records.save(id, &record, edit.without_headend().map_err(refused)?.as_deref())?;
    let plan = if addition.is_empty() { String::new() } else { config_edit::extend(common, &target, &addition)? };
    for server in servers.moved.iter().filter(|server| server.present == Some(false)) {
        switch::run(common, &server.upstream, true)?;
    }
    edit.file.replace(Some(&after)).map_err(refused)?;
    told.iter().for_each(|text| complain(text));
    let moved = format!("moved to {}: {}{plan}\n", target.path.display(), record.moved.len() - count);
    let moved = if args.moves { &*moved } else { "" };
    print(&format!(
        "{title} starts headend now: {shown}\n{moved}Restart {title}. `headend disconnect {id}` undoes it.\n"
    ))
}

/// Reads headend's own files.
fn read_target(common: &CommonOptions) -> Result<ImportTarget, CommandFailure> {
    ImportTarget::read(source::find_writable_file(common)?).map_err(|why| CommandFailure::new(CONFIG, why))
}

/// Runs `headend disconnect`: takes the entry out of the host's file, puts moved servers back, and
/// disables them in headend's file.
pub(in crate::cli) fn disconnect(common: &CommonOptions, args: &DisconnectArgs) -> Result<u8, CommandFailure> {
    let host = find(&args.host)?;
    let (path, root) = place(host, args.scope)?;
    let edit = HostEdit::read(host, &path, &root)?;
    let (title, shown) = (host.title, path.display());
    if edit.record.is_none() && edit.servers.of_headend().next().is_none() {
        return Err(refused(format!("{title} is not connected: no entry for headend is in {shown}")));
    }
    let after = edit.without_headend().map_err(refused)?;
    let others = edit.records.others(host.id, &path);
    let is_ours = |server: &&MovedServer| {
        let mut elsewhere = others.iter().flat_map(|record| &record.moved);
        !server.was_on && !elsewhere.any(|other| other.upstream == server.upstream)
    };
    let ours: Vec<&MovedServer> = edit.moved().iter().filter(is_ours).collect();
    let config = edit.record.as_ref().and_then(|(record, _)| record.config.clone());
    let common = &CommonOptions { config: common.config.clone().or(config), ..common.clone() };
    let target = if ours.is_empty() { ImportTarget::default() } else { read_target(common)? };
    let text = after.as_deref().unwrap_or_default();
    if !edit.confirm(&[(&*path, edit.file.text(), text)], args.dry_run, args.yes)? {
        return Ok(OK);
    }
    if after.as_deref() != edit.file.is_there().then(|| edit.file.text()) {
        edit.file.replace(after.as_deref()).map_err(refused)?;
    }
    for server in ours.iter().filter(|server| target.has(&server.upstream)) {
        switch::run(common, &server.upstream, false)?;
    }
    edit.records.forget(host.id, &path)?;
    let back = edit.moved().len();
    let back = if back > 0 { format!("put back: {back}\n") } else { String::new() };
    print(&format!("{title} no longer starts headend: {shown}\n{back}Restart {title}.\n"))
}
