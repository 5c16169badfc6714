//! The command `headend backup DIR`: copies the state directory, with or without a running daemon.

use std::path::{Path, PathBuf};

use clap::Args;

use super::exit::CONFIG;
use crate::cli::reach::daemon;
use crate::cli::reach::source;
use crate::cli::reach::source::environment;
use crate::cli::words::options::CommonOptions;
use crate::cli::words::output::{CommandFailure, count, print, print_json};
use crate::cli::words::screen::Screen;
use crate::config::state_dir;
use crate::operator::backup::{self, BackupKeyLocation, BackupView};
use crate::wire::foreign;

#[derive(Clone, Debug, Args)]
pub(super) struct BackupArgs {
    /// The folder to write: a new one, or one that is empty.
    dir: PathBuf,
    /// Copy the key that seals logins and private texts (`secrets.key`) too.
    #[arg(long)]
    with_key: bool,
    /// Print JSON.
    #[arg(long)]
    json: bool,
}

pub(super) fn run(common: &CommonOptions, args: &BackupArgs) -> Result<u8, CommandFailure> {
    let state = state(common)?;
    let config = source::load_quietly(common);
    if config.as_ref().is_some_and(|config| config.cluster.is_some()) {
        return Err(CommandFailure::new(
            CONFIG,
            "the store of a cluster is backed up by the database's own tools, such as `pg_dump`",
        ));
    }
    let is_configured = config.is_some_and(|config| config.secrets.key.is_some());
    let done = backup::write(&state, &args.dir, args.with_key, is_configured).map_err(CommandFailure::from)?;
    if args.json { print_json(&done) } else { print(&text(Screen::of_stdout(), &done)) }
}

/// Returns the state directory of the running daemon, or that of this command if no daemon answers.
fn state(common: &CommonOptions) -> Result<PathBuf, CommandFailure> {
    let theirs = match daemon::connect(common, "admin", None) {
        Ok(daemon) => daemon.hello.state.map(PathBuf::from),
        Err(failure) if common.socket.is_some() => return Err(failure.into()),
        Err(_) => None,
    };
    theirs
        .or_else(|| state_dir(&environment))
        .ok_or_else(|| CommandFailure::new(CONFIG, "no state directory: set $XDG_STATE_HOME or $HOME"))
}

fn text(screen: Screen, done: &BackupView) -> String {
    let path = |path: &Path| foreign::word(&path.to_string_lossy()).into_owned();
    let (state, dir) = (path(&done.state), path(&done.dir));
    let parts = [count(done.grants, "grant"), count(done.pins, "pin"), count(done.logins, "login")];
    let catalogs = done.files.iter().filter(|name| name.starts_with("inventory-")).count();
    let has_token = done.files.iter().any(|name| name == "token");
    let token = if has_token { ", the token of clients" } else { "" };
    let key = match done.key {
        BackupKeyLocation::Included => {
            "The key is in it: who reads the folder can use the logins. Keep it as safe as the state directory."
        }
        BackupKeyLocation::LeftOut => {
            "The key (secrets.key) is not in it: keep a copy elsewhere, or write a backup with --with-key. \
             Without the key you have to log in to upstreams again, the queries of their URLs are not shown, \
             and nothing else is lost."
        }
        BackupKeyLocation::Configured => "The key is [secrets] key of the configuration, and not in it.",
        BackupKeyLocation::None => "There is no key.",
    };
    let lines = [
        format!("wrote {dir}: {}{token}, {}", parts.join(", "), count(catalogs, "catalog")),
        "left out: once-grants, open approvals, sessions and sign-ins, states of calls, the console's token, \
         the audit log and the configuration"
            .to_owned(),
        key.to_owned(),
        format!("to restore: stop headend, move {state} away, run `cp -a {dir} {state}`, start headend"),
    ];
    lines.iter().map(|line| screen.paragraph(line)).collect()
}
