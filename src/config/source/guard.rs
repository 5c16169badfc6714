//! Opens files that another user may have placed: only regular files of bounded size, whose owner
//! is checked.
//!
//! Opening never waits for a named pipe, and no device is read. headend trusts files of its own
//! user and of root, and only if no other user may write them.
//!
//! A check covers the file itself, or in [`check_directory`] a directory, and not the directories
//! above it. A symbolic link may lead to a file of the configuration, as with Kubernetes and many
//! administrators; the check covers its target.

use std::fs::{File, Metadata};
use std::io::{self, Read as _};
use std::os::unix::fs::MetadataExt as _;
use std::path::Path;

use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;

use crate::wire::foreign;

/// Mode bits that let others write.
const WRITE: u32 = 0o022;
/// The mode bit with which other users can create files in a directory but cannot remove or rename
/// ours.
const STICKY: u32 = 0o1000;

/// Mode bits forbidden for a file that others may read.
pub const SHARED: u32 = WRITE;
/// Mode bits forbidden for a file that only its owner may read.
pub const SECRET: u32 = 0o077;

/// The largest file of the configuration, of a secret, or of rules, in bytes.
pub const MAX_CONFIG: u64 = 4 << 20;
/// The largest file of a key or token of headend's own, in bytes.
pub const MAX_KEY: u64 = 64 << 10;

