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
use crate::cli::setup::hosts::{EntryForm, HOSTS, HostFolders, KnownHost};
use crate::cli::setup::import::{HostServers, ImportTarget};
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

use self::config_edit::ConfigEdit;
use self::edit::{EntryMembers, ListText};
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
    /// The host, as the list without it is headed; without a host, list those on this machine.
    host: Option<String>,
    /// Which of the host's files gets the entry.
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
    /// Which of the host's files has the entry.
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
    home: String,
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
    let value = entry::entry(host, &words);
    let (path, root) = place(host, args.scope)?;
    if args.print {
        return print_entry(host, &path, &value);
    }
    let edit = HostEdit::read(host, path, &root)?;
    connect(common, args, edit, &value)
}

/// Finds a host that a command names.
fn find(name: &str) -> Result<&'static KnownHost, CommandFailure> {
    HOSTS.iter().find(|host| host.id == name).ok_or_else(|| {
        let meant = suggest_names(name, HOSTS.iter().map(|host| host.id.to_owned()));
        let known = HOSTS.iter().map(|host| host.id).collect::<Vec<_>>().join(", ");
        CommandFailure::new(USAGE, format!("no host `{}` is known{meant}\nKnown are: {known}", foreign::line(name)))
    })
}

/// Returns the file of a host, and the directory that it must lie in.
fn place(host: &KnownHost, scope: ConnectScope) -> Result<(PathBuf, PathBuf), CommandFailure> {
    let missing = |what: &str| CommandFailure::new(USAGE, what);
    let folders = HostFolders::from_environment().ok_or_else(|| missing("$HOME is not set"))?;
    if scope == ConnectScope::User {
        let path = host.user_file(&folders).ok_or_else(|| missing("the host has no file"))?;
        let root = folders.root(&path).to_owned();
        return Ok((path, root));
    }
    let here = std::env::current_dir().map_err(|error| CommandFailure::new(TEMPFAIL, error))?;
    let path = host.project_file(&here);
    let path = path.ok_or_else(|| missing(&format!("{} has no file for projects; leave --scope out", host.title)))?;
    Ok((path, here))
}

/// Prints the entry within its list, and where it goes.
fn print_entry(host: &KnownHost, path: &Path, value: &EntryMembers) -> Result<u8, CommandFailure> {
    let text = if matches!(host.form, EntryForm::YamlItem | EntryForm::YamlExtension) {
        Ok(entry::yaml(host, value))
    } else {
        let list = ListText::new(path, "", host.list);
        list.and_then(|mut list| list.put(ENTRY, value).and_then(|()| list.finish()))
            .map(|text| text.trim().to_owned() + "\n")
    };
    print(&text.map_err(|why| CommandFailure::new(CONFIG, why))?)?;
    complain(&format!("this goes into {}", path.display()));
    Ok(OK)
}

