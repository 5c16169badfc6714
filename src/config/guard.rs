//! Whose files are believed: our own and root's, and of these only the ones that nobody else may write.
//!
//! The file itself is judged and, in [`directory`], a directory; not what is above it. A file of the configuration may be reached
//! through symbolic links, as Kubernetes and many administrators lay them: what they lead to is judged.

use std::fs::{File, Metadata};
use std::io::{self, Read as _};
use std::os::unix::fs::MetadataExt as _;
use std::path::Path;

use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;

/// Bits of the mode by which others write.
const WRITE: u32 = 0o022;
/// In a directory with this bit other users can make files, but cannot remove or rename ours.
const STICKY: u32 = 0o1000;

/// Bits that a file must not have which others may read.
pub(crate) const SHARED: u32 = WRITE;
/// Bits that a file must not have which is for its owner alone.
pub(crate) const SECRET: u32 = 0o077;

/// Judges an open file or directory. `forbidden`: the bits that its mode must not have. The path is for the sentence alone.
///
/// # Errors
/// What is wrong and the command that mends it, to stand behind the path.
pub(crate) fn judge(path: &Path, data: &Metadata, forbidden: u32) -> Result<(), String> {
    let own = rustix::process::geteuid().as_raw();
    let (uid, mode, path) = (data.uid(), data.mode() & 0o7777, path.display());
    if uid != own && uid != 0 {
        return Err(format!(
            "belongs to uid {uid}, who is neither us (uid {own}) nor root; run as that user, or run `chown {own} {path}`"
        ));
    }
    let found = mode & forbidden;
    if found == 0 {
        return Ok(());
    }
    let (what, bits) = match (found & WRITE, forbidden & !WRITE) {
        (0, _) => ("read", "go-rwx"),
        (_, 0) => ("written", "go-w"),
        _ => ("written", "go-rwx"),
    };
    Err(format!("may be {what} by others (mode {mode:04o}); run `chmod {bits} {path}`"))
}

/// Judges a directory, symbolic links followed: others must not be able to put files of theirs in the place of ours. `shared`: it
/// may be one such as `/tmp`, where anybody may make files and nobody remove those of others.
///
/// # Errors
/// What is wrong, to stand behind the path; also when the path leads to no directory.
pub(crate) fn directory(path: &Path, shared: bool) -> Result<(), String> {
    let data = std::fs::metadata(path).map_err(|error| error.to_string())?;
    if !data.is_dir() {
        return Err("is not a directory".to_owned());
    }
    let forbidden = if shared && data.mode() & STICKY != 0 { 0 } else { WRITE };
    judge(path, &data, forbidden)
}

/// Judges a file by its name, for files that must not be opened here: in a directory of ours nobody can exchange it.
///
/// # Errors
/// What the system says, or what is wrong and the command that mends it, to stand behind the path.
pub(crate) fn look(path: &Path, forbidden: u32) -> io::Result<Metadata> {
    let data = std::fs::symlink_metadata(path)?;
    if data.is_symlink() {
        return Err(link(path));
    }
    if !data.is_file() {
        return Err(refusal("is not a file".to_owned()));
    }
    judge(path, &data, forbidden).map_err(refusal)?;
    Ok(data)
}

/// Opens a file that is in a directory of ours, judged: no symbolic link, ours or root's, with none of the `forbidden` bits. The
/// flag that keeps it from children is always set.
///
/// # Errors
/// What the system says, or what is wrong and the command that mends it, to stand behind the path.
pub(crate) fn open(path: &Path, flags: OFlags, forbidden: u32) -> io::Result<File> {
    // A pipe would block without the last flag.
    let flags = flags | OFlags::NOFOLLOW | OFlags::CLOEXEC | OFlags::NONBLOCK;
    let opened = rustix::fs::open(path, flags, Mode::RUSR | Mode::WUSR);
    let file = File::from(opened.map_err(|error| opening(path, error))?);
    let data = file.metadata()?;
    if !data.is_file() {
        return Err(refusal("is not a file".to_owned()));
    }
    judge(path, &data, forbidden).map_err(refusal)?;
    Ok(file)
}

/// Reads a file of the configuration, or one that it names: symbolic links are followed, and the file that they lead to is judged.
///
/// # Errors
/// What the system says, or what is wrong and the command that mends it, to stand behind the path.
pub(crate) fn read(path: &Path) -> io::Result<String> {
    let flags = OFlags::RDONLY | OFlags::CLOEXEC | OFlags::NONBLOCK;
    let mut file = File::from(rustix::fs::open(path, flags, Mode::empty())?);
    // Of the open file, so that it cannot be exchanged in between.
    let data = file.metadata()?;
    if !data.is_file() {
        return Err(refusal("is not a file".to_owned()));
    }
    judge(path, &data, WRITE).map_err(refusal)?;
    let mut text = String::new();
    file.read_to_string(&mut text)?;
    Ok(text)
}

