//! Files of the state directory: made once, replaced as a whole, read only if other users could not write them.

use std::fs;
use std::io::{self, Write as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::Path;
use std::time::SystemTime;

use data_encoding::HEXLOWER;
use rustix::fs::OFlags;

use crate::base::clock;
use crate::config::guard;

/// Makes a file with mode 0600 and this text, unless it is there: of several processes that do it at once, the first makes it and
/// all find it whole.
///
/// # Errors
/// When it cannot be written.
pub(super) fn make_once(dir: &Path, name: &str, text: &str) -> io::Result<()> {
    let path = dir.join(name);
    let made = with_fresh(dir, name, text.as_bytes(), |fresh| {
        // Unlike a renaming, a link takes no other's place.
        let made = fs::hard_link(fresh, &path);
        fs::remove_file(fresh)?;
        made
    });
    match made {
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => Ok(()),
        Err(error) => Err(error),
        // So that the file is there after a power failure too.
        Ok(()) => fs::File::open(dir)?.sync_all(),
    }
}

/// Writes a text to a file of its own and has it put in its place.
pub(super) fn with_fresh(
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
        // Nothing more can be done for a half-written file.
        drop(fs::remove_file(&fresh));
    }
    written
}

/// Content of a file of the state directory with at most `most` bytes, and its time of
/// modification.
pub(super) fn read(path: &Path, forbidden: u32, most: u64) -> io::Result<(Vec<u8>, SystemTime)> {
    let file = guard::open(path, OFlags::RDONLY, forbidden)?;
    Ok((guard::read_bounded(&file, most)?, file.metadata()?.modified()?))
}