/// Lists the hosts on this machine, whether they are connected, and which servers they start
/// themselves.
fn list() -> Result<u8, CommandFailure> {
    let folders = HostFolders::from_environment().ok_or_else(|| CommandFailure::new(USAGE, "$HOME is not set"))?;
    let home = folders.home.display().to_string();
    let here = std::env::current_dir().ok().filter(|here| *here != folders.home);
    let mut rows = Vec::new();
    for host in HOSTS {
        let user = host.user_file(&folders);
        let is_here =
            |path: &PathBuf| path.is_file() || path.parent().is_some_and(|dir| dir != folders.home && dir.is_dir());
        let project = here.as_ref().and_then(|here| host.project_file(here)).filter(|path| path.is_file());
        for (path, scope) in user.filter(is_here).into_iter().zip([""]).chain(project.into_iter().zip([" (project)"])) {
            let root = if scope.is_empty() { folders.root(&path).to_owned() } else { here.clone().unwrap_or_default() };
            let read = EditedFile::read(host, &path, &root)
                .and_then(|file| HostServers::read(&path, file.text(), Some(&home)));
            let (connected, own) = match &read {
                Err(why) => ("?", why.clone()),
                Ok(servers) => {
                    let own: Vec<&str> = servers.others().collect();
                    let own =
                        if own.is_empty() { "-".to_owned() } else { format!("{}: {}", own.len(), own.join(", ")) };
                    (if servers.of_headend().next().is_some() { "yes" } else { "no" }, own)
                }
            };
            let shown =
                path.strip_prefix(&folders.home).map_or_else(|_| path.clone(), |below| Path::new("~").join(below));
            let print = if host.is_edited { "" } else { " (--print)" };
            rows.push(vec![
                format!("{}{scope}{print}", host.id),
                connected.to_owned(),
                own,
                shown.display().to_string(),
            ]);
        }
    }
    if rows.is_empty() {
        return Err(CommandFailure::new(
            NO,
            "no host was found on this machine; `headend connect --help` names those that are known",
        ));
    }
    let columns =
        [("HOST", 0), ("CONNECTED", 0), ("ITS OWN SERVERS", 0), ("FILE", 1)].map(|(head, rank)| Column { head, rank });
    print(&(Screen::of_stdout().plain(&columns, &rows) + "\n"))?;
    print(&Screen::of_stdout().paragraph("Next: `headend connect HOST --move` gives a host headend in the place of its own servers, and shows the change first."))
}

impl HostEdit {
    fn read(host: &'static KnownHost, path: PathBuf, root: &Path) -> Result<Self, CommandFailure> {
        let refused = |why: String| CommandFailure::new(NO, why);
        if !host.is_edited {
            let why = format!(
                "headend does not edit the file of {}; `headend connect {} --print` prints the entry",
                host.title, host.id
            );
            return Err(refused(why));
        }
        let home = source::environment("HOME").unwrap_or_default();
        let file = EditedFile::read(host, &path, root).map_err(refused)?;
        let mut keys = host.list.to_vec();
        // opencode since version 2, where `mcp` has other members beside the list.
        if host.form == EntryForm::Words && file.text().contains("\"servers\"") {
            let names = ListText::new(&path, file.text(), &["mcp", "servers"]).and_then(|list| list.names());
            if names.is_ok_and(|names| !names.iter().any(|name| name == "command" || name == "url")) {
                keys.push("servers");
            }
        }
        ListText::new(&path, file.text(), &keys).map_err(refused)?;
        let servers = HostServers::read(&path, file.text(), Some(&home)).map_err(refused)?;
        let records = ConnectRecords::find()?;
        let record = records.load(host.id, &path)?;
        let entry = servers.of_headend().next().unwrap_or(ENTRY).to_owned();
        Ok(Self { host, home, keys, file, servers, records, record, entry })
    }

    fn list_of<'t>(&'t self, text: &str) -> Result<ListText<'t>, CommandFailure> {
        ListText::new(&self.file.shown, text, &self.keys).map_err(|why| CommandFailure::new(NO, why))
    }

    /// Returns the text of the file as it would be without headend: the old one if nothing else
    /// has changed, else the present one without the entry and with the moved servers. `None` for
    /// no file.
    fn without_headend(&self) -> Result<Option<String>, CommandFailure> {
        let refused = |why: String| CommandFailure::new(NO, why);
        let Some((record, before)) = &self.record else {
            let mut list = self.list_of(self.file.text())?;
            list.remove(&self.entry).map_err(refused)?;
            return Ok(self.file.is_there().then_some(list.finish().map_err(refused)?));
        };
        if record.is_after(self.file.text()) {
            return Ok(before.clone());
        }
        let mut list = self.list_of(self.file.text())?;
        for server in &record.moved {
            if !list.names().map_err(refused)?.contains(&server.name) {
                list.insert(&server.name, server.after.as_deref(), &server.text).map_err(refused)?;
            }
        }
        list.remove(&record.entry).map_err(refused)?;
        if record.made_list {
            list.remove_empty_list().map_err(refused)?;
        }
        Ok(self.file.is_there().then_some(list.finish().map_err(refused)?))
    }

    /// Shows the change of the host's file and of headend's files, without secrets.
    fn show(&self, after: &str, config: &ConfigEdit) -> Result<(), CommandFailure> {
        let screen = Screen::of_stdout();
        let hides = |keys: &[&str], value: &str| self.servers.hides(keys, value);
        let files = config.changes().map(|(path, old, new)| (path, old, new));
        for (path, old, new) in files.chain([(&*self.file.shown, self.file.text(), after)]) {
            if old != new {
                let redacted = |text: &str| ListText::redacted(path, text, &hides);
                let change = diff::text(screen, &redacted(old), &redacted(new));
                follow(&format!("{}\n{change}\n", foreign::line(&path.display().to_string())))?;
            }
        }
        Ok(())
    }
}

