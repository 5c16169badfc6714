//! Files of the state directory: created once, replaced as a whole, and read only if other users
//! could not have written them.

use std::fs;
use std::io::{self, Write as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::Path;
use std::time::SystemTime;

use data_encoding::HEXLOWER;
use rustix::fs::OFlags;

use crate::base::clock;
use crate::config::source::guard;

/// Creates a file with mode 0600 and this text, unless it exists. If several processes do so at
/// once, one file wins and all of them read it whole.
///
/// # Errors
/// When the file cannot be written.
pub(in crate::store) fn create_once(dir: &Path, name: &str, text: &str) -> io::Result<()> {
    let path = dir.join(name);
    let made = write_and_place(dir, name, text.as_bytes(), |fresh| {
        // Unlike a rename, a link never replaces an existing file.
        let made = fs::hard_link(fresh, &path);
        fs::remove_file(fresh)?;
        made
    });
    match made {
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => Ok(()),
        Err(error) => Err(error),
        // The directory is synced so that the file survives a power failure.
        Ok(()) => fs::File::open(dir)?.sync_all(),
    }
}

/// Writes a text to a new temporary file, syncs it, and calls `place` to move it to its name. The
/// temporary file is removed if any of this fails.
///
/// # Errors
/// When the file cannot be written, and those of `place`.
pub(in crate::store) fn write_and_place(
    dir: &Path,
    name: &str,
    text: &[u8],
    place: impl FnOnce(&Path) -> io::Result<()>,
) -> io::Result<()> {
    let unique = HEXLOWER.encode(&clock::random::<4>());
    let fresh = dir.join(format!("{name}.{unique}"));
    let mut file = fs::OpenOptions::new().write(true).create_new(true).mode(0o600).open(&fresh)?;
    let written = file.write_all(text).and_then(|()| file.sync_data()).and_then(|()| place(&fresh));
    if written.is_err() {
        // The first error is returned; a failed clean-up changes nothing about it.
        drop(fs::remove_file(&fresh));
    }
    written
}

/// Reads a file of at most `most` bytes; returns its content and modification time. `forbidden` is
/// the mode bits that the file must not have.
pub(in crate::store) fn read(path: &Path, forbidden: u32, most: u64) -> io::Result<(Vec<u8>, SystemTime)> {
    let file = guard::open(path, OFlags::RDONLY, forbidden)?;
    Ok((guard::read_bounded(&file, most)?, file.metadata()?.modified()?))
}
