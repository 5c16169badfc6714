//! `headend backup DIR`: a copy of the state directory, with a daemon and without one.

use std::path::{Path, PathBuf};

use clap::Args;

use super::daemon;
use super::exit::{CONFIG, NO, TEMPFAIL, USAGE};
use super::options::Common;
use super::output::{Failure, count, print};
use super::screen::Screen;
use super::source::{self, environment};
use crate::config::{guard, state_dir};
use crate::store::backup::{self, Backup, BackupError};
use crate::store::db::Db;
use crate::store::seal::KEY_FILE;
use crate::wire::foreign;
use crate::wire::raw::{RawJson, RawObject};

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

/// The place of the key that opens the sealed values of a backup.
#[derive(Clone, Copy, Debug, PartialEq, Eq, strum::IntoStaticStr)]
#[strum(const_into_str, serialize_all = "kebab-case")]
enum KeyPlace {
    /// In the backup.
    Included,
    /// In the state directory alone.
    LeftOut,
    /// In the configuration.
    Configured,
    /// There is no key, so nothing is sealed.
    None,
}

pub(super) fn run(common: &Common, args: &BackupArgs) -> Result<u8, Failure> {
    let state = state(common)?;
    if !Db::is_in(&state) {
        let text = format!("there is no store in {}, so there is nothing to back up", state.display());
        return Err(Failure::new(NO, text));
    }
    guard::directory(&state, false)
        .map_err(|why| Failure::new(TEMPFAIL, format!("the state directory {} {why}", state.display())))?;
    let done = backup::write(&state, &args.dir, args.with_key).map_err(|error| {
        let code = match error {
            BackupError::Place(_) => USAGE,
            BackupError::Taken(_) => NO,
            BackupError::Failed(_) => TEMPFAIL,
        };
        Failure::new(code, error)
    })?;
    let key = key_of(common, &state, &done);
    print(&if args.json { json(&state, &done, key) } else { text(Screen::of_stdout(), &state, &done, key) })
}

/// The state directory of the daemon that answers, else the one of this command.
fn state(common: &Common) -> Result<PathBuf, Failure> {
    let theirs = match daemon::connect(common, "admin", None) {
        Ok(daemon) => daemon.hello.state.map(PathBuf::from),
        Err(failure) if common.socket.is_some() => return Err(failure.into()),
        Err(_) => None,
    };
    theirs
        .or_else(|| state_dir(&environment))
        .ok_or_else(|| Failure::new(CONFIG, "no state directory: set $XDG_STATE_HOME or $HOME"))
}

fn key_of(common: &Common, state: &Path, done: &Backup) -> KeyPlace {
    if done.files.iter().any(|name| name == KEY_FILE) {
        KeyPlace::Included
    } else if source::quiet(common).is_some_and(|config| config.secrets.key.is_some()) {
        KeyPlace::Configured
    } else if state.join(KEY_FILE).exists() {
        KeyPlace::LeftOut
    } else {
        KeyPlace::None
    }
}

fn text(screen: Screen, state: &Path, done: &Backup, key: KeyPlace) -> String {
    let path = |path: &Path| foreign::word(&path.to_string_lossy()).into_owned();
    let (state, dir) = (path(state), path(&done.dir));
    let rows = done.rows;
    let parts = [count(rows.grants, "grant"), count(rows.pins, "pin"), count(rows.logins, "login")];
    let catalogs = done.files.iter().filter(|name| name.starts_with("inventory-")).count();
    let has_token = done.files.iter().any(|name| name == "token");
    let token = if has_token { ", the token of clients" } else { "" };
    let key = match key {
        KeyPlace::Included => {
            "The key is in it: who reads the folder can use the logins. Keep it as safe as the state directory."
        }
        KeyPlace::LeftOut => {
            "The key (secrets.key) is not in it: keep a copy elsewhere, or write a backup with --with-key. \
             Without the key you have to log in to upstreams again, the queries of their URLs are not shown, \
             and nothing else is lost."
        }
        KeyPlace::Configured => "The key is [secrets] key of the configuration, and not in it.",
        KeyPlace::None => "There is no key.",
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

fn json(state: &Path, done: &Backup, key: KeyPlace) -> String {
    let (dir, state) = (done.dir.display().to_string(), state.display().to_string());
    let mut out = RawObject::of_strings(&[("dir", &dir), ("state", &state), ("key", key.into_str())]);
    out.set("files", RawJson::list(done.files.iter().map(|name| RawJson::string(name))));
    out.set("grants", RawJson::number(done.rows.grants));
    out.set("pins", RawJson::number(done.rows.pins));
    out.set("logins", RawJson::number(done.rows.logins));
    format!("{}\n", foreign::json(&out.encode().text()))
}
