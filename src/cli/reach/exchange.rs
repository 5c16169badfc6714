//! Replaces the text of a configuration file, as a whole or not at all.

use std::fs::{self, File, OpenOptions, Permissions};
use std::io::{self, Write as _};
use std::os::unix::fs::{MetadataExt as _, OpenOptionsExt as _, PermissionsExt as _};
use std::path::Path;

use rustix::fs::OFlags;
use rustix::io::Errno;
use rustix::process::{Pid, getpid, test_kill_process};

use crate::config::source::guard;

/// Mode of a new file: a configuration may hold secrets.
const MODE: u32 = 0o600;

/// A file as a command has read it: its text, and what tells it from another file.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(in crate::cli) struct FileVersion {
    /// `None` if there is no file.
    pub(in crate::cli) text: Option<String>,
    /// Device, inode, size, and the time of the last change in seconds and nanoseconds.
    identity: Option<(u64, u64, u64, i64, i64)>,
}

impl FileVersion {
    /// Reads a file of our own user or of root with at most `most` bytes. Symbolic links are not
    /// followed.
    pub(in crate::cli) fn read(path: &Path, most: u64) -> io::Result<Self> {
        let file = match guard::open(path, OFlags::RDONLY, 0) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Self::default()),
            file => file?,
        };
        let data = file.metadata()?;
        let text = String::from_utf8(guard::read_bounded(&file, most)?);
        let text = text.map_err(|_| io::Error::new(io::ErrorKind::InvalidData, "is not UTF-8 text"))?;
        let identity = (data.dev(), data.ino(), data.size(), data.mtime(), data.mtime_nsec());
        Ok(Self { text: Some(text), identity: Some(identity) })
    }

    /// Replaces the file by `after`, or removes it without one, if it is still this version. Owner,
    /// group and mode stay.
    ///
    /// # Errors
    /// The reason why the file is unchanged.
    pub(in crate::cli) fn replace(&self, path: &Path, after: Option<&str>, most: u64) -> io::Result<()> {
        self.replace_behind(path, after, most, |error| error, || Ok(()))
    }

    /// Replaces the file as [`Self::replace`] does. Calls `first` when the new file is written and
    /// only has to be renamed; an error of it leaves the old one. `failed` converts errors.
    pub(in crate::cli) fn replace_behind<E>(
        &self,
        path: &Path,
        after: Option<&str>,
        most: u64,
        failed: impl Fn(io::Error) -> E,
        first: impl FnOnce() -> Result<(), E>,
    ) -> Result<(), E> {
        let is_same = || Ok(Self::read(path, most)? == *self);
        replace(path, self.text.is_some(), after, &is_same, failed, first)
    }
}

/// Replaces the text `before` of a file by `after`; without `before` the file must not exist.
/// Symbolic links, owner, group and mode stay.
///
/// # Errors
/// The reason why the file is unchanged, also when its text is not `before`.
pub(in crate::cli) fn exchange(path: &Path, before: Option<&str>, after: &str) -> io::Result<()> {
    let path = if before.is_some() { path.canonicalize()? } else { std::path::absolute(path)? };
    let is_same = || match guard::read_regular(&path, guard::MAX_CONFIG) {
        Ok(text) => Ok(Some(&*text) == before),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(before.is_none()),
        Err(error) => Err(error),
    };
    replace(&path, before.is_some(), Some(after), &is_same, |error| error, || Ok(()))
}

/// Writes the new text beside the file, calls `first`, and renames it or removes the file, if it
/// `is_same` before and after the call.
fn replace<E>(
    path: &Path,
    is_there: bool,
    after: Option<&str>,
    is_same: &dyn Fn() -> io::Result<bool>,
    failed: impl Fn(io::Error) -> E,
    first: impl FnOnce() -> Result<(), E>,
) -> Result<(), E> {
    let folder = path.parent().unwrap_or(Path::new("/"));
    remove_remains(folder);
    // The name begins with a dot, so that `conf.d` skips the file.
    let fresh = folder.join(format!("{FRESH}{}", std::process::id()));
    step();
    let check = || match is_same()? {
        true => Ok(()),
        false => Err(io::Error::other("the file changed in the meantime; run the command again")),
    };
    let exchange = || {
        check()?;
        step();
        if after.is_some() { fs::rename(&fresh, path) } else { fs::remove_file(path) }
    };
    let written = after.map_or(Ok(()), |after| write(path, &fresh, is_there, after)).and_then(|()| check());
    let written = written.map_err(&failed).and_then(|()| first()).and_then(|()| exchange().map_err(&failed));
    if written.is_err() {
        // The first error is returned; a failed clean-up changes nothing about it.
        drop(fs::remove_file(&fresh));
    }
    written?;
    step();
    File::open(folder).and_then(|folder| folder.sync_all()).map_err(failed)
}

