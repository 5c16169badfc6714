//! A backup of the state directory: the database without what must not come back (`db/backup`), the
//! token of clients, the catalogs of upstreams, and the key only if it is asked for.
//!
//! The files are written into a folder with another name beside the target, which gets its own name
//! when everything is on disk. A crash leaves no folder that looks whole.

use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io;
use std::os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};

use data_encoding::HEXLOWER;
use rustix::fs::OFlags;

use crate::base::clock;
use crate::config::guard;
use crate::store::db::{self, BackupRows};
use crate::store::directory;
use crate::store::seal::KEY_FILE;

/// Beginning of the name that a folder has while it is written.
const UNFINISHED: &str = ".headend-backup.";

/// A finished backup.
#[derive(Debug)]
pub struct Backup {
    /// The folder, with links resolved.
    pub dir: PathBuf,
    /// Names of its files.
    pub files: Vec<String>,
    pub rows: BackupRows,
}

/// Why there is no backup.
#[derive(Debug, thiserror::Error)]
pub enum BackupError {
    /// The folder cannot be the target of any backup.
    #[error("{0}")]
    Place(String),
    /// Something is in the target's place.
    #[error("{0}")]
    Taken(String),
    /// Reading or writing failed; nothing was left.
    #[error("{0}")]
    Failed(String),
}

/// Writes a backup of the state directory `state` to `to`, which must be absent or an empty folder.
/// Other processes may use the state directory meanwhile. Blocks.
///
/// # Errors
/// [`BackupError`]; nothing is left then.
pub fn write(state: &Path, to: &Path, with_key: bool) -> Result<Backup, BackupError> {
    let (parent, dir) = place(state, to)?;
    let fresh = Unfinished::make(&parent).map_err(|error| failed(&parent, &error))?;
    let rows = db::back_up(state, &fresh.0, clock::unix_seconds());
    let rows = rows.map_err(|error| BackupError::Failed(error.to_string()))?;
    let mut files = vec![db::FILE.to_owned()];
    let key = with_key.then(|| (KEY_FILE.to_owned(), guard::SECRET));
    let token = (directory::TOKEN_FILE.to_owned(), guard::SHARED);
    let catalogs = directory::catalogs(state).map_err(|error| failed(state, &error))?;
    let catalogs = catalogs.into_iter().map(|name| (name, guard::SHARED));
    for (name, forbidden) in [token].into_iter().chain(key).chain(catalogs) {
        match copy(&state.join(&name), &fresh.0.join(&name), forbidden) {
            Ok(()) => files.push(name),
            // It was never made, or is gone by now.
            Err((_, error)) if error.kind() == io::ErrorKind::NotFound => {}
            Err((path, error)) => return Err(failed(&path, &error)),
        }
    }
    fresh.finish(&parent, &dir).map_err(|error| {
        // A mount point cannot be replaced.
        let is_mounted = error.kind() == io::ErrorKind::ResourceBusy;
        let text = || format!("{} is a mount point; name a new folder in it", dir.display());
        if is_mounted { BackupError::Place(text()) } else { failed(&dir, &error) }
    })?;
    Ok(Backup { dir, files, rows })
}

fn failed(path: &Path, error: &io::Error) -> BackupError {
    BackupError::Failed(format!("{}: {error}", path.display()))
}

/// Judges the target. Returns the folder above it and its path, both with links resolved.
fn place(state: &Path, to: &Path) -> Result<(PathBuf, PathBuf), BackupError> {
    let shown = to.display();
    let name = to.file_name().ok_or_else(|| BackupError::Place(format!("{shown}: name a new folder")))?;
    let parent = to.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let parent = parent.canonicalize().map_err(|error| failed(parent, &error))?;
    let state = state.canonicalize().map_err(|error| failed(state, &error))?;
    let dir = parent.join(name);
    if dir.starts_with(&state) {
        let text = format!("{shown} is in the state directory {}; name a folder elsewhere", state.display());
        return Err(BackupError::Place(text));
    }
    let foul = |why| BackupError::Failed(format!("the folder {} {why}", parent.display()));
    guard::directory(&parent, true).map_err(foul)?;
    let data = match fs::symlink_metadata(&dir) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok((parent, dir)),
        data => data.map_err(|error| failed(&dir, &error))?,
    };
    let is_empty = data.is_dir() && fs::read_dir(&dir).map_err(|error| failed(&dir, &error))?.next().is_none();
    if !is_empty {
        let what = if data.is_dir() { "is not empty" } else { "is not a folder" };
        let text = format!("{shown} {what} and was left as it is; name a new or empty folder");
        return Err(BackupError::Taken(text));
    }
    Ok((parent, dir))
}

/// A folder with mode 0700 that is removed when it is dropped.
#[derive(Debug)]
struct Unfinished(PathBuf);

impl Unfinished {
    fn make(parent: &Path) -> io::Result<Self> {
        let unique = HEXLOWER.encode(&clock::random::<8>());
        let path = parent.join(format!("{UNFINISHED}{unique}"));
        DirBuilder::new().mode(0o700).create(&path)?;
        Ok(Self(path))
    }

    /// Gives the folder its name once all of it is on disk. Only an empty folder is replaced.
    fn finish(self, parent: &Path, dir: &Path) -> io::Result<()> {
        File::open(&self.0)?.sync_all()?;
        fs::rename(&self.0, dir)?;
        File::open(parent)?.sync_all()
    }
}

impl Drop for Unfinished {
    fn drop(&mut self) {
        // A finished folder has another name by now.
        drop(fs::remove_dir_all(&self.0));
    }
}

/// Copies a file with its time, as mode 0600; the error names the file that it is about.
fn copy(from: &Path, to: &Path, forbidden: u32) -> Result<(), (PathBuf, io::Error)> {
    let reading = |error| (from.to_owned(), error);
    let mut source = guard::open(from, OFlags::RDONLY, forbidden).map_err(reading)?;
    let modified = source.metadata().and_then(|data| data.modified()).map_err(reading)?;
    let written = OpenOptions::new().write(true).create_new(true).mode(0o600).open(to).and_then(|mut file| {
        io::copy(&mut source, &mut file)?;
        // The verdict about an upstream's era is as old as its file.
        file.set_modified(modified)?;
        file.sync_all()
    });
    written.map_err(|error| (to.to_owned(), error))
}

#[cfg(test)]
mod tests;