/// Asks whether the change that was shown is to be made; returns false for a dry run.
fn confirm(dry_run: bool, yes: bool) -> Result<bool, CommandFailure> {
    if dry_run || yes {
        return Ok(!dry_run);
    }
    if !terminal::is_here() {
        return Err(CommandFailure::new(USAGE, "nobody is at a terminal to answer; --yes makes the change"));
    }
    if terminal::ask("Make this change?")? { Ok(true) } else { Err(CommandFailure::new(NO, "nothing was changed")) }
}

/// Puts the entry into the host's file, and moves its servers if asked to.
fn connect(
    common: &CommonOptions,
    args: &ConnectArgs,
    edit: HostEdit,
    value: &EntryMembers,
) -> Result<u8, CommandFailure> {
    let refused = |why: String| CommandFailure::new(NO, why);
    let target =
        ImportTarget::read(source::find_writable_file(common)?).map_err(|why| CommandFailure::new(CONFIG, why));
    let target = if args.moves { target? } else { ImportTarget::default() };
    let folder = args.take_secrets.then(|| edit.records.secrets());
    let mut servers = if args.moves {
        edit.servers.convert(Some(&edit.home), &target, folder.as_deref())
    } else {
        Default::default()
    };
    let mut list = edit.list_of(edit.file.text())?;
    let names = list.names().map_err(refused)?;
    list.put(&edit.entry, value).map_err(refused)?;
    let mut moved = Vec::new();
    while let Some(server) = servers.moved.get(moved.len()).cloned() {
        match list.remove(&server.name) {
            Ok(text) => {
                let at = names.iter().position(|name| *name == server.name).and_then(|at| at.checked_sub(1));
                let after = at.and_then(|at| names.get(at).cloned());
                let (upstream, was_on) = (server.upstream, server.present == Some(true));
                moved.push(MovedServer { name: server.name, upstream, was_on, text: text.unwrap_or_default(), after });
            }
            Err(why) => servers.leave_at(moved.len(), why),
        }
    }
    let after = list.finish().map_err(refused)?;
    let (addition, told) = servers.addition(&edit.servers, &target);
    let present: Vec<&str> =
        servers.moved.iter().filter(|server| server.present.is_some()).map(|server| &*server.upstream).collect();
    let config = ConfigEdit::new(&target, &addition, &present, true)?;
    let title = edit.host.title;
    let left: Vec<String> =
        servers.left.iter().map(|(name, why)| format!("\n  {}: {}", foreign::line(name), foreign::line(why))).collect();
    if !left.is_empty() {
        complain(&format!("these servers stay in {}:{}", edit.file.shown.display(), left.concat()));
    }
    if after == edit.file.text() && config.changes().next().is_none() {
        return print(&format!("{title} is connected already: {}\n", edit.file.shown.display()));
    }
    edit.show(&after, &config)?;
    if !confirm(args.dry_run, args.yes)? {
        return Ok(OK);
    }
    let before = edit.without_headend()?;
    let had_list = ListText::new(&edit.file.shown, edit.file.text(), &edit.keys).is_ok_and(|list| list.has_list());
    let mut record = ConnectRecord {
        file: edit.file.shown.clone(),
        entry: edit.entry.clone(),
        after: Digest::of(after.as_bytes()).hex(),
        made_list: edit.record.as_ref().map_or(!had_list, |(record, _)| record.made_list),
        moved: edit.record.as_ref().map(|(record, _)| record.moved.clone()).unwrap_or_default(),
    };
    record.moved.retain(|server| !names.contains(&server.name));
    let count = moved.len();
    record.moved.extend(moved);
    for (path, secret) in servers.moved.iter().flat_map(|server| &server.secrets) {
        record::write(path, Some(&format!("{secret}\n")))?;
    }
    edit.records.save(edit.host.id, &record, before.as_deref())?;
    let plan = config.apply(common)?;
    edit.file.replace(Some(&after)).map_err(refused)?;
    told.iter().for_each(|text| complain(text));
    let mut out = format!("{title} starts headend now: {}\n", edit.file.shown.display());
    if args.moves {
        let plan = plan.map(|plan| format!("; {}", foreign::line(&plan))).unwrap_or_default();
        out.push_str(&format!("moved to {}: {count}{plan}\n", target.path.display()));
    }
    out.push_str(&format!("Restart {title}. `headend disconnect {}` undoes it.\n", edit.host.id));
    print(&out)
}

