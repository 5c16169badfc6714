//! Replaces the text of a configuration file, as a whole or not at all.

use std::fs::{self, File, OpenOptions, Permissions};
use std::io::{self, Write as _};
use std::os::unix::fs::{MetadataExt as _, OpenOptionsExt as _, PermissionsExt as _};
use std::path::Path;

use crate::config::source::guard;

/// Mode of a new file: a configuration may hold secrets.
const MODE: u32 = 0o600;

/// Replaces the text `before` of a file by `after`; without `before` the file must not exist.
/// Symbolic links, owner, group and mode stay.
///
/// # Errors
/// The reason why the file is unchanged, also when its text is not `before`.
pub(in crate::cli) fn exchange(path: &Path, before: Option<&str>, after: &str) -> io::Result<()> {
    let path = if before.is_some() { path.canonicalize()? } else { std::path::absolute(path)? };
    let folder = path.parent().unwrap_or(Path::new("/"));
    // The name begins with a dot, so that `conf.d` skips the file.
    let fresh = folder.join(format!(".headend-edit.{}", std::process::id()));
    let written = replace(&path, folder, &fresh, before, after);
    if written.is_err() {
        // The first error is returned; a failed clean-up changes nothing about it.
        drop(fs::remove_file(&fresh));
    }
    written
}

/// Writes the new text to `fresh`, and renames that if the file still has the old text.
fn replace(path: &Path, folder: &Path, fresh: &Path, before: Option<&str>, after: &str) -> io::Result<()> {
    let mut file = OpenOptions::new().write(true).create_new(true).mode(MODE).open(fresh)?;
    file.write_all(after.as_bytes())?;
    match before {
        Some(_) => keep(path, &file)?,
        None => file.set_permissions(Permissions::from_mode(MODE))?,
    }
    file.sync_all()?;
    let now = match guard::read_regular(path, guard::MAX_CONFIG) {
        Ok(text) => Some(text),
        Err(error) if error.kind() == io::ErrorKind::NotFound => None,
        Err(error) => return Err(error),
    };
    if now.as_deref() != before {
        return Err(io::Error::other("the file changed in the meantime; run the command again"));
    }
    fs::rename(fresh, path)?;
    File::open(folder)?.sync_all()
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
