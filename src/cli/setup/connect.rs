//! The commands `headend connect` and `headend disconnect`: put the one entry for headend into a
//! host's file, take the host's servers over, and undo both.
//!
//! The host's file belongs to its user. It is edited in place, after a look at the change, and is
//! replaced as a whole or not at all. While servers move, headend's file is written first, so that
//! at each moment every server is in one of the two files.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use clap::{Args, ValueEnum};

use crate::cli::exit::{CONFIG, OK, TEMPFAIL, USAGE};
use crate::cli::reach::daemon::DaemonConnection;
use crate::cli::reach::source;
use crate::cli::setup::edit::find_daemon;
use crate::cli::setup::hosts::{HOSTS, KnownHost};
use crate::cli::setup::import::{HostServers, ImportTarget, MovableServers};
use crate::cli::words::meant::suggest_names;
use crate::cli::words::options::CommonOptions;
use crate::cli::words::output::{CommandFailure, complain, print};
use crate::cli::words::screen::{Column, Screen};
use crate::operator::request::{Request, VariablesParams};
use crate::operator::views::VariablesView;
use crate::wire::digest::Digest;
use crate::wire::foreign;

mod config_edit;
mod diff;
mod edit;
mod entry;
mod file;
mod host_edit;
mod record;
#[cfg(test)]
mod tests;

use self::config_edit::{ConfigChange, SwitchedUpstreams};
use self::edit::{EntryMembers, ListText};
use self::file::EditedFile;
use self::host_edit::{HostEdit, folders, refused};
use self::record::{ConnectRecord, MovedServer};

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
    /// Move servers with secrets in variables and headers too: keep each secret in a file that only
    /// you can read.
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

/// Leaves servers in their host whose variables have no value, or another one, in the daemon.
fn leave_by_daemon(servers: &mut MovableServers, daemon: &mut DaemonConnection) {
    let read = |name: &String| Some((name.clone(), Digest::of(source::environment(name)?.as_bytes())));
    let digests: BTreeMap<_, _> = servers.moved.iter().flat_map(|server| &server.variables).filter_map(read).collect();
    if digests.is_empty() {
        return;
    }
    let all = digests.keys().cloned().collect();
    let asked = daemon.ask(&Request::Variables(VariablesParams { digests }));
    // A daemon of an older version cannot say.
    let differing: Vec<String> = asked.map_or(all, |VariablesView { differing }| differing);
    for server in std::mem::take(&mut servers.moved) {
        let names: Vec<&str> =
            server.variables.iter().filter(|name| differing.contains(name)).map(String::as_str).collect();
        if names.is_empty() {
            servers.moved.push(server);
            continue;
        }
        let names = names.join(", ");
        let why = format!(
            "the running daemon does not have {names} as it is here; restart it with that value, and run the command again"
        );
        servers.leave(&server.name, &why);
    }
}

/// Puts the entry into the host's file, and moves its servers if asked to.
fn connect(
    common: &CommonOptions,
    args: &ConnectArgs,
    edit: &HostEdit,
    members: &EntryMembers,
) -> Result<u8, CommandFailure> {
    let (KnownHost { id, title, .. }, shown) = (edit.host, edit.file.shown.display());
    if edit.entry.is_none() && edit.list.names().iter().any(|name| name == ENTRY) {
        return Err(refused(format!(
            "`{ENTRY}` is another server in {shown}; rename it there, and run the command again"
        )));
    }
    let entry = edit.entry.clone().unwrap_or_else(|| ENTRY.to_owned());
    let mut target = ImportTarget::default();
    let (mut daemon, mut servers) = (None, MovableServers::default());
    if args.moves {
        target = read_target(common)?;
        daemon = find_daemon(common, &target.path)?;
        let secrets = args.take_secrets.then(|| edit.records.secrets());
        servers = edit.servers.convert(&edit.home, &target, secrets.as_deref());
        daemon.iter_mut().for_each(|daemon| leave_by_daemon(&mut servers, daemon));
    }
    let mut list = edit.list.clone();
    list.put(&entry, members).map_err(refused)?;
    let new = edit.take_out(&mut servers, &mut list);
    let now = new.iter().map(|server| foreign::line(&server.name)).collect::<Vec<_>>().join(", ");
    let moved = edit.absent().chain(&new).cloned().collect();
    let after = list.finish().map_err(refused)?;
    let (addition, told) = servers.addition(&edit.servers, &target);
    let off = servers.moved.iter().filter(|server| server.present == Some(false));
    let switches = SwitchedUpstreams { names: off.map(|server| server.upstream.clone()).collect(), on: true };
    let changes = config_edit::plan(&target, &addition, &switches).map_err(refused)?;
    if !servers.left.is_empty() {
        complain(&format!("these servers stay in {shown}:{}", servers.left.concat()));
    }
    if after == edit.file.text() {
        return print(&format!("{title} is connected already: {shown}\n"));
    }
    if !edit.confirm(&changes, &after, args.dry_run, args.yes)? {
        return Ok(OK);
    }
    let earlier = edit.record.as_ref().map(|(record, before)| (record, before.as_deref()));
    let record = ConnectRecord {
        file: edit.file.shown.clone(),
        entry,
        after: Digest::of(after.as_bytes()).hex(),
        made_list: earlier.map_or(!edit.list.had_list(), |(record, _)| record.made_list),
        moved,
        config: Some(target.path.clone())
            .filter(|_| args.moves)
            .or_else(|| earlier.and_then(|(record, _)| record.config.clone())),
    };
    let variables: BTreeSet<&str> =
        servers.moved.iter().flat_map(|server| &server.variables).map(String::as_str).collect();
    let is_daemon_asked = daemon.is_some();
    let lock = edit.lock()?;
    let before = edit.without_headend().map_err(refused)?;
    let (mut plan, mut is_added) = (String::new(), false);
    let replaced = edit.file.replace(Some(&after), || {
        for (path, secret) in servers.moved.iter().flat_map(|server| &server.secrets) {
            record::write(path, Some(&format!("{secret}\n")))?;
        }
        edit.records.save(id, &edit.file.shown, Some((&record, before.as_deref())))?;
        let put = config_edit::put_in_force(common, &target, &changes, daemon, &switches);
        plan = put.or_else(|failure| edit.records.save(id, &edit.file.shown, earlier).and(Err(failure)))?;
        is_added = !changes.is_empty();
        Ok(())
    });
    drop(lock);
    replaced.map_err(|failure| {
        let next = format!("\nheadend's file has {now} too: run the command again, or they run twice");
        CommandFailure { text: failure.text + if is_added { &next } else { "" }, ..failure }
    })?;
    told.iter().for_each(|text| complain(text));
    let screen = Screen::of_stdout();
    let mut out = screen.paragraph(&format!("{title} starts headend now: {shown}"));
    if !now.is_empty() {
        out.push_str(&screen.paragraph(&format!("moved to {}: {now}{plan}", target.path.display())));
    }
    if !is_daemon_asked && !variables.is_empty() {
        let names = variables.into_iter().collect::<Vec<_>>().join(", ");
        out.push_str(&screen.paragraph(&format!("headend reads {names} from its environment: set it where it starts")));
    }
    print(&(out + &screen.paragraph(&format!("Restart {title}. `headend disconnect {id}` undoes it."))))
}