/// Beginning of the names of new files, before the number of the process.
const FRESH: &str = ".headend-edit.";

/// Removes new files of processes that were killed before they renamed them.
fn remove_remains(folder: &Path) {
    for entry in fs::read_dir(folder).into_iter().flatten().flatten() {
        let name = entry.file_name();
        let process = name.to_str().and_then(|name| name.strip_prefix(FRESH)?.parse().ok()).and_then(Pid::from_raw);
        let is_over = |process| process == getpid() || test_kill_process(process) == Err(Errno::SRCH);
        if process.is_some_and(is_over) {
            drop(fs::remove_file(entry.path()));
        }
    }
}

/// Writes and syncs the new file, with owner, group and mode of the old one.
fn write(path: &Path, fresh: &Path, is_there: bool, after: &str) -> io::Result<()> {
    let mut file = OpenOptions::new().write(true).create_new(true).mode(MODE).open(fresh)?;
    step();
    file.write_all(after.as_bytes())?;
    if is_there {
        keep(path, &file)?
    } else {
        file.set_permissions(Permissions::from_mode(MODE))?
    }
    file.sync_all()
}

/// A step of a write, at which tests end the command as a kill would.
pub(in crate::cli) fn step() {
    #[cfg(test)]
    fault::step();
}

/// Ends a command in the middle, for tests.
#[cfg(test)]
pub(in crate::cli) mod fault {
    use std::cell::Cell;

    thread_local! {
        /// Number of steps that are still made.
        static LEFT: Cell<usize> = const { Cell::new(usize::MAX) };
    }

    /// Lets the commands of this thread make that number of steps.
    pub(in crate::cli) fn after(steps: usize) {
        LEFT.set(steps);
    }

    pub(super) fn step() {
        LEFT.set(LEFT.get().checked_sub(1).unwrap_or_else(|| std::panic::resume_unwind(Box::new("killed"))));
    }
}

/// Gives the new file the owner, group and mode of the old one. A daemon of another user may read
/// it by its group alone.
fn keep(path: &Path, file: &File) -> io::Result<()> {
    let (old, own) = (fs::metadata(path)?, file.metadata()?);
    let owner = (old.uid() != own.uid()).then_some(old.uid());
    let group = (old.gid() != own.gid()).then_some(old.gid());
    if owner.is_some() || group.is_some() {
        std::os::unix::fs::fchown(file, owner, group).map_err(|error| {
            io::Error::new(error.kind(), format!("its owner {}:{} cannot be kept ({error})", old.uid(), old.gid()))
        })?;
    }
    file.set_permissions(old.permissions())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_keeps_its_mode_its_group_and_the_link_to_it() {
        let folder = tempfile::tempdir().unwrap();
        let (path, link) = (folder.path().join("a.toml"), folder.path().join("link"));
        exchange(&path, None, "one").unwrap();
        assert_eq!(fs::metadata(&path).unwrap().mode() & 0o777, MODE);
        fs::set_permissions(&path, Permissions::from_mode(0o640)).unwrap();
        // Only root may give a file to a group that it is not in.
        let is_root = rustix::process::geteuid().is_root();
        let group = if is_root { 65_534 } else { fs::metadata(&path).unwrap().gid() };
        std::os::unix::fs::chown(&path, None, Some(group)).unwrap();
        std::os::unix::fs::symlink(&path, &link).unwrap();
        exchange(&link, Some("one"), "two").unwrap();
        let data = fs::symlink_metadata(&path).unwrap();
        assert_eq!((data.mode() & 0o777, data.gid(), data.is_file()), (0o640, group, true));
        assert_eq!(fs::read_to_string(&link).unwrap(), "two");
        assert!(fs::symlink_metadata(&link).unwrap().is_symlink());
    }

    #[test]
    fn a_file_that_changed_or_appeared_stays_and_nothing_is_left_beside_it() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a.toml");
        fs::write(&path, "theirs").unwrap();
        for before in [Some("mine"), None] {
            let error = exchange(&path, before, "new").unwrap_err().to_string();
            assert!(error.contains("changed in the meantime"), "{error}");
        }
        assert_eq!(fs::read_to_string(&path).unwrap(), "theirs");
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 1);
    }
}
