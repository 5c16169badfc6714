//! The files from which a configuration was read, each with a digest: equal files give equal
//! configurations.

use std::ffi::OsString;
use std::io;
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};

use data_encoding::HEXLOWER;
use ring::digest::{Context, SHA256};

/// A file as it was read, or the names in a folder. Holds a digest of the content, never the
/// content.
#[derive(Debug, PartialEq, Eq)]
pub struct FileFingerprint {
    path: PathBuf,
    is_folder: bool,
    /// The digest of the content; `None` if it was not readable.
    content: Option<String>,
}

impl FileFingerprint {
    /// Creates the entry of a file that was just read, or failed to be.
    pub(crate) fn file(path: &Path, read: &io::Result<String>) -> Self {
        let content = read.as_ref().ok().map(|text| digest_of([text.as_bytes()]));
        Self { path: path.to_owned(), is_folder: false, content }
    }

    /// Creates the entry of a folder whose files were just listed, or failed to be.
    pub(crate) fn folder(path: &Path, listed: &io::Result<Vec<OsString>>) -> Self {
        let content = listed.as_ref().ok().map(|names| digest_of(names.iter().map(|name| name.as_bytes())));
        Self { path: path.to_owned(), is_folder: true, content }
    }

    pub fn path(&self) -> &Path {
        &self.path
    }

    pub const fn is_folder(&self) -> bool {
        self.is_folder
    }
}

/// Returns the SHA-256 over parts, each with its length before it, in hexadecimal.
pub(crate) fn digest_of<'p>(parts: impl IntoIterator<Item = &'p [u8]>) -> String {
    let mut hash = Context::new(&SHA256);
    for part in parts {
        hash.update(&(part.len() as u64).to_be_bytes());
        hash.update(part);
    }
    HEXLOWER.encode(hash.finish().as_ref())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::source::{folder, guard};

    #[test]
    fn a_file_is_another_once_it_says_something_else() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("x.toml");
        let file = || FileFingerprint::file(&path, &guard::read(&path));
        let folder = || FileFingerprint::folder(dir.path(), &folder::names(dir.path()));
        let (missing, empty) = (file(), folder());
        assert!(missing == file() && empty == folder());
        std::fs::write(&path, "one").unwrap();
        assert!(missing != file() && empty != folder());
        let (seen, full) = (file(), folder());
        std::fs::write(&path, "one").unwrap();
        std::fs::write(dir.path().join(".x.toml.swp"), "").unwrap();
        assert!(seen == file() && full == folder(), "the same text, written again");
        std::fs::write(&path, "two").unwrap();
        assert!(seen != file() && full == folder());
        std::fs::remove_file(&path).unwrap();
        assert!(seen != file() && full != folder());
    }
}