/// What the system says of a file that was to be opened, if it is no link.
pub(crate) fn opening(path: &Path, error: Errno) -> io::Error {
    if error == Errno::LOOP { link(path) } else { error.into() }
}

/// Why a link is not followed.
pub(crate) fn link(path: &Path) -> io::Error {
    let path = path.display();
    refusal(format!(
        "is a symbolic link, which is not followed here; put what it leads to in its place, or run `rm {path}`"
    ))
}

/// One of our own sentences as an error of the system's kind.
pub(crate) fn refusal(what: String) -> io::Error {
    io::Error::new(io::ErrorKind::PermissionDenied, what)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::{PermissionsExt as _, chown, symlink};

    fn set(path: &Path, mode: u32) {
        std::fs::set_permissions(path, std::fs::Permissions::from_mode(mode)).unwrap();
    }

    #[test]
    fn the_mode_of_a_file_decides_and_the_sentence_mends_it() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("x");
        std::fs::write(&path, "text").unwrap();
        let rows: &[(u32, Option<&str>, Option<&str>)] = &[
            // Mode, and the mending where it is one that others may read, and where it is a secret.
            (0o600, None, None),
            (0o400, None, None),
            (0o640, None, Some("go-rwx")),
            (0o644, None, Some("go-rwx")),
            (0o620, Some("go-w"), Some("go-rwx")),
            (0o666, Some("go-w"), Some("go-rwx")),
        ];
        for (mode, shared, secret) in rows {
            set(&path, *mode);
            for (forbidden, mending) in [(SHARED, shared), (SECRET, secret)] {
                let found = open(&path, OFlags::RDONLY, forbidden).map(drop).map_err(|error| error.to_string());
                let wanted = mending.map(|bits| format!("(mode {mode:04o}); run `chmod {bits} {}`", path.display()));
                assert_eq!(found.is_ok(), wanted.is_none(), "{mode:o}: {found:?}");
                assert!(wanted.is_none_or(|text| found.unwrap_err().ends_with(&text)), "{mode:o}");
            }
        }
    }

    #[test]
    fn a_link_is_followed_in_the_configuration_and_nowhere_else() {
        let dir = tempfile::tempdir().unwrap();
        let (path, link) = (dir.path().join("x"), dir.path().join("link"));
        std::fs::write(&path, "text").unwrap();
        symlink(&path, &link).unwrap();
        let refused = open(&link, OFlags::RDONLY, SHARED).unwrap_err().to_string();
        assert!(refused.contains("is a symbolic link") && refused.contains("run `rm "), "{refused}");
        set(&path, 0o644);
        assert_eq!(read(&link).unwrap(), "text");
        set(&path, 0o646);
        assert!(read(&link).unwrap_err().to_string().contains("may be written by others (mode 0646)"));
        assert!(read(dir.path()).unwrap_err().to_string().contains("is not a file"));
        std::fs::remove_file(&path).unwrap();
        assert_eq!(read(&link).unwrap_err().kind(), io::ErrorKind::NotFound);
    }

    #[test]
    fn a_foreign_owner_is_refused() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("x");
        std::fs::write(&path, "text").unwrap();
        if chown(&path, Some(4711), None).is_err() {
            eprintln!("left out: a file of another user: only root can make one");
            return;
        }
        for found in [open(&path, OFlags::RDONLY, SHARED).map(drop), read(&path).map(drop)] {
            let text = found.unwrap_err().to_string();
            assert!(text.contains("belongs to uid 4711") && text.contains("run `chown "), "{text}");
        }
    }

    #[test]
    fn a_directory_that_others_may_write_is_refused_unless_they_can_replace_nothing() {
        let dir = tempfile::tempdir().unwrap();
        for (mode, alone, shared) in [
            (0o700, true, true),
            (0o755, true, true),
            (0o775, false, false),
            (0o777, false, false),
            (0o1777, false, true),
        ] {
            set(dir.path(), mode);
            assert_eq!(directory(dir.path(), false).is_ok(), alone, "{mode:o}");
            assert_eq!(directory(dir.path(), true).is_ok(), shared, "{mode:o}");
        }
        set(dir.path(), 0o700);
        std::fs::write(dir.path().join("x"), "").unwrap();
        assert!(directory(&dir.path().join("x"), false).unwrap_err().contains("is not a directory"));
    }
}
