//! Backups of the state directory: the database without rows that must not come back (`db/backup`),
//! the access token of clients, the catalogs of upstreams, and the key of sealed values only on
//! request.
//!
//! All files are written into a temporary folder beside the target, which is renamed once
//! everything is on disk. A crash therefore leaves no folder that looks like a complete backup.

use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io;
use std::os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};

use data_encoding::HEXLOWER;
use rustix::fs::OFlags;

use crate::base::clock;
use crate::config::source::guard;
use crate::store::db::{self, BackupRows};
use crate::store::directory;
use crate::store::seal::KEY_FILE;

/// Prefix of a backup folder's name until the backup is complete.
const UNFINISHED: &str = ".headend-backup.";

#[derive(Debug)]
pub struct Backup {
    /// The folder, with links resolved.
    pub dir: PathBuf,
    /// Names of the files in the folder.
    pub files: Vec<String>,
    pub rows: BackupRows,
}

/// The reason why no backup was written.
#[derive(Debug, thiserror::Error)]
pub enum BackupError {
    /// The target is no place for any backup: it has no name, is in the state directory, or is a
    /// mount point.
    #[error("{0}")]
    Place(String),
    /// The target exists and is not an empty folder.
    #[error("{0}")]
    Taken(String),
    /// Reading or writing failed; nothing is left behind.
    #[error("{0}")]
    Failed(String),
}

/// Writes a backup of the state directory `state` to `to`, which must be absent or an empty folder.
/// `with_key` adds the key file. Other processes may use the state directory meanwhile. Blocks.
pub fn write(state: &Path, to: &Path, with_key: bool) -> Result<Backup, BackupError> {
    let (parent, dir) = check_target(state, to)?;
    let fresh = UnfinishedBackup::make(&parent).map_err(|error| io_failure(&parent, &error))?;
    let rows = db::back_up(state, &fresh.0, clock::unix_seconds());
    let rows = rows.map_err(|error| BackupError::Failed(error.to_string()))?;
    let mut files = vec![db::FILE.to_owned()];
    let key = with_key.then(|| (KEY_FILE.to_owned(), guard::SECRET));
    let token = (directory::TOKEN_FILE.to_owned(), guard::SHARED);
    let catalogs = directory::list_catalogs(state).map_err(|error| io_failure(state, &error))?;
    let catalogs = catalogs.into_iter().map(|name| (name, guard::SHARED));
    for (name, forbidden) in [token].into_iter().chain(key).chain(catalogs) {
        match copy(&state.join(&name), &fresh.0.join(&name), forbidden) {
            Ok(()) => files.push(name),
            // The file was never made, or has been removed since the listing.
            Err((_, error)) if error.kind() == io::ErrorKind::NotFound => {}
            Err((path, error)) => return Err(io_failure(&path, &error)),
        }
    }
    fresh.finish(&parent, &dir).map_err(|error| {
        // A mount point cannot be replaced.
        let is_mounted = error.kind() == io::ErrorKind::ResourceBusy;
        let text = || format!("{} is a mount point; name a new folder in it", dir.display());
        if is_mounted { BackupError::Place(text()) } else { io_failure(&dir, &error) }
    })?;
    Ok(Backup { dir, files, rows })
}

fn io_failure(path: &Path, error: &io::Error) -> BackupError {
    BackupError::Failed(format!("{}: {error}", path.display()))
}

/// Checks the target of a backup. Returns its parent folder and its own path, both with links
/// resolved.
///
/// # Errors
/// [`BackupError`], if the target is in the state directory, is taken, or is beside files that
/// other users can replace.
fn check_target(state: &Path, to: &Path) -> Result<(PathBuf, PathBuf), BackupError> {
    let shown = to.display();
    let name = to.file_name().ok_or_else(|| BackupError::Place(format!("{shown}: name a new folder")))?;
    let parent = to.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let parent = parent.canonicalize().map_err(|error| io_failure(parent, &error))?;
    let state = state.canonicalize().map_err(|error| io_failure(state, &error))?;
    let dir = parent.join(name);
    if dir.starts_with(&state) {
        let text = format!("{shown} is in the state directory {}; name a folder elsewhere", state.display());
        return Err(BackupError::Place(text));
    }
    let foul = |why| BackupError::Failed(format!("the folder {} {why}", parent.display()));
    guard::check_directory(&parent, true).map_err(foul)?;
    let data = match fs::symlink_metadata(&dir) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok((parent, dir)),
        data => data.map_err(|error| io_failure(&dir, &error))?,
    };
    let is_empty = data.is_dir() && fs::read_dir(&dir).map_err(|error| io_failure(&dir, &error))?.next().is_none();
    if !is_empty {
        let what = if data.is_dir() { "is not empty" } else { "is not a folder" };
        let text = format!("{shown} {what} and was left as it is; name a new or empty folder");
        return Err(BackupError::Taken(text));
    }
    Ok((parent, dir))
}

/// A temporary folder with mode 0700; removed on drop unless it was renamed.
#[derive(Debug)]
struct UnfinishedBackup(PathBuf);

impl UnfinishedBackup {
    fn make(parent: &Path) -> io::Result<Self> {
        let unique = HEXLOWER.encode(&clock::random::<8>());
        let path = parent.join(format!("{UNFINISHED}{unique}"));
        DirBuilder::new().mode(0o700).create(&path)?;
        Ok(Self(path))
    }

    /// Syncs the folder and renames it to the target. Only an empty folder is replaced.
    fn finish(self, parent: &Path, dir: &Path) -> io::Result<()> {
        File::open(&self.0)?.sync_all()?;
        fs::rename(&self.0, dir)?;
        File::open(parent)?.sync_all()
    }
}

impl Drop for UnfinishedBackup {
    fn drop(&mut self) {
        // After [`Self::finish`] this path does not exist any more.
        drop(fs::remove_dir_all(&self.0));
    }
}

/// Copies a file into a new one with mode 0600 and the same modification time. An error comes with
/// the path of the file that caused it.
fn copy(from: &Path, to: &Path, forbidden: u32) -> Result<(), (PathBuf, io::Error)> {
    let reading = |error| (from.to_owned(), error);
    let mut source = guard::open(from, OFlags::RDONLY, forbidden).map_err(reading)?;
    let modified = source.metadata().and_then(|data| data.modified()).map_err(reading)?;
    let written = OpenOptions::new().write(true).create_new(true).mode(0o600).open(to).and_then(|mut file| {
        io::copy(&mut source, &mut file)?;
        // The cached era of an upstream expires by the file's modification time, so that is kept.
        file.set_modified(modified)?;
        file.sync_all()
    });
    written.map_err(|error| (to.to_owned(), error))
}

#[cfg(test)]
mod tests;
