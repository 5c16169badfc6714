//! A host's file: found, read and replaced only where it is safe to do so.

use std::fs::{self, DirBuilder};
use std::io::{self, ErrorKind};
use std::os::unix::fs::{DirBuilderExt as _, MetadataExt as _};
use std::path::{Path, PathBuf};
use std::time::Duration;

use crate::cli::exit::NO;
use crate::cli::reach::exchange::FileVersion;
use crate::cli::setup::hosts::KnownHost;
use crate::cli::setup::import::MAX_FILE;
use crate::cli::words::output::CommandFailure;

/// A host's file as it was read.
#[derive(Debug)]
pub(super) struct EditedFile {
    /// The path that the host knows.
    pub(super) shown: PathBuf,
    /// The path behind all links.
    target: PathBuf,
    version: FileVersion,
    has_lock: bool,
}

impl EditedFile {
    /// Reads the file. It must belong to us, and lie below `root` after its links are followed.
    pub(super) fn read(host: &KnownHost, path: &Path, root: &Path) -> Result<Self, String> {
        let at = |why: &dyn std::fmt::Display| format!("{}: {why}; it was left alone", path.display());
        let target = real_path(path).map_err(|error| at(&error))?;
        if !target.starts_with(real_path(root).map_err(|error| at(&error))?) {
            return Err(at(&format!("leads to {}, out of {}", target.display(), root.display())));
        }
        let version = FileVersion::read(&target, MAX_FILE).map_err(|error| at(&error))?;
        Ok(Self { shown: path.to_owned(), target, version, has_lock: host.has_lock })
    }

    /// Returns the text of the file; empty if it is missing.
    pub(super) fn text(&self) -> &str {
        self.version.text.as_deref().unwrap_or_default()
    }

    /// Returns true if the file exists.
    pub(super) const fn is_there(&self) -> bool {
        self.version.text.is_some()
    }

    /// Replaces the file, or removes it without a text, if nothing has changed it since it was
    /// read. Calls `first` when the new file is written and only has to be renamed; an error of it
    /// leaves the old one.
    ///
    /// # Errors
    /// 1 with the reason why the file was left alone, or the error of `first`.
    pub(super) fn replace(
        &self,
        after: Option<&str>,
        first: impl FnOnce() -> Result<(), CommandFailure>,
    ) -> Result<(), CommandFailure> {
        let failed =
            |error: io::Error| CommandFailure::new(NO, format!("{}: {error}; it was left alone", self.shown.display()));
        let folder = self.target.parent().unwrap_or(Path::new("/"));
        DirBuilder::new().recursive(true).mode(0o700).create(folder).map_err(failed)?;
        let lock = self.has_lock.then(|| HostLock::take(&self.target)).transpose().map_err(failed)?;
        let replaced = self.version.replace_behind(&self.target, after, MAX_FILE, failed, first);
        drop(lock);
        replaced
    }
}

/// Returns a path with all links followed. The last parts may be missing, but no link may lead to
/// nothing.
fn real_path(path: &Path) -> io::Result<PathBuf> {
    match (path.canonicalize(), path.parent(), path.file_name()) {
        (Err(error), Some(parent), Some(name)) if error.kind() == ErrorKind::NotFound && !path.is_symlink() => {
            Ok(real_path(parent)?.join(name))
        }
        (found, ..) => found,
    }
}

/// A lock as programs of Node take it: a directory beside the file.
struct HostLock(PathBuf);

/// Time between two attempts to take a lock, and their number. A lock whose time does not change
/// meanwhile is abandoned: its owner would renew it every five seconds.
const PAUSE: Duration = Duration::from_millis(100);
const ATTEMPTS: usize = 100;

impl HostLock {
    fn take(path: &Path) -> io::Result<Self> {
        let lock = PathBuf::from(format!("{}.lock", path.display()));
        let time = || fs::metadata(&lock).map(|data| (data.mtime(), data.mtime_nsec())).ok();
        let (mut seen, mut left) = (time(), ATTEMPTS);
        for _ in 0..10 * ATTEMPTS {
            match fs::create_dir(&lock) {
                Ok(()) => return Ok(Self(lock)),
                Err(error) if error.kind() == ErrorKind::AlreadyExists => {}
                Err(error) => return Err(error),
            }
            std::thread::sleep(PAUSE);
            let now = time();
            left = if now == seen { left - 1 } else { ATTEMPTS };
            if left == 0 {
                fs::remove_dir(&lock)?;
                left = ATTEMPTS;
            }
            seen = now;
        }
        Err(io::Error::other("the host keeps it locked; end the host, or try again"))
    }
}

impl Drop for HostLock {
    fn drop(&mut self) {
        // An abandoned lock would be removed by the next program that wants it.
        drop(fs::remove_dir(&self.0));
    }
}