/// Runs `headend disconnect`: takes the entry out of the host's file, puts moved servers back, and
/// disables them in headend's file.
pub(in crate::cli) fn disconnect(common: &CommonOptions, args: &DisconnectArgs) -> Result<u8, CommandFailure> {
    let host = find(&args.host)?;
    let (path, root) = place(host, args.scope)?;
    let edit = HostEdit::read(host, path, &root)?;
    let shown = edit.file.shown.display();
    let is_there = edit.servers.of_headend().next().is_some();
    if edit.record.is_none() && !is_there {
        return Err(CommandFailure::new(
            NO,
            format!("{} is not connected: no entry for headend is in {shown}", host.title),
        ));
    }
    let after = edit.without_headend()?;
    let moved = edit.record.as_ref().map(|(record, _)| record.moved.as_slice()).unwrap_or_default();
    let others = edit.records.others(host.id, &edit.file.shown);
    let is_used = |server: &&MovedServer| {
        let is_other = others.iter().flat_map(|record| &record.moved).any(|other| other.upstream == server.upstream);
        !server.was_on && !is_other
    };
    let names: Vec<&str> = moved.iter().filter(is_used).map(|server| &*server.upstream).collect();
    let target = match names.as_slice() {
        [] => ImportTarget::default(),
        _ => ImportTarget::read(source::find_writable_file(common)?).map_err(|why| CommandFailure::new(CONFIG, why))?,
    };
    let config = ConfigEdit::new(&target, "", &names, false)?;
    edit.show(after.as_deref().unwrap_or_default(), &config)?;
    if !confirm(args.dry_run, args.yes)? {
        return Ok(OK);
    }
    if after.as_deref() != Some(edit.file.text()) || !edit.file.is_there() {
        edit.file.replace(after.as_deref()).map_err(|why| CommandFailure::new(NO, why))?;
    }
    let plan = config.apply(common)?;
    edit.records.forget(host.id, &edit.file.shown)?;
    let mut out = format!("{} no longer starts headend: {shown}\n", host.title);
    if !moved.is_empty() {
        let plan = plan.map(|plan| format!("; {}", foreign::line(&plan))).unwrap_or_default();
        out.push_str(&format!("put back: {}; disabled in headend: {}{plan}\n", moved.len(), names.len()));
    }
    print(&(out + &format!("Restart {}.\n", host.title)))
}