/// Reads headend's own files.
fn read_target(common: &CommonOptions) -> Result<ImportTarget, CommandFailure> {
    ImportTarget::read(source::find_writable_file(common)?).map_err(|why| CommandFailure::new(CONFIG, why))
}

/// Plans to disable upstreams in headend's files, and connects to the daemon if there is any.
fn switch_off(
    common: &CommonOptions,
    switches: &SwitchedUpstreams,
) -> Result<(ImportTarget, Vec<ConfigChange>, Option<DaemonConnection>), CommandFailure> {
    if switches.names.is_empty() {
        return Ok(Default::default());
    }
    let target = read_target(common)?;
    let daemon = find_daemon(common, &target.path)?;
    let changes = config_edit::plan(&target, "", switches).map_err(refused)?;
    Ok((target, changes, daemon))
}

/// Runs `headend disconnect`: takes the entry out of the host's file, puts moved servers back, and
/// disables them in headend's file.
pub(in crate::cli) fn disconnect(common: &CommonOptions, args: &DisconnectArgs) -> Result<u8, CommandFailure> {
    let host = find(&args.host)?;
    let (path, root) = place(host, args.scope)?;
    let edit = HostEdit::read(host, &path, &root)?;
    let (KnownHost { id, title, .. }, shown) = (host, path.display());
    if edit.record.is_none() && edit.entry.is_none() {
        return Err(refused(format!("{title} is not connected: no entry for headend is in {shown}")));
    }
    let after = edit.without_headend().map_err(refused)?;
    let others: Vec<ConnectRecord> = edit.records.all().into_iter().filter(|record| record.file != path).collect();
    let is_ours = |server: &&MovedServer| {
        !server.was_on && !others.iter().flat_map(|record| &record.moved).any(|other| other.upstream == server.upstream)
    };
    let names: Vec<String> = edit.moved().iter().filter(is_ours).map(|server| server.upstream.clone()).collect();
    let switches = SwitchedUpstreams { names, on: false };
    let config = edit.record.as_ref().and_then(|(record, _)| record.config.clone());
    let common = &CommonOptions { config: common.config.clone().or(config), ..common.clone() };
    // The host gets its servers back also if headend's file is in disorder.
    let (target, changes, daemon) = switch_off(common, &switches).unwrap_or_else(|failure| {
        complain(&format!("{}\n{} stay in headend: disable them there", failure.text, switches.names.join(", ")));
        Default::default()
    });
    let text = after.as_deref().unwrap_or_default();
    if !edit.confirm(&changes, text, args.dry_run, args.yes)? {
        return Ok(OK);
    }
    let lock = edit.lock()?;
    if after.as_deref() != edit.file.is_there().then(|| edit.file.text()) {
        edit.file.replace(after.as_deref(), || Ok(()))?;
    }
    let plan = config_edit::put_in_force(common, &target, &changes, daemon, &switches)?;
    edit.records.save(id, &path, None)?;
    drop(lock);
    let screen = Screen::of_stdout();
    let mut out = screen.paragraph(&format!("{title} no longer starts headend: {shown}"));
    let back: Vec<_> = edit.absent().map(|server| foreign::line(&server.name)).collect();
    if !back.is_empty() {
        out.push_str(&screen.paragraph(&format!("put back: {}", back.join(", "))));
    }
    for server in edit.moved().iter().filter(|server| edit.list.names().contains(&server.name)) {
        let name = foreign::line(&server.name);
        out.push_str(&screen.paragraph(&format!("not put back: {name}: the file has another server of that name")));
    }
    if !changes.is_empty() {
        let names = switches.names.join(", ");
        out.push_str(&screen.paragraph(&format!("disabled in {}: {names}{plan}", target.path.display())));
    }
    print(&(out + &screen.paragraph(&format!("Restart {title}."))))
}
