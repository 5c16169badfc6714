//! What headend keeps of connected hosts, below the state directory, so that `disconnect` restores
//! their files.

use std::fs::{self, DirBuilder, File};
use std::io;
use std::os::unix::fs::DirBuilderExt as _;
use std::path::{Path, PathBuf};

use rustix::fs::{FlockOperation, OFlags, flock};
use serde::{Deserialize, Serialize};

use super::edit::EntryText;
use crate::cli::exit::{CONFIG, TEMPFAIL};
use crate::cli::reach::exchange::{FileVersion, step};
use crate::cli::reach::source::environment;
use crate::cli::setup::import::MAX_FILE;
use crate::cli::words::output::CommandFailure;
use crate::config;
use crate::config::source::guard;
use crate::wire::digest::Digest;

/// What `connect` did to a host's file.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct ConnectRecord {
    /// The host's file.
    pub(super) file: PathBuf,
    /// Name of the entry for headend.
    pub(super) entry: String,
    /// Digest of the file as `connect` left it.
    pub(super) after: String,
    /// True if `connect` made the list of servers.
    pub(super) made_list: bool,
    pub(super) moved: Vec<MovedServer>,
    /// headend's file that has the moved servers.
    pub(super) config: Option<PathBuf>,
}

/// A server that `connect` moved out of a host's file.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct MovedServer {
    pub(super) name: String,
    pub(super) upstream: String,
    /// Whether the upstream was in the configuration and enabled before any host's server was moved
    /// to it.
    pub(super) was_on: bool,
    pub(super) text: EntryText,
    /// Name of the entry before it.
    pub(super) after: Option<String>,
}

impl ConnectRecord {
    /// Returns true if an upstream is in headend, or enabled there, since its server was moved.
    pub(super) fn has_brought(&self, upstream: &str) -> bool {
        self.moved.iter().any(|server| server.upstream == upstream && !server.was_on)
    }

    /// Returns true if a text is what `connect` wrote.
    pub(super) fn is_after(&self, text: &str) -> bool {
        self.after == Digest::of(text.as_bytes()).hex()
    }
}

/// The directory of the records.
#[derive(Debug)]
pub(super) struct ConnectRecords(PathBuf);

impl ConnectRecords {
    /// Finds the directory, which need not exist.
    ///
    /// # Errors
    /// 78 if the environment names no state directory.
    pub(super) fn find() -> Result<Self, CommandFailure> {
        let state = config::state_dir(&environment);
        let none = || CommandFailure::new(CONFIG, "no state directory: set $XDG_STATE_HOME or $HOME");
        let state = state.and_then(|dir| std::path::absolute(dir).ok());
        state.map(|dir| Self(dir.join("hosts"))).ok_or_else(none)
    }

    /// Returns the directory for secrets of moved servers.
    pub(super) fn secrets(&self) -> PathBuf {
        self.0.with_file_name("secrets")
    }

    /// Returns the path of a record; its backup has another ending.
    fn place(&self, host: &str, file: &Path) -> PathBuf {
        let digest = Digest::of(file.as_os_str().as_encoded_bytes()).hex();
        self.0.join(format!("{host}.{}.json", digest.get(..12).unwrap_or_default()))
    }

    /// Waits until no other command changes hosts' files, and keeps others waiting until the result
    /// is dropped.
    ///
    /// # Errors
    /// 75 if the lock cannot be made.
    pub(super) fn lock(&self) -> Result<File, CommandFailure> {
        let path = self.0.join(".lock");
        let lock = || -> io::Result<File> {
            make_folder(&self.0)?;
            let file = guard::open(&path, OFlags::RDWR | OFlags::CREATE, guard::SHARED)?;
            flock(&file, FlockOperation::LockExclusive)?;
            Ok(file)
        };
        lock().map_err(|error| failed(&path, &error))
    }

    /// Reads the record of a host's file, and the text that the file had before; `None` for the
    /// text if there was no file.
    ///
    /// # Errors
    /// 75 if a file cannot be read.
    pub(super) fn load(
        &self,
        host: &str,
        file: &Path,
    ) -> Result<Option<(ConnectRecord, Option<String>)>, CommandFailure> {
        let place = self.place(host, file);
        let Some(text) = read(&place)? else { return Ok(None) };
        let record = serde_json::from_str(&text).map_err(|error| failed(&place, &error))?;
        Ok(Some((record, read(&place.with_extension("backup"))?)))
    }

    /// Reads the records of all files.
    pub(super) fn all(&self) -> Vec<ConnectRecord> {
        let entries = fs::read_dir(&self.0).into_iter().flatten().flatten().map(|entry| entry.path());
        let records = entries.filter(|path| path.extension().is_some_and(|ending| ending == "json"));
        records.filter_map(|path| serde_json::from_str(&read(&path).ok()??).ok()).collect()
    }

    /// Writes a record, and the text that the file had before; removes both without a record.
    ///
    /// # Errors
    /// 75 if a file cannot be written or removed.
    pub(super) fn save(
        &self,
        host: &str,
        file: &Path,
        record: Option<(&ConnectRecord, Option<&str>)>,
    ) -> Result<(), CommandFailure> {
        let place = self.place(host, file);
        let backup = place.with_extension("backup");
        let Some((record, before)) = record else { return write(&place, None).and_then(|()| write(&backup, None)) };
        write(&backup, before)?;
        let text = serde_json::to_string(record).map_err(|error| failed(&place, &error))?;
        write(&place, Some(&text))
    }
}

fn failed(path: &Path, why: &dyn std::fmt::Display) -> CommandFailure {
    CommandFailure::new(TEMPFAIL, format!("{}: {why}", path.display()))
}

fn read(path: &Path) -> Result<Option<String>, CommandFailure> {
    Ok(FileVersion::read(path, MAX_FILE).map_err(|error| failed(path, &error))?.text)
}

/// Makes a directory of ours if it is missing; other users must not be able to write to it.
fn make_folder(folder: &Path) -> io::Result<()> {
    DirBuilder::new().recursive(true).mode(0o700).create(folder)?;
    guard::check_directory(folder, false).map_err(guard::refusal_error)
}

/// Writes a file that only we can read, in a directory of ours, or removes it.
///
/// # Errors
/// 75 if that fails, also if other users could write to the directory.
pub(super) fn write(path: &Path, text: Option<&str>) -> Result<(), CommandFailure> {
    let write = || -> io::Result<()> {
        make_folder(path.parent().unwrap_or(Path::new("/")))?;
        let version = FileVersion::read(path, MAX_FILE)?;
        if version.text.as_deref() == text { Ok(()) } else { version.replace(path, text, MAX_FILE) }
    };
    step();
    write().map_err(|error| failed(path, &error))
}