/// Checks owner and mode of an open file or directory. `forbidden`: mode bits that it must not
/// have. `path` is for the error text only.
///
/// # Errors
/// The fault and the command that mends it; the text follows the path in a message.
pub fn check_owner_and_mode(path: &Path, data: &Metadata, forbidden: u32) -> Result<(), String> {
    let own = rustix::process::geteuid().as_raw();
    let (uid, mode, path) = (data.uid(), data.mode() & 0o7777, in_command(path));
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

/// Checks a directory, symbolic links followed: other users must not be able to replace our files
/// in it. `shared` accepts one such as `/tmp`, where every user may create files and none can
/// remove another's.
///
/// # Errors
/// The fault, also that the path leads to no directory; the text follows the path in a message.
pub fn check_directory(path: &Path, shared: bool) -> Result<(), String> {
    let data = std::fs::metadata(path).map_err(|error| error.to_string())?;
    if !data.is_dir() {
        return Err("is not a directory".to_owned());
    }
    let forbidden = if shared && data.mode() & STICKY != 0 { 0 } else { WRITE };
    check_owner_and_mode(path, &data, forbidden)
}

/// Checks a file by its path, for files that must not be opened here: in a directory of ours no
/// other user can exchange it.
///
/// # Errors
/// The system's error, or the fault and the command that mends it, to follow the path in a message.
pub fn check_path(path: &Path, forbidden: u32) -> io::Result<Metadata> {
    let data = std::fs::symlink_metadata(path)?;
    if data.is_symlink() {
        return Err(link_error(path));
    }
    if !data.is_file() {
        return Err(refusal_error("is not a file".to_owned()));
    }
    check_owner_and_mode(path, &data, forbidden).map_err(refusal_error)?;
    Ok(data)
}

/// Opens a file in a directory of ours and checks it: no symbolic link, ours or root's, with none
/// of the `forbidden` bits. The descriptor is always close-on-exec.
///
/// # Errors
/// The system's error, or the fault and the command that mends it, to follow the path in a message.
pub fn open(path: &Path, flags: OFlags, forbidden: u32) -> io::Result<File> {
    let (file, data) = open_regular(path, flags | OFlags::NOFOLLOW)?;
    check_owner_and_mode(path, &data, forbidden).map_err(refusal_error)?;
    Ok(file)
}

/// Opens a regular file. The metadata is the open file's, which cannot be exchanged in between.
fn open_regular(path: &Path, flags: OFlags) -> io::Result<(File, Metadata)> {
    // Without the last flag, opening a named pipe would wait for its other end.
    let flags = flags | OFlags::CLOEXEC | OFlags::NONBLOCK;
    let opened = rustix::fs::open(path, flags, Mode::RUSR | Mode::WUSR);
    let failed = |error: Errno| if flags.contains(OFlags::NOFOLLOW) { open_error(path, error) } else { error.into() };
    let file = File::from(opened.map_err(failed)?);
    let data = file.metadata()?;
    if data.is_file() {
        return Ok((file, data));
    }
    Err(refusal_error(if data.is_dir() {
        "is not a file but a directory".to_owned()
    } else {
        "is not a file but a pipe, a device or a socket; save its content to a file and name that".to_owned()
    }))
}

/// Reads an open file to its end if it has at most `most` bytes, regardless of the size in its
/// metadata.
///
/// # Errors
/// The system's error, or that the file is larger, to follow the path in a message.
pub fn read_bounded(file: &File, most: u64) -> io::Result<Vec<u8>> {
    let too_large = || {
        let text = format!("is larger than {most} bytes, and no more are read; write a smaller file");
        Err(io::Error::new(io::ErrorKind::FileTooLarge, text))
    };
    if file.metadata()?.len() > most {
        return too_large();
    }
    let mut bytes = Vec::new();
    file.take(most + 1).read_to_end(&mut bytes)?;
    if bytes.len() as u64 > most { too_large() } else { Ok(bytes) }
}

fn text_of(file: &File, most: u64) -> io::Result<String> {
    let not_text = |_| io::Error::new(io::ErrorKind::InvalidData, "is not UTF-8 text");
    String::from_utf8(read_bounded(file, most)?).map_err(not_text)
}

/// Reads a regular file of any owner with at most `most` bytes. Symbolic links are followed.
///
/// # Errors
/// The system's error, or the fault, to follow the path in a message.
pub fn read_regular(path: &Path, most: u64) -> io::Result<String> {
    text_of(&open_regular(path, OFlags::RDONLY)?.0, most)
}

/// Reads the configuration, or a file that it names. Symbolic links are followed, and their target
/// is checked.
///
/// # Errors
/// The system's error, or the fault and the command that mends it, to follow the path in a message.
pub fn read(path: &Path) -> io::Result<String> {
    let (file, data) = open_regular(path, OFlags::RDONLY)?;
    check_owner_and_mode(path, &data, WRITE).map_err(refusal_error)?;
    text_of(&file, MAX_CONFIG)
}

/// Builds the error of a failed `open`; a symbolic link gets a text of its own.
pub fn open_error(path: &Path, error: Errno) -> io::Error {
    if error == Errno::LOOP { link_error(path) } else { error.into() }
}

/// Builds the error for a symbolic link, which headend does not follow here.
pub fn link_error(path: &Path) -> io::Error {
    let path = in_command(path);
    refusal_error(format!(
        "is a symbolic link, which headend does not follow here; replace it with its target, or run `rm {path}`"
    ))
}

/// Returns a path as a word of a command that we suggest.
fn in_command(path: &Path) -> String {
    foreign::word(&path.to_string_lossy()).into_owned()
}

/// Wraps a text of ours in an [`io::Error`].
pub fn refusal_error(what: String) -> io::Error {
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
            // Mode, and the `chmod` that mends it: for a file that others may read, and for a
            // secret.
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
    fn only_regular_files_of_bounded_size_are_read_and_none_is_waited_for() {
        let dir = tempfile::tempdir().unwrap();
        let at = |name: &str| dir.path().join(name);
        rustix::fs::mknodat(rustix::fs::CWD, at("pipe"), rustix::fs::FileType::Fifo, Mode::RUSR | Mode::WUSR, 0)
            .unwrap();
        symlink(at("pipe"), at("link")).unwrap();
        std::fs::write(at("small"), [b'x'; 8]).unwrap();
        File::create(at("huge")).unwrap().set_len(1 << 40).unwrap();
        std::fs::write(at("binary"), [0xff; 3]).unwrap();
        let rows: &[(&Path, &str)] = &[
            (&at("pipe"), "is not a file but a pipe"),
            (&at("link"), "is not a file but a pipe"),
            (Path::new("/dev/zero"), "is not a file but a pipe, a device"),
            (dir.path(), "is not a file but a directory"),
            (&at("huge"), "is larger than"),
            (&at("binary"), "is not UTF-8"),
        ];
        for (path, want) in rows {
            let found = read_regular(path, MAX_CONFIG).unwrap_err().to_string();
            assert!(found.contains(want), "{}: {found}", path.display());
            let found = read(path).unwrap_err().to_string();
            assert!(found.contains(want), "{}: {found}", path.display());
        }
        assert!(open(&at("pipe"), OFlags::RDONLY, SHARED).unwrap_err().to_string().contains("a pipe"));
        assert_eq!(read_regular(&at("small"), 8).unwrap().len(), 8);
        let over = read_regular(&at("small"), 7).unwrap_err().to_string();
        assert!(over.contains("larger than 7 bytes"), "{over}");
    }

    #[test]
    fn a_file_that_says_nothing_of_its_size_is_bounded_too() {
        // Files of `/proc` are regular ones whose metadata has no length.
        let all = read_regular(Path::new("/proc/self/status"), MAX_CONFIG).unwrap();
        assert!(all.len() > 10);
        let over = read_regular(Path::new("/proc/self/status"), 10).unwrap_err().to_string();
        assert!(over.contains("larger than 10 bytes"), "{over}");
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
            assert_eq!(check_directory(dir.path(), false).is_ok(), alone, "{mode:o}");
            assert_eq!(check_directory(dir.path(), true).is_ok(), shared, "{mode:o}");
        }
        set(dir.path(), 0o700);
        std::fs::write(dir.path().join("x"), "").unwrap();
        assert!(check_directory(&dir.path().join("x"), false).unwrap_err().contains("is not a directory"));
    }
}
